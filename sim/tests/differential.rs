//! How much does each component use? Known answers are found, undetermined ones are named, error bars have their stated
//! coverage.

use std::fs;

use device::Rng;
use sim::differential::{Component, Per, Plan, Repeat, Run, Undetermined, solve};

fn component(name: &str, per: Per) -> Component {
    Component { name: name.into(), per }
}

fn run(name: &str, active: &[usize], repeats: &[Repeat]) -> Run {
    Run { name: name.into(), active: active.to_vec(), repeats: repeats.to_vec(), error: None }
}

fn took(joules: f64, seconds: f64) -> Repeat {
    Repeat { joules, seconds, operations: 0.0, bytes: 0.0 }
}

#[track_caller]
fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{a} is not {b}");
}

/// Normally distributed, with mean 0 and variance 1 (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
}

#[test]
fn as_many_runs_as_components_are_the_differences_themselves() {
    let components = ["screen", "cpu", "storage"].map(|n| component(n, Per::Second));
    let runs = [
        run("idle", &[0], &[took(8.0, 10.0)]),
        run("memory", &[0, 1], &[took(20.0, 20.0)]),
        run("flash", &[0, 1, 2], &[took(50.0, 40.0)]),
    ];
    let answer = solve(&components, &runs, 2).unwrap();
    // Screen: 0.8 W; then 1 W without it; then 1.25 W without both.
    for (part, (joules, percent)) in answer.parts.iter().zip([(32.0, 64.0), (8.0, 16.0), (10.0, 20.0)]) {
        close(part.joules.value, joules);
        close(part.percent.value, percent);
        assert_eq!(part.percent.bar, None, "nothing was repeated");
    }
    close(answer.total.value, 50.0);
    assert!(answer.runs.iter().all(|r| r.residual().abs() < 1e-9));
}

#[test]
fn prices_of_operations_bytes_and_runs_are_separated() {
    let components = [
        component("idle", Per::Second),
        component("call", Per::Operation),
        component("byte", Per::Byte),
        component("start", Per::Run),
    ];
    let cost = |seconds: f64, operations: f64, bytes: f64| Repeat {
        joules: 0.5 * seconds + 0.001 * operations + 1e-7 * bytes + 3.0,
        seconds,
        operations,
        bytes,
    };
    let runs = [
        run("a", &[0, 1, 2, 3], &[cost(10.0, 0.0, 0.0)]),
        run("b", &[0, 1, 2, 3], &[cost(20.0, 1000.0, 4e6)]),
        run("c", &[0, 1, 2, 3], &[cost(20.0, 100.0, 5e7)]),
        run("d", &[0, 1, 2, 3], &[cost(35.0, 1e5, 4e8)]),
        run("e", &[0, 1, 2, 3], &[cost(1.0, 7.0, 4e3)]),
    ];
    let answer = solve(&components, &runs, 1).unwrap();
    for (part, price) in answer.parts.iter().zip([0.5, 0.001, 1e-7, 3.0]) {
        assert!((part.price.value / price - 1.0).abs() < 1e-6, "{part:?}");
    }
}

#[test]
fn undetermined_components_are_named() {
    let components = ["screen", "cpu", "memory", "storage"].map(|n| component(n, Per::Second));
    let open = |runs: &[Run]| match solve(&components, runs, 0).unwrap_err() {
        Undetermined::Components(names) => names,
        other => panic!("{other}"),
    };
    let runs = [
        run("idle", &[0], &[took(8.0, 10.0)]),
        run("tmpfs", &[0, 1, 2], &[took(20.0, 20.0)]),
        run("tmpfs again", &[0, 1, 2], &[took(11.0, 10.0)]),
        run("flash", &[0, 1, 2, 3], &[took(50.0, 40.0)]),
    ];
    assert_eq!(open(&runs), ["cpu", "memory"]);
    assert_eq!(open(&runs[..2]), ["storage"]);
    let e = solve(&components, &runs, 0).unwrap_err().to_string();
    assert!(e.contains("do not determine cpu and memory"), "{e}");
}

#[test]
fn a_run_that_contradicts_other_runs_is_detected() {
    let components = ["screen", "cpu"].map(|n| component(n, Per::Second));
    let three = |joules: f64, seconds: f64| {
        [took(joules * 0.999, seconds), took(joules, seconds), took(joules * 1.001, seconds)]
    };
    let mut runs = vec![
        run("idle", &[0], &three(8.0, 10.0)),
        run("busy", &[0, 1], &three(20.0, 10.0)),
        run("busy longer", &[0, 1], &three(40.0, 20.0)),
    ];
    let answer = solve(&components, &runs, 1).unwrap();
    assert!(answer.runs.iter().all(|r| !r.is_contradicted()), "{:?}", answer.runs);
    runs[2].repeats = three(50.0, 20.0).to_vec();
    let answer = solve(&components, &runs, 1).unwrap();
    assert!(answer.runs.iter().any(|r| r.is_contradicted()));
}

