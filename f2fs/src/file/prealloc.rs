//! Which files get blocks set aside to grow into, and how many?
//!
//! Databases and their journals, by their names, if a mount asks for it (`prealloc=db`): they grow by a block or two with
//! every transaction, several at a time, and so lie in as many pieces as they have blocks. Blocks are set aside when such a
//! file first gets one that it had no place for; small fsyncs afterwards overwrite in place, so that the file stays as it
//! lies. `posix_fallocate`, which Ji HotStorage'16 proposes, does not help here: on F2FS it reserves room, not places.
//!
//! Left out: where the blocks are, and what becomes of those that are left (`segment/windows.rs`).

use format::inode::{Advise, RawInode};
use format::sit::LogType;

/// Blocks set aside for a file at a time: 100 KB (Ji HotStorage'16, section 6, for journals).
pub const DEFAULT_BLOCKS: u32 = 25;
/// The most: a segment.
pub const MOST_BLOCKS: u32 = 512;

/// Endings of the names of databases, their journals and logs (Ji HotStorage'16, section 4, and newer ones of their kind).
const ENDS: [&[u8]; 10] =
    [b".db", b"_db", b".db3", b".sqlite", b".sqlite3", b".sqlitedb", b".realm", b".wal", b"-wal", b"-journal"];

/// How many blocks a file gets set aside, if it gets any from this log. `blocks` is what the mount asks for.
pub(crate) fn ahead(raw: &RawInode, log: LogType, blocks: Option<u32>) -> Option<u32> {
    let blocks = blocks?;
    let name = raw.name();
    let database =
        ENDS.iter().any(|end| name.len() >= end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end));
    // What is written at large needs none.
    (log == LogType::HotData && (database || raw.advise().contains(Advise::HOT))).then_some(blocks)
}
