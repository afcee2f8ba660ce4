//! Records which segments Linux's F2FS chooses to clean and to fill, as `conformance/fixtures/gc/NAME-6.12.txt`.
//!
//! Images are made here, in virtual time, so that their segments are weeks apart in age; the kernel then works on them as
//! a process. Needs `scripts/install-tools kernel`, and half a minute for each recording. Times of day and of
//! the guest differ from run to run, so recordings do not repeat to the byte; every one is whole in itself.
//!
//!     cargo run -p joulefs-conformance --example kernel_victims -- [NAME...]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use device::clock::{Time, VirtualClock};
use device::{Memory, Rng};
use f2fs::mkfs::{self, Options};
use f2fs::{MountOptions, Volume};
use joulefs_conformance::churn;
use joulefs_conformance::oracle::cleaning::record;
use joulefs_conformance::oracle::linux::Linux;
use joulefs_conformance::oracle::victims::{Fixture, Step};
use joulefs_conformance::zoo::{ZooOp, in_process};
use vfs::FileSystem;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// How an image comes to be.
#[derive(Debug, Clone, Copy)]
enum Life {
    /// Rounds of making, changing and deleting files, hours to days apart: ages and valid counts of all kinds.
    Worn { rounds: u64 },
    /// A few days on each of which many files are written and every so-manieth deleted: many segments of one age.
    Batches { days: u64 },
}

/// An image: 2 MiB segments on a volume of `mib`, `percent` of its user blocks in use.
#[derive(Debug, Clone, Copy)]
struct Image {
    mib: u64,
    per_section: u32,
    percent: u64,
    seed: u64,
    life: Life,
}

const LARGE: Image = Image { mib: 1024, per_section: 1, percent: 62, seed: 1, life: Life::Worn { rounds: 36 } };
const SMALL: Image = Image { mib: 512, per_section: 1, percent: 55, seed: 2, life: Life::Worn { rounds: 24 } };
const SECTIONS: Image = Image { mib: 768, per_section: 4, percent: 45, seed: 3, life: Life::Worn { rounds: 24 } };
const BATCHES: Image = Image { mib: 512, per_section: 1, percent: 60, seed: 4, life: Life::Batches { days: 6 } };

