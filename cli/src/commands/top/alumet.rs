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

mod followed;
mod heard;
mod power;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::sync::PoisonError;

use device::energy::Component;
use rustix::time::{ClockId, clock_gettime};
use trace::block::DeviceId;
use trace::read::alumet::{self, Amount, Columns, Row};

use self::followed::Followed;
use self::heard::PROCESSES;
pub use self::heard::{Heard, Hearing};
use self::power::Power;
use super::measured::{Compared, Cpu, Look};
use super::view::{DiskRow, WAITING};
use crate::{Failure, output};

/// Refreshes whose comparison is waited for at most.
const WAITING_REFRESHES: usize = 1 << 12;
/// Metrics of processes' energy, by how they begin; the plugin energy-attribution calls them what its user calls them.
const ATTRIBUTED: &str = "attributed_energy";
/// The disk's power, of the plugin quarch.
const DISK_POWER: &str = "disk_power";

/// What is asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct AlumetArgs {
    /// Also show the CPU joules that Alumet attributes to each process, and the watts that it measured for a disk.
    /// FILE is Alumet's CSV output and is read as it grows.
    #[arg(long = "alumet", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Name of the metric with the energy of processes; default: the first that begins with attributed_energy.
    #[arg(long, value_name = "NAME", requires = "file")]
    alumet_metric: Option<String>,
    /// The disk whose power Alumet measured (disk_power); default: the disk shown, if there is only one.
    #[arg(long, value_name = "DISK", requires = "file")]
    alumet_disk: Option<String>,
    /// Wall-clock time of the recording's first request, e.g. 2026-11-24T05:46:09.5Z; default: the time of Alumet's
    /// first measurement.
    #[arg(long, value_name = "TIME", requires = "file", requires = "from")]
    alumet_began: Option<String>,
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
    /// What was read and is later than the last refresh.
    waiting: VecDeque<Row>,
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
            waiting: VecDeque::new(),
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
        let first = self.followed.first().map_err(|e| format!("--alumet {}: {e}", self.followed.path.display()))?;
        let columns = first.as_deref().and_then(Columns::parse);
        if first.is_some() && columns.is_none() {
            let path = self.followed.path.display();
            return Err(format!("--alumet {path}: not Alumet CSV (metric;timestamp;value;resource_kind;...)").into());
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
        self.take();
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
                *columns = Columns::parse(line);
                return;
            };
            match known.row(line) {
                Ok(row) if row.amount().is_some() => rows.push(row),
                Ok(_) => {}
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
        if !rows.is_empty() {
            // A reading tells of the time before it: also of that before the beginning, or up to a refresh that was before it.
            for row in rows.iter().filter(|row| row.metric.starts_with(DISK_POWER)) {
                if let Some(Amount::Watts(watts)) = row.amount().filter(|_| row.value.is_finite()) {
                    self.power.add(row.time, watts);
                }
            }
            self.waiting.extend(rows);
            self.waiting.make_contiguous().sort_by_key(|row| row.time);
        }
        Ok(())
    }

    /// Takes what was measured up to the last refresh; of a recording that is played, there is more.
    fn take(&mut self) {
        while self.waiting.front().is_some_and(|row| row.time <= self.reached) {
            let Some(row) = self.waiting.pop_front() else { return };
            self.measured(&row);
        }
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
            (Amount::Watts(_), _) if row.metric.starts_with(DISK_POWER) => {}
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
        let watts = self.power.readings.iter().rev().find(|(time, _)| *time <= self.reached).map(|(_, watts)| *watts);
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
    Some(output::plain(name.trim_end_matches('\n')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

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
