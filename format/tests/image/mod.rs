//! Volumes made by `mkfs.f2fs` and filled by `sload.f2fs`, and a minimal reader for them, to test each structure on
//! bytes from independent writers.

#![allow(dead_code)] // each test file uses its own part

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use format::checkpoint::{self, Checkpoint, CpFlags};
use format::inode::RawInode;
use format::nat::NatEntry;
use format::superblock::{Features, SuperBlock};
use format::{BLOCK, Block, BlockAddr, Nid, nat, node, summary};
use tempfile::TempDir;

/// Number of names in the directory `many`.
pub const NAMES: usize = 306;
/// Bytes of the file `big`: past the inode's own addresses and both direct nodes.
pub const BIG: usize = 13 << 20;

/// The `i`-th name of `many`: all lengths from 2 to 255.
pub fn name(i: usize) -> String {
    let n = format!("{i}-");
    let len = n.len().max(2 + i * 253 / (NAMES - 1));
    n.clone() + &"#x".repeat(128)[..len - n.len()]
}

/// The contents of `big`: every block different.
pub fn big() -> Vec<u8> {
    let mut x = 1u64;
    let mut out = Vec::with_capacity(BIG);
    while out.len() < BIG {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(&(x >> 16).to_le_bytes());
    }
    out
}

fn run(tool: &str, args: &[&str], image: &Path, codes: std::ops::RangeInclusive<i32>) {
    let done = Command::new(tool).args(args).arg(image).stdin(Stdio::null()).output();
    let done = done.unwrap_or_else(|e| panic!("{tool} (Debian package f2fs-tools) must be there: {e}"));
    let say = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let ended = done.status.code().is_some_and(|code| codes.contains(&code));
    assert!(ended, "{tool} {args:?}: {}{}", say(&done.stdout), say(&done.stderr));
}

/// Parameters of a test volume.
pub struct Kind {
    /// For messages.
    pub name: &'static str,
    mkfs: &'static [&'static str],
}

const FEATURES: &str = "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,project_quota,\
    quota,sb_checksum,lost_found,verity,compression";

/// Every kind of test volume.
pub const KINDS: [Kind; 6] = [
    Kind { name: "plain", mkfs: &[] },
    Kind { name: "extra attributes", mkfs: &["-O", "extra_attr,inode_checksum,inode_crtime,compression"] },
    Kind { name: "all features", mkfs: &["-O", FEATURES] },
    Kind { name: "large NAT bitmap", mkfs: &["-i"] },
    Kind { name: "two segments a section", mkfs: &["-s", "2", "-z", "2"] },
    Kind { name: "read-only", mkfs: &["-O", "ro"] },
];

/// One volume.
pub struct Image {
    /// Its kind.
    pub name: &'static str,
    file: File,
    /// Its superblock.
    pub sb: SuperBlock,
    /// Its newest checkpoint.
    pub cp: Checkpoint,
    /// First block of that checkpoint's pack.
    pub pack: BlockAddr,
}

/// A folder with the volumes, removed at the end.
pub struct Images {
    _dir: TempDir,
    /// The volumes, in the order of [`KINDS`].
    pub all: Vec<Image>,
}

fn tree(at: &Path) -> PathBuf {
    let tree = at.join("tree");
    fs::create_dir_all(tree.join("many")).unwrap();
    for i in 0..NAMES {
        fs::write(tree.join("many").join(name(i)), vec![b'x'; i * 37 % 5000]).unwrap();
    }
    for i in 0..5 {
        fs::create_dir_all(tree.join(format!("dir{i}/below"))).unwrap();
    }
    fs::write(tree.join("big"), big()).unwrap();
    std::os::unix::fs::symlink("many/somewhere", tree.join("link")).unwrap();
    tree
}

/// Creates one volume of each kind, filled with the same files.
pub fn make() -> Images {
    let dir = TempDir::new().unwrap();
    let tree = tree(dir.path());
    let all = KINDS.iter().enumerate().map(|(i, kind)| {
        let path = dir.path().join(format!("{i}.img"));
        File::create(&path).unwrap().set_len(128 << 20).unwrap();
        run("mkfs.f2fs", &[&["-q"], kind.mkfs].concat(), &path, 0..=0);
        // It ends with a check. Exit status 1 means that this check corrected something: quota files, which it does
        // not keep up to date, and its own mistakes (see `wrong_map`).
        run("sload.f2fs", &["-f", tree.to_str().unwrap()], &path, 0..=1);
        Image::open(kind.name, &path)
    });
    Images { all: all.collect(), _dir: dir }
}

