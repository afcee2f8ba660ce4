//! After a power cut, ScherlFS is as it was after some call, and no durable call is missing.
//!
//! Random calls run next to the plain tree, with a copy of the tree for every call since the last sync. Power fails at
//! a write; each possible content of the medium is checked by the second reader and mounted, and must equal one of
//! these copies. A cut in recovery is recovered again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::{Loss, Memory, PowerCut, Rng, VirtualClock};
use judges::plain::{Body, Plain};
use scherlfs::{Clean, MountOptions, Placement, Sync, Volume};
use trials::subject::{ScherlFs, Subject};
use vfs::{
    Allocate, Caller, DeviceNumber, FileKind, FileSystem, Flow, Ino, NewNode, Power, RenameFlags, SetAttr, WriteFlags,
    XattrFlags,
};

const ME: Caller = Caller { uid: 0, gid: 0 };

fn new_file() -> NewNode {
    NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() }
}

/// Compares everything below a directory, or a file, with the plain tree.
fn compare(volume: &Volume, plain: &Plain, id: usize, ino: Ino, path: &str) -> Result<(), String> {
    let told = |e: vfs::Error| format!("{path}: {e}");
    let (attr, object) = (volume.getattr(ino).map_err(told)?, &plain.objects[id]);
    if (attr.kind, attr.nlink) != (object.kind(), object.links) {
        return Err(format!("{path}: {:?} of {} links, not {}", attr.kind, attr.nlink, object.links));
    }
    match &object.body {
        Body::File(bytes) => {
            let mut found = vec![0xEE; attr.size as usize];
            let n = volume.read(ino, 0, &mut found).map_err(told)?;
            let same = attr.size == bytes.size && found[..n] == bytes.read(0, bytes.size)[..];
            if same { Ok(()) } else { Err(format!("{path}: {} bytes, not those {}", attr.size, bytes.size)) }
        }
        Body::Dir(names) => {
            let mut found = BTreeMap::new();
            let each = &mut |e: vfs::DirEntry<'_>| {
                if ![&b"."[..], b"..", b".ifile"].contains(&e.name) {
                    found.insert(e.name.to_vec(), e.ino);
                }
                Flow::Continue
            };
            volume.readdir(ino, 0, each).map_err(told)?;
            if !found.keys().eq(names.keys()) {
                return Err(format!("{path}: {} names, not those {}", found.len(), names.len()));
            }
            found.into_iter().try_for_each(|(name, ino)| {
                compare(volume, plain, names[&name], ino, &format!("{path}/{}", String::from_utf8_lossy(&name)))
            })
        }
        _ => Ok(()),
    }
}

/// The device after a course of calls, its possible states, and its writes.
struct Done {
    dev: Arc<PowerCut>,
    states: Vec<Plain>,
    writes: u64,
    /// Writes before its first call.
    begun: u64,
    tidied: scherlfs::Done,
}

/// What a course is like.
#[derive(Clone)]
struct Course {
    subject: ScherlFs,
    mib: u64,
    calls: u64,
    names: u64,
    ticks: u64,
    /// A written file is often appended to immediately, and synced in between.
    written_on: bool,
    /// The file's extents are in several continuations from the beginning.
    worn: bool,
}

struct Run<'c> {
    course: &'c Course,
    volume: Arc<Volume>,
    clock: Arc<VirtualClock>,
    plain: Plain,
    /// The volume's number of each object.
    inos: Vec<Ino>,
    rng: Rng,
    /// The last written file.
    last: Option<usize>,
}

/// The result of a call.
enum Call {
    Changed,
    Durable,
}

