//! What happens in exactly this thread order, with exactly this device failure or power cut?
//!
//! A seed decides everything: the operations of 2 to 4 threads on a small volume ([`course`]), which thread continues
//! at every lock and every device request ([`choice`]), which request the device refuses or when power fails. [`run()`]
//! executes it, on the file system's own source compiled with locks that a scheduler controls (`schedules/core`,
//! `schedules/locks`), and checks the results: the answers of all calls fit some order that a plain tree accepts
//! ([`order`], [`tree`]); our fsck finds nothing; remounting gives the unmounted contents; after a cut, everything made
//! durable exists ([`durable`]). The same seed gives the same [`Outcome`], including the digest of image and ledger.
//!
//! Left out: races between two atomics without a lock or a request between them (atomics are no scheduling points), and
//! memory orderings weaker than sequential. The threads also make concurrent calls that a kernel would never make.
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
