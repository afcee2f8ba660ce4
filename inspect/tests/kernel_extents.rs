//! Files that Linux wrote have the layout that `filefrag` reported while they were mounted, and that `dump.f2fs`
//! prints.

use std::collections::BTreeMap;
use std::path::Path;

use device::{Access, open_image};
use inspect::file::Extent;
use inspect::inode::Kind;
use inspect::{File, Options, Progress, Volume};
use judges::oracle::kernel::{Kernel, ZEROES};
use judges::oracle::tools::{Mkfs, assert_fsck_clean, dump, locate};

/// Files that grow side by side, with holes, inline, preallocated, renamed over each other; some are deleted.
const SCRIPT: &str = r#"
mkdir -p data/com.example.chat/databases media deep/er/still
chat=data/com.example.chat/databases
for i in $(seq 0 59); do
    echo "20 $((i * 20)) $chat/msg.db"; echo "sync - $chat/msg.db"
    echo "3 $((i * 3)) $chat/msg.db-wal"; echo "sync - $chat/msg.db-wal"
    echo "7 0 media/film$i.mp4"
done | zeroes
{
    for at in "5 0" "5 1000" "1 5000"; do echo "$at deep/er/still/holes"; done
    echo "1 3000000 deep/er/still/far"
} | zeroes
echo inline > deep/inline
ln -s ../inline deep/er/link
rm $(seq -f media/film%g.mp4 0 2 59)
sync
echo "6000 0 large" | zeroes
echo one > renamed.tmp; mv renamed.tmp renamed; echo two > again.tmp; mv again.tmp deep/renamed
fallocate -l 200k reserved 2>/dev/null || :
ln large deep/second-name
sync
find . -xdev '(' -type f -links 1 -o -type d ')' -printf '%i %p\n' > $OUT/names
for f in $(find . -xdev -type f); do echo "= $(stat -c %i $f)"; filefrag -v -b4096 $f; done > $OUT/extents
stat -f -c '%b %f' . > $OUT/statfs
"#;

/// Extents by inode as `filefrag -v` prints them, neighbours merged.
fn filefrag(text: &str) -> BTreeMap<u32, Vec<(u64, u32, u32)>> {
    let mut all: BTreeMap<u32, Vec<(u64, u32, u32)>> = BTreeMap::new();
    let mut ino = 0;
    for line in text.lines() {
        if let Some(n) = line.strip_prefix("= ") {
            ino = n.trim().parse().unwrap();
            all.insert(ino, Vec::new());
        }
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let (Some(Ok(_)), true) = (fields.first().map(|f| f.parse::<u32>()), fields.len() >= 4) else { continue };
        if fields.last().is_some_and(|flags| flags.contains("inline") || flags.contains("unwritten")) {
            continue;
        }
        let first = |range: &str| range.split("..").next().unwrap().trim().parse::<u64>().unwrap();
        let (from, addr, len) = (first(fields[1]), first(fields[2]) as u32, fields[3].parse::<u32>().unwrap());
        let of = all.get_mut(&ino).unwrap();
        match of.last_mut() {
            Some((f, a, n)) if *f + u64::from(*n) == from && *a + *n == addr => *n += len,
            _ => of.push((from, addr, len)),
        }
    }
    all
}

fn ours(file: &File) -> Vec<(u64, u32, u32)> {
    file.extents.iter().map(|Extent { from, addr, blocks }| (*from, *addr as u32, *blocks as u32)).collect()
}

