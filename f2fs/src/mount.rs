//! How does a mount find the valid superblock copy, checkpoint pack and tables?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::clock::Clock;
use device::{BlockDevice, Counting, Lba};
use format::casefold;
use format::checkpoint::{Checkpoint, CpFlags};
use format::sit::{self, LogType, SIT_ENTRIES, SitEntry};
use format::summary::{self, Summary, SummaryKind};
use format::superblock::{DELTA_MAGIC, Features, MAGIC, RawSuperBlock, SuperBlock};
use format::{BLOCK, Block, BlockAddr, FormatError, Ino, Nid, SegNo, bits, node, orphan};
use parking_lot::{Mutex, RwLock};
use victim::Chooser;
use victim::memory::Memory;

use crate::cause::Cause;
use crate::changes::Changes;
use crate::checkpoint::Checkpoints;
use crate::context::Context;
use crate::counters::Counters;
use crate::delta::Deltas;
use crate::delta::bases::Bases;
use crate::dir::Names;
use crate::error::{At, Error, Result};
use crate::file::Files;
use crate::gc::Cleaning;
use crate::health::Health;
use crate::inode::Inodes;
use crate::invariant::Sound;
use crate::nat::Nat;
use crate::node::Nodes;
use crate::options::{CheckpointChoice, FsyncMode, Holes, MountOptions, RollForward};
use crate::orphan::Orphans;
use crate::pack::PackState;
use crate::promises::Promises;
use crate::promises::flush_gate::FlushGate;
use crate::segment::Logs;
use crate::segment::dead::Dead;
use crate::segment::log::Log;
use crate::segment::table::SegmentTable;
use crate::segment::temperature::Mode;
use crate::segment::{Pressure, Segments, zones};
use crate::space::Space;
use crate::volume::Volume;
use crate::xattr::Xattrs;

mod choose;

use choose::choose_pack;

/// Why a volume could not be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// Neither superblock copy is F2FS.
    #[error("not an F2FS volume ({first}; copy: {second})")]
    NotF2fs {
        /// What is wrong with the copy in block 0.
        first: Box<FormatError>,
        /// What is wrong with the copy in block 1.
        second: Box<FormatError>,
    },
    /// The device is smaller than the volume.
    #[error(
        "image is cut short: the volume has {volume} blocks, the image {image}; restore the missing end or copy the image again"
    )]
    CutShort {
        /// Size of the volume in the superblock, in blocks.
        volume: u64,
        /// Size of the device, in blocks.
        image: u64,
    },
    /// Both superblock copies are from F2FS, as far as they can be read, but damaged.
    #[error(
        "both superblock copies are damaged ({first}; copy: {second}); joulefs rescue copies the files out without them"
    )]
    Superblock {
        /// What is wrong with the copy in block 0.
        first: Box<FormatError>,
        /// What is wrong with the copy in block 1.
        second: Box<FormatError>,
    },
    /// No checkpoint pack is complete.
    #[error("no valid checkpoint (pack 1: {first}; pack 2: {second}); joulefs rescue copies the files out without one")]
    NoCheckpoint {
        /// What is wrong with pack 1.
        first: String,
        /// What is wrong with pack 2.
        second: String,
    },
    /// The newest checkpoint is complete but has invalid contents. The previous one is not used instead: the next write
    /// would make its missing changes final.
    #[error(
        "the newest checkpoint ({version}, in pack {pack}) is whole but wrong: {fault}. joulefs fsck --repair repairs \
         it if possible; joulefs rescue copies the files out without a checkpoint{}",
        older.map_or(String::new(), |older| format!(
            "; --checkpoint older (mount: -o checkpoint=older) shows the volume as of checkpoint {older}, read-only"
        ))
    )]
    Checkpoint {
        /// Its version.
        version: u64,
        /// Its pack, 1 or 2.
        pack: u8,
        /// What is wrong with it.
        fault: Box<FormatError>,
        /// The version of the other pack, if it is complete.
        older: Option<u64>,
    },
    /// The older checkpoint was requested, but there is none.
    #[error("no older checkpoint: {0}")]
    NoOlder(Box<Error>),
    /// Features that can be read but not written.
    #[error("cannot write to this volume: {} not supported for writing; mount it read-only", features.join(", "))]
    CannotWrite {
        /// Their names.
        features: Vec<String>,
    },
    /// Features that cannot even be read.
    #[error("cannot read this volume: {}", features.join(", "))]
    CannotRead {
        /// Their names.
        features: Vec<String>,
    },
    /// An option without effect on this volume.
    #[error("{option} has no effect: the volume lacks the feature {feature} ({remedy}); leave it out")]
    NoEffect {
        /// The option as it was given.
        option: String,
        /// The feature that it needs.
        feature: String,
        /// How to enable the feature.
        remedy: &'static str,
    },
    /// The device's zones do not match the volume.
    #[error("cannot write to this volume: {0}; mount it read-only")]
    Zones(&'static str),
    /// Changes fsynced since the last checkpoint cannot be replayed.
    #[error(
        "cannot replay files fsynced since the last checkpoint: {0}; norecovery reads the volume as of that checkpoint"
    )]
    RollForward(Error),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] Error),
}

