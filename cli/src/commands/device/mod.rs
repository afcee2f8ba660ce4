//! `joulefs device`: how is a simulated, metered device presented to other programs, and where do its counts go?
//!
//! `fuse::gauge` presents it as a file; `device::gauge` counts.

mod backing;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use device::energy::Nanos;
use device::energy::profile::Profile;
use device::gauge::{CAUSES, Gauge, Report, Row, Setup, Speed};
use device::model;
use fuse::gauge::Files;
use fuse::{Caching, MountOptions};
use serde_json::json;

use crate::joules::{self, Line};
use crate::live::Live;
use crate::recording::{End, Recording};
use crate::{Failure, background, output, spent, whole};
use backing::{Backing, backing};

/// Serve a simulated, metered storage device as a file.
///
/// The device is the file DIR/disk, and any file system of any kernel can run on it. Reads and writes reach the device
/// as they are made, fsync is a flush, punching a hole (discard, TRIM) a discard. DIR/ledger.json always shows the
/// joules spent so far by component and by operation, the device's busy time, and its internal events.
///
/// Requests are answered at once unless --paced is given. The device's own time determines waiting, sleeping and their
/// energy. It follows the host's clock, and runs ahead of it while the simulated device is slower than the host.
///
/// Without --image contents are in memory and lost at the end. An image's data (every part of the file that is not a
/// hole) counts as written before the start. Runs in the background unless -f is given. `joulefs unmount DIR`, SIGINT
/// or SIGTERM ends it. In the foreground the ledger is printed at the end; --ledger keeps it up to date in a file.
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
    /// Directory for the two files.
    dir: PathBuf,
    /// The device: the name of a shipped profile, or the path of a profile file.
    #[arg(long, short, default_value = "kirin9000-ufs31")]
    profile: String,
    /// Size, e.g. 512M, 1.5G (powers of 1024) or 8GB (powers of 1000); needed unless the image exists.
    #[arg(long, short)]
    size: Option<String>,
    /// Keep contents in this file (created if missing) or block device.
    #[arg(long, short)]
    image: Option<PathBuf>,
    /// Delay answers as long as the real device would take.
    #[arg(long)]
    paced: bool,
    /// Write the ledger to this file, every second and at the end: JSON if it ends in .json, else a table.
    #[arg(long)]
    ledger: Option<PathBuf>,
    /// Record every request to this file, for `joulefs replay`.
    #[arg(long)]
    record: Option<PathBuf>,
    /// Stay in the foreground.
    #[arg(short, long)]
    foreground: bool,
    /// Internal: this process is the background part of another.
    #[arg(long, hide = true)]
    background: bool,
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
    let counters = spent::counted(&report.counters);
    if !counters.is_empty() {
        out += &format!("\n{counters}");
    }
    out
}

/// The ledger in the format given by the file's name.
fn text(report: &Report, file: &Path) -> String {
    match file.extension().is_some_and(|e| e == "json") {
        true => crate::hidden::shown_json(&format!("{:#}\n", report.json())),
        false => table(report) + "\n",
    }
}

/// A gauge, recorded if requested.
fn recorded(setup: Setup, recording: Option<Recording>) -> Result<(Gauge, Option<End>), Failure> {
    let Some(recording) = recording else { return Ok((Gauge::new(setup), None)) };
    let mut end = Err(Failure::from("no recording was started"));
    let gauge = Gauge::with(setup, |device| match recording.of_device(device.clone(), CAUSES) {
        Ok((recorder, recorded)) => {
            end = Ok(recorded);
            recorder
        }
        Err(e) => {
            end = Err(e);
            device
        }
    });
    Ok((gauge, Some(end?)))
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    if !args.foreground && !args.background {
        return in_background(args, as_json);
    }
    let profile = Profile::find(&args.profile)?;
    let ledger = args.ledger.as_ref().map(std::path::absolute).transpose().map_err(|e| format!("--ledger: {e}"))?;
    // Checked before an image is created.
    let dir = fuse::place(&args.dir).map_err(|e| e.to_string())?;
    let Backing { contents, held, discards_read_zero, source, made } = backing(args)?;
    let mut model = model::build(&profile, contents.blocks()).map_err(|e| match &args.size {
        Some(size) => Failure::Usage(format!("--size {size}: {e}")),
        None => e.to_string().into(),
    })?;
    model.fill(Nanos(0), &held);
    let speed = if args.paced { Speed::Paced } else { Speed::Unpaced };
    let setup = Setup { contents, discards_read_zero, model, profile, speed };
    let recording = args.record.as_deref().map(Recording::create).transpose()?;
    let (gauge, recording) = recorded(setup, recording)?;
    let gauge = Arc::new(gauge);
    let live = match ledger.clone() {
        Some(file) => {
            let gauge = gauge.clone();
            Some(Live::start(move || whole::write_often(&file, text(&gauge.report(), &file)))?)
        }
        None => None,
    };
    let ready = || {
        if let Some(made) = made {
            made.keep();
        }
        if args.background
            && let Err(e) = fuse::daemon::ready()
        {
            output::warn(&format!("cannot detach from the terminal: {e}"));
        }
    };
    let options = MountOptions { caching: Caching::Live, fsname: source, ..MountOptions::default() };
    let files = Arc::new(Files::new(gauge.clone()));
    let shown = fuse::run_until_unmounted(files, &dir, &options, ready).map_err(|e| Failure::from(e.to_string()));
    if let Some(live) = live {
        live.end();
    }
    let recorded = recording.map_or(Ok(()), |end| end.finish());
    let report = gauge.report();
    let written = ledger.map_or(Ok(()), |file| whole::write(&file, text(&report, &file)));
    if args.foreground {
        match as_json {
            true => output::print(&report.json()),
            false => output::lines(&table(&report)),
        }
    }
    shown.and(written).and(recorded)
}

fn in_background(args: &Args, as_json: bool) -> Result<(), Failure> {
    let me = std::env::current_exe().map_err(|e| format!("cannot find the joulefs executable: {e}"))?;
    let mut again = Command::new(me);
    // The background process gets the same arguments.
    again.args(std::env::args_os().skip(1).filter(|a| a != "--json")).arg("--background");
    let pid = background::start(again)?;
    let dir = &args.dir;
    output::done(
        as_json,
        &json!({
            "mounted": dir.display().to_string(),
            "disk": dir.join("disk").display().to_string(),
            "ledger": dir.join("ledger.json").display().to_string(),
            "process": pid,
        }),
    );
    Ok(())
}
