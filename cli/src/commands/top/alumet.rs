//! What did Alumet measure meanwhile: the processor's joules of each process, and the disk's watts?
//!
//! Alumet (github.com/alumet-dev/alumet) appends its measurements to a CSV file. This module follows that file as it
//! grows, and shows the values of processes and of a disk next to the cost of requests on the simulated device. Alumet
//! uses the wall clock, and requests use the kernel's monotonic clock: live, both clocks are read at every refresh, so
//! that setting the wall clock affects one refresh at most. The wall-clock time of a recording is unknown unless it is
//! given.
//!
//! * *Processes* have numbers in Alumet and names here: a number's name comes from `/proc` while the process lives, or
//!   from the recording's events.
//! * *The disk's watts* arrive some time after the model's, since meters are polled and sources write late. So the two
//!   are compared per refresh, after the meter's readings reach beyond it, over the same period; and only with the
//!   model's storage, which is all that such a meter measures.
//!
//! Left out: Alumet's measurements of memory, network and graphics processors.

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

/// Maximum number of refreshes waiting for comparison.
const WAITING_REFRESHES: usize = 1 << 12;
/// Prefix of the metrics of processes' energy; users of the plugin energy-attribution choose the full names.
const ATTRIBUTED: &str = "attributed_energy";
/// The metric of the disk's power, from the plugin quarch.
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
    /// Joules at the time of the last measurement, which may cover several resources.
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
    /// Difference between the wall clock and the events' clock.
    offset: Option<i128>,
    /// Start of the measurements by the wall clock.
    began: Option<u64>,
    metric: Option<String>,
    /// Rows read that are later than the last refresh.
    waiting: VecDeque<Row>,
    processes: BTreeMap<u32, Process>,
    names: BTreeMap<u32, String>,
    power: Power,
    /// Refreshes not yet compared: the time, and the joules of each disk's storage.
    refreshes: VecDeque<(u64, BTreeMap<DeviceId, f64>)>,
    compared: Compared,
    latest: Option<u64>,
    /// The last refresh, by the wall clock.
    reached: u64,
    strange: (u64, Option<String>),
}

/// Current time of a clock.
fn now(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Alumet {
    /// Starts following a file, if one is given. `heard` has the process names of a recording, if one is played.
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

    /// Fails if the file's contents are not Alumet's. An empty file is accepted.
    fn begins_as_alumets(&mut self) -> Result<(), Failure> {
        let first = self.followed.first().map_err(|e| format!("--alumet {}: {e}", self.followed.path.display()))?;
        let columns = first.as_deref().and_then(Columns::parse);
        if first.is_some() && columns.is_none() {
            let path = self.followed.path.display();
            return Err(format!("--alumet {path}: not Alumet CSV (metric;timestamp;value;resource_kind;...)").into());
        }
        Ok(())
    }

    /// A process made a request, live: its name is looked up while the process lives.
    pub fn asked(&mut self, pid: u32) {
        if self.live && pid != 0 && !self.names.contains_key(&pid) && self.names.len() < PROCESSES {
            self.names.extend(comm(pid).map(|name| (pid, name)));
        }
    }

    /// Shows everything up to time `to` of the events' clock; `first` is the time of the first event.
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
            // A reading covers the time before it, including time before the start or an earlier refresh.
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

    /// Takes measurements up to the last refresh; a played recording has later ones.
    fn take(&mut self) {
        while self.waiting.front().is_some_and(|row| row.time <= self.reached) {
            let Some(row) = self.waiting.pop_front() else { return };
            self.measured(&row);
        }
    }

    fn measured(&mut self, row: &Row) {
        let Some(amount) = row.amount() else { return };
        let (Amount::Joules(value) | Amount::Watts(value)) = amount;
        // Measurements before the start are not counted.
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

    /// Measurements to show next to these disks.
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

/// The name of a living process.
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
