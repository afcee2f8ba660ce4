//! The checker and the reader agree: fsck reports whatever the reader refuses; and the reader serves, changes and
//! removes whatever fsck calls clean.
//!
//! Every field of every structure, as listed in `docs/format.md`, gets values that are often handled wrongly, under
//! valid checksums. `JOULEFS_DEEP=1` tries all of them, `JOULEFS_FIRST_SEED=<n>` others than the usual sample,
//! `JOULEFS_REPLAY=<text>` those whose name contains a text.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{BLOCK, BlockDevice, Lba, Memory, Rng, Tag};
use f2fs::{MountOptions, Volume, mkfs};
use format::checkpoint::{self, Checkpoint, CpFlags};
use format::inode::{self, Inline, RawInode};
use format::node::{self, NodeKind};
use format::superblock::{OFFSET, SuperBlock};
use format::{BlockAddr, Nid, SegNo, nat, sit};
use judges::damage::{block, clock};
use judges::fields::{self, Field};
use judges::forge::Forger;
use trials::populated::unmounted;
use vfs::{Error, FileKind, FileSystem, Flow, Ino, Seek};

use crate::endure::case;

/// A field of one block of the volume.
#[derive(Clone)]
struct Place {
    kind: &'static str,
    /// Its description.
    what: String,
    /// The blocks that contain it: tables have two copies.
    blocks: Vec<u64>,
    field: Field,
}

/// A volume, and its fields that can be forged.
struct Subject {
    base: Memory,
    forger: Forger,
    sb: SuperBlock,
    cp: Checkpoint,
    /// First block of the newest pack.
    pack: u64,
    /// Live nodes and their addresses.
    nodes: BTreeMap<u32, u64>,
}

impl Subject {
    fn new(options: &mkfs::Options) -> Self {
        let base = unmounted(options);
        let sb = SuperBlock::check(&block(&base, 0)).unwrap();
        let packs = [sb.cp.0, sb.cp.0 + 512].map(u64::from);
        let pack = packs.into_iter().max_by_key(|at| checkpoint::version(&block(&base, *at)).unwrap_or(0)).unwrap();
        let cp = Checkpoint::check(&sb, &block(&base, pack)[..]).unwrap();
        let vol = mounted(&base, true).unwrap();
        let at = |nid: u32| vol.inode_address(format::Ino(nid)).unwrap().0;
        let nodes = (3..2000).map(|nid| (nid, u64::from(at(nid)))).filter(|(_, at)| *at != 0).collect();
        drop(vol);
        Subject { forger: Forger::of(&base), base, sb, cp, pack, nodes }
    }

    fn place(&self, kind: &'static str, what: &str, blocks: &[u64], offset: usize, field: &Field) -> Place {
        let field = Field { at: field.at + offset, ..field.clone() };
        Place { kind, what: format!("{what}.{}", field.name), blocks: blocks.to_vec(), field }
    }

    /// Every field of a structure at a byte offset of a block.
    fn structure(&self, kind: &'static str, what: &str, blocks: &[u64], offset: usize, name: &str) -> Vec<Place> {
        fields::of(name).iter().map(|field| self.place(kind, what, blocks, offset, field)).collect()
    }

    /// The fields of one node: its footer, and those of an inode or the first pointers.
    fn node(&self, nid: u32, at: u64) -> Vec<Place> {
        let bytes = block(&self.base, at);
        let footer = node::footer(&bytes);
        let shape = match node::kind_of(footer.offset) {
            NodeKind::Inode => {
                let raw = RawInode::of(&bytes);
                let inline = raw.inline() & (Inline::DATA | Inline::DENTRY | Inline::XATTR);
                format!("inode {nid} ({:#o}, {inline:?})", raw.i_mode.get())
            }
            kind => format!("node {nid} ({kind:?})"),
        };
        let mut out = self.structure("node", &shape, &[at], node::FOOTER, "RawNodeFooter");
        let words = |out: &mut Vec<Place>, slots: &[usize]| {
            for slot in slots {
                let field = Field { name: format!("word[{slot}]"), at: 4 * slot, width: 4 };
                out.push(self.place("node", &shape, &[at], 0, &field));
            }
        };
        if footer.offset != 0 {
            words(&mut out, &[0, 1, 2, 5, 6, 7, 500, 1017]);
            return out;
        }
        let raw = RawInode::of(&bytes);
        let few = |name: &str| {
            let index = name.split_once('[').and_then(|(_, i)| i.trim_end_matches(']').parse::<usize>().ok());
            index.is_none_or(|i| i < 3 || name.starts_with("i_nid"))
        };
        let own = self.structure("node", &shape, &[at], 0, "RawInode");
        out.extend(own.into_iter().filter(|place| few(&place.field.name) && place.field.name != "footer"));
        let extra = raw.inline().contains(Inline::EXTRA_ATTR);
        if extra {
            let own = self.structure("node", &shape, &[at], inode::ADDR_OFFSET, "RawExtra");
            out.extend(own.into_iter().filter(|place| place.field.name != "i_inode_checksum"));
        }
        if let Ok(division) = raw.divide(self.sb.features) {
            let first = (inode::ADDR_OFFSET + 4 * division.extra as usize) / 4;
            words(&mut out, &[first, first + 1, first + 7, first + 8, first + 9]);
            if raw.inline().contains(Inline::XATTR) {
                let at = division.xattr_area().start / 4;
                words(&mut out, &[at, at + 1, at + 6, at + 7, at + 8]);
            }
        }
        out
    }

