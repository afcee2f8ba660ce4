//! `joulefs clean`: how are files defragmented, and when does that pay?
//!
//! Options, progress and exit codes. `files` finds the files and moves their blocks, in an image or through a mount;
//! `inspect::treatment` decides what to move and whether it pays; `parts` finds the ranges that a recording reads
//! together; `tell` prints.

mod files;
mod parts;
mod tell;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use device::energy::profile::Profile;
use inspect::price::{Cost, Prices, Work};
use inspect::treatment::{self, How, Plan, Run, Use};
use vfs::Moving;

use crate::interrupt::Interrupt;
use crate::{Failure, progress, size};
use files::{Files, Found};

/// Defragment files whose reads repay the energy.
///
/// SOURCE is an unmounted image or block device, or a JouleFS mount point. Name the files with --defrag, by their
/// paths in the volume, or choose the --worst N, those with the most excess extents.
///
/// For each file the output has the cost of moving its blocks (joules and time, by the device profile), the energy
/// saved by each full read, and the number of reads that repay the cost. A file whose cost is never repaid is skipped
/// unless --force is given. --parts RECORDING moves only ranges that the recording reads together and that lie in
/// several extents; the savings are then those of reading all that the recording reads from the file. A file in one
/// extent is not moved. --dry-run moves nothing.
///
/// Blocks are copied byte for byte to free segments, as cleaning does: contents, times, deltas, compressed clusters,
/// ciphertext and seals do not change. --remap makes the device remap its pages to the new addresses instead, if it has
/// such a command (simulated flash has). Inline, pinned and immutable files are skipped, and the reason is printed. If
/// too few segments are free, nothing is moved, because the logs would write into holes and fragment the files again;
/// --make-room cleans sections first and adds the cost of cleaning.
///
/// On a mounted volume, only root and the user who mounted it may do this; the files may be in use. --worst skips
/// directories that the caller may not read, and lists them.
///
/// Exit codes: 0 done, 1 some file could not be defragmented, or a file named by --defrag was skipped, 2 wrong usage.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs clean userdata.img --worst 10 --dry-run\n  \
    joulefs clean userdata.img --defrag /data/com.example.chat/databases/messages.db\n  \
    joulefs clean /mnt --worst 3 --profile kirin9000-ufs31\n  \
    joulefs clean userdata.img --worst 3 --make-room\n  \
    joulefs clean userdata.img --worst 3 --parts chat.rec\n  joulefs clean archive.img --all")]
pub struct Args {
    /// An image, a block device, or a JouleFS mount point.
    source: PathBuf,
    /// Files to defragment, by their paths in the volume.
    #[arg(long, value_name = "PATH", num_args = 1.., required_unless_present_any = ["worst", "all"], conflicts_with = "worst")]
    defrag: Vec<PathBuf>,
    /// Defragment the N files with the most excess extents.
    #[arg(long, value_name = "N")]
    worst: Option<usize>,
    /// Consolidate the free space of an unmounted ScherlFS volume and defragment all its files, as a mount does when
    /// idle on external power.
    #[arg(long, conflicts_with_all = ["defrag", "worst", "parts", "remap", "force", "make_room", "dry_run"])]
    all: bool,
    /// Move only the ranges that this recording of calls reads together (any format of `joulefs trace`).
    #[arg(long, value_name = "RECORDING")]
    parts: Option<PathBuf>,
    /// Let the device remap its pages to the new addresses instead of copying them.
    #[arg(long)]
    remap: bool,
    /// Move a file even if the cost is never repaid.
    #[arg(long)]
    force: bool,
    /// If too few segments are free, clean as many sections as each file needs first.
    #[arg(long)]
    make_room: bool,
    /// Print cost and savings, and move nothing.
    #[arg(long)]
    dry_run: bool,
    /// Device profile for the prices: a shipped profile's name (`joulefs energy profiles` lists them) or a profile
    /// file.
    #[arg(long, short, default_value = "kirin9000-ufs31")]
    profile: String,
    /// Largest read request.
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    read_ahead: String,
}

