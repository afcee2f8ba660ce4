//! `joulefs inspect`: what state is a volume in, what does reading it cost, and what would help?
//!
//! Options, progress and exit codes around `inspect`, which reads volumes. `mounted` asks the kernel of a directory
//! instead, by `fiemap`. `groups` sums files up, `text` prints for people, `machine` for machines; `ground` says what of
//! the device can be drawn, and `page` draws it; `parquet` has it all in rows; `script` names commands that would help.

mod fiemap;
mod ground;
mod groups;
mod machine;
mod mounted;
mod page;
mod parquet;
mod script;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use device::energy::profile::Profile;
use inspect::advice::{self, Advice};
use inspect::names::Path;
use inspect::price::Prices;
use inspect::verdict::Verdict;
use inspect::{File, InspectError, Options, Progress, Volume};

use crate::interrupt::Interrupt;
use crate::{Failure, image, output, progress, size, whole};
use ground::{Ground, Shows};
use mounted::Mounted;

/// Say what state a volume is in, what reading it costs, and what defragmenting it would bring.
///
/// Of an image or a device: reads the tables of an F2FS volume and its nodes, in address order; no directory is opened,
/// and nothing is written. What is told is the state of the last checkpoint, without what fsync wrote after it.
///
/// Of a mounted directory: asks the kernel where the files below it lie, on any file system that says so (ext4, XFS,
/// Btrfs, F2FS and others; FIEMAP), without leaving that file system. It takes a second, and then tells what it has seen,
/// directories taken at random; --whole looks at everything.
///
/// An extent is a run of a file's blocks at neighbouring addresses. Fewest is how few there could be: one for each
/// stretch between holes. DoF, the degree of fragmentation, is extents by fewest (Ji et al., HotStorage'16). Contents in
/// inodes have none. A file with deltas is told by its base blocks.
///
/// Prices are those of a device profile, for a device that has just been switched on: one request for each extent and
/// each window of read-ahead, and each page of the device's map fetched once. "could be" is the same in the fewest
/// extents. Copying a file there costs a read, a write with its nodes, and a flush; it is earned back by the energy that
/// each whole read saves.
///
/// Log, segments, in use, f and age describe the volume: f is the factor of torn free space of FAGC TACO'23, as a share
/// of its maximum; age is mounted time since a segment was last written. Pieces of free space have one block (L1), two (L2),
/// up to four (L3) and so on; L9 are those above 512 KiB.
///
/// A path is made of what inodes record of themselves: one that may have changed since has a ~ before it, ? stands for a
/// directory that is not there.
///
/// Exit codes: 0 done, 1 the volume is damaged (what could be known is told, and what not), 2 wrong usage.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  joulefs inspect userdata.img\n  joulefs inspect userdata.img --by app --worst 20\n  \
    joulefs inspect userdata.img --html state.html\n  \
    joulefs inspect / --whole --script > defragment.sh\n  \
    joulefs --json inspect disk.img --worst 100 --extents > state.json"
)]
pub struct Args {
    /// An image, an Android sparse image, a block device, or a mounted directory of any file system.
    source: PathBuf,
    /// The device that files would be read from, as `joulefs energy profiles` lists them, or a profile's file.
    #[arg(long, short, default_value = "kirin9000-ufs31")]
    profile: String,
    /// What files are summed up by: what they are, whose they are, where they are.
    #[arg(long, value_enum, default_value_t = By::Class)]
    by: By,
    /// How many of the most fragmented files to list.
    ///
    /// Without it, as many as fit 40 lines, at most 7; 25 in JSON and pages.
    #[arg(long, value_name = "N")]
    worst: Option<usize>,
    /// List the extents of those, too.
    #[arg(long)]
    extents: bool,
    /// What one request of a reader asks for at most.
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    read_ahead: String,
    /// Write a page, too: a map of the volume on which files are found, beside the same numbers. One file, for any browser.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write Parquet files into a directory, too: files.parquet and segments.parquet, with --extents also extents.parquet.
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    /// Print, instead, the commands of the kernel's own tools (f2fs_io, e4defrag and others) that would put the worst files
    /// together, each with its price before it. Nothing is run.
    #[arg(long)]
    script: bool,
    /// Of a mounted directory, look at every file, however long it takes.
    #[arg(long)]
    whole: bool,
}

/// What files are summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Databases, executables, media, others.
    Class,
    /// Android's applications.
    App,
    /// The first two directories of their paths.
    Dir,
}

/// Where files were found.
enum Found {
    Volume(Volume),
    Mounted(Mounted),
}

/// What was found, and how it is priced.
struct Seen<'a> {
    source: String,
    found: &'a Found,
    verdict: Verdict,
    advice: Vec<Advice>,
    profile: &'a Profile,
}

