//! Executes one case and checks the results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use device::{BlockDevice, Memory};
use f2fs::mkfs;
use f2fs_scheduled::delta::Places;
use f2fs_scheduled::gc::settings::{Intervals, Settings, Urgency};
use f2fs_scheduled::{Holes, InPlace, MountOptions, Volume};
use format::superblock::Features;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use vfs::{FileSystem, Ino};

use crate::choice::{Chooser, Chosen};
use crate::course::{Case, Course, Dir, Mounting, Op, Trouble};
use crate::hand::{Answer, Call, Event, Hand, History};
use crate::medium::Medium;
use crate::scene::{Left, clock, crowd, fill, look, loss, thin};
use crate::tree::Tree;
use crate::{durable, order, scherl};

/// Blocks of the volume: 64 MiB.
const BLOCKS: u64 = 64 * 256;
/// A schedule with more steps counts as endless.
const MOST_STEPS: usize = 5_000_000;

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The thread order.
    pub chosen: Chosen,
    /// Calls made.
    pub calls: usize,
    /// Hash of the remaining image and the ledger.
    pub digest: [u8; 32],
    /// Dirty pages that became deltas.
    pub deltas: u64,
    /// Database pages kept in delta nodes, for blocks of journals.
    pub kept: u64,
    /// Blocks of defragmented files.
    pub together: u64,
    /// Blocks that ScherlFS moved to free space.
    pub moved: u64,
    /// Clusters that were packed.
    pub packed: u64,
    /// New pages that were packed into delta nodes.
    pub packed_pages: u64,
    /// Files whose saved space was released.
    pub released: u64,
    /// Whether power failed or the volume could not be unmounted: then the digest is that of a crash.
    pub cut: bool,
    /// fsyncs of directories without a checkpoint, files written to record their names, names removed from the chain.
    pub names: [u64; 3],
}

/// A failed check, and its case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{case}: {what}")]
pub struct Failure {
    /// The case.
    pub case: Case,
    /// What is wrong.
    pub what: String,
    /// All calls, if the schedule ended.
    pub history: Vec<Event>,
}

/// The initial volume of every case: its directories, and some segments with half of their blocks valid.
fn image(m: &Mounting) -> Result<&'static Memory, String> {
    static IMAGES: [OnceLock<Result<Memory, String>>; 8] = [const { OnceLock::new() }; 8];
    let (delta, compress, roomy) = (m.delta, m.compress.is_some(), m.roomy);
    let which = usize::from(delta) + 2 * usize::from(compress) + 4 * usize::from(roomy);
    IMAGES[which].get_or_init(|| make(delta, compress, roomy)).as_ref().map_err(Clone::clone)
}

fn make(delta: bool, compress: bool, roomy: bool) -> Result<Memory, String> {
    let (dev, clock) = (Arc::new(Memory::new(if roomy { 4 * BLOCKS } else { BLOCKS })), clock());
    // With checksums: without them, an inode torn by a cut looks like a whole one.
    let mut options = mkfs::Options {
        assume_zeroed: true,
        checkpoint_version: Some(7),
        uuid: Some([9; 16]),
        ..mkfs::Options::modern()
    };
    if compress {
        options.features |= Features::COMPRESSION;
    }
    mkfs::format(&*dev, &*clock, &options).map_err(|e| e.to_string())?;
    let vol = f2fs::Volume::mount(dev.clone(), clock, f2fs::MountOptions::default()).map_err(|e| e.to_string())?;
    fill(&*vol).map_err(|e| e.to_string())?;
    if delta {
        f2fs::settle::unsettle(&*dev).map_err(|e| e.to_string())?;
    }
    Ok(dev.fork())
}

/// How this mount compresses new files.
///
/// # Errors
/// An invalid option: a bug in this crate.
fn compression(m: &Mounting) -> Result<f2fs_scheduled::compress::options::Options, String> {
    let mut options = f2fs_scheduled::compress::options::Options::default();
    if let Some(how) = m.compress {
        let size = how.log_cluster.to_string();
        let mut set = |name, value: &str| options.set(name, Some(value)).map(drop);
        set("compress_algorithm", how.algorithm)?;
        set("compress_log_size", &size)?;
        set("compress_mode", if how.by_user { "user" } else { "fs" })?;
        if how.all {
            set("compress_extension", "*")?;
        }
    }
    Ok(options)
}

