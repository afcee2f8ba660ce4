//! What did Alumet measure meanwhile: the processor's joules of each process, and the disk's watts?
//!
//! Alumet (github.com/alumet-dev/alumet) writes its measurements into a CSV file as it makes them. Here that file is
//! followed while it grows, and what it says of processes and of a disk is put beside what requests cost on the simulated
//! device. Alumet tells times by the wall clock, and requests have those of the kernel's monotonic clock: live, both clocks are
//! read at every refresh, so that a wall clock that is set does no harm for longer than one. Of a recording that is played, nobody
//! knows when it was by the wall clock unless it is said.
//!
//! * *Processes* are told by number there and by name here: a number's name is what `/proc` says while it lives, or what the
//!   recording's events say.
//! * *The disk's watts* come some time after the model's, since meters are read in turns and sources write late. So the
//!   two are compared refresh by refresh, each when the meter's readings reach beyond it, over the same time; with the
//!   model's storage alone, which is what such a meter sees.
//!
//! Left out: what Alumet measures of memory, network and graphics processors.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use device::energy::Component;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use trace::block::{DeviceId, Event, Events};
use trace::read::alumet::{self, Amount, Columns, Row};
use trace::timing::Timing;
use trace::{Format, Names, Others, TraceError};

use super::view::{DiskRow, WAITING};
use crate::Failure;

/// Bytes of a line at most; Alumet's have some hundred.
const LONGEST: usize = 1 << 20;
/// Refreshes whose comparison is waited for at most, and readings of the disk that are kept for it.
const WAITING_REFRESHES: usize = 1 << 12;
const READINGS: usize = 1 << 20;
/// Metrics of processes' energy, by how they begin; the plugin energy-attribution calls them what its user calls them.
const ATTRIBUTED: &str = "attributed_energy";
/// The disk's power, of the plugin quarch.
const DISK_POWER: &str = "disk_power";

/// What is asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct AlumetArgs {
    /// Show beside each process the processor's joules that Alumet attributes to it, and beside a disk the watts that Alumet
    /// measured, from this file of its CSV output, which is followed while it grows.
    #[arg(long = "alumet", value_name = "FILE")]
    file: Option<PathBuf>,
    /// The metric of processes' energy, as the file has it; default: the first that begins with attributed_energy.
    #[arg(long, value_name = "NAME", requires = "file")]
    alumet_metric: Option<String>,
    /// The disk whose power Alumet measured (disk_power); default: the only one there is.
    #[arg(long, value_name = "DISK", requires = "file")]
    alumet_disk: Option<String>,
    /// When the recording's first request was by the wall clock, e.g. 2026-11-24T05:46:09.5Z; default: when Alumet's first
    /// measurement was.
    #[arg(long, value_name = "TIME", requires = "file", requires = "from")]
    alumet_began: Option<String>,
}

/// Names of processes by number, told by a recording's events.
pub type Heard = Arc<Mutex<BTreeMap<u32, String>>>;

/// A recording, of whose events is heard which process has which number.
pub struct Hearing {
    inner: Box<dyn Events>,
    heard: Heard,
    last: u32,
}

impl Hearing {
    /// Of a recording.
    pub fn new(inner: Box<dyn Events>, heard: Heard) -> Self {
        Hearing { inner, heard, last: 0 }
    }
}

/// Processes that are heard of at most.
const PROCESSES: usize = 1 << 16;

impl Events for Hearing {
    fn format(&self) -> Format {
        self.inner.format()
    }
    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        let event = self.inner.next()?;
        if let Some(event) = event.filter(|e| e.pid != 0 && e.pid != self.last) {
            self.last = event.pid;
            let name = self.inner.names().name(event.process);
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            if !name.is_empty() && (heard.len() < PROCESSES || heard.contains_key(&event.pid)) {
                heard.insert(event.pid, name.to_owned());
            }
        }
        Ok(event)
    }
    fn timed(&self) -> bool {
        self.inner.timed()
    }
    fn names(&self) -> &Names {
        self.inner.names()
    }
    fn others(&self) -> &Others {
        self.inner.others()
    }
    fn consumed(&self) -> u64 {
        self.inner.consumed()
    }
    fn device(&self, id: DeviceId) -> Option<String> {
        self.inner.device(id)
    }
    fn timing(&self) -> Timing {
        self.inner.timing()
    }
}