impl Seen<'_> {
    fn files(&self) -> &[File] {
        match self.found {
            Found::Volume(v) => &v.files,
            Found::Mounted(m) => &m.files,
        }
    }
    fn path(&self, i: usize) -> Path {
        match self.found {
            Found::Volume(v) => v.path(&v.files[i]),
            Found::Mounted(m) => Path { bytes: m.paths[i].clone(), is_sure: true },
        }
    }
    /// A file's inode number.
    fn ino(&self, i: usize) -> Option<u64> {
        match self.found {
            Found::Volume(v) => Some(v.files[i].ino.0.into()),
            Found::Mounted(m) => m.numbers.get(i).copied(),
        }
    }
    /// The path of a file from what is inspected on: from the volume's root, or from the directory.
    fn path_inside(&self, i: usize) -> String {
        let path = self.path(i).text().into_owned();
        match self.found {
            Found::Volume(_) => path,
            Found::Mounted(_) => {
                let inside = path.strip_prefix(self.source.trim_end_matches('/')).unwrap_or(&path);
                format!("/{}", inside.trim_start_matches('/'))
            }
        }
    }
}

/// How long a mounted directory is looked at.
const SECOND: Duration = Duration::from_secs(1);

/// Worst files in JSON and pages, if nobody says how many.
const WORST: usize = 25;

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    if args.script && as_json {
        return Err(Failure::usage("--script is for a shell: it is not printed as JSON"));
    }
    let profile = Profile::find(&args.profile)?;
    let bytes = size::within("--read-ahead", &args.read_ahead, 4096..=1 << 30)?;
    let options =
        Options { window: bytes / 4096, extents: args.extents || args.html.is_some() || args.parquet.is_some() };
    let is_dir = args.source.is_dir();
    if args.whole && !is_dir {
        return Err(Failure::usage("--whole is for a mounted directory: an image is always read whole"));
    }
    let found = if is_dir { directory(args, &options)? } else { image(args, &options)? };
    let files = match &found {
        Found::Volume(v) => &v.files,
        Found::Mounted(m) => &m.files,
    };
    let prices = Prices::of(&profile);
    let verdict = Verdict::of(files, &prices, options.window);
    let (segments, reserving_places) = match &found {
        Found::Volume(v) => (v.checkpoint.is_some().then_some((&v.segments, &v.space)), false),
        Found::Mounted(m) => (None, m.file_system != "f2fs"),
    };
    let is_known = !matches!(&found, Found::Volume(v) if v.checkpoint.is_none());
    let advise = || advice::advise(files, &verdict, segments, reserving_places, &prices, options.window);
    let advice = if is_known { advise() } else { Vec::new() };
    let seen = Seen { source: args.source.display().to_string(), found: &found, verdict, advice, profile: &profile };
    if let Some(file) = &args.html {
        let report = machine::report(&seen, args, bytes);
        whole::write(file, with_ground(&found, |ground| page::page(&seen, &report, ground, None))?)?;
    }
    if let Some(dir) = &args.parquet {
        with_ground(&found, |ground| parquet::write(&seen, ground, args.extents, dir))?;
    }
    match as_json {
        _ if args.script => script::lines(&seen, args).iter().for_each(|line| output::line(line)),
        true => output::print(&machine::report(&seen, args, bytes)),
        false => text::lines(&seen, args).iter().for_each(|line| output::line(line)),
    }
    let damaged = matches!(&found, Found::Volume(v) if !v.findings.is_empty());
    Ok(if damaged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What of the device can be drawn.
fn with_ground<T>(found: &Found, draw: impl FnOnce(&Ground<'_>) -> T) -> T {
    match found {
        Found::Volume(v) => draw(&Ground {
            segments: &v.segments,
            first: v.superblock.main.0.into(),
            per_section: v.superblock.segs_per_sec,
            now: v.checkpoint.as_ref().map(|cp| cp.elapsed),
            has_logs: true,
            shows: Shows::Valid,
        }),
        Found::Mounted(m) => {
            let segments = &ground::of_files(&m.files, m.bytes / 4096);
            let (first, per_section, shows) = (0, 1, Shows::Files);
            draw(&Ground { segments, first, per_section, now: None, has_logs: false, shows })
        }
    }
}

fn image(args: &Args, options: &Options) -> Result<Found, Failure> {
    let dev = image::open_device(&args.source, false)?;
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
    let volume = volume.map_err(|e: InspectError| format!("{}: {e}", args.source.display()))?;
    Ok(Found::Volume(volume))
}

fn directory(args: &Args, options: &Options) -> Result<Found, Failure> {
    let stop = Interrupt::catch()?;
    let bar = progress::steps(mounted::inodes(&args.source), "looking");
    let mut tell = |files| {
        bar.inc(files);
        if args.whole {
            progress::show_if_slow(&bar);
        }
        !stop.came()
    };
    let time = (!args.whole).then_some(SECOND);
    let found = mounted::look(&args.source, time, (options.window, options.extents), &mut tell);
    bar.finish_and_clear();
    stop.end();
    found.map(Found::Mounted)
}
