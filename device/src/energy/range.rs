//! How far may the joules of a ledger be off, since the numbers of the profile are?
//!
//! Each number of a profile has limits between which the true one lies in nine of ten cases
//! ([`Number::limits`](super::profile::Number::limits)). The amounts of a ledger are products of these numbers with counts
//! and times, and waiting has a price for each pause ([`super::waiting`]). So they are made again with numbers drawn from
//! the limits: below and above the profile's number a normal distribution of its own width, on a logarithmic scale unless
//! the limit is 0 or far above ([`super::drawn`]). The range of a total is that of nine in ten draws.
//!
//! A draw depends only on what a number says: value, limits, unit and source. So runs on one device, and on a copy of it
//! with some other numbers, are compared at the same prices, and what is uncertain about both cancels.
//!
//! Left out: that a device with other numbers would pad and clean at other times; effects that the model lacks; and that
//! numbers of one fit depend on each other (they are drawn independently).

use super::drawn::{DRAWS, Numbers, Term};
use super::ledger::Ledger;
use super::profile::{DeviceSpec, FlashSpec, PerByte, Profile};
use super::purpose::{Operation, Work};
use super::units::{Energy, Nanos, Part, Power};
use super::waiting::{Waiting, waiting};
use crate::BLOCK;

/// Nine in ten draws lie between these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range<T> {
    /// Lower limit.
    pub low: T,
    /// Upper limit.
    pub high: T,
}

impl std::fmt::Display for Range<Energy> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", self.low, self.high)
    }
}

/// What a ledger would have at other prices.
#[derive(Debug, Clone, PartialEq)]
pub struct Draws(Vec<f64>);

impl Draws {
    /// The totals of a ledger that was written with this profile.
    pub fn of(profile: &Profile, ledger: &Ledger) -> Self {
        Self::without(profile, ledger, &[])
    }

    /// The same without some parts.
    pub fn without(profile: &Profile, ledger: &Ledger, without: &[Part]) -> Self {
        Self::with(&mut Numbers::new(profile), profile, ledger, without)
    }

    /// The totals of several ledgers, each for itself.
    pub fn each<'l>(profile: &Profile, ledgers: impl IntoIterator<Item = &'l Ledger>) -> Vec<Self> {
        let mut numbers = Numbers::new(profile);
        ledgers.into_iter().map(|ledger| Self::with(&mut numbers, profile, ledger, &[])).collect()
    }

    fn with(numbers: &mut Numbers, profile: &Profile, ledger: &Ledger, without: &[Part]) -> Self {
        let (mut totals, terms) = terms(profile, ledger, numbers, without);
        for (energy, names) in terms.into_iter().filter(|(energy, _)| *energy != 0.0) {
            let mut amounts = vec![energy; DRAWS];
            names.into_iter().for_each(|name| numbers.multiply(name, &mut amounts));
            totals.iter_mut().zip(amounts).for_each(|(total, amount)| *total += amount);
        }
        // The board's power while it waits may be more than the 0 that the profile takes it for.
        if profile.host.board_idle.value.0 == 0 && !without.contains(&Part::Board) {
            let waited = ledger.idle().0 as f64 / 1e3;
            let power = numbers.drawn("host.board_idle");
            totals.iter_mut().zip(power).for_each(|(total, power)| *total += power * waited);
        }
        Draws(totals)
    }

    /// The total in each draw, in picojoules.
    pub fn totals(&self) -> &[f64] {
        &self.0
    }

    /// Adds another run's total.
    pub fn add(&mut self, other: &Draws) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum += more);
    }

    /// The range of the total.
    pub fn range(&self) -> Range<Energy> {
        let Range { low, high } = range(self.0.clone());
        Range { low: Energy(low.max(0.0) as u64), high: Energy(high.max(0.0) as u64) }
    }

    /// The range of the difference to `control`, in percent of it, if that spends anything.
    pub fn change(&self, control: &Draws) -> Option<Range<f64>> {
        let all = self.0.iter().zip(&control.0).map(|(of, control)| (of / control - 1.0) * 100.0);
        let all: Vec<f64> = all.collect();
        all.iter().all(|change| change.is_finite()).then(|| range(all))
    }
}

fn range(mut draws: Vec<f64>) -> Range<f64> {
    draws.sort_unstable_by(f64::total_cmp);
    Range { low: draws[DRAWS / 20], high: draws[DRAWS - 1 - DRAWS / 20] }
}

