//! How many sections must be cleaned to pack a volume full of holes, by Linux's F2FS and by ours?
//!
//! [`Holes`] makes the volume: segments of the three types of FAGC TACO'23, section 6.1, a week old. [`ours`] and
//! [`linux`] clean copies of the same image, one section after the other with checkpoints in between ([`Drive`]), and
//! record the result of each ([`Course`]). [`space`] then measures the layout of the free space.
//!
//! Left out: when cleaning would run (each section is requested explicitly), and the exact sequence of victims: the
//! recordings in `conformance/fixtures/gc` cover it.

pub mod space;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::clock::{Time, VirtualClock};
use device::{BLOCK, BlockDevice, Fingerprint};
use f2fs::gc::settings::{Settings, Urgency};
use f2fs::mkfs::{self, Options};
use f2fs::{MountOptions, Volume};
use sim::aging::{self, Ager, Recipe};
use sim::error::SimError;
use sim::typed;
use vfs::FileSystem;
use victim::{Policy, Power};
use volume::Kind;

use judges::oracle::kernel::Kernel;
use judges::oracle::linux::Linux;

/// Why a packing run failed.
#[derive(Debug, thiserror::Error)]
pub enum PackingError {
    /// Creating the contents failed.
    #[error("making the volume: {0}")]
    Aging(#[from] SimError),
    /// It could not be formatted.
    #[error("formatting: {0}")]
    Mkfs(#[from] f2fs::mkfs::MkfsError),
    /// It could not be mounted.
    #[error("mounting: {0}")]
    Mount(#[from] f2fs::MountError),
    /// It could not be cleaned.
    #[error("cleaning: {0}")]
    Fs(#[from] vfs::Error),
    /// A setting is not accepted.
    #[error("atgc_age_threshold {0}")]
    Setting(String),
    /// The image could not be saved for Linux.
    #[error("saving the image: {0}")]
    Save(std::io::Error),
    /// The segment table cannot be read.
    #[error("reading the segment table: {0}")]
    Table(String),
    /// The guest's script printed something other than rounds.
    #[error("line `{0}` of the guest's output")]
    Output(String),
}

/// A volume and its segments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Holes {
    /// MiB of the volume.
    pub mib: u64,
    /// Segments of each type.
    pub segments: u64,
    /// Valid blocks per segment of type A or B.
    pub valid: u64,
    /// Invalid blocks as a percentage of all.
    pub invalid_percent: f64,
}

/// A policy, with its settings on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Its display name.
    pub name: &'static str,
    /// Our policy.
    policy: Policy,
    /// Our urgency.
    urgency: Urgency,
    /// Percent of the sections that our side keeps free at any cost.
    keep_free: u32,
    /// Linux mount options.
    options: &'static str,
    /// Linux settings below `/sys/fs/f2fs`.
    knobs: &'static [(&'static str, u8)],
}

impl Way {
    const fn new(
        name: &'static str,
        policy: Policy,
        options: &'static str,
        knobs: &'static [(&'static str, u8)],
    ) -> Self {
        Way { name, policy, urgency: Urgency::Normal, keep_free: 0, options, knobs }
    }
}

/// The policies of unpatched Linux.
pub const WAYS: [Way; 4] = [
    Way::new("cost-benefit", Policy::CostBenefit, "background_gc=off", &[("gc_idle", 1)]),
    Way::new("greedy", Policy::Greedy, "background_gc=off", &[("gc_idle", 2)]),
    Way { urgency: Urgency::High, ..Way::new("urgent", Policy::CostBenefit, "background_gc=off", &[("gc_urgent", 1)]) },
    Way::new("atgc", Policy::Atgc, "background_gc=off,atgc", &[("gc_idle", 3)]),
];

/// Percent of the sections that [`JOULE_ASKED`] keeps free.
pub const ASKED: u8 = 35;
/// FAGC that moves blocks into the most fragmented segments of similar age.
pub const FAGC: Way = Way::new(
    "fagc",
    Policy::Fagc,
    "background_gc=off,atgc,gc_policy=fagc",
    &[("gc_frag_ratio", 50), ("gc_frag_target", 1)],
);
/// Joule with a demand for free sections; like ours, it may move blocks into holes.
pub const JOULE_ASKED: Way = Way {
    keep_free: ASKED as u32,
    ..Way::new("joule-asked", Policy::Joule, "background_gc=off,atgc,gc_policy=joule", &[("gc_keep_free", ASKED)])
};

/// The additional policies of Linux with `kernel/patches`.
pub const PATCHED: [Way; 5] = [
    Way::new("cost-benefit", Policy::CostBenefit, "background_gc=off,gc_policy=cost_benefit", &[]),
    Way::new("atgc", Policy::Atgc, "background_gc=off,atgc", &[]),
    FAGC,
    Way::new("joule", Policy::Joule, "background_gc=off,gc_policy=joule", &[]),
    JOULE_ASKED,
];

