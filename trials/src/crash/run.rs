//! Runs a scenario up to a power cut, and judges the result.

use std::sync::Arc;

use device::{Counting, Loss, Memory, Rng, Time, VirtualClock};
use vfs::{
    Caller, DeviceNumber, Error, FileKind, FileSystem, Ino, Moving, NewNode, RenameFlags, SetAttr, WriteFlags,
    XattrFlags,
};

use crate::subject::{Did, F2fs, Judged, ScherlFs, Subject};
use judges::medium::{Medium, Powered};

use super::record::Record;
use super::scenario::Scenario;
use super::step::Step;

const ME: Caller = Caller { uid: 0, gid: 0 };

fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)))
}

struct Run<'a> {
    vol: &'a dyn Judged,
    clock: &'a VirtualClock,
    record: &'a mut Record,
}

impl Run<'_> {
    fn dir(&self, path: &str) -> usize {
        let names = path.split('/').filter(|n| !n.is_empty());
        names.fold(0, |at, n| self.record.get(at, n.as_bytes()).unwrap_or_else(|| panic!("no {path} in the scenario")))
    }

    fn split<'p>(&self, path: &'p str) -> (usize, Ino, &'p [u8]) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.dir(parent);
        (dir, self.record.ino(dir), name.as_bytes())
    }

    fn made(&mut self, object: usize, e: vfs::Entry) {
        self.vol.forget(e.attr.ino, 1);
        self.record.made(object, e.attr.ino);
    }

    /// Changes are recorded before they are requested: after a power cut they may be present or not.
    fn step(&mut self, step: &Step) -> vfs::Result<()> {
        let vol = self.vol;
        match step {
            Step::Create(p) => {
                let new = NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber::default() };
                let (dir, parent, name) = self.split(p);
                let object = self.record.making((dir, name), false);
                let e = vol.mknod(ME, parent, name, &new)?;
                self.made(object, e);
            }
            Step::Mkdir(p) => {
                let (dir, parent, name) = self.split(p);
                let object = self.record.making((dir, name), true);
                let e = vol.mkdir(ME, parent, name, 0o700, 0)?;
                self.made(object, e);
            }
            Step::Write(p, at, len, stream) => {
                let object = self.dir(p);
                let mut data = vec![0; *len];
                Rng::new(*stream + 1).fill(&mut data);
                self.record.write(object, *at, &data);
                let n = vol.write(self.record.ino(object), *at, &data, WriteFlags::empty())?;
                assert_eq!(n, data.len(), "a scenario fits its volume");
            }
            Step::Appear(p, len, stream, sync) => {
                let (_, parent, _) = self.split(p);
                let e = vol.tmpfile(ME, parent, 0o600, 0)?;
                let object = self.record.object(e.attr.ino, false);
                let mut data = vec![0; *len];
                Rng::new(*stream + 1).fill(&mut data);
                self.record.write(object, 0, &data);
                let n = vol.write(e.attr.ino, 0, &data, WriteFlags::empty())?;
                assert_eq!(n, data.len(), "a scenario fits its volume");
                if *sync {
                    vol.fsync(e.attr.ino, false)?;
                    self.record.synced(object);
                }
                let (dir, parent, name) = self.split(p);
                self.record.bind(&[(dir, name, Some(object))]);
                vol.link(e.attr.ino, parent, name)?;
                vol.forget(e.attr.ino, 2);
            }
            Step::Fallocate(p, what, at, len) => {
                let object = self.dir(p);
                self.record.allocate(object, *what, *at, *len);
                vol.fallocate(self.record.ino(object), *what, *at, *len)?;
            }
            Step::Truncate(p, size) => {
                let object = self.dir(p);
                self.record.resize(object, *size);
                vol.setattr(self.record.ino(object), &SetAttr { size: Some(*size), ..SetAttr::default() })?;
            }
            Step::Rename(a, b) => {
                let (from, to, object) = (self.split(a), self.split(b), self.dir(a));
                self.record.bind(&[(to.0, to.2, Some(object)), (from.0, from.2, None)]);
                vol.rename(ME, (from.1, from.2), (to.1, to.2), RenameFlags::empty())?;
            }
            Step::Exchange(a, b) => {
                let (one, other) = (self.split(a), self.split(b));
                let (first, second) = (self.dir(a), self.dir(b));
                self.record.bind(&[(one.0, one.2, Some(second)), (other.0, other.2, Some(first))]);
                vol.rename(ME, (one.1, one.2), (other.1, other.2), RenameFlags::EXCHANGE)?;
            }
            Step::Link(a, b) => {
                let (object, to) = (self.dir(a), self.split(b));
                self.record.bind(&[(to.0, to.2, Some(object))]);
                let e = vol.link(self.record.ino(object), to.1, to.2)?;
                vol.forget(e.attr.ino, 1);
            }
            Step::Unlink(p) | Step::Rmdir(p) => {
                let (dir, parent, name) = self.split(p);
                self.record.bind(&[(dir, name, None)]);
                if matches!(step, Step::Unlink(_)) { vol.unlink(parent, name)? } else { vol.rmdir(parent, name)? }
            }
            Step::Setxattr(p, len) => {
                let object = self.dir(p);
                self.record.set_attribute(object, b"user.note", &vec![*len as u8; *len]);
                vol.setxattr(self.record.ino(object), b"user.note", &vec![*len as u8; *len], XattrFlags::empty())?;
            }
            Step::Fsync(p) | Step::Fdatasync(p) => {
                let object = self.dir(p);
                vol.fsync(self.record.ino(object), matches!(step, Step::Fdatasync(_)))?;
                self.record.synced(object);
            }
            Step::Fsyncdir(p) => {
                let object = self.dir(p);
                vol.fsyncdir(self.record.ino(object), false)?;
                self.record.synced_names(object);
            }
            Step::Sync => {
                vol.sync()?;
                self.record.synced_all();
            }
            Step::Tick(seconds) => {
                let passed = std::time::Duration::from_secs(*seconds);
                self.clock.advance(passed);
                vol.tick()?;
                if vol.commits_within().is_some_and(|within| passed >= within) {
                    self.record.synced_all();
                }
            }
            Step::Tune(name, value) => {
                vol.tune(name, value).unwrap_or_else(|why| panic!("in a scenario, {name} {why}"));
            }
            Step::Clean(step_blocks) => vol.make_room(*step_blocks)?,
            Step::Defragment(p, from, how) => {
                defragment(vol, self.record.ino(self.dir(p)), *from, *how)?;
            }
        }
        Ok(())
    }
}