/// A file that grows.
struct Followed {
    path: PathBuf,
    file: File,
    read: u64,
    /// Bytes after the last whole line.
    rest: Vec<u8>,
}

impl Followed {
    fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|e| Failure::from(format!("--alumet {}: {e}", path.display())))?;
        Ok(Followed { path: path.to_owned(), file, read: 0, rest: Vec::new() })
    }

    /// Gives each whole line that was added; `true` if the file begins anew, before its first line is given.
    fn lines(&mut self, mut line: impl FnMut(&str, bool)) -> std::io::Result<()> {
        // Alumet makes its file anew when it starts.
        let now = fs::metadata(&self.path);
        let mut again = self.file.metadata()?.len() < self.read;
        #[cfg(unix)]
        if let Ok(now) = &now {
            use std::os::unix::fs::MetadataExt;
            let had = self.file.metadata()?;
            again |= (now.dev(), now.ino()) != (had.dev(), had.ino());
        }
        if again {
            self.file = File::open(&self.path)?;
            self.read = 0;
            self.rest.clear();
        }
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = vec![0; 1 << 16];
        loop {
            let got = match self.file.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(got) => got,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.read += got as u64;
            self.rest.extend_from_slice(&bytes[..got]);
            let Some(end) = self.rest.iter().rposition(|b| *b == b'\n') else {
                if self.rest.len() > LONGEST {
                    self.rest.clear();
                }
                continue;
            };
            let rest = self.rest.split_off(end + 1);
            let whole = std::mem::replace(&mut self.rest, rest);
            for text in String::from_utf8_lossy(&whole).lines() {
                line(text, std::mem::take(&mut again));
            }
        }
    }
}

/// Energy of a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cpu {
    /// Since the start.
    pub joules: f64,
    /// Over the last time that was measured.
    pub watts: f64,
}

#[derive(Default)]
struct Process {
    cpu: Cpu,
    last: Option<u64>,
    /// Joules at the time of the last measurement: several resources may be measured at once.
    at_last: f64,
    before: Option<u64>,
}

impl Process {
    fn add(&mut self, time: u64, joules: f64) {
        self.cpu.joules += joules;
        if self.last != Some(time) {
            (self.before, self.last, self.at_last) = (self.last, Some(time), 0.0);
        }
        self.at_last += joules;
        if let Some(took) = self.before.and_then(|before| time.checked_sub(before)).filter(|took| *took > 0) {
            self.cpu.watts = self.at_last * 1e9 / took as f64;
        }
    }
}

/// The readings of a meter of power, in order of time.
#[derive(Default)]
struct Power {
    readings: VecDeque<(u64, f64)>,
}

impl Power {
    fn add(&mut self, time: u64, watts: f64) {
        let at = self.readings.iter().rposition(|(t, _)| *t <= time).map_or(0, |n| n + 1);
        self.readings.insert(at, (time, watts));
        if self.readings.len() > READINGS {
            self.readings.pop_front();
        }
    }

    /// Joules between two times; `None` if it was not measured from the one to the other. A reading is the power since
    /// the one before.
    fn joules(&self, from: u64, to: u64) -> Option<f64> {
        let (first, last) = (self.readings.front()?.0, self.readings.back()?.0);
        if from < first || to > last {
            return None;
        }
        let mut sum = 0.0;
        for ((began, _), (ended, watts)) in self.readings.iter().zip(self.readings.iter().skip(1)) {
            let inside = (*ended).min(to).saturating_sub((*began).max(from));
            sum += watts * inside as f64 / 1e9;
        }
        Some(sum)
    }

