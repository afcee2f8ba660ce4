//! Possible findings as types: each names a structure, a place and a fault.

use std::fmt;

use format::checkpoint::CpFlags;
use format::node::kept::KEPT;
use format::sit::LogType;
use format::summary::Summary;
use format::{BlockAddr, FormatError, Ino, Nid, SegNo};

pub use super::terms::*;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Valid, but worth reporting.
    Note,
    /// Unusual, but Linux works with it and nothing is lost.
    Warning,
    /// The volume contradicts itself.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// A fault. Names follow the on-disk structures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message explains the fields
pub enum FindingKind {
    // --- superblock and checkpoint ---
    #[error("superblock copy {copy}: {error}")]
    SuperblockBad { copy: u8, error: FormatError },
    #[error("superblock copies differ, first at byte {offset}")]
    SuperblockCopiesDiffer { offset: usize },
    #[error("superblock: unknown feature bits {bits:#x}")]
    UnknownFeatures { bits: u32 },
    #[error("device ends at block {blocks}, the volume at {needs}")]
    DeviceTooSmall { blocks: u64, needs: u64 },
    #[error("checkpoint pack {pack}: {error}")]
    PackBad { pack: Pack, error: FormatError },
    #[error("checkpoint pack {pack}: head is version {head}, tail version {tail}")]
    PackTorn { pack: Pack, head: u64, tail: u64 },
    #[error("no valid checkpoint pack")]
    NoCheckpoint,
    #[error("checkpoint pack {pack}, whose checksums hold: {error}")]
    CheckpointField { pack: Pack, error: FormatError },
    #[error("checkpoint pack {pack} carries error marks: {flags:?}")]
    ErrorFlags { pack: Pack, flags: CpFlags },
    #[error("{total} of the checkpoint is {stored}, but {counted} were counted")]
    TotalWrong { total: Total, stored: u64, counted: u64 },
    #[error("{nodes} node blocks written after the checkpoint wait for roll-forward")]
    NeedsRecovery { nodes: u64 },
    #[error("synced after the checkpoint: {}inode {}, {} node blocks and {} blocks of contents",
        .0.path.as_ref().map_or(String::new(), |path| format!("{path}, ")), .0.ino, .0.nodes, .0.blocks)]
    Synced(Synced),
    #[error("{nodes} node blocks were written after the checkpoint without an fsync: not part of the volume")]
    UnsyncedNodes { nodes: u64 },
    #[error("nat_bits: block {block} of the NAT is marked {marked}, but is {is}")]
    NatBitsWrong { block: u32, marked: &'static str, is: &'static str },

    // --- orphans ---
    #[error("orphan block {index}: {error}")]
    OrphanBlockBad { index: u32, error: FormatError },
    #[error("orphan inode {ino} has a name")]
    OrphanHasName { ino: Ino },
    #[error("orphan inode {ino} has {links} links")]
    OrphanHasLinks { ino: Ino, links: u32 },

    // --- NAT ---
    #[error("NAT journal: {error}")]
    NatJournalBad { error: FormatError },
    #[error("NAT journal: entry for node {nid}, outside the NAT")]
    NatJournalNid { nid: Nid },
    #[error("NAT entry of node {nid}: owner is inode {stored}, must be inode {is}")]
    NatInoWrong { nid: Nid, stored: Ino, is: Ino },
    #[error("NAT entry of node {nid}, which no volume has, is inode {ino} at {addr}; must be inode {nid} at 1")]
    NatReserved { nid: Nid, ino: Ino, addr: BlockAddr },
    #[error("NAT entry of node {nid} (inode {ino}) at {addr}: nothing refers to it")]
    Unreachable { nid: Nid, ino: Ino, addr: BlockAddr },

    #[error("NAT: under its entry in the journal, node {nid} has one with an address and no inode")]
    NatShadowed { nid: Nid },

    // --- SIT ---
    #[error("SIT journal: {error}")]
    SitJournalBad { error: FormatError },
    #[error("SIT journal: entry for segment {segment}, outside the main area")]
    SitJournalSegment { segment: SegNo },
    #[error("SIT entry of segment {segment}: count is {stored}, but its map has {counted}")]
    SitCountMismatch { segment: SegNo, stored: u16, counted: u16 },
    #[error("SIT: under its entry in the journal, segment {segment} has one whose count is not that of its map")]
    SitShadowed { segment: SegNo },
    #[error("SIT entry of segment {segment}: unknown type {stored}")]
    SitTypeBad { segment: SegNo, stored: u16 },
    #[error("SIT entry of segment {segment}: type is {stored:?}, but it holds {holds}")]
    SitClassWrong { segment: SegNo, stored: LogType, holds: Class },
    #[error("SIT entry of segment {segment}: {count} blocks in use are not marked, the first at {first}")]
    SitMissing { segment: SegNo, first: BlockAddr, count: u16 },
    #[error("SIT entry of segment {segment}: {count} unused blocks are marked as in use, the first at {first}")]
    SitSurplus { segment: SegNo, first: BlockAddr, count: u16 },

    // --- summaries and logs ---
    #[error("compact summaries of the checkpoint pass its blocks")]
    SummariesShort,
    #[error("summary of segment {segment}: footer says {stored}, the segment holds {holds}")]
    SummaryKindWrong { segment: SegNo, stored: u8, holds: Class },
    #[error("summary of block {addr}: says node {}, version {}, slot {}; it is node {}, version {}, slot {}",
        .stored.nid, .stored.version, .stored.slot, .is.nid, .is.version, .is.slot)]
    SummaryWrong { addr: BlockAddr, stored: Summary, is: Summary },
    #[error("log {log:?}: its segment {segment} has SIT type {stored:?}")]
    LogTypeWrong { log: LogType, segment: SegNo, stored: LogType },
    #[error("log {log:?}: block {addr}, at or after its next free block, is in use")]
    LogBlockTaken { log: LogType, addr: BlockAddr },

    // --- nodes ---
    #[error("node {nid}, wanted by {from}: {fault}")]
    NodeUnusable { nid: Nid, from: Referrer, fault: NodeFault },
    #[error("node {nid} of inode {ino}: footer offset is {stored}, must be {is}")]
    NodeOffsetWrong { ino: Ino, nid: Nid, stored: u32, is: u32 },
    #[error("{at}: address {addr} is outside the main area")]
    AddrOutside { at: Slot, addr: BlockAddr },
    #[error("{at}: block {addr} is in use for something else")]
    BlockTaken { at: Slot, addr: BlockAddr },
    #[error("{at}: cluster mark not at the start of a cluster of a compressed file")]
    ClusterMark { at: Slot },

    // --- inodes ---
    #[error("inode {ino}: {error}")]
    InodeBad { ino: Ino, error: FormatError },
    #[error("inode {ino}: checksum is {stored:#010x}, contents give {computed:#010x}")]
    InodeChecksum { ino: Ino, stored: u32, computed: u32 },
    #[error("inode {ino}: i_blocks is {stored}, counted {counted}")]
    BlocksWrong { ino: Ino, stored: u64, counted: u64 },
    #[error("inode {ino}: size {size} passes the {most} bytes that it can have")]
    SizeTooLarge { ino: Ino, size: u64, most: u64, is: u64 },
    #[error("inode {ino}: i_links is {stored}, counted {counted}")]
    LinksWrong { ino: Ino, stored: u32, counted: u32 },
    #[error("inode {ino}: i_compr_blocks is {stored}, counted {counted}")]
    ComprBlocksWrong { ino: Ino, stored: u64, counted: u64 },
    #[error("inode {ino}: i_namelen is {len}")]
    NameLenBad { ino: Ino, len: u32 },
    #[error("inode {ino}: inline {what} in a file of mode {mode:#o}")]
    InlineMisplaced { ino: Ino, what: &'static str, mode: u16 },
    #[error("inode {ino}: size {size} exceeds the {room} bytes of inline data")]
    InlineTooLong { ino: Ino, size: u64, room: usize },
    #[error("inode {ino}: the word before inline data is {value:#x}, must be 0")]
    InlineReserved { ino: Ino, value: u32 },
    #[error("inode {ino}: inline data is there, but not marked")]
    InlineUnmarked { ino: Ino },
    #[error("inode {ino}: i_inline is {stored:#04x}, what the inode holds says {is:#04x}")]
    InlineWrong { ino: Ino, stored: u8, is: u8 },
    #[error("inode {ino}: inline attributes of {words} words; Linux takes 6 to 903")]
    InlineXattrSize { ino: Ino, words: u32 },
    #[error("inode {ino}: marked {what}, which the volume or this kind of file cannot be")]
    MarkMisplaced { ino: Ino, what: Mark },
    #[error("inode {ino}: mode is {stored:#o}, its name and what it holds say {is:#o}")]
    ModeWrong { ino: Ino, stored: u16, is: u16 },
    #[error("inode {ino}: contents are inline, yet i_nid leads to node {nid}")]
    InlineNids { ino: Ino, nid: Nid },
    #[error("inode {ino}: extent of {len} blocks at file block {from}, {addr} is not in its block map")]
    ExtentWrong { ino: Ino, from: u32, addr: BlockAddr, len: u32 },
    #[error("inode {ino}: its deltas cannot be read: {error}")]
    ZoneBad { ino: Ino, error: FormatError },
    #[error("inode {ino}: the delta of {} does not fit what it changes", delta_target(*.block))]
    DeltaWrong { ino: Ino, block: u32 },
    #[error("inode {ino}: the delta of {} has no block that it changes", delta_target(*.block))]
    DeltaWithoutBase { ino: Ino, block: u32 },
    #[error("inode {ino}: file block {block} has a delta in the inode and one in a delta node")]
    DeltaTwice { ino: Ino, block: u32 },
    #[error("inode {ino}: delta node {nid} cannot be read: {error}")]
    DeltaNodeBad { ino: Ino, nid: Nid, error: FormatError },
    #[error("directory {ino}: size is {size}, its blocks need {needs}")]
    DirSizeWrong { ino: Ino, size: u64, needs: u64 },
    #[error("directory {ino}: i_current_depth is {stored}, its entries need {needs}")]
    DirDepthWrong { ino: Ino, stored: u32, needs: u32 },
    #[error("directory {ino}: i_dir_level is {stored}, its names stand as at level {is}")]
    DirLevelWrong { ino: Ino, stored: u8, is: u8 },
    #[error("symbolic link {ino}: size is 0 but it has a block")]
    SymlinkEmpty { ino: Ino },
    #[error("symbolic link {ino}: its target holds a NUL byte at {at}")]
    SymlinkNul { ino: Ino, at: usize },
    #[error("inode {ino}: i_pino is {stored}, its parent is {parent}")]
    ParentWrong { ino: Ino, stored: Ino, parent: Ino },
    #[error("directory {ino}: i_pino is {stored}, its parent is {parent}")]
    DirParentWrong { ino: Ino, stored: Ino, parent: Ino },
    #[error("inode {ino}: extended attributes: {fault}")]
    XattrBad { ino: Ino, fault: XattrFault },

    #[error("{file}, inode {ino}: {fault}; quotas stay off until fsck.f2fs -f has run")]
    QuotaFileBad { file: Referrer, ino: Ino, fault: QuotaFault },

    // --- directories ---
    #[error("{place}: in use, but its entry is unlawful")]
    DentryBad { place: DentryPlace },
    #[error("{place}: name {name} takes slots that are marked free")]
    DentrySlots { place: DentryPlace, name: Name },
    #[error("{place}: hash of {name} is {stored:#010x}, must be {computed:#010x}")]
    DentryHash { place: DentryPlace, name: Name, stored: u32, computed: u32 },
    #[error("{place}: {name} stands in the wrong bucket")]
    DentryBucket { place: DentryPlace, name: Name },
    #[error("{place}: {name} is marked type {stored}, its inode {ino} is {is}")]
    DentryType { place: DentryPlace, name: Name, ino: Ino, stored: u8, is: u8 },
    #[error("{place}: {name} is in the directory more than once")]
    DentryRepeated { place: DentryPlace, name: Name },
    #[error("{place}: {name} is a second name of directory {ino}")]
    DirectoryTwice { place: DentryPlace, name: Name, ino: Ino },
    #[error("directory {dir}: {which:?} is {fault}")]
    Dots { dir: Ino, which: &'static str, fault: DotFault },
    #[error("directory {dir}: hashes of encrypted names that fold case were not checked")]
    HashesUnchecked { dir: Ino },
}

impl FindingKind {
    /// Severity of the fault.
    pub fn severity(&self) -> Severity {
        use FindingKind as K;
        match self {
            K::NeedsRecovery { .. } | K::Synced(_) | K::UnsyncedNodes { .. } => Severity::Note,
            K::HashesUnchecked { .. } | K::UnknownFeatures { .. } => Severity::Note,
            // A power cut may leave a torn pack; the other one replaces it.
            K::PackBad { .. } | K::PackTorn { .. } | K::SuperblockCopiesDiffer { .. } => Severity::Warning,
            K::ErrorFlags { .. } | K::ParentWrong { .. } => Severity::Warning,
            // Linux mounts the volume and switches quotas off.
            K::QuotaFileBad { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

impl FindingKind {
    /// True if a repair mends it although nothing is lost now: a copy that the next damage may require, a mark that
    /// makes every mount check the volume, a parent that roll-forward would use.
    fn is_mendable(&self) -> bool {
        use FindingKind as K;
        matches!(
            self,
            K::PackBad { .. }
                | K::PackTorn { .. }
                | K::SuperblockCopiesDiffer { .. }
                | K::ErrorFlags { .. }
                | K::ParentWrong { .. }
        )
    }
}

/// A fault with its severity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The fault.
    pub kind: FindingKind,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.kind)
    }
}

/// Counts collected by a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Directories.
    pub dirs: u64,
    /// Everything else that has an inode.
    pub files: u64,
    /// Nodes, including inodes.
    pub nodes: u64,
    /// Valid blocks as the checkpoint counts them: nodes, data, reserved.
    pub blocks: u64,
    /// Blocks with an address.
    pub written_blocks: u64,
    /// Orphan inodes.
    pub orphans: u64,
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No error (possibly warnings and notes).
    Clean,
    /// At least one error.
    Findings,
}

/// The result of a check.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Findings in order of discovery; at most [`Report::MOST`].
    pub findings: Vec<Finding>,
    /// Number of findings past [`Report::MOST`].
    pub unlisted: u64,
    /// Errors, listed or not.
    pub errors: u64,
    /// Counts.
    pub counts: Counts,
    /// Version of the checkpoint that was checked.
    pub version: u64,
    /// True if that checkpoint was written by an unmount.
    pub clean_unmount: bool,
    /// Warnings that a repair mends, listed or not.
    pub(super) mendable_warnings: u64,
}

