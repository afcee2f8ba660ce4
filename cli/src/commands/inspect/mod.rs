//! `joulefs inspect`: what state is a volume in, what does reading it cost, and what would help?
//!
//! Options, progress and exit codes around `inspect`, which reads volumes. For a directory, `mounted` asks the kernel
//! through `fiemap` instead. `groups` sums files up, `text` prints for people, `machine` for machines; `ground` selects
//! the part of the device that can be drawn, and `page` draws it; `parquet` writes everything as rows; `script` lists
//! commands that would help; `difference` compares two reports.

mod difference;
mod ground;
mod groups;
mod machine;
mod mounted;
mod page;
mod parquet;
mod script;
mod seen;
mod segment_bits;
mod text;

use std::path::{Path as FsPath, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use device::BlockDevice;
use device::energy::profile::Profile;
use inspect::ext;
use inspect::{InspectError, Options, Progress, Volume};

use crate::interrupt::Interrupt;
use crate::{Failure, image, output, progress, size, whole};
use difference::Look;
use mounted::Mounted;
pub use seen::{Found, Seen};

/// Report fragmentation, read cost and the gain of defragmenting.
///
/// For an image or block device: reads the tables and nodes of an F2FS volume in address order; opens no directory and
/// writes nothing. The report is of the last checkpoint, without files fsynced after it.
///
/// For a directory: asks the kernel for the extents of the files below it, on any file system that supports FIEMAP
/// (ext4, XFS, Btrfs, F2FS and others), and stays on that file system. It visits directories at random for one second
/// and reports that sample; --whole visits all.
///
/// An extent is a run of a file's blocks at consecutive addresses. Fewest is the minimum number of extents: one per
/// range between holes. DoF, the degree of fragmentation, is extents divided by fewest (Ji et al., HotStorage'16).
/// Inline contents have no extents. For a file with deltas, the base blocks count.
///
/// Prices come from a device profile, for a device that was just powered on: one request per extent and per read-ahead
/// window, and each page of the device's map is fetched once. "could be" is the price with the fewest extents. Copying
/// a file costs a read, a write with its nodes, and a flush; "earned" is the number of full reads whose savings repay
/// the copy.
///
/// Log, segments, in use, f and age describe the volume: f is the factor of fragmented free space (FAGC TACO'23), as a
/// share of its maximum; age is the mounted time since a segment was last written. Free-space fragments have one block
/// (L1), two (L2), up to four (L3) and so on; L9 are those above 512 KiB.
///
/// A path is built from the name and parent stored in each inode: ~ marks a path that may be outdated, ? stands for a
/// missing directory.
///
/// Exit codes: 0 done, 1 the volume is damaged (the report says what is unknown), 2 wrong usage.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  joulefs inspect userdata.img\n  joulefs inspect userdata.img --by app --worst 20\n  \
    joulefs inspect userdata.img --html state.html\n  \
    joulefs inspect after.img --diff before.img --html changed.html\n  \
    joulefs inspect / --whole --script > defragment.sh\n  \
    joulefs --json inspect disk.img --worst 100 --extents > state.json"
)]
pub struct Args {
    /// An image, an Android sparse image, a block device, or a directory of any mounted file system.
    source: PathBuf,
    /// Device profile for the prices: a shipped profile's name (`joulefs energy profiles` lists them) or a profile
    /// file.
    #[arg(long, short, default_value = "kirin9000-ufs31")]
    profile: String,
    /// How to group files: by class, by app, or by directory.
    #[arg(long, value_enum, default_value_t = By::Class)]
    by: By,
    /// Number of most fragmented files to list.
    ///
    /// Default: as many as fit in 40 lines, at most 7; 25 in JSON and HTML.
    #[arg(long, value_name = "N")]
    worst: Option<usize>,
    /// List the extents of those files too.
    #[arg(long)]
    extents: bool,
    /// Largest read request.
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    read_ahead: String,
    /// Also write an HTML page: the same numbers with a searchable map of the volume. A single file, for any browser.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write Parquet files into this directory: files.parquet and segments.parquet, with --extents also
    /// extents.parquet.
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    /// Print the changes since another state instead: an image, a directory, or JSON of an earlier inspect.
    ///
    /// With two images the HTML map also shows the changes. SOURCE may be JSON as well.
    #[arg(long, value_name = "OTHER")]
    diff: Option<PathBuf>,
    /// Print a shell script instead: the commands that defragment the worst files with the file system's own tools
    /// (f2fs_io, e4defrag and others), each with its price. Nothing is run.
    #[arg(long)]
    script: bool,
    /// For a directory: visit every file, however long it takes.
    #[arg(long)]
    whole: bool,
}

/// How to group files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// By class: databases, executables, media, others.
    Class,
    /// By Android application.
    App,
    /// By the first two directories of the path.
    Dir,
}

/// Default time for examining a mounted directory.
const SECOND: Duration = Duration::from_secs(1);

