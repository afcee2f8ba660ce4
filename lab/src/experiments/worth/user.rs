//! Which operations make up a turn?
//!
//! Created files replace deleted ones, so the volume stays equally full. Left out on purpose: recorded programs
//! ([`super::programs`]), and the pauses between turns.

use std::collections::VecDeque;

use device::{BLOCK, Rng, generate};
use vfs::{Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, WriteFlags};

use super::{Times, Work};
use crate::error::LabError;
use sim::bench::Bench;

/// Bytes of a download.
pub(super) const LARGE: u64 = 8 << 20;
/// Bytes of whole files between syncs.
const SYNC_EVERY: u64 = 4 << 20;
/// Pages per fsync.
const PAGES: u64 = 8;
/// Bytes per read or write call.
const PART: u64 = 1 << 17;
/// A day's turns, in order.
const DAY: [Part; 4] = [Part::Pages, Part::Reading, Part::SmallFiles, Part::Downloads];
const FILE: NewNode =
    NewNode { kind: FileKind::Regular, perm: 0o600, umask: 0, rdev: DeviceNumber { major: 0, minor: 0 } };

/// The kind of a day's turn.
#[derive(Clone, Copy)]
enum Part {
    Pages,
    Reading,
    SmallFiles,
    Downloads,
}

/// The simulated user.
pub(in crate::experiments) struct User<'a> {
    bench: &'a Bench,
    work: Work,
    rng: Rng,
    /// Its files, oldest first: number and bytes.
    files: VecDeque<(u64, u64)>,
    /// Its media, if separate: number and bytes.
    media: VecDeque<(u64, u64)>,
    made: u64,
    /// The file whose pages change, and its number of pages.
    paged: Option<(Ino, u64)>,
    unsynced: u64,
    turns: usize,
    times: Times,
}

/// Which page changes next: in four of five cases one of the first fifth.
fn page_of(rng: &mut Rng, pages: u64) -> u64 {
    let hot = pages / 5;
    match rng.below(5) {
        0 => hot + rng.below(pages - hot),
        _ => rng.below(hot),
    }
}

/// The size of a day's turn: a quarter, half, all or twice the plan's.
fn size_of(rng: &mut Rng, bytes: u64) -> u64 {
    (bytes << rng.below(4)) / 4
}

fn name(n: u64, bytes: u64, work: Work) -> String {
    let ending = if work.has_media() && bytes == LARGE { ".mp4" } else { "" };
    format!("used-{n:06}{ending}")
}

impl<'a> User<'a> {
    /// Creates what the work gradually replaces.
    pub fn begin(bench: &'a Bench, work: Work, live_mib: u64, seed: u64) -> Result<Self, LabError> {
        let (rng, live) = (Rng::new(seed), live_mib << 20);
        let mut user = User {
            bench,
            work,
            rng,
            files: VecDeque::new(),
            media: VecDeque::new(),
            made: 0,
            paged: None,
            unsynced: 0,
            turns: 0,
            times: Times::default(),
        };
        if work.has_media() {
            let ino = bench.file("paged.db")?;
            bench.write_whole(ino, live / 3, seed)?;
            user.paged = Some((ino, live / 3 / BLOCK as u64));
            let (mut small, mut large) = (0, 0);
            while small < live / 3 {
                small += user.come()?;
                if large < small {
                    large += user.bring(LARGE)?;
                }
            }
            bench.f2fs()?.sync()?;
            user.times = Times::default();
            return Ok(user);
        }
        if work == Work::Pages {
            let ino = bench.file("paged")?;
            bench.write_whole(ino, live, seed)?;
            user.paged = Some((ino, live / BLOCK as u64));
            return Ok(user);
        }
        let mut bytes = 0;
        while bytes < live {
            bytes += user.come()?;
        }
        bench.f2fs()?.sync()?;
        user.times = Times::default();
        Ok(user)
    }

    /// Ends; returns the durations of its calls.
    pub fn end(self) -> Times {
        self.times
    }

    /// Runs an operation and records its duration.
    fn call<T>(&mut self, work: impl FnOnce() -> vfs::Result<T>) -> Result<T, LabError> {
        Ok(Times::note(&mut self.times.calls, self.bench.clock(), work)?)
    }

