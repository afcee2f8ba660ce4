//! How does a program of JouleFS answer a person or another program?
//!
//! * [`output`]: answers on standard output, remarks on standard error; [`mod@table`], [`joules`], [`spent`]: tables, of energy too;
//!   [`hidden`]: characters that would act on a terminal; [`schema`]: the form of JSON; [`rows`]: Parquet for notebooks.
//! * [`failure`]: one line, and whose fault it was; [`meant`]: what a misspelled word meant.
//! * [`whole`], [`half_made`]: files that are complete or absent; [`interrupt`]: signals; [`progress`]: bars.
//! * [`program`]: which build this is; [`mod@generate`]: man pages and completions.
//!
//! Left out: what the commands do (`cli`, `lab`).
#![forbid(unsafe_code)]

pub mod failure;
pub mod generate;
pub mod half_made;
pub mod hidden;
pub mod interrupt;
pub mod joules;
pub mod meant;
pub mod output;
pub mod program;
pub mod progress;
pub mod rows;
pub mod schema;
pub mod spent;
pub mod table;
pub mod whole;

pub use failure::Failure;
