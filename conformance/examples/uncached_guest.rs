//! Makes the calls of `lab::uncached` on a file system of the running kernel, and lets the kernel record the disk
//! requests. `scripts/record-scherl` boots a kernel as a process that runs only this.
//!
//!     uncached_guest WORK SEED TYPE OPTIONS OUT
//!     uncached_guest fill PERCENT TYPE OPTIONS OUT
//!
//! The second form creates files until the volume is full, if it has none, and deletes some until PERCENT of it is in
//! use (`lab::uncached::fill`); it records nothing.
//!
//! WORK is one of `lab::uncached::calls::Work` as TOML. The volume is `/dev/ubda`. `uncached_pack` explains the reads
//! of `/dev/ubdb`. Each stage has a separate mount. Before each call the kernel drops all clean pages, of files and of
//! metadata, but not names and inodes; a call that writes ends with a sync of the volume and a flush of the disk.
//! `OUT/raw.N` is the kernel's trace of `block_rq_issue` for stage N.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lab::uncached::calls::{self, Caller, Contents, Work, make};
use lab::uncached::fill;
use rustix::fs::{Advice, fadvise, syncfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const VOLUME: &str = "/dev/ubda";
const MARKS: &str = "/dev/ubdb";
const AT: &str = "/tmp/volume";
const TRACING: &str = "/sys/kernel/tracing";

/// Reads a marker block of the second disk. Opened only for this: when its last user closes it, the kernel drops the
/// references to recently used buffers of all disks, which would otherwise stay cached.
fn mark(block: u64) -> Outcome<()> {
    let mut bytes = [0; 4096];
    Ok(File::open(MARKS)?.read_exact_at(&mut bytes, block * 4096)?)
}

/// The mounted volume.
struct Volume {
    disk: File,
    root: File,
    /// The file used for partial reads and writes.
    open: Option<(u32, File)>,
}

impl Volume {
    fn mount(fs: &str, options: &str) -> Outcome<Self> {
        let options = std::ffi::CString::new(options)?;
        mount(VOLUME, AT, fs, MountFlags::NOATIME, Some(options.as_c_str()))?;
        Ok(Volume { disk: File::open(VOLUME)?, root: File::open(AT)?, open: None })
    }

    fn unmount(self) -> Outcome<()> {
        drop(self);
        Ok(unmount(AT, UnmountFlags::empty())?)
    }

    fn path(file: u32) -> PathBuf {
        let directory = calls::directory_name(calls::directory_of(file));
        Path::new(AT).join(directory).join(calls::file_name(file))
    }

    /// Syncs all writes to the disk and makes them durable.
    fn settle(&self) -> Outcome<()> {
        syncfs(&self.root)?;
        Ok(self.disk.sync_all()?)
    }

    fn put(&mut self, file: u32, how: &OpenOptions, bytes: &[u8]) -> Outcome<()> {
        let out = how.open(Self::path(file))?;
        out.write_all_at(bytes, 0)?;
        self.settle()
    }

    /// Keeps a file open for partial reads and writes.
    fn part(&mut self, file: u32) -> Outcome<&File> {
        if self.open.as_ref().is_none_or(|(n, _)| *n != file) {
            let opened = OpenOptions::new().read(true).write(true).open(Self::path(file))?;
            // Read-ahead data would be dropped before its use.
            fadvise(&opened, 0, None, Advice::Random)?;
            self.open = Some((file, opened));
        }
        Ok(self.open.as_ref().map(|(_, file)| file).ok_or("not open")?)
    }
}

impl Caller for Volume {
    type Error = Box<dyn std::error::Error>;

    fn directory(&mut self, directory: u32) -> Outcome<()> {
        fs::create_dir(Path::new(AT).join(calls::directory_name(directory)))?;
        self.settle()
    }
    fn create(&mut self, file: u32, bytes: &[u8]) -> Outcome<()> {
        self.put(file, OpenOptions::new().write(true).create_new(true), bytes)
    }
    fn rewrite(&mut self, file: u32, bytes: &[u8]) -> Outcome<()> {
        self.put(file, OpenOptions::new().write(true).truncate(true), bytes)
    }
    fn write(&mut self, file: u32, at: u64, bytes: &[u8]) -> Outcome<()> {
        self.part(file)?.write_all_at(bytes, at)?;
        self.settle()
    }
    fn read(&mut self, file: u32, at: u64, bytes: &mut [u8]) -> Outcome<()> {
        Ok(self.part(file)?.read_exact_at(bytes, at)?)
    }
    fn wrong(&mut self, file: u32, at: u64) -> Self::Error {
        format!("{}: does not contain what was written, from byte {at} on", Self::path(file).display()).into()
    }
}

/// Moves the trace into a file and empties the buffer.
fn dump(to: &Path) -> Outcome<()> {
    let mut out = File::create(to)?;
    let mut text = Vec::new();
    File::open(Path::new(TRACING).join("trace"))?.read_to_end(&mut text)?;
    // "# entries-in-buffer/entries-written: 53/53   #P:1"
    let head = String::from_utf8_lossy(&text[..text.len().min(400)]).into_owned();
    let counts = head.split_once("entries-written: ").and_then(|(_, rest)| rest.split_whitespace().next());
    let (kept, written) = counts.and_then(|c| c.split_once('/')).ok_or("the trace has no head")?;
    if kept != written {
        return Err(format!("the kernel's buffer kept {kept} of {written} events").into());
    }
    out.write_all(&text)?;
    Ok(fs::write(Path::new(TRACING).join("trace"), "\n")?)
}

/// The volume being filled.
struct Filled(File);

fn no_room(e: &std::io::Error) -> bool {
    e.kind() == std::io::ErrorKind::StorageFull
}

impl Filled {
    fn path(file: u32) -> PathBuf {
        Path::new(AT).join(fill::directory_name(file)).join(fill::file_name(file))
    }

    fn try_make(file: u32) -> std::io::Result<()> {
        let mut bytes = [0; fill::BYTES as usize];
        device::generate(u64::from(file), 0, &mut bytes);
        fs::create_dir_all(Path::new(AT).join(fill::directory_name(file)))?;
        let mut out = File::create(Self::path(file))?;
        // Delayed allocation may lack space at writeback.
        out.write_all(&bytes)
    }

    /// The existing files.
    fn all() -> Outcome<Vec<u32>> {
        let mut found = Vec::new();
        for directory in fs::read_dir(AT)? {
            let directory = directory?.path();
            if !directory.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"x")) {
                continue;
            }
            for file in fs::read_dir(directory)? {
                let name = file?.file_name().into_string().map_err(|_| "a strange name")?;
                found.push(name.trim_start_matches('y').parse()?);
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

impl fill::Room for Filled {
    type Error = Box<dyn std::error::Error>;

    fn make(&mut self, file: u32) -> Outcome<bool> {
        let done = Self::try_make(file);
        if file.is_multiple_of(4096) {
            syncfs(&self.0)?;
        }
        match done {
            Err(e) if no_room(&e) => {
                match fs::remove_file(Self::path(file)) {
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                    other => other?,
                }
                Ok(false)
            }
            other => Ok(other.map(|()| true)?),
        }
    }
    fn delete(&mut self, file: u32) -> Outcome<()> {
        Ok(fs::remove_file(Self::path(file))?)
    }
    fn used(&mut self) -> Outcome<f64> {
        let now = rustix::fs::fstatvfs(&self.0)?;
        Ok(100.0 * (now.f_blocks - now.f_bfree) as f64 / now.f_blocks as f64)
    }
}

fn fill_to(percent: u32, fs_type: &str, options: &str) -> Outcome<()> {
    let volume = Volume::mount(fs_type, options)?;
    let mut room = Filled(File::open(AT)?);
    if Filled::all()?.is_empty() {
        println!("{} files make it full", fill::fill(&mut room)?);
        syncfs(&room.0)?;
    }
    fill::thin(&mut room, Filled::all()?, percent, 1)?;
    syncfs(&room.0)?;
    println!("{:.1} % in use, {} files", fill::Room::used(&mut room)?, Filled::all()?.len());
    drop(room);
    volume.unmount()
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    fs::create_dir_all(AT)?;
    if let [mode, percent, fs_type, options, _] = &args[..]
        && mode == "fill"
    {
        return fill_to(percent.parse()?, fs_type, options);
    }
    let [work, seed, fs_type, options, out] = &args[..] else {
        return Err("usage: uncached_guest WORK SEED TYPE OPTIONS OUT".into());
    };
    let work: Work = toml::from_str(work)?;
    let plan = work.plan(seed.parse()?);
    let tracing = |file: &str, what: &str| fs::write(Path::new(TRACING).join(file), what);
    tracing("buffer_size_kb", "300000")?;
    tracing("events/block/block_rq_issue/enable", "1")?;
    // Suppresses the kernel's log message for each drop.
    fs::write("/proc/sys/vm/drop_caches", "4")?;
    let forget = OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches")?;
    let mut contents = Contents::default();
    for (n, stage) in plan.stages.iter().enumerate() {
        mark(1)?;
        let mut volume = Volume::mount(fs_type, options)?;
        volume.settle()?;
        mark(3 + n as u64)?;
        let mut moved = 0;
        for call in &stage.calls {
            mark(0)?;
            forget.write_at(b"1", 0)?;
            moved += make(&mut volume, &plan, &mut contents, *call)?;
        }
        mark(2)?;
        volume.unmount()?;
        dump(&Path::new(out).join(format!("raw.{n}")))?;
        println!("{}: {} calls, {moved} bytes", stage.name, stage.calls.len());
    }
    fs::write(Path::new(out).join("stages"), plan.stages.iter().map(|s| format!("{}\n", s.name)).collect::<String>())?;
    Ok(())
}