    /// Runs a sync and records its duration.
    fn sync(&mut self, work: impl FnOnce() -> vfs::Result<()>) -> Result<(), LabError> {
        Ok(Times::note(&mut self.times.syncs, self.bench.clock(), work)?)
    }

    fn size(&mut self) -> u64 {
        match self.work {
            Work::Downloads => LARGE,
            _ => (1 + self.rng.below(16)) * BLOCK as u64,
        }
    }

    /// Creates a file.
    fn come(&mut self) -> Result<u64, LabError> {
        let bytes = self.size();
        self.bring(bytes)
    }

    /// Creates a file of `bytes` bytes.
    fn bring(&mut self, bytes: u64) -> Result<u64, LabError> {
        let n = self.made;
        self.made += 1;
        let name = name(n, bytes, self.work);
        let volume = self.bench.f2fs()?;
        let ino = self.call(|| volume.mknod(Caller::default(), volume.root(), name.as_bytes(), &FILE))?.attr.ino;
        let mut part = vec![0; bytes.min(PART) as usize];
        for at in (0..bytes).step_by(part.len()) {
            generate(n, (at / BLOCK as u64) as u32, &mut part);
            let some = &part[..(bytes - at).min(part.len() as u64) as usize];
            self.call(|| match volume.write(ino, at, some, WriteFlags::empty())? {
                n if n == some.len() => Ok(()),
                _ => Err(vfs::Error::NoSpace),
            })?;
        }
        volume.forget(ino, 1);
        match self.work {
            work if work.has_media() && bytes == LARGE => self.media.push_back((n, bytes)),
            _ => self.files.push_back((n, bytes)),
        }
        self.unsynced += bytes;
        if self.unsynced >= SYNC_EVERY {
            self.unsynced = 0;
            self.sync(|| volume.sync())?;
        }
        Ok(bytes)
    }

    /// Deletes an existing file.
    fn go(&mut self) -> Result<u64, LabError> {
        let at = match self.work {
            Work::Downloads => 0,
            _ => self.rng.below(self.files.len() as u64) as usize,
        };
        // Order matters only for downloads, where the first is deleted.
        match self.files.swap_remove_front(at) {
            Some(file) => self.remove(file),
            None => Ok(0),
        }
    }

    fn remove(&mut self, (n, bytes): (u64, u64)) -> Result<u64, LabError> {
        let (volume, name) = (self.bench.f2fs()?, name(n, bytes, self.work));
        self.call(|| volume.unlink(volume.root(), name.as_bytes()))?;
        Ok(bytes)
    }

    /// A turn of all three kinds.
    fn mixed(&mut self, (ino, pages): (Ino, u64), bytes: u64) -> Result<u64, LabError> {
        let (mut changed, mut gone, mut come, mut large) = (0, 0, 0, 0);
        let third = bytes / 3;
        while come < third {
            while gone <= come {
                gone += self.go()?;
            }
            come += self.come()?;
            while changed < come {
                changed += BLOCK as u64;
                self.change(ino, pages, changed / BLOCK as u64)?;
            }
            if large < come {
                large += self.replace_media()?;
            }
        }
        Ok(changed + come + large)
    }

    /// Deletes the oldest media file and creates another.
    fn replace_media(&mut self) -> Result<u64, LabError> {
        if let Some(oldest) = self.media.pop_front() {
            self.remove(oldest)?;
        }
        self.bring(LARGE)
    }

    /// Creates small files of `bytes` bytes and deletes as many bytes of others.
    fn replace(&mut self, bytes: u64) -> Result<u64, LabError> {
        let (mut gone, mut come) = (0, 0);
        while come < bytes {
            while gone <= come {
                gone += self.go()?;
            }
            come += self.come()?;
        }
        Ok(come)
    }

    /// A turn of a day: one of its kinds, with one of four sizes.
    fn day(&mut self, paged: (Ino, u64), bytes: u64) -> Result<u64, LabError> {
        let (part, bytes) = (DAY[self.turns % DAY.len()], size_of(&mut self.rng, bytes));
        self.turns += 1;
        match part {
            Part::Pages => self.change_some(paged, bytes),
            Part::Reading => self.reading(paged, bytes),
            Part::SmallFiles => self.replace(bytes),
            Part::Downloads => {
                let mut come = 0;
                while come < bytes {
                    come += self.replace_media()?;
                }
                Ok(come)
            }
        }
    }

