//! Whenever power fails, durable data exists and everything else is old or new.
//!
//! `JOULEFS_REPLAY=create-fsync:17:random:3` repeats one case; `create-fsync+deltas:17:random:3` the same on a volume
//! with deltas, `create-fsync+zoned+deltas:17:random:3` also on zones, `create-fsync+folded:17:random:3` in casefolded
//! directories, `create-fsync+scherlfs:17:random:3` on ScherlFS.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::{Loss, Memory};
use f2fs::Mode;
use format::superblock::Features;
use judges::oracle::tools;
use judges::oracle::tree::{self, Listing, of_vfs};
use scherlfs::Placement;
use trials::crash::{self, Cut, Plan, Record, SCENARIOS, Step, judge, plan, settled, surviving};
use trials::subject::{F2fs, ScherlFs, Subject};
use vfs::Commit;

use crate::rig::{self, deep};

/// Whole blocks or nothing: required of a device if torn nodes have no checksum, or if the reader does not check it
/// (docs/decisions/0007-torn-nodes.md).
const UNTORN: [Loss; 6] =
    [Loss::AllKept, Loss::AllLost, Loss::AllButFirst, Loss::Reversed, Loss::OnlyLastKept, Loss::AllButLast];

/// The last two whole-block losses only if every loss is requested.
fn losses(write: u64, every: bool) -> Vec<Loss> {
    let tries = if deep() { 20 } else { 2 };
    let torn = [Loss::LastTorn(3)].into_iter().chain((0..tries).map(|i| Loss::Random(write * 1000 + i)));
    UNTORN[..if every { 6 } else { 4 }].iter().copied().chain(torn).collect()
}

/// Which other tools check the result of a cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tools {
    Nobody,
    /// `fsck.f2fs`, before recovery and after.
    BeforeAndAfter,
    /// `fsck.f2fs`, after recovery.
    After,
    /// `fsck.f2fs`, after recovery and settling: it does not support deltas.
    Settled,
}

/// Suffix of a scenario: on a volume with deltas.
const DELTAS: &str = "+deltas";

/// Suffix of a scenario: all directories are casefolded.
const FOLDED: &str = "+folded";

/// Suffix of a scenario: logs only append.
const APPENDING: &str = "+lfs";

/// Suffix of a scenario: on a device with zones of one segment.
const ZONED: &str = "+zoned";

/// Suffix of a scenario: all files are compressed.
const COMPRESSED: &str = "+compressed";

/// Suffix of a scenario: changes are durable two seconds later.
const COMMITTING: &str = "+commit";

/// Suffixes of a scenario: on ScherlFS, written on sync or with every call, with different placements of inodes.
const SCHERLFS: [(&str, scherlfs::Sync, Placement); 6] = [
    ("+scherlfs", scherlfs::Sync::Fsync, Placement::Before),
    ("+scherlfs-in-place", scherlfs::Sync::Fsync, Placement::InPlace),
    ("+scherlfs-call", scherlfs::Sync::Call, Placement::Before),
    ("+scherlfs-call-after", scherlfs::Sync::Call, Placement::After),
    ("+scherlfs-call-in-place", scherlfs::Sync::Call, Placement::InPlace),
    ("+scherlfs-call-delayed", scherlfs::Sync::Call, Placement::Delayed),
];

/// A scenario's name without its suffixes.
fn plain(name: &str) -> &str {
    name.split_once('+').map_or(name, |(plain, _)| plain)
}

fn tools_judge(image: &Memory, which: &str) -> Result<(), String> {
    let dir = rig::work_dir();
    let path = dir.path().join("image");
    image.save(&path).expect("the image is saved");
    let verdict = tools::fsck(&path);
    if verdict.clean() {
        return Ok(());
    }
    Err(format!("fsck.f2fs {which} recovery: {:?}\n{}", verdict.complaints, verdict.output))
}