impl From<device::DeviceError> for MountError {
    fn from(e: device::DeviceError) -> Self {
        MountError::Other(e.into())
    }
}

/// Features that are fully supported for writing.
pub const WRITABLE: Features = Features::ENCRYPT
    .union(Features::BLKZONED)
    .union(Features::ATOMIC_WRITE)
    .union(Features::EXTRA_ATTR)
    .union(Features::PRJQUOTA)
    .union(Features::INODE_CHECKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::QUOTA_INO)
    .union(Features::INODE_CRTIME)
    .union(Features::LOST_FOUND)
    .union(Features::VERITY)
    .union(Features::SB_CHKSUM)
    .union(Features::CASEFOLD)
    .union(Features::COMPRESSION)
    .union(Features::DELTA);

/// Features that are supported for reading.
pub const READABLE: Features = WRITABLE.union(Features::RO).union(Features::DEVICE_ALIAS);

/// Names of features that cannot be read, with the reason if known.
fn unreadable(features: Features) -> Vec<String> {
    let why = |name: &str| match name {
        "packed_ssa" => " (several segments' summaries share a block)",
        _ => "",
    };
    features.names().into_iter().map(|name| format!("{name}{}", why(&name))).collect()
}

fn read(dev: &dyn BlockDevice, at: BlockAddr, cause: Cause) -> Result<Box<Block>> {
    let mut b = Box::new([0; BLOCK]);
    dev.read(Lba(at.0.into()), &mut *b, cause.tag())?;
    Ok(b)
}

/// Reads the superblock: the first copy, or the second if the first is not valid.
pub fn read_superblock(dev: &dyn BlockDevice) -> std::result::Result<SuperBlock, MountError> {
    let mut block = [0; BLOCK];
    if dev.blocks() == 0 {
        return Err(MountError::CutShort { volume: 2, image: 0 });
    }
    if dev.blocks() < 2 {
        // A small file of another kind is not a truncated volume.
        let whole =
            FormatError::Short { structure: "superblock", have: dev.blocks() as usize * BLOCK, need: 2 * BLOCK };
        let not = |first| MountError::NotF2fs { first: Box::new(first), second: Box::new(whole) };
        return Err(match dev.read(Lba(0), &mut block, Cause::Superblock.tag()).map(|()| SuperBlock::check(&block)) {
            Ok(Ok(sb)) => MountError::CutShort { volume: sb.block_count, image: dev.blocks() },
            Ok(Err(first)) => not(first),
            Err(e) => e.into(),
        });
    }
    let mut other = [0; BLOCK];
    dev.read(Lba(0), &mut block, Cause::Superblock.tag())?;
    match SuperBlock::check(&block) {
        Ok(sb) => match dev.read(Lba(1), &mut other, Cause::Superblock.tag()) {
            Ok(()) => Ok(sb.compared_with(&other)),
            Err(_) => Ok(SuperBlock { alone: true, ..sb }),
        },
        Err(first) => {
            dev.read(Lba(1), &mut other, Cause::Superblock.tag())?;
            SuperBlock::check(&other).map_err(|second| {
                let (first, second) = (Box::new(first), Box::new(second));
                let ours = |b: &Block| [MAGIC, DELTA_MAGIC].contains(&RawSuperBlock::of(b).magic.get());
                match ours(&block) || ours(&other) {
                    true => MountError::Superblock { first, second },
                    false => MountError::NotF2fs { first, second },
                }
            })
        }
    }
}