    /// The blocks of a table's entry: both copies, and the journal if it has the entry.
    fn table(&self, what: &str, copies: [BlockAddr; 2], entry: usize, name: &str) -> Vec<Place> {
        let copies = copies.map(|at| u64::from(at.0));
        self.structure("table", what, &copies, entry, name)
    }

    fn places(&self) -> Vec<Place> {
        let mut out = self.structure("superblock", "superblock", &[0], OFFSET, "RawSuperBlock");
        // Text, keys and reserved bytes have no meaning; the first of each stands for all.
        out.retain(|place| !place.field.name.contains('[') || place.field.name.ends_with("[0]"));
        out.retain(|place| place.field.name != "crc");
        let checkpoint = self.structure("checkpoint", "checkpoint", &[self.pack], 0, "RawCheckpoint");
        out.extend(checkpoint.into_iter().filter(|place| place.field.name != "checkpoint_ver"));
        let mut shapes = BTreeMap::new();
        for (&nid, &at) in &self.nodes {
            // One of each layout.
            let bytes = block(&self.base, at);
            let footer = node::footer(&bytes);
            let inode = footer.offset == 0;
            let raw = RawInode::of(&bytes);
            let shape = match inode {
                true => (0, raw.i_mode.get(), raw.i_inline, raw.i_xattr_nid.get() != 0, raw.i_size.get() > 4096),
                false => (footer.offset, 0, 0, false, false),
            };
            shapes.entry(shape).or_insert((nid, at));
        }
        for (nid, at) in shapes.values() {
            out.extend(self.node(*nid, *at));
            let (n, i) = nat::position(Nid(*nid));
            let copies = [false, true].map(|second| self.sb.nat_block(n, second));
            out.extend(self.table(&format!("NAT entry {nid}"), copies, 9 * i, "RawNatEntry"));
        }
        for nid in [0, 1, 2, 1999] {
            let (n, i) = nat::position(Nid(nid));
            let copies = [false, true].map(|second| self.sb.nat_block(n, second));
            out.extend(self.table(&format!("NAT entry {nid}"), copies, 9 * i, "RawNatEntry"));
        }
        let used = (0..self.sb.main_segs).filter(|seg| self.cp.logs.iter().any(|log| log.seg.0 == *seg));
        for seg in used.chain([self.sb.main_segs - 1, self.sb.main_segs / 2 + 1]) {
            let (n, i) = (seg / sit::SIT_ENTRIES, (seg % sit::SIT_ENTRIES) as usize);
            let copies = [false, true].map(|second| self.sb.sit_block(n, second));
            let entry = self.table(&format!("SIT entry {seg}"), copies, 74 * i, "RawSitEntry");
            out.extend(entry.into_iter().filter(|place| !place.field.name.contains('[') || place.field.at % 16 == 2));
            let ssa = u64::from(self.sb.ssa_block(SegNo(seg)).0);
            out.extend(self.structure("table", &format!("summary of segment {seg}"), &[ssa], 0, "RawSummary"));
        }
        out.extend(self.dentries());
        out
    }

