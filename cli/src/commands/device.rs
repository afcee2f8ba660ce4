//! `joulefs device`

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use device::energy::Nanos;
use device::energy::profile::Profile;
use device::gauge::{CAUSES, Gauge, Report, Row, Setup, Speed};
use device::{Access, BlockDevice, FileDevice, Lba, Memory, model, open_image};
use fuse::gauge::Files;
use fuse::{Caching, MountOptions};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use serde_json::json;

use super::mkfs::parse_size;
use crate::joules::{self, Line};
use crate::recording::Recording;
use crate::{Failure, held, output};

/// Show a simulated, metered storage device as a file.
///
/// DIR/disk is the device: any file system of any kernel can be put on it. Reads and writes reach the
/// device as they are made, fsync is a flush, punching a hole (discard, TRIM) a discard. DIR/ledger.json
/// says at any time how many joules were spent, by which component and for which operation, how long
/// the device took, and what happened inside.
///
/// Requests are answered at once unless --paced is given; the device's own time, which decides about
/// waiting, sleeping and the energy of both, runs by the host's clock and ahead of it while the device
/// is busier than the host notices.
///
/// Without --image contents are in memory and gone at the end. What an image holds at the beginning lies on
/// the device already: whatever is no hole of the file. Runs in the background unless -f is
/// given; ends by `joulefs unmount DIR`, or SIGINT or SIGTERM to the process. In the foreground the
/// ledger is printed at the end; --ledger writes it to a file.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    joulefs device /mnt/dev --profile kirin9000-ufs31 --size 8G\n  \
    mkfs.ext4 /mnt/dev/disk && mount -o loop,discard /mnt/dev/disk /mnt/fs\n  \
    ... work in /mnt/fs ...\n  \
    umount /mnt/fs && cat /mnt/dev/ledger.json && joulefs unmount /mnt/dev\n\n\
  Where there are no loop devices (in most containers):\n  \
    fuse2fs -o fakeroot /mnt/dev/disk /mnt/fs          ext4 in user space\n  \
    linux.uml ubdb=/mnt/dev/disk ...                   a kernel as a process (6.1 keeps flushes)\n  \
    qemu-system-x86_64 -drive file=/mnt/dev/disk,format=raw,cache=none,discard=unmap ...\n  \
    joulefs mkfs /mnt/dev/disk && joulefs mount /mnt/dev/disk /mnt/fs")]
pub struct Args {
    /// Where the two files appear.
    dir: PathBuf,
    /// The device: the name of a shipped profile, or the path of a profile file.
    #[arg(long, short, default_value = "kirin9000-ufs31")]
    profile: String,
    /// Size, e.g. 512M, 8G; needed unless the image exists.
    #[arg(long, short)]
    size: Option<String>,
    /// Keep contents in this file (made if missing) or block device.
    #[arg(long, short)]
    image: Option<PathBuf>,
    /// Take as long as the device would.
    #[arg(long)]
    paced: bool,
    /// Write the ledger to this file at the end: JSON if it ends in .json, else a table.
    #[arg(long)]
    ledger: Option<PathBuf>,
    /// Record every request to this file, for `joulefs replay`.
    #[arg(long)]
    record: Option<PathBuf>,
    /// Stay in the foreground.
    #[arg(short)]
    foreground: bool,
    /// This process is the background part of another.
    #[arg(long, hide = true)]
    background: bool,
}

/// The largest device in blocks, 256 TiB: what memory can stand for.
const LARGEST: u64 = 1 << 36;

/// Where contents are kept, and whether discarded blocks read as zeroes there.
struct Backing {
    contents: Arc<dyn BlockDevice>,
    /// Blocks that hold data.
    held: Vec<(Lba, u64)>,
    discards_read_zero: bool,
    /// What the kernel shows as mounted.
    source: String,
}

fn size(args: &Args) -> Result<Option<u64>, Failure> {
    let Some(text) = &args.size else { return Ok(None) };
    let bytes = parse_size(text).ok_or_else(|| format!("--size {text}: not a size; write e.g. 512M or 8G"))?;
    match bytes / 4096 {
        0 => Err(format!("--size {text}: less than one block of 4096 bytes")),
        blocks if blocks > LARGEST => Err(format!("--size {text}: more than 256T")),
        _ => Ok(Some(bytes)),
    }
}

