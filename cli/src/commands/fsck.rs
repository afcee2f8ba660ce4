//! `joulefs fsck`

use std::path::PathBuf;
use std::process::ExitCode;

use fsck::{Options, Report};
use serde_json::json;

use crate::{Failure, image, output, progress};

/// Check a volume.
///
/// Reads the whole image by code of its own, independent of the one that mounts, and names every
/// contradiction with its place. Writes nothing without --repair.
///
/// Exit codes, as fsck(8): 0 clean, 1 errors were repaired, 4 errors are left, 8 could not check,
/// 16 wrong usage.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs fsck disk.img\n  joulefs fsck --repair disk.img")]
pub struct Args {
    /// The image or block device.
    image: PathBuf,
    /// Repair what can be repaired without losing data.
    #[arg(long)]
    repair: bool,
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
    let bar = progress::steps(1, "checking");
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        progress::show_if_slow(&bar);
    };
    let options = Options { progress: &progress };
    let report = fsck::check(&*dev, &options).map_err(|e| format!("{path}: {e}"))?;
    bar.finish_and_clear();
    let errors = report.errors;
    let mut actions = Vec::new();
    let (report, repaired) = if args.repair && errors > 0 {
        let done = fsck::repair(&*dev, &options).map_err(|e| format!("{path}: cannot repair: {e}"))?;
        actions = done.actions.iter().map(ToString::to_string).collect();
        (fsck::check(&*dev, &options).map_err(|e| format!("{path}: {e}"))?, true)
    } else {
        (report, false)
    };
    print(&report, &actions, &path.to_string(), as_json);
    Ok(match (report.errors, repaired) {
        (0, false) => 0,
        (0, true) => 1,
        _ => 4,
    })
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
        output::line(&format!("repaired: {action}"));
    }
    for f in &report.findings {
        output::line(&format!("{f}"));
    }
    if report.unlisted > 0 {
        output::line(&format!("and {} more", report.unlisted));
    }
    let state = if report.errors == 0 { "clean".to_owned() } else { format!("{} errors", report.errors) };
    output::line(&format!(
        "{path}: {state} ({} files, {} directories, {} blocks of which {} nodes)",
        counts.files, counts.dirs, counts.blocks, counts.nodes
    ));
}
