//! Does the volume do what the plainest file system does?
//!
//! One sequence of operations ([`Op`]) runs on a volume and on [`MemFs`](crate::memfs::MemFs), which
//! shares no code with it; after each the results must agree, at the end the trees. Left out: what may
//! differ by nature (inode numbers, blocks used, sizes of directories, times).

mod compare;
mod op;
mod run;

pub use compare::{Tree, same_trees};
pub use op::{Dir, Name, Op, Place, Range, sequence};
pub use run::{Lockstep, Variant, apply};
