//! How are the files of a recipe created, changed and deleted?

use std::collections::BTreeMap;
use std::time::Duration;

use device::clock::{Clock, VirtualClock};
use device::{BLOCK, Rng, generate};
use vfs::{Caller, DeviceNumber, FileKind, Ino, NewNode, Volume, WriteFlags};

use super::AgeError;
use super::recipe::{Order, Sizes};

/// What was done to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Files created.
    pub files_made: u64,
    /// Files deleted.
    pub files_deleted: u64,
    /// Changes to existing files.
    pub changes: u64,
    /// Bytes written to files.
    pub bytes_written: u64,
    /// Virtual time taken.
    pub took: Duration,
}

/// Bytes per write call.
const CHUNK: usize = 1 << 20;
/// Most files in a directory.
const PER_DIRECTORY: u32 = 1000;
/// Files up to this many bytes keep their size, larger ones are rounded up to whole blocks: a generated block takes
/// almost no memory, a part of one its full length. Smaller files are inline.
const SMALL: u64 = 3400;
/// Time per operation, in addition to that of its bytes.
const PER_OPERATION: Duration = Duration::from_micros(50);

/// A file.
#[derive(Debug, Clone, Copy)]
pub(super) struct File {
    /// Its creation index within the set.
    pub number: u32,
    ino: u32,
    /// Index of its suffix.
    suffix: u16,
    gone: bool,
    pub bytes: u64,
}

/// A directory of files.
pub(super) struct Set {
    name: String,
    dir: Ino,
    /// Directories of [`PER_DIRECTORY`] files each.
    below: Vec<Ino>,
    suffixes: Vec<Option<String>>,
    made: u32,
    /// In creation order; some may be deleted.
    files: Vec<File>,
    gone: usize,
}

impl Set {
    /// Existing files, in creation order.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|f| !f.gone)
    }
    /// Number of existing files.
    pub fn len(&self) -> usize {
        self.files.len() - self.gone
    }
    /// Number of files ever created.
    #[cfg(test)]
    pub fn created(&self) -> u32 {
        self.made
    }
    /// A random existing file.
    fn any(&self, rng: &mut Rng) -> Option<File> {
        if self.len() == 0 {
            return None;
        }
        // At most half are deleted.
        loop {
            let file = self.files[rng.index(self.files.len())];
            if !file.gone {
                return Some(file);
            }
        }
    }
    /// Index of the file with this number, unless deleted.
    fn find(&self, number: u32) -> Option<usize> {
        self.files.binary_search_by_key(&number, |f| f.number).ok().filter(|&n| !self.files[n].gone)
    }
    fn file_name(&self, file: &File) -> String {
        match self.suffixes.get(usize::from(file.suffix)) {
            Some(Some(suffix)) => format!("{:07}.{suffix}", file.number),
            _ => format!("{:07}", file.number),
        }
    }
}

/// Properties of a new file.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    pub suffix: Option<&'a str>,
    pub bytes: u64,
    pub order: Order,
    pub sync: bool,
}

/// All files of the recipe, and their volume.
pub(super) struct Files<'v> {
    pub vol: &'v dyn Volume,
    clock: &'v VirtualClock,
    /// Bytes per second; `None` if the device moves the clock.
    pub rate: Option<u64>,
    pub rng: Rng,
    sets: BTreeMap<String, Set>,
    /// Number of content seeds used.
    contents: u64,
    seed: u64,
    buf: Vec<u8>,
    pub done: Done,
}

impl<'v> Files<'v> {
    pub fn new(vol: &'v dyn Volume, clock: &'v VirtualClock, seed: u64) -> Self {
        Files {
            vol,
            clock,
            rate: None,
            rng: Rng::new(seed),
            sets: BTreeMap::new(),
            contents: 0,
            seed,
            buf: vec![0; CHUNK],
            done: Done::default(),
        }
    }

    /// Free bytes for files.
    pub fn free(&self) -> Result<u64, AgeError> {
        let st = self.vol.statfs().map_err(|source| AgeError::Fs { what: "statfs".into(), source })?;
        Ok(st.blocks_free * BLOCK as u64)
    }