    /// What ended before this is needed no more.
    fn forget(&mut self, before: u64) {
        while self.readings.get(1).is_some_and(|(time, _)| *time <= before) {
            self.readings.pop_front();
        }
    }
}

/// A disk's measured power beside the model's.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Compared {
    /// Seconds that were compared so far.
    pub seconds: f64,
    /// Joules that were measured in them.
    pub measured: f64,
    /// Joules of the model's storage in them.
    pub model: f64,
    /// Watts of both over the last refresh that was compared.
    pub watts: (f64, f64),
}

impl Compared {
    /// The model's joules by the measured ones.
    pub fn ratio(&self) -> Option<f64> {
        (self.measured > 0.0).then(|| self.model / self.measured)
    }
}

/// What is shown of Alumet's measurements at a refresh.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// The metric of processes' energy.
    metric: Option<String>,
    /// By the name of a row.
    by_name: BTreeMap<String, Cpu>,
    /// Processes that asked for nothing: how many, and theirs.
    others: (usize, Cpu),
    /// The disk whose watts were measured, and the last of them.
    disk: Option<(Option<DeviceId>, f64)>,
    compared: Compared,
    /// Seconds from the last measurement to the refresh.
    old: Option<f64>,
    /// Lines that nobody understands, and the first of them.
    strange: (u64, Option<String>),
    /// The time of the recording's beginning was not said.
    guessed: bool,
}

/// Alumet's measurements.
pub struct Alumet {
    args: AlumetArgs,
    followed: Followed,
    columns: Option<Columns>,
    heard: Heard,
    live: bool,
    /// What is to be added to an event's time to have the wall clock's.
    offset: Option<i128>,
    /// When it began, by the wall clock.
    began: Option<u64>,
    metric: Option<String>,
    processes: BTreeMap<u32, Process>,
    names: BTreeMap<u32, String>,
    power: Power,
    /// Refreshes that are not compared yet: when, and the joules of each disk's storage.
    refreshes: VecDeque<(u64, BTreeMap<DeviceId, f64>)>,
    compared: Compared,
    latest: Option<u64>,
    /// The last refresh, by the wall clock.
    reached: u64,
    strange: (u64, Option<String>),
}