/// Runs every case at one write; returns the failures by name.
fn at_write<S: Subject>(
    (shown, subject, plan): (&str, &S, &Plan<'_, S>),
    write: u64,
    losses: &[Loss],
    tools: Tools,
) -> Vec<String> {
    let (dev, record) = match surviving(plan, write) {
        Ok(cut) => cut,
        Err(e) => return vec![format!("{shown}:{write}: {e}")],
    };
    let mut failures = Vec::new();
    let looked_at = if losses.len() == 1 { 0 } else { write as usize % UNTORN[..4].len() };
    for (i, loss) in losses.iter().enumerate() {
        let name = format!("{shown}:{write}:{loss}");
        let image = dev.left(*loss);
        let mut verdict = judge(subject, &image, &record, None);
        if let Ok(after) = &verdict
            && tools != Tools::Nobody
            && i == looked_at
        {
            let before = if tools == Tools::BeforeAndAfter { tools_judge(image.memory(), "before") } else { Ok(()) };
            let after = || match tools {
                Tools::Settled => {
                    settled(after.memory()).and_then(|plain| tools_judge(&plain, "after settling, after"))
                }
                _ => tools_judge(after.memory(), "after"),
            };
            if let Err(e) = before.and_then(|()| after()) {
                verdict = Err(e);
            }
        }
        failures.extend(verdict.err().map(|e| format!("{name}: {e}")));
        if (write + i as u64).is_multiple_of(7) || losses.len() == 1 {
            for second in 1..6 {
                let loss = if second % 2 == 0 { Loss::AllKept } else { Loss::Random(write * 31 + second) };
                let cut = Cut { write: second, loss };
                failures.extend(judge(subject, &image, &record, Some(cut)).err().map(|e| format!("{name}: {e}")));
            }
        }
    }
    failures
}

/// The case in `JOULEFS_REPLAY`.
fn replay() -> Option<(String, u64, Loss)> {
    let asked = std::env::var("JOULEFS_REPLAY").ok()?;
    let parse = || {
        let (name, rest) = asked.split_once(':')?;
        SCENARIOS.iter().find(|s| s.name == plain(name))?;
        let (write, loss) = rest.split_once(':')?;
        Some((name.to_owned(), write.parse().ok()?, loss.parse().ok()?))
    };
    Some(parse().unwrap_or_else(|| panic!("JOULEFS_REPLAY={asked}: not scenario:write:loss")))
}

/// The volume for a scenario's suffixes.
fn subject(name: &str) -> F2fs {
    let mut subject = crash::f2fs(name.ends_with(DELTAS));
    // Changes of neighbours and in one place, for which a file would soon have no more deltas.
    subject.mounted.delta_study.at_any_price = name.starts_with("nudges");
    if name.contains(APPENDING) {
        subject.mounted.mode = Mode::Lfs;
    }
    if name.contains(COMMITTING) {
        subject.mounted.commit = Some(Commit::within(Duration::from_secs(2)));
    }
    if name.contains(ZONED) {
        subject.made = subject.made.zoned(1);
    }
    if name.contains(COMPRESSED) {
        subject.made.features |= Features::COMPRESSION;
        subject.mounted.compress.extensions.push("*".into());
    }
    if name.ends_with(FOLDED) {
        // Only an empty root can become casefolded.
        subject.made.features = subject.made.features.difference(Features::LOST_FOUND).union(Features::CASEFOLD);
    }
    subject
}

fn ready(name: &str) -> Plan<'static, F2fs> {
    let plan = planned(name, subject(name));
    assert!(name.ends_with(DELTAS) || plan.did.deltas == [0; 3], "{name} makes deltas: {:?}", plan.did.deltas);
    plan
}

fn planned<S: Subject>(name: &str, subject: S) -> Plan<'static, S> {
    let scenario = SCENARIOS.iter().find(|s| s.name == plain(name)).expect("a scenario of that name");
    let plan = plan(subject, scenario).unwrap_or_else(|e| panic!("{name} without a cut: {e}"));
    assert!(plan.writes > 0, "{name} writes nothing");
    if name.contains(APPENDING) || name.contains(ZONED) {
        let (moved, in_place) = (plan.did.moved.1, plan.did.in_place);
        assert!(moved + in_place == 0, "{name}: {moved} blocks moved into holes, {in_place} written in place");
    }
    plan
}

/// At most `most` writes, evenly spread.
fn sample(writes: u64, most: u64) -> Vec<u64> {
    let n = writes.min(most);
    (0..n).map(|i| 1 + i * writes / n).collect()
}

fn report(mut failures: Vec<String>) {
    let n = failures.len();
    failures.truncate(40);
    assert!(failures.is_empty(), "{n} broken promises:\n{}", failures.join("\n"));
}

/// Cuts scenarios at every write; long ones at as many as time allows, evenly spread.
fn survive(names: &[&str], tools: Tools) {
    survive_some(names, tools, if deep() { 2000 } else { 50 }, false);
}

/// Cuts each at up to `most` writes.
fn survive_some(names: &[&str], tools: Tools, most: u64, every: bool) {
    survive_on(&subject, names, tools, most, every);
}