impl Run<'_> {
    fn file(&self, id: Option<usize>) -> Option<usize> {
        id.filter(|id| matches!(self.plain.objects[*id].body, Body::File(_)))
    }

    /// Creates a file with alternating blocks and holes, whose inode is so full of attributes that its extents need
    /// continuations.
    fn wear(&mut self) -> vfs::Result<()> {
        let id = self.plain.objects.len();
        self.plain.create(0, b"worn", Body::File(Default::default()), 0o600)?;
        let ino = self.volume.mknod(ME, self.volume.root(), b"worn", &new_file())?.attr.ino;
        self.inos.push(ino);
        self.volume.setxattr(ino, b"user.room", &[1; 3700], XattrFlags::empty())?;
        let Body::File(bytes) = &mut self.plain.objects[id].body else { return Ok(()) };
        for n in 0..350 {
            bytes.write(n * 8192, &[n as u8 | 1; 4096]);
            self.volume.write(ino, n * 8192, &[n as u8 | 1; 4096], WriteFlags::empty())?;
        }
        self.volume.fsync(ino, false)?;
        self.last = Some(id);
        Ok(())
    }

    /// Writes to the last written file, at its end or inside it; or syncs it.
    fn write_on(&mut self, id: usize, step: u64) -> vfs::Result<Call> {
        if self.rng.below(4) == 0 {
            self.volume.fsync(self.inos[id], false)?;
            return Ok(Call::Durable);
        }
        let Body::File(bytes) = &mut self.plain.objects[id].body else { return Ok(Call::Changed) };
        let at = if self.rng.below(3) > 0 { bytes.size } else { self.rng.below(bytes.size + 1) };
        let data = vec![step as u8 | 1; 1 + self.rng.below(9000) as usize];
        bytes.write(at, &data);
        assert_eq!(self.volume.write(self.inos[id], at, &data, WriteFlags::empty())?, data.len());
        Ok(Call::Changed)
    }

    /// One call, on the plain tree first: after a cut either state may be found.
    fn call(&mut self, step: u64) -> vfs::Result<Call> {
        if let Some(id) = self.last.filter(|_| self.course.written_on && self.rng.below(8) > 0) {
            return self.write_on(id, step);
        }
        self.last = None;
        let live = |i: &usize| self.plain.names(*i).is_ok() && (*i == 0 || self.plain.objects[*i].links > 0);
        let dirs: Vec<usize> = (0..self.plain.objects.len()).filter(live).collect();
        let volume = self.volume.clone();
        let pick = |rng: &mut Rng| dirs[rng.below(dirs.len() as u64) as usize];
        let dir = pick(&mut self.rng);
        let name = vec![b'a' + self.rng.below(self.course.names) as u8; 1 + self.rng.below(3) as usize * 100];
        let what = self.rng.below(13);
        let target = self.plain.names(dir)?.get(&name).copied();
        let file = self.file(target);
        let bytes = |plain: &mut Plain, id: usize| match &mut plain.objects[id].body {
            Body::File(bytes) => std::mem::take(bytes),
            _ => Default::default(),
        };
        match (what, target, file) {
            (0..=3, None, _) => {
                self.plain.create(dir, &name, Body::File(Default::default()), 0o600)?;
                self.inos.push(volume.mknod(ME, self.inos[dir], &name, &new_file())?.attr.ino);
            }
            (4, None, _) => {
                self.plain.create(dir, &name, Body::Dir(Default::default()), 0o700)?;
                self.inos.push(volume.mkdir(ME, self.inos[dir], &name, 0o700, 0)?.attr.ino);
            }
            (0..=5, _, Some(id)) => {
                let (at, data) = (self.rng.below(120_000), vec![step as u8 | 1; 1 + self.rng.below(60_000) as usize]);
                let mut all = bytes(&mut self.plain, id);
                all.write(at, &data);
                self.plain.objects[id].body = Body::File(all);
                volume.open(self.inos[id], false)?;
                let written = volume.write(self.inos[id], at, &data, WriteFlags::empty());
                volume.release(self.inos[id]);
                self.last = Some(id);
                assert_eq!(written?, data.len());
            }
            (6, _, Some(id)) => {
                let size = self.rng.below(150_000);
                let mut all = bytes(&mut self.plain, id);
                all.truncate(size);
                self.plain.objects[id].body = Body::File(all);
                volume.setattr(self.inos[id], &SetAttr { size: Some(size), ..SetAttr::default() })?;
            }
            (7, _, Some(id)) => {
                let all = [
                    Allocate::Reserve { keep_size: false },
                    Allocate::PunchHole,
                    Allocate::Zero { keep_size: true },
                    Allocate::Collapse,
                    Allocate::Insert,
                ];
                let how = all[self.rng.below(5) as usize];
                let (at, len) = (self.rng.below(20) * 4096, (1 + self.rng.below(9)) * 4096);
                let mut all = bytes(&mut self.plain, id);
                let done = all.allocate(how, at, len);
                self.plain.objects[id].body = Body::File(all);
                if done.is_ok() {
                    volume.fallocate(self.inos[id], how, at, len)?;
                }
            }
            (8, Some(id), _) => {
                let is_dir = self.plain.names(id).is_ok();
                if self.plain.remove(dir, &name, is_dir).is_ok() {
                    match is_dir {
                        true => volume.rmdir(self.inos[dir], &name)?,
                        false => volume.unlink(self.inos[dir], &name)?,
                    }
                }
            }
            (9, Some(_), _) => {
                let (to, new) = (pick(&mut self.rng), [b'a' + self.rng.below(5) as u8]);
                let flags = if self.rng.below(4) == 0 { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
                if self.plain.rename((dir, &name), (to, &new), flags).is_ok() {
                    volume.rename(ME, (self.inos[dir], &name), (self.inos[to], &new), flags)?;
                }
            }
            (10, Some(id), _) => {
                let new = [b'a' + self.rng.below(5) as u8; 2];
                if self.plain.link(id, dir, &new).is_ok() {
                    volume.link(self.inos[id], self.inos[dir], &new)?;
                }
            }
            (11, ..) => {
                volume.fsync(self.inos[dir], false)?;
                return Ok(Call::Durable);
            }
            (12, ..) => {
                self.clock.advance(Duration::from_secs(6));
                // Background work needs several steps.
                for _ in 0..self.course.ticks {
                    volume.tick()?;
                }
            }
            _ => {}
        }
        Ok(Call::Changed)
    }
}

