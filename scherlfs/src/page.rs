//! A block of contents in memory.

use std::sync::Arc;

use scherlfs_format::Block;

/// Shared with a transaction in progress: a change meanwhile works on a copy.
pub(crate) type Page = Arc<Block>;
