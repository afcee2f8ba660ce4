//! `joulefs inspect`: what state is a volume in, what does reading it cost, and what would help?
//!
//! Options, progress and exit codes around `inspect`, which reads volumes. `mounted` asks the kernel of a directory
//! instead, by `fiemap`. `groups` sums files up, `text` prints for people, `machine` for machines.

mod fiemap;
mod groups;
mod machine;
mod mounted;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use device::energy::profile::Profile;
use inspect::names::Path;
use inspect::price::Prices;
use inspect::verdict::Verdict;
use inspect::{File, InspectError, Options, Progress, Volume};

use crate::interrupt::Interrupt;
use crate::{Failure, image, output, progress, size};
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
    #[arg(long, value_name = "N", default_value_t = 7)]
    worst: usize,
    /// List the extents of those, too.
    #[arg(long)]
    extents: bool,
    /// What one request of a reader asks for at most.
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    read_ahead: String,
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

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    let profile = Profile::find(&args.profile)?;
    let bytes = size::within("--read-ahead", &args.read_ahead, 4096..=1 << 30)?;
    let options = Options { window: bytes / 4096, extents: args.extents };
    let is_dir = args.source.is_dir();
    if args.whole && !is_dir {
        return Err(Failure::usage("--whole is for a mounted directory: an image is always read whole"));
    }
    let found = if is_dir { directory(args, &options)? } else { image(args, &options)? };
    let files = match &found {
        Found::Volume(v) => &v.files,
        Found::Mounted(m) => &m.files,
    };
    let verdict = Verdict::of(files, &Prices::of(&profile), options.window);
    let seen = Seen { source: args.source.display().to_string(), found: &found, verdict, profile: &profile };
    match as_json {
        true => output::print(&machine::report(&seen, args, bytes)),
        false => text::lines(&seen, args).iter().for_each(|line| output::line(line)),
    }
    let damaged = matches!(&found, Found::Volume(v) if !v.findings.is_empty());
    Ok(if damaged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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
