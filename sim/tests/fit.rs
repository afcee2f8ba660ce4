//! Fitting prices to measured rows, and agreement of the simulated device with the measurements.

use std::sync::Arc;

use device::clock::{Clock, VirtualClock};
use device::energy::profile::{Confidence, Profile};
use device::energy::{Component, Ledger, Meter, Nanos};
use device::model::{self, Pace, Simulated};
use device::{BLOCK, BlockDevice, Lba, Memory, Rng, Tag};
use sim::fit::{Comparison, Data, Fit, FitError, Parameters, Quality, Rows, calibrate};

const MEASURED: &str = include_str!("../../device/profiles/calibration/kirin9000.csv");
const HELD_OUT: &str = include_str!("../../device/profiles/calibration/kirin9000-held-out.csv");
const SHIPPED: &str = include_str!("../../device/profiles/kirin9000-ufs31.toml");

fn measured() -> Rows {
    Rows::parse(MEASURED, "kirin9000.csv").unwrap()
}

#[test]
fn the_eight_parameters_of_the_kirin_come_out_to_three_digits() {
    let fit = Fit::new(&measured()).unwrap();
    let expected = [0.4393, 0.05182, 1.3243, 0.02430, 0.6663, 1.689, 0.06879, 0.3403];
    for ((p, got), expected) in Parameters::ALL.iter().zip(fit.parameters.0).zip(expected) {
        assert!((got / expected - 1.0).abs() < 5e-4, "{}: {got}, not {expected}", p.name);
    }
    assert_eq!(fit.numbers, 14);
    assert!((fit.rms - 4.5).abs() < 0.05, "{}", fit.rms);
}

fn fitted(base: &str, anchor: Option<Nanos>) -> Result<String, FitError> {
    let (rows, held_out) = (measured(), Rows::parse(HELD_OUT, "held out").unwrap());
    let fit = Fit::new(&rows)?;
    let (sources, predicted) = (rows.sources(), fit.predict(&held_out));
    let data = Data { file: "kirin9000.csv", sources: &sources, comparisons: &fit.comparisons };
    let file = "kirin9000-held-out.csv";
    let held_out = Data { file, sources: &held_out.sources(), comparisons: &predicted };
    calibrate(base, "base", "kirin9000-ufs31", &fit, &data, &[held_out], anchor)
}

/// The numbers of a profile with their sources. What the shipped one says of its data is written by hand, and its ranges
/// are those of its confidences, as in the other shipped profiles.
fn numbers(text: &str) -> String {
    let line = |line: &str| match (line.split_once(", range = ["), line.split_once("], source")) {
        (Some((before, _)), Some((_, after))) => format!("{before}, source{after}\n"),
        _ => format!("{line}\n"),
    };
    let of_data = |line: &&str| line.starts_with("calibrated_on") || line.starts_with("predicts");
    text.lines().filter(|l| !of_data(l)).map(line).collect()
}

fn percent(what: &str, got: f64, expected: f64, within: f64) {
    let off = 100.0 * (got / expected - 1.0);
    println!("{what:<32} {got:>9.3} {expected:>9.3} {off:>+6.1} %");
    assert!(off.abs() <= within, "{what}: {got:.4}, not {expected:.4} within {within} %: {off:+.1} %");
}

#[test]
fn every_component_is_within_7_percent_of_what_was_measured_and_every_total_within_2() {
    for c in Fit::new(&measured()).unwrap().comparisons {
        let within = if c.quality == Quality::Total { 2.0 } else { 7.0 };
        percent(&format!("{}, {}", c.workload, c.quality.text()), c.computed, c.measured, within);
    }
}

fn same_lines(got: &str, expected: &str) {
    for (got, expected) in got.lines().zip(expected.lines()) {
        assert_eq!(got, expected);
    }
    assert_eq!(got.len(), expected.len());
}