    /// A set by name; `None` if it was never used.
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.sets.get(name)
    }

    /// Advances the clock.
    pub fn wait(&mut self, by: Duration) -> Result<(), AgeError> {
        self.clock.advance(by);
        self.vol.tick().map(|_| ()).map_err(|source| AgeError::Fs { what: "background work".into(), source })
    }

    /// Time since the clock was created.
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Advances the clock by the time for writing these bytes.
    fn took(&mut self, bytes: u64) -> Result<(), AgeError> {
        match self.rate {
            Some(rate) => {
                let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
                self.wait(PER_OPERATION + Duration::from_nanos(nanos as u64))
            }
            None => self.wait(Duration::ZERO),
        }
    }

    /// An unused seed for contents.
    fn fresh_seed(&mut self) -> u64 {
        self.contents += 1;
        self.seed.rotate_left(32) ^ self.contents
    }

    /// Draws a size, scaled by `scale`.
    pub fn draw_size(&mut self, sizes: &Sizes, scale: f64) -> u64 {
        let bytes = match sizes {
            Sizes::Fixed(n) => n.0 as f64,
            Sizes::Spread(s) => {
                let x = s.median.0 as f64 * (s.sigma * normal(&mut self.rng)).exp();
                x.clamp(s.min.0 as f64, s.max.0 as f64)
            }
        };
        whole((bytes * scale) as u64)
    }

    fn set_or_new(&mut self, name: &str) -> Result<&mut Set, AgeError> {
        if !self.sets.contains_key(name) {
            let dir = directory(self.vol, self.vol.root(), name)?;
            let set = Set {
                name: name.to_owned(),
                dir,
                below: Vec::new(),
                suffixes: Vec::new(),
                made: 0,
                files: Vec::new(),
                gone: 0,
            };
            self.sets.insert(name.to_owned(), set);
        }
        // OK to unwrap: inserted above.
        Ok(self.sets.get_mut(name).unwrap())
    }

    /// Creates a file; returns its number.
    pub fn make(&mut self, set_name: &str, wish: Wish<'_>) -> Result<u32, AgeError> {
        let vol = self.vol;
        let set = self.set_or_new(set_name)?;
        let number = set.made;
        set.made += 1;
        let suffix = wish.suffix.map(str::to_owned);
        let index = set.suffixes.iter().position(|s| *s == suffix).unwrap_or_else(|| {
            set.suffixes.push(suffix);
            set.suffixes.len() - 1
        });
        let below = (number / PER_DIRECTORY) as usize;
        if below == set.below.len() {
            let dir = directory(vol, set.dir, &format!("{below:04}"))?;
            set.below.push(dir);
        }
        let dir = set.below[below];
        let mut file = File { number, ino: 0, suffix: index as u16, gone: false, bytes: wish.bytes };
        let name = set.file_name(&file);
        let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
        let what = || format!("making {set_name}/{below:04}/{name}");
        let made = vol.mknod(Caller::default(), dir, name.as_bytes(), &new);
        let ino = made.map_err(|source| AgeError::Fs { what: what(), source })?.attr.ino;
        file.ino = ino.0 as u32;
        set.files.push(file);
        let out = self.fill(ino, wish).map_err(|e| e.during(what));
        vol.forget(ino, 1);
        out?;
        self.done.files_made += 1;
        Ok(number)
    }

    fn fill(&mut self, ino: Ino, wish: Wish<'_>) -> Result<(), AgeError> {
        let seed = self.fresh_seed();
        match wish.order {
            Order::Sequential => {
                let mut at = 0;
                while at < wish.bytes {
                    let n = (wish.bytes - at).min(CHUNK as u64);
                    self.write_blocks(ino, seed, at, n)?;
                    at += n;
                }
            }
            Order::Random => {
                let mut blocks: Vec<u32> = (0..wish.bytes.div_ceil(BLOCK as u64) as u32).collect();
                self.rng.shuffle(&mut blocks);
                for block in blocks {
                    let at = u64::from(block) * BLOCK as u64;
                    self.write_blocks(ino, seed, at, (wish.bytes - at).min(BLOCK as u64))?;
                }
            }
        }
        self.synced(ino, wish.sync)
    }

    fn synced(&self, ino: Ino, sync: bool) -> Result<(), AgeError> {
        let out = if sync { self.vol.fsync(ino, false) } else { Ok(()) };
        out.map_err(|source| AgeError::Fs { what: "fsync".into(), source })
    }

    /// Writes generated blocks, the last of which may be partial; `at` is block-aligned.
    fn write_blocks(&mut self, ino: Ino, seed: u64, at: u64, bytes: u64) -> Result<(), AgeError> {
        let buf = &mut self.buf[..bytes as usize];
        generate(seed, (at / BLOCK as u64) as u32, buf);
        let mut done = 0;
        while done < buf.len() {
            let n = self.vol.write(ino, at + done as u64, &buf[done..], WriteFlags::empty());
            let n = n.map_err(|source| AgeError::Fs { what: "writing".into(), source })?;
            if n == 0 {
                return Err(AgeError::Fs { what: "writing".into(), source: vfs::Error::NoSpace });
            }
            done += n;
        }
        self.done.bytes_written += bytes;
        self.took(bytes)
    }

    /// Changes `piece` bytes of a random file of the set: appended, or overwriting existing data. Returns the bytes
    /// changed, 0 if there are no files.
    pub fn change(&mut self, set_name: &str, piece: u64, append: bool, sync: bool) -> Result<u64, AgeError> {
        let rng = &mut self.rng;
        let Some(file) = self.sets.get(set_name).and_then(|s| s.any(rng)) else { return Ok(0) };
        let ino = Ino(file.ino.into());
        let (blocks, piece) = (file.bytes / BLOCK as u64, piece.div_ceil(BLOCK as u64));
        // An inline file grows out of its inode.
        let (at, n) = match append || blocks == 0 {
            true => (file.bytes.div_ceil(BLOCK as u64), piece),
            false => (rng.below(blocks.saturating_sub(piece) + 1), piece.min(blocks)),
        };
        let seed = self.fresh_seed();
        let (mut at, end) = (at * BLOCK as u64, (at + n) * BLOCK as u64);
        while at < end {
            let n = (end - at).min(CHUNK as u64);
            self.write_blocks(ino, seed, at, n)
                .map_err(|e| e.during(|| format!("changing {set_name}/{}", file.number)))?;
            at += n;
        }
        self.synced(ino, sync)?;
        if let Some(set) = self.sets.get_mut(set_name)
            && let Some(i) = set.find(file.number)
        {
            set.files[i].bytes = set.files[i].bytes.max(end);
        }
        self.done.changes += 1;
        Ok(n * BLOCK as u64)
    }

    /// Deletes a file; false if it no longer exists.
    pub fn delete(&mut self, set_name: &str, number: u32) -> Result<bool, AgeError> {
        let Some(set) = self.sets.get_mut(set_name) else { return Ok(false) };
        let Some(i) = set.find(number) else { return Ok(false) };
        let name = set.file_name(&set.files[i]);
        let dir = set.below[(number / PER_DIRECTORY) as usize];
        let out = self.vol.unlink(dir, name.as_bytes());
        out.map_err(|source| AgeError::Fs { what: format!("deleting {}/{name}", set.name), source })?;
        set.files[i].gone = true;
        set.gone += 1;
        if set.gone * 2 > set.files.len() {
            set.files.retain(|f| !f.gone);
            set.gone = 0;
        }
        self.done.files_deleted += 1;
        self.took(0)?;
        Ok(true)
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Result<(), AgeError> {
        self.vol.sync().map_err(|source| AgeError::Fs { what: "sync".into(), source })
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        for set in self.sets.values() {
            set.below.iter().chain([&set.dir]).for_each(|&dir| self.vol.forget(dir, 1));
        }
    }
}

/// The directory with this name, created if missing. Holds one reference.
fn directory(vol: &dyn Volume, parent: Ino, name: &str) -> Result<Ino, AgeError> {
    let made = match vol.lookup(parent, name.as_bytes()) {
        Err(vfs::Error::NotFound) => vol.mkdir(Caller::default(), parent, name.as_bytes(), 0o755, 0),
        found => found,
    };
    Ok(made.map_err(|source| AgeError::Fs { what: format!("making directory {name}"), source })?.attr.ino)
}

/// Rounds a size up to what takes little memory.
pub(super) fn whole(bytes: u64) -> u64 {
    match bytes {
        0 => 1,
        1..=SMALL => bytes,
        _ => bytes.div_ceil(BLOCK as u64) * BLOCK as u64,
    }
}

/// A standard normal number: the sum of twelve uniform ones (central limit theorem), accurate enough within three
/// standard deviations.
pub(super) fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}
