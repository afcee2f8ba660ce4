//! Every compressed file that Linux wrote into `compressed.img.zst` reads as Linux read it.
//!
//! A small separate reader reads the image, so this tests only the decompression of clusters and the compression fields
//! of inodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use format::checkpoint::{Checkpoint, pack_blocks};
use format::compress::Method;
use format::inode::{InodeFlags, RawInode, extra_end};
use format::superblock::SuperBlock;
use format::{BLOCK, Block, BlockAddr, Nid, bits, dentry, nat, node, summary};
use sha2::{Digest, Sha256};

const DIRECTORY: u16 = 0o040_000;
const REGULAR: u16 = 0o100_000;
const TYPE: u16 = 0o170_000;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/fixtures").join(name)
}

struct Image {
    bytes: Vec<u8>,
    sb: SuperBlock,
    cp: Checkpoint,
    journal: BTreeMap<u32, BlockAddr>,
}

impl Image {
    fn open() -> Self {
        let packed = std::fs::read(fixture("compressed.img.zst")).expect("the fixture");
        let mut bytes = vec![0; 56 << 20];
        let n = ruzstd::decoding::FrameDecoder::new().decode_all(&packed, &mut bytes).expect("its image");
        assert_eq!(n, bytes.len());
        let at = |addr: u32| *bytes[addr as usize * BLOCK..].first_chunk::<BLOCK>().expect("a block");
        let sb = SuperBlock::check(&at(0)).expect("a superblock");
        let packs = [sb.cp.0, sb.cp.0 + 512].map(|start| (start, Checkpoint::check(&sb, &at(start))));
        let newest = packs.into_iter().filter_map(|(start, cp)| cp.ok().map(|cp| (start, cp)));
        let (start, cp) = newest.max_by_key(|(_, cp)| cp.version).expect("a checkpoint");
        assert!(pack_blocks(&at(start)).is_ok());
        // In both formats, the node table's journal is in the first summary block.
        let sums = at(start + cp.start_sum);
        let compact = cp.flags.contains(format::checkpoint::CpFlags::COMPACT_SUM);
        let journal = if compact { &sums[..summary::JOURNAL_BYTES] } else { summary::journal(&sums) };
        let journal = summary::nat_journal(journal).expect("a journal");
        let journal = journal.into_iter().map(|(nid, e)| (nid.0, e.addr)).collect();
        Image { bytes, sb, cp, journal }
    }

    fn block(&self, addr: BlockAddr) -> Block {
        *self.bytes[addr.0 as usize * BLOCK..].first_chunk().expect("a block")
    }

    fn node(&self, nid: Nid) -> Block {
        let addr = self.journal.get(&nid.0).copied().unwrap_or_else(|| {
            let (n, slot) = nat::position(nid);
            let second = bits::msb_test(&self.cp.nat_bitmap, n as usize);
            nat::get(&self.block(self.sb.nat_block(n, second)), slot).addr
        });
        let block = self.block(addr);
        assert_eq!(node::footer(&block).nid, nid);
        block
    }

    /// The addresses of a file's first `blocks` blocks. Clusters never straddle two nodes: in a compressed file, slots
    /// of a node that do not fill a whole cluster are unused.
    fn addresses(&self, raw: &RawInode, cluster: u32, blocks: u64) -> Vec<BlockAddr> {
        let division = raw.divide(self.sb.features).expect("a lawful inode");
        let direct = division.direct_slots() / cluster * cluster;
        let mut out: Vec<_> = (0..direct).map(|slot| raw.addr(division, slot)).collect();
        for k in 0..2 {
            let whole = (node::ADDRS_PER_BLOCK / cluster * cluster) as usize;
            if raw.nid(k).0 == 0 {
                out.resize(out.len() + whole, BlockAddr::NULL);
            } else {
                let direct = self.node(raw.nid(k));
                out.extend((0..whole).map(|i| BlockAddr(node::word(&direct, i))));
            }
        }
        assert!(out.len() as u64 >= blocks, "the fixture has no larger files");
        out.truncate(blocks.next_multiple_of(cluster.into()) as usize);
        out
    }

