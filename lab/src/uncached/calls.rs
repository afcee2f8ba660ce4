//! Which calls are made, on which files, with which contents?
//!
//! The same for everybody who makes them: they follow from the work and a seed. Left out on purpose: how a call is made,
//! and what is forgotten between two.

use std::collections::HashMap;

use device::{BLOCK, Rng, generate};
use serde::{Deserialize, Serialize};

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Work {
    /// Files of one size are made, read, truncated and written again, and read (Scherl 2004, section 6.2).
    Files {
        /// Kibibytes of a file.
        kib: u64,
        /// Mebibytes of all.
        mib: u64,
    },
    /// One file is read and written in small calls, in order and at random (section 6.3).
    Updates {
        /// Mebibytes of the file.
        mib: u64,
        /// Mebibytes that are read, and written, at random.
        at_random_mib: u64,
        /// Kibibytes of a call.
        call_kib: u64,
    },
    /// Files of many sizes are written one after the other (section 6.4).
    Pictures {
        /// How many.
        files: u32,
        /// Kibibytes of all.
        kib: u64,
        /// The volume was filled, and then emptied down to so many percent ([`super::fill`]); 0: it is new.
        #[serde(default)]
        full: u32,
    },
    /// Files of many sizes are read in the order in which they were made (section 6.5).
    Music {
        /// How many.
        files: u32,
        /// Kibibytes of all.
        kib: u64,
        /// Kibibytes of a call.
        call_kib: u64,
        /// As in [`Work::Pictures`].
        #[serde(default)]
        full: u32,
    },
}

/// Files in a directory (section 6.2).
pub const PER_DIRECTORY: u32 = 200;

/// A call; what it writes is [`Contents`]'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Makes a directory.
    Directory(u32),
    /// Makes a file and writes it whole.
    Create(u32),
    /// Reads a file whole.
    Read(u32),
    /// Truncates a file to nothing and writes it whole.
    Rewrite(u32),
    /// Reads a part of a file.
    ReadAt(u32, u64, u64),
    /// Overwrites a part of a file.
    WriteAt(u32, u64, u64),
}

impl Call {
    /// True if something is on the disk after it that was not there before.
    pub fn writes(self) -> bool {
        !matches!(self, Call::Read(_) | Call::ReadAt(..))
    }
}

/// Calls that are measured together, on a volume that is mounted for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// What is done.
    pub name: &'static str,
    /// How.
    pub calls: Vec<Call>,
}

/// What a work needs: the size of each file, and its stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of each file.
    pub sizes: Vec<u64>,
    /// In order.
    pub stages: Vec<Stage>,
}

impl Work {
    /// How full the volume is before it, in percent; 0: it is new.
    pub fn full(&self) -> u32 {
        match *self {
            Work::Pictures { full, .. } | Work::Music { full, .. } => full,
            Work::Files { .. } | Work::Updates { .. } => 0,
        }
    }

    /// What is done, of which at random what `seed` says.
    pub fn plan(&self, seed: u64) -> Plan {
        let mut rng = Rng::new(seed);
        match *self {
            Work::Files { kib, mib } => {
                let kib = kib.max(1);
                let files = (mib * 1024 / kib) as u32;
                let mut shuffled: Vec<u32> = (0..files).collect();
                rng.shuffle(&mut shuffled);
                let read = |name, order: &[u32]| Stage { name, calls: order.iter().copied().map(Call::Read).collect() };
                let in_order: Vec<u32> = (0..files).collect();
                let stages = vec![
                    Stage { name: "create", calls: made(files) },
                    read("read", &in_order),
                    read("rand_read", &shuffled),
                    Stage { name: "rewrite", calls: in_order.iter().copied().map(Call::Rewrite).collect() },
                    read("reread", &in_order),
                    read("rand_reread", &shuffled),
                ];
                Plan { sizes: vec![kib * 1024; files as usize], stages }
            }
            Work::Updates { mib, at_random_mib, call_kib } => {
                let (size, call) = (mib << 20, call_kib.max(4) << 10);
                let places = size / call;
                let at = |n: u64| n * call;
                let mut draw = || (0..(at_random_mib << 20) / call).map(|_| at(rng.below(places))).collect::<Vec<_>>();
                let (read_at, write_at) = (draw(), draw());
                let read = |name, places: Vec<u64>| Stage {
                    name,
                    calls: places.into_iter().map(|at| Call::ReadAt(0, at, call)).collect(),
                };
                let stages = vec![
                    Stage { name: "create", calls: made(1) },
                    read("read", (0..places).map(at).collect()),
                    read("rand_read", read_at.clone()),
                    Stage { name: "write", calls: write_at.into_iter().map(|at| Call::WriteAt(0, at, call)).collect() },
                    read("reread", (0..places).map(at).collect()),
                    read("rand_reread", read_at),
                ];
                Plan { sizes: vec![size], stages }
            }
            Work::Pictures { files, kib, .. } => {
                Plan { sizes: drawn(files, kib, &mut rng), stages: vec![Stage { name: "write", calls: made(files) }] }
            }
            Work::Music { files, kib, call_kib, .. } => {
                let sizes = drawn(files, kib, &mut rng);
                let call = call_kib.max(4) << 10;
                let played = sizes.iter().zip(0..).flat_map(|(size, file)| {
                    (0..*size).step_by(call as usize).map(move |at| Call::ReadAt(file, at, call.min(size - at)))
                });
                let stages = vec![
                    Stage { name: "put", calls: made(files) },
                    Stage { name: "play", calls: played.collect() },
                ];
                Plan { sizes, stages }
            }
        }
    }
}

