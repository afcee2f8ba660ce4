//! Cleaning: making free sections out of used ones.
//!
//! * `collect`: moving the valid blocks of one section elsewhere.
//! * `pace`: when cleaning must run because space is short, and how much of it.
//! * [`background`]: cleaning ahead of time, [`pacer`]: when that is due.
//! * [`settings`]: how it is set; `cleaner`, `work`: what it remembers, and the section being emptied.
//! * [`control`]: the knobs and counters of a mounted volume.
//! * [`prices`]: what operations cost on a device, for a policy that weighs joules.
//!
//! Left out on purpose: whom to clean (the `victim` crate) and what a policy sees of the volume
//! (`segment`).

pub mod background;
pub(crate) mod cleaner;
mod collect;
pub mod control;
mod pace;
pub mod pacer;
pub mod prices;
pub mod settings;
mod work;
