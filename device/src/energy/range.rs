//! How far may the joules of a ledger be off, since the numbers of the profile are?
//!
//! Each number of a profile has limits between which the true one lies in nine of ten cases ([`Number::limits`]). The
//! amounts of a ledger are products of these numbers with counts and times, so they are made again with numbers drawn
//! from the limits: below and above the profile's number a normal distribution of its own width, on a logarithmic scale
//! if the lower limit is not 0. The range of a total is that of nine in ten draws.
//!
//! A draw depends only on the profile's and the number's name. So two runs on one device are always compared at the same
//! prices, and what is uncertain about both cancels.
//!
//! Left out: what the device would do otherwise if it were faster or had other chips (it would pad, clean and sleep at
//! other times), and what no model has. Numbers are drawn independently, although those of one fit are not.

use std::collections::HashMap;

use super::ledger::Ledger;
use super::profile::{DeviceSpec, FlashSpec, Number, PerByte, Profile};
use super::purpose::Operation;
use super::units::{Energy, Nanos, Part, Power};
use crate::{BLOCK, Rng};

/// Number of draws. The limits of nine in ten then vary by about a tenth of the distance between them.
const DRAWS: usize = 2000;

/// A standard normal number exceeds this in one of twenty cases.
const Z95: f64 = 1.645;

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

/// An amount in picojoules, and the numbers of which it is a product with something exact. Negative amounts belong to a
/// time that is spent otherwise if another one is longer.
type Term = (f64, Vec<String>);

/// What a ledger would have at other prices.
#[derive(Debug, Clone)]
pub struct Draws(Vec<f64>);

impl Draws {
    /// The totals of a ledger that was written with this profile.
    pub fn of(profile: &Profile, ledger: &Ledger) -> Self {
        Self::without(profile, ledger, &[])
    }

