//! Records which segments Linux's F2FS chooses to clean and to fill, as `conformance/fixtures/gc/NAME-6.12.txt.zst`.
//!
//! The images are made here, in virtual time, so that their segments differ in age by weeks; the kernel then works on
//! them as a process. Needs `scripts/install-tools kernel`, zstd, and half a minute for each recording. Times differ from run
//! to run, so recordings are not reproducible byte for byte; each is consistent.
//!
//!     cargo run -p joulefs-conformance --example kernel_victims -- [NAME...]

use std::path::Path;
use std::process::ExitCode;

use judges::oracle::cleaning::record;
use judges::oracle::linux::Linux;
use judges::oracle::recorded::pack;
use judges::oracle::victims::{Fixture, Step};
use trials::worn::{BATCHES, Image, LARGE, SECTIONS, SMALL};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The recordings: name, image, script.
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

/// Makes the image, runs the kernel on it, and writes the recording. Returns a summary.
fn make(name: &str, image: Image, script: &str) -> Outcome<String> {
    let work = tempfile::Builder::new().prefix("joulefs-victims-").tempdir()?;
    let path = work.path().join("image");
    image.build(&path)?;
    let mut about = vec![
        "Made by `cargo run -p joulefs-conformance --example kernel_victims`.".to_owned(),
        format!("The image: {image:?}. The script:"),
    ];
    about.extend(script.lines().map(|line| format!("  {}", line.trim())));
    let fixture = record(Linux::complete()?, &path, &about, script)?;
    let text = fixture.to_string();
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gc");
    std::fs::create_dir_all(&place)?;
    let plain = work.path().join(format!("{name}-{}.txt", series(&fixture.kernel)));
    std::fs::write(&plain, &text)?;
    pack(&plain, &place)?;
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