/// Now, by a clock.
fn now(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Alumet {
    /// Begins to follow a file, if one is given. `heard` is what a recording tells of processes, if one is played.
    pub fn open(args: &AlumetArgs, heard: Option<Heard>) -> Result<Option<Self>, Failure> {
        let Some(file) = &args.file else { return Ok(None) };
        let live = heard.is_none();
        let said = args.alumet_began.as_ref().map(|text| {
            let wrong = || Failure::usage(format!("--alumet-began {text}: write a time as 2026-11-24T05:46:09.5Z"));
            alumet::time(text).ok_or_else(wrong)
        });
        let began = if live { Some(now(ClockId::Realtime)) } else { said.transpose()? };
        let mut all = Alumet {
            args: args.clone(),
            followed: Followed::open(file)?,
            columns: None,
            heard: heard.unwrap_or_default(),
            live,
            offset: None,
            began,
            metric: args.alumet_metric.clone(),
            processes: BTreeMap::new(),
            names: BTreeMap::new(),
            power: Power::default(),
            refreshes: VecDeque::new(),
            compared: Compared::default(),
            latest: None,
            reached: began.unwrap_or(0),
            strange: (0, None),
        };
        all.begins_as_alumets()?;
        Ok(Some(all))
    }

    /// Fails if what is there already is no file of Alumet's. A file that is empty still may become one.
    fn begins_as_alumets(&mut self) -> Result<(), Failure> {
        let mut head = vec![0; LONGEST.min(1 << 16)];
        let got = self.followed.file.read(&mut head).unwrap_or(0);
        let first = head[..got].split(|b| *b == b'\n').next().unwrap_or_default();
        let columns = std::str::from_utf8(first).ok().and_then(Columns::of);
        if got > 0 && columns.is_none() {
            let path = self.followed.path.display();
            return Err(format!("--alumet {path}: no CSV of Alumet's (metric;timestamp;value;resource_kind;...)").into());
        }
        Ok(())
    }

    /// A process asked for something, live: its name is asked for while it lives.
    pub fn asked(&mut self, pid: u32) {
        if self.live && pid != 0 && !self.names.contains_key(&pid) && self.names.len() < PROCESSES {
            self.names.extend(comm(pid).map(|name| (pid, name)));
        }
    }

    /// Everything up to this moment of the events' clock is to be shown; `first` is that of the first.
    pub fn reached(&mut self, first: u64, to: u64) -> Result<(), Failure> {
        if self.live {
            self.offset = Some(i128::from(now(ClockId::Realtime)) - i128::from(now(ClockId::Monotonic)));
        } else if let Some(began) = self.began {
            self.offset = Some(i128::from(began) - i128::from(first));
        }
        self.read()?;
        if self.offset.is_none() {
            self.offset = self.began.map(|began| i128::from(began) - i128::from(first));
        }
        let wall = self.offset.map(|offset| i128::from(to) + offset);
        self.reached = wall.and_then(|wall| u64::try_from(wall).ok()).unwrap_or(self.reached);
        Ok(())
    }

    fn read(&mut self) -> Result<(), Failure> {
        let Alumet { followed, columns, strange, .. } = self;
        let mut rows: Vec<Row> = Vec::new();
        let read = followed.lines(|line, again| {
            if again {
                *columns = None;
            }
            let Some(known) = columns else {
                *columns = Columns::of(line);
                return;
            };
            match known.row(line) {
                Ok(row) => rows.push(row),
                Err(what) => {
                    strange.0 += 1;
                    strange.1.get_or_insert(what);
                }
            }
        });
        read.map_err(|e| format!("--alumet {}: {e}", followed.path.display()))?;
        if self.began.is_none() {
            self.began = rows.iter().map(|row| row.time).min();
        }
        rows.iter().for_each(|row| self.measured(row));
        Ok(())
    }

    fn measured(&mut self, row: &Row) {
        let Some(amount) = row.amount() else { return };
        let (Amount::Joules(value) | Amount::Watts(value)) = amount;
        // What was measured before it began was spent before.
        if !value.is_finite() || self.began.is_some_and(|began| row.time < began) {
            return;
        }
        match (amount, row.process()) {
            (Amount::Joules(joules), Some(pid)) => {
                if self.metric.is_none() && row.metric.starts_with(ATTRIBUTED) {
                    self.metric = Some(row.metric.clone());
                }
                if self.metric.as_ref() != Some(&row.metric) || self.processes.len() > PROCESSES {
                    return;
                }
                self.processes.entry(pid).or_default().add(row.time, joules);
                self.asked(pid);
            }
            (Amount::Watts(watts), _) if row.metric.starts_with(DISK_POWER) => self.power.add(row.time, watts),
            _ => return,
        }
        self.latest = self.latest.max(Some(row.time));
    }

    fn name(&self, pid: u32) -> Option<String> {
        let heard = || self.heard.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).cloned();
        self.names.get(&pid).cloned().or_else(heard)
    }

    /// What there is to say beside these disks.
    pub fn look(&mut self, disks: &[DiskRow]) -> Look {
        let rows: BTreeSet<&str> = disks.iter().flat_map(|d| d.rows.iter().map(|r| r.process.as_str())).collect();
        let (mut by_name, mut others) = (BTreeMap::<String, Cpu>::new(), (0, Cpu::default()));
        for (pid, process) in &self.processes {
            let cpu = match self.name(*pid).filter(|name| rows.contains(name.as_str()) && name != WAITING) {
                Some(name) => by_name.entry(name).or_default(),
                None => {
                    others.0 += 1;
                    &mut others.1
                }
            };
            cpu.joules += process.cpu.joules;
            cpu.watts += process.cpu.watts;
        }
        let measured = self.disk(disks);
        self.compare(disks, measured);
        let watts = self.power.readings.back().map(|(_, watts)| *watts);
        Look {
            metric: self.metric.clone(),
            by_name,
            others,
            disk: watts.map(|watts| (measured, watts)),
            compared: self.compared,
            old: self.latest.map(|latest| self.reached.saturating_sub(latest) as f64 / 1e9),
            strange: self.strange.clone(),
            guessed: !self.live && self.args.alumet_began.is_none(),
        }
    }

    /// The disk whose power is measured.
    fn disk(&self, disks: &[DiskRow]) -> Option<DeviceId> {
        let is = |d: &&DiskRow| match &self.args.alumet_disk {
            Some(said) => [d.about.name.clone(), d.id.to_string(), d.id.to_string().replace(',', ":")].contains(said),
            None => disks.len() == 1,
        };
        disks.iter().find(is).map(|d| d.id)
    }

    fn compare(&mut self, disks: &[DiskRow], measured: Option<DeviceId>) {
        let storage = Component::ALL.iter().position(|c| *c == Component::Storage);
        let joules = |d: &DiskRow| storage.map_or(0.0, |n| d.energy[n].joules());
        if let (true, Some(began)) = (self.refreshes.is_empty(), self.began) {
            self.refreshes.push_back((began, BTreeMap::new()));
        }
        self.refreshes.push_back((self.reached, disks.iter().map(|d| (d.id, joules(d))).collect()));
        if self.refreshes.len() > WAITING_REFRESHES {
            self.refreshes.pop_front();
        }
        let last = self.power.readings.back().map_or(0, |(time, _)| *time);
        while let [(from, before), (to, after)] = self.refreshes.make_contiguous().get(..2).unwrap_or_default() {
            if *to > last {
                break;
            }
            let (from, to) = (*from, *to);
            if let (Some(id), Some(joules)) = (measured, self.power.joules(from, to)) {
                let had = |all: &BTreeMap<DeviceId, f64>| all.get(&id).copied().unwrap_or(0.0);
                let (model, seconds) = (had(after) - had(before), to.saturating_sub(from) as f64 / 1e9);
                self.compared.seconds += seconds;
                self.compared.measured += joules;
                self.compared.model += model;
                if seconds > 0.0 {
                    self.compared.watts = (joules / seconds, model / seconds);
                }
            }
            self.refreshes.pop_front();
            self.power.forget(to);
        }
    }
}

