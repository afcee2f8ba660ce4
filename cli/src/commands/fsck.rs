//! `joulefs fsck`: is a volume sound, and how is it repaired?
//!
//! Options, progress, output and exit codes for `fsck` and `scherlfs_fsck`, which check and repair.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use device::BlockDevice;
use fsck::{FindingKind, FsckError, Options, RepairError, Repaired, Report};
use serde_json::json;
use volume::Kind;

use crate::file_system::Type;
use crate::reading::Checkpoint;
use crate::{Failure, image, output, progress};

/// Check and repair a volume.
///
/// Reads the whole image with code that is independent of the mount code, and reports every inconsistency with its
/// location. Writes nothing without --repair.
///
/// Checks the state of the last checkpoint. Files fsynced after it are listed: the next mount replays them, and a
/// repair would discard them. So --repair refuses a damaged volume with such files unless --give-up-synced is given.
///
/// Like Linux, fsck uses the newest checkpoint whose checksums are correct, even if its counters are wrong; --repair
/// corrects them. --checkpoint older uses the checkpoint before it. Together with --repair that discards the newest
/// one and all changes since the older one: first look at what the older one holds, with `joulefs ls --checkpoint
/// older`.
///
/// Exit codes, as in fsck(8): 0 clean, 1 errors or warnings repaired, 4 errors left, 8 cannot check or repair, 16
/// wrong usage.
///
/// On a ScherlFS volume the log after the checkpoint is checked too, and a repair keeps it. A repair corrects single
/// flipped bits, replaces a lost inode by an older version, moves files without a name to lost+found, and lists each
/// file that it changed. --give-up-synced has no effect there. If both superblocks are lost, give --type scherlfs.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs fsck disk.img\n  joulefs fsck --repair disk.img\n  \
    joulefs fsck --repair --give-up-synced disk.img\n  \
    joulefs fsck --checkpoint older disk.img\n  \
    joulefs fsck --repair --type scherlfs archive.img")]
pub struct Args {
    /// The image or block device.
    image: PathBuf,
    /// Repair errors, and warnings that would cause harm later.
    #[arg(long)]
    repair: bool,
    /// Repair even if that discards files fsynced after the last checkpoint.
    #[arg(long, requires = "repair")]
    give_up_synced: bool,
    /// Check the checkpoint before the newest one; with --repair, go back to it.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "newest")]
    checkpoint: Checkpoint,
    /// File system of a volume that lost its superblocks; default: detected from the inodes at its beginning.
    #[arg(long, value_enum, value_name = "TYPE")]
    r#type: Option<Type>,
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> ExitCode {
    match check(args, as_json) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            output::failure(failure.text(), as_json);
            ExitCode::from(8)
        }
    }
}

fn check(args: &Args, as_json: bool) -> Result<u8, Failure> {
    let path = args.image.display();
    let dev = image::open_device(&args.image, args.repair)?;
    let told = args.r#type.map(|t| if t == Type::Scherlfs { Kind::ScherlFs } else { Kind::F2fs });
    let seen = || volume::probe(&*dev).or_else(|| scherlfs_fsck::seems(&*dev).then_some(Kind::ScherlFs));
    if told.or_else(seen) == Some(Kind::ScherlFs) {
        if args.checkpoint == Checkpoint::Older {
            return Err(format!("{path}: a ScherlFS volume; --checkpoint older is for F2FS").into());
        }
        return of_scherlfs(args, &*dev, as_json);
    }
    let bar = progress::steps(1, "checking");
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        progress::show_if_slow(&bar);
    };
    let older_checkpoint = args.checkpoint == Checkpoint::Older;
    let options = Options { progress: &progress, give_up_synced: args.give_up_synced, older_checkpoint };
    let done = match args.repair {
        true => match fsck::repair(&*dev, &options) {
            Ok(done) => done,
            Err(e) => {
                bar.finish_and_clear();
                let actions: Vec<_> = e.actions().iter().map(ToString::to_string).collect();
                let why = why_not(e.why(), &args.image);
                if as_json && !actions.is_empty() {
                    output::print(&json!({ "error": why, "repaired": actions }));
                    return Ok(8);
                }
                actions.iter().for_each(|action| output::line(&format!("repaired: {}", output::plain(action))));
                return Err(why.into());
            }
        },
        false => {
            let report = fsck::check(&*dev, &options).map_err(|e| match e {
                FsckError::Superblock(_) => format!("{path}: {e}{}", rescue(&args.image)),
                _ => format!("{path}: {e}"),
            })?;
            Repaired { after: report.clone(), before: report, actions: Vec::new(), checkpoints: 0 }
        }
    };
    bar.finish_and_clear();
    let actions: Vec<_> = done.actions.iter().map(ToString::to_string).collect();
    print(&done.after, &actions, &path.to_string(), as_json);
    Ok(match (done.after.errors, done.checkpoints > 0 || !actions.is_empty()) {
        (0, false) => 0,
        (0, true) => 1,
        _ => 4,
    })
}