/// The cost of pauses in each draw, and all other amounts of a ledger with their numbers. Together they are the ledger's
/// total.
fn terms(profile: &Profile, ledger: &Ledger, numbers: &Numbers, without: &[Part]) -> (Vec<f64>, Vec<Term>) {
    let mut amounts = [[Energy::ZERO; Part::ALL.len()]; Operation::ALL.len()];
    ledger.amounts().for_each(|(purpose, part, energy)| amounts[purpose.operation as usize][part as usize] += energy);
    // Waiting, of all operations: computing waits, too.
    let sum = |part: Part| amounts.iter().map(|row| row[part as usize]).sum::<Energy>();
    let waits = !without.contains(&Part::Idle) && !without.contains(&Part::Sleep);
    let (totals, mut out, waits) = match waits {
        true => {
            let Waiting { totals, rest, while_waiting } = waiting(profile, ledger, numbers, sum);
            (totals, rest, while_waiting)
        }
        false => (vec![0.0; DRAWS], vec![(sum(Part::SpinUp).0 as f64, disk(Part::SpinUp))], Vec::new()),
    };
    let board_idle = amounts[Operation::Idle as usize][Part::Board as usize];
    let host_waits = match without.contains(&Part::Board) {
        true => Vec::new(),
        false => vec![(board_idle.0 as f64, vec!["host.board_idle".to_owned()])],
    };
    for operation in Operation::ALL {
        let of = |part: Part| amounts[operation as usize][part as usize];
        for part in Part::ALL.iter().copied().filter(|part| of(*part) > Energy::ZERO && !without.contains(part)) {
            let host = |names: &[&str]| (of(part).0 as f64, names.iter().map(|name| format!("host.{name}")).collect());
            match part {
                Part::Idle | Part::Sleep | Part::SpinUp => {}
                Part::CpuRequest => out.push(host(&["cpu_request"])),
                Part::CpuBytes => out.push(host(&["cpu_byte"])),
                Part::CpuWork => work(ledger, of(part), "host.cpu_busy", &mut out),
                Part::Dram => out.push(host(&["dram_byte"])),
                Part::Board if operation == Operation::Idle => {}
                Part::Board if operation == Operation::Work => work(ledger, of(part), "host.board", &mut out),
                _ => match &profile.device {
                    DeviceSpec::Flash(spec) => {
                        let count = ledger.operation(operation).operations;
                        let lasting = Lasting { spec, operation, count, link: of(Part::Link), idle: ledger.idle() };
                        let costs = (profile.host.board.value, &*host_waits, &*waits);
                        flash(&lasting, part, of(part), costs, &mut out);
                    }
                    DeviceSpec::Disk(_) if part == Part::Seek => {
                        seek(of(part), ledger.idle(), &waits, profile, &mut out)
                    }
                    DeviceSpec::Disk(_) => out.push((of(part).0 as f64, disk(part))),
                },
            }
        }
    }
    out.extend(host_waits);
    (totals, out)
}

/// Divides the energy of a power over the time of computation by what was computed.
fn work(ledger: &Ledger, energy: Energy, power: &str, out: &mut Vec<Term>) {
    let all: u64 = Work::ALL.iter().map(|work| ledger.busy(*work).0).sum();
    for work in Work::ALL {
        let share = ledger.busy(work).0 as f64 / all.max(1) as f64;
        let names = std::iter::once(power).chain(work.number()).map(str::to_owned).collect();
        out.push((energy.0 as f64 * share, names));
    }
}

fn device(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("device.{name}")).collect()
}

/// Requests of one kind to a flash device: what do they wait for?
struct Lasting<'a> {
    spec: &'a FlashSpec,
    operation: Operation,
    count: u64,
    /// Energy of their bytes over the link.
    link: Energy,
    /// Time without requests.
    idle: Nanos,
}