/// The same on the file system that `of` returns.
fn survive_on<S: Subject + Sync>(of: &dyn Fn(&str) -> S, names: &[&str], tools: Tools, most: u64, every: bool) {
    let replay = replay();
    let mut failures = Vec::new();
    for name in names {
        if let Some((wanted, write, loss)) = &replay {
            if wanted == name {
                let plan = planned(name, of(name));
                failures.extend(at_write((name, &of(name), &plan), *write, &[*loss], tools));
            }
            continue;
        }
        let (subject, plan) = (of(name), planned(name, of(name)));
        let writes = sample(plan.writes, most);
        println!("{name}: {} of {} writes, deltas {:?}", writes.len(), plan.writes, plan.did.deltas);
        let next = AtomicUsize::new(0);
        let found = std::thread::scope(|scope| {
            let work = || {
                let mut mine = Vec::new();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(write) = writes.get(i) else { return mine };
                    let tools = if i.is_multiple_of(10) { tools } else { Tools::Nobody };
                    mine.extend(at_write((name, &subject, &plan), *write, &losses(*write, every), tools));
                }
            };
            let threads = [scope.spawn(work), scope.spawn(work)];
            threads.map(|t| t.join().expect("no panic")).concat()
        });
        failures.extend(found);
    }
    report(failures);
}

#[test]
fn files_keep_what_was_synced() {
    let names = ["create", "create-fsync", "append-fsync", "overwrite-fsync", "truncate", "attributes"];
    survive(&names, Tools::BeforeAndAfter);
}

#[test]
fn files_of_any_shape_keep_what_was_synced() {
    survive(&["large-file", "late-fsync", "holes", "nameless"], Tools::BeforeAndAfter);
}

#[test]
fn names_are_old_or_new() {
    survive(
        &["renamed-before", "rename-over", "exchange", "link-unlink", "directories", "many-files"],
        Tools::BeforeAndAfter,
    );
}

#[test]
fn names_that_roll_forward_restores_are_old_or_new() {
    for name in ["journals", "deliveries"] {
        let plan = ready(name);
        let (cheap, put, withdrawn) = plan.did.names;
        println!(
            "{name}: {cheap} without a checkpoint, {put} put, {withdrawn} withdrawn, {} slow",
            plan.did.slow_fsyncs
        );
        assert!(cheap > 5 && put + withdrawn > 3 && plan.did.slow_fsyncs > 0, "{name} does not do what it is for");
    }
    survive(&["journals", "deliveries"], Tools::BeforeAndAfter);
}

#[test]
fn names_in_directories_that_fold_case_are_old_or_new() {
    let names = [
        "create-fsync",
        "renamed-before",
        "rename-over",
        "exchange",
        "link-unlink",
        "directories",
        "journals",
        "deliveries",
    ];
    let names: Vec<String> = names.iter().map(|name| format!("{name}{FOLDED}")).collect();
    survive(&names.iter().map(String::as_str).collect::<Vec<_>>(), Tools::BeforeAndAfter);
}

/// These with every loss, and in the long variant at every write: small changes, and what removes deltas.
#[test]
fn small_changes_that_were_synced_are_there_with_deltas_and_without() {
    for (name, nodes) in [("nudges+deltas", 0), ("nudges-large+deltas", 20)] {
        let plan = ready(name);
        let [deltas, folded, written] = plan.did.deltas;
        println!("{name}: {deltas} deltas, {folded} folded, {written} delta nodes written");
        assert!(
            deltas > 30 && folded > 0 && written >= nodes,
            "{name} does not do what it is for: {:?}",
            plan.did.deltas
        );
    }
    let most = if deep() { 2000 } else { 75 };
    survive_some(&["nudges"], Tools::BeforeAndAfter, most, true);
    // Its logs reach the segments described at `cleaning_loses_nothing`.
    survive_some(&["nudges-large"], Tools::After, most, true);
    survive_some(&["nudges+deltas", "nudges-large+deltas"], Tools::Settled, most, true);
}

/// Operations on files of any kind, on a volume with deltas.
#[test]
fn a_volume_with_deltas_keeps_every_promise_of_one_without() {
    let names: Vec<String> = SCENARIOS.iter().map(|s| format!("{}{DELTAS}", s.name)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|n| !n.starts_with("nudges")).collect();
    survive_some(&names, Tools::Settled, if deep() { 2000 } else { 12 }, false);
}

/// These with every loss, and in the long variant at every write: files are defragmented by copies, and by a device that remaps flash pages,
/// while they are written, synced, truncated and cleaned.
#[test]
fn bringing_a_file_together_loses_nothing() {
    let names = ["defragment", "defragment-share", "defragment+deltas", "defragment-share+deltas"];
    for name in names {
        let plan = ready(name);
        println!("{name}: {} blocks brought together in {} writes", plan.did.defragmented, plan.writes);
        assert!(plan.did.defragmented > 1000, "{name} does not do what it is for");
    }
    let most = if deep() { 2000 } else { 75 };
    survive_some(&names[..2], Tools::BeforeAndAfter, most, true);
    survive_some(&names[2..], Tools::Settled, most, true);
}