/// Defragments a file from a block on, as far as possible; returns the number of blocks moved.
///
/// # Errors
/// The device's, or that of a volume that accepts no changes.
pub fn defragment(vol: &dyn FileSystem, ino: Ino, from: u64, how: Moving) -> vfs::Result<u64> {
    let (mut at, mut moved) = (from, 0);
    while at < u64::MAX {
        match vol.defragment(ino, at..u64::MAX, how) {
            Ok((next, n)) => (at, moved) = (next, moved + n),
            Err(Error::Busy(_) | Error::NotPermitted(_) | Error::Invalid(_) | Error::NoSpace) => break,
            // A file system that never rewrites files has moved nothing.
            Err(Error::Unsupported(_)) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(moved)
}

/// Runs steps until one fails.
fn perform(vol: &dyn Judged, clock: &VirtualClock, record: &mut Record, steps: &[Step]) -> vfs::Result<()> {
    let mut run = Run { vol, clock, record };
    steps.iter().try_for_each(|s| run.step(s))
}

/// A power cut: before this write is acknowledged, with this loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Number of the write, from 1.
    pub write: u64,
    /// What happens to unflushed data.
    pub loss: Loss,
}

/// A scenario ready to run: its image, and its number of writes.
pub struct Plan<'s, S> {
    subject: S,
    scenario: &'s Scenario,
    /// The initial contents.
    image: Medium,
    record: Record,
    /// Activity of the volume until the end.
    pub did: Did,
    /// Writes from the mount to the end.
    pub writes: u64,
}

/// F2FS for scenarios, with deltas or without.
pub fn f2fs(deltas: bool) -> F2fs {
    // With inode checksums: without them, a torn sector in an inode written by fsync cannot be detected
    // (docs/decisions/0007-torn-nodes.md).
    let made = f2fs::mkfs::Options {
        assume_zeroed: true,
        checkpoint_version: Some(7),
        uuid: Some([3; 16]),
        ..f2fs::mkfs::Options::modern()
    };
    F2fs {
        made,
        mounted: f2fs::MountOptions { discard_holes: f2fs::Holes::AsLinux, ..f2fs::MountOptions::default() },
        deltas,
    }
}

