//! At each point where data became durable on a volume with deltas, a settled copy has the same contents: for us, for
//! `fsck.f2fs`, and for Linux, which does not support deltas.
//!
//! Random operations on small trees, many of them small changes that are synced. After each flush, the device is copied
//! as a power cut would leave it if everything unflushed were lost. One copy is listed unchanged, another is settled
//! first; both must have the same names, sizes, times and contents. `JOULEFS_DEEP=1` checks every such copy with
//! `fsck.f2fs` and Linux, otherwise a sample.

use std::path::Path;
use std::sync::Arc;

use device::{BlockDevice, Lba, Loss, Memory, PowerCut, Tag};
use f2fs::delta::Places as Where;
use f2fs::mkfs::{self, Options};
use f2fs::settle::{settle, unsettle};
use f2fs::{MountOptions, Volume};
use format::inode::RawInode;
use format::superblock::SuperBlock;
use format::{Nid, delta};
use judges::delta_nodes::Places;
use judges::oracle::tools;
use judges::oracle::tree::{self, Listing, of_vfs};
use trials::crash::{Course, Habits, Record};
use vfs::{Caller, FileSystem};

use crate::rig::clock;
use crate::rig::*;

const ME: Caller = Caller { uid: 0, gid: 0 };
/// Space used differs: delta nodes are removed.
const LISTED: Listing = Listing { directory_sizes: true, blocks: false, ignore_times: false };

fn listed(image: &Memory) -> Result<String, String> {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let vol = Volume::mount(Arc::new(image.fork()), clock(), options).map_err(|e| format!("mount: {e}"))?;
    of_vfs(&*vol, LISTED).map_err(|e| format!("cannot list: {e}"))
}

/// A settled copy, and the number of its deltas.
fn settled(image: &Memory) -> Result<(Memory, u64), String> {
    let dev = Arc::new(image.fork());
    let done = settle(dev.clone(), clock(), &mut |_, _| ()).map_err(|e| format!("settling: {e}"))?;
    Ok((dev.fork(), done.map_or(0, |d| d.deltas)))
}

/// The durable contents at one point.
struct Point {
    name: String,
    image: Memory,
    record: Record,
}

/// Runs random operations and records every point at which something was flushed.
fn points(seed: u64, steps: usize, options: MountOptions, habits: Habits) -> Vec<Point> {
    let base = Memory::new(64 * 256);
    let clock = clock();
    mkfs::format(&base, &*clock, &Options { assume_zeroed: true, uuid: Some([3; 16]), ..Options::modern() }).unwrap();
    assert!(unsettle(&base).unwrap());
    let dev = Arc::new(PowerCut::new(base));
    let vol = Volume::mount(dev.clone(), clock.clone(), options).unwrap();
    let dir = vol.mkdir(ME, vol.root(), b"tree", 0o755, 0).unwrap().attr.ino;
    vol.sync().unwrap();
    let mut course = Course::new(&*vol, &clock, Record::new(dir), seed, habits);
    course.nudges = true;
    let (mut found, mut flushes) = (Vec::new(), dev.flush_count());
    for step in 0..steps {
        course.step().unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
        if dev.flush_count() > flushes {
            flushes = dev.flush_count();
            let name = format!("seed {seed}, step {step}");
            found.push(Point { name, image: dev.image(Loss::AllLost), record: course.record.clone() });
        }
    }
    found
}

/// Checks one point with our own code: returns the settled copy, its tree, and the number of its deltas.
fn judge(p: &Point) -> Result<(Memory, String, u64), String> {
    let before = listed(&p.image)?;
    let (plain, deltas) = settled(&p.image)?;
    let after = listed(&plain)?;
    tree::difference(("settled", &after), ("with deltas", &before), 5).map_or(Ok(()), Err)?;
    p.record.judge(&*mount_device(Arc::new(plain.fork()), true).map_err(|e| e.to_string())?)?;
    Ok((plain, after, deltas))
}

fn theirs(plain: &Memory, dir: &Path) -> Result<(), String> {
    let image = dir.join("looked-at");
    plain.save(&image).map_err(|e| e.to_string())?;
    let verdict = tools::fsck(&image);
    if verdict.clean() && verdict.unmounted() {
        return Ok(());
    }
    Err(format!("fsck.f2fs: {:?}\n{}", verdict.complaints, verdict.output))
}

/// Linux lists images in a directory, named `image.0` and so on.
fn linux_lists(dir: &Path, trees: &[(String, String)]) -> Vec<String> {
    let run = kernel().without_mount().directory(dir).timeout(std::time::Duration::from_secs(1800)).run(
        &dir.join("image.0"),
        &format!(
            "cd /tmp; load loop\n\
             for i in $(seq 0 {}); do\n\
             L=$(losetup -f --show $DIR/image.$i)\n\
             if mount -t f2fs -o ro $L m 2>$OUT/error.$i; then\n\
             (cd m && treelist --directory-sizes .) >$OUT/list.$i 2>>$OUT/error.$i\n\
             umount m && : >$OUT/done.$i\n\
             fi\n\
             losetup -d $L\n\
             done",
            trees.len() - 1
        ),
    );
    assert!(run.ok(), "{}", run.describe());
    let text =
        |name: &str, i: usize| std::fs::read_to_string(run.out().join(format!("{name}.{i}"))).unwrap_or_default();
    let mut failures = Vec::new();
    for (i, (name, ours)) in trees.iter().enumerate() {
        if !run.out().join(format!("done.{i}")).exists() {
            failures.push(format!("{name}: not mounted by Linux: {}", text("error", i)));
        } else if let Some(d) = tree::difference(("Linux", &text("list", i)), ("ours", ours), 5) {
            failures.push(format!("{name}: {d}"));
        }
    }
    failures
}