impl Image {
    fn open(name: &'static str, path: &Path) -> Image {
        let file = File::open(path).unwrap();
        let block = |at: u32| read(&file, BlockAddr(at));
        let sb = SuperBlock::check(&block(0)).unwrap();
        let packs = [sb.cp, sb.cp.plus(512)];
        let checked = packs.map(|at| {
            let bytes: Vec<u8> = (0..=sb.cp_payload).flat_map(|i| block(at.0 + i)).collect();
            Checkpoint::check(&sb, &bytes).unwrap()
        });
        let [first, second] = checked;
        let (cp, pack) = if second.version > first.version { (second, packs[1]) } else { (first, packs[0]) };
        Image { name, file, sb, cp, pack }
    }

    /// True if `sload.f2fs` 1.15 maps files wrongly: with flexible inline xattrs it assumes as many addresses in
    /// the inode as without extra attributes, and writes some over the inline xattrs. Linux reads such a file's
    /// later blocks shifted, and finds its xattrs corrupted.
    pub fn wrong_map(&self) -> bool {
        self.sb.features.contains(Features::FLEXIBLE_INLINE_XATTR)
    }

    /// One block.
    pub fn block(&self, at: BlockAddr) -> Block {
        read(&self.file, at)
    }

    /// Both packs: first block, checked head.
    pub fn packs(&self) -> Vec<(BlockAddr, Checkpoint)> {
        let check = |at: BlockAddr| {
            let bytes: Vec<u8> = (0..=self.sb.cp_payload).flat_map(|i| self.block(at.plus(i))).collect();
            (at, Checkpoint::check(&self.sb, &bytes).unwrap())
        };
        vec![check(self.sb.cp), check(self.sb.cp.plus(512))]
    }

    /// The NAT and SIT journals of a pack.
    pub fn journals(&self, pack: BlockAddr, cp: &Checkpoint) -> (Vec<u8>, Vec<u8>) {
        let first = self.block(pack.plus(cp.start_sum));
        if cp.flags.contains(CpFlags::COMPACT_SUM) {
            let (nat, sit) = summary::compact_journals(std::slice::from_ref(&first)).unwrap();
            return (nat.to_vec(), sit.to_vec());
        }
        let cold = self.block(pack.plus(cp.start_sum + 2));
        (summary::journal(&first).to_vec(), summary::journal(&cold).to_vec())
    }

    /// Every node number in use with the address of its node, journal applied.
    pub fn nodes(&self) -> BTreeMap<Nid, NatEntry> {
        let mut all = BTreeMap::new();
        for n in 0..self.sb.nat_blocks() {
            let second = format::bits::msb_test(&self.cp.nat_bitmap, n as usize);
            let block = self.block(self.sb.nat_block(n, second));
            for i in 0..nat::NAT_ENTRIES {
                all.insert(Nid(n * nat::NAT_ENTRIES + i), nat::get(&block, i as usize));
            }
        }
        let (journal, _) = self.journals(self.pack, &self.cp);
        all.extend(summary::nat_journal(&journal).unwrap());
        all.retain(|nid, e| e.addr != BlockAddr::NULL && nid.0 > 2);
        all
    }

    /// Addresses of an inode's contents in order, including holes, up to its size.
    pub fn map(&self, nodes: &BTreeMap<Nid, NatEntry>, inode: &Block) -> Vec<BlockAddr> {
        let raw = RawInode::of(inode);
        let division = raw.divide(self.sb.features).unwrap();
        let blocks = raw.i_size.get().div_ceil(BLOCK as u64);
        let mut last = (Nid(0), [0; BLOCK]);
        (0..blocks)
            .map(|index| {
                let path = node::path(index, division.direct_slots()).unwrap();
                if path.depth == 0 {
                    return raw.addr(division, path.slots[0]);
                }
                let mut nid = raw.nid(path.slots[0] as usize);
                for depth in 1..=path.depth {
                    if nid == Nid(0) {
                        return BlockAddr::NULL;
                    }
                    if last.0 != nid {
                        last = (nid, self.block(nodes[&nid].addr));
                    }
                    assert_eq!(node::footer(&last.1).offset, path.offsets[depth - 1]);
                    let word = node::word(&last.1, path.slots[depth] as usize);
                    if depth == path.depth {
                        return BlockAddr(word);
                    }
                    nid = Nid(word);
                }
                unreachable!("the loop ends at the path's depth")
            })
            .collect()
    }
}

fn read(file: &File, at: BlockAddr) -> Block {
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, u64::from(at.0) * BLOCK as u64).expect("inside the image");
    block
}

/// Number of blocks in the given pack, tail included.
pub fn pack_len(image: &Image, pack: BlockAddr) -> u32 {
    checkpoint::pack_blocks(&image.block(pack)).unwrap()
}