fn of_linux(mkfs: &Mkfs, image: &Path) -> Volume {
    mkfs.format(image, 256 << 20).unwrap();
    let kernel = Kernel::new().program("filefrag", locate("filefrag", "e2fsprogs"));
    let run = kernel.run(image, &format!("{ZEROES}{SCRIPT}")).expect_ok();
    run.assert_no_f2fs_complaints();
    assert_fsck_clean(image);
    let text = |name: &str| std::fs::read_to_string(run.out().join(name)).unwrap();

    let dev = open_image(image, Access::ReadOnly).unwrap();
    let options = Options { extents: true, ..Options::default() };
    let seen = Volume::read(&*dev, &options, &mut Progress::new(&mut |_| true)).unwrap();
    assert_eq!(seen.findings, []);
    let report = fsck::check(&*dev, &fsck::Options::default()).unwrap();
    let (c, f) = (seen.counts, report.counts);
    assert_eq!((c.dirs, c.files, c.nodes, c.blocks), (f.dirs, f.files, f.nodes, f.blocks));
    // From the mounted volume: all blocks, free blocks.
    let statfs: Vec<u64> = text("statfs").split_whitespace().map(|n| n.parse().unwrap()).collect();
    let user = seen.checkpoint.as_ref().unwrap().user_blocks;
    assert!(statfs[1] <= statfs[0], "{statfs:?}");
    assert_eq!(user - statfs[1], c.blocks, "statfs");

    let file = |ino: u32| &seen.files[seen.files.binary_search_by_key(&ino, |f| f.ino.0).unwrap()];
    let theirs = filefrag(&text("extents"));
    assert!(theirs.len() > 35 && theirs.values().any(|e| e.len() > 50), "{theirs:?}");
    for (ino, extents) in &theirs {
        assert_eq!(&ours(file(*ino)), extents, "{}", seen.path(file(*ino)).text());
    }
    let mut sure = 0;
    for line in text("names").lines() {
        let (ino, path) = line.split_once(' ').unwrap();
        let ours = seen.path(file(ino.parse().unwrap()));
        if ours.is_sure {
            sure += 1;
            assert_eq!(ours.text(), path.strip_prefix('.').filter(|p| !p.is_empty()).unwrap_or("/"));
        }
    }
    assert!(sure > 35, "only {sure} paths are sure");
    seen
}

#[test]
fn extents_counts_and_paths_are_those_of_linux() {
    let dir = tempfile::tempdir().unwrap();
    for features in [&[][..], &["extra_attr", "inode_checksum", "inode_crtime", "flexible_inline_xattr"]] {
        let image = dir.path().join("volume.img");
        let seen = of_linux(&Mkfs::with_features(features.iter().copied()), &image);
        let named = |name: &[u8]| seen.files.iter().find(|f| *f.name == *name).unwrap();
        let database = named(b"msg.db");
        assert!(database.layout.extents > 20 && database.layout.min_extents == 1, "{:?}", database.layout);
        let holes = &named(b"holes").layout;
        assert_eq!((holes.blocks, holes.min_extents, holes.holes), (11, 3, 2));
        // Linux updates an inode's name when it gets a second one.
        let twice = seen.files.iter().find(|f| f.links == 2 && f.kind == Kind::File).unwrap();
        assert!(named(b"inline").inline && twice.layout.blocks == 6000 && !seen.path(twice).is_sure);
        let reserved = seen.files.iter().filter(|f| f.kind == Kind::File).map(|f| f.layout.reserved).sum::<u64>();
        assert!(reserved == 0 || reserved == 50, "{reserved}");
        dumped(&image, database);
        dumped(&image, named(b"holes"));
    }
}

/// Every block that `dump.f2fs` prints for a file is in one of its extents, in this order, and the extents have no
/// others.
fn dumped(image: &Path, file: &File) {
    let text = dump(image, &["-M", "-i", &format!("{:#x}", file.ino.0)]).unwrap().text;
    let mut theirs = Vec::new();
    for word in text.split_whitespace() {
        let (from, to) = word.split_once('-').unwrap_or((word, word));
        // Holes are printed as 0; other words are ignored.
        if let (Ok(from @ 1..), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
            theirs.extend(from..=to);
        }
    }
    let ours: Vec<u32> = file.extents.iter().flat_map(|e| e.addr..e.addr + e.blocks).map(|a| a as u32).collect();
    assert_eq!(theirs, ours, "dump.f2fs says:\n{text}");
}