    /// Contents of a file, and how many of its clusters are compressed.
    fn read(&self, block: &Block) -> (Vec<u8>, usize) {
        let raw = RawInode::of(block);
        let size = raw.i_size.get() as usize;
        if raw.inline().contains(format::inode::Inline::DATA) {
            let area = raw.divide(self.sb.features).expect("a lawful inode").inline_area();
            return (block[area][..size].to_vec(), 0);
        }
        let method = raw.flags().contains(InodeFlags::COMPRESS).then(|| method(raw));
        let cluster = method.map_or(1, Method::cluster_blocks);
        let (mut out, mut compressed) = (Vec::new(), 0);
        for slots in self.addresses(raw, cluster, size.div_ceil(BLOCK) as u64).chunks(cluster as usize) {
            if let (Some(method), &BlockAddr::COMPRESS) = (method, &slots[0]) {
                let mut blocks = Vec::new();
                for addr in slots[1..].iter().take_while(|a| a.is_real()) {
                    blocks.extend(self.block(*addr));
                }
                let mut plain = vec![0; method.cluster_bytes()];
                method.decompress(&blocks, &mut plain).expect("Linux wrote it");
                out.extend(plain);
                compressed += 1;
                continue;
            }
            for addr in slots {
                out.extend(if addr.is_real() { self.block(*addr) } else { [0; BLOCK] });
            }
        }
        out.truncate(size);
        (out, compressed)
    }

    fn walk(&self, nid: Nid, path: &str, found: &mut BTreeMap<String, Block>) {
        let block = self.node(nid);
        let raw = RawInode::of(&block);
        match raw.i_mode.get() & TYPE {
            DIRECTORY => {
                let division = raw.divide(self.sb.features).expect("a lawful inode");
                let mut areas = Vec::new();
                if raw.inline().contains(format::inode::Inline::DENTRY) {
                    let area = block[division.inline_area()].to_vec();
                    areas.push((dentry::Layout::inline(area.len()), area));
                } else {
                    let blocks = (raw.i_size.get() as usize).div_ceil(BLOCK) as u32;
                    let addrs = (0..blocks).map(|i| raw.addr(division, i)).filter(|a| a.is_real());
                    areas.extend(addrs.map(|a| (dentry::Layout::BLOCK, self.block(a).to_vec())));
                }
                for (layout, area) in &areas {
                    for d in dentry::entries(layout, area, 0).filter(|d| d.name != b"." && d.name != b"..") {
                        let name = std::str::from_utf8(d.name).expect("plain names");
                        self.walk(Nid(d.ino), &format!("{path}{name}/"), found);
                    }
                }
            }
            REGULAR => {
                found.insert(path.trim_end_matches('/').to_owned(), block);
            }
            _ => {}
        }
    }
}

fn method(raw: &RawInode) -> Method {
    let extra = raw.extra().expect("compressed files have extra attributes");
    assert!(u32::from(extra.i_extra_isize.get()) >= extra_end::COMPRESS);
    let (algorithm, log) = (extra.i_compress_algorithm, extra.i_log_cluster_size);
    Method::of_inode(algorithm, log, extra.i_compress_flag.get()).expect("Linux wrote it")
}

#[test]
fn every_file_reads_as_linux_read_it() {
    let image = Image::open();
    let mut files = BTreeMap::new();
    image.walk(image.sb.root.nid(), "", &mut files);
    let sums = std::fs::read_to_string(fixture("compressed.sha256")).expect("the sums");
    let (mut seen, mut sizes, mut released) = (BTreeSet::new(), BTreeSet::new(), 0);
    let mut beyond_the_inode = 0;
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").expect("sum, name");
        let block = files.remove(name).unwrap_or_else(|| panic!("{name} is missing"));
        let (contents, compressed) = image.read(&block);
        let have: String = Sha256::digest(&contents).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(have, sum, "{name}, {} bytes, {compressed} compressed clusters", contents.len());
        if compressed > 0 {
            let raw = RawInode::of(&block);
            let m = method(raw);
            seen.insert((m.algorithm as u8, m.checksum));
            sizes.insert(m.log_cluster_size);
            released += usize::from(raw.inline().contains(format::inode::Inline::COMPRESS_RELEASED));
            beyond_the_inode += usize::from(raw.nid(1).0 != 0);
        }
    }
    assert_eq!(files.keys().collect::<Vec<_>>(), Vec::<&String>::new(), "files without a sum");
    // The image still covers all algorithms, with and without checksums.
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [(0, false), (1, false), (1, true), (2, false), (2, true), (3, false)]
    );
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [2, 3, 5, 6]);
    assert_eq!((released, beyond_the_inode), (6, 3));
}