/// The name of a process that lives.
fn comm(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(crate::output::plain(name.trim_end_matches('\n')))
}

impl Look {
    /// What is known of a row's process.
    pub fn of(&self, process: &str) -> Option<Cpu> {
        self.by_name.get(process).copied()
    }

    /// What is said below the rows.
    pub fn text(&self, disks: &[DiskRow]) -> String {
        let name = |id: Option<DeviceId>| disks.iter().find(|d| Some(d.id) == id).map(|d| d.about.name.as_str());
        let mut out = String::new();
        match (&self.metric, self.old) {
            (_, None) => out += "\nalumet: nothing measured yet",
            (metric, Some(old)) => {
                let metric = metric.as_deref().unwrap_or("no energy of processes");
                out += &format!("\nalumet: {}, {old:.1} s ago", crate::output::plain(metric));
                if self.others.0 > 0 {
                    let (n, cpu) = self.others;
                    out += &format!("; {n} processes that asked no disk: {:.2} W, {:.2} J", cpu.watts, cpu.joules);
                }
            }
        }
        if self.guessed && self.old.is_some() {
            out += "; its first measurement is taken for the recording's beginning";
        }
        if let Some((disk, watts)) = self.disk {
            let c = &self.compared;
            match (name(disk), c.ratio()) {
                (None, _) => out += &format!("\nmeasured: {watts:.3} W of a disk; which is not told: --alumet-disk"),
                (Some(disk), None) => out += &format!("\nmeasured: {disk} {watts:.3} W"),
                (Some(disk), Some(ratio)) => {
                    out += &format!(
                        "\nmeasured: {disk} {:.3} W where the model's storage has {:.3} W; {:.2} J and {:.2} J in {:.1} s, \
                         model : measured {ratio:.3}",
                        c.watts.0, c.watts.1, c.measured, c.model, c.seconds
                    );
                }
            }
        }
        if let (n @ 1.., Some(first)) = (self.strange.0, &self.strange.1) {
            out += &format!("\nalumet: {n} lines not understood, the first: {}", crate::output::plain(first));
        }
        out
    }