    /// Fields of the first names in the blocks of directories.
    fn dentries(&self) -> Vec<Place> {
        let mut out = Vec::new();
        for (&nid, &at) in &self.nodes {
            let bytes = block(&self.base, at);
            let raw = RawInode::of(&bytes);
            if node::footer(&bytes).offset != 0 || raw.i_mode.get() & 0o170_000 != 0o040_000 {
                continue;
            }
            let Ok(division) = raw.divide(self.sb.features) else { continue };
            let first = raw.addr(division, 0);
            let (area, at, bitmap) = match raw.inline().contains(Inline::DENTRY) {
                true => continue,
                false => (0, u64::from(first.0), 27),
            };
            if first == BlockAddr::NULL {
                continue;
            }
            let entries = area + bitmap + 3;
            for slot in 0..6 {
                for (name, offset, width) in [("hash", 0, 4), ("ino", 4, 4), ("name_len", 8, 2), ("file_type", 10, 1)] {
                    let field = Field { name: name.to_owned(), at: entries + 11 * slot + offset, width };
                    out.push(self.place("dentry", &format!("directory {nid}, slot {slot}"), &[at], 0, &field));
                }
            }
            for byte in [0, 1, 26, 27] {
                let field = Field { name: format!("bitmap[{byte}]"), at: byte, width: 1 };
                out.push(self.place("dentry", &format!("directory {nid}"), &[at], 0, &field));
            }
        }
        out
    }

    /// Values to try in a place that holds `now`: boundary values, and numbers with a meaning.
    fn values(&self, place: &Place, now: u64) -> Vec<u64> {
        let mut out = fields::values(place.field.width, now);
        if place.field.width == 4 {
            let own = place.blocks[0];
            let nid = self.nodes.iter().find(|(_, at)| **at == own).map_or(3, |(nid, _)| u64::from(*nid));
            let main = u64::from(self.sb.main.0);
            let end = main + u64::from(self.sb.main_segs) * 512;
            let known = self.nodes.iter().flat_map(|(nid, at)| [u64::from(*nid), *at]).take(8);
            let end_of_numbers = u64::from(self.sb.max_nid());
            out.extend([own, nid, nid + 1, main, main - 1, end, end - 1, end_of_numbers, end_of_numbers - 1]);
            out.extend(known);
        }
        out.sort_unstable();
        out.dedup();
        out.retain(|value| *value != now);
        out
    }

    fn cases(&self) -> Vec<(Place, u64)> {
        let places = self.places();
        let values = |place: Place| {
            let now = fields::get(&block(&self.base, place.blocks[0])[..], &place.field);
            self.values(&place, now).into_iter().map(move |value| (place.clone(), value)).collect::<Vec<_>>()
        };
        places.into_iter().flat_map(values).collect()
    }

    fn forged(&self, place: &Place, value: u64) -> Memory {
        let image = self.base.fork();
        for at in &place.blocks {
            self.forger.set(&image, place.kind, *at, &place.field, value);
        }
        if place.kind == "table" {
            self.forge_journal(&image, place, value);
        }
        image
    }

    /// An entry in the journals of the newest pack hides the table's.
    fn forge_journal(&self, image: &Memory, place: &Place, value: u64) {
        let at = self.pack + u64::from(self.cp.start_sum);
        let compact = self.cp.flags.contains(CpFlags::COMPACT_SUM);
        assert!(compact, "an unmounted volume has compact summaries");
        let mut bytes = block(image, at);
        let (number, base, size) = match place.what.split_once(" entry ") {
            Some(("NAT", rest)) => (rest, 0, 13),
            Some(("SIT", rest)) => (rest, 507, 78),
            _ => return,
        };
        let number: u32 = number.split('.').next().unwrap().parse().unwrap();
        let per = if size == 13 { (nat::NAT_ENTRIES, 9) } else { (sit::SIT_ENTRIES, 74) };
        let within = place.field.at - (number % per.0) as usize * per.1;
        let entries = usize::from(u16::from_le_bytes([bytes[base], bytes[base + 1]]));
        for entry in (0..entries).map(|i| base + 2 + size * i) {
            if bytes[entry..entry + 4] == number.to_le_bytes() {
                let field = Field { at: entry + 4 + within, ..place.field.clone() };
                fields::put(&mut bytes[..], &field, value);
            }
        }
        image.write(Lba(at), &*bytes, Tag::default()).unwrap();
    }
}

#[allow(clippy::result_large_err)]
fn mounted(image: &Memory, read_only: bool) -> Result<Arc<Volume>, f2fs::MountError> {
    Volume::mount(Arc::new(image.fork()), clock(), MountOptions { read_only, ..MountOptions::default() })
}

/// Names in a directory, except `.` and `..`.
fn names(vol: &Volume, dir: Ino) -> vfs::Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    vol.readdir(dir, 0, &mut |e| {
        out.push(e.name.to_vec());
        if out.len() < 2000 { Flow::Continue } else { Flow::Stop }
    })?;
    out.retain(|name| name != b"." && name != b"..");
    Ok(out)
}