/// Runs a course until power fails at a write, or to its end.
fn run(course: &Course, seed: u64, cut: Option<u64>) -> Done {
    let clock = Arc::new(VirtualClock::default());
    let made = Arc::new(Memory::new(course.mib * 256));
    course.subject.format(made.clone(), &*clock).expect("a volume");
    let dev = Arc::new(PowerCut::new(made.fork()));
    if let Some(cut) = cut {
        dev.cut_after(cut);
    }
    let mut states = vec![Plain::default()];
    let (mut begun, mut tidied) = (0, scherlfs::Done::default());
    if let Ok(volume) = course.subject.mount(dev.clone(), clock.clone()) {
        let (plain, inos, rng) = (Plain::default(), vec![volume.root()], Rng::new(seed));
        let mut run = Run { course, volume, clock, plain, inos, rng, last: None };
        if course.worn {
            run.wear().expect("a file");
            states = vec![run.plain.clone()];
        }
        begun = dev.write_count();
        for step in 0..course.calls {
            let done = run.call(step);
            match done {
                // On a stage that is lost, nothing is durable.
                Ok(Call::Durable) if course.subject.beside => {}
                Ok(Call::Durable) => states = vec![run.plain.clone()],
                Ok(Call::Changed) => states.push(run.plain.clone()),
                Err(e) => {
                    assert!(dev.is_cut(), "seed {seed}, call {step}: {e}");
                    states.push(run.plain.clone());
                    break;
                }
            }
        }
        if cut.is_none() {
            run.volume.unmount().expect("unmounts");
        }
        tidied = run.volume.done();
    }
    Done { writes: dev.write_count(), begun, dev, states, tidied }
}