fn before<S: Subject>(subject: &S, scenario: &Scenario) -> Result<(Medium, Record), String> {
    let (blocks, clock) = (scenario.mib() * 256, clock());
    let medium = Medium::new(blocks, subject.zoning(blocks));
    subject.format(medium.device(), &*clock)?;
    let vol = subject.mount(medium.device(), clock.clone()).map_err(|e| format!("mount: {e}"))?;
    let mut record = Record::new(vol.root()).without(subject.own_names());
    perform(&*vol, &clock, &mut record, &(scenario.before)()).map_err(|e| e.to_string())?;
    vol.unmount().map_err(|e| e.to_string())?;
    record.synced_all();
    medium.in_order()?;
    Ok((medium.fork(), record))
}

/// Creates the image of a volume of this file system, and runs the scenario once to its end.
///
/// # Errors
/// If the scenario fails without any cut.
pub fn plan<S: Subject>(subject: S, scenario: &Scenario) -> Result<Plan<'_, S>, String> {
    let (image, record) = before(&subject, scenario)?;
    let powered = Powered::new(&image);
    let (dev, clock) = (Arc::new(Counting::new(powered.device())), clock());
    let vol = subject.mount(dev.clone(), clock.clone()).map_err(|e| format!("mount: {e}"))?;
    let mut to_the_end = record.clone();
    perform(&*vol, &clock, &mut to_the_end, &(scenario.during)()).map_err(|e| e.to_string())?;
    to_the_end.judge(&*vol)?;
    powered.in_order()?;
    let did = subject.did(&vol, &dev.snapshot());
    Ok(Plan { subject, scenario, image, record, did, writes: powered.write_count() })
}

/// Runs into a cut; returns the device in that state, and the record.
///
/// # Errors
/// If it fails before the power does.
pub fn surviving<S: Subject>(plan: &Plan<'_, S>, write: u64) -> Result<(Powered, Record), String> {
    let mut record = plan.record.clone();
    let (dev, clock) = (Powered::new(&plan.image), clock());
    dev.cut_after(write);
    let out = match plan.subject.mount(dev.device(), clock.clone()) {
        // It ends with the error of the cut, if it writes at all.
        Ok(vol) => perform(&*vol, &clock, &mut record, &(plan.scenario.during)()).map_err(|e| e.to_string()),
        Err(e) => Err(format!("mount: {e}")),
    };
    match out {
        Err(e) if !dev.is_cut() => Err(format!("before the cut: {e}")),
        _ => dev.in_order().map(|()| (dev, record)),
    }
}

/// ScherlFS for scenarios: with few segments, and the given inode placement.
pub fn scherlfs(sync: scherlfs::Sync, placement: scherlfs::Placement) -> ScherlFs {
    let made = scherlfs::make::Options { segment_blocks: 16, ..Default::default() };
    let placement = Some(placement);
    let mounted = scherlfs::MountOptions { sync, placement, dirty: 200, checkpoint_blocks: 300, ..Default::default() };
    ScherlFs { made, mounted, beside: false }
}

/// The same volume without deltas, for judges that do not know them: plain F2FS. A volume without deltas is unchanged.
///
/// # Errors
/// If it cannot be settled.
pub fn settled(image: &Memory) -> Result<Memory, String> {
    let dev = Arc::new(image.fork());
    f2fs::settle::settle(dev.clone(), clock(), &mut |_, _| ()).map_err(|e| format!("settling: {e}"))?;
    Ok(dev.fork())
}

/// Recovers an image and judges it; returns the image after a clean unmount. `second` cuts the recovery too, at that
/// write, and recovers again.
///
/// # Errors
/// The first broken promise.
pub fn judge<S: Subject>(subject: &S, image: &Medium, record: &Record, second: Option<Cut>) -> Result<Medium, String> {
    if let Some(cut) = second {
        let dev = Powered::new(image);
        dev.cut_after(cut.write);
        if let Ok(vol) = subject.mount(dev.device(), clock()) {
            // Recovery had fewer writes: the power fails at the unmount.
            let _ = vol.unmount();
        }
        let again = dev.in_order().and_then(|()| judge(subject, &dev.left(cut.loss), record, None));
        return again.map_err(|e| format!("cut in recovery at {}: {e}", cut.write));
    }
    let image = image.fork();
    let clean = |when: &str| subject.check(&*image.device()).map_err(|e| format!("{when}: {e}"));
    clean("before recovery")?;
    let vol = subject.mount(image.device(), clock()).map_err(|e| format!("mount: {e}"))?;
    clean("after recovery")?;
    record.judge(&*vol)?;
    vol.unmount().map_err(|e| format!("unmount: {e}"))?;
    clean("after unmount")?;
    image.in_order()?;
    Ok(image)
}
