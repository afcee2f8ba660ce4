//! Which files does a new volume have, and which blocks do they use?
//!
//! The root directory, the hidden quota files, lost+found: inodes in the hot node log, contents in
//! the hot data log, in this order.

use format::inode::{self, Inline, InodeFlags, RawInode};
use format::nat::{self, NatEntry};
use format::quota::{self, Kind};
use format::sit::LogType;
use format::summary::Summary;
use format::superblock::{Features, SuperBlock};
use format::{BLOCK, Block, BlockAddr, Ino, Nid, SegNo, dentry, hash, node};

use super::Options;
use super::geometry::extra_isize;

const LOST_FOUND: &[u8] = b"lost+found";
const DIRECTORY: u8 = 2;
/// The version in node footers before the first checkpoint is written.
const BIRTH_VERSION: u64 = 1;

/// The first files, ready to be written.
pub(super) struct FirstTree {
    /// Node and data blocks, each with its address.
    pub blocks: Vec<(BlockAddr, Block)>,
    /// Node table entries of the inodes, from the root on.
    pub nat: Vec<(Nid, NatEntry)>,
    /// Owners of the hot data log's blocks.
    pub data: Vec<Summary>,
    /// Where the warm node log begins.
    pub warm_node_head: BlockAddr,
}

/// Numbers of the hidden quota inodes (user, group, project; 0 for none), and the first free number.
/// [`Features::QUOTA_INO`] requires the first two, [`Features::PRJQUOTA`] the third.
pub(super) fn quota_inos(asked: Features) -> ([u32; 3], u32) {
    let (owners, project) = (asked.contains(Features::QUOTA_INO), asked.contains(Features::PRJQUOTA));
    let mut next = 4;
    let inos = [owners, owners, project].map(|wanted| {
        let ino = if wanted { next } else { 0 };
        next += u32::from(wanted);
        ino
    });
    (inos, next)
}

struct Growing<'a> {
    sb: &'a SuperBlock,
    nodes_at: BlockAddr,
    data_at: BlockAddr,
    owner: (u32, u32),
    now: u64,
    first: FirstTree,
}

impl FirstTree {
    pub(super) fn grow(sb: &SuperBlock, logs: [SegNo; 6], opts: &Options, now: u64) -> Self {
        let head = |log: LogType| sb.seg_start(logs[log.index()]);
        let first = FirstTree {
            blocks: Vec::new(),
            nat: Vec::new(),
            data: Vec::new(),
            warm_node_head: head(LogType::WarmNode),
        };
        let mut g = Growing {
            sb,
            nodes_at: head(LogType::HotNode),
            data_at: head(LogType::HotData),
            owner: opts.root_owner,
            now,
            first,
        };
        let (quota_inos, next) = quota_inos(opts.features);
        let lost_found = sb.features.contains(Features::LOST_FOUND).then_some(Ino(next));
        let root = directory_block(sb.root, sb.root, lost_found);
        let subdirectories = u32::from(lost_found.is_some());
        g.directory(sb.root, 0o755, 2 + subdirectories, &[root], None);
        let (inodes, bytes) = (1 + u64::from(subdirectories), BLOCK as u64);
        for (kind, ino) in Kind::ALL.into_iter().zip(quota_inos).filter(|(_, ino)| *ino != 0) {
            let id = match kind {
                Kind::User => opts.root_owner.0,
                Kind::Group => opts.root_owner.1,
                Kind::Project => 0,
            };
            g.quota_file(Ino(ino), &quota::fresh_file(kind, id, inodes, inodes * bytes));
        }
        if let Some(ino) = lost_found {
            let block = directory_block(ino, sb.root, None);
            g.directory(ino, 0o700, 2, &[block], Some((sb.root, LOST_FOUND)));
        }
        g.first
    }

    /// The blocks of the node table that are not all zero, with their numbers.
    pub(super) fn nat_blocks(&self) -> Vec<(u32, Block)> {
        // The inodes of the node table and the metadata have no block; address 1 marks their numbers as used.
        let hidden = [1, 2].map(|n| (Nid(n), NatEntry { version: 0, ino: Ino(n), addr: BlockAddr(1) }));
        let mut out: Vec<(u32, Block)> = Vec::new();
        for (nid, entry) in hidden.iter().chain(&self.nat) {
            let (n, slot) = nat::position(*nid);
            if out.last().is_none_or(|(last, _)| *last != n) {
                out.push((n, [0; BLOCK]));
            }
            if let Some((_, block)) = out.last_mut() {
                nat::put(block, slot, *entry);
            }
        }
        out
    }

