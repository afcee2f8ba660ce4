//! Which files get preallocated blocks for growth, and how many?
//!
//! With the mount option `prealloc=db`, databases and their journals, recognized by name. They grow by a block or two
//! per transaction, several files at a time, so without preallocation almost every block would be a fragment of its
//! own. Blocks are preallocated when such a file first needs a new place; later small fsyncs overwrite in place, so
//! that the file keeps its layout. `posix_fallocate`, which Ji HotStorage'16 proposes, does not help: on F2FS it
//! reserves space, not addresses.
//!
//! Left out: where the blocks are, and what happens to unused ones (`segment/windows.rs`).

use format::inode::{Advise, RawInode};
use format::sit::LogType;

/// Blocks preallocated for a file at a time: 100 KB (Ji HotStorage'16, section 6, for journals).
pub const DEFAULT_BLOCKS: u32 = 25;
/// Most blocks at a time: a segment.
pub const MOST_BLOCKS: u32 = 512;

/// File name suffixes of databases, their journals and logs (Ji HotStorage'16, section 4, and newer ones).
const ENDS: [&[u8]; 10] =
    [b".db", b"_db", b".db3", b".sqlite", b".sqlite3", b".sqlitedb", b".realm", b".wal", b"-wal", b"-journal"];

/// How many blocks to preallocate for a file in this log, if any. `blocks` is the mount option.
pub(crate) fn ahead(raw: &RawInode, log: LogType, blocks: Option<u32>) -> Option<u32> {
    let blocks = blocks?;
    let name = raw.name();
    let database =
        ENDS.iter().any(|end| name.len() >= end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end));
    // Large writes need no preallocation.
    (log == LogType::HotData && (database || raw.advise().contains(Advise::HOT))).then_some(blocks)
}