type Journal = [u8; summary::JOURNAL_BYTES];

/// The logs' summaries and both journals, as in the pack.
struct PackSummaries {
    data: [Box<Block>; 3],
    node: Option<[Box<Block>; 3]>,
    nat: Box<Journal>,
    sit: Box<Journal>,
}

fn pack_summaries(cp: &Checkpoint, pack: &[Block]) -> Result<PackSummaries> {
    let missing = || Error::corrupt("checkpoint pack: too short for its summaries");
    let start = cp.start_sum as usize;
    let with_nodes = cp.flags.intersects(CpFlags::UMOUNT | CpFlags::FASTBOOT);
    let empty = || -> Box<Block> { Box::new([0; BLOCK]) };
    let mut data = [empty(), empty(), empty()];
    let (nat, sit);
    let end = pack.len() - 1;
    let node_start = end.checked_sub(if with_nodes { 3 } else { 0 }).ok_or_else(missing)?;
    if cp.flags.contains(CpFlags::COMPACT_SUM) {
        let blocks = pack.get(start..node_start).ok_or_else(missing)?;
        let (n, s) = summary::compact_journals(blocks).ok_or_else(missing)?;
        (nat, sit) = (n.to_vec(), s.to_vec());
        let mut at = 0;
        for (k, out) in data.iter_mut().enumerate() {
            let log = &cp.logs[k];
            let n = if log.threaded { 512 } else { usize::from(log.next) };
            for i in 0..n {
                let s = summary::compact_get(blocks, at).ok_or_else(missing)?;
                summary::put(out, i, s);
                at += 1;
            }
            summary::set_kind(out, SummaryKind::Data);
        }
    } else {
        let first = node_start.checked_sub(3).ok_or_else(missing)?;
        for (k, out) in data.iter_mut().enumerate() {
            **out = *pack.get(first + k).ok_or_else(missing)?;
        }
        nat = summary::journal(&data[0]).to_vec();
        sit = summary::journal(&data[2]).to_vec();
    }
    let node = with_nodes.then(|| std::array::from_fn(|k| Box::new(pack[node_start + k])));
    // OK to unwrap: both were cut to the size of a journal above.
    let fixed = |v: Vec<u8>| -> Box<Journal> { v.into_boxed_slice().try_into().unwrap() };
    Ok(PackSummaries { data, node, nat: fixed(nat), sit: fixed(sit) })
}

/// Rebuilds a node log's summary from the footers of its segment's blocks: the pack of a running volume has none.
fn rebuild_node_summary(
    dev: &dyn BlockDevice,
    sb: &SuperBlock,
    table: &SegmentTable,
    seg: SegNo,
) -> Result<Box<Block>> {
    let mut bytes = vec![0u8; 512 * BLOCK];
    dev.read(Lba(sb.seg_start(seg).0.into()), &mut bytes, Cause::Recovery.tag())?;
    let mut out: Box<Block> = Box::new([0; BLOCK]);
    for (i, b) in bytes.as_chunks::<BLOCK>().0.iter().enumerate() {
        if table.is_valid(seg, i as u16) {
            summary::put(&mut out, i, Summary { nid: node::footer(b).nid, version: 0, slot: 0 });
        }
    }
    summary::set_kind(&mut out, SummaryKind::Node);
    Ok(out)
}