impl Lasting<'_> {
    fn is_read(&self) -> bool {
        self.operation == Operation::Read
    }

    /// Divides the energy of a power over their time by the numbers that the time consists of. Requests come at their
    /// times, so what they take longer is waited less: `waits` are the amounts of waiting.
    fn divide(&self, energy: Energy, power: Power, of: &str, waits: &[Term], out: &mut Vec<Term>) {
        if energy == Energy::ZERO || power.0 == 0 {
            return;
        }
        let (link, nand) = (&self.spec.link, &self.spec.nand);
        let (request, request_name) = match (&link.write_request, self.operation) {
            (Some(request), Operation::Write) => (request.value, "device.link.write_request"),
            (_, Operation::Flush) => (self.spec.flush.value, "device.flush"),
            _ => (link.request.value, "device.link.request"),
        };
        let (byte, byte_name, price) = match self.is_read() {
            true => (link.read.value, "device.link.read", link.read_energy.value),
            false => (link.write.value, "device.link.write", link.write_energy.value),
        };
        let middle = nand.read.len() / 2;
        let (chip, chip_name) = match self.is_read() {
            true => (nand.read[middle].value, format!("device.nand.read.{middle}")),
            false => (Nanos(0), format!("device.nand.program.{middle}")),
        };
        // Microwatts for nanoseconds: 1,000 of these are a picojoule.
        let all = energy.0 as f64 / power.0 as f64 * 1e3;
        let mut parts = [request.times(self.count), byte.of(bytes(self.link, price)), chip.times(self.count)]
            .map(|time| time.0 as f64);
        let sum: f64 = parts.iter().sum();
        if sum > all {
            // Requests overlap.
            parts.iter_mut().for_each(|part| *part *= all / sum);
        } else {
            parts[2] += all - sum;
        }
        for (time, name) in parts.into_iter().zip([request_name, byte_name, &chip_name]) {
            out.push((energy.0 as f64 * time / all, vec![of.to_owned(), name.to_owned()]));
            instead(time, self.idle, waits, name, out);
        }
    }
}

/// A time that is not exact, and the waiting that there is less of it for.
fn instead(time: f64, idle: Nanos, waits: &[Term], name: &str, out: &mut Vec<Term>) {
    let share = (time / idle.0.max(1) as f64).min(1.0);
    for (energy, names) in waits.iter().filter(|(energy, _)| *energy > 0.0) {
        out.push((energy * share, names.clone()));
        out.push((-energy * share, names.iter().cloned().chain([name.to_owned()]).collect()));
    }
}

/// The bytes that cost this much.
fn bytes(energy: Energy, price: PerByte) -> u64 {
    match price.of(BLOCK as u64).0 {
        0 => 0,
        block => energy.0 / block * BLOCK as u64,
    }
}

/// Board's power, and what host and device spend while they wait.
type Costs<'a> = (Power, &'a [Term], &'a [Term]);

fn flash(lasting: &Lasting<'_>, part: Part, energy: Energy, costs: Costs<'_>, out: &mut Vec<Term>) {
    let Lasting { spec, operation, count, .. } = lasting;
    let (board, host_waits, waits) = costs;
    let names: &[&str] = match part {
        Part::Board => return lasting.divide(energy, board, "host.board", host_waits, out),
        Part::Controller => {
            let count = if *operation == Operation::Flush { 0 } else { *count };
            let requests = spec.link.request_energy.value.times(count).min(energy);
            out.push((requests.0 as f64, device(&["link.request_energy"])));
            let busy = spec.busy.as_ref().map_or(Power(0), |q| q.value);
            if busy.0 == 0 {
                out.push(((energy - requests).0 as f64, device(&["link.request_energy"])));
            }
            return lasting.divide(energy - requests, busy, "device.busy", waits, out);
        }
        Part::Link if lasting.is_read() => &["link.read_energy"],
        Part::Link => &["link.write_energy"],
        Part::FlashRead => &["nand.read_energy"],
        Part::FlashMap => &["map.access_energy"],
        Part::FlashClean => {
            let (read, program) = (spec.nand.read_energy.value.0, spec.nand.program_energy.value.0);
            let read = Energy((u128::from(energy.0) * u128::from(read) / u128::from((read + program).max(1))) as u64);
            out.push((read.0 as f64, device(&["nand.read_energy"])));
            out.push(((energy - read).0 as f64, device(&["nand.program_energy"])));
            return;
        }
        Part::FlashErase => &["nand.erase_energy"],
        Part::Flush => &["flush_energy"],
        _ => &["nand.program_energy"],
    };
    out.push((energy.0 as f64, device(names)));
}

/// Moving the arm, which is waited less for.
fn seek(energy: Energy, idle: Nanos, waits: &[Term], profile: &Profile, out: &mut Vec<Term>) {
    out.push((energy.0 as f64, disk(Part::Seek)));
    if let DeviceSpec::Disk(spec) = &profile.device
        && spec.seek_power.value.0 > 0
    {
        let time = energy.0 as f64 / spec.seek_power.value.0 as f64 * 1e3;
        instead(time, idle, waits, "device.seek_average", out);
    }
}

/// The numbers of a disk's part.
fn disk(part: Part) -> Vec<String> {
    match part {
        Part::Seek => device(&["seek_power", "seek_average"]),
        Part::Rotate => device(&["rotate_power"]),
        Part::PlatterRead => device(&["read_power"]),
        Part::PlatterWrite => device(&["write_power", "media"]),
        Part::SpinUp => device(&["spin_up_energy"]),
        Part::Board => vec!["host.board".to_owned()],
        _ => device(&["idle_power"]),
    }
}
