//! Small updates: how does a changed page live in its inode instead of in a block of its own?
//!
//! After MedFS (FAST'25), made durable. On a volume with [`format::superblock::Features::DELTA`] a dirty page that
//! differs in few bytes from the block that the device has of it, its *base*, is not written: the difference goes into
//! the *zone* of the inode ([`format::delta`]), which an fsync or a checkpoint writes anyway. So an fsync of small
//! changes writes one block, and its flush is the only one.
//!
//! A page is a hole, reserved, plain (its block holds its contents) or a delta (its block is the base). Of each, memory
//! may have newer contents.
//! * [`plan`]: which dirty pages become deltas, and which older deltas make room.
//! * [`fold`]: how a delta's page is written whole, and the delta goes.
//! * [`read`]: what a page with a delta holds.
//! * [`settle`](fn@settle): how a volume comes to hold deltas, and becomes plain F2FS again.
//!
//! Three rules keep base and delta together. A slot that gets another address loses its delta in the same change of the
//! node, except when cleaning moves the base. A page with a delta is never overwritten in place: the inode on the device
//! may still need the base. A delta is dropped only in exchange for the whole page or for nothing (the page is gone), so
//! no version of the inode that could become durable has lost it.
//!
//! Left out: the format of a zone, and how pages are compared (`format::delta`).

mod choose;
pub(crate) mod fold;
pub(crate) mod plan;
pub(crate) mod read;
mod settle;

pub use settle::{DeltaCount, SettleError, Settled, settle, unsettle};