/// Reads the whole segment table: the valid copies of its blocks, then the journal, which overrides them.
fn load_segments(
    dev: &dyn BlockDevice,
    sb: &SuperBlock,
    cp: &Checkpoint,
    journal: &BTreeMap<SegNo, sit::RawSitEntry>,
) -> Result<SegmentTable> {
    let mut table = SegmentTable::new(sb.main_segs, sb.segs_per_sec);
    let blocks = sb.main_segs.div_ceil(SIT_ENTRIES);
    let copy = |n: u32| bits::msb_test(&cp.sit_bitmap, n as usize);
    let zero = [0u8; 74];
    let mut n = 0;
    while n < blocks {
        let mut end = n + 1;
        while end < blocks && end - n < 256 && copy(end) == copy(n) {
            end += 1;
        }
        let mut bytes = vec![[0u8; BLOCK]; (end - n) as usize];
        let at = sb.sit_block(n, copy(n));
        dev.read(Lba(at.0.into()), bytes.as_flattened_mut(), Cause::Sit.tag())?;
        for (k, block) in bytes.iter().enumerate() {
            let first = (n + k as u32) * SIT_ENTRIES;
            for i in 0..SIT_ENTRIES.min(sb.main_segs - first) {
                let seg = SegNo(first + i);
                if journal.contains_key(&seg) || block[i as usize * 74..][..74] == zero {
                    continue;
                }
                let e = SitEntry::check(&sit::get(block, i as usize)).at(|| format!("segment {seg}"))?;
                table.load(seg, &e);
            }
        }
        n = end;
    }
    for (seg, raw) in journal {
        if seg.0 >= sb.main_segs {
            return Err(Error::corrupt(format_args!("SIT journal: segment {seg} is outside the main area")));
        }
        table.load(*seg, &SitEntry::check(raw).at(|| format!("segment {seg} (journal)"))?);
    }
    Ok(table)
}

fn orphan_list(sb: &SuperBlock, cp: &Checkpoint, pack: &[Block]) -> Result<BTreeSet<Ino>> {
    let mut out = BTreeSet::new();
    if cp.flags.contains(CpFlags::ORPHAN) {
        for b in &pack[1 + sb.cp_payload as usize..cp.start_sum as usize] {
            out.extend(orphan::parse(b).at(|| "checkpoint pack".into())?);
        }
    }
    Ok(out)
}