fn backing(args: &Args) -> Result<Backing, Failure> {
    let size = size(args)?;
    let Some(path) = &args.image else {
        let bytes = size.ok_or("--size is needed, e.g. --size 8G (or --image with a file that exists)")?;
        let source = format!("{}-{}", args.profile, bytes);
        return Ok(Backing {
            contents: Arc::new(Memory::new(bytes / 4096)),
            held: Vec::new(),
            discards_read_zero: true,
            source,
        });
    };
    let named = |e: std::io::Error| format!("{}: {e}", path.display());
    let fresh = match std::fs::metadata(path) {
        Ok(meta) => meta.is_file() && meta.len() == 0,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => true,
        Err(e) => return Err(named(e)),
    };
    let contents: Arc<dyn BlockDevice> = match size {
        Some(bytes) if fresh => Arc::new(FileDevice::create(path, bytes).map_err(|e| e.to_string())?),
        None if fresh => {
            return Err(format!("{}: no contents yet; its size is needed, e.g. --size 8G", path.display()));
        }
        _ => open_image(path, Access::ReadWrite).map_err(|e| e.to_string())?,
    };
    let bytes = contents.blocks().saturating_mul(4096);
    if let Some(asked) = size.filter(|asked| asked / 4096 != contents.blocks()) {
        return Err(format!("{}: holds {bytes} bytes, not the {asked} of --size; leave --size out", path.display()));
    }
    let path = std::fs::canonicalize(path).map_err(named)?;
    let source = path.display().to_string();
    let held = held::runs(&contents, &path)?;
    Ok(Backing { contents, held, discards_read_zero: has_holes(&path), source })
}

/// Whether the host can punch holes where the image lies. On a block device it can: Linux writes zeroes
/// where the device cannot.
fn has_holes(image: &Path) -> bool {
    let Ok(meta) = image.metadata() else { return false };
    if !meta.is_file() {
        return true;
    }
    let dir = image.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).is_ok_and(|probe| {
        let probe = File::from(probe);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        probe.set_len(4096).is_ok() && rustix::fs::fallocate(&probe, hole, 0, 4096).is_ok()
    })
}

/// The ledger for people.
fn table(report: &Report) -> String {
    let line = |row: Row| Line {
        name: format!("{:?}", row.operation).to_lowercase(),
        count: Some(row.count),
        energy: row.energy,
    };
    let lines: Vec<Line> = report.rows().map(line).collect();
    let mut out = format!(
        "{}: {} in {} of the device's time\n{}",
        report.profile,
        report.ledger.total(),
        joules::time(report.times.elapsed.0),
        joules::table("operation", &lines),
    );
    for (name, n) in report.counters.iter().filter(|(_, n)| *n > 0) {
        out += &format!("\n{name:<24} {n:>12}");
    }
    out
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    if !args.foreground && !args.background {
        return in_background(args, as_json);
    }
    let profile = Profile::find(&args.profile).map_err(|e| e.to_string())?;
    let dir = std::fs::canonicalize(&args.dir).map_err(|e| format!("{}: {e}", args.dir.display()))?;
    let ledger = args.ledger.as_ref().map(std::path::absolute).transpose().map_err(|e| format!("--ledger: {e}"))?;
    let Backing { contents, held, discards_read_zero, source } = backing(args)?;
    let mut model = model::build(&profile, contents.blocks()).map_err(|e| e.to_string())?;
    model.fill(Nanos(0), &held);
    let speed = if args.paced { Speed::Paced } else { Speed::Unpaced };
    let setup = Setup { contents, discards_read_zero, model, profile, speed };
    let recording = args.record.as_deref().map(Recording::create).transpose()?;
    let (gauge, recording) = match recording {
        None => (Gauge::new(setup), None),
        Some(recording) => {
            let mut recorded = Err(String::new());
            let gauge = Gauge::with(setup, |device| match recording.of_device(device.clone(), CAUSES) {
                Ok((recorder, end)) => {
                    recorded = Ok(end);
                    recorder
                }
                Err(e) => {
                    recorded = Err(e);
                    device
                }
            });
            (gauge, Some(recorded?))
        }
    };
    let gauge = Arc::new(gauge);
    let options = MountOptions { caching: Caching::Live, fsname: source, ..MountOptions::default() };
    let ready = || {
        if args.background
            && let Err(e) = fuse::daemon::ready()
        {
            eprintln!("joulefs: cannot leave the terminal: {e}");
        }
    };
    let out = fuse::run_until_unmounted(Arc::new(Files::new(gauge.clone())), &dir, &options, ready)
        .map_err(|e| e.to_string());
    let recorded = recording.map_or(Ok(()), |end| end.finish());
    let report = gauge.report();
    if let Some(file) = ledger {
        let text = if file.extension().is_some_and(|e| e == "json") {
            format!("{:#}\n", report.json())
        } else {
            table(&report) + "\n"
        };
        std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    if args.foreground {
        output::line(&if as_json { format!("{:#}", report.json()) } else { table(&report) });
    }
    out.and(recorded)
}

fn in_background(args: &Args, as_json: bool) -> Result<(), Failure> {
    let me = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut again = Command::new(me);
    // The same words, and one more.
    again.args(std::env::args_os().skip(1).filter(|a| a != "--json")).arg("--background");
    let pid = fuse::daemon::start(again).map_err(|e| {
        let text = e.to_string();
        text.strip_prefix("joulefs: ").unwrap_or(&text).to_owned()
    })?;
    output::done(
        as_json,
        &json!({
            "mounted": args.dir.display().to_string(),
            "disk": args.dir.join("disk").display().to_string(),
            "ledger": args.dir.join("ledger.json").display().to_string(),
            "process": pid,
        }),
    );
    Ok(())
}
