//! Another program can replay a recording and compare runs, without the command line.

use std::path::{Path, PathBuf};

use device::energy::Energy;
use sim::replay::judged::Difference;
use sim::replay::{Error, Image, Job, Program, Progress, Replay, Settings, Total, Which};

/// A program that shows nothing and has no images.
struct Silent;

impl Progress for Silent {
    fn begin(&self, what: &str, total: Total) -> Box<dyn Job + '_> {
        ().begin(what, total)
    }
}

impl Program for Silent {
    fn image(&self, path: &Path) -> Result<Image, Error> {
        Err(Error::Failed(format!("{}: no images here", path.display())))
    }

    fn build(&self) -> &str {
        "a test"
    }
}

/// Requests in the format of SNIA's Microsoft Research traces.
fn requests(dir: &Path) -> PathBuf {
    let line = |n: u64| format!("{},host,0,Write,{},4096,10\n", 128_166_372_003_061_629 + n * 100_000, n * 4096);
    let file = dir.join("requests.csv");
    std::fs::write(&file, (0..50).map(line).collect::<String>()).unwrap();
    file
}

/// The names, keys and energies of all runs.
fn run(settings: &Settings) -> Vec<(String, String, Energy)> {
    let mut replay = Replay::open(settings, &Silent).unwrap();
    let points = replay.points(&Which::All, true).unwrap();
    let outcomes = replay.run(&points).unwrap();
    let of = |(point, outcome): (&sim::replay::Point, &sim::replay::Outcome)| {
        (point.name().to_owned(), point.known.as_ref().unwrap().key.clone(), outcome.total())
    };
    points.iter().zip(&outcomes).map(of).collect()
}

fn refused(settings: &Settings) -> String {
    let error = Replay::open(settings, &Silent).and_then(|mut replay| replay.points(&Which::All, false).map(drop));
    let error = error.unwrap_err();
    assert!(error.is_of_settings(), "{error}");
    error.to_string()
}

#[test]
fn runs_repeat_to_the_picojoule_and_a_default_has_the_key_of_the_same_value_given() {
    let dir = tempfile::tempdir().unwrap();
    let compare = vec!["profile=kirin9000-ufs31,galaxy-nexus-emmc".to_owned()];
    let settings = Settings { recording: requests(dir.path()), compare, ..Settings::default() };
    let both = run(&settings);
    assert_eq!(both, run(&settings));
    let names: Vec<&str> = both.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["kirin9000-ufs31", "galaxy-nexus-emmc"]);
    assert!(both[0].2 != both[1].2 && both[0].1 != both[1].1);
    assert_eq!(run(&Settings { compare: Vec::new(), ..settings }), both[..1]);
}

#[test]
fn a_setting_that_does_not_suit_the_recording_or_another_setting_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let recording = requests(dir.path());
    let of_calls = Settings { recording: recording.clone(), cold: true, ..Settings::default() };
    assert!(refused(&of_calls).ends_with("; --cold is for recordings of calls to a file system"));
    let typo = Settings { recording, profile: Some("kirin".into()), ..Settings::default() };
    assert!(refused(&typo).starts_with("no profile \"kirin\""));
    let image = Settings { image: Some("disk.img".into()), seed: Some(2), ..Settings::default() };
    assert!(image.variants(None).is_err_and(|e| e.to_string().starts_with("--image is an existing volume")));
}

/// The energy of a recording on volumes that were filled with these seeds.
fn totals(seeds: std::ops::Range<u64>) -> Vec<f64> {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recordings/chat-delete.rec");
    let seeds: Vec<String> = seeds.map(|seed| seed.to_string()).collect();
    let compare = vec![format!("seed={}", seeds.join(","))];
    let settings = Settings { recording, compare, fill: Some("80%".to_owned()), ..Settings::default() };
    run(&settings).iter().map(|(.., energy)| energy.joules()).collect()
}

#[test]
fn few_equal_configurations_are_told_apart_and_most_that_differ_by_five_percent_are() {
    // A pair is two configurations with five seeds each, and no seed is used twice.
    let pairs = if std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1") { 200 } else { 10 };
    let all: Vec<f64> = (0..pairs * 10).step_by(100).flat_map(|from| totals(from + 1..from + 101)).collect();
    let seen = |factor: f64| {
        let change = |pair: &[f64]| (0..5).map(|n| (factor * pair[n] / pair[5 + n] - 1.0) * 100.0).collect::<Vec<_>>();
        all.chunks(10).filter(|pair| Difference::of(&change(pair), true).is_seen()).count()
    };
    let (equal, dearer) = (seen(1.0), seen(1.05));
    println!("of {pairs} pairs: {equal} of equal ones are told apart, {dearer} of those that differ by 5 %");
    // One in twenty is expected: more than these come in one of a hundred tests.
    let most = if pairs == 200 { 18 } else { 3 };
    assert!(equal <= most && dearer * 10 >= pairs as usize * 9, "{equal} and {dearer} of {pairs}");
}