#[test]
fn a_bar_needs_a_spread_or_a_stated_error_in_every_run_it_depends_on() {
    let components = ["screen", "cpu"].map(|n| component(n, Per::Second));
    let mut runs =
        vec![run("idle", &[0], &[took(8.0, 10.0), took(8.2, 10.0)]), run("busy", &[0, 1], &[took(20.0, 10.0)])];
    let answer = solve(&components, &runs, 1).unwrap();
    assert!(answer.parts[0].joules.bar.is_some() && answer.parts[1].joules.bar.is_none());
    runs[1].error = Some(0.1);
    let answer = solve(&components, &runs, 1).unwrap();
    assert!(answer.parts[1].joules.bar.is_some());
    // Two repeats 0.2 apart: t with one degree of freedom is 12.7, the standard error 0.1.
    assert!((answer.parts[0].joules.bar.unwrap() - 1.270_62).abs() < 1e-4);
}

#[test]
fn repeats_that_take_longer_and_cost_more_accordingly_are_no_spread() {
    let components = ["screen", "cpu"].map(|n| component(n, Per::Second));
    let runs = [
        run("idle", &[0], &[took(8.0, 10.0), took(16.0, 20.0), took(4.0, 5.0)]),
        run("busy", &[0, 1], &[took(20.0, 10.0), took(30.0, 15.0)]),
    ];
    let answer = solve(&components, &runs, 1).unwrap();
    for part in &answer.parts {
        assert!(part.price.bar.unwrap() < 1e-9, "{part:?}");
    }
}

/// The method of HotStorage'17 on known powers: how often the 95 % bars contain the truth, by component.
fn coverage(repeats: usize, extra_runs: bool, seeds: u64) -> Vec<f64> {
    let names = ["screen", "cpu and memory", "network", "storage"];
    let components = names.map(|n| component(n, Per::Second));
    let planted = [0.75, 0.5, 0.1, 0.7];
    let mut plan: Vec<(Vec<usize>, f64)> =
        vec![(vec![0], 60.0), (vec![0, 1], 62.0), (vec![0, 1, 2], 61.0), (vec![0, 1, 3], 65.0)];
    if extra_runs {
        plan.push((vec![0, 1, 2, 3], 70.0));
        plan.push((vec![0, 2], 50.0));
    }
    let true_joules: Vec<f64> =
        planted.iter().enumerate().map(|(c, w)| if plan[3].0.contains(&c) { w * 65.0 } else { 0.0 }).collect();
    let total: f64 = true_joules.iter().sum();
    let mut held = vec![0_u64; names.len()];
    for seed in 0..seeds {
        let mut rng = Rng::new(seed);
        let runs: Vec<Run> = plan
            .iter()
            .enumerate()
            .map(|(n, (active, seconds))| {
                let joules: f64 = active.iter().map(|c| planted[*c] * seconds).sum();
                // Some runs are noisier than others.
                let noise = joules * [0.004, 0.02, 0.01, 0.015, 0.01, 0.02][n];
                let repeats: Vec<Repeat> =
                    (0..repeats).map(|_| took(joules + noise * normal(&mut rng), *seconds)).collect();
                run(&n.to_string(), active, &repeats)
            })
            .collect();
        let answer = solve(&components, &runs, 3).unwrap();
        for (c, part) in answer.parts.iter().enumerate() {
            let off = if c == 2 {
                part.price.value - planted[2]
            } else {
                part.percent.value - 100.0 * true_joules[c] / total
            };
            let bar = if c == 2 { part.price.bar } else { part.percent.bar };
            held[c] += u64::from(off.abs() <= bar.unwrap());
        }
    }
    held.iter().map(|h| 100.0 * *h as f64 / seeds as f64).collect()
}

#[test]
fn bars_of_95_percent_hold_planted_powers_in_95_of_100_cases() {
    // 4,000 cases with probability 0.95 have a standard deviation of 0.34 points; Welch's degrees of freedom are an
    // approximation.
    for (repeats, extra) in [(3, false), (5, false), (5, true), (10, true)] {
        for (c, percent) in coverage(repeats, extra, 4_000).into_iter().enumerate() {
            assert!((93.0..=97.5).contains(&percent), "{repeats} repeats, component {c}: {percent} %");
        }
    }
}

const PLAN: &str = r#"
title = "a phone"
channel = "main"
[[component]]
name = "screen"
[[component]]
name = "cpu"
fit = "cpu"
[[component]]
name = "flash"
per = "byte"
fit = "storage"
[[run]]
name = "idle"
active = ["screen"]
recording = ["idle.csv", { file = "idle.csv", from = 1.0, to = 3.0 }]
[[run]]
name = "memory"
active = ["screen", "cpu"]
joules = [20.0, 22.0]
seconds = [10, 11]
[[run]]
name = "flash"
active = ["screen", "cpu", "flash"]
joules = [60.0, 61.0]
seconds = 20
bytes = 1048576
workload = { mb_written = 1, write_requests = 256, source = "a meter, \"mine\"" }
"#;

