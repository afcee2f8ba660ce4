//! Whom to clean, and where to put what is moved? Each policy is one file, and a pure function from
//! a [`View`] of the volume and a [`Memory`] of earlier choices to a choice and the new memory.
//!
//! A *unit* is what is chosen: a section as a victim, a segment as a target of threaded logging. It
//! is known by its first segment. A policy reads nothing but the view and what it is handed, so a
//! text fixture or a simulator's table is as good as a volume. Left out on purpose: how a volume's tables become
//! candidates, when cleaning runs and how blocks are moved (a file system's business).
//!
//! * [`view`]: candidates, and what may be asked about them.
//! * [`plain`]: a view of a list, by looking at all of it. [`index`]: one of hundreds of thousands that change.
//! * [`fragmentation`]: how fragmented the free space of a segment is, f.
//! * [`memory`]: what is remembered from choice to choice, and the numbers a user may change.
//! * [`greedy`], [`cost_benefit`], [`atgc`]: the kernel's, to the integer.
//! * [`oldest`]: the candidates that policies by age compare, [`similar`]: those of similar age.
//! * [`mwhfb`], [`fagc`]: the papers'. [`joule`]: ours.
//! * [`chooser`]: which of them chooses when.
//!
//! [`Memory`]: memory::Memory
#![forbid(unsafe_code)]

mod ages;
pub mod atgc;
pub mod chooser;
pub mod cost_benefit;
pub mod fagc;
pub mod fragmentation;
pub mod greedy;
mod grid;
pub mod index;
pub mod joule;
pub mod memory;
pub mod mwhfb;
pub mod oldest;
pub mod plain;
mod policy;
pub mod similar;
pub mod view;

pub use chooser::{Chooser, Hurry};
pub use index::Index;
pub use policy::{Policy, Power};
pub use view::{AgeCut, Among, Bounds, Candidate, Rank, View, Visit, end_of};