/// Directories and files, in order.
fn made(files: u32) -> Vec<Call> {
    let one = |n: u32| {
        let directory = n.is_multiple_of(PER_DIRECTORY).then_some(Call::Directory(n / PER_DIRECTORY));
        directory.into_iter().chain([Call::Create(n)])
    };
    (0..files).flat_map(one).collect()
}

/// Sizes from half to one and a half times the mean, which add up to so many kibibytes.
fn drawn(files: u32, kib: u64, rng: &mut Rng) -> Vec<u64> {
    let total = kib << 10;
    let weights: Vec<u64> = (0..files).map(|_| 1000 + rng.below(2001)).collect();
    let all: u64 = weights.iter().sum::<u64>().max(1);
    let mut sizes: Vec<u64> = weights.iter().map(|w| total * w / all).collect();
    let missing = total - sizes.iter().sum::<u64>();
    if let Some(last) = sizes.last_mut() {
        *last += missing;
    }
    sizes
}

/// The directory of a file, by number.
pub fn directory_of(file: u32) -> u32 {
    file / PER_DIRECTORY
}

/// What a directory is called.
pub fn directory_name(directory: u32) -> String {
    format!("d{directory:03}")
}

/// What a file is called in its directory.
pub fn file_name(file: u32) -> String {
    format!("f{file:05}")
}

/// What the files hold: how often each, and each part, was written.
#[derive(Debug, Default)]
pub struct Contents {
    whole: HashMap<u32, u64>,
    blocks: HashMap<(u32, u64), u64>,
}

impl Contents {
    /// A file is written whole once more.
    pub fn rewritten(&mut self, file: u32) {
        *self.whole.entry(file).or_default() += 1;
        self.blocks.retain(|(f, _), _| *f != file);
    }

    /// A part of a file is written once more; it begins with a block.
    pub fn overwritten(&mut self, file: u32, at: u64, bytes: u64) {
        let first = at / BLOCK as u64;
        for block in first..first + bytes.div_ceil(BLOCK as u64) {
            *self.blocks.entry((file, block)).or_default() += 1;
        }
    }

    /// The bytes that a file holds from `at` on, which is where a block begins.
    pub fn fill(&self, file: u32, at: u64, bytes: &mut [u8]) {
        let whole = self.whole.get(&file).copied().unwrap_or(0);
        let first = at / BLOCK as u64;
        for (block, piece) in (first..).zip(bytes.chunks_mut(BLOCK)) {
            let part = self.blocks.get(&(file, block)).copied().unwrap_or(0);
            generate(u64::from(file) | whole << 32 | part << 48, block as u32, piece);
        }
    }
}

/// Who makes calls. A call that writes returns when what it wrote is as durable as calls are to be here.
pub trait Caller {
    /// What can go wrong.
    type Error;
    /// Makes a directory.
    fn directory(&mut self, directory: u32) -> Result<(), Self::Error>;
    /// Makes a file that holds these bytes, in one call to write.
    fn create(&mut self, file: u32, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Truncates a file to nothing and writes these bytes, in one call to write.
    fn rewrite(&mut self, file: u32, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Overwrites a part of a file.
    fn write(&mut self, file: u32, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Reads a part of a file, all of it.
    fn read(&mut self, file: u32, at: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;
    /// A file holds what it should not.
    fn wrong(&mut self, file: u32, at: u64) -> Self::Error;
}

/// Makes a call, and says how many bytes of files it moved. What is read must be what was written last.
pub fn make<C: Caller>(caller: &mut C, plan: &Plan, contents: &mut Contents, call: Call) -> Result<u64, C::Error> {
    let size = |file: u32| plan.sizes.get(file as usize).copied().unwrap_or(0);
    let bytes = |n: u64| vec![0; n as usize];
    match call {
        Call::Directory(n) => caller.directory(n).map(|()| 0),
        Call::Create(file) | Call::Rewrite(file) => {
            contents.rewritten(file);
            let mut whole = bytes(size(file));
            contents.fill(file, 0, &mut whole);
            match call {
                Call::Create(_) => caller.create(file, &whole)?,
                _ => caller.rewrite(file, &whole)?,
            }
            Ok(size(file))
        }
        Call::WriteAt(file, at, n) => {
            contents.overwritten(file, at, n);
            let mut part = bytes(n);
            contents.fill(file, at, &mut part);
            caller.write(file, at, &part)?;
            Ok(n)
        }
        Call::Read(_) | Call::ReadAt(..) => {
            let (file, at, n) = match call {
                Call::ReadAt(file, at, n) => (file, at, n),
                Call::Read(file) => (file, 0, size(file)),
                _ => return Ok(0),
            };
            let (mut is, mut should_be) = (bytes(n), bytes(n));
            caller.read(file, at, &mut is)?;
            contents.fill(file, at, &mut should_be);
            if is == should_be { Ok(n) } else { Err(caller.wrong(file, at)) }
        }
    }
}