    /// Reads a third of the bytes each: pages (the most changed most often), small files, and media.
    fn reading(&mut self, (ino, pages): (Ino, u64), bytes: u64) -> Result<u64, LabError> {
        let (mut of_pages, mut small, mut large) = (0, 0, 0);
        while small < bytes / 3 {
            let at = self.rng.below(self.files.len() as u64) as usize;
            small += self.read_whole(self.files[at])?;
            while of_pages < small {
                let at = page_of(&mut self.rng, pages) * BLOCK as u64;
                of_pages += self.read(ino, at, &mut [0; BLOCK])?;
            }
            if large < small && !self.media.is_empty() {
                let at = self.rng.below(self.media.len() as u64) as usize;
                large += self.read_whole(self.media[at])?;
            }
        }
        Ok(of_pages + small + large)
    }

    fn read_whole(&mut self, (n, bytes): (u64, u64)) -> Result<u64, LabError> {
        let (volume, name) = (self.bench.f2fs()?, name(n, bytes, self.work));
        let ino = self.call(|| volume.lookup(volume.root(), name.as_bytes()))?.attr.ino;
        let mut part = vec![0; bytes.min(PART) as usize];
        let mut done = 0;
        while done < bytes {
            done += match self.read(ino, done, &mut part)? {
                0 => return Err(LabError::parameters(format!("{name} ends before its {bytes} bytes"))),
                n => n,
            };
        }
        volume.forget(ino, 1);
        Ok(done)
    }

    fn read(&mut self, ino: Ino, at: u64, buf: &mut [u8]) -> Result<u64, LabError> {
        let volume = self.bench.f2fs()?;
        Ok(Times::note(&mut self.times.reads, self.bench.clock(), || volume.read(ino, at, buf))? as u64)
    }

    /// Changes pages of `bytes` bytes.
    fn change_some(&mut self, (ino, pages): (Ino, u64), bytes: u64) -> Result<u64, LabError> {
        let count = bytes / BLOCK as u64;
        (1..=count).try_for_each(|n| self.change(ino, pages, n))?;
        Ok(count * BLOCK as u64)
    }

    /// Changes a page.
    fn change(&mut self, ino: Ino, pages: u64, n: u64) -> Result<(), LabError> {
        let at = page_of(&mut self.rng, pages);
        let mut page = [0; BLOCK];
        generate(self.rng.next_u64(), 0, &mut page);
        let volume = self.bench.f2fs()?;
        self.call(|| volume.write(ino, at * BLOCK as u64, &page, WriteFlags::empty()))?;
        if n.is_multiple_of(PAGES) { self.sync(|| volume.fsync(ino, true)) } else { Ok(()) }
    }

    /// Runs one turn; returns the bytes written or read.
    pub fn turn(&mut self, bytes: u64) -> Result<u64, LabError> {
        match (self.work, self.paged) {
            (Work::Mixed, Some(paged)) => self.mixed(paged, bytes),
            (Work::Day, Some(paged)) => self.day(paged, bytes),
            (_, Some(paged)) => self.change_some(paged, bytes),
            (_, None) => self.replace(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_of_five_changes_are_in_a_fifth_of_the_file() {
        let mut rng = Rng::new(1);
        let all: Vec<u64> = (0..100_000).map(|_| page_of(&mut rng, 4000)).collect();
        let hot = all.iter().filter(|at| **at < 800).count();
        assert!((79_000..81_000).contains(&hot), "{hot} of 100000");
        assert!(all.iter().all(|at| *at < 4000));
        assert!(all.iter().filter(|at| **at >= 3200).count() > 4000, "the cold rest is drawn evenly");
    }

    #[test]
    fn turns_of_a_day_are_of_four_sizes_alike_often() {
        let mut rng = Rng::new(3);
        let all: Vec<u64> = (0..4000).map(|_| size_of(&mut rng, 24 << 20)).collect();
        for mib in [6, 12, 24, 48] {
            let count = all.iter().filter(|bytes| **bytes == mib << 20).count();
            assert!((900..1100).contains(&count), "{count} of 4000 are of {mib} MiB");
        }
    }
}
