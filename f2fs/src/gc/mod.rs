//! Cleaning (garbage collection): how are used sections turned into free ones?
//!
//! * `collect`: moves the valid blocks of a section elsewhere.
//! * `pace`: foreground cleaning, when space is short: when it runs, and how much it does.
//! * `checkpoint`: writes a checkpoint of everything; cleans if contents find no place.
//! * [`background`]: cleaning ahead of time. [`pacer`]: when that is due.
//! * [`linux`]: the pace of the kernel's thread, by version.
//! * `uses`: what the next use of the volume will take.
//! * [`settings`]: what a user can set. `cleaner`, `work`: what cleaning remembers, and the section being emptied.
//! * [`control`]: the settings and counters of a mounted volume.
//! * [`waits`]: how long a caller waits that comes while the background cleans.
//! * `room`: sections are cleaned for blocks that are to lie together.
//! * [`prices`]: what operations cost on a device, for a policy that weighs joules.
//!
//! Left out on purpose: which section to clean (the `victim` crate), and what a policy sees of the volume (`segment`).

pub mod background;
mod checkpoint;
pub(crate) mod cleaner;
mod collect;
pub mod control;
pub mod linux;
mod pace;
pub mod pacer;
pub mod prices;
mod room;
pub mod settings;
mod uses;
pub mod waits;
mod work;
