//! Files of ext2, ext3 and ext4 have the layout that `filefrag` and `debugfs` report, and the free space that
//! `dumpe2fs` lists. Damaged images end in a result or an error.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Access, BlockDevice, Memory, Rng, open_image};
use inspect::ext::{self, Tree};
use inspect::file::Extent;
use inspect::{Options, Progress};
use judges::oracle::kernel::{Kernel, ZEROES};
use judges::oracle::tools::locate;

/// Files that grow side by side, with holes, reserved blocks, several names; some are deleted.
const SCRIPT: &str = r#"
mkdir -p deep/er/still media
for i in $(seq 0 59); do
    echo "20 $((i * 20)) msg.db"; echo "sync - msg.db"
    echo "3 $((i * 3)) msg.db-wal"; echo "sync - msg.db-wal"
    echo "7 0 media/film$i.mp4"
done | zeroes
for at in "5 0" "5 1000" "1 5000"; do echo "$at deep/er/still/holes"; done | zeroes
echo small > deep/small
ln -s ../small deep/er/link
rm $(seq -f media/film%g.mp4 0 2 59)
sync
echo "6000 0 large" | zeroes
fallocate -l 200k reserved 2>/dev/null || :
ln large deep/second-name
sync
for f in $(find . -xdev -type f); do echo "= $(stat -c %i $f) $f"; filefrag -v -b4096 $f; done > $OUT/extents
"#;

fn tool(name: &str, args: &[&str]) -> String {
    let ran = Command::new(locate(name, "e2fsprogs")).args(args).output().unwrap();
    assert!(ran.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

fn read(dev: Arc<dyn BlockDevice>) -> Result<Tree, inspect::InspectError> {
    let options = Options { extents: true, ..Options::default() };
    ext::read(dev, &options, &mut Progress::new(&mut |_| true))
}

/// Reads an undamaged image. Progress ends at the announced total.
fn image(path: &Path) -> Tree {
    let dev = open_image(path, Access::ReadOnly).unwrap();
    assert!(ext::is_ext(&*dev));
    let (steps, mut done) = (ext::steps(&*dev), 0);
    let mut tell = |inodes| {
        done += inodes;
        true
    };
    let options = Options { extents: true, ..Options::default() };
    let tree = ext::read(dev, &options, &mut Progress::new(&mut tell)).unwrap();
    assert_eq!(done, steps);
    tree
}

/// Free blocks as `dumpe2fs` lists them, group by group.
fn listed_free(path: &Path) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for line in tool("dumpe2fs", &[path.to_str().unwrap()]).lines() {
        let Some(list) = line.strip_prefix("  Free blocks: ") else { continue };
        for run in list.split(", ").filter(|run| !run.is_empty()) {
            let (from, to) = run.split_once('-').unwrap_or((run, run));
            all.push((from.parse().unwrap(), to.parse().unwrap()));
        }
    }
    all
}

/// Free 4 KiB blocks by bitmap equal those that `dumpe2fs` lists in blocks of `unit` bytes.
fn free_is_equal(path: &Path, tree: &Tree, unit: u64) {
    let (sit, space) = tree.segments.as_ref().unwrap();
    let mut theirs = vec![0_u64; (tree.bytes / 4096) as usize];
    for (from, to) in listed_free(path) {
        for n in from..=to {
            if let Some(bytes) = theirs.get_mut((n * unit / 4096) as usize) {
                *bytes += unit.min(4096);
            }
            // A larger block covers several.
            (1..unit / 4096).for_each(|k| theirs[(n * unit / 4096 + k) as usize] += 4096);
        }
    }
    let ours = sit.iter().flat_map(|(n, s)| (0..sit.blocks_of(n)).map(|k| !s.has(k)));
    let ours: Vec<bool> = ours.take(theirs.len()).collect();
    assert_eq!(ours.len(), theirs.len());
    let differ: Vec<usize> = (0..ours.len()).filter(|&n| ours[n] != (theirs[n] == 4096)).collect();
    assert!(differ.is_empty(), "{} blocks differ, the first are {:?}", differ.len(), &differ[..differ.len().min(9)]);
    let free = theirs.iter().filter(|n| **n == 4096).count() as u64;
    assert!(free > 0 && space.piece_blocks.iter().sum::<u64>() == free);
}

#[test]
fn extents_equal_those_that_linux_reports_for_the_mounted_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v.img");
    fs::File::create(&path).unwrap().set_len(300 << 20).unwrap();
    tool("mke2fs", &["-q", "-t", "ext4", "-b", "4096", path.to_str().unwrap()]);
    let kernel = Kernel::new().fs_type("ext4").program("filefrag", locate("filefrag", "e2fsprogs"));
    let run = kernel.run(&path, &format!("{ZEROES}{SCRIPT}")).expect_ok();
    let text = |name: &str| fs::read_to_string(run.out().join(name)).unwrap();
    let tree = image(&path);
    assert_eq!((tree.kind, &tree.damage[..]), ("ext4", &[][..]));

    let mut theirs: BTreeMap<u64, Vec<Extent>> = BTreeMap::new();
    let mut of = 0;
    for line in text("extents").lines() {
        if let Some(head) = line.strip_prefix("= ") {
            of = head.split(' ').next().unwrap().parse().unwrap();
            theirs.insert(of, Vec::new());
        }
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let is_row = fields[0].parse::<u32>().is_ok() && fields.len() >= 4;
        if !is_row || fields.last().unwrap().contains("unwritten") {
            continue;
        }
        let first = |range: &str| range.split("..").next().unwrap().trim().parse::<u64>().unwrap();
        let new = Extent { from: first(fields[1]), addr: first(fields[2]), blocks: fields[3].parse().unwrap() };
        let all = theirs.get_mut(&of).unwrap();
        match all.last_mut() {
            Some(e) if e.from + e.blocks == new.from && e.addr + e.blocks == new.addr => e.blocks += new.blocks,
            _ => all.push(new),
        }
    }
    assert!(theirs.len() > 30 && theirs.values().any(|e| e.len() > 5), "{theirs:?}");
    assert_eq!(tree.files.len(), theirs.len());
    for (file, path) in tree.files.iter().zip(&tree.paths) {
        assert_eq!(Some(&file.extents), theirs.get(&file.ino.0.into()), "{}", String::from_utf8_lossy(path));
    }
    let named = |name: &[u8]| tree.files.iter().find(|f| *f.name == *name).unwrap();
    let holes = &named(b"holes").layout;
    assert_eq!((holes.blocks, holes.min_extents, holes.holes), (11, 3, 2));
    assert_eq!(named(b"reserved").layout.reserved, 50);
    free_is_equal(&path, &tree, 4096);
}