/// Blocks moved between checks for free space: 16 MiB.
const CHUNK: u64 = 4096;

/// The result for a file.
enum Outcome {
    /// No part was worth moving.
    Whole,
    /// The energy is never recovered.
    NeverPays,
    /// It would be moved.
    Planned,
    /// It was moved, and has this number of extents now.
    Moved { extents: u64 },
    /// It was not moved, for this reason.
    Skipped(String),
    /// It could not be moved completely.
    Failed(String),
}

/// Cleaning needed before a file's blocks can be contiguous.
#[derive(Debug, Clone, Copy, Default)]
struct ForRoom {
    /// Sections that were missing.
    short: u64,
    /// Blocks moved by this cleaning, estimated or actual.
    blocks: u64,
    /// Upper bound of its cost: each block is read by a separate request.
    cost: Cost,
}

/// A file with its plan and result.
struct Treated {
    path: String,
    plan: Option<Plan>,
    /// With parts: the plan for moving the whole fragmented file, for the same uses.
    instead: Option<Plan>,
    room: ForRoom,
    /// Blocks moved, even if the file could not be moved completely.
    moved: u64,
    outcome: Outcome,
}

impl Treated {
    /// The cost of moving it, with cleaning for it.
    fn cost(&self) -> Cost {
        self.plan.as_ref().map_or(Cost::default(), |p| p.cost) + self.room.cost
    }
    /// The number of uses after which that cost is recovered; `None`: never.
    fn pays_after(&self) -> Option<u64> {
        let saved = self.plan.as_ref()?.saved().energy.0;
        (saved > 0).then(|| self.cost().energy.0.div_ceil(saved))
    }
}

