//! `joulefs mount` and `joulefs unmount`

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use f2fs::MountOptions;
use f2fs::cause::Cause;
use serde_json::json;
use vfs::FileSystem;

use crate::image::Image;
use crate::recording::Recording;
use crate::{Failure, output, power};

/// Mount an image through FUSE.
///
/// Runs in the background unless -f is given. The mount ends by `joulefs unmount DIR`,
/// `fusermount3 -u DIR`, or SIGINT or SIGTERM to the process, and always leaves a clean volume.
/// `joulefs unmount` returns when the volume is closed; `umount` may return earlier.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs mount disk.img /mnt -o noatime\n  ...\n  joulefs unmount /mnt\n\n\
    Options for -o: ro, allow_other, noatime, dev, suid, noexec, writeback=on|off,\n  \
    discard=on|off, inline=on|off, threads=N, node_cache=MIB, dirty=MIB, dir_cache=MIB,\n  \
    gc=greedy|cost-benefit|atgc|mwhfb|fagc|joule (who chooses what is cleaned; default cost-benefit),\n  \
    background_gc=on|off, power=battery|powered|auto (default battery; auto: as the system says),\n  stats=FILE (what was written and why, at the end; JSON if FILE ends in .json)")]
pub struct Args {
    /// The image or block device.
    image: PathBuf,
    /// Where it appears.
    dir: PathBuf,
    /// Record every call to the file system to this file, for `joulefs replay`.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Record every request to the image to this file, for `joulefs replay`.
    #[arg(long, value_name = "FILE")]
    record_device: Option<PathBuf>,
    /// Stay in the foreground.
    #[arg(short)]
    foreground: bool,
    /// Mount options, comma-separated.
    #[arg(short, value_delimiter = ',')]
    options: Vec<String>,
    /// This process is the background part of another.
    #[arg(long, hide = true)]
    background: bool,
}

/// Unmount and wait until the volume is closed.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs unmount /mnt && fsck.f2fs --dry-run disk.img")]
pub struct UnmountArgs {
    /// Where it is mounted.
    dir: PathBuf,
    /// Seconds to wait for the last checkpoint.
    #[arg(long, default_value_t = 60)]
    wait: u64,
}

struct Parsed {
    core: MountOptions,
    fuse: fuse::MountOptions,
    stats: Option<PathBuf>,
    /// The system says where the power comes from.
    power_auto: bool,
}