/// Few small files, so that most have deltas.
const SMALL: Habits = Habits { names: 4, directories: 2, longest: 60_000, syncs: 30, of_names: false, alone: true };
/// One or two longer files, whose inodes have no space for their deltas.
const LONG: Habits = Habits { names: 2, directories: 1, longest: 4_500_000, syncs: 30, of_names: false, alone: true };

#[test]
fn a_copy_settled_at_any_durable_point_holds_the_same_for_linux() {
    let work = work_dir();
    let dir = work.path();
    let (rounds, steps) = if deep() { (12, 500) } else { (3, 160) };
    let nodes = || MountOptions { delta_places: Where::Nodes, dirty_limit: 64, ..MountOptions::default() };
    let (mut failures, mut trees) = (Vec::new(), Vec::new());
    let (mut seen, mut with_deltas, mut shown) = (0, 0, 0);
    for seed in 0..rounds {
        let (options, habits) = match seed % 3 {
            0 => (MountOptions::default(), SMALL),
            1 => (nodes(), SMALL),
            _ => (MountOptions::default(), LONG),
        };
        for p in points(seed, steps, options, habits) {
            seen += 1;
            let (plain, tree, deltas) = match judge(&p) {
                Ok(settled) => settled,
                Err(e) => {
                    failures.push(format!("{}: {e}", p.name));
                    continue;
                }
            };
            with_deltas += u64::from(deltas > 0);
            if deltas > 0 && (deep() || seen % 8 == 0) {
                failures.extend(theirs(&plain, dir).err().map(|e| format!("{}: {e}", p.name)));
                if deep() || seen % 24 == 0 {
                    plain.save(dir.join(format!("image.{}", trees.len()))).unwrap();
                    trees.push((p.name.clone(), tree));
                }
                shown += 1;
            }
            // Images of 64 MiB are in memory.
            if trees.len() == 24 {
                failures.extend(linux_lists(dir, &std::mem::take(&mut trees)));
            }
        }
    }
    if !trees.is_empty() {
        failures.extend(linux_lists(dir, &trees));
    }
    println!("{seen} durable points, {with_deltas} with deltas, {shown} shown to fsck.f2fs");
    assert!(failures.is_empty(), "{} points differ:\n{}", failures.len(), failures.join("\n"));
    assert!(
        seen > 100 && with_deltas * 2 > seen && shown > 8,
        "{seen} points, {with_deltas} with deltas, {shown} shown"
    );
}

/// Tests the check: a settling that only restores the magic number leaves different trees or unreadable files.
#[test]
fn a_settling_that_folds_nothing_is_noticed() {
    let (mut noticed, mut with_deltas) = (0, 0);
    for p in points(1, 120, MountOptions::default(), SMALL).into_iter().step_by(6) {
        let (plain, deltas) = settled(&p.image).unwrap();
        if deltas == 0 {
            continue;
        }
        with_deltas += 1;
        let before = listed(&p.image).unwrap();
        let unfolded = Arc::new(p.image.fork());
        // Recovered and unmounted, the first step of settling.
        mount_device(unfolded.clone(), false).unwrap().unmount().unwrap();
        for copy in [0, 1] {
            let mut block = [0; 4096];
            plain.read(Lba(copy), &mut block, Tag::default()).unwrap();
            assert!(SuperBlock::check(&block).is_ok());
            unfolded.write(Lba(copy), &block, Tag::default()).unwrap();
        }
        let differs = |after: String| tree::difference(("unfolded", &after), ("with deltas", &before), 1).is_some();
        noticed += u64::from(listed(&unfolded).map_or(true, differs));
    }
    assert!(with_deltas > 5 && noticed == with_deltas, "{noticed} of {with_deltas}");
}

/// A copy without one of its deltas, before settling. `None` if no inode has a zone.
fn without_one_delta(image: &Memory) -> Option<Memory> {
    let dev = Arc::new(image.fork());
    mount_device(dev.clone(), false).unwrap().unmount().unwrap();
    let places = Places::of(&dev);
    for nid in (4..200).map(Nid) {
        let entry = places.nat(&dev, nid);
        if entry.ino != nid.as_ino() || !entry.addr.is_real() {
            continue;
        }
        let block = places.node(&dev, nid);
        let raw = RawInode::of(&block);
        let Ok(d) = raw.divide(places.sb.features) else { continue };
        // A delta that changes the page.
        let Some(slot) = delta::entries(raw, d).find(|e| !e.payload.is_empty()).map(|e| e.slot) else { continue };
        places.edit(&dev, nid, true, |b| {
            let raw = RawInode::of_mut(b);
            let d = raw.divide(places.sb.features).unwrap();
            assert_eq!(delta::drop_slots(raw, d, slot..slot + 1), 1);
        });
        return Some(dev.fork());
    }
    None
}

#[test]
fn a_settling_that_skips_one_delta_is_noticed() {
    let (mut noticed, mut tried) = (0, 0);
    for p in points(2, 120, MountOptions::default(), SMALL).into_iter().step_by(2) {
        let Some(skipped) = without_one_delta(&p.image) else { continue };
        tried += 1;
        let (plain, _) = settled(&skipped).unwrap();
        let (before, after) = (listed(&p.image).unwrap(), listed(&plain).unwrap());
        noticed += u64::from(tree::difference(("settled", &after), ("with deltas", &before), 1).is_some());
    }
    assert!(tried > 5 && noticed == tried, "{noticed} of {tried}");
}
