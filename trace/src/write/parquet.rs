//! What was read as Parquet, for DuckDB, pandas and their like: a row for each event or call, a column for each thing
//! that is known of it.
//!
//! Numbers are unsigned, times are nanoseconds since whatever the recording counts from, and what is not told is null.
//! Text that is no UTF-8 has `�` where it is none. The file's metadata has `joulefs.format`: which format it was read
//! from.

mod blocks;
mod calls;
mod table;

pub use self::blocks::Blocks;
pub use self::calls::Calls;
pub use self::table::{GROUP, Table};
use crate::Format;

/// What the file's metadata says of where its rows come from.
fn origin(format: Format) -> (&'static str, &'static str) {
    ("joulefs.format", format.text())
}
