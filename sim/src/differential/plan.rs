//! How is a plan of measurements written?
//!
//! As TOML. `[[component]]`: `name`, `per` ("second" by default, "operation", "byte", "run"), `fit` (its column in
//! `joulefs energy fit`: "cpu", "storage", "rest"). `[[run]]`: `name`, `active` (its components), and either `joules`
//! (one number per repeat) with `seconds` (one for all or one per repeat), or `recording` (files, one per repeat; a
//! path, or a table of `file`, `from`, `to` in seconds after the first reading, `channel`, `volts`); `operations`,
//! `bytes`; `joules_error` (standard error of a measurement, for runs without repeats); for `energy fit` the requests
//! of its workload. At the top: `title`, `of` (the run to split; default: the last), `channel` and `volts` for all
//! recordings. Paths are relative to the plan.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::recording::{Window, spent};
use super::{Answer, Component, FitColumn, FitError, Per, PlanError, Repeat, Run, Undetermined, Workload, solve};
use trace::power::Readings;
use trace::read::monsoon::Monsoon;
use trace::{Input, Kind, Opened, TraceError, open_as};

/// A plan with its measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Title, one line.
    pub title: String,
    /// The components.
    pub components: Vec<Component>,
    /// Their columns in `energy fit`.
    pub columns: Vec<Option<FitColumn>>,
    /// The runs.
    pub runs: Vec<Run>,
    /// Their requests to a device, if given.
    pub workloads: Vec<Option<Workload>>,
    /// Index of the run to split.
    pub of: usize,
    /// Other contents of the recordings, by file, as text.
    pub notes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    title: String,
    #[serde(default)]
    of: Option<String>,
    #[serde(default)]
    channel: Many<String>,
    #[serde(default)]
    volts: Option<f64>,
    component: Vec<WrittenComponent>,
    run: Vec<WrittenRun>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenComponent {
    name: String,
    #[serde(default)]
    per: Per,
    #[serde(default)]
    fit: Option<FitColumn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRun {
    name: String,
    active: Vec<String>,
    #[serde(default)]
    joules: Many<f64>,
    #[serde(default)]
    joules_error: Option<f64>,
    #[serde(default)]
    seconds: Many<f64>,
    #[serde(default)]
    operations: Option<f64>,
    #[serde(default)]
    bytes: Option<f64>,
    #[serde(default)]
    recording: Many<WrittenRecording>,
    #[serde(default)]
    workload: Option<Workload>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenRecording {
    File(PathBuf),
    Part(WrittenPart),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPart {
    file: PathBuf,
    #[serde(default)]
    from: f64,
    #[serde(default)]
    to: Option<f64>,
    #[serde(default)]
    channel: Many<String>,
    #[serde(default)]
    volts: Option<f64>,
}

/// One or several values.
#[derive(Deserialize)]
#[serde(untagged)]
enum Many<T> {
    One(T),
    All(Vec<T>),
}

impl<T> Default for Many<T> {
    fn default() -> Self {
        Many::All(Vec::new())
    }
}

impl<T> Many<T> {
    fn all(&self) -> &[T] {
        match self {
            Many::One(one) => std::slice::from_ref(one),
            Many::All(all) => all,
        }
    }
}

impl Plan {
    /// Reads a plan and its recordings; `progress` gets the recording being read, and the number of bytes read.
    pub fn read(path: &Path, progress: impl FnMut(&Path, u64)) -> Result<Self, PlanError> {
        let unreadable = |source| PlanError::Unreadable { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let beside = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, &path.display().to_string(), beside, progress)
    }

    /// Parses a plan; errors refer to it as `from`, recordings are relative to `beside`.
    pub fn parse(
        text: &str,
        from: &str,
        beside: &Path,
        mut progress: impl FnMut(&Path, u64),
    ) -> Result<Self, PlanError> {
        let malformed = |message: String| PlanError::Malformed { from: from.to_owned(), message };
        let w: Written = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |span| 1 + text.bytes().take(span.start).filter(|b| *b == b'\n').count());
            malformed(format!("line {line}: {}", e.message()))
        })?;
        let once = |names: &mut dyn Iterator<Item = &String>, what: &str| {
            let mut seen = Vec::new();
            for name in names {
                if seen.contains(&name) {
                    return Err(malformed(format!("two {what} are named {name:?}")));
                }
                seen.push(name);
            }
            if seen.is_empty() { Err(malformed(format!("no {what}"))) } else { Ok(()) }
        };
        once(&mut w.component.iter().map(|c| &c.name), "components")?;
        once(&mut w.run.iter().map(|r| &r.name), "runs")?;
        let of = match &w.of {
            Some(name) => w.run.iter().position(|r| r.name == *name),
            None => Some(w.run.len() - 1),
        };
        let of = of.ok_or_else(|| malformed(format!("of: no run {:?}", w.of.as_deref().unwrap_or_default())))?;
        let (mut runs, mut notes) = (Vec::new(), Vec::new());
        for run in &w.run {
            let wrong = |what: String| malformed(format!("run {:?}: {what}", run.name));
            let place = |name: &String| {
                let place = w.component.iter().position(|c| c.name == *name);
                place.ok_or_else(|| wrong(format!("no component {name:?}")))
            };
            let active = run.active.iter().map(place).collect::<Result<Vec<_>, _>>()?;
            let measured = match (run.joules.all(), run.recording.all()) {
                ([], []) => return Err(wrong("neither joules nor a recording".into())),
                (joules, []) => numbers(joules, run.seconds.all()).map_err(wrong)?,
                ([], recordings) if run.seconds.all().is_empty() => {
                    let mut measured = Vec::new();
                    for recording in recordings {
                        let (repeat, note) = w.measured(&run.name, recording, beside, &mut progress)?;
                        measured.push(repeat);
                        notes.extend(note);
                    }
                    measured
                }
                ([], _) => return Err(wrong("seconds given, but the recording has its own; leave out seconds".into())),
                _ => return Err(wrong("joules and a recording given; leave one out".into())),
            };
            for c in &active {
                let component = &w.component[*c];
                let missing = match component.per {
                    Per::Second if measured.iter().any(|(_, s)| s.is_none()) => "seconds",
                    Per::Operation if run.operations.is_none() => "operations",
                    Per::Byte if run.bytes.is_none() => "bytes",
                    _ => continue,
                };
                return Err(wrong(format!("{missing} not given, but {} depends on them", component.name)));
            }
            let repeat = |(joules, seconds): Measured| Repeat {
                joules,
                seconds: seconds.unwrap_or(0.0),
                operations: run.operations.unwrap_or(0.0),
                bytes: run.bytes.unwrap_or(0.0),
            };
            runs.push(Run {
                name: run.name.clone(),
                active,
                repeats: measured.into_iter().map(repeat).collect(),
                error: run.joules_error,
            });
        }
        Ok(Plan {
            title: w.title,
            components: w.component.iter().map(|c| Component { name: c.name.clone(), per: c.per }).collect(),
            columns: w.component.iter().map(|c| c.fit).collect(),
            workloads: w.run.into_iter().map(|r| r.workload).collect(),
            runs,
            of,
            notes,
        })
    }

    /// Computes the energy of each component.
    pub fn solve(&self) -> Result<Answer, Undetermined> {
        solve(&self.components, &self.runs, self.of)
    }

    /// The rows for `energy fit`: one per run with a workload.
    pub fn rows(&self, answer: &Answer) -> Result<String, FitError> {
        super::rows::rows(&self.columns, &self.workloads, answer)
    }
}

