//! `joulefs mount`: how does a mount begin, which layers are between it and the image, and how does it end?
//!
//! Without -f the program starts itself again as the daemon. Optional layers between core and image are a simulated
//! device and recorders. `fuse` talks to the kernel.

mod host;
mod idle;
pub mod options;
mod whose;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ::host::power;
use clap::ValueEnum;
use device::energy::profile::Profile;
use f2fs::{CheckpointChoice, RollForward};
use fuse::MountError;
use fuse::socket::{ControlSocket, Doom, LastWord, Status};
use serde_json::json;
use vfs::{Commit, FileSystem, Look, Power};
use victim::Policy;
use volume::options::{COMMIT, number, on};
use volume::{Kind, MountOptions, OptionError};

use crate::class::{self, Class};
use crate::flame::{FlameArgs, Graph, names};
use crate::image::Image;
use crate::live::Live;
use crate::logging::Log;
use crate::metered::Metered;
use crate::recording::Recording;
use crate::{Failure, background, beside, held, image, output, saving, whole};

/// Mount an image through FUSE.
///
/// Runs in the background unless -f is given. To unmount, use `joulefs unmount DIR`, `fusermount3 -u DIR`, or send
/// SIGINT or SIGTERM to the process. Only `joulefs unmount` first makes everything durable and returns when the volume
/// is closed; the others detach first. If the last checkpoint then fails, the process keeps the image locked, retries
/// for a while (-o retry), writes that to its log (-o log) and to the system log, and answers `joulefs ctl IMAGE
/// retry` and `joulefs ctl IMAGE save OUT`. A second signal ends it.
///
/// Access times follow Linux's relatime rule; opening a file read-only counts as reading it. `-o noatime` turns them
/// off.
///
/// With --profile every request to the image is also made on a simulated device, which counts the energy by component,
/// by cause and by file.
#[derive(clap::Args)]
#[command(after_help = after_help())]
pub struct Args {
    /// The image or block device.
    image: PathBuf,
    /// The mount point.
    dir: PathBuf,
    /// Record every call to the file system to this file, for `joulefs replay`; implies -o noatime.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Record file contents too: the data that any user of the mount writes, and the previous contents of changed
    /// files. ANYONE WHO HAS THE RECORDING CAN READ THEM. The file is readable by its owner only. Without this option
    /// a recording has only lengths and checksums of written data. Needed to measure deltas and compression.
    #[arg(long, requires = "record")]
    contents: bool,
    /// Record every request to the image to this file, for `joulefs replay`.
    #[arg(long, value_name = "FILE")]
    record_device: Option<PathBuf>,
    /// Count joules as on this device: the name of a shipped profile, or the path of a profile file. Needs --ledger
    /// unless -f is given.
    #[arg(long, short, value_name = "PROFILE")]
    profile: Option<String>,
    /// Write the joules spent so far to this file, every second and at the end: JSON if it ends in .json, else tables.
    #[arg(long, value_name = "FILE", requires = "profile")]
    ledger: Option<PathBuf>,
    /// Number of files listed in the ledger, most expensive first.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "profile")]
    by_file: usize,
    #[command(flatten)]
    flame: FlameArgs,
    /// Delay answers as long as the real device would take.
    #[arg(long, requires = "profile")]
    paced: bool,
    /// Stay in the foreground and print the joules at the end.
    #[arg(short, long)]
    foreground: bool,
    /// Mount options, comma-separated; listed below.
    #[arg(short, value_delimiter = ',')]
    options: Vec<String>,
    /// Internal: this process is the background part of another.
    #[arg(long, hide = true)]
    background: bool,
}

fn after_help() -> String {
    let examples = "Examples:\n  joulefs mount disk.img /mnt -o noatime\n  ...\n  joulefs unmount /mnt\n  \
        joulefs mount disk.img /mnt --profile oneplus8t-ufs31 --ledger joules.txt\n  \
        joulefs mount disk.img /mnt --profile kirin9000-ufs31 --flame joules.html\n  \
        joulefs mount disk.img /mnt --record work.rec --contents\n  \
        joulefs mount theirs.img /mnt -o uid=1000,gid=1000\n  \
        joulefs mount theirs.img /mnt -o uid=nobody,umask=077\n\n";
    let owners = "With uid= or gid= all files appear to belong to that user or group, who has an owner's rights, as on \
        a file system without owners (vfat). Owners stored on the volume do not change, and new files belong to the \
        user who creates them. chown is not permitted; set-id bits are neither shown nor set, and are cleared from \
        files that change. With umask= (all files), dmask= (directories) or fmask= (all other files) everyone has the \
        rights that the mask leaves, whatever the modes on the volume: chmod to other modes is not permitted, and \
        access lists are ignored.\n\n";
    let archive = "An archive disk that sleeps: the disk's own timer puts it to sleep (hdparm -S 120 /dev/sdX: after \
        10 minutes); the mount does not wake it by itself.\n  \
        joulefs mount /dev/sdX /archive -o index=/var/lib/archive.index,sleep=10m,stage=64M,keep=16G\n  \
        joulefs ctl /archive stat";
    format!("{examples}{}{owners}{archive}", options::table())
}