fn judge(course: &Course, image: Memory, states: &[Plain], place: &str, again: Option<u64>) {
    let clock = Arc::new(VirtualClock::default());
    course.subject.check(&image).unwrap_or_else(|e| panic!("{place}, before recovery: {e}"));
    if let Some(write) = again {
        let dev = Arc::new(PowerCut::new(image.fork()));
        dev.cut_after(write);
        if let Ok(volume) = course.subject.mount(dev.clone(), clock.clone()) {
            // Recovery needed fewer writes: power fails at the unmount.
            let _ = volume.unmount();
        }
        judge(course, dev.image(Loss::Random(write)), states, &format!("{place}, again at {write}"), None);
    }
    let dev = Arc::new(image);
    let volume = course.subject.mount(dev.clone(), clock).unwrap_or_else(|e| panic!("{place}: {e}"));
    let mut why = Vec::new();
    let found = states.iter().rev().any(|plain| match compare(&volume, plain, 0, volume.root(), "") {
        Ok(()) => true,
        Err(e) => {
            why.push(e);
            false
        }
    });
    assert!(found, "{place}: none of {} states: {why:?}", states.len());
    // It remains usable.
    let file = volume.mknod(ME, volume.root(), b"afterwards", &new_file()).expect("a file").attr.ino;
    volume.write(file, 0, &[7; 9000], WriteFlags::empty()).expect("writes");
    volume.unmount().expect("unmounts");
    course.subject.check(&*dev).unwrap_or_else(|e| panic!("{place}, after an unmount: {e}"));
}

fn every_cut(course: &Course, seeds: std::ops::Range<u64>) {
    let deep = std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1");
    let seeds = if deep { seeds.start..seeds.start + (seeds.end - seeds.start) * 20 } else { seeds };
    let least = (50 * (seeds.end - seeds.start)).max(250);
    let mut images = 0;
    for seed in seeds {
        let Done { writes, begun, .. } = run(course, seed, None);
        let mut rng = Rng::new(seed + 1000);
        let step = ((writes - begun) / 40).max(1);
        // What is created before the course is not one of its states; only the mount is cut.
        let mut cut = if course.worn { begun } else { 0 } + 1 + rng.below(step);
        while cut <= writes {
            let done = run(course, seed, Some(cut));
            let more = [Loss::LastTorn(3), Loss::Random(cut), Loss::Random(cut + 7)];
            for (n, loss) in Loss::PLAIN.into_iter().chain(more).enumerate() {
                let again = (n >= 6).then(|| 1 + rng.below(6));
                judge(course, done.dev.image(loss), &done.states, &format!("seed {seed}, {cut}:{loss}"), again);
                images += 1;
            }
            cut += 1 + rng.below(2 * step);
        }
    }
    println!("{images} images");
    assert!(images > least, "{images} images");
}

fn course(mounted: MountOptions, mib: u64, calls: u64) -> Course {
    let beside = mounted.sync == Sync::Burst;
    Course {
        subject: ScherlFs { mounted, beside, ..ScherlFs::default() },
        mib,
        calls,
        names: if calls > 200 { 12 } else { 5 },
        ticks: 1,
        written_on: false,
        worn: false,
    }
}

#[test]
fn what_was_synced_is_there_and_what_is_there_is_one_state() {
    every_cut(&course(MountOptions::default(), 16, 120), 0..10);
}

#[test]
fn so_it_is_when_little_waits_and_checkpoints_come_often() {
    let mounted = MountOptions { dirty: 40, checkpoint_blocks: 60, ..MountOptions::default() };
    every_cut(&course(mounted, 8, 120), 100..110);
}

#[test]
fn so_it_is_when_every_call_is_written() {
    let mounted = MountOptions { sync: Sync::Call, dir_cache: 0, checkpoint_blocks: 100, ..MountOptions::default() };
    every_cut(&course(mounted, 16, 120), 200..208);
}

#[test]
fn so_it_is_when_the_log_goes_round_a_full_volume() {
    let mounted = MountOptions { sync: Sync::Call, checkpoint_blocks: 300, ..MountOptions::default() };
    every_cut(&course(mounted, 6, 400), 300..304);
}