/// Parameters common to all files.
struct Treatment<'a> {
    args: &'a Args,
    files: &'a Files,
    how: How,
    prices: Prices,
    window: u64,
    /// Receives the number of blocks moved; returns false to stop.
    go_on: &'a dyn Fn(u64) -> bool,
    /// In a dry run: file blocks planned so far, and blocks that cleaning would move for them.
    planned: (u64, u64),
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    if args.all {
        return tidy::run(&args.source, as_json).map(|()| ExitCode::SUCCESS);
    }
    let profile = Profile::find(&args.profile)?;
    let window = size::within("--read-ahead", &args.read_ahead, 4096..=1 << 30)? / 4096;
    let parts = args.parts.as_deref().map(parts::of_recording).transpose()?;
    let stop = Interrupt::catch()?;
    let worst = args.worst.map(|n| files::worst(&args.source, n, &stop)).transpose()?;
    let files = Files::open(&args.source, !args.dry_run)?;
    let (chosen, unread) = match worst {
        Some(worst) => worst,
        None => (args.defrag.iter().map(|path| files.named(path)).collect::<Result<_, _>>()?, Vec::new()),
    };
    let bar = progress::steps(chosen.len() as u64, "moving");
    let go_on = |_| {
        progress::show_if_slow(&bar);
        !stop.came()
    };
    let how = if args.remap { How::Share } else { How::Copy };
    let prices = Prices::from_profile(&profile);
    let mut treatment = Treatment { args, files: &files, how, prices, window, go_on: &go_on, planned: (0, 0) };
    let mut all = Vec::new();
    for found in chosen {
        if stop.came() {
            break;
        }
        let uses = match &parts {
            None => vec![treatment::whole()],
            Some(read) => read.of(&found.path),
        };
        let (path, room) = (found.path.clone(), ForRoom::default());
        let mut treated = Treated { path, plan: None, instead: None, room, moved: 0, outcome: Outcome::Whole };
        treated.outcome = treatment.treat(&found, &uses, &mut treated).unwrap_or_else(Outcome::Failed);
        all.push(treated);
        bar.inc(1);
    }
    bar.finish_and_clear();
    files.close()?;
    stop.end();
    tell::all(args, &profile, &all, &unread, as_json);
    let left = |t: &Treated| match t.outcome {
        Outcome::Failed(_) => true,
        // A skipped file is a failure only if the user named it.
        Outcome::Skipped(_) => args.worst.is_none(),
        _ => false,
    };
    let failed = !unread.is_empty() || all.iter().any(left);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Treatment<'_> {
    /// Plans a file, records the plan in `treated`, and moves the file if it pays. The error is a message.
    fn treat(&mut self, found: &Found, uses: &[Use], treated: &mut Treated) -> Result<Outcome, String> {
        if let Some(why) = self.files.why_not(found)? {
            return Ok(Outcome::Skipped(why));
        }
        let runs = self.files.runs(found)?;
        let planned = |ranges| treatment::plan(&runs, ranges, uses, self.how, &self.prices, self.window);
        let plan = match self.args.parts {
            None => planned(treatment::fragmented(&runs)),
            Some(_) => {
                treated.instead = Some(planned(treatment::fragmented(&runs)));
                planned(treatment::fragmented_parts(&runs, uses))
            }
        };
        let (ranges, blocks) = (plan.ranges.clone(), plan.blocks);
        let saves = plan.pays_after().is_some();
        treated.plan = Some(plan);
        if ranges.is_empty() {
            return Ok(Outcome::Whole);
        }
        if !saves && !self.args.force {
            return Ok(Outcome::NeverPays);
        }
        let (ahead, cleaned) = self.planned;
        let room = self.files.room(ahead + blocks)?;
        let moves = room.moves.saturating_sub(cleaned);
        treated.room = ForRoom { short: room.short, blocks: moves, cost: self.cleaning(moves) };
        if room.short > 0 && !self.args.make_room {
            let why = format!("too few free segments ({} more are needed); --make-room cleans first", room.short);
            return Ok(Outcome::Skipped(why));
        }
        if self.args.dry_run {
            self.planned = (ahead + blocks, cleaned.max(room.moves));
            return Ok(Outcome::Planned);
        }
        treated.room = ForRoom { short: room.short, ..ForRoom::default() };
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let to = range.end.min(at + CHUNK);
                self.make_room(to - at, &mut treated.room)?;
                treated.moved += self.files.bring_together(found, at..to, self.moving(), self.go_on)?;
                at = to;
            }
        }
        Ok(Outcome::Moved { extents: pieces(&self.files.runs(found)?) })
    }

    fn moving(&self) -> Moving {
        if self.how == How::Share { Moving::Share } else { Moving::Copy }
    }

    /// Cleans for `blocks` blocks, if requested and needed. Blocks moved before free segments too, so that a long file
    /// needs less than its length.
    fn make_room(&self, blocks: u64, paid: &mut ForRoom) -> Result<(), String> {
        if !self.args.make_room || self.files.room(blocks)?.short == 0 {
            return Ok(());
        }
        paid.blocks += self.files.make_room(blocks, self.go_on)?;
        paid.cost = self.cleaning(paid.blocks);
        Ok(())
    }

    /// Upper bound of the cost of moving `blocks` blocks by cleaning.
    fn cleaning(&self, blocks: u64) -> Cost {
        if blocks == 0 {
            return Cost::default();
        }
        let pages = blocks.div_ceil(1024);
        let read = Work { blocks, requests: blocks, places: blocks, map_pages: pages, map_turns: pages };
        let write = Work { requests: blocks.div_ceil(256), places: 1, ..read };
        self.prices.read(&read) + self.prices.write(&write)
    }
}

fn pieces(runs: &[Run]) -> u64 {
    match runs.is_empty() {
        true => 0,
        false => 1 + runs.windows(2).filter(|w| w[0].0.addr + w[0].0.blocks != w[1].0.addr).count() as u64,
    }
}