/// What is recorded: name, image, script.
const RECORDINGS: [(&str, Image, &str); 11] = [
    (
        "greedy",
        LARGE,
        "for i in 1 2 3 4 5 6 7 8; do
            mnt background_gc=off; knob gc_idle 2; clean background; umnt
            mnt background_gc=off; knob gc_urgent 1; clean background; umnt
            mnt background_gc=off; clean foreground; umnt
         done",
    ),
    (
        "cost-benefit",
        LARGE,
        "for i in 1 2 3 4 5 6 7 8; do
            mnt background_gc=off; clean background; umnt
            mnt background_gc=off; knob gc_idle 1; clean background; umnt
            mnt background_gc=off; knob gc_urgent 2; clean background; umnt
         done",
    ),
    (
        "age-threshold",
        LARGE,
        "at() {
            mnt background_gc=off,atgc
            while [ $# -gt 0 ]; do knob $1 $2; shift 2; done
            state; clean background; umnt
         }
         for i in 1 2 3 4 5 6 7 8 9 10; do at; done
         for days in 1 3 14 30; do at atgc_age_threshold $((days * 86400)); done
         for ratio in 0 5 50 100; do at atgc_candidate_ratio $ratio; done
         for count in 1 50; do at atgc_candidate_count $count; done
         for count in 0 1 2 3; do at atgc_candidate_count $count atgc_candidate_ratio 0; done
         for weight in 0 20 40 80 95 99; do at atgc_age_weight $weight; done
         for i in 1 2 3 4; do at gc_idle 3; done",
    ),
    (
        "fill",
        LARGE,
        "round() {
            mnt background_gc=off; knob min_ssr_sections 1000
            \"$@\"
            rm -r $MNT/new* 2>/dev/null || true
            umnt
         }
         for i in 1 2 3 4 5 6 7 8; do
            round fill new.db 2; round fill new 2; round fill new.jpg 2; round files new- 600; round directories new- 600
         done",
    ),
    (
        "fill-by-age",
        LARGE,
        "mnt background_gc=off,atgc; state
         for i in $(seq 60); do clean background; state; done
         umnt",
    ),
    (
        "sections",
        SECTIONS,
        "for i in 1 2 3 4 5 6 7; do
            mnt background_gc=off; wear $i 250; umnt
            mnt background_gc=off; knob gc_idle 2; clean background; umnt
            mnt background_gc=off; clean background; umnt
            mnt background_gc=off,atgc; state; clean background; umnt
            mnt background_gc=off; clean foreground; umnt
         done",
    ),
    (
        "one-age",
        BATCHES,
        "for i in 1 2 3 4 5 6 7 8; do
            mnt background_gc=off; knob gc_idle 2; clean background; umnt
            mnt background_gc=off; clean background; umnt
            mnt background_gc=off,atgc; state; clean background; umnt
         done",
    ),
    (
        "window",
        LARGE,
        "mnt background_gc=off; knob max_victim_search 50; knob min_ssr_sections 0
         for i in $(seq 12); do clean background; state; done
         umnt
         mnt background_gc=off; knob max_victim_search 50; knob min_ssr_sections 0; knob gc_idle 2
         for i in $(seq 12); do clean background; state; done
         umnt",
    ),
    (
        "marked",
        LARGE,
        "for i in 1 2 3 4; do
            mnt background_gc=off
            clean background; clean background; clean background; clean foreground; clean foreground
            umnt
         done",
    ),
    (
        "shortage",
        SMALL,
        "mnt background_gc=off,mode=lfs
         for i in $(seq 16); do fill new$i 10; state; done
         umnt",
    ),
    (
        "one-mount",
        SMALL,
        "for policy in 1 2; do
            mnt background_gc=off; knob gc_idle $policy; knob min_ssr_sections 0
            for i in $(seq 12); do clean background; state; wear $policy$i 15; state; done
            umnt
         done
         mnt background_gc=off,atgc; state
         for i in $(seq 12); do clean background; state; wear 3$i 15; state; done
         umnt",
    ),
];

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let known = |name: &str| RECORDINGS.iter().any(|(n, _, _)| *n == name);
    if let Some(strange) = wanted.iter().find(|name| !known(name)) {
        eprintln!("kernel_victims: no recording `{strange}`");
        return ExitCode::from(2);
    }
    for (name, image, script) in RECORDINGS {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            match make(name, image, script) {
                Ok(text) => println!("{name}: {text}"),
                Err(e) => {
                    eprintln!("kernel_victims: {name}: {e}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}

/// Makes the image, lets the kernel work on it, writes the recording. Returns what it holds, in words.
fn make(name: &str, image: Image, script: &str) -> Outcome<String> {
    let work = tempfile::Builder::new().prefix("joulefs-victims-").tempdir()?;
    let path = work.path().join("image");
    build(image, &path)?;
    let mut about = vec![
        "Made by `cargo run -p joulefs-conformance --example kernel_victims`.".to_owned(),
        format!("The image: {image:?}. The script:"),
    ];
    about.extend(script.lines().map(|line| format!("  {}", line.trim())));
    let fixture = record(Linux::built()?, &path, &about, script)?;
    let text = fixture.to_string();
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gc");
    std::fs::create_dir_all(&place)?;
    std::fs::write(place.join(format!("{name}-{}.txt", series(&fixture.kernel))), &text)?;
    Ok(summary(&fixture, text.len()))
}

/// `6.12` of `6.12.117 #1 ...`.
fn series(kernel: &str) -> String {
    let release = kernel.split_whitespace().next().unwrap_or("unknown");
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

fn summary(fixture: &Fixture, bytes: usize) -> String {
    let victims = fixture.mounts.iter().flat_map(|m| &m.steps).filter(|s| matches!(s, Step::Victim(_))).count();
    let dirty =
        fixture.mounts.first().map_or(0, |m| m.state.segments.iter().filter(|s| s.valid > 0 && s.valid < 512).count());
    format!(
        "{} mounts, {victims} choices, {} of them first ones, {dirty} segments dirty at the beginning, {bytes} bytes",
        fixture.mounts.len(),
        fixture.first_choices().count()
    )
}

/// Formats and ages a volume and saves it.
fn build(image: Image, path: &Path) -> Outcome<()> {
    let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
    let dev = Arc::new(Memory::new((image.mib << 20) / 4096));
    let mut rng = Rng::new(image.seed);
    let mut uuid = [0; 16];
    rng.fill(&mut uuid);
    let options = Options {
        uuid: Some(uuid),
        checkpoint_version: Some(1),
        segs_per_sec: image.per_section,
        assume_zeroed: true,
        ..Options::default()
    };
    let made = mkfs::format(&*dev, &*clock, &options)?;
    let volume = Volume::mount(dev.clone(), clock.clone(), MountOptions { inline: false, ..MountOptions::default() })?;
    let budget = made.user_blocks * 4096 / 100 * image.percent;
    match image.life {
        Life::Worn { rounds } => worn(&volume, &clock, &mut rng, budget, rounds, image.seed)?,
        Life::Batches { days } => batches(&volume, &clock, budget, days)?,
    }
    volume.unmount()?;
    dev.save(path)?;
    Ok(())
}

fn perform(volume: &Volume, ops: &[ZooOp]) -> Outcome<()> {
    in_process::perform(volume, ops)?;
    Ok(volume.sync()?)
}

fn worn(volume: &Volume, clock: &VirtualClock, rng: &mut Rng, budget: u64, rounds: u64, seed: u64) -> Outcome<()> {
    // A file of so many blocks has indirect nodes, the only ones in the cold node log.
    const BIG: usize = 6 << 20;
    const DIRECTORIES: u64 = 120;
    for number in 0..rounds {
        let mut ops = churn::round(seed, budget - 8 * BIG as u64, number);
        let path = |n: u64| format!("big{n}").into_bytes();
        if number % 3 == 0 {
            ops.push(ZooOp::Create { path: path(number), perm: 0o644 });
            ops.push(ZooOp::Write { path: path(number), offset: 0, len: BIG, stream: number });
        }
        if number >= 18 && number % 3 == 0 {
            ops.push(ZooOp::Unlink { path: path(number - 18) });
        }
        // Directories of their own: the hot node log gets little else.
        let directory = |n: u64, k: u64| format!("dir{n}-{k}").into_bytes();
        ops.extend((0..DIRECTORIES).map(|k| ZooOp::Mkdir { path: directory(number, k), perm: 0o755 }));
        if let Some(old) = number.checked_sub(2) {
            let gone = (0..DIRECTORIES).filter(|k| (k + old) % 3 != 0);
            ops.extend(gone.map(|k| ZooOp::Rmdir { path: directory(old, k) }));
        }
        perform(volume, &ops)?;
        clock.advance(Duration::from_secs(3600 * rng.range(2..80)));
    }
    Ok(())
}

fn batches(volume: &Volume, clock: &VirtualClock, budget: u64, days: u64) -> Outcome<()> {
    const BYTES: u64 = 16 << 10;
    // Each file has a node beside its four blocks.
    let each = budget / days / (BYTES + 4096);
    for day in 0..days {
        let suffix = ["", ".db", ".jpg"][(day % 3) as usize];
        let path = |n: u64| format!("{day}-{n:05}{suffix}").into_bytes();
        let mut ops = Vec::new();
        for n in 0..each {
            ops.push(ZooOp::Create { path: path(n), perm: 0o644 });
            ops.push(ZooOp::Write { path: path(n), offset: 0, len: BYTES as usize, stream: n });
        }
        perform(volume, &ops)?;
        // On the same day, so that deleting does not change a segment's age.
        let gone = (0..each).filter(|n| n % (day + 2) == 0).map(|n| ZooOp::Unlink { path: path(n) });
        perform(volume, &gone.collect::<Vec<_>>())?;
        clock.advance(Duration::from_secs(86_400 * (day + 1)));
    }
    Ok(())
}