    /// The same without some parts.
    pub fn without(profile: &Profile, ledger: &Ledger, without: &[Part]) -> Self {
        let mut totals = vec![0.0; DRAWS];
        let mut known: HashMap<String, Vec<f64>> = HashMap::new();
        let numbers: HashMap<String, Number> =
            profile.numbers().into_iter().map(|number| (number.name.clone(), number)).collect();
        for (energy, names) in terms(profile, ledger, without) {
            let mut amounts = vec![energy; DRAWS];
            for name in names {
                let Some(number) = numbers.get(&name) else { continue };
                let factors = known.entry(name).or_insert_with(|| factors(&profile.name, number));
                amounts.iter_mut().zip(factors).for_each(|(amount, factor)| *amount *= *factor);
            }
            totals.iter_mut().zip(amounts).for_each(|(total, amount)| *total += amount);
        }
        for (time, number) in unpaid(profile, ledger, without).iter().filter_map(|(n, t)| Some((t, numbers.get(n)?))) {
            let all = unpaid_draws(&profile.name, number, *time);
            totals.iter_mut().zip(all).for_each(|(total, amount)| *total += amount);
        }
        Draws(totals)
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

/// Draws of a standard normal distribution: sums of twelve uniform numbers, so that they are equal on all machines.
fn normal(profile: &str, number: &str) -> impl Iterator<Item = f64> + use<> {
    // FNV-1a; a seed needs no better hash.
    let seed = profile.bytes().chain([0]).chain(number.bytes());
    let seed =
        seed.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut rng = Rng::new(seed);
    let mut uniform = move || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    std::iter::repeat_with(move || (0..12).map(|_| uniform()).sum::<f64>() - 6.0).take(DRAWS)
}

/// Draws of a number, as factors of it.
fn factors(profile: &str, number: &Number) -> Vec<f64> {
    let (low, high) = number.limits();
    let at = |z: f64| match (low, high, number.value) {
        (.., value) if value <= 0.0 => 1.0,
        (low, _, value) if z < 0.0 && low <= 0.0 => (1.0 + z / Z95 * (1.0 - low / value)).max(0.0),
        (low, _, value) if z < 0.0 => (low / value).powf(-z / Z95),
        (_, high, value) => (high / value).powf(z / Z95),
    };
    normal(profile, &number.name).map(at).collect()
}

/// Draws of the energy of a power that the profile takes to be 0: half of them are 0.
fn unpaid_draws(profile: &str, number: &Number, time: Nanos) -> Vec<f64> {
    let (_, high) = number.limits();
    let most = Power(match number.unit.as_str() {
        "W" => high * 1e6,
        "mW" => high * 1e3,
        _ => high,
    } as u64);
    normal(profile, &number.name).map(|z| most.over(time).0 as f64 * (z / Z95).max(0.0)).collect()
}

/// Powers of waiting that the profile takes to be 0, with the time of waiting: the deepest state's, as far as it is not
/// known how long which state lasted.
fn unpaid(profile: &Profile, ledger: &Ledger, without: &[Part]) -> Vec<(String, Nanos)> {
    let mut all = Vec::new();
    if profile.host.board_idle.value.0 == 0 && !without.contains(&Part::Board) {
        all.push(("host.board_idle".to_owned(), ledger.idle()));
    }
    if let DeviceSpec::Flash(spec) = &profile.device
        && !without.contains(&Part::Sleep)
    {
        match spec.idle.last() {
            None if spec.ready.value.0 == 0 => all.push(("device.ready".to_owned(), ledger.idle())),
            Some(state) if state.power.value.0 == 0 => {
                let asleep = ledger.idle().since(state.after.value.times(ledger.sleeps()));
                all.push((format!("device.idle.{}.power", state.name), asleep));
            }
            _ => {}
        }
    }
    all
}

/// The amounts of a ledger with their numbers. Together they are the ledger's total.
fn terms(profile: &Profile, ledger: &Ledger, without: &[Part]) -> Vec<Term> {
    let mut amounts = [[Energy::ZERO; Part::ALL.len()]; Operation::ALL.len()];
    ledger.amounts().for_each(|(purpose, part, energy)| amounts[purpose.operation as usize][part as usize] += energy);
    let mut out = Vec::new();
    for operation in Operation::ALL {
        let of = |part: Part| amounts[operation as usize][part as usize];
        for part in Part::ALL.iter().copied().filter(|part| of(*part) > Energy::ZERO && !without.contains(part)) {
            let host = |names: &[&str]| (of(part).0 as f64, names.iter().map(|name| format!("host.{name}")).collect());
            match part {
                Part::CpuRequest => out.push(host(&["cpu_request"])),
                Part::CpuBytes => out.push(host(&["cpu_byte"])),
                Part::CpuWork => out.push(host(&["cpu_busy", "delta_encode"])),
                Part::Dram => out.push(host(&["dram_byte"])),
                Part::Board if operation == Operation::Idle => out.push(host(&["board_idle"])),
                Part::Board if operation == Operation::Work => out.push(host(&["board", "delta_encode"])),
                _ => match &profile.device {
                    DeviceSpec::Flash(spec) if part == Part::Idle => ready(spec, of(part), ledger.sleeps(), &mut out),
                    DeviceSpec::Flash(spec) => {
                        let count = ledger.operation(operation).operations;
                        let lasting = Lasting { spec, operation, count, link: of(Part::Link) };
                        flash(&lasting, part, of(part), profile.host.board.value, &mut out);
                    }
                    DeviceSpec::Disk(_) => out.push((of(part).0 as f64, disk(part))),
                },
            }
        }
    }
    out
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
}

impl Lasting<'_> {
    fn is_write(&self) -> bool {
        self.operation != Operation::Read
    }

    /// Divides the energy of a power over their time by the numbers that the time consists of.
    fn divide(&self, energy: Energy, power: Power, of: &str, out: &mut Vec<Term>) {
        let link = &self.spec.link;
        let (request, request_name) = match &link.write_request {
            Some(request) if self.is_write() => (request.value, "device.link.write_request"),
            _ => (link.request.value, "device.link.request"),
        };
        let (byte, byte_name, price) = match self.is_write() {
            true => (link.write.value, "device.link.write", link.write_energy.value),
            false => (link.read.value, "device.link.read", link.read_energy.value),
        };
        let bytes = bytes(self.link, price);
        let mut left = energy;
        let mut take = |time: Nanos, name: &str| {
            let part = power.over(time).min(left);
            left = left - part;
            out.push((part.0 as f64, vec![of.to_owned(), name.to_owned()]));
        };
        match self.operation {
            Operation::Flush => take(self.spec.flush.value.times(self.count), "device.flush"),
            _ => take(request.times(self.count), request_name),
        }
        take(byte.of(bytes), byte_name);
        let middle = self.spec.nand.read.len() / 2;
        let chip = if self.is_write() { "program" } else { "read" };
        out.push((left.0 as f64, vec![of.to_owned(), format!("device.nand.{chip}.{middle}")]));
    }
}

/// The bytes that cost this much.
fn bytes(energy: Energy, price: PerByte) -> u64 {
    match price.of(BLOCK as u64).0 {
        0 => 0,
        block => energy.0 / block * BLOCK as u64,
    }
}

fn flash(lasting: &Lasting<'_>, part: Part, energy: Energy, board: Power, out: &mut Vec<Term>) {
    let Lasting { spec, count, .. } = lasting;
    let names: &[&str] = match part {
        Part::Board => return lasting.divide(energy, board, "host.board", out),
        Part::Controller => {
            let requests = spec.link.request_energy.value.times(*count).min(energy);
            out.push((requests.0 as f64, device(&["link.request_energy"])));
            let busy = spec.busy.as_ref().map_or(Power(0), |q| q.value);
            return lasting.divide(energy - requests, busy, "device.busy", out);
        }
        Part::Link if lasting.is_write() => &["link.write_energy"],
        Part::Link => &["link.read_energy"],
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
        Part::Sleep => {
            // The deepest state lasts longest.
            let deepest = spec.idle.iter().rev().find(|state| state.power.value.0 > 0);
            let name = deepest.map_or("ready".to_owned(), |state| format!("idle.{}.power", state.name));
            out.push((energy.0 as f64, device(&[&name])));
            return;
        }
        _ => &["nand.program_energy"],
    };
    out.push((energy.0 as f64, device(names)));
}

/// Waiting while ready, until the first sleep: if that began later, the device would sleep for less.
fn ready(spec: &FlashSpec, energy: Energy, sleeps: u64, out: &mut Vec<Term>) {
    out.push((energy.0 as f64, device(&["ready"])));
    let Some(state) = spec.idle.first() else { return };
    let before = state.after.value.times(sleeps);
    let awake = spec.ready.value.over(before).min(energy);
    let asleep = Energy((awake.0 as f64 * state.power.value.0 as f64 / spec.ready.value.0.max(1) as f64) as u64);
    let (power, after) = (format!("idle.{}.power", state.name), format!("idle.{}.after", state.name));
    for (energy, power) in [(awake.0 as f64, "ready"), (-(asleep.0 as f64), &power)] {
        out.push((-energy, device(&[power])));
        out.push((energy, device(&[power, &after])));
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
        Part::Sleep => device(&["standby_power"]),
        Part::Board => vec!["host.board".to_owned()],
        _ => device(&["idle_power"]),
    }
}