/// Reads everything about an inode: contents if any, attributes, `stat`.
fn read(vol: &Volume, ino: Ino, kind: FileKind) -> Result<(), String> {
    let fail = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let attr = vol.getattr(ino).map_err(fail("getattr"))?;
    if i64::try_from(attr.size).is_err() {
        return Err(format!("size {:#x} is none that the kernel takes", attr.size));
    }
    for name in vol.listxattr(ino).map_err(fail("listxattr"))? {
        vol.getxattr(ino, &name).map_err(fail("getxattr"))?;
    }
    match kind {
        FileKind::Symlink => drop(vol.readlink(ino).map_err(fail("readlink"))?),
        FileKind::Regular => {
            let mut buf = vec![0; 64 * BLOCK];
            let mut at = 0;
            // A file has no more data extents than the volume has blocks.
            for _ in 0..1 << 12 {
                at = match vol.seek(ino, at, Seek::Data) {
                    Ok(at) => at,
                    Err(Error::PastEnd) => break,
                    Err(e) => return Err(format!("seek: {e}")),
                };
                let n = match vol.read(ino, at, &mut buf) {
                    // A file without its key is not damaged.
                    Err(Error::NoKey) => return Ok(()),
                    other => other.map_err(fail("read"))?,
                };
                if n == 0 {
                    break;
                }
                at += n as u64;
            }
            vol.read(ino, attr.size.saturating_sub(100), &mut buf).map_err(fail("read of the end"))?;
        }
        _ => {}
    }
    Ok(())
}

/// Reads the whole tree.
fn served(vol: &Volume) -> Result<(), String> {
    vol.statfs().map_err(|e| format!("statfs: {e}"))?;
    let mut dirs = vec![(vol.root(), String::new())];
    read(vol, vol.root(), FileKind::Directory)?;
    let mut seen = 0;
    while let Some((dir, path)) = dirs.pop() {
        for name in names(vol, dir).map_err(|e| format!("readdir of {path:?}: {e}"))? {
            let path = format!("{path}/{}", name.escape_ascii());
            seen += 1;
            if seen > 4000 {
                return Err("the tree has no end".into());
            }
            let entry = vol.lookup(dir, &name).map_err(|e| format!("lookup of {path}: {e}"))?;
            let (ino, kind) = (entry.attr.ino, entry.attr.kind);
            read(vol, ino, kind).map_err(|what| format!("{path}: {what}"))?;
            if kind == FileKind::Directory {
                dirs.push((ino, path));
            }
            vol.forget(ino, 1);
        }
    }
    Ok(())
}

/// Removes everything, and expects a clean volume.
fn removed(image: &Memory) -> Result<(), String> {
    let dev = Arc::new(image.fork());
    let vol = Volume::mount(dev.clone(), clock(), MountOptions::default()).map_err(|e| format!("mount: {e}"))?;
    match remove_all(&vol) {
        // Immutable or append-only files are not damage.
        Err(what) if what.contains("not permitted") || what.contains("key") => return Ok(()),
        other => other?,
    }
    vol.unmount().map_err(|e| format!("unmount: {e}"))?;
    let report = fsck::check(&*dev, &fsck::Options::default()).map_err(|e| e.to_string())?;
    match report.errors().next() {
        None => Ok(()),
        Some(error) => Err(format!("after all was removed: {error}")),
    }
}

fn remove_all(vol: &Volume) -> Result<(), String> {
    let mut todo = vec![(vol.root(), None::<(Ino, Vec<u8>)>)];
    while let Some((dir, place)) = todo.pop() {
        let mut below = Vec::new();
        for name in names(vol, dir).map_err(|e| format!("readdir: {e}"))? {
            let shown = name.escape_ascii().to_string();
            let entry = vol.lookup(dir, &name).map_err(|e| format!("lookup of {shown}: {e}"))?;
            match entry.attr.kind {
                FileKind::Directory => below.push((entry.attr.ino, Some((dir, name)))),
                _ => {
                    vol.unlink(dir, &name).map_err(|e| format!("unlink of {shown}: {e}"))?;
                    vol.forget(entry.attr.ino, 1);
                }
            }
        }
        if !below.is_empty() {
            todo.push((dir, place));
            todo.extend(below);
        } else if let Some((parent, name)) = place {
            let shown = name.escape_ascii().to_string();
            vol.rmdir(parent, &name).map_err(|e| format!("rmdir of {shown}: {e}"))?;
            vol.forget(dir, 1);
        }
    }
    Ok(())
}

/// Why the reader refuses the image, if it does.
fn refused(image: &Memory) -> Option<String> {
    let read = mounted(image, true).map_err(|e| format!("mount to read: {e}")).and_then(|vol| served(&vol));
    read.and_then(|()| removed(image)).err()
}