    /// The same for machines.
    pub fn json(&self) -> Value {
        let cpu = |c: &Cpu| json!({ "joules": c.joules, "watts": c.watts });
        let c = &self.compared;
        json!({
            "metric": self.metric,
            "seconds_old": self.old,
            "by_process": self.by_name.iter().map(|(name, c)| (name.clone(), cpu(c))).collect::<serde_json::Map<_, _>>(),
            "other_processes": { "count": self.others.0, "joules": self.others.1.joules, "watts": self.others.1.watts },
            "disk": self.disk.map(|(id, watts)| json!({
                "device": id.map(|id| id.to_string()),
                "last_watts": watts,
                "compared_s": c.seconds,
                "measured_joules": c.measured,
                "model_storage_joules": c.model,
                "measured_watts": c.watts.0,
                "model_storage_watts": c.watts.1,
                "model_by_measured": c.ratio(),
            })),
            "lines_not_understood": self.strange.0,
            "beginning_guessed": self.guessed,
        })
    }

    /// The same as OpenMetrics text; `label` makes a label's value.
    pub fn metrics(&self, disks: &[DiskRow], label: impl Fn(&str) -> String) -> String {
        let head = |name: &str, kind: &str, unit: &str, help: &str| {
            format!("# TYPE {name} {kind}\n# UNIT {name} {unit}\n# HELP {name} {help}\n")
        };
        let mut out = head("joulefs_cpu_joules", "counter", "joules", "Processor energy that Alumet attributes to a process.");
        for (name, cpu) in &self.by_name {
            out += &format!("joulefs_cpu_joules_total{{process=\"{}\"}} {}\n", label(name), cpu.joules);
        }
        let disk = self.disk.and_then(|(id, _)| disks.iter().find(|d| Some(d.id) == id));
        let Some(disk) = disk else { return out };
        let (device, c) = (label(&disk.about.name), &self.compared);
        for (name, help, joules) in [
            ("joulefs_measured_joules", "Energy of the disk that Alumet measured.", c.measured),
            ("joulefs_compared_joules", "Energy of the model's storage in the time that was measured.", c.model),
        ] {
            out += &head(name, "counter", "joules", help);
            out += &format!("{name}_total{{device=\"{device}\"}} {joules}\n");
        }
        out += &head("joulefs_measured_watts", "gauge", "watts", "Power of the disk that Alumet measured.");
        out + &format!("joulefs_measured_watts{{device=\"{device}\"}} {}\n", c.watts.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn power_is_summed_over_the_time_that_it_was_measured() {
        let mut power = Power::default();
        // Told out of order.
        for (time, watts) in [(10 * S, 1.0), (12 * S, 3.0), (11 * S, 2.0), (13 * S, 4.0)] {
            power.add(time, watts);
        }
        assert_eq!(power.joules(10 * S, 13 * S), Some(9.0));
        assert_eq!(power.joules(10 * S + S / 2, 12 * S + S / 4), Some(1.0 + 3.0 + 1.0));
        assert_eq!((power.joules(9 * S, 11 * S), power.joules(12 * S, 14 * S)), (None, None), "not measured");
        power.forget(11 * S);
        assert_eq!(power.joules(11 * S, 13 * S), Some(7.0));
    }

    #[test]
    fn a_process_has_the_watts_of_its_last_measurement_of_all_packages() {
        let mut process = Process::default();
        process.add(S, 5.0);
        assert_eq!(process.cpu, Cpu { joules: 5.0, watts: 0.0 }, "since when is not known");
        process.add(3 * S, 2.0);
        process.add(3 * S, 4.0);
        assert_eq!(process.cpu, Cpu { joules: 11.0, watts: 3.0 });
    }
}
