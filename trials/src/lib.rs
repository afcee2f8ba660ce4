//! Which tests do the project's file systems undergo?
//!
//! Power cuts at every write ([`crash`]), volumes filled with everything ([`populated`]) or aged ([`worn`]). `judges`
//! has the judges.
#![forbid(unsafe_code)]

pub mod contents;
pub mod crash;
pub mod populated;
pub mod subject;
pub mod worn;
