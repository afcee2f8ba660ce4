//! What do our file systems go through, to be judged?
//!
//! Power cuts at every write ([`crash`]), volumes filled with everything ([`populated`]) or aged ([`worn`]). Who judges is in
//! `judges`.
#![forbid(unsafe_code)]

pub mod contents;
pub mod crash;
pub mod populated;
pub mod subject;
pub mod worn;