/// Checks a ScherlFS volume, and repairs it if requested.
fn of_scherlfs(args: &Args, dev: &dyn BlockDevice, as_json: bool) -> Result<u8, Failure> {
    let path = args.image.display();
    let bar = progress::steps(1, "looking for inodes");
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        progress::show_if_slow(&bar);
    };
    let (report, actions) = match args.repair {
        false => (scherlfs_fsck::check(dev), Vec::new()),
        true => match scherlfs_fsck::repair(dev, &progress) {
            Ok(done) => (done.after, done.actions),
            Err(scherlfs_fsck::RepairError::Left { after, actions }) => (*after, actions),
            Err(e) => {
                bar.finish_and_clear();
                return Err(format!("{path}: cannot repair: {e}").into());
            }
        },
    };
    bar.finish_and_clear();
    let [findings, notes] =
        [&report.findings, &report.notes].map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
    let repaired: Vec<_> = actions.iter().map(ToString::to_string).collect();
    if as_json {
        output::print(&json!({
            "image": path.to_string(),
            "file_system": "ScherlFS",
            "repaired": repaired,
            "errors": findings.len(),
            "findings": findings,
            "notes": notes,
            "transactions": report.transactions,
            "counts": { "inodes": report.inodes, "directories": report.directories, "blocks": report.used },
        }));
    } else {
        repaired.iter().for_each(|action| output::line(&format!("repaired: {}", output::plain(action))));
        findings.iter().for_each(|f| output::line(&output::plain(f)));
        notes.iter().for_each(|n| output::line(&format!("note: {}", output::plain(n))));
        let state = if findings.is_empty() { "clean".to_owned() } else { format!("{} errors", findings.len()) };
        output::line(&format!(
            "{path}: {state} ({} inodes, {} directories, {} blocks; {} transactions after the checkpoint)",
            report.inodes, report.directories, report.used, report.transactions
        ));
    }
    Ok(match (report.is_clean(), actions.is_empty()) {
        (true, true) => 0,
        (true, false) => 1,
        _ => 4,
    })
}

/// Why a volume was not repaired, and the next step.
fn why_not(e: &RepairError, image: &Path) -> String {
    let path = image.display();
    let advice = match e {
        RepairError::NeedsRecovery { .. } => format!(
            ". Mount the volume, which replays them. If it cannot be mounted: `joulefs fsck {path}` lists those files; \
             save the rest with `joulefs cp -r --norecovery {path}:/ DIR` (or mount -o norecovery), then repair with \
             --give-up-synced"
        ),
        RepairError::ChainUnknown => {
            format!(". Save what can be read with `joulefs rescue {path} DIR`, then repair with --give-up-synced")
        }
        RepairError::NotRepairable { .. }
        | RepairError::NotConverging { .. }
        | RepairError::Fsck(FsckError::Superblock(_)) => rescue(image),
        _ => String::new(),
    };
    format!("{}: cannot repair: {e}{advice}", image.display())
}

/// The advice if nothing can be repaired.
fn rescue(image: &Path) -> String {
    format!(". `joulefs rescue {} DIR` copies out files without the volume's tables", image.display())
}

fn print(report: &Report, actions: &[String], path: &str, as_json: bool) {
    let counts = &report.counts;
    if as_json {
        let findings: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        output::print(&json!({
            "image": path,
            "repaired": actions,
            "errors": report.errors,
            "findings": findings,
            "unlisted": report.unlisted,
            "clean_unmount": report.clean_unmount,
            "counts": {
                "directories": counts.dirs,
                "files": counts.files,
                "nodes": counts.nodes,
                "blocks": counts.blocks,
                "orphans": counts.orphans,
            },
        }));
        return;
    }
    for action in actions {
        output::line(&format!("repaired: {}", output::plain(action)));
    }
    for f in &report.findings {
        output::line(&output::plain(&f.to_string()));
    }
    if report.unlisted > 0 {
        output::line(&format!("and {} more", report.unlisted));
    }
    if report.errors().any(|error| *error == FindingKind::NoCheckpoint) {
        output::line(&format!(
            "{path}: cannot be checked: no usable superblock or checkpoint{}",
            rescue(Path::new(path))
        ));
    }
    let state = if report.errors == 0 { "clean".to_owned() } else { format!("{} errors", report.errors) };
    output::line(&format!(
        "{path}: {state} ({} files, {} directories, {} blocks, {} of them nodes)",
        counts.files, counts.dirs, counts.blocks, counts.nodes
    ));
}
