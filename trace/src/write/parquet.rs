//! How is a recording written as Parquet, for DuckDB, pandas and similar tools? One row per event or call, one column
//! per property.
//!
//! Numbers are unsigned, times are nanoseconds since the start of the recording's clock, and unknown values are null.
//! Invalid UTF-8 is replaced by `�`. The file's metadata has the original format, as `joulefs.format`.

mod blocks;
mod calls;
mod table;

pub use self::blocks::Blocks;
pub use self::calls::Calls;
pub use self::table::{GROUP, Table};
use crate::Format;

/// The metadata entry for the original format.
fn origin(format: Format) -> (&'static str, &'static str) {
    ("joulefs.format", format.text())
}
