//! What may a power cut leave, and what must it?
//!
//! The steps of a [`Scenario`], or the random ones of a [`Course`], run on a device whose power fails at a chosen
//! write; the remaining contents are mounted and judged against a [`Record`] of every step.
//!
//! # The rule
//! * A file has a *floor*: its contents when it was last made durable (by its own `fsync` or `sync`). Afterwards each
//!   of its 512-byte sectors is that of the floor or of a later version (zero, where that version was shorter), and its
//!   size that of the floor or of a later version.
//! * A name has a floor too: its target when its file was synced, its directory was, or everything was. It leads to
//!   that target or a later one.
//! * A file with a floor that has had a name ever since still has one: during a rename, either name.
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
