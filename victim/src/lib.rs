//! Which section should a cleaner clean, and which segment should take the blocks it moves? Each policy is
//! one file: a pure function from a [`View`] of the volume and a [`Memory`] of earlier choices to a choice
//! and the new memory.
//!
//! A *victim* is the section to clean; a *target* is a segment whose holes a log fills (threaded logging).
//! *Unit* means either of them, identified by its first segment. A policy reads nothing but the view and its
//! arguments, so it works the same on a text fixture, a simulator's table and a volume. Left out on purpose:
//! how a volume's tables become candidates, when cleaning runs, and how blocks are moved (a file system's
//! business).
//!
//! * [`view`]: candidates, and the queries of a policy.
//! * [`plain`]: a view of a list, which examines every candidate. [`index`]: a view of hundreds of thousands
//!   that change.
//! * [`fragmentation`]: f, how fragmented the free space of a segment is.
//! * [`memory`]: what a policy remembers from choice to choice, and the numbers a user may change.
//! * [`greedy`], [`cost_benefit`], [`atgc`]: the kernel's policies, with identical integer results.
//! * [`oldest`]: the candidates that age-based policies compare. [`similar`]: segments of similar age.
//! * [`mwhfb`], [`fagc`]: policies from papers. [`joule`]: our own.
//! * [`Outlook`]: the free space and the next use of the volume, for a policy that looks ahead.
//! * [`chooser`]: which of these policies chooses on which occasion.
//!
//! [`Memory`]: memory::Memory
//!
//! Two policies, two opinions: greedy takes the emptier section, cost-benefit the older one.
//!
//! ```
//! use joulefs_victim::format::SegNo;
//! use joulefs_victim::memory::{Ask, Memory, Tuning};
//! use joulefs_victim::{Candidate, cost_benefit, greedy, plain::Plain};
//!
//! let candidate = |seg, valid, mtime| Candidate { seg: SegNo(seg), valid, held: valid, mtime, f: 0, loose: 0 };
//! let view = Plain::new(1, vec![candidate(3, 200, 10), candidate(5, 180, 1000)]);
//! let (memory, tuning, ask) = (Memory::at_mount(1000, 10), Tuning::default(), Ask::background(SegNo(10), 1));
//! let victim = |choice: Option<joulefs_victim::memory::Choice>| choice.map(|c| c.victim.seg);
//! assert_eq!(victim(greedy::choose(&view, &memory, &tuning, ask).0), Some(SegNo(5)));
//! assert_eq!(victim(cost_benefit::choose(&view, &memory, &tuning, ask).0), Some(SegNo(3)));
//! ```
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
mod outlook;
pub mod plain;
mod policy;
mod prices;
pub mod similar;
pub mod view;

/// Its numbers of segments and types of logs are arguments of the policies.
pub use ::format;
pub use chooser::{Chooser, Hurry};
pub use index::Index;
pub use outlook::Outlook;
pub use policy::Policy;
pub use prices::Prices;
pub use vfs::Power;
pub use view::{AgeCut, Among, Bounds, Candidate, Rank, View, Visit, end_of};

/// The README's example, so that it is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
