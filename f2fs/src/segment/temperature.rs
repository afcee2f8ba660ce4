//! Which log does a block's temperature select, and when is a block overwritten in place?

use format::inode::{Advise, Inline, RawInode};
use format::sit::LogType;

/// Where blocks may go (Linux: `mode=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// To the ends of the logs, into holes of used segments if free ones are few, and in place where the rules allow
    /// it.
    #[default]
    Adaptive,
    /// Only to the ends of the logs, in free sections (Linux: `mode=lfs`). Only pinned files are overwritten in place.
    Lfs,
}

/// Why contents are written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writeback {
    /// The limit of dirty contents, a timer or a checkpoint.
    Background,
    /// An fsync of the file, which also writes its inode.
    Fsync,
    /// An fsync that writes the inode only if a block gets a new address.
    FsyncContents,
    /// A commit of writes that become durable together: no block is overwritten.
    Atomic,
}

/// Writebacks of at most this many blocks are hot (kernel `DEF_MIN_HOT_BLOCKS`).
const HOT_BLOCKS: usize = 16;
/// By default, an fsync of at most this many blocks overwrites in place (kernel `DEF_MIN_FSYNC_BLOCKS`).
pub const IN_PLACE_BLOCKS: usize = 8;

/// The log for the data of an inode with `dirty` blocks to write (kernel `__get_segment_type_6`; write hints do not
/// reach this file system).
pub fn data_log(raw: &RawInode, dirty: usize) -> LogType {
    let advise = raw.advise();
    if advise.contains(Advise::COLD) {
        LogType::ColdData
    } else if advise.contains(Advise::HOT) || dirty <= HOT_BLOCKS {
        LogType::HotData
    } else {
        LogType::WarmData
    }
}

/// True if blocks with an address are overwritten in place (kernel `should_update_inplace` under the default policy):
/// always in pinned and cold files, in other files by an fsync of `few` blocks, never in directories. Under
/// [`Mode::Lfs`] only in pinned files, whose users rely on the addresses.
pub fn in_place(raw: &RawInode, few: bool, why: Writeback, mode: Mode) -> bool {
    if crate::fields::is_dir(raw) || why == Writeback::Atomic {
        return false;
    }
    let pinned = raw.inline().contains(Inline::PIN_FILE);
    if mode == Mode::Lfs {
        return pinned;
    }
    let always = pinned || raw.advise().contains(Advise::COLD);
    always || (why != Writeback::Background && few)
}
