//! What do Linux's tracepoints record about block devices? The part common to ftrace's text, trace.dat and Perfetto.
//!
//! A request can be recorded three times ([`Layer`]): by the block layer, by its accounting (`block_io_start`,
//! `block_io_done`: often the only ones on phones), and by the UFS controller (`ufshcd_command`). [`layers`] chooses
//! one.

pub(crate) mod layers;

use crate::block::{Action, DeviceId, Event, Flags, Op};
use crate::names::files::Place;
use crate::writeback::{Notice, What};
use crate::{Process, block};

/// Source of an event; the first is preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Layer {
    /// `block_rq_*`, `block_bio_*` and similar.
    Block,
    /// `block_io_start`, `block_io_done`.
    Accounting,
    /// `ufshcd_command`.
    Controller,
    /// Writeback tracepoints, which are about inodes, not requests.
    Writeback,
}

/// An event with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) layer: Layer,
    pub(crate) event: Event,
    /// For [`Layer::Writeback`], what happened to an inode; of the event only process and time are used.
    pub(crate) notice: Option<Notice>,
}

impl Heard {
    pub(crate) fn new(layer: Layer, event: Event) -> Self {
        Heard { layer, event, notice: None }
    }
}

/// Type of a writeback tracepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InodeEvent {
    /// `writeback_dirty_folio`, `writeback_dirty_page`, `writeback_dirty_inode_enqueue`.
    Dirtied,
    /// `writeback_single_inode_start`.
    Begins,
    /// `writeback_single_inode`.
    Ends,
}

impl InodeEvent {
    /// The notice for this inode; `left` is true if it still has dirty pages.
    pub(crate) fn notice(self, place: Place, ino: u64, left: bool) -> Notice {
        let what = match self {
            InodeEvent::Dirtied => What::Dirtied,
            InodeEvent::Begins => What::Begins,
            InodeEvent::Ends => What::Ends { left },
        };
        Notice { what, place, ino }
    }
}

/// Type of a tracepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// An event of a request or bio.
    Extent(Layer, Action),
    /// `block_plug`, `block_unplug`: without an extent.
    Plug,
    /// `ufshcd_command`.
    Ufs,
    /// An event of an inode.
    Inode(InodeEvent),
}

/// The tracepoint with this name; `None` if it has nothing to do with requests to block devices.
///
/// `block_rq_merge` is blktrace's back merge; `block_rq_error` accompanies a completion and does not count as a second
/// one.
pub(crate) fn point(name: &[u8]) -> Option<Point> {
    use Action::{BackMerge, Complete, FrontMerge, Get, Insert, Issue, Other, Queue, Remap, Requeue, Split};
    let rest = match name.strip_prefix(b"block_") {
        Some(rest) => rest,
        None => {
            return match name {
                b"ufshcd_command" => Some(Point::Ufs),
                b"writeback_dirty_folio" | b"writeback_dirty_page" | b"writeback_dirty_inode_enqueue" => {
                    Some(Point::Inode(InodeEvent::Dirtied))
                }
                b"writeback_single_inode_start" => Some(Point::Inode(InodeEvent::Begins)),
                b"writeback_single_inode" => Some(Point::Inode(InodeEvent::Ends)),
                _ => None,
            };
        }
    };
    let action = match rest {
        b"rq_issue" => Issue,
        b"rq_complete" | b"bio_complete" => Complete,
        b"rq_insert" => Insert,
        b"rq_requeue" => Requeue,
        b"rq_merge" | b"bio_backmerge" => BackMerge,
        b"bio_frontmerge" => FrontMerge,
        b"bio_queue" => Queue,
        b"bio_remap" | b"rq_remap" => Remap,
        b"getrq" => Get,
        b"split" => Split,
        b"sleeprq" | b"bio_bounce" | b"rq_abort" | b"rq_error" => Other,
        b"io_start" => return Some(Point::Extent(Layer::Accounting, Issue)),
        b"io_done" => return Some(Point::Extent(Layer::Accounting, Complete)),
        b"plug" | b"unplug" => return Some(Point::Plug),
        _ => return None,
    };
    Some(Point::Extent(Layer::Block, action))
}

/// Decodes the kernel's internal device number, also used in its events: 20 bits of minor.
pub(crate) fn device(dev: u64) -> DeviceId {
    DeviceId { major: (dev >> 20) as u32 & 0xfff, minor: dev as u32 & 0xf_ffff }
}

/// An event without an extent, to be filled in.
pub(crate) fn blank(time: u64, cpu: u32, pid: u32, process: Process) -> Event {
    Event {
        time,
        action: Action::Other,
        op: Op::Other,
        flags: Flags::empty(),
        sector: 0,
        sectors: 0,
        device: DeviceId::default(),
        cpu,
        pid,
        process,
        took: None,
        error: 0,
        writing: Default::default(),
        from: None,
    }
}

/// The first sector of an event with `sectors`: some kernels use -1 in completions without sectors.
pub(crate) fn first_sector(sector: u64, sectors: u64) -> u64 {
    if sectors == 0 && sector == u64::MAX { 0 } else { sector }
}

/// Block size of UFS commands.
const UFS_BLOCK: u64 = 4096;

/// A UFS command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ufs {
    /// SCSI opcode.
    pub(crate) opcode: u64,
    /// The first block. Kernels before 5.14 wrote 512-byte sectors here; a recording does not show which.
    pub(crate) lba: u64,
    /// Length in bytes.
    pub(crate) length: u64,
}

/// Whether the command was issued or completed.
pub(crate) fn ufs_action(what: &[u8]) -> Option<Action> {
    match what {
        b"send_req" | b"send" => Some(Action::Issue),
        b"complete_rsp" | b"complete" => Some(Action::Complete),
        _ => None,
    }
}

impl Ufs {
    /// Operation and sectors; `None` for a command that transfers no contents. Logical units are not distinguished.
    pub(crate) fn extent(self) -> Option<(Op, u64, u64)> {
        let op = match self.opcode {
            // READ (6), (10), (16).
            0x08 | 0x28 | 0x88 => Op::Read,
            // WRITE (6), (10), (16).
            0x0a | 0x2a | 0x8a => Op::Write,
            // UNMAP.
            0x42 => Op::Discard,
            // SYNCHRONIZE CACHE (10), (16).
            0x35 | 0x91 => return Some((Op::Flush, 0, 0)),
            _ => return None,
        };
        let sectors = self.length.div_ceil(block::SECTOR);
        Some((op, self.lba.saturating_mul(UFS_BLOCK / block::SECTOR), sectors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_controller_are_requests_in_its_blocks() {
        let read = Ufs { opcode: 0x28, lba: 10, length: 8192 };
        assert_eq!(read.extent(), Some((Op::Read, 80, 16)));
        assert_eq!(Ufs { opcode: 0x2a, ..read }.extent(), Some((Op::Write, 80, 16)));
        assert_eq!(Ufs { opcode: 0x35, ..read }.extent(), Some((Op::Flush, 0, 0)));
        assert_eq!(Ufs { opcode: 0x12, ..read }.extent(), None);
    }

    #[test]
    fn a_device_number_has_the_kernels_encoding() {
        assert_eq!(device(254 << 20 | 3), DeviceId { major: 254, minor: 3 });
    }

    #[test]
    fn names_that_only_look_like_block_events_are_none() {
        assert_eq!(point(b"block_rq_issue"), Some(Point::Extent(Layer::Block, Action::Issue)));
        assert_eq!(point(b"block_dirty_buffer"), None);
        assert_eq!(point(b"block_rq_issue2"), None);
        assert_eq!(point(b"f2fs_sync_file_enter"), None);
    }
}