fn options(m: &Mounting) -> Result<MountOptions, String> {
    let defaults = MountOptions::default();
    let at_once = Intervals {
        urgent: Duration::ZERO,
        min: Duration::ZERO,
        max: Duration::ZERO,
        none: Duration::ZERO,
        idle: Duration::ZERO,
    };
    let gc = match m.hurry {
        true => Settings { urgency: Urgency::High, intervals: at_once, step_blocks: 7, ..defaults.gc },
        false => defaults.gc,
    };
    Ok(MountOptions {
        node_cache: m.node_cache,
        dirty_limit: m.dirty_limit,
        dir_cache: m.dir_cache,
        writeback_after: Duration::from_secs(m.writeback_after),
        checkpoint_after: Duration::from_secs(m.checkpoint_after),
        inline: m.inline,
        prealloc: m.prealloc.then_some(5),
        in_place: if m.prealloc { InPlace::Price } else { defaults.in_place },
        discard_holes: if m.hurry { Holes::AsLinux } else { Holes::Worth },
        delta_places: if m.delta_nodes { Places::Nodes } else { Places::Both },
        compress: compression(m)?,
        gc,
        ..defaults
    })
}

/// The schedule; runs inside of a scheduler.
fn carry_out(course: &Course) -> Result<Left, String> {
    let clock = clock();
    let dev = Arc::new(Medium::new(image(&course.mounting)?, clock.clone())?);
    let vol = Volume::mount(dev.clone(), clock.clone(), options(&course.mounting)?).map_err(|e| e.to_string())?;
    let mut dirs = vec![vol.root().0];
    for (parent, name) in Dir::PLACES {
        let e = vol.lookup(Ino(dirs[usize::from(parent)]), &name.bytes()).map_err(|e| e.to_string())?;
        dirs.push(e.attr.ino.0);
    }
    crowd(&*vol, course.mounting.crowd).map_err(|e| e.to_string())?;
    dev.arm(course.trouble);
    let noisy = course.mounting.compress.is_some();
    let (history, dirs) = (Arc::new(History::default()), Arc::new(dirs));
    let threads: Vec<_> = course
        .threads
        .iter()
        .cloned()
        .enumerate()
        .map(|(thread, ops)| {
            let (vol, history, dirs) = (vol.clone(), history.clone(), dirs.clone());
            let (dev, clock) = (dev.clone(), clock.clone());
            shuttle::thread::spawn(move || {
                let hand = Hand { fs: &*vol, history: &history, dirs: &dirs, thread, noisy, opens: false };
                for (number, op) in ops {
                    if dev.is_cut() {
                        break;
                    }
                    match op {
                        Op::Clean(step_blocks) => hand.background(|| {
                            let settings = Settings { step_blocks, ..vol.cleaning() };
                            Ok(vol.clean_in_background(&settings).map(drop)?)
                        }),
                        Op::Thin(n) => hand.background(|| thin(&*vol, n)),
                        op => {
                            if let Op::Tick(seconds) = op {
                                clock.advance(Duration::from_secs(seconds));
                            }
                            hand.perform(number, op);
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked".to_owned())?;
    }
    dev.heal();
    let c = &vol.counters;
    let names = [&c.fast_dir_fsyncs, &c.names_put, &c.names_withdrawn].map(|n| n.load(Relaxed));
    let mut unmounted = None;
    if !dev.is_cut() {
        look(&Hand { fs: &*vol, history: &history, dirs: &dirs, thread: course.threads.len(), noisy, opens: false });
        match vol.unmount() {
            Ok(()) => {
                let state = vol.state();
                unmounted = Some((state.inodes, state.nodes));
            }
            Err(e) if course.trouble == Trouble::None => return Err(format!("unmount: {e}")),
            Err(_) => {}
        }
    }
    let loss = loss(course.trouble, unmounted.is_some());
    Ok(Left {
        unmounted,
        deltas: c.deltas.load(Relaxed),
        kept: c.kept.load(Relaxed),
        together: c.defragmented.load(Relaxed),
        packed: c.packed_clusters.load(Relaxed),
        packed_pages: c.packed.load(Relaxed),
        names,
        ..Left::of(&history, &dirs, dev.image(loss), dev.spent(), dev.is_cut())
    })
}

fn clean(dev: &dyn BlockDevice, when: &str) -> Result<fsck::Report, String> {
    let report = fsck::check(dev, &fsck::Options::default()).map_err(|e| format!("fsck {when}: {e}"))?;
    if report.is_clean() {
        return Ok(report);
    }
    let errors: Vec<String> = report.errors().take(4).map(ToString::to_string).collect();
    Err(format!("fsck {when}: {}", errors.join("; ")))
}

fn mounted(dev: &Arc<Memory>) -> Result<Arc<f2fs::Volume>, String> {
    f2fs::Volume::mount(dev.clone(), clock(), f2fs::MountOptions::default()).map_err(|e| format!("mounting anew: {e}"))
}

fn judge(course: &Course, left: &Left) -> Result<(), String> {
    let failed = |e: &&Event| e.answer == Answer::Failed;
    if course.trouble == Trouble::None
        && let Some(e) = left.events.iter().find(failed)
    {
        return Err(format!("a device error, and the device has none: {e:?}"));
    }
    let faults = matches!(course.trouble, Trouble::Fault(..));
    let start = Tree::new(&left.dirs).mounted(course.mounting.compress, faults);
    let order = order::find(&left.events, &start)?;
    let dev = Arc::new(left.image.fork());
    if let Some((inodes, nodes)) = left.unmounted {
        let report = clean(&*dev, "after unmount")?;
        let counted = (report.counts.dirs + report.counts.files, report.counts.nodes);
        if counted != (inodes.into(), nodes.into()) {
            return Err(format!("the volume counted {inodes} inodes and {nodes} nodes, fsck {counted:?}"));
        }
        return durable::same(&order.tree, &durable::look(&*mounted(&dev)?)?).map_err(|e| format!("mounted anew: {e}"));
    }
    clean(&*dev, "before recovery")?;
    let vol = mounted(&dev)?;
    clean(&*dev, "after recovery")?;
    let found = durable::look(&*vol).map_err(|e| format!("after a cut: {e}"))?;
    durable::judge(&start, &left.events, &order, &found).map_err(|e| format!("after a cut: {e}"))?;
    vol.unmount().map_err(|e| format!("unmount after recovery: {e}"))?;
    clean(&*dev, "after recovery and unmount").map(drop)
}

/// The digest of an image and a ledger.
fn digest(image: &Memory, spent: &[u64]) -> [u8; 32] {
    let mut hash = blake3::Hasher::new();
    image.each_piece(|at, bytes| {
        hash.update(&at.0.to_le_bytes());
        hash.update(bytes);
    });
    for n in spent {
        hash.update(&n.to_le_bytes());
    }
    hash.finalize().into()
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 4 << 20;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config
}

/// Runs a case and all checks.
///
/// # Errors
/// The first failed check; a panic and a deadlock are failures, too.
pub fn run(case: &Case) -> Result<Outcome, Failure> {
    run_and_keep(case).map(|(outcome, _)| outcome)
}

/// Like [`run`], and returns the remaining image.
///
/// # Errors
/// As [`run`].
pub fn run_and_keep(case: &Case) -> Result<(Outcome, Memory), Failure> {
    let failure = |what: String| Failure { case: case.clone(), what, history: Vec::new() };
    let course = Course::of(case);
    let chooser = Chooser::new(case.schedule_seed(), course.operations(), course.steps_per_operation());
    let slot = Arc::new(Mutex::new(None));
    let ran = {
        let (course, slot, chooser) = (course.clone(), slot.clone(), chooser.clone());
        catch_unwind(AssertUnwindSafe(|| {
            Runner::new(chooser, config()).run(move || {
                let left = match &course.scherlfs {
                    Some(mounting) => scherl::carry_out(&course, mounting),
                    None => carry_out(&course),
                };
                if let Ok(mut slot) = slot.lock() {
                    *slot = Some(left);
                }
            })
        }))
    };
    if let Err(panic) = ran {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        return Err(failure(format!("panicked: {}", words.unwrap_or_default())));
    }
    let left = slot.lock().ok().and_then(|mut s| s.take());
    let left = left.unwrap_or_else(|| Err("the schedule did not end".to_owned())).map_err(failure)?;
    let judge = if course.scherlfs.is_some() { scherl::judge } else { judge };
    match catch_unwind(AssertUnwindSafe(|| judge(&course, &left))) {
        Ok(Ok(())) => {}
        Ok(Err(what)) => return Err(Failure { history: left.events, ..failure(what) }),
        Err(_) => return Err(failure("a judge panicked".to_owned())),
    }
    let outcome = Outcome {
        chosen: chooser.chosen(),
        calls: left.events.len(),
        digest: digest(&left.image, &left.spent),
        deltas: left.deltas,
        kept: left.kept,
        together: left.together,
        moved: left.moved,
        packed: left.packed,
        packed_pages: left.packed_pages,
        released: left.events.iter().filter(|e| matches!(e.call, Call::Release(_)) && e.answer == Answer::Done).count()
            as u64,
        cut: left.cut || left.unmounted.is_none(),
        names: left.names,
    };
    Ok((outcome, left.image))
}

/// The volume for checkers that do not support deltas: recovered and converted to plain F2FS. A volume without deltas
/// is unchanged.
///
/// # Errors
/// If it cannot be settled.
pub fn plain(image: Memory) -> Result<Memory, String> {
    let dev = Arc::new(image);
    f2fs::settle::settle(dev.clone(), clock(), &mut |_, _| ()).map_err(|e| format!("settling: {e}"))?;
    Ok(dev.fork())
}