#[test]
fn the_shipped_profile_is_what_the_fit_makes_of_it() {
    same_lines(&numbers(&fitted(SHIPPED, None).unwrap()), &numbers(SHIPPED));
}

#[test]
fn the_fitted_numbers_do_not_depend_on_those_they_replace() {
    let mut base = String::new();
    let mut replaced = 0;
    for line in SHIPPED.lines() {
        if line.contains("confidence = \"fitted\"") {
            let (name, rest) = line.split_once("value = ").unwrap();
            base += &format!("{name}value = 7{rest}\n");
            replaced += 1;
        } else {
            base += &format!("{line}\n");
        }
    }
    assert_eq!(replaced, 13);
    same_lines(&numbers(&fitted(&base, None).unwrap()), &numbers(SHIPPED));
}

const MB: usize = 256;
const FILE: usize = 128;

struct Ran {
    ledger: Ledger,
    /// Seconds.
    took: f64,
}

impl Ran {
    fn mj_per_mb(&self, components: &[Component]) -> f64 {
        components.iter().map(|c| self.ledger.component(*c).millijoules()).sum::<f64>() / FILE as f64
    }
}

/// The four workloads of FAGC TACO'23, section 4.1, on a metered device: the file is written and read sequentially
/// and at random, one request at a time.
fn four_workloads(profile: &Profile) -> [(&'static str, Ran); 4] {
    let blocks = 4 * FILE * MB;
    let clock = Arc::new(VirtualClock::default());
    let meter = Arc::new(Meter::new(profile.host.prices()));
    let model = model::build(profile, blocks as u64).unwrap();
    let contents = Memory::new(blocks as u64);
    let device = Simulated::new(contents, model, meter, Pace::Virtual(clock.clone()));
    let mut rng = Rng::new(41);
    let mut places: Vec<usize> = (0..FILE * MB).collect();
    for i in (1..places.len()).rev() {
        places.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let order: Vec<usize> = (0..FILE).map(|mb| mb * MB).collect();
    let mut buf = vec![0; MB * BLOCK];
    let mut run = |name, write: bool, io: usize, at: &[usize]| {
        let (before, begun) = (device.ledger(), clock.monotonic());
        for at in at.iter().map(|at| Lba(*at as u64)) {
            let buf = &mut buf[..io * BLOCK];
            if write { device.write(at, buf, Tag::default()) } else { device.read(at, buf, Tag::default()) }.unwrap();
        }
        (name, Ran { ledger: device.ledger().since(&before), took: (clock.monotonic() - begun).as_secs_f64() })
    };
    [
        run("sequential write", true, MB, &order),
        run("sequential read", false, MB, &order),
        run("random read", false, 1, &places),
        run("random write", true, 1, &places),
    ]
}

#[test]
fn the_simulated_device_agrees_with_what_was_measured_on_the_real_one() {
    let profile = Profile::find("kirin9000-ufs31").unwrap();
    let ran = four_workloads(&profile);
    let rows = measured();
    let run = |name: &str| &ran.iter().find(|(n, _)| *n == name).unwrap().1;
    for row in &rows.rows {
        let (r, m) = (run(&row.workload), row.measured);
        let check = |what: &str, c: &[Component], measured: Option<f64>, within| {
            percent(&format!("{}, {what}", row.workload), r.mj_per_mb(c), measured.unwrap(), within);
        };
        check("CPU", &[Component::Cpu], m.cpu, 7.0);
        check("storage", &[Component::Storage], m.storage, 7.0);
        check("rest", &[Component::Dram, Component::Board], m.rest, 7.0);
        check("total", &Component::ALL, m.total, 2.0);
        if let Some((times, other)) = row.times {
            percent("time, ratio", r.took / run(&rows.rows[other].workload).took, times, 3.0);
        }
    }
    let one = run("random read").took * 1e6 / (FILE * MB) as f64;
    percent("a random read of 4 KB, us", one, profile.anchor.unwrap().time.value.0 as f64 / 1e3, 0.5);
}

#[test]
fn another_anchor_changes_times_and_no_energy() {
    let own = Profile::parse(SHIPPED, "shipped").unwrap();
    let text = fitted(SHIPPED, Some(Nanos(100_000))).unwrap();
    let faster = Profile::parse(&text, "faster").unwrap();
    assert_eq!(faster.anchor.as_ref().unwrap().time.value, Nanos(100_000));
    assert_eq!(faster.anchor.as_ref().unwrap().time.confidence, Confidence::Assumed);
    for ((name, a), (_, b)) in four_workloads(&own).iter().zip(four_workloads(&faster)) {
        percent(&format!("{name}, time"), b.took, a.took / 2.5, 0.5);
        percent(&format!("{name}, energy"), b.mj_per_mb(&Component::ALL), a.mj_per_mb(&Component::ALL), 0.5);
    }
}

#[test]
fn held_out_measurements_are_predicted_and_not_fitted() {
    let fit = Fit::new(&measured()).unwrap();
    let predicted = fit.predict(&Rows::parse(HELD_OUT, "held out").unwrap());
    let number = |workload: &str, q| -> &Comparison {
        predicted.iter().find(|c| c.workload == workload && c.quality == q).unwrap()
    };
    percent("fragmented file, total", number("fragmented file", Quality::Total).computed, 8.58, 5.0);
    percent("fragmented file, storage", number("fragmented file", Quality::Storage).computed, 3.032, 10.0);
    // The paper's sequential reads differ by 12 % between two sessions; this one is fitted to the other.
    percent("contiguous file, total", number("contiguous file", Quality::Total).computed, 2.53, 15.0);
    // Moving blocks is a part of the cost of cleaning, and the smaller one.
    for (workload, measured) in [("background cleaning", 102.79), ("foreground cleaning", 438.95)] {
        let c = number(workload, Quality::Total);
        println!("{workload:<32} {:>9.3} {measured:>9.3} {:>+6.1} %", c.computed, c.percent());
        assert!(c.measured == measured && c.computed > 15.0 && c.computed < measured / 2.0, "{c:?}");
    }
}

#[test]
fn rows_that_cannot_determine_a_parameter_are_refused_by_its_name() {
    let few: Vec<&str> = MEASURED.lines().filter(|l| !l.starts_with("random")).collect();
    let rows = Rows::parse(&few.join("\n"), "few").unwrap();
    assert!(matches!(Fit::new(&rows), Err(FitError::TooFew { numbers: 6 })));

    let untimed = MEASURED.replace("17.57,sequential read", ",").replace("10.81,sequential write", ",");
    let refused = Fit::new(&Rows::parse(&untimed, "untimed").unwrap()).unwrap_err().to_string();
    assert!(refused.contains("board") && refused.contains("time"), "{refused}");
}

#[test]
fn malformed_rows_are_refused_by_file_and_row() {
    let header = "workload,mb_read,read_requests,total,cpu,times,as_long_as\n";
    for (row, complaint) in [
        ("a,1,1,2.0,x,,", "\"x\" is not a number"),
        ("a,1,1,,10%,,", "a total that is not given"),
        ("a,1,1,-2,,,", "total is -2"),
        ("a,1,1,inf,,,", "total is inf"),
        ("a,0,1,2,,,", "some data"),
        ("a,NaN,1,2,,,", "counters"),
        ("a,1,0,2,,,", "no requests"),
        ("a,1,1,2,,3,b", "names \"b\""),
        ("a,1,1,2,,,a", "without times"),
        ("a,one,1,2,,,", "line: 2"),
    ] {
        let refused = Rows::parse(&format!("{header}{row}\n"), "phone.csv").unwrap_err().to_string();
        assert!(refused.starts_with("phone.csv: ") && refused.contains(complaint), "{row}: {refused}");
    }
    let refused = Rows::parse("name,total\na,1\n", "phone.csv").unwrap_err().to_string();
    assert_eq!(refused, "phone.csv: no column workload: a table of workloads has workload");
    let marked = format!("\u{feff}{header}a,1,1,2,,,\n");
    assert_eq!(Rows::parse(&marked, "phone.csv").unwrap().rows[0].workload, "a", "a byte order mark is no letter");
}

#[test]
fn a_profile_that_these_numbers_do_not_describe_is_refused() {
    let disk = Profile::text("microdrive").unwrap();
    assert!(matches!(fitted(&disk, None), Err(FitError::NotFlash(name)) if name == "microdrive"));
    let slow = SHIPPED.replace("value = 575,", "value = 5000,");
    assert!(matches!(fitted(&slow, None), Err(FitError::NothingLeft { .. })));
    let dear = SHIPPED.replace("read_energy = { value = 0.3,", "read_energy = { value = 3,");
    assert!(matches!(fitted(&dear, None), Err(FitError::NothingLeft { .. })));
}

/// Measured rows as these parameters give them, each number off by up to a few percent, drawn from `rng`.
fn drawn(fit: &Fit, rng: &mut Rng) -> String {
    let counts = [(1, 0, 1), (0, 1, 1), (1, 0, 256), (0, 1, 256), (4, 0, 64), (0, 4, 64), (2, 2, 300), (8, 1, 40)];
    let head = "workload,mb_read,mb_written,read_requests,write_requests,total,cpu,storage,rest,times,as_long_as\n";
    let row = |n: usize, cells: &str| {
        let (read, written, requests) = counts[n];
        format!("w{n},{read},{written},{requests},0,,{cells}\n")
    };
    let times = |n: usize, times: f64| if n == 0 { ",".to_owned() } else { format!("{times},w0") };
    let plain: String = (0..counts.len()).map(|n| row(n, &format!("1,1,1,{}", times(n, 1.0)))).collect();
    let exact = fit.predict(&Rows::parse(&format!("{head}{plain}"), "exact").unwrap());
    let mut noisy = |workload: &str, quality| {
        let exact = exact.iter().find(|c| c.workload == workload && c.quality == quality).unwrap().computed;
        // About normal, with a standard deviation of 2 %.
        exact * (0.02 * ((0..12).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0)).exp()
    };
    let mut text = format!("# made\n{head}");
    for n in 0..counts.len() {
        let name = format!("w{n}");
        let [cpu, storage, rest] = [Quality::Cpu, Quality::Storage, Quality::Rest].map(|q| noisy(&name, q));
        let times = times(n, if n == 0 { 1.0 } else { noisy(&name, Quality::Times) });
        text += &row(n, &format!("{cpu},{storage},{rest},{times}"));
    }
    text
}

#[test]
fn a_number_that_is_off_is_named_with_its_line_and_left_out_on_request() {
    let kirin = Fit::new(&measured()).unwrap();
    assert_eq!(kirin.outliers, []);
    let text = drawn(&kirin, &mut Rng::new(7));
    let clean = Fit::new(&Rows::parse(&text, "drawn").unwrap()).unwrap();
    assert_eq!(clean.outliers, []);
    // The storage of w4, in line 7, is 40 % too large.
    let line = text.lines().find(|l| l.starts_with("w4")).unwrap();
    let storage: f64 = line.split(',').nth(7).unwrap().parse().unwrap();
    let rows = Rows::parse(&text.replace(&storage.to_string(), &(storage * 1.4).to_string()), "drawn").unwrap();
    let with = Fit::new(&rows).unwrap();
    let [one] = &with.outliers[..] else { panic!("{:?}", with.outliers) };
    assert_eq!((one.line, one.comparison.workload.as_str(), one.comparison.quality), (7, "w4", Quality::Storage));
    assert!((-33.0..-24.0).contains(&one.comparison.percent()) && one.deviations > 6.0, "{one:?}");
    let without = Fit::without_outliers(&rows).unwrap();
    assert_eq!((&without.outliers, without.numbers, with.numbers), (&with.outliers, 30, 31));
    let off = |fit: &Fit| (fit.parameters.storage_byte() / clean.parameters.storage_byte() - 1.0).abs();
    assert!(off(&without) < 0.02 && off(&with) > 2.0 * off(&without), "{} {}", off(&without), off(&with));
}

/// The ranges of the fitted numbers of a profile, by name, with the numbers.
fn ranges(text: &str) -> Vec<(String, f64, (f64, f64))> {
    let numbers = Profile::parse(text, "fitted").unwrap().numbers();
    let fitted = numbers.into_iter().filter(|n| n.confidence == Confidence::Fitted);
    fitted.map(|n| (n.name, n.value, n.range.expect("a fitted number has a range"))).collect()
}

#[test]
fn nine_of_ten_ranges_hold_the_true_number() {
    let kirin = Fit::new(&measured()).unwrap();
    let truth = Profile::parse(SHIPPED, "shipped").unwrap().numbers();
    let (mut held, mut all) = (0, 0);
    for seed in 0..12 {
        let rows = Rows::parse(&drawn(&kirin, &mut Rng::new(seed)), "drawn").unwrap();
        let fit = Fit::new(&rows).unwrap();
        let data = Data { file: "drawn.csv", sources: "", comparisons: &fit.comparisons };
        let text = calibrate(SHIPPED, "base", "mine", &fit, &data, &[], None).unwrap();
        for (name, value, (low, high)) in ranges(&text) {
            let exact = truth.iter().find(|n| n.name == name).unwrap().value;
            assert!(low <= value && value <= high && high < 1.5 * value, "{name}: {low} {value} {high}");
            held += usize::from((low..=high).contains(&exact));
            all += 1;
        }
    }
    let share = 100 * held / all;
    assert!((80..=97).contains(&share), "{share} % of {all}");
}

#[test]
fn nothing_of_the_base_stays_that_does_not_hold() {
    let rows = measured();
    let fit = Fit::new(&rows).unwrap();
    let data = Data { file: "mine.csv", sources: "", comparisons: &fit.comparisons };
    let base = SHIPPED.replace("0.3403, unit", "9, unit").replace("section 4.1\"", "OLD\"");
    let text = calibrate(&base, "base", "mine", &fit, &data, &[], Some(Nanos(100_000))).unwrap();
    let profile = Profile::parse(&text, "mine").unwrap();
    assert_eq!((profile.name.as_str(), &profile.predicts[..]), ("mine", &[][..]));
    assert_eq!(
        profile.title,
        "mine: prices and times fitted to 14 measured numbers; the others are those of kirin9000-ufs31"
    );
    let [line] = &profile.calibrated_on[..] else { panic!("{:?}", profile.calibrated_on) };
    assert!(
        line.starts_with("mine.csv: 14 numbers, off by ") && line.contains(" % typically, 6.3 % at most ("),
        "{line}"
    );
    assert!(!text.contains("OLD"), "{text}");
    for number in profile.numbers() {
        let is_fitted = number.confidence == Confidence::Fitted;
        assert_eq!(is_fitted, number.source.starts_with("fit to mine.csv"), "{}: {}", number.name, number.source);
        let scaled = number.source.ends_with(", scaled to the anchor of 100 us");
        let was = Profile::parse(SHIPPED, "shipped").unwrap().numbers().into_iter().find(|n| n.name == number.name);
        let changed = was.is_some_and(|was| (was.value - number.value).abs() > 1e-9);
        assert_eq!(scaled, changed && !is_fitted && number.name != "anchor.time", "{}: {}", number.name, number.source);
    }
    assert_eq!(profile.anchor.unwrap().time.source, "given to the fit");
}
