//! Cases on ScherlFS: how a volume is mounted, run, and checked after a cut.
//!
//! Threads' operations and faults are drawn as for F2FS ([`crate::course`]). ScherlFS promises more after a cut: the
//! whole volume is as it was after some call, and no call before a successful sync is missing. So the recovered tree is
//! one read of everything, and the search for an order must place it somewhere after every successful sync
//! ([`order::find_seen`]).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use device::{BlockDevice, Lba, Memory, PowerCut, Tag, VirtualClock};
use scherlfs_scheduled::{Sync, Volume};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use vfs::{FileSystem, Ino};

use crate::course::{Course, Dir, Op, Trouble};
use crate::hand::{Answer, Event, Hand, History};
use crate::medium::Medium;
use crate::mounting::Mounting;
use crate::scene::{self, Left, Stood};
use crate::tree::Tree;
use crate::{durable, order};

/// Blocks of the volume: 24 MiB.
const BLOCKS: u64 = 24 * 256;
/// Blocks of the stage.
const STAGE: u64 = 1024;
/// Blocks of a segment: few, so that there is something to clean.
const SEGMENT: u32 = 16;

/// Another disk of the volume: every request is a scheduling point. It stays powered until all threads have ended.
struct Beside {
    below: PowerCut,
    requests: AtomicU64,
}

impl Beside {
    fn new(blocks: u64) -> Arc<Self> {
        Arc::new(Beside { below: PowerCut::new(Memory::new(blocks)), requests: AtomicU64::new(0) })
    }

    fn point(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
    }
}

impl BlockDevice for Beside {
    fn blocks(&self) -> u64 {
        self.below.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.point();
        self.below.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        self.point();
        let out = self.below.write(at, data, tag);
        self.point();
        out
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.point();
        let out = self.below.flush(tag);
        self.point();
        out
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.point();
        self.below.discard(at, blocks, tag)
    }
}

/// The initial volume of every case.
fn image() -> Result<&'static Memory, String> {
    static IMAGE: OnceLock<Result<Memory, String>> = OnceLock::new();
    IMAGE.get_or_init(make).as_ref().map_err(Clone::clone)
}

fn make() -> Result<Memory, String> {
    let (dev, clock) = (Arc::new(Memory::new(BLOCKS)), scene::clock());
    let options = scherlfs::make::Options { segment_blocks: SEGMENT, ..Default::default() };
    scherlfs::make::format(dev.clone(), &*clock, &options).map_err(|e| e.to_string())?;
    let vol = scherlfs::Volume::mount(dev.clone(), clock, scherlfs::MountOptions::default());
    let vol = vol.map_err(|e| e.to_string())?;
    vol.mkdir(scene::ME, vol.root(), scene::FILLER, 0o700, 0).map_err(|e| e.to_string())?;
    scene::fill(&vol).map_err(|e| e.to_string())?;
    Ok(dev.fork())
}

/// Background work: all of it, or the part that a change of power source causes.
fn tidy(vol: &Volume, how: usize) -> vfs::Result<()> {
    match how % 4 {
        0 | 2 => match vol.tidy() {
            Ok(_) | Err(vfs::Error::NoSpace) => Ok(()),
            Err(e) => Err(e),
        },
        n => {
            vol.tune("power", if n == 1 { "powered" } else { "battery" }).map_err(vfs::Error::corrupt)?;
            (0..how).try_for_each(|_| vol.tick().map(drop))
        }
    }
}

