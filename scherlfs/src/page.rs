//! A block of contents in memory.

use std::sync::Arc;

use scherlfs_format::Block;

/// It is shared with a transaction on its way to the disk: who changes it meanwhile changes a copy.
pub(crate) type Page = Arc<Block>;