impl Volume {
    /// Mounts a volume. An image that was not unmounted is recovered first: roll-forward replays fsynced changes, and
    /// inodes without a name are freed.
    pub fn mount(
        dev: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        mut options: MountOptions,
    ) -> std::result::Result<Arc<Volume>, MountError> {
        let sb = read_superblock(&*dev)?;
        if dev.blocks() < sb.block_count && dev.blocks() < u64::from(sb.main.0) + u64::from(sb.main_segs) * 512 {
            return Err(MountError::CutShort { volume: sb.block_count, image: dev.blocks() });
        }
        options.delta &= !sb.alone;
        // Without flushes the device's cache takes a page that is overwritten again and again for little: deltas cost
        // a phone 13 to 15 % more joules (docs/phone-day.md).
        options.delta &= options.fsync_mode != FsyncMode::NoBarrier || options.delta_study.at_any_price;
        // The other copy may announce checksums already ([`crate::settle::upgrade`]).
        options.seal_inodes |= sb.mixed;
        let strange = sb.features - READABLE;
        if !strange.is_empty() || sb.devices > 0 {
            let mut features = unreadable(strange);
            if sb.devices > 0 {
                features.push("several devices".into());
            }
            return Err(MountError::CannotRead { features });
        }
        if let Some((option, needed)) = options.needs.iter().find(|(_, needed)| !sb.features.contains(*needed)) {
            let remedy = match *needed {
                Features::DELTA => "joulefs unsettle adds it",
                _ => "only joulefs mkfs -O can give it",
            };
            let feature = needed.names().join(", ");
            return Err(MountError::NoEffect { option: option.clone(), feature, remedy });
        }
        let unwritable = sb.features - WRITABLE;
        let leave = options.roll_forward == RollForward::Leave;
        options.read_only |= leave || options.checkpoint == CheckpointChoice::Older;
        let chosen = choose_pack(&*dev, &sb, options.checkpoint)?;
        if !options.read_only {
            let mut features = unwritable.names();
            let encoding = sb.raw.s_encoding.get();
            if sb.features.contains(Features::CASEFOLD) && encoding != casefold::UTF8_12_1 {
                features.push(format!("names folded by the unknown encoding {encoding}"));
            }
            zones::check(&*dev, &sb).map_err(MountError::Zones)?;
            if chosen.0.flags.contains(CpFlags::DISABLED) {
                features.push("disabled checkpoints".into());
            }
            if chosen.0.flags.contains(CpFlags::RESIZEFS) {
                features.push("an unfinished resize".into());
            }
            if !features.is_empty() {
                return Err(MountError::CannotWrite { features });
            }
        }
        // Recovery writes; in a read-only mount it writes to memory.
        let wanted_read_only = options.read_only;
        let overlay = wanted_read_only && unwritable.is_empty() && !leave;
        let dev: Arc<dyn BlockDevice> = if overlay { Arc::new(device::Overlay::new(dev)) } else { dev };
        options.read_only = wanted_read_only && !overlay;
        let makes_deltas = options.delta && sb.features.contains(Features::DELTA) && !wanted_read_only;
        let bases = makes_deltas.then(|| Arc::new(Bases::new(dev.clone())));
        let dev: Arc<dyn BlockDevice> = bases.clone().map_or(dev, |bases| bases);

        let vol = Self::assemble(dev, bases, clock, options, sb, chosen)?;
        if !vol.ctx.is_read_only() {
            vol.recover().map_err(MountError::RollForward)?;
        }
        vol.ctx.read_only.fetch_or(wanted_read_only, Ordering::AcqRel);
        Ok(Arc::new(vol))
    }

