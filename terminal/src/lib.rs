//! How does a JouleFS program present results to people and other programs?
//!
//! * [`output`]: results on standard output, warnings on standard error; [`mod@table`], [`joules`], [`spent`], [`judged`]: tables,
//!   including energy and comparisons; [`hidden`]: characters that would act on a terminal; [`schema`]: the form of JSON; [`rows`]:
//!   Parquet for notebooks.
//! * [`failure`]: one-line errors and exit codes; [`meant`]: suggestions for misspelled words.
//! * [`whole`], [`half_made`]: files that are complete or absent; [`interrupt`]: signals; [`progress`]: bars.
//! * [`program`]: the build; [`mod@generate`]: man pages and completions.
//!
//! Left out: the commands themselves (`cli`, `lab`).
#![forbid(unsafe_code)]

pub mod failure;
pub mod generate;
pub mod half_made;
pub mod hidden;
pub mod interrupt;
pub mod joules;
pub mod judged;
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