/// Whether both agree; panics if fsck calls clean what the reader refuses.
fn agree(image: &Memory) -> bool {
    let report = fsck::check(image, &fsck::Options::default());
    // Both refuse an unsupported volume.
    let Ok(report) = report else { return mounted(image, false).is_err() };
    if !report.is_clean() {
        return true;
    }
    match refused(image) {
        None => true,
        // A feature that this program cannot write is not damage.
        Some(why) if why.contains("cannot write to this volume") || why.contains("cannot read this volume") => true,
        Some(why) => panic!("clean for fsck; {why}"),
    }
}

fn reader_and_checker_agree(options: &mkfs::Options) {
    let subject = Subject::new(options);
    assert_eq!(refused(&subject.base), None);
    let mut cases = subject.cases();
    let all = cases.len();
    if let Ok(text) = std::env::var("JOULEFS_REPLAY") {
        cases.retain(|(place, value)| format!("{}={value:#x}", place.what).contains(&text));
    } else if std::env::var_os("JOULEFS_DEEP").is_none() {
        let first = std::env::var("JOULEFS_FIRST_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
        let mut rng = Rng::new(first);
        // Wrong sizes and wrong nodes have caused the most bugs.
        let always = |place: &Place| ["i_size", "i_xattr_nid"].contains(&place.field.name.as_str());
        cases.retain(|(place, _)| always(place) || rng.chance(1200, all as u64));
    }
    println!("{} of {all} cases", cases.len());
    let mut failed = Vec::new();
    for (place, value) in cases {
        let image = subject.forged(&place, value);
        let name = format!("{}={value:#x}", place.what);
        match case(&image, agree) {
            Ok(true) => {}
            Ok(false) => failed.push(format!("{name}: refused by fsck, mounted for writing")),
            Err(what) => failed.push(format!("{name}: {what}")),
        }
    }
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_checker_and_the_reader_agree_about_every_field_of_a_plain_volume() {
    reader_and_checker_agree(&mkfs::Options::default());
}

#[test]
fn the_checker_and_the_reader_agree_about_every_field_of_a_volume_with_modern_features() {
    reader_and_checker_agree(&mkfs::Options::modern());
}

#[test]
fn an_inode_that_names_itself_as_the_node_of_its_attributes_shows_none_of_its_bytes() {
    let subject = Subject::new(&mkfs::Options::default());
    let vol = mounted(&subject.base, true).unwrap();
    let ino = vol.lookup(vol.root(), b"entry_blocks").unwrap().attr.ino;
    let field = fields::of("RawInode").into_iter().find(|field| field.name == "i_xattr_nid").unwrap();
    let at = subject.nodes[&(ino.0 as u32)];
    let image = subject.base.fork();
    subject.forger.set(&image, "node", at, &field, ino.0);
    let vol = mounted(&image, true).unwrap();
    assert!(matches!(vol.listxattr(ino), Err(Error::Corrupt(_))), "{:?}", vol.listxattr(ino));
    assert!(matches!(vol.getxattr(ino, b"user.large"), Err(Error::Corrupt(_))));
}

#[test]
fn the_checker_and_the_reader_agree_about_a_nul_byte_anywhere_in_a_target() {
    for options in [mkfs::Options::default(), mkfs::Options::modern()] {
        let subject = Subject::new(&options);
        let mut seen = 0;
        for &at in subject.nodes.values() {
            let node = block(&subject.base, at);
            let raw = RawInode::of(&node);
            if node::footer(&node).offset != 0 || raw.i_mode.get() & 0o170_000 != 0o120_000 {
                continue;
            }
            let division = raw.divide(subject.sb.features).unwrap();
            let inline = raw.inline().contains(Inline::DATA);
            let place = if inline { at } else { u64::from(raw.addr(division, 0).0) };
            let first = if inline { division.inline_area().start } else { 0 };
            let size = raw.i_size.get() as usize;
            for byte in (0..size).filter(|byte| byte % 599 < 2 || byte + 1 == size) {
                let image = subject.base.fork();
                let field = Field { name: format!("target[{byte}]"), at: first + byte, width: 1 };
                if inline {
                    subject.forger.set(&image, "node", place, &field, 0);
                } else {
                    let mut target = block(&image, place);
                    fields::put(&mut target[..], &field, 0);
                    image.write(Lba(place), &*target, Tag::default()).unwrap();
                }
                assert!(
                    refused(&image).is_some_and(|why| why.contains("NUL")),
                    "{}: {:?}",
                    field.name,
                    refused(&image)
                );
                assert!(!fsck::check(&image, &fsck::Options::default()).unwrap().is_clean(), "{}", field.name);
            }
            seen += 1;
        }
        assert!(seen > 0, "no symbolic link");
    }
}
