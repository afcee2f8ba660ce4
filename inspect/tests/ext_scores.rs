//! The output of `e4defrag -c` follows, to the last digit, from the results of `inspect`: extents now and at best,
//! bytes per extent, and the score. Where a word has another meaning, exactly that difference is counted:
//!
//! * Its *now* counts records of the file's extent tree; `inspect` counts runs of addresses. A record ends at 32,768
//!   blocks or where a later write was added, even if the addresses go on; records of reserved blocks count too.
//! * Its *best* ignores holes and reserved blocks, and assumes one extent per (flexible) block group: blocks divided by
//!   blocks per group, rounded up. `inspect` assumes one per stretch.
//! * Its *score* is 8 for each percent of `(now - best) / blocks`; from ten percent on it is 80 plus a fifth of the
//!   percents.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use device::{Access, open_image};
use inspect::ext::{self, Tree};
use inspect::{File, Options, Progress};
use judges::oracle::kernel::{Kernel, ZEROES};
use judges::oracle::tools::locate;

/// Large files, and files fragmented by each other, by holes, and by overwriting reserved blocks.
const SCRIPT: &str = r#"
mkdir -p deep/er/with-a-name-that-takes-the-line-to-itself media
for i in $(seq 0 59); do
    echo "20 $((i * 20)) msg.db"; echo "sync - msg.db"
    echo "3 $((i * 3)) msg.db-wal"; echo "sync - msg.db-wal"
    echo "$((i % 9 + 1)) 0 media/film$i.mp4"
done | zeroes
rm $(seq -f media/film%g.mp4 0 2 59)
sync
d=deep/er/with-a-name-that-takes-the-line-to-itself
for at in "5 0" "5 1000" "1 5000"; do echo "$at $d/holes"; done | zeroes
for i in $(seq 0 2 90); do echo "1 $i $d/every-second"; echo "sync - $d/every-second"; done | zeroes
fallocate -l 200k reserved; fallocate -l 150M reserved-too
fallocate -l 4M used-in-part; for at in 100 700; do echo "10 $at used-in-part"; done | zeroes
echo small > small; : > empty
sync
echo "34000 0 large" | zeroes
sync
for f in $(find . -xdev -type f); do
    echo "= $(stat -c %i $f)"; filefrag -v -b4096 $f; e4defrag -c $PWD/$f || :
done > $OUT/told 2>&1
"#;

/// What Linux's tools print about one file.
#[derive(Default, Debug)]
struct Reported {
    /// Records of the extent tree, by `filefrag`.
    records: u64,
    /// Records of reserved blocks, and records that continue the previous one.
    reserved: u64,
    goes_on: u64,
    /// `e4defrag -c`: now, best, KB per extent, score.
    now: Option<[u64; 4]>,
}

fn parse_report(text: &str) -> BTreeMap<u32, Reported> {
    let mut all: BTreeMap<u32, Reported> = BTreeMap::new();
    let (mut ino, mut end) = (0, None);
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("= ") {
            (ino, end) = (head.parse().unwrap(), None);
            all.insert(ino, Reported::default());
            continue;
        }
        let Some(of) = all.get_mut(&ino) else { continue };
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        if fields[0].parse::<u32>().is_ok() && fields.len() >= 4 {
            let first = |range: &str| range.split("..").next().unwrap().trim().parse::<u64>().unwrap();
            let (from, addr, len) = (first(fields[1]), first(fields[2]), fields[3].parse::<u64>().unwrap());
            of.records += 1;
            if fields.last().unwrap().contains("unwritten") {
                (of.reserved, end) = (of.reserved + 1, None);
            } else {
                of.goes_on += u64::from(end.replace((from + len, addr + len)) == Some((from, addr)));
            }
        }
        // `[NAME] NOW/BEST SIZE KB`; a long name has a line of its own.
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [.., counts, kb, "KB"] = words[..]
            && let Some((now, best)) = counts.split_once('/')
            && let (Ok(now), Ok(best)) = (now.parse(), best.parse())
        {
            of.now.get_or_insert([now, best, kb.parse().unwrap(), u64::MAX]);
        }
        if let ["Fragmentation", "score", score] = words[..] {
            of.now.as_mut().unwrap()[3] = score.parse().unwrap();
        }
    }
    all
}