/// FAGC in Linux with `kernel/patches` that moves blocks into the fullest segments of similar age. Ours has no such
/// target.
pub const FAGC_FULLEST: Way =
    Way { name: "fagc, fullest", knobs: &[("gc_frag_ratio", 50), ("gc_frag_target", 0)], ..FAGC };

/// Finds an entry of [`WAYS`] by name.
pub fn way(name: &str) -> Option<Way> {
    WAYS.into_iter().find(|way| way.name == name)
}

/// How cleaning is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drive {
    /// Maximum number of sections.
    pub limit: usize,
    /// Sections between checkpoints. Until then Linux keeps moved blocks in memory.
    pub every: usize,
}

/// One section cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Whether it held nodes.
    pub nodes: bool,
    /// Blocks moved out of it.
    pub moved: u64,
    /// Free segments afterwards, without those emptied since the last checkpoint.
    pub free: u64,
}

/// The course of a packing run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Course {
    /// Free segments at the start.
    pub free: u64,
    /// The cleaned sections, in order.
    pub rounds: Vec<Round>,
    /// True if nothing more was worth cleaning; false if the limit was reached.
    pub ended: bool,
}

impl Holes {
    /// Segments of all types.
    pub fn total(&self) -> u64 {
        3 * self.segments
    }

    /// Valid blocks of all types.
    pub fn valid_blocks(&self) -> Result<u64, PackingError> {
        Ok(typed::types(self.valid, self.invalid_percent)?.iter().map(|t| t.valid * self.segments).sum())
    }

    /// Segments that would be empty if no other segment had a free block.
    pub fn optimum(&self) -> Result<u64, PackingError> {
        Ok(self.total() - self.valid_blocks()?.div_ceil(typed::SEGMENT))
    }

    /// The unmounted volume. It was mounted for eight days after the last write: Linux uses ATGC only after seven
    /// (kernel `DEF_GC_THREAD_AGE_THRESHOLD`).
    pub fn volume(&self) -> Result<Fingerprint, PackingError> {
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        let dev = Arc::new(Fingerprint::new((self.mib << 20) / BLOCK as u64));
        let options =
            Options { uuid: Some([7; 16]), checkpoint_version: Some(1), assume_zeroed: true, ..Options::default() };
        mkfs::format(&*dev, &*clock, &options)?;
        let gc = Settings { on: false, ..Settings::default() };
        let volume = Volume::mount(dev.clone(), clock.clone(), MountOptions { gc, ..MountOptions::default() })?;
        clock.advance(Duration::from_secs(3600));
        for (n, t) in typed::types(self.valid, self.invalid_percent)?.iter().enumerate() {
            typed::write(&volume, t, self.segments, n as u64, || Ok(()))?;
        }
        clock.advance(Duration::from_secs(8 * 86_400));
        volume.unmount()?;
        drop(volume);
        Ok(dev.fork())
    }
}

/// A volume of `mib` MiB, aged by a recipe. Not mounted.
///
/// # Errors
/// Those of the recipe and the volume.
pub fn aged(recipe: &str, mib: u64, seed: u64) -> Result<Fingerprint, PackingError> {
    let device = Arc::new(Fingerprint::new((mib << 20) / BLOCK as u64));
    let clock = aging::clock();
    let aging_failed = |e: SimError| PackingError::Aging(e);
    aging::format(Kind::F2fs, device.clone(), &*clock, seed, true).map_err(|e| aging_failed(e.into()))?;
    let volume = Volume::mount(device.clone(), clock.clone(), MountOptions::default())?;
    let chain = Recipe::chain(recipe).map_err(|e| aging_failed(e.into()))?;
    Ager::new(&*volume, &clock, seed).all(&chain, &mut |_| {}).map_err(|e| aging_failed(e.into()))?;
    volume.unmount()?;
    drop(volume);
    Ok(device.fork())
}

impl Course {
    /// The rounds until the last one that freed a segment.
    pub fn packing(&self) -> &[Round] {
        let most = self.rounds.iter().map(|r| r.free).max().unwrap_or(0).max(self.free);
        let end = if most == self.free { 0 } else { self.rounds.iter().take_while(|r| r.free < most).count() + 1 };
        &self.rounds[..end]
    }
}

/// Number of sections that held data, and of the blocks moved out of them.
pub fn of_data(rounds: &[Round]) -> (u64, u64) {
    let data = || rounds.iter().filter(|r| !r.nodes);
    (data().count() as u64, data().map(|r| r.moved).sum())
}