/// Runs of data blocks of an inode as `debugfs` prints them, in the image's own blocks.
fn debugfs_runs(path: &Path, ino: u32) -> usize {
    let text = tool("debugfs", &["-R", &format!("stat <{ino}>"), path.to_str().unwrap()]);
    let list = text.split("BLOCKS:").nth(1).or_else(|| text.split("EXTENTS:").nth(1)).unwrap_or_default();
    let list = list.split("TOTAL").next().unwrap();
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    for word in list.split_whitespace().flat_map(|w| w.split(',')).filter(|w| w.starts_with('(')) {
        let (logical, physical) = word[1..].split_once("):").unwrap();
        if logical.starts_with(|c: char| !c.is_ascii_digit()) {
            continue;
        }
        let pair = |t: &str| -> (u64, u64) {
            let (a, b) = t.split_once('-').unwrap_or((t, t));
            (a.parse().unwrap(), b.parse().unwrap())
        };
        let (l, p) = (pair(logical), pair(physical));
        match runs.last_mut() {
            Some(last) if last.1 + 1 == l.0 && last.2 + 1 == p.0 => (last.1, last.2) = (l.1, p.1),
            _ => runs.push((l.0, l.1, p.1)),
        }
    }
    runs.len()
}

#[test]
fn older_kinds_and_other_block_sizes_agree_with_debugfs() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("tree");
    fs::create_dir_all(from.join("a/b")).unwrap();
    for (n, bytes) in [10, 3000, 50_000, 400_000, 5_000_000].into_iter().enumerate() {
        fs::write(from.join(format!("a/b/{n}.db")), vec![n as u8; bytes]).unwrap();
    }
    for n in 0..300 {
        fs::write(from.join(format!("a/long-name-so-that-a-directory-has-several-blocks-{n}")), [1; 2000]).unwrap();
    }
    for (kind, unit, features) in [
        ("ext2", 1024, "none,filetype,sparse_super"),
        ("ext2", 4096, "none,filetype"),
        ("ext3", 2048, "none,filetype,has_journal,dir_index,sparse_super"),
        ("ext4", 1024, "extent,filetype,has_journal,metadata_csum,64bit,flex_bg,uninit_bg"),
        ("ext4", 4096, "extent,filetype,has_journal,metadata_csum,64bit,flex_bg,inline_data"),
        ("ext4", 4096, "extent,filetype,meta_bg,^resize_inode,sparse_super2"),
        ("ext4", 16_384, "extent,filetype,has_journal"),
    ] {
        let path = dir.path().join("v.img");
        let _ = fs::remove_file(&path);
        fs::File::create(&path).unwrap().set_len((60 << 20) + 4096 * 3).unwrap();
        let (size, at) = (unit.to_string(), path.to_str().unwrap());
        tool("mke2fs", &["-q", "-F", "-t", kind, "-O", features, "-b", &size, "-d", from.to_str().unwrap(), at]);
        let tree = image(&path);
        assert_eq!((tree.kind, &tree.damage[..]), (kind, &[][..]), "{features}");
        assert_eq!((tree.files.len(), tree.dirs), (305, 4), "{kind} {unit} {features}");
        let mut most = 0;
        for file in &tree.files {
            let theirs = if file.inline { 0 } else { debugfs_runs(&path, file.ino.0) };
            assert_eq!(file.layout.extents as usize, theirs, "{kind} {unit} {}", file.ino);
            most = most.max(theirs);
            assert_eq!(file.extents.len(), theirs);
        }
        // In larger files, indirect blocks lie between data blocks.
        assert!(kind == "ext4" || most > 1, "{kind} {unit}: nothing was torn");
        free_is_equal(&path, &tree, unit);
    }
}