/// A volume of small segments on the charger, with space freed in this way.
fn cleaned(clean: &str, mib: u64) -> Course {
    let clean = Clean::parse(clean).expect("a strategy");
    let mounted = MountOptions { clean, power: Power::Powered, checkpoint_blocks: 300, ..MountOptions::default() };
    let made = scherlfs::make::Options { segment_blocks: 16, ..Default::default() };
    Course {
        subject: ScherlFs { made, mounted, ..ScherlFs::default() },
        ticks: 12,
        ..course(MountOptions::default(), mib, 300)
    }
}

/// Blocks moved to free space, and blocks defragmented, in a course without a cut.
fn moved(course: &Course, seed: u64) -> (u64, u64) {
    let done = run(course, seed, None);
    (done.tidied.moved, done.tidied.gathered)
}

#[test]
fn so_it_is_when_segments_are_copied_out_of_the_way() {
    let course = cleaned("copying", 8);
    assert!(moved(&course, 400).0 > 100);
    every_cut(&course, 400..405);
}

#[test]
fn so_it_is_when_they_are_put_into_holes() {
    let course = cleaned("plugging", 8);
    assert!(moved(&course, 500).0 > 100);
    every_cut(&course, 500..505);
}

#[test]
fn so_it_is_when_those_that_pay_best_are_cleared_and_files_are_brought_together() {
    let course = cleaned("auto", 8);
    let (moved, gathered) = moved(&course, 600);
    assert!(moved > 100 && gathered > 100, "{moved} moved, {gathered} brought together");
    every_cut(&course, 600..605);
}

/// The stage is lost, with everything only on it: the disk is still as it was after some call.
#[test]
fn so_is_the_disk_of_an_archive_without_what_stood_beside_it() {
    let mounted = MountOptions { sync: Sync::Burst, dirty: 40, checkpoint_blocks: 60, ..MountOptions::default() };
    every_cut(&course(mounted, 8, 120), 700..706);
}

/// A course of a file that is appended to, with this placement of inodes.
fn placed(placement: Placement, mounted: MountOptions) -> Course {
    let mounted = MountOptions { placement: Some(placement), ..mounted };
    Course { written_on: true, ..course(mounted, 12, 160) }
}

#[test]
fn so_it_is_wherever_inodes_are_put_and_every_call_is_written() {
    for placement in Placement::ALL {
        let mounted = MountOptions { sync: Sync::Call, checkpoint_blocks: 400, ..MountOptions::default() };
        every_cut(&placed(placement, mounted), 800..803);
    }
}

#[test]
fn so_it_is_wherever_inodes_are_put_and_calls_wait() {
    for placement in Placement::ALL {
        every_cut(&placed(placement, MountOptions { dirty: 40, ..MountOptions::default() }), 900..902);
    }
}

#[test]
fn so_it_is_with_every_placement_under_every_strategy() {
    for placement in Placement::ALL {
        for clean in ["threading", "copying", "plugging", "auto"] {
            let like = cleaned(clean, 8);
            let mounted = MountOptions { placement: Some(placement), sync: Sync::Call, ..like.subject.mounted.clone() };
            let subject = ScherlFs { mounted, ..like.subject.clone() };
            every_cut(&Course { subject, written_on: true, calls: 200, ..like }, 1000..1001);
        }
    }
}

/// A course of a file with several continuations, of which an update changes one.
fn worn(like: Course) -> Course {
    Course { written_on: true, worn: true, calls: 300, ..like }
}

#[test]
fn so_it_is_when_an_update_leaves_continuations_where_they_are() {
    for sync in [Sync::Fsync, Sync::Call] {
        let mounted = MountOptions { sync, dirty: 60, checkpoint_blocks: 200, ..MountOptions::default() };
        every_cut(&worn(course(mounted, 16, 0)), 1100..1102);
    }
}

#[test]
fn so_it_is_when_continuations_lie_in_segments_that_are_cleared() {
    for clean in ["copying", "plugging", "auto"] {
        every_cut(&worn(cleaned(clean, 8)), 1200..1201);
    }
}