/// Cleans the volume with our file system, as on a charger.
pub fn ours(device: Arc<dyn BlockDevice>, way: Way, drive: Drive) -> Result<Course, PackingError> {
    let clock = Arc::new(VirtualClock::new(Time::new(1_701_000_000, 0)));
    let Way { policy, urgency, keep_free, .. } = way;
    let gc = Settings { on: false, policy, urgency, keep_free, power: Power::Powered, ..Settings::default() };
    let options = MountOptions { gc, ..MountOptions::default() };
    let volume = Volume::mount(device, clock.clone(), options)?;
    volume.tune("atgc_age_threshold", "0").map_err(PackingError::Setting)?;
    let c = &volume.counters;
    let mut course = Course { free: volume.state().free_segments.into(), rounds: Vec::new(), ended: false };
    while course.rounds.len() < drive.limit {
        let before = (c.node_victims.load(Relaxed), c.moved_blocks());
        if !volume.clean_in_background(&gc).map_err(vfs::Error::from)? {
            course.ended = true;
            break;
        }
        if (course.rounds.len() + 1).is_multiple_of(drive.every) {
            volume.sync()?;
        }
        course.rounds.push(Round {
            nodes: c.node_victims.load(Relaxed) > before.0,
            moved: c.moved_blocks() - before.1,
            free: volume.state().free_segments.into(),
        });
        clock.advance(Duration::from_secs(1));
    }
    volume.unmount()?;
    Ok(course)
}

/// Enough for thousands of sections on a busy host.
const TIMEOUT: Duration = Duration::from_secs(600);

/// In the guest: cleans a section with the file system's own call, syncs, and prints the kernel's statistics.
const GUEST: &str = r#"
S=/sys/fs/f2fs/$DISK
echo 0 >$S/atgc_age_threshold
for knob in $KNOBS; do echo ${knob#*=} >$S/${knob%%=*}; done
perl -e '
    use strict;
    my ($s, $p) = map "/$_/fs/f2fs/$ENV{DISK}", "sys", "proc";
    sub number { open my $f, "<", "$s/$_[0]" or die "$_[0]: $!"; my $n = <$f>; chomp $n; $n }
    # Rows of ten behind the number of the first.
    sub table {
        open my $f, "<", "$p/$_[0]" or die "$_[0]: $!";
        map { my @row = split; shift @row; @row } grep /^\d/, <$f>;
    }
    open my $root, "<", "." or die $!;
    my $sync = pack "I", 0;
    print "free ", number("free_segments"), "\n";
    my ($limit, $every) = @ARGV;
    for (1 .. $limit) {
        my ($moved, @segments, @marked) = number("moved_blocks_background");
        @segments = table("segment_info");
        my @before = table("victim_bits");
        ioctl $root, 0x4004f506, $sync or print("end ", $! + 0, "\n"), last;
        my @after = table("victim_bits");
        my @victims = grep { $after[$_] && !$before[$_] } 0 .. $#after;
        $moved = number("moved_blocks_background") - $moved;
        $_ % $every or syscall 162;
        print "round ", join(",", map "$_:$segments[$_]", @victims), " $moved ", number("free_segments"), "\n";
    }' $LIMIT $EVERY
"#;

/// Cleans the volume in an image file with a Linux.
///
/// # Panics
/// Like [`Kernel::run`], and if the kernel finds errors in the volume.
pub fn linux(linux: Linux, image: &Path, way: Way, drive: Drive) -> Result<Course, PackingError> {
    let knobs: Vec<String> = way.knobs.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
    let script = format!("KNOBS='{}' LIMIT={} EVERY={}\n{GUEST}", knobs.join(" "), drive.limit, drive.every);
    let run = Kernel::of(linux).mount_options(way.options).timeout(TIMEOUT).run(image, &script).expect_ok();
    run.assert_no_f2fs_complaints();
    let mut course = Course { free: 0, rounds: Vec::new(), ended: false };
    for line in run.stdout.lines() {
        read(line, &mut course).ok_or_else(|| PackingError::Output(line.to_owned()))?;
    }
    Ok(course)
}

/// Errno of Linux's cleaning call if it finds no victim (`ENODATA`).
const NO_VICTIM: u64 = 61;

/// Parses a line that the guest printed.
fn read(line: &str, course: &mut Course) -> Option<()> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["free", n] => course.free = n.parse().ok()?,
        ["end", errno] => course.ended = errno.parse::<u64>().ok()? == NO_VICTIM,
        ["round", victim, moved, free] => {
            // SEGMENT:KIND|VALID; kinds from 3 on are nodes.
            let kind = victim.split_once(':')?.1.split_once('|')?.0;
            course.rounds.push(Round {
                nodes: kind.parse::<u8>().ok()? >= 3,
                moved: moved.parse().ok()?,
                free: free.parse().ok()?,
            });
        }
        _ => return None,
    }
    Some(())
}