#[test]
fn any_bytes_end_in_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("tree");
    fs::create_dir_all(from.join("d")).unwrap();
    for n in 0..40 {
        fs::write(from.join(format!("d/{n}.db")), vec![n; 3000 * usize::from(n)]).unwrap();
    }
    let mut rng = Rng::new(11);
    let (mut answers, mut damaged, mut refused) = (0, 0, 0);
    for features in ["none,filetype", "extent,filetype,has_journal", "extent,filetype,metadata_csum,64bit,dir_index"] {
        let path = dir.path().join("v.img");
        let _ = fs::remove_file(&path);
        fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
        let at = path.to_str().unwrap();
        tool("mke2fs", &["-q", "-F", "-t", "ext4", "-O", features, "-b", "1024", "-d", from.to_str().unwrap(), at]);
        let whole = fs::read(&path).unwrap();
        // Bytes that are not zero.
        let used: Vec<usize> = (0..whole.len()).filter(|&i| whole[i] != 0).take(200_000).collect();
        for _ in 0..250 {
            let mut bytes = whole.clone();
            for _ in 0..=rng.index(12) {
                // Half of the damage hits the tables.
                let reach = if rng.index(2) == 0 { 6000 } else { used.len() };
                let at = used[rng.index(reach.min(used.len()))];
                bytes[at] = [0, 0xff, 0x7f, bytes[at] ^ 1, bytes[at].wrapping_add(1)][rng.index(5)];
            }
            let dev = Memory::new((bytes.len() / 4096) as u64);
            for (n, block) in bytes.chunks_exact(4096).enumerate() {
                dev.write(device::Lba(n as u64), block, inspect::begin::TAG).unwrap();
            }
            #[allow(clippy::disallowed_methods, reason = "how long this machine waits is what is bounded")]
            let began = Instant::now();
            match read(Arc::new(dev)) {
                Ok(tree) if tree.damage.is_empty() && tree.files.iter().all(|f| f.lawful) => answers += 1,
                Ok(_) => damaged += 1,
                Err(_) => refused += 1,
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        }
    }
    assert!(answers > 50 && damaged > 50 && refused > 20, "{answers} sound, {damaged} damaged, {refused} refused");
}
