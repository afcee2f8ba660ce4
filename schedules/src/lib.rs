//! What if threads meet in just this order, the device fails just here, or the power goes just now?
//!
//! One seed is one answer: it decides what 2 to 4 threads ask of a small volume ([`course`]), which of them goes
//! on at every lock and every device request ([`choice`]), which request the device refuses or at which the
//! power goes. [`run()`] carries it out, on the file system's own source compiled with locks that a scheduler
//! decides about (`schedules/core`, `schedules/locks`), and asks the judges: the answers of all calls can be put in
//! an order that a plain tree accepts ([`order`], [`tree`]); our fsck finds nothing; the volume mounted anew is
//! the volume unmounted; after a cut, whatever was made durable is there ([`durable`]). The same seed gives the same
//! [`Outcome`], digest of image and ledger included.
//!
//! Left out: races between two atomics with no lock and no request between them (atomics are no scheduling
//! points), memory orderings weaker than sequential, and what a kernel above would never ask at the same time
//! is asked here all the same.
#![forbid(unsafe_code)]

pub mod choice;
pub mod course;
pub mod durable;
pub mod hand;
mod many;
pub mod medium;
pub mod mounting;
pub mod order;
pub mod run;
mod scene;
pub mod scherl;
pub mod shrink;
pub mod tree;

pub use course::{Case, Type};
pub use many::{Sum, many};
pub use run::{Failure, Outcome, plain, run, run_and_keep};