/// What `e4defrag -c` must print for a file, by its own definitions.
fn defined(file: &File, reported: &Reported, blocks_in_group: u64) -> [u64; 4] {
    let blocks = file.layout.blocks + file.layout.reserved;
    let now = u64::from(file.layout.extents) + reported.goes_on + reported.reserved;
    let best = (blocks - 1) / blocks_in_group + 1;
    let percents = (now - best) as f32 * 100.0 / blocks as f32;
    let score = if percents > 10.0 { 80.0 + 20.0 * percents / 100.0 } else { 8.0 * percents };
    [now, best, blocks * 4 / now, format!("{score:.0}").parse().unwrap()]
}

fn image(path: &Path) -> Tree {
    let dev = open_image(path, Access::ReadOnly).unwrap();
    ext::read(dev, &Options::default(), &mut Progress::new(&mut |_| true)).unwrap()
}

/// Creates a volume with this number of blocks per group, lets Linux fill it, and compares. Returns each file with what
/// the tools print.
fn compared(options: &[&str], blocks_in_group: u64) -> Vec<(File, Reported)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v.img");
    fs::File::create(&path).unwrap().set_len(600 << 20).unwrap();
    let mut make = Command::new(locate("mke2fs", "e2fsprogs"));
    make.args(["-q", "-t", "ext4", "-b", "4096"]).args(options).arg(&path);
    assert!(make.status().unwrap().success());
    let kernel = Kernel::new().fs_type("ext4").program("filefrag", locate("filefrag", "e2fsprogs"));
    let run = kernel
        .program("e4defrag", locate("e4defrag", "e2fsprogs"))
        .run(&path, &format!("{ZEROES}{SCRIPT}"))
        .expect_ok();
    let text = fs::read_to_string(run.out().join("told")).unwrap();
    let (tree, mut theirs) = (image(&path), parse_report(&text));
    assert_eq!(tree.damage, [""; 0]);
    let mut out = Vec::new();
    for file in tree.files {
        let name = String::from_utf8_lossy(&file.name).into_owned();
        let reported = theirs.remove(&file.ino.0).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(u64::from(file.layout.extents) + reported.goes_on + reported.reserved, reported.records, "{name}");
        match reported.now {
            Some(printed) => assert_eq!(printed, defined(&file, &reported, blocks_in_group), "{name}: {reported:?}"),
            // For a file without a block it prints "can't be defragmented".
            None => assert_eq!((file.layout.extents, file.layout.blocks), (0, 0), "{name}"),
        }
        out.push((file, reported));
    }
    assert!(theirs.is_empty(), "{theirs:?}");
    out
}

fn named<'a>(all: &'a [(File, Reported)], name: &str) -> (&'a File, &'a Reported, [u64; 4]) {
    let (file, reported) = all.iter().find(|(f, _)| *f.name == *name.as_bytes()).unwrap();
    (file, reported, reported.now.unwrap())
}

#[test]
fn output_of_e4defrag_follows_from_that_of_inspect() {
    let all = compared(&[], 32_768 << 4);
    assert!(all.len() > 35 && all.iter().filter(|(_, t)| t.now.is_none()).count() == 1);
    // Fragmented by its log: both tools count only runs of addresses.
    let (database, reported, now) = named(&all, "msg.db-wal");
    assert_eq!((now[0], reported.records), (database.layout.extents.into(), database.layout.extents.into()));
    assert!(now[0] > 5 && now[3] > 0, "{now:?}");
    // One stretch per hole; e4defrag counts one extent.
    let (second, _, now) = named(&all, "every-second");
    assert_eq!((second.layout.min_extents, now[1]), (46, 1));
    assert!(now[3] > 80, "{now:?}");
    // `inspect` does not count reserved blocks as an extent.
    let (reserved, _, now) = named(&all, "reserved-too");
    assert!(reserved.layout.extents == 0 && now[0] >= 2, "{now:?}");
    let (part, reported, _) = named(&all, "used-in-part");
    assert!(part.layout.extents == 2 && reported.reserved >= 3, "{reported:?}");
    // Records end at 32,768 blocks.
    let (large, reported, now) = named(&all, "large");
    assert!(now[0] > 1 && reported.records - u64::from(large.layout.extents) == reported.goes_on, "{reported:?}");
}

#[test]
fn the_best_that_e4defrag_knows_follows_from_the_size_of_groups() {
    let all = compared(&["-O", "^flex_bg", "-g", "8192"], 8192);
    let (large, _, now) = named(&all, "large");
    assert_eq!((large.layout.min_extents, now[1]), (1, 5));
    assert!(now[0] >= 5);
}