/// Every write of a few scenarios, with every loss, and a few writes of all the others; with this suffix.
fn survive_appending(how: &str, tools: Tools, few: &[&str]) {
    // Remapping is impossible on zones, and blocks of a compressed file cannot be shifted.
    let not_there = |name: &str| match how.contains(COMPRESSED) {
        true => name.starts_with("defragment") || name.starts_with("nudges") || name == "holes",
        false => name == "defragment-share",
    };
    let names = SCENARIOS.iter().map(|s| s.name).filter(|name| !not_there(name));
    let names: Vec<String> = names.map(|name| format!("{name}{how}")).collect();
    let (few, others): (Vec<&str>, Vec<&str>) = names.iter().map(String::as_str).partition(|n| few.contains(&plain(n)));
    survive_some(&few, tools, 2000, true);
    survive_some(&others, tools, if deep() { 2000 } else { 8 }, false);
}

#[test]
fn what_changed_longer_ago_than_the_time_of_commit_survives() {
    let waits = |scenario: &&crash::Scenario| (scenario.during)().iter().any(|step| matches!(step, Step::Tick(_)));
    let names: Vec<String> = SCENARIOS.iter().filter(waits).map(|s| format!("{}{COMMITTING}", s.name)).collect();
    assert!(names.len() > 2, "{names:?}");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    survive_some(&names, Tools::After, if deep() { 2000 } else { 16 }, false);
}

#[test]
fn a_volume_that_only_appends_keeps_every_promise() {
    survive_appending(APPENDING, Tools::BeforeAndAfter, &["create-fsync", "journals"]);
}

#[test]
fn a_volume_on_zones_keeps_every_promise() {
    survive_appending(ZONED, Tools::BeforeAndAfter, &["create-fsync", "overwrite-fsync", "journals", "checkpoint"]);
}

#[test]
fn a_volume_on_zones_keeps_every_promise_with_deltas_and_with_compressed_files() {
    survive_appending("+zoned+deltas", Tools::Settled, &["nudges"]);
    survive_appending("+zoned+compressed", Tools::Nobody, &["late-fsync"]);
}

#[test]
fn checkpoints_lose_nothing() {
    survive(&["checkpoint"], Tools::BeforeAndAfter);
}

/// The tools follow the chain of fsynced nodes before recovery. Until 1.15 they assume that the volume is shorter than
/// it is: they consider block `segment0_blkaddr + segment_count_main * 512` and everything after it, the last seven
/// segments here, invalid addresses ("record_fsync_data failed"; f2fs-tools 1.16 counts all segments: "fix # of total
/// segments"). Logs reach those segments only when a volume is nearly full, as here. Linux checks the results of this
/// one below.
#[test]
fn cleaning_loses_nothing() {
    survive(&["cleaning"], Tools::After);
}

/// Files that cleaning just moved, before and after the checkpoint that makes the move durable; synced meanwhile.
#[test]
fn cleaning_ahead_of_time_loses_nothing() {
    moves("cleaning-greedy", false);
    moves("cleaning-cost-benefit", false);
    survive(&["cleaning-greedy", "cleaning-cost-benefit"], Tools::BeforeAndAfter);
}

#[test]
fn moving_blocks_into_holes_of_used_segments_loses_nothing() {
    moves("cleaning-atgc", true);
    moves("cleaning-fagc", true);
    survive(&["cleaning-atgc", "cleaning-fagc", "cleaning-joule"], Tools::BeforeAndAfter);
}

/// Checks that the scenario does what it is for.
fn moves(name: &str, into_holes: bool) {
    let (moved, threaded) = ready(name).did.moved;
    println!("{name}: {moved} blocks moved, {threaded} into holes");
    assert!(moved > 500 && (threaded > 100) == into_holes, "{name}: {moved} moved, {threaded} into holes");
}

/// The ScherlFS volume for a scenario's suffixes.
fn scherlfs(name: &str) -> ScherlFs {
    let how = SCHERLFS.iter().find(|(how, ..)| name.split_once(how).is_some_and(|(_, rest)| rest.is_empty()));
    let (_, sync, placement) = how.expect("a way to mount ScherlFS");
    crash::scherlfs(*sync, *placement)
}