/// The schedule; runs inside of a scheduler.
pub(crate) fn carry_out(course: &Course, mounting: &Mounting) -> Result<Left, String> {
    let clock = scene::clock();
    let dev = Arc::new(Medium::new(image()?, clock.clone())?.with_points_behind());
    let index = match mounting.index {
        true => Some(Beside::new(scherlfs_scheduled::index_blocks(BLOCKS).map_err(|e| e.to_string())?)),
        false => None,
    };
    let stage = (mounting.sync == Sync::Burst).then(|| Beside::new(STAGE));
    let beside = |b: &Option<Arc<Beside>>| b.clone().map(|b| b as Arc<dyn BlockDevice>);
    let options = mounting.options(beside(&index), beside(&stage));
    let vol = Arc::new(Volume::mount(dev.clone(), clock.clone(), options).map_err(|e| e.to_string())?);
    let mut dirs = vec![vol.root().0];
    for (parent, name) in Dir::PLACES {
        let e = vol.lookup(Ino(dirs[usize::from(parent)]), &name.bytes()).map_err(|e| e.to_string())?;
        dirs.push(e.attr.ino.0);
    }
    scene::crowd(&*vol, mounting.crowd).map_err(|e| e.to_string())?;
    dev.arm(course.trouble);
    let (history, dirs) = (Arc::new(History::default()), Arc::new(dirs));
    let threads: Vec<_> = (course.threads.iter().cloned().enumerate())
        .map(|(thread, ops)| {
            let (vol, history, dirs) = (vol.clone(), history.clone(), dirs.clone());
            let (dev, clock): (_, Arc<VirtualClock>) = (dev.clone(), clock.clone());
            shuttle::thread::spawn(move || {
                let hand = Hand { fs: &*vol, history: &history, dirs: &dirs, thread, noisy: false, opens: true };
                for (number, op) in ops {
                    if dev.is_cut() {
                        break;
                    }
                    match op {
                        Op::Clean(how) => hand.background(|| tidy(&vol, how)),
                        Op::Thin(n) => hand.background(|| scene::thin(&*vol, n)),
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
    let mut unmounted = None;
    if !dev.is_cut() {
        let thread = course.threads.len();
        scene::look(&Hand { fs: &*vol, history: &history, dirs: &dirs, thread, noisy: false, opens: true });
        match vol.unmount() {
            Ok(()) => unmounted = Some((0, 0)),
            Err(e) if course.trouble == Trouble::None => return Err(format!("unmount: {e}")),
            Err(_) => {}
        }
    }
    let loss = scene::loss(course.trouble, unmounted.is_some());
    let stood = |b: &Option<Arc<Beside>>| b.as_ref().map(|b| b.below.image(loss));
    let done = vol.done();
    Ok(Left {
        unmounted,
        moved: done.moved,
        together: done.gathered,
        stood: Stood { index: stood(&index), stage: stood(&stage) },
        ..Left::of(&history, &dirs, dev.image(loss), dev.spent(), dev.is_cut())
    })
}

fn clean(dev: &dyn BlockDevice, when: &str) -> Result<(), String> {
    let report = scherlfs_fsck::check(dev);
    if report.is_clean() { Ok(()) } else { Err(format!("fsck {when}: {:?}", report.findings)) }
}

fn mounted(dev: &Arc<Memory>, beside: &Stood) -> Result<scherlfs::Volume, String> {
    let mut options = scherlfs::MountOptions::default();
    let other = |image: &Option<Memory>| image.as_ref().map(|m| Arc::new(m.fork()) as Arc<dyn BlockDevice>);
    (options.beside.index, options.beside.stage) = (other(&beside.index), other(&beside.stage));
    scherlfs::Volume::mount(dev.clone(), scene::clock(), options).map_err(|e| format!("mounting anew: {e}"))
}

/// Checks the result of a schedule and the answers of its calls.
pub(crate) fn judge(course: &Course, left: &Left) -> Result<(), String> {
    let failed = |e: &&Event| e.answer == Answer::Failed;
    if course.trouble == Trouble::None
        && let Some(e) = left.events.iter().find(failed)
    {
        return Err(format!("a device error, and the device has none: {e:?}"));
    }
    let start = Tree::new(&left.dirs);
    let dev = Arc::new(left.image.fork());
    let alone = Stood::default();
    clean(&*dev, "as it was left")?;
    if left.unmounted.is_some() {
        let order = order::find(&left.events, &start)?;
        let found = durable::look(&mounted(&dev, &alone)?)?;
        return durable::same(&order.tree, &found).map_err(|e| format!("mounted anew: {e}"));
    }
    let vol = mounted(&dev, &left.stood)?;
    let found = durable::look(&vol).map_err(|e| format!("after a cut: {e}"))?;
    order::find_seen(&left.events, &start, &|tree| durable::is(tree, &found))
        .map_err(|e| format!("after a cut: {e}; found {found:?}"))?;
    vol.unmount().map_err(|e| format!("unmount after recovery: {e}"))?;
    clean(&*dev, "after recovery and unmount")?;
    let again = durable::look(&mounted(&dev, &alone)?)?;
    if again == found {
        Ok(())
    } else {
        Err(format!("recovered as {found:?}, and without what stood beside {again:?}"))
    }
}