/// Joules of a repeat, and its seconds if given.
type Measured = (f64, Option<f64>);

fn numbers(joules: &[f64], seconds: &[f64]) -> Result<Vec<Measured>, String> {
    let second = |n: usize| match seconds {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        all if all.len() == joules.len() => Ok(Some(all[n])),
        all => Err(format!("{} seconds for {} joules", all.len(), joules.len())),
    };
    joules.iter().enumerate().map(|(n, joules)| Ok((*joules, second(n)?))).collect()
}

impl Written {
    /// Joules and seconds of a recording, and notes about it.
    fn measured(
        &self,
        run: &str,
        recording: &WrittenRecording,
        beside: &Path,
        progress: &mut dyn FnMut(&Path, u64),
    ) -> Result<(Measured, Option<String>), PlanError> {
        let (file, window, volts) = match recording {
            WrittenRecording::File(file) => {
                (file, Window { channels: self.channel.all().to_vec(), ..Window::default() }, self.volts)
            }
            WrittenRecording::Part(p) => {
                let channels = if p.channel.all().is_empty() { self.channel.all() } else { p.channel.all() };
                (&p.file, Window { channels: channels.to_vec(), from: p.from, to: p.to }, p.volts.or(self.volts))
            }
        };
        let path = beside.join(file);
        progress(&path, 0);
        let trace = |source| PlanError::Trace { run: run.to_owned(), source };
        let mut readings = open(&path, volts).map_err(trace)?;
        let spent = spent(&mut *readings, &window, |consumed| progress(&path, consumed)).map_err(trace)?;
        let spent = spent.map_err(|source| PlanError::Recording { run: run.to_owned(), file: path.clone(), source })?;
        let others: Vec<String> = spent.others.iter().map(|(what, n)| format!("{n} {what}")).collect();
        let note = (!others.is_empty()).then(|| format!("{}: {}", path.display(), others.join(", ")));
        Ok(((spent.joules, Some(spent.seconds)), note))
    }
}

fn open(path: &Path, volts: Option<f64>) -> Result<Box<dyn Readings>, TraceError> {
    if volts.is_some() {
        return Ok(Box::new(Monsoon::new(Input::open(path)?, volts)?));
    }
    match open_as(path, Kind::Power)? {
        Opened::Power(readings) => Ok(readings),
        Opened::Blocks(_) | Opened::Calls(_) => {
            let why = "this is a recording of requests or calls, not of a meter".into();
            Err(TraceError::Unknown { path: path.to_owned(), why })
        }
    }
}