    fn assemble(
        dev: Arc<dyn BlockDevice>,
        bases: Option<Arc<Bases>>,
        clock: Arc<dyn Clock>,
        mut options: MountOptions,
        sb: SuperBlock,
        (cp, pack, second): (Checkpoint, Vec<Block>, bool),
    ) -> Result<Volume> {
        let requests = Arc::new(Counting::new(dev));
        let dev: Arc<dyn BlockDevice> = requests.clone();
        let sums = pack_summaries(&cp, &pack)?;
        let place = || "checkpoint pack".to_string();
        let sit_journal: BTreeMap<_, _> = summary::sit_journal(&*sums.sit).at(place)?.into_iter().collect();
        let nat_journal: Vec<(Nid, _)> = summary::nat_journal(&*sums.nat).at(place)?;
        let mut table = load_segments(&*dev, &sb, &cp, &sit_journal)?;
        let mut logs = Vec::with_capacity(6);
        let PackSummaries { data, node, .. } = sums;
        let kbytes_written = node.as_ref().map_or(0, |n| summary::kbytes_written(summary::journal(&n[0])));
        let mut node = node.map(|n| n.into_iter());
        let mut data = data.into_iter();
        for log in LogType::ALL {
            let head = cp.logs[log.index()];
            table.resume(head.seg, log);
            let stored = if log.is_node() { node.as_mut().and_then(Iterator::next) } else { data.next() };
            let summary = match stored {
                Some(s) => s,
                None => rebuild_node_summary(&*dev, &sb, &table, head.seg)?,
            };
            logs.push(Log { seg: head.seg, next: head.next, threaded: head.threaded, summary });
        }
        let logs: [Log; 6] = logs.try_into().map_err(|_| Error::corrupt("six logs expected"))?;
        let orphans = Orphans::new(&sb, orphan_list(&sb, &cp, &pack)?);
        let sb = Arc::new(sb);
        let pressure = Arc::new(Pressure::default());
        // Contents in memory must fit in the log: a small volume keeps fewer.
        options.dirty_limit = options.dirty_limit.min(cp.user_blocks as usize / 32).max(16);
        let monotonic = clock.monotonic();
        let memory = Memory::at_mount(cp.elapsed, table.oldest_section(sb.sections()));
        if sb.features.contains(Features::BLKZONED) {
            options.mode = Mode::Lfs;
        }
        options.prices = options.prices.with_wear(options.wear);
        if let (Some(policy), Mode::Adaptive) = (options.gc.preferred, options.mode) {
            options.gc.choose(policy);
        }
        let (gc, prices) = (options.gc, options.prices);
        let chooser = Chooser::new(SegNo(sb.main_segs), sb.segs_per_sec, memory, prices, gc.policy, gc.power);
        let mut segments =
            Segments::new(dev.clone(), sb.clone(), table, logs, cp.reserved_segs, pressure.clone(), chooser);
        gc.apply(&mut segments);
        segments.only_appends = options.mode == Mode::Lfs;
        if options.discard && options.discard_holes != Holes::Kept && dev.zones().is_none() {
            segments.table.dead = Some(Dead::default());
        }
        let sums = segments.table.sums();
        let sound = Sound::of(&cp, sums);
        let blocks = (cp.valid_blocks, sums.total());
        let nat = Nat::new(dev.clone(), sb.clone(), cp.nat_bitmap.clone(), nat_journal, cp.next_free_nid);
        let now = clock.now();
        let space = Space::new(cp.user_blocks, sb.max_nid(), blocks, cp.valid_nodes, cp.valid_inodes);
        let counters = Arc::new(Counters::default());
        let ctx = Arc::new(Context {
            checksum_seed: format::inode::checksum_seed(&sb.uuid),
            cp_ver: AtomicU64::new(cp.version | u64::from(cp.crc) << 32),
            elapsed_base: cp.elapsed,
            mounted_at: monotonic,
            generation: AtomicU64::new(now.secs as u64 ^ u64::from(now.nanos)),
            overprov_segs: cp.overprov_segs,
            dev,
            requests,
            sb,
            clock,
            read_only: AtomicBool::new(options.read_only),
            options,
            cp: RwLock::new(PackState { checkpoint: cp, second, sit_journal, torn: false, kbytes_written }),
            used: AtomicBool::new(false),
            untouched: AtomicBool::new(true),
            health: Health::default(),
            changes: Changes::default(),
            changed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            counters: counters.clone(),
        });
        let promises = Arc::new(Promises::default());
        let logs = Logs::new(&ctx, segments, pressure);
        let nodes = Nodes::new(&ctx, &logs, &promises, nat, space);
        let inodes = Inodes::new(&ctx, &logs, &nodes, orphans);
        let xattrs = Xattrs::new(&ctx, &nodes);
        let deltas = Deltas::new(&ctx, &promises, &nodes, &inodes, bases);
        let files = Files::new(&ctx, &logs, &promises, &nodes, &inodes, &deltas);
        let names = Names::new(&ctx, &logs, &promises, &nodes, &inodes, &xattrs, &files);
        let checkpoints = Checkpoints::new(&ctx, &logs, &promises, &nodes, &inodes, &files, sound);
        let cleaning = Cleaning::new(&ctx, &logs, &promises, &nodes, &files, &checkpoints);
        Ok(Volume {
            ctx,
            logs,
            promises,
            nodes,
            inodes,
            xattrs,
            deltas,
            files,
            names,
            checkpoints,
            cleaning,
            flushes: FlushGate::default(),
            relieved: AtomicU64::new(0),
            last_writeback: AtomicU64::new(monotonic.as_millis() as u64),
            last_seen_used: Mutex::new(monotonic),
            accountant: Mutex::default(),
            reported_too: Mutex::default(),
            counters,
        })
    }
}