impl Report {
    /// Most findings kept, to bound memory on a badly damaged volume.
    pub const MOST: usize = 20_000;

    /// Clean or not.
    pub fn verdict(&self) -> Verdict {
        if self.errors == 0 { Verdict::Clean } else { Verdict::Findings }
    }
    /// True if there is no error.
    pub fn is_clean(&self) -> bool {
        self.errors == 0
    }
    /// Number of findings that a repair would mend.
    pub(super) fn mendable(&self) -> u64 {
        self.errors + self.mendable_warnings
    }
    /// The listed errors.
    pub fn errors(&self) -> impl Iterator<Item = &FindingKind> {
        self.findings.iter().filter(|f| f.severity == Severity::Error).map(|f| &f.kind)
    }
    pub(super) fn add(&mut self, kind: FindingKind) {
        let severity = kind.severity();
        self.errors += u64::from(severity == Severity::Error);
        self.mendable_warnings += u64::from(severity == Severity::Warning && kind.is_mendable());
        if self.findings.len() < Self::MOST {
            self.findings.push(Finding { severity, kind });
        } else {
            self.unlisted += 1;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        if self.unlisted > 0 {
            writeln!(f, "and {} more findings", self.unlisted)?;
        }
        let c = &self.counts;
        write!(
            f,
            "checkpoint {}: {} directories, {} files, {} nodes, {} blocks; {}",
            self.version,
            c.dirs,
            c.files,
            c.nodes,
            c.blocks,
            if self.is_clean() { "clean".to_owned() } else { format!("{} errors", self.errors) }
        )
    }
}

/// Meaning of the number in an entry of a delta node: a block of the file, or a kept page.
pub fn delta_target(number: u32) -> String {
    match number.checked_sub(KEPT) {
        Some(id) => format!("kept page {id}"),
        None => format!("file block {number}"),
    }
}
