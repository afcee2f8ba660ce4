//! Which calls are made, on which files, with which contents?
//!
//! The same for every [`Caller`]: they follow from the work and a seed. Left out on purpose: how a call is made, and
//! which caches are dropped between calls.

use std::collections::HashMap;

use device::{BLOCK, Rng, generate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Work {
    /// Creates files of one size, reads them, truncates and rewrites them, and reads them again (Scherl 2004, section
    /// 6.2).
    Files {
        /// KiB per file.
        kib: u64,
        /// MiB of all files.
        mib: u64,
    },
    /// Reads and writes one file in small calls, sequentially and at random (section 6.3).
    Updates {
        /// MiB of the file.
        mib: u64,
        /// MiB read, and MiB written, at random.
        at_random_mib: u64,
        /// KiB per call.
        call_kib: u64,
    },
    /// Appends to files in turn in small calls, and reads them sequentially (section 5.4).
    Appended {
        /// Number of files.
        files: u32,
        /// MiB of all files.
        mib: u64,
        /// KiB per call.
        call_kib: u64,
    },
    /// Writes files of many sizes one after the other (section 6.4).
    Pictures {
        /// Number of files.
        files: u32,
        /// KiB of all files.
        kib: u64,
        /// The volume was filled and then emptied to this percentage ([`super::fill`]); 0: it is new.
        #[serde(default)]
        full: u32,
    },
    /// Reads files of many sizes in the order of their creation (section 6.5).
    Music {
        /// Number of files.
        files: u32,
        /// KiB of all files.
        kib: u64,
        /// KiB per call.
        call_kib: u64,
        /// As in [`Work::Pictures`].
        #[serde(default)]
        full: u32,
    },
}

/// Files per directory (section 6.2).
pub const PER_DIRECTORY: u32 = 200;

/// A call; [`Contents`] has the bytes it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Creates a directory.
    Directory(u32),
    /// Creates a file and writes it whole.
    Create(u32),
    /// Reads a whole file.
    Read(u32),
    /// Truncates a file to zero and writes it whole.
    Rewrite(u32),
    /// Reads part of a file: offset and bytes.
    ReadAt(u32, u64, u64),
    /// Overwrites part of a file, or appends.
    WriteAt(u32, u64, u64),
}

impl Call {
    /// Whether it changes the disk.
    pub fn writes(self) -> bool {
        !matches!(self, Call::Read(_) | Call::ReadAt(..))
    }
}

/// Calls that are measured together; the volume is mounted for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The stage's name.
    pub name: &'static str,
    /// Its calls.
    pub calls: Vec<Call>,
}

/// What the work needs: the size of each file, and its stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of each file.
    pub sizes: Vec<u64>,
    /// The stages, in order.
    pub stages: Vec<Stage>,
}

impl Work {
    /// How full the volume is before the work, in percent; 0: it is new.
    pub fn full(&self) -> u32 {
        match *self {
            Work::Pictures { full, .. } | Work::Music { full, .. } => full,
            Work::Files { .. } | Work::Updates { .. } | Work::Appended { .. } => 0,
        }
    }

    /// The calls; `seed` determines the random ones.
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
            Work::Appended { files, mib, call_kib } => {
                let (files, call) = (files.max(1), call_kib.max(4) << 10);
                let each = (mib << 20) / call / u64::from(files);
                let all = move || (0..each).map(move |n| n * call);
                let append = all().flat_map(|at| (0..files).map(move |file| Call::WriteAt(file, at, call)));
                let read = (0..files).flat_map(|file| all().map(move |at| Call::ReadAt(file, at, call)));
                let stages = vec![
                    Stage { name: "make", calls: made(files) },
                    Stage { name: "append", calls: append.collect() },
                    Stage { name: "read", calls: read.collect() },
                ];
                Plan { sizes: vec![0; files as usize], stages }
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
                let stages =
                    vec![Stage { name: "put", calls: made(files) }, Stage { name: "play", calls: played.collect() }];
                Plan { sizes, stages }
            }
        }
    }
}

/// Calls that create directories and files, in order.
fn made(files: u32) -> Vec<Call> {
    let one = |n: u32| {
        let directory = n.is_multiple_of(PER_DIRECTORY).then_some(Call::Directory(n / PER_DIRECTORY));
        directory.into_iter().chain([Call::Create(n)])
    };
    (0..files).flat_map(one).collect()
}

/// Random sizes from half to one and a half times the mean, with a sum of `kib` KiB.
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

/// The directory's name.
pub fn directory_name(directory: u32) -> String {
    format!("d{directory:03}")
}

/// The file's name in its directory.
pub fn file_name(file: u32) -> String {
    format!("f{file:05}")
}

/// The files' contents: how often each file, and each part, was written.
#[derive(Debug, Default)]
pub struct Contents {
    whole: HashMap<u32, u64>,
    blocks: HashMap<(u32, u64), u64>,
}

impl Contents {
    /// Records that a file is rewritten.
    pub fn rewritten(&mut self, file: u32) {
        *self.whole.entry(file).or_default() += 1;
        self.blocks.retain(|(f, _), _| *f != file);
    }

    /// Records that part of a file is rewritten; the part begins at a block boundary.
    pub fn overwritten(&mut self, file: u32, at: u64, bytes: u64) {
        let first = at / BLOCK as u64;
        for block in first..first + bytes.div_ceil(BLOCK as u64) {
            *self.blocks.entry((file, block)).or_default() += 1;
        }
    }

