//! Every published number has a corresponding number or a reason, every experiment stores its measurements, and
//! docs/papers.md shows them.
//!
//! `JOULEFS_DEEP=1` runs every experiment in full and compares with the stored numbers, to the last digit; otherwise
//! only those that take seconds. `JOULEFS_RENEW=1` rewrites docs/papers.md.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use lab::keep;
use lab::plan::{Changes, Experiment, SHIPPED};
use lab::published::judge::{Class, Ours, all, judge, profile_number};
use lab::published::size::{WORDS, Word};
use lab::published::{Answer, Number, Paper, Said, cited, numbers_in, papers};

/// The place of a row that is not published anywhere.
const RECKONED: &str = "reckoned beforehand";

/// Experiments whose full run takes seconds.
const SHORT: [&str; 3] = ["microdrive-table31", "medfs-fig11", "medfs-fig12"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn dir(experiment: &str) -> PathBuf {
    root().join("experiments").join(experiment)
}

fn shipped() -> Vec<Experiment> {
    SHIPPED.iter().map(|(name, _)| Experiment::find(name).unwrap()).collect()
}

fn numbers(papers: &[Paper]) -> impl Iterator<Item = (String, &Number)> {
    let named = |p: &Paper, n: &Number| format!("{}, {}: {} ({})", p.short, n.place, n.quantity, n.condition);
    papers.iter().flat_map(move |p| p.numbers.iter().map(move |n| (named(p, n), n)))
}

/// Panics with all errors.
#[track_caller]
fn nothing_is_wrong(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_list_of_published_numbers_is_a_papers() {
    let on_disk =
        std::fs::read_dir(root().join("published")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut lists: Vec<_> = on_disk.filter_map(|f| f.strip_suffix(".csv").map(str::to_owned)).collect();
    lists.sort();
    let mut known: Vec<_> = lab::published::FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    known.sort();
    assert_eq!(lists, known);
    let papers = papers().unwrap();
    assert_eq!(papers.len(), known.len());
    for p in &papers {
        assert!(p.numbers.len() > 30, "{}: {} numbers", p.short, p.numbers.len());
    }
}

#[test]
fn every_file_of_quoted_numbers_can_answer() {
    let has = |name: &str| dir(name).join("quoted.csv").is_file();
    let on_disk: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).filter(|name| has(name)).collect();
    let known: Vec<_> = lab::published::QUOTED.iter().map(|(name, _)| *name).collect();
    assert_eq!(on_disk, known);
}

#[test]
fn an_experiment_that_repeats_a_paper_says_both_results_at_its_beginning() {
    let mut wrong = Vec::new();
    for e in shipped().iter().filter(|e| e.paper.iter().any(|c| c.place != RECKONED)) {
        if !e.claim().contains("paper") {
            wrong.push(format!("experiments/{}/README.md: our result, then the paper's: {}", e.name, e.claim()));
        }
    }
    nothing_is_wrong(&wrong);
}

/// Problems of a number that do not depend on measurements.
fn problems(n: &Number, experiments: &BTreeMap<String, Experiment>) -> Vec<String> {
    let mut wrong = Vec::new();
    let printed: Vec<f64> = [&n.value, &n.condition].into_iter().flat_map(|text| numbers_in(text)).collect();
    let is_printed = |value: f64| printed.iter().any(|p| (p - value.abs()).abs() <= 1e-9 * p.abs());
    for a in n.answer.iter().chain(&n.beside) {
        match a {
            Answer::Measured { experiment, quantity } => {
                let claim = experiments.get(experiment).and_then(|e| e.paper.iter().find(|c| c.quantity == *quantity));
                let Some(claim) = claim else {
                    wrong.push(format!("experiments/{experiment}/paper.csv has no {quantity:?}"));
                    continue;
                };
                // The experiment combines several numbers of a table's row: a ratio, or a weighted mean.
                if claim.value != 0.0 && !is_printed(claim.value) && !(claim.value == 1.0 && n.value == ">1") {
                    wrong.push(format!("{} of {experiment} is neither its value nor in its condition", claim.value));
                }
            }
            Answer::Reckoned { of, .. } => {
                if Ours::kept().unwrap().reckoned(lab::published::Reckoning::Mean, of, n).is_none() {
                    wrong.push(format!("a row of {of:?} is neither in ours.csv nor in quoted.csv"));
                }
            }
            Answer::Plan { experiment, parameter, value } => {
                let found = experiments.get(experiment).is_some_and(|e| has(&e.plan, parameter, value));
                if !found {
                    wrong.push(format!("experiments/{experiment}/plan.toml has no {parameter} = {value}"));
                }
                let scaled = |v: &f64| is_printed(*v) || is_printed(v / 1024.0);
                if !numbers_in(value).iter().all(scaled) {
                    wrong.push(format!("{value} is not what is printed"));
                }
            }
            Answer::Profile { profile, number } => match profile_number(profile, number) {
                Some((value, _)) if is_printed(value) => {}
                other => wrong.push(format!("{number} of {profile} is {other:?}")),
            },
            Answer::Code { path, text, .. } => {
                if !std::fs::read_to_string(root().join(path)).is_ok_and(|file| file.contains(text.as_str())) {
                    wrong.push(format!("{path} has no {text:?}"));
                }
                let scales = [1.0, 1e-3];
                let held = numbers_in(&text.replace('_', ""));
                if !held.iter().any(|h| scales.iter().any(|s| is_printed(h * s))) {
                    wrong.push(format!("{text:?} is not what is printed"));
                }
            }
        }
    }
    if n.answer.is_empty() && (n.why.is_empty() || n.class.is_some()) {
        wrong.push("without an answer it has a reason, and no class".into());
    }
    let kind = |a: &Answer| std::mem::discriminant(a);
    let is_measured = |a: &&Answer| matches!(a, Answer::Measured { .. } | Answer::Reckoned { .. });
    let measured = n.answer.iter().filter(is_measured).count();
    if measured > 0 && measured < n.answer.len() {
        let kinds: Vec<_> = n.answer.iter().map(kind).collect();
        wrong.push(format!("some answers are measured and some are not: {kinds:?}"));
    }
    if n.value.contains(" above") || n.value.contains(" below") || n.value.contains("same") {
        if Word::find(&n.value).is_none() {
            wrong.push(format!("{:?} is none of {:?}", n.value, WORDS.map(|w| w.word)));
        }
    } else if n.value.trim_start_matches(['<', '>']) == "0" {
        wrong.push("a sign has no size: use one of the words".into());
    }
    if matches!(n.class, Some(Said::Explained | Said::Contradicts)) && n.why.is_empty() {
        wrong.push("explained or contradicting without a reason".into());
    }
    wrong
}

/// Whether a plan has a parameter with this value anywhere.
fn has(plan: &lab::plan::Plan, parameter: &str, value: &str) -> bool {
    fn inside(of: &toml::Value, parameter: &str, value: &toml::Value) -> bool {
        match of {
            toml::Value::Table(t) => {
                t.get(parameter).is_some_and(|v| v == value) || t.values().any(|v| inside(v, parameter, value))
            }
            toml::Value::Array(a) => a.iter().any(|v| inside(v, parameter, value)),
            _ => false,
        }
    }
    let wanted = format!("v = {value}").parse::<toml::Table>().ok().and_then(|mut t| t.remove("v"));
    let plan = toml::Value::try_from(plan).unwrap();
    wanted.is_some_and(|wanted| inside(&plan, parameter, &wanted))
}

#[test]
fn every_published_number_is_answered_by_what_is_there_or_has_a_reason() {
    let experiments: BTreeMap<_, _> = shipped().into_iter().map(|e| (e.name.clone(), e)).collect();
    let papers = papers().unwrap();
    let of = |(name, n): (String, &Number)| problems(n, &experiments).into_iter().map(move |w| format!("{name}: {w}"));
    nothing_is_wrong(&numbers(&papers).flat_map(of).collect::<Vec<_>>());
}

#[test]
fn a_number_that_is_not_the_papers_or_not_there_is_found() {
    let experiments: BTreeMap<_, _> = shipped().into_iter().map(|e| (e.name.clone(), e)).collect();
    let number = |value: &str, answer: Answer| Number {
        place: "T".into(),
        quantity: "q".into(),
        condition: String::new(),
        value: value.into(),
        unit: "mJ".into(),
        answer: vec![answer],
        beside: vec![],
        class: None,
        why: String::new(),
    };
    let text = str::to_owned;
    let seek = || Answer::Measured {
        experiment: text("microdrive-table31"),
        quantity: text("seek: energy of an average one"),
    };
    assert!(problems(&number("7.64", seek()), &experiments).is_empty());
    assert!(problems(&number("7.65", seek()), &experiments)[0].contains("7.64"));
    let file =
        |value: &str| Answer::Plan { experiment: text("fagc-fig4"), parameter: text("file_mib"), value: text(value) };
    assert!(problems(&number("128", file("128")), &experiments).is_empty());
    assert!(problems(&number("129", file("129")), &experiments)[0].contains("no file_mib"));
    let map =
        |text: &str| Answer::Code { path: "device/src/model/flash/map.rs".into(), text: text.into(), is_test: false };
    assert!(problems(&number("1024", map("ENTRIES: u64 = 1024")), &experiments).is_empty());
    assert!(!problems(&number("1025", map("ENTRIES: u64 = 1025")), &experiments).is_empty());
    let rpm = |number: &str| Answer::Profile { profile: "microdrive".into(), number: number.into() };
    assert!(problems(&number("3600", rpm("device.rpm")), &experiments).is_empty());
    assert!(!problems(&number("3601", rpm("device.rpm")), &experiments).is_empty());
    let silent = Number { answer: Vec::new(), ..number("1", seek()) };
    assert!(!problems(&silent, &experiments).is_empty());
}

#[test]
fn every_row_of_an_experiment_answers_a_published_number() {
    let papers = papers().unwrap();
    let answers: Vec<&Answer> = numbers(&papers).flat_map(|(_, n)| n.answer.iter().chain(&n.beside)).collect();
    let mut wrong = Vec::new();
    for e in shipped() {
        for c in e.paper.iter().filter(|c| c.place != RECKONED) {
            let is_row = |(experiment, quantity): (&String, &String)| *experiment == e.name && *quantity == c.quantity;
            let is_it = |a: &&Answer| match a {
                Answer::Measured { experiment, quantity } => is_row((experiment, quantity)),
                Answer::Reckoned { of, .. } => of.iter().any(|(experiment, quantity)| is_row((experiment, quantity))),
                _ => false,
            };
            if !answers.iter().any(is_it) {
                wrong.push(format!("no row of published/ has the answer `{}: {}`, of {}", e.name, c.quantity, c.place));
            }
        }
    }
    nothing_is_wrong(&wrong);
}

#[test]
fn what_every_experiment_keeps_is_complete_and_of_its_plan_and_recordings() {
    let mut wrong = Vec::new();
    for e in shipped() {
        let again = format!("{}: run `joulefs lab run {0} --keep`", e.name);
        let Some(of) = &e.kept.of else {
            wrong.push(format!("{again}: nothing is kept"));
            continue;
        };
        if of.plan != keep::of_plan(&e).unwrap() {
            wrong.push(format!("{again}: its plan, its prices or its paper.csv are others than when it was measured"));
        }
        if of.recordings != keep::of_recordings(&dir(&e.name)).unwrap() {
            wrong.push(format!("{again}: its recordings are others than when it was measured"));
        }
        let rows: Vec<_> = e.paper.iter().map(|c| (&c.quantity, &c.unit)).collect();
        let names: std::collections::BTreeSet<_> = rows.iter().map(|(quantity, _)| quantity).collect();
        if names.len() < rows.len() {
            wrong.push(format!("{}: two rows of paper.csv have the same quantity", e.name));
        }
        let kept: Vec<_> = e.kept.rows.iter().map(|r| (&r.quantity, &r.unit)).collect();
        if rows != kept {
            wrong.push(format!("{again}: ours.csv has other rows than paper.csv"));
        }
    }
    nothing_is_wrong(&wrong);
}

#[test]
fn every_number_that_is_far_from_ours_says_why() {
    let (papers, ours) = (papers().unwrap(), Ours::kept().unwrap());
    let mut wrong = Vec::new();
    for (name, n) in numbers(&papers) {
        let judged = judge(n, &ours);
        let numbers = judged.answers.first().map_or(String::new(), |a| format!("{} and {}", a.paper, a.ours));
        match judged.class {
            Class::Differs => wrong.push(format!("{name}: {numbers}: say `explained` or `contradicts`, and why")),
            Class::NotRun if judged.why.is_empty() => wrong.push(format!("{name}: no number, and no reason")),
            _ => {}
        }
    }
    nothing_is_wrong(&wrong);
}

/// Why a row that agrees may not be counted as predicted.
fn objections(paper: &str, n: &Number, ours: &Ours) -> Vec<String> {
    let mut wrong = Vec::new();
    let judged = judge(n, ours);
    let is_inside = |answer: &Answer| judge(&Number { answer: vec![answer.clone()], ..n.clone() }, ours).class;
    if judged.class != Class::Predicted {
        return wrong;
    }
    wrong.extend(n.answer.iter().filter(|a| is_inside(a) != Class::Predicted).map(|a| format!("{a:?} is outside")));
    let mut experiments: Vec<&str> = Vec::new();
    for a in &n.answer {
        match a {
            Answer::Measured { experiment, .. } => experiments.push(experiment),
            Answer::Reckoned { of, .. } => experiments.extend(of.iter().map(|(experiment, _)| experiment.as_str())),
            _ => {}
        }
    }
    for name in experiments {
        let fitted = cited::fitted_on(&Experiment::find(name).unwrap(), paper).unwrap();
        let same: Vec<_> = cited::places(&n.place).intersection(&fitted).cloned().collect();
        if !same.is_empty() {
            wrong.push(format!("{name} was fitted on {}", same.join(", ")));
        }
    }
    wrong
}

#[test]
fn a_predicted_number_has_no_answer_outside_and_none_that_was_fitted_on_its_table() {
    let (papers, ours) = (papers().unwrap(), Ours::kept().unwrap());
    let mut wrong = Vec::new();
    for paper in &papers {
        for n in &paper.numbers {
            let of = |what: String| format!("{}, {}: {} ({}): {what}", paper.short, n.place, n.quantity, n.condition);
            wrong.extend(objections(&paper.short, n, &ours).into_iter().map(of));
        }
    }
    nothing_is_wrong(&wrong);
}

#[test]
fn a_fitted_number_that_calls_itself_predicted_is_found() {
    let (papers, ours) = (papers().unwrap(), Ours::kept().unwrap());
    let (mut fitted, mut unseen) = (0, Vec::new());
    for paper in &papers {
        for n in paper.numbers.iter().filter(|n| judge(n, &ours).class == Class::Fitted) {
            fitted += 1;
            if objections(&paper.short, &Number { class: None, ..n.clone() }, &ours).is_empty() {
                unseen
                    .push(format!("{}: {} ({}): no plan or profile cites its table", n.place, n.quantity, n.condition));
            }
        }
    }
    assert!(fitted > 30, "{fitted} are fitted");
    nothing_is_wrong(&unseen);
}

#[test]
fn the_document_says_what_the_files_say() {
    let papers = papers().unwrap();
    let made = lab::published::document::render(&papers, &all(&papers, &Ours::kept().unwrap()));
    let path = root().join("docs/papers.md");
    if std::env::var_os("JOULEFS_RENEW").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    for (n, (stored, made)) in stored.lines().zip(made.lines()).enumerate() {
        assert_eq!(stored, made, "docs/papers.md, line {}: JOULEFS_RENEW=1 writes it anew", n + 1);
    }
    assert!(stored == made, "docs/papers.md has more or fewer lines than it should");
}

#[test]
fn experiments_measure_what_they_keep_to_the_last_digit() {
    let deep = std::env::var_os("JOULEFS_DEEP").is_some_and(|v| v == "1");
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let mut wrong = Vec::new();
    for e in shipped().into_iter().filter(|e| deep || SHORT.contains(&e.name.as_str())) {
        let outcome = lab::run::run(&e, &Changes::default(), threads, &|_| ()).unwrap();
        let measured = keep::of(&e, &outcome, String::new()).unwrap();
        for (kept, now) in e.kept.rows.iter().zip(&measured.rows) {
            if now.ours.is_none() && kept.ours.is_some() {
                testlog::not_shipped(format_args!("{}: {}: {}", e.name, kept.quantity, now.missing));
                continue;
            }
            if kept.ours.map(f64::to_bits) != now.ours.map(f64::to_bits) {
                wrong.push(format!("{}: {}: {:?} is kept, {:?} comes out", e.name, kept.quantity, kept.ours, now.ours));
            }
        }
        println!("{}: {} rows", e.name, measured.rows.len());
    }
    nothing_is_wrong(&wrong);
}
