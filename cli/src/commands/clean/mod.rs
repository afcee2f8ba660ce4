//! `joulefs clean`: how are torn files brought together, and is that worth it?
//!
//! Options, progress and exit codes. `files` finds the files and moves their blocks, in an image or through a mount; what
//! to move and whether it pays is decided by `inspect::treatment`; `parts` reads what a recording reads together; `tell`
//! prints.

mod files;
mod parts;
mod tell;

use std::path::PathBuf;
use std::process::ExitCode;

use device::energy::profile::Profile;
use inspect::price::Prices;
use inspect::treatment::{self, How, Plan, Run, Use};
use vfs::Moving;

use crate::interrupt::Interrupt;
use crate::{Failure, progress, size};
use files::{Files, Found};

/// Bring torn files together, if that is earned back.
///
/// SOURCE is an image or block device that is not mounted, or the directory where one is mounted by `joulefs mount`. Files
/// are those named by --defrag, by their paths in the volume, or the --worst N by pieces they lie in beyond the fewest.
///
/// Of each file it says what moving its blocks costs (joules, and time, by the device profile), what each whole read of it
/// saves, and after how many reads that is earned back; a file for which it never is stays as it is, unless --force is
/// given. With --parts RECORDING only what that recording reads together and finds in several pieces is moved, and a use
/// is all that the recording reads of the file. What lies in one piece stays where it is. --dry-run moves nothing.
///
/// Blocks are copied byte for byte to the next free segments, as cleaning does it: contents, times, deltas, compressed
/// clusters, ciphertext and seals stay what they are. --remap asks the device to show its pages at the new places, where it
/// has such a command (a simulated device with a map has it). Skipped, with the reason: files with their contents in their
/// inode, pinned and immutable ones. While too few segments are free, nothing is moved, since logs would fill holes and
/// scatter the files again.
///
/// On a mounted volume, root and the user who mounted may do this, while others use the files.
///
/// Exit codes: 0 done, 1 some file could not be treated, 2 wrong usage.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs clean userdata.img --worst 10 --dry-run\n  \
    joulefs clean userdata.img --defrag /data/com.example.chat/databases/messages.db\n  \
    joulefs clean /mnt --worst 3 --profile kirin9000-ufs31\n  \
    joulefs clean userdata.img --worst 3 --parts chat.rec")]
pub struct Args {
    /// An image or block device, or the directory of a mounted volume of this program.
    source: PathBuf,
    /// Files to bring together, by their paths in the volume.
    #[arg(long, value_name = "PATH", num_args = 1.., required_unless_present = "worst", conflicts_with = "worst")]
    defrag: Vec<PathBuf>,
    /// Bring together the N files with the most pieces beyond the fewest.
    #[arg(long, value_name = "N")]
    worst: Option<usize>,
    /// Only move what this recording of calls reads together, as `joulefs trace` reads it.
    #[arg(long, value_name = "RECORDING")]
    parts: Option<PathBuf>,
    /// Have the device show its pages at new places in place of copying them.
    #[arg(long)]
    remap: bool,
    /// Move a file even if that is never earned back.
    #[arg(long)]
    force: bool,
    /// Only say what it would cost and save.
    #[arg(long)]
    dry_run: bool,
    /// The device whose prices count, as `joulefs energy profiles` lists them, or a profile's file.
    #[arg(long, short, default_value = "kirin9000-ufs31")]
    profile: String,
    /// What one request of a reader asks for at most.
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    read_ahead: String,
}

/// What became of a file.
enum Outcome {
    /// Nothing was worth moving.
    Whole,
    /// It is never earned back.
    NeverPays,
    /// It would be moved.
    Planned,
    /// So many blocks were moved, and it lies in so many pieces now.
    Moved { blocks: u64, extents: u64 },
    /// It stays, for this reason.
    Skipped(String),
    /// It could not be moved, or only in part.
    Failed(String),
}

/// A file, what was planned, and what became of it.
struct Treated {
    path: String,
    plan: Option<Plan>,
    outcome: Outcome,
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    let profile = Profile::find(&args.profile)?;
    let prices = Prices::of(&profile);
    let window = size::within("--read-ahead", &args.read_ahead, 4096..=1 << 30)? / 4096;
    let parts = args.parts.as_deref().map(parts::of_recording).transpose()?;
    let stop = Interrupt::catch()?;
    let worst = args.worst.map(|n| files::worst(&args.source, n, &stop)).transpose()?;
    let files = Files::open(&args.source, !args.dry_run)?;
    let chosen = match worst {
        Some(worst) => worst,
        None => args.defrag.iter().map(|path| files.named(path)).collect::<Result<_, _>>()?,
    };
    let bar = progress::steps(0, "moving");
    let mut all = Vec::new();
    for found in chosen {
        if stop.came() {
            break;
        }
        let uses = match &parts {
            None => vec![treatment::whole()],
            Some(read) => read.of(&found.path),
        };
        let how = if args.remap { How::Share } else { How::Copy };
        all.push(treat(
            args,
            &files,
            found,
            &uses,
            (how, &prices, window),
            &|blocks| {
                bar.inc(blocks);
                progress::show_if_slow(&bar);
                !stop.came()
            },
            &|blocks| bar.inc_length(blocks),
        ));
    }
    bar.finish_and_clear();
    files.close()?;
    stop.end();
    tell::all(args, &profile, &all, as_json);
    let failed = all.iter().any(|t| matches!(t.outcome, Outcome::Failed(_)));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn treat(
    args: &Args,
    files: &Files,
    found: Found,
    uses: &[Use],
    (how, prices, window): (How, &Prices, u64),
    go_on: &dyn Fn(u64) -> bool,
    more: &dyn Fn(u64),
) -> Treated {
    let done = |plan, outcome| Treated { path: found.path.clone(), plan, outcome };
    match files.why_not(&found) {
        Ok(None) => {}
        Ok(Some(why)) => return done(None, Outcome::Skipped(why)),
        Err(e) => return done(None, Outcome::Failed(e)),
    }
    let runs = match files.runs(&found) {
        Ok(runs) => runs,
        Err(e) => return done(None, Outcome::Failed(e)),
    };
    let ranges = match args.parts {
        None => treatment::torn(&runs),
        Some(_) => treatment::torn_parts(&runs, uses),
    };
    let plan = treatment::plan(&runs, ranges, uses, how, prices, window);
    if plan.ranges.is_empty() {
        return done(Some(plan), Outcome::Whole);
    }
    if plan.pays_after().is_none() && !args.force {
        return done(Some(plan), Outcome::NeverPays);
    }
    if args.dry_run {
        return done(Some(plan), Outcome::Planned);
    }
    more(plan.blocks);
    let moving = if how == How::Share { Moving::Share } else { Moving::Copy };
    let mut moved = 0;
    for range in &plan.ranges {
        match files.bring_together(&found, range.clone(), moving, go_on) {
            Ok(n) => moved += n,
            Err(e) => return done(Some(plan), Outcome::Failed(e)),
        }
    }
    let extents = files.runs(&found).map_or(0, |runs| pieces(&runs));
    done(Some(plan), Outcome::Moved { blocks: moved, extents })
}

fn pieces(runs: &[Run]) -> u64 {
    match runs.is_empty() {
        true => 0,
        false => 1 + runs.windows(2).filter(|w| w[0].0.addr + w[0].0.blocks != w[1].0.addr).count() as u64,
    }
}