/// 0.5 W in the first second, then 1 W.
const IDLE: &str = "Time(ms),Main(mA),USB(mA),Main Voltage(V),USB Voltage(V),\n0,125,1,4,1,\n1,125,1,4,1,\n2,250,1,4,1,\n\
    3,250,1,4,1,\n4,250,1,4,1,\n";

fn read(plan: &str, idle: &str) -> Result<Plan, String> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("idle.csv"), idle).unwrap();
    fs::write(dir.path().join("plan.toml"), plan).unwrap();
    Plan::read(&dir.path().join("plan.toml"), |_, _| ()).map_err(|e| e.to_string())
}

#[test]
fn a_plan_reads_recordings_windows_and_numbers() {
    let plan = read(PLAN, IDLE).unwrap();
    assert_eq!(plan.runs[0].repeats, [took(3.5, 4.0), took(2.0, 2.0)]);
    assert_eq!(plan.runs[1].repeats, [took(20.0, 10.0), took(22.0, 11.0)]);
    assert_eq!((plan.runs[2].repeats[1].seconds, plan.runs[2].repeats[1].bytes), (20.0, 1_048_576.0));
    assert_eq!(plan.of, 2);
    let answer = plan.solve().unwrap();
    assert_eq!(answer.of, "flash");
    close(answer.parts.iter().map(|p| p.percent.value).sum(), 100.0);
}

#[test]
fn rows_for_a_fit_are_read_by_it() {
    let plan = read(PLAN, IDLE).unwrap();
    let answer = plan.solve().unwrap();
    let rows = sim::fit::Rows::parse(&plan.rows(&answer).unwrap(), "rows").unwrap().rows;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].workload.as_str(), rows[0].source.as_str()), ("flash", "a meter, \"mine\""));
    for (row, part) in [(rows[0].measured.cpu, 1), (rows[0].measured.storage, 2)] {
        assert!((row.unwrap() - answer.parts[part].joules.value * 1e3).abs() <= 0.0005, "{row:?}");
    }
    // Rounded to the microjoule, without digits from rounding noise.
    for row in plan.rows(&answer).unwrap().lines().skip(1) {
        let cells: Vec<&str> = row.split(',').skip(6).take(2).collect();
        assert!(cells.iter().all(|c| c.split_once('.').is_none_or(|(_, digits)| digits.len() <= 3)), "{row}");
    }
    let without = read(&PLAN.replace("workload =", "# workload ="), IDLE).unwrap();
    assert!(without.rows(&answer).unwrap_err().to_string().contains("[run.workload]"));
}

#[test]
fn channels_of_a_phones_rails_are_added_up_over_the_same_time() {
    let rails = "seconds,cpu (J),ddr (J),display (J)\n0.0,0.0,0.0,0.0\n2.0,4.0,1.0,3.0\n4.0,4.0,3.0,6.0\n";
    let plan = PLAN.replace("channel = \"main\"", "channel = [\"cpu\", \"ddr\"]");
    let plan = read(&plan, rails).unwrap();
    assert_eq!(plan.runs[0].repeats, [took(7.0, 4.0), took(2.0 + 1.5, 2.0)]);
}

#[test]
fn an_invalid_plan_is_refused_with_the_place() {
    for (from, to, words) in [
        ("channel = \"main\"", "", "run \"idle\": idle.csv: choose a channel; it has main, usb"),
        ("channel = \"main\"", "channel = \"aux\"", "no channel \"aux\": it has main, usb"),
        ("to = 3.0", "to = 30.0", "it ends 4.000 s after its first reading, not after 30.000 s"),
        ("from = 1.0, to = 3.0", "from = 7.0", "no duration"),
        ("\"idle.csv\", {", "\"other.csv\", {", "other.csv"),
        ("seconds = [10, 11]", "", "run \"memory\": seconds not given, but screen depends on them"),
        ("bytes = 1048576", "", "bytes not given, but flash depends on them"),
        ("seconds = [10, 11]", "seconds = [10, 11, 12]", "3 seconds for 2 joules"),
        ("joules = [20.0, 22.0]", "", "neither joules nor a recording"),
        ("active = [\"screen\"]", "active = [\"scren\"]", "no component \"scren\""),
        ("name = \"memory\"", "name = \"idle\"", "two runs are named \"idle\""),
        ("title", "of = \"x\"\ntitle", "of: no run \"x\""),
        ("bytes = 1048576", "byte = 1048576", "plan.toml: line 27: unknown field `byte`"),
    ] {
        assert!(PLAN.contains(from), "{from}");
        let e = read(&PLAN.replacen(from, to, 1), IDLE).unwrap_err();
        assert!(shortened(&e).contains(words), "{words}: {e}");
    }
    let e = read(PLAN, "Time(ms),Main(mA),Main Voltage(V),\n0,1,4,\n1,x,4,\n").unwrap_err();
    assert!(e.contains("idle.csv: line 3") && e.contains("Main(mA)"), "{e}");
}

/// Paths without the test's directory.
fn shortened(text: &str) -> String {
    text.split(' ').map(|w| w.rsplit('/').next().unwrap_or(w)).collect::<Vec<_>>().join(" ")
}