    /// The bytes of a file from `at` on, which is at a block boundary.
    pub fn fill(&self, file: u32, at: u64, bytes: &mut [u8]) {
        let whole = self.whole.get(&file).copied().unwrap_or(0);
        let first = at / BLOCK as u64;
        for (block, piece) in (first..).zip(bytes.chunks_mut(BLOCK)) {
            let part = self.blocks.get(&(file, block)).copied().unwrap_or(0);
            generate(u64::from(file) | whole << 32 | part << 48, block as u32, piece);
        }
    }
}

/// Makes calls. A call that writes returns when its data is as durable as the measurement requires.
pub trait Caller {
    /// The error type.
    type Error;
    /// Creates a directory.
    fn directory(&mut self, directory: u32) -> Result<(), Self::Error>;
    /// Creates a file with these bytes, in one write call.
    fn create(&mut self, file: u32, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Truncates a file to zero and writes these bytes, in one write call.
    fn rewrite(&mut self, file: u32, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Overwrites part of a file.
    fn write(&mut self, file: u32, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Reads part of a file, completely.
    fn read(&mut self, file: u32, at: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;
    /// A file has wrong contents.
    fn wrong(&mut self, file: u32, at: u64) -> Self::Error;
}

/// Makes a call; returns the number of file bytes read or written. Data read must be what was last written.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Files in memory; one of them has a wrong byte.
    #[derive(Default)]
    struct Kept {
        files: HashMap<u32, Vec<u8>>,
        spoilt: Option<u32>,
    }

    impl Caller for Kept {
        type Error = String;
        fn directory(&mut self, _: u32) -> Result<(), String> {
            Ok(())
        }
        fn create(&mut self, file: u32, bytes: &[u8]) -> Result<(), String> {
            match self.files.insert(file, bytes.to_vec()) {
                None => Ok(()),
                Some(_) => Err(format!("{file} is there")),
            }
        }
        fn rewrite(&mut self, file: u32, bytes: &[u8]) -> Result<(), String> {
            self.files.insert(file, bytes.to_vec()).map(drop).ok_or_else(|| format!("{file} is not there"))
        }
        fn write(&mut self, file: u32, at: u64, bytes: &[u8]) -> Result<(), String> {
            let whole = self.files.get_mut(&file).ok_or_else(|| format!("{file} is not there"))?;
            whole[at as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        fn read(&mut self, file: u32, at: u64, bytes: &mut [u8]) -> Result<(), String> {
            let whole = self.files.get(&file).ok_or_else(|| format!("{file} is not there"))?;
            bytes.copy_from_slice(&whole[at as usize..][..bytes.len()]);
            if self.spoilt == Some(file) {
                bytes[0] ^= 1;
            }
            Ok(())
        }
        fn wrong(&mut self, file: u32, _: u64) -> String {
            format!("{file} is wrong")
        }
    }

    fn works() -> [Work; 4] {
        [
            Work::Files { kib: 12, mib: 3 },
            Work::Updates { mib: 2, at_random_mib: 4, call_kib: 8 },
            Work::Pictures { files: 9, kib: 700, full: 0 },
            Work::Music { files: 5, kib: 1500, call_kib: 64, full: 20 },
        ]
    }

    fn all(work: &Work, spoilt: Option<u32>) -> Result<u64, String> {
        let plan = work.plan(1);
        let (mut kept, mut contents) = (Kept { spoilt, ..Kept::default() }, Contents::default());
        let calls = plan.stages.iter().flat_map(|s| &s.calls);
        calls.map(|call| make(&mut kept, &plan, &mut contents, *call)).sum()
    }

    #[test]
    fn every_work_reads_what_it_wrote_and_notices_a_byte_that_is_another() {
        for work in works() {
            let moved = all(&work, None).unwrap();
            assert!(moved > 0, "{work:?}");
            let notices = !matches!(work, Work::Pictures { .. });
            assert_eq!(all(&work, Some(0)).is_err(), notices, "{work:?}");
        }
    }

    #[test]
    fn sizes_add_up_and_stages_move_what_they_should() {
        let bytes = |work: &Work| work.plan(1).sizes.iter().sum::<u64>();
        let [files, updates, pictures, music] = works();
        assert_eq!(bytes(&files), 256 * 12 * 1024);
        assert_eq!((bytes(&updates), bytes(&pictures), bytes(&music)), (2 << 20, 700 << 10, 1500 << 10));
        let plan = files.plan(1);
        let names: Vec<_> = plan.stages.iter().map(|s| s.name).collect();
        assert_eq!(names, ["create", "read", "rand_read", "rewrite", "reread", "rand_reread"]);
        // Two directories for 256 files.
        assert_eq!(plan.stages[0].calls.len(), 258);
        let (mut shuffled, in_order) = (plan.stages[2].calls.clone(), &plan.stages[1].calls);
        assert_ne!(&shuffled, in_order);
        shuffled.sort_by_key(|call| if let Call::Read(f) = call { *f } else { u32::MAX });
        assert_eq!(&shuffled, in_order);
        let of = |stage: usize| updates.plan(1).stages[stage].calls.len();
        assert_eq!((of(1), of(2), of(3)), (256, 512, 512));
        let played: u64 =
            music.plan(1).stages[1].calls.iter().map(|c| if let Call::ReadAt(_, _, n) = c { *n } else { 0 }).sum();
        assert_eq!(played, 1500 << 10);
    }

    #[test]
    fn the_same_seed_gives_the_same_calls() {
        for work in works() {
            assert_eq!(work.plan(7), work.plan(7));
        }
        assert_ne!(works()[0].plan(7), works()[0].plan(8));
    }
}