/// Default of `retry=`: how long a failed last checkpoint is retried.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// Default of `commit=` on battery, if `power=` is given.
const COMMIT_ON_BATTERY: Duration = Duration::from_secs(15);

/// Minimum size of a keep: a smaller one would hold hardly any file.
const KEEP_MIN: u64 = 1 << 20;

/// The parsed options of `-o`.
pub struct Parsed {
    core: MountOptions,
    fuse: fuse::MountOptions,
    stats: Option<PathBuf>,
    /// File with a copy of the volume's metadata.
    index: Option<PathBuf>,
    /// Bytes of contents kept next to it.
    keep: Option<u64>,
    /// File for messages, in addition to the log.
    log: Option<PathBuf>,
    /// `power=auto`: poll whether the host runs on battery.
    power_auto: bool,
}

/// Parses the options of `-o`.
pub fn parse(args: &Args) -> Result<Parsed, Failure> {
    let mut core = MountOptions::of_f2fs(f2fs::MountOptions::for_machine(fuse::memory::of_machine()));
    let mut fuse = fuse::MountOptions::default();
    let (mut stats, mut index, mut keep, mut log) = (None, None, None, None);
    fuse.retry_for = RETRY_FOR;
    core.f2fs.gc.preferred = Some(Policy::Joule);
    let mut power_auto = false;
    let power_given = args.options.iter().any(|option| option.starts_with("power="));
    let commit = Commit { on_battery: power_given.then_some(COMMIT_ON_BATTERY), ..Commit::within(COMMIT) };
    core.f2fs.commit = Some(commit);
    // A sleeping disk is not woken by a timer.
    let sleeps = args.options.iter().any(|option| option.starts_with("sleep="));
    core.scherlfs.commit = (!sleeps).then_some(commit);
    let mut masks: BTreeMap<&str, u16> = BTreeMap::new();
    for option in args.options.iter().filter(|o| !o.is_empty()) {
        let (name, value) = option.split_once('=').map_or((option.as_str(), None), |(n, v)| (n, Some(v)));
        if (name, value) == ("power", Some("auto")) {
            power_auto = true;
            continue;
        }
        match core.set(name, value) {
            Ok(()) => {
                power_auto &= name != "power";
                continue;
            }
            Err(OptionError::Value(why)) => {
                let tip = options::meant_by(name, value);
                return Err(Failure::usage(format!("-o {option}: {why}{tip}")));
            }
            Err(OptionError::Unknown(_)) => {}
        }
        let plain = |done: &mut dyn FnMut()| match value {
            None => {
                done();
                Ok(())
            }
            Some(_) => Err(Failure::usage(format!("-o {option}: {name} takes no value"))),
        };
        let on = || on(value).map_err(|why| Failure::usage(format!("-o {option}: {why}")));
        match name {
            "ro" => plain(&mut || core.set_read_only(true))?,
            "norecovery" => plain(&mut || core.roll_forward(name, RollForward::Leave))?,
            "disable_roll_forward" => plain(&mut || core.roll_forward(name, RollForward::GiveUp))?,
            "checkpoint" => match value {
                Some("newest") => core.f2fs.checkpoint = CheckpointChoice::Newest,
                Some("older") => core.for_f2fs(option, |f2fs| f2fs.checkpoint = CheckpointChoice::Older),
                _ => return Err(Failure::usage(format!("-o {option}: newest or older"))),
            },
            "rw" => plain(&mut || core.set_read_only(false))?,
            "allow_other" => fuse.allow_other = on()?,
            "noatime" => plain(&mut || fuse.noatime = true)?,
            "relatime" => plain(&mut || fuse.noatime = false)?,
            "dev" => plain(&mut || fuse.dev = true)?,
            "suid" => plain(&mut || fuse.suid = true)?,
            "noexec" => plain(&mut || fuse.exec = false)?,
            "uid" | "gid" => {
                let id = whose::id(name, value.unwrap_or_default());
                let id = id.map_err(|why| Failure::usage(format!("-o {option}: {why}")))?;
                if name == "uid" { fuse.owner.uid = Some(id) } else { fuse.owner.gid = Some(id) }
            }
            "umask" | "dmask" | "fmask" => {
                let mask = whose::mask(value.unwrap_or_default());
                let mask = mask.map_err(|why| Failure::usage(format!("-o {option}: {why}")))?;
                masks.insert(name, mask);
            }
            "writeback" => fuse.caching = if on()? { fuse::Caching::Writeback } else { fuse::Caching::Through },
            "threads" => {
                fuse.threads = number(name, value).map_err(|why| Failure::usage(format!("-o {option}: {why}")))?;
            }
            "index" => {
                let file = value.ok_or_else(|| Failure::usage("-o index: write index=FILE"))?;
                core.only_scherlfs(option);
                index = Some(std::path::absolute(file).map_err(|e| format!("-o index={file}: {e}"))?);
            }
            "keep" => {
                let bytes = value.and_then(volume::size::parse).filter(|bytes| *bytes >= KEEP_MIN);
                core.only_scherlfs(option);
                keep = Some(bytes.ok_or_else(|| Failure::usage(format!("-o {option}: write keep=SIZE, 1M or more")))?);
            }
            "stats" => {
                let file = value.ok_or_else(|| Failure::usage("-o stats: write stats=FILE"))?;
                // The daemon has another working directory.
                stats = Some(std::path::absolute(file).map_err(|e| format!("-o stats={file}: {e}"))?);
            }
            "profile" => {
                let class = value.and_then(|value| Class::from_str(value, false).ok()).ok_or_else(|| {
                    let tip = options::meant_by(name, value);
                    Failure::usage(format!("-o {option}: phone, laptop, card or disk{tip}"))
                })?;
                if args.profile.is_some() {
                    return Err(Failure::usage(format!("-o {option}: leave it out, --profile gives the prices")));
                }
                let mut priced = Ok(());
                let gave = |name: &str| args.options.iter().any(|o| o.split('=').next() == Some(name));
                core.for_f2fs(option, |f2fs| priced = class.price(f2fs, gave));
                priced?;
            }
            "log" => {
                let file = value.ok_or_else(|| Failure::usage("-o log: write log=FILE"))?;
                log = Some(std::path::absolute(file).map_err(|e| format!("-o log={file}: {e}"))?);
            }
            "retry" => {
                let seconds = value.and_then(|v| v.parse::<u32>().ok());
                let seconds = seconds.ok_or_else(|| Failure::usage(format!("-o {option}: write retry=SECONDS")))?;
                fuse.retry_for = Duration::from_secs(seconds.into());
            }
            _ => {
                return Err(Failure::Usage(options::unknown(option, name)));
            }
        }
    }
    if core.f2fs.roll_forward == RollForward::Leave || core.f2fs.checkpoint == CheckpointChoice::Older {
        core.set_read_only(true);
    }
    // The more specific mask wins, in any order.
    let mask = |exact: &str| masks.get(exact).or_else(|| masks.get("umask")).copied();
    (fuse.owner.dmask, fuse.owner.fmask) = (mask("dmask"), mask("fmask"));
    if fuse.owner.is_given()
        && let Some((name, _)) = [("dev", fuse.dev), ("suid", fuse.suid)].iter().find(|(_, on)| *on)
    {
        // The user would get devices and set-id programs that belong to others.
        return Err(Failure::usage(format!(
            "-o {name}: not allowed with uid=, gid= or masks, which give access to other users' files"
        )));
    }
    if core.scherlfs.sync == scherlfs::Sync::Burst && index.is_none() {
        return Err(Failure::usage("-o sync=burst: give index=FILE too; fsyncs wait next to that file"));
    }
    if keep.is_some() && index.is_none() {
        return Err(Failure::usage("-o keep: give index=FILE too; contents are kept next to that file"));
    }
    core.scherlfs.beside.program_of = Some(beside::program_of);
    fuse.read_only = core.is_read_only();
    if power_auto {
        core.f2fs.gc.power = power::now();
        core.scherlfs.power = core.f2fs.gc.power;
    }
    let on_battery = |commit: Commit| commit.on_battery.filter(|_| core.f2fs.gc.power == Power::Battery);
    fuse.commit = core.f2fs.commit.map(|commit| on_battery(commit).unwrap_or(commit.after));
    Ok(Parsed { core, fuse, stats, index, keep, log, power_auto })
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let mut parsed = parse(args)?;
    if args.profile.is_some() && args.ledger.is_none() && !args.flame.is_given() && !args.foreground {
        let why = "--profile in the background: give --ledger FILE, otherwise the joules are lost";
        return Err(Failure::usage(why));
    }
    if args.flame.is_given() && args.profile.is_none() {
        return Err(Failure::usage("--flame: give --profile NAME too; without it no energy is counted"));
    }
    let flames = args.flame.files()?;
    if !args.foreground && !args.background {
        let me = std::env::current_exe().map_err(|e| format!("cannot find the joulefs executable: {e}"))?;
        let mut again = Command::new(me);
        // The daemon gets the same arguments, without --json: this process prints the answer.
        let words = std::env::args_os().skip(1).filter(|a| a != "--json").skip_while(|a| a != "mount").skip(1);
        again.arg("mount").arg("--background").args(words);
        let pid = background::start(again)?;
        output::done(as_json, &json!({ "mounted": args.dir.display().to_string(), "process": pid }));
        return Ok(());
    }
    image::check_name(&args.image)?;
    let path = std::fs::canonicalize(&args.image).map_err(|e| format!("{}: {e}", args.image.display()))?;
    let dir = fuse::place(&args.dir).map_err(|e| e.to_string())?;
    if let Some(file) = parsed.log.as_ref().filter(|file| is_below(file, &dir)) {
        // The serving process would wait for itself.
        return Err(Failure::usage(format!(
            "-o log={}: is inside the mount itself; give a file elsewhere",
            file.display()
        )));
    }
    let messages = parsed.log.take();
    let failed = |e| format!("-o log={}: {e}", messages.as_deref().unwrap_or(Path::new("")).display());
    Log::begin(args.background, messages.clone()).map_err(failed)?;
    parsed.fuse.fsname = path.display().to_string();
    // Recordings contain no access time updates, so a replay would not have their cost.
    parsed.fuse.noatime |= args.record.is_some();
    if let Some(file) = parsed.stats.as_ref().filter(|file| file.parent().is_some_and(|dir| !dir.is_dir())) {
        return Err(format!("-o stats={}: no such directory", file.display()).into());
    }
    let recording = |file: &Option<PathBuf>, private| {
        let create = if private { Recording::create_private } else { Recording::create };
        file.as_deref().map(create).transpose()
    };
    let (calls, requests) = (recording(&args.record, args.contents)?, recording(&args.record_device, false)?);
    let profile = args.profile.as_deref().map(Profile::find).transpose()?;
    let ledger = args.ledger.as_ref().map(std::path::absolute).transpose().map_err(|e| format!("--ledger: {e}"))?;
    if let Some(profile) = &profile {
        class::set_prices(&mut parsed.core.f2fs, profile);
    }
    idle::refuse(&parsed.core, profile.as_ref())?;
    let mut ends = Vec::new();
    let mut metered = None;
    let (index, keep) = (parsed.index.take(), parsed.keep);
    let image = Arc::new(Image::open_through(&path, parsed.core, |mut device, kind, options| {
        if let Some(room) = options.host_room() {
            host::check(room, &path)?;
        }
        if let Some(index) = index.as_ref().filter(|_| kind == Kind::ScherlFs) {
            beside::open_index(index, keep, &*device, options)?;
        }
        if let Some(profile) = &profile {
            let held = held::runs(&device, &path)?;
            let meter = Arc::new(Metered::new(device, &held, profile, args.paced, args.by_file)?);
            device = meter.device();
            options.f2fs.processor = Some(meter.processor());
            metered = Some(meter);
        }
        let Some(recording) = requests else { return Ok(device) };
        let causes: Vec<_> = kind.reasons().iter().map(|r| (r.number, r.text)).collect();
        let (device, end) = recording.of_device(device, &causes)?;
        ends.push(end);
        Ok(device)
    })?);
    let doom = image.host_room().cloned().map(|room| {
        let path = path.clone();
        Box::new(move || host::doom(&room, &path)) as Doom
    });
    let socket = ControlSocket::bind(Some(&path), Some(saving::saver(image.clone())), doom).map(Arc::new);
    // A kernel may lack Unix sockets: then the final state cannot be queried.
    let socket = socket.inspect_err(|e| log::warn!("{}: no control socket: {e}", path.display())).ok();
    let idle = idle::notes(image.mounted(), &args.options, image.vol.read_only());
    let unheld = image.host_room().and_then(|room| host::attend(room, &path));
    for text in image.vol.warning().into_iter().chain(idle).chain(unheld) {
        let text = format!("{}: {text}", path.display());
        match args.background {
            true => fuse::daemon::note(&text).map_err(|e| format!("cannot report to the starting process: {e}"))?,
            false => output::warn(&text),
        }
    }
    let mut served: Arc<dyn FileSystem> = image.vol.clone();
    if let Some(recording) = calls {
        let (recorder, end) = recording.of_calls(served, args.contents)?;
        served = recorder;
        ends.push(end);
    }
    if metered.is_some() {
        image.vol.keep_deleted_names();
    }
    let live = match (&metered, &ledger) {
        (Some(metered), Some(file)) => {
            let (metered, vol, file) = (metered.clone(), image.vol.clone(), file.clone());
            Some(Live::start(move || Metered::write_often(&metered.spent(&*vol, Look::InMemory), &file))?)
        }
        _ => None,
    };
    if let Some(metered) = metered.clone() {
        let (asked, volume) = (metered.clone(), Arc::downgrade(&image.vol));
        image.vol.account_by(Arc::new(move |files, since| match volume.upgrade() {
            Some(volume) => asked.account(&*volume, files, since),
            None => String::new(),
        }));
        let cleaning: Vec<u8> = image.vol.reasons().iter().filter(|r| r.cleaning).map(|r| r.number).collect();
        image.vol.report_too(Box::new(move || metered.report(&cleaning)));
    }
    let ready = || {
        if args.background
            && let Err(e) = fuse::daemon::ready()
        {
            output::warn(&format!("cannot detach from the terminal: {e}"));
        }
    };
    let watch = parsed.power_auto.then(|| power::Watch::start(served.clone(), output::warn));
    let served = match &socket {
        Some(socket) => fuse::run_with_socket(served, &dir, &parsed.fuse, socket.clone(), ready),
        None => fuse::run_until_unmounted(served, &dir, &parsed.fuse, ready),
    };
    let out = match served {
        // Closing the image reports whether data is lost.
        Err(MountError::Unclean(_)) => Ok(()),
        out => out.map_err(|e| Failure::from(e.to_string())),
    };
    drop(watch);
    // The volume must be left clean, however the mount ended. If it is clean, this has no effect.
    let closed = image.vol.unmount();
    let mut stats = Ok(());
    if let Some(file) = parsed.stats {
        let statistics = image.statistics();
        let text = if file.extension().is_some_and(|e| e == "json") {
            crate::hidden::shown_json(&format!("{:#}\n", statistics.json()))
        } else {
            statistics.table() + "\n"
        };
        stats = whole::write(&file, text);
    }
    let mut written = Ok(());
    if let Some(live) = live {
        live.end();
    }
    if let Some(metered) = metered {
        let spent = metered.spent(&*image.vol, Look::Everywhere);
        if let Some(file) = &ledger {
            written = Metered::write(&spent, file);
        }
        if !flames.is_empty() {
            let flame = names::of_volume(&spent.ledger, flames.depth(), &*image.vol);
            let title = format!("{} on {}", path.display(), spent.profile);
            let graph = Graph { name: spent.profile.clone(), flame, took: spent.took, control: None };
            written = written.and(flames.write(&output::plain(&title), &[graph]));
        }
        if args.foreground {
            match as_json {
                true => output::print(&serde_json::Value::Object(spent.json())),
                false => output::lines(&Metered::table(&spent)),
            }
        }
    }
    let rest = ends.into_iter().fold(out.and(stats).and(written), |out, end| out.and(end.finish()));
    let Status { checkpoint, age_s, .. } = socket.as_ref().map(|socket| socket.status()).unwrap_or_default();
    let doomed = image.host_room().and_then(|room| host::doom(room, &path));
    let amiss = rest.as_ref().err().map(|failure| failure.text().to_owned());
    let word = LastWord {
        doomed: doomed.is_some(),
        lost: doomed.or(closed.err().map(|why| why.to_string())),
        checkpoint,
        age_s,
        amiss,
    };
    let lost = match &word.lost {
        Some(why) => Err(Failure::from(format!("{}: {} is lost: {why}", path.display(), word.what_is_lost()))),
        None => Ok(()),
    };
    let ended = lost.and(rest);
    if let (Err(failure), true) = (&ended, args.background || messages.is_some()) {
        log::error!("{failure}");
    }
    socket.inspect(|socket| socket.last_word(&word));
    ended
}

/// True if a file is or would be below a directory.
fn is_below(file: &Path, dir: &Path) -> bool {
    let above = file.parent().and_then(|above| std::fs::canonicalize(above).ok());
    above.is_some_and(|above| above.starts_with(dir))
}
