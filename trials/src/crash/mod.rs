//! What may a power cut leave, and what must it?
//!
//! A [`Scenario`]'s steps, or a [`Course`]'s at random, run on a device whose power goes at a chosen write; what
//! the medium then holds is mounted and judged against a [`Record`] of every step.
//!
//! # The rule
//! * A file has a *floor*: its contents when it was last made durable (`fsync` of it, `sync`).
//!   Afterwards each of its 512-byte sectors is that of the floor or of a later version (zero, where
//!   that version was shorter), and its size that of the floor or of a later version.
//! * A name has a floor too: what it led to when its file was synced, its directory was, or
//!   everything was. It leads to what it led to then or later.
//! * A file with a floor that had a name ever since still has one: of a rename, either name.
//! * The file system's own `fsck` finds nothing, before recovery, after it, and after a clean unmount.

mod course;
mod gather;
mod record;
mod run;
mod scenario;
mod step;

pub use course::{Course, Habits};
pub use record::Record;
pub use run::{Cut, Plan, defragment, f2fs, judge, plan, scherlfs, settled, surviving};
pub use scenario::{SCENARIOS, Scenario};
pub use step::Step;
