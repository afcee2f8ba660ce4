//! `joulefs rescue`: what can be recovered from a broken image?
//!
//! `rescue` finds and verifies files; `plan` decides which are copied and where to; `found` presents them as a tree;
//! `cp` copies it; `tell` reports.

mod found;
mod plan;
mod tell;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use device::BLOCK;
use found::Found;
use plan::Plan;
use rescue::{Options, Progress, Rescue};
use tell::Group;
use volume::Kind;

use super::cp;
use crate::image::check_name;
use crate::interrupt::Interrupt;
use crate::pieces::open_ruin;
use crate::{Failure, output, progress};

/// Copy files out of a broken image.
///
/// Reads the whole image and needs only nodes and contents: superblock, checkpoints, NAT and summaries may be lost,
/// the volume may begin anywhere in the image, and the image may be cut short. The image is never written.
///
/// DIR, which must be new or empty, receives the proved files: those that a live directory names and whose blocks
/// belong to no other file. Files of a lost directory go to DIR/rescue-unplaced, under inode number and name; such a
/// file may have been deleted, so it is called likely, not proved. Files below a doubtful directory are likely too.
/// Deleted files, and files with blocks that may have been overwritten, are only listed; with --doubtful they are
/// copied to DIR/rescue-deleted and DIR/rescue-doubtful, with zeroes for the missing parts.
///
/// If several versions of a file exist, the one written under the newest checkpoint is used. Proofs rest on the nodes
/// that were found: if nodes were overwritten or zeroed, an older version may pass for the newest. If the image was cut
/// short, or blocks cannot be read, nothing is proved, since the missing part may hold newer versions: a directory may
/// be outdated and name files that were deleted later, and blocks may belong to another file by now. Without evidence
/// against them, files are then called likely, and copied.
///
/// Exit codes: 0 all live files were copied, 1 some are missing or doubtful, 2 wrong usage.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs rescue broken.img found\n  \
    joulefs --json rescue broken.img found --doubtful > report.json\n  joulefs rescue disk.img found --volume-at 1048576")]
pub struct Args {
    /// The image or block device.
    image: PathBuf,
    /// Target: a new or empty directory.
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Copy deleted and doubtful files too.
    #[arg(long)]
    doubtful: bool,
    /// List what would be copied, and copy nothing.
    #[arg(long)]
    list: bool,
    /// First byte of the volume in the image, in case the search finds the wrong one. Other volumes in the image are
    /// then ignored.
    #[arg(long, value_name = "BYTE", allow_negative_numbers = true)]
    volume_at: Option<i64>,
    /// Maximum number of nodes to keep in memory, about 40 bytes each.
    #[arg(long, value_name = "N", default_value_t = 1 << 25)]
    most_nodes: usize,
    /// Copy more than the image can hold; for compressed files and files that share blocks.
    #[arg(long)]
    really: bool,
}

fn check_target(to: &Path) -> Result<(), Failure> {
    match std::fs::read_dir(to) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::usage(format!("{}: not empty; give a new or empty directory", to.display()))),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(format!("{}: {e}", to.display()).into()),
    }
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    if args.volume_at.is_some_and(|at| at % rescue::window::SECTOR as i64 != 0) {
        return Err(Failure::usage("--volume-at: not a whole number of sectors of 512 bytes"));
    }
    if !args.list {
        check_target(&args.to)?;
    }
    check_name(&args.image)?;
    let dev = open_ruin(&args.image)?;
    // A newer F2FS volume has overwritten the traces of the older one.
    if let (None, Some(kind @ Kind::ScherlFs)) = (args.volume_at, volume::probe(&*dev)) {
        let image = args.image.display();
        return Err(format!("{image}: a {kind} volume; joulefs rescue is for F2FS").into());
    }
    let stop = Interrupt::catch()?;
    // The image is read at most twice: to find the volume, and to find its nodes.
    let bar = progress::steps(dev.blocks() * 2, "searching");
    let mut tell = |blocks| {
        bar.inc(blocks);
        progress::show_if_slow(&bar);
        !stop.came()
    };
    let options = Options { volume_at: args.volume_at, most_nodes: args.most_nodes };
    let found = Rescue::search(&*dev, &options, &mut Progress::new(&mut tell));
    bar.finish_and_clear();
    stop.end();
    let found = found.map_err(|e| format!("{}: {e}", args.image.display()))?;
    let Plan { holds, rows, lenient, .. } = Plan::make(&found, args.doubtful, &stop)?;
    let tree = Found::new(&found, holds, lenient, dev.blocks().saturating_mul(BLOCK as u64));
    let failed = if args.list { Vec::new() } else { cp::copy_tree(&tree, &args.to, &stop, args.really, as_json)? };
    let amiss = rows.iter().any(|r| r.group != Group::Deleted && !r.doubts.is_empty()) || !failed.is_empty();
    let unplaced = found.is_incomplete() || rows.iter().any(|r| r.group == Group::Unplaced);
    if as_json {
        output::print(&tell::report(&found, &rows, &failed));
    } else {
        tell::tell_people(&found, &rows);
    }
    Ok(if amiss || unplaced || found.root().is_none() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