    /// One past the largest inode number in use.
    pub(super) fn next_nid(&self) -> u32 {
        self.nat.last().map_or(0, |(nid, _)| nid.0 + 1)
    }
}

impl Growing<'_> {
    fn directory(&mut self, ino: Ino, mode: u16, links: u32, blocks: &[Block], name: Option<(Ino, &[u8])>) {
        let crtime = Some(self.now);
        let mut block = self.inode(0o040_000 | mode, links, blocks, crtime, ino);
        let raw = RawInode::of_mut(&mut block);
        raw.i_size = ((blocks.len() * BLOCK) as u64).into();
        raw.i_current_depth = 1.into();
        if let Some((parent, name)) = name {
            raw.i_pino = parent.0.into();
            raw.i_namelen = (name.len() as u32).into();
            raw.i_name[..name.len()].copy_from_slice(name);
        }
        self.place(ino, block, blocks);
    }

    fn quota_file(&mut self, ino: Ino, blocks: &[Block]) {
        // Hidden files have no birth time: no user can query it.
        let mut block = self.inode(0o100_600, 1, blocks, None, ino);
        let raw = RawInode::of_mut(&mut block);
        raw.i_size = quota::FILE_BYTES.into();
        raw.i_flags = InodeFlags::IMMUTABLE.bits().into();
        self.place(ino, block, blocks);
    }

    /// An inode with the next `blocks` of the hot data log as contents.
    fn inode(&self, mode: u16, links: u32, blocks: &[Block], crtime: Option<u64>, ino: Ino) -> Block {
        let mut block = [0; BLOCK];
        let features = self.sb.features;
        let raw = RawInode::of_mut(&mut block);
        raw.i_mode = mode.into();
        raw.i_uid = self.owner.0.into();
        raw.i_gid = self.owner.1.into();
        raw.i_links = links.into();
        raw.i_blocks = (blocks.len() as u64 + 1).into();
        for time in [&mut raw.i_atime, &mut raw.i_ctime, &mut raw.i_mtime] {
            *time = self.now.into();
        }
        if features.contains(Features::EXTRA_ATTR) {
            raw.i_inline = Inline::EXTRA_ATTR.bits();
            if let Some(extra) = raw.extra_mut() {
                extra.i_extra_isize = extra_isize(features).into();
                if let Some(at) = crtime.filter(|_| features.contains(Features::INODE_CRTIME)) {
                    extra.i_crtime = at.into();
                }
            }
        }
        let base = u32::from(extra_isize(features)) / 4;
        for k in 0..blocks.len() as u32 {
            if let Some(slot) = raw.i_addr.get_mut((base + k) as usize) {
                *slot = self.data_at.plus(k).0.into();
            }
        }
        let footer = node::Footer {
            nid: ino.nid(),
            ino,
            cold: false,
            fsync: false,
            dentry: false,
            offset: 0,
            cp_ver: BIRTH_VERSION,
            next: self.nodes_at.plus(1),
        };
        node::set_footer(&mut block, &footer);
        block
    }

    fn place(&mut self, ino: Ino, mut block: Block, contents: &[Block]) {
        inode::seal(self.sb.features, inode::checksum_seed(&self.sb.uuid), &mut block);
        let first = &mut self.first;
        first.nat.push((ino.nid(), NatEntry { version: 0, ino, addr: self.nodes_at }));
        first.blocks.push((self.nodes_at, block));
        self.nodes_at = self.nodes_at.plus(1);
        for (slot, data) in contents.iter().enumerate() {
            first.data.push(Summary { nid: ino.nid(), version: 0, slot: slot as u16 });
            first.blocks.push((self.data_at, *data));
            self.data_at = self.data_at.plus(1);
        }
    }
}

/// A directory's only block: `.`, `..`, and possibly lost+found.
fn directory_block(own: Ino, parent: Ino, lost_found: Option<Ino>) -> Block {
    let layout = dentry::Layout::BLOCK;
    let mut block = [0; BLOCK];
    let entries = [(&b"."[..], Some(own)), (b"..", Some(parent)), (LOST_FOUND, lost_found)];
    let mut slot = 0;
    for (name, ino) in entries {
        if let Some(ino) = ino {
            dentry::insert(&layout, &mut block, slot, name, hash::name_hash(name), ino.0, DIRECTORY);
            slot += dentry::slots_for(name.len());
        }
    }
    block
}