fn parse(args: &Args) -> Result<Parsed, Failure> {
    let mut core = MountOptions::default();
    let mut fuse = fuse::MountOptions::default();
    let mut stats = None;
    let mut power_auto = false;
    for option in args.options.iter().filter(|o| !o.is_empty()) {
        let (name, value) = option.split_once('=').map_or((option.as_str(), None), |(n, v)| (n, Some(v)));
        let on = || match value {
            None | Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(v) => Err(format!("-o {name}={v}: on or off")),
        };
        let number = || {
            value
                .and_then(|v| v.parse::<usize>().ok())
                .filter(|n| (1..=1 << 20).contains(n))
                .ok_or_else(|| format!("-o {option}: write {name}=NUMBER, 1 or more"))
        };
        match name {
            "ro" => core.read_only = true,
            "rw" => core.read_only = false,
            "allow_other" => fuse.allow_other = on()?,
            "noatime" => fuse.noatime = true,
            "dev" => fuse.dev = true,
            "suid" => fuse.suid = true,
            "noexec" => fuse.exec = false,
            "writeback" => fuse.caching = if on()? { fuse::Caching::Writeback } else { fuse::Caching::Through },
            "threads" => fuse.threads = number()?,
            "discard" => core.discard = on()?,
            "nodiscard" => core.discard = false,
            "inline" => core.inline = on()?,
            "node_cache" => core.node_cache = number()? * 256,
            "dirty" => core.dirty_limit = number()? * 256,
            "dir_cache" => core.dir_cache = number()? * 256,
            "stats" => {
                let file = value.ok_or("-o stats: write stats=FILE")?;
                // The background part has another working directory.
                stats = Some(std::path::absolute(file).map_err(|e| format!("-o stats={file}: {e}"))?);
            }
            "power" if value == Some("auto") => power_auto = true,
            "gc" | "power" | "background_gc" => {
                core.gc.set(name, value.unwrap_or_default()).map_err(|why| format!("-o {option}: {name} {why}"))?;
                power_auto &= name != "power";
            }
            _ => {
                return Err(format!("unknown mount option {option:?}; see joulefs mount --help"));
            }
        }
    }
    fuse.read_only = core.read_only;
    if power_auto {
        core.gc.power = power::now();
    }
    Ok(Parsed { core, fuse, stats, power_auto })
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let mut parsed = parse(args)?;
    if !args.foreground && !args.background {
        let me = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
        let mut again = Command::new(me);
        again.arg("mount").arg(&args.image).arg(&args.dir).arg("--background");
        if !args.options.is_empty() {
            again.arg("-o").arg(args.options.join(","));
        }
        for (option, file) in [("--record", &args.record), ("--record-device", &args.record_device)] {
            if let Some(file) = file {
                again.arg(option).arg(file);
            }
        }
        let pid = fuse::daemon::start(again).map_err(|e| {
            let text = e.to_string();
            text.strip_prefix("joulefs: ").unwrap_or(&text).to_owned()
        })?;
        output::done(as_json, &json!({ "mounted": args.dir.display().to_string(), "process": pid }));
        return Ok(());
    }
    let path = std::fs::canonicalize(&args.image).map_err(|e| format!("{}: {e}", args.image.display()))?;
    let dir = std::fs::canonicalize(&args.dir).map_err(|e| format!("{}: {e}", args.dir.display()))?;
    parsed.fuse.fsname = path.display().to_string();
    let recording = |file: &Option<PathBuf>| file.as_deref().map(Recording::create).transpose();
    let (calls, requests) = (recording(&args.record)?, recording(&args.record_device)?);
    let mut ends = Vec::new();
    let image = Image::open_through(&path, parsed.core, |device| {
        let Some(recording) = requests else { return Ok(device) };
        let causes: Vec<(u8, &str)> = Cause::ALL.iter().map(|c| (*c as u8, c.text())).collect();
        let (device, end) = recording.of_device(device, &causes)?;
        ends.push(end);
        Ok(device)
    })?;
    let mut served: Arc<dyn FileSystem> = image.vol.clone();
    if let Some(recording) = calls {
        let (recorder, end) = recording.of_calls(served)?;
        served = recorder;
        ends.push(end);
    }
    let ready = || {
        if args.background
            && let Err(e) = fuse::daemon::ready()
        {
            eprintln!("joulefs: cannot leave the terminal: {e}");
        }
    };
    let watch = parsed.power_auto.then(|| power::Watch::start(served.clone()));
    let out = fuse::run_until_unmounted(served, &dir, &parsed.fuse, ready).map_err(|e| e.to_string());
    drop(watch);
    // Whatever ended the mount, the volume is left clean; a second unmount does nothing.
    let closed = image.close();
    if let Some(file) = parsed.stats {
        let statistics = image.statistics();
        let text = if file.extension().is_some_and(|e| e == "json") {
            format!("{:#}\n", statistics.json())
        } else {
            statistics.table() + "\n"
        };
        std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    ends.into_iter().fold(out.and(closed), |out, end| out.and(end.finish()))
}

/// Runs `unmount`.
pub fn unmount(args: &UnmountArgs, as_json: bool) -> Result<(), Failure> {
    fuse::unmount::unmount(&args.dir, "fuse.joulefs", Duration::from_secs(args.wait)).map_err(|e| e.to_string())?;
    output::done(as_json, &json!({ "unmounted": args.dir.display().to_string() }));
    Ok(())
}