/// All scenarios except those about F2FS's cleaning and defragmentation.
#[test]
fn scherlfs_keeps_every_promise_that_f2fs_keeps() {
    let general = SCENARIOS.iter().map(|s| s.name).filter(|n| !n.starts_with("cleaning-") && !n.starts_with("defrag"));
    let names: Vec<String> = general.flat_map(|n| SCHERLFS.map(|(how, ..)| format!("{n}{how}"))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    survive_on(&scherlfs, &names, Tools::Nobody, if deep() { 2000 } else { 3 }, false);
}

/// An image for Linux to recover.
struct Case {
    name: String,
    record: Record,
    /// Its tree after our recovery.
    ours: String,
}

const CONTENTS: Listing = Listing { directory_sizes: false, blocks: false, ignore_times: true };

fn listed(image: &Memory) -> String {
    let vol = rig::mount_device(std::sync::Arc::new(image.fork()), false).unwrap_or_else(|e| panic!("{e}"));
    of_vfs(&*vol, CONTENTS).unwrap_or_else(|e| panic!("cannot list: {e}"))
}

/// Linux recovers the same images as we do, finds no errors, and gets the same tree.
#[test]
fn linux_recovers_the_same_from_a_cut() {
    let work = rig::work_dir();
    let dir = work.path();
    let replay = replay();
    let mut cases = Vec::new();
    for scenario in SCENARIOS {
        let wanted = match &replay {
            Some((name, write, loss)) if name == scenario.name => vec![(*write, *loss)],
            Some(_) => continue,
            None => Vec::new(),
        };
        let plan = ready(scenario.name);
        let most = if deep() { 40 } else { 3 };
        let spread = || sample(plan.writes, most).into_iter().zip(UNTORN.into_iter().cycle()).collect();
        let chosen: Vec<(u64, Loss)> = if wanted.is_empty() { spread() } else { wanted };
        for (write, loss) in chosen {
            let (dev, record) = surviving(&plan, write).unwrap_or_else(|e| panic!("{}:{write}: {e}", scenario.name));
            let left = dev.left(loss);
            let image = left.memory();
            image.save(dir.join(format!("image.{}", cases.len()))).expect("the image is saved");
            cases.push(Case { name: format!("{}:{write}:{loss}", scenario.name), record, ours: listed(image) });
        }
    }
    if cases.is_empty() {
        return;
    }
    let run = rig::kernel().without_mount().directory(dir).timeout(std::time::Duration::from_secs(1800)).run(
        &dir.join("image.0"),
        &format!(
            "cd /tmp; load loop\n\
             for i in $(seq 0 {}); do\n\
             echo \"<4>image $i\" >/dev/kmsg\n\
             L=$(losetup -f --show $DIR/image.$i)\n\
             if mount -t f2fs $L m 2>$OUT/error.$i; then\n\
             (cd m && treelist --ignore-times .) >$OUT/list.$i 2>>$OUT/error.$i\n\
             umount m && : >$OUT/done.$i\n\
             fi\n\
             losetup -d $L\n\
             done\n\
             echo \"<4>no image\" >/dev/kmsg",
            cases.len() - 1
        ),
    );
    assert!(run.ok(), "{}", run.describe());
    // Linux's message for a pack whose head was written before the cut but not its tail: it does not count.
    let unfinished_pack = |text: &str| text.ends_with("invalid crc_offset: 0");
    let mut said: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    let mut at = usize::MAX;
    for line in &run.log {
        match line.text.strip_prefix("image ") {
            Some(i) => at = i.trim().parse().unwrap_or(usize::MAX),
            None if line.level <= 4 && line.text.contains("F2FS-fs") && !unfinished_pack(&line.text) => {
                said.entry(at).or_default().push(&line.text);
            }
            None => {}
        }
    }
    let text =
        |name: &str, i: usize| std::fs::read_to_string(run.out().join(format!("{name}.{i}"))).unwrap_or_default();
    let mut failures = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let verdict = || -> Result<(), String> {
            if !run.out().join(format!("done.{i}")).exists() {
                return Err(format!("not mounted and unmounted: {}", text("error", i)));
            }
            if let Some(lines) = said.get(&i) {
                return Err(lines.join("; "));
            }
            let left = Memory::load(dir.join(format!("image.{i}"))).map_err(|e| e.to_string())?;
            judge(&crash::f2fs(false), &left.into(), &case.record, None)?;
            let theirs = text("list", i);
            tree::difference(("Linux", &theirs), ("ours", &case.ours), 5).map_or(Ok(()), Err)
        };
        failures.extend(verdict().err().map(|e| format!("{}: in Linux: {e}", case.name)));
    }
    println!("{} images", cases.len());
    report(failures);
}