/// Default number of worst files in JSON and pages.
const WORST: usize = 25;

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    if args.script && as_json {
        return Err(Failure::usage("--script prints a shell script; leave out --json"));
    }
    let profile = Profile::find(&args.profile)?;
    let bytes = size::within("--read-ahead", &args.read_ahead, 4096..=1 << 30)?;
    let options =
        Options { window: bytes / 4096, extents: args.extents || args.html.is_some() || args.parquet.is_some() };
    if args.whole && ![Some(&args.source), args.diff.as_ref()].into_iter().flatten().any(|p| p.is_dir()) {
        return Err(Failure::usage("--whole is for a directory; an image is always read whole"));
    }
    if difference::is_json(&args.source) {
        return of_json(args, (&profile, bytes), as_json);
    }
    let found = find(&args.source, args, &options)?;
    let seen = Seen::of(args.source.display().to_string(), &found, &profile, options.window);
    let mut report = machine::report(&seen, args, bytes);
    let other = args.diff.as_ref().map(|other| Other::at(other, args, &options)).transpose()?;
    if let Some(other) = &other {
        let now = Look::of(&seen, &report);
        let mut diff = difference::between(&other.look(args, (&profile, bytes))?, &now, changed(args))?;
        if let Other::Found(_, before) = other {
            diff["segments"] = before.with_ground(|b| found.with_ground(|n| difference::segments(b, n))).into();
        }
        report["diff"] = diff;
    }
    if let Some(file) = &args.html {
        let before = match &other {
            Some(Other::Found(_, before)) if report["diff"]["segments"].is_object() => Some(before),
            _ => None,
        };
        let page = found.with_ground(|now| match before {
            Some(before) => before.with_ground(|before| page::page(&seen, &report, now, Some(before))),
            None => page::page(&seen, &report, now, None),
        });
        whole::write(file, page?)?;
    }
    if let Some(dir) = &args.parquet {
        found.with_ground(|ground| parquet::write(&seen, ground, args.extents, dir))?;
    }
    let lines = match as_json {
        true => {
            output::print(&report);
            Vec::new()
        }
        _ if args.script => script::lines(&seen, args),
        _ if other.is_some() => difference::text::lines(&seen.source, &report["diff"]),
        _ => text::lines(&seen, args),
    };
    lines.iter().for_each(|line| output::line(line));
    let damaged = !found.damage().is_empty();
    Ok(if damaged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Number of changed files to list.
fn changed(args: &Args) -> usize {
    args.worst.unwrap_or(difference::text::FILES)
}

/// The other side of the comparison.
enum Other {
    /// An earlier JSON report.
    Told(String, String),
    /// An image or a directory, with its name.
    Found(String, Found),
}

impl Other {
    fn at(path: &FsPath, args: &Args, options: &Options) -> Result<Self, Failure> {
        let name = path.display().to_string();
        if !difference::is_json(path) {
            return Ok(Other::Found(name, find(path, args, options)?));
        }
        let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
        Ok(Other::Told(name, text))
    }
    fn look(&self, args: &Args, (profile, bytes): (&Profile, u64)) -> Result<Look, Failure> {
        match self {
            Other::Told(name, text) => Look::of_json(name, text),
            Other::Found(name, found) => {
                let seen = Seen::of(name.clone(), found, profile, bytes / 4096);
                Ok(Look::of(&seen, &machine::report(&seen, args, bytes)))
            }
        }
    }
}

/// Reports the changes up to a JSON report; nothing else can be reported about it.
fn of_json(args: &Args, prices: (&Profile, u64), as_json: bool) -> Result<ExitCode, Failure> {
    let Some(other) = args.diff.as_ref().filter(|_| args.html.is_none() && args.parquet.is_none() && !args.script)
    else {
        return Err(Failure::usage(format!(
            "{}: JSON of an earlier inspect can only be compared; give --diff",
            args.source.display()
        )));
    };
    let options = Options { window: prices.1 / 4096, extents: false };
    let now = Other::at(&args.source, args, &options)?.look(args, prices)?;
    let before = Other::at(other, args, &options)?.look(args, prices)?;
    let diff = difference::between(&before, &now, changed(args))?;
    match as_json {
        true => output::print(&machine::compared(&now.name, diff)),
        false => difference::text::lines(&now.name, &diff).iter().for_each(|line| output::line(line)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads an image, or queries the kernel about a directory.
fn find(source: &FsPath, args: &Args, options: &Options) -> Result<Found, Failure> {
    if source.is_dir() { directory(source, args.whole, options) } else { image(source, options) }
}

fn image(source: &FsPath, options: &Options) -> Result<Found, Failure> {
    let dev = image::open_device(source, false)?;
    if ext::is_ext(&*dev) {
        return of_ext(source, dev, options);
    }
    image::only_f2fs(&*dev, source, "joulefs inspect")?;
    let stop = Interrupt::catch()?;
    let bar = progress::steps(Volume::steps(&*dev), "looking");
    let mut tell = |blocks| {
        bar.inc(blocks);
        progress::show_if_slow(&bar);
        !stop.came()
    };
    let volume = Volume::read(&*dev, options, &mut Progress::new(&mut tell));
    bar.finish_and_clear();
    stop.end();
    let volume = volume.map_err(|e: InspectError| format!("{}: {e}", source.display()))?;
    Ok(Found::Volume(volume))
}

fn of_ext(source: &FsPath, dev: Arc<dyn BlockDevice>, options: &Options) -> Result<Found, Failure> {
    let stop = Interrupt::catch()?;
    let bar = progress::steps(ext::steps(&*dev), "looking");
    let mut tell = |inodes| {
        bar.inc(inodes);
        progress::show_if_slow(&bar);
        !stop.came()
    };
    let tree = ext::read(dev, options, &mut Progress::new(&mut tell));
    bar.finish_and_clear();
    stop.end();
    Ok(Found::Mounted(Mounted::of_tree(tree.map_err(|e| format!("{}: {e}", source.display()))?)))
}

fn directory(source: &FsPath, whole: bool, options: &Options) -> Result<Found, Failure> {
    let stop = Interrupt::catch()?;
    let bar = progress::steps(mounted::inodes(source), "looking");
    let mut tell = |files| {
        bar.inc(files);
        if whole {
            progress::show_if_slow(&bar);
        }
        !stop.came()
    };
    let time = (!whole).then_some(SECOND);
    let found = mounted::look(source, time, (options.window, options.extents), &mut tell);
    bar.finish_and_clear();
    stop.end();
    found.map(Found::Mounted)
}
