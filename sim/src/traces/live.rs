//! How much energy does each process spend on each disk, while requests still arrive?
//!
//! Every disk has an account: a simulated device of a profile, on which [`trace::replay::blocks::replay`] replays the
//! requests at their own times, in its own thread, just as it replays a recording. So the final account equals a replay
//! of the same requests, to the picojoule. An account begins with its disk's first request.
//!
//! To be read in between, an account must advance its time to now and book waiting, without affecting later results. So
//! a [`reading`](Accounts::read) is queued like any other request, but not passed to the device ([`Readable`]). The
//! device's waiting is booked in whole microseconds since its last request; for these any power gives whole picojoules,
//! so booking it in parts loses nothing.
//!
//! Left out: the source of the requests, and the display.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use device::energy::profile::Profile;
use device::energy::{Energy, Ledger, Nanos};
use device::queue::{Ask, Queue};
use device::{Blank, Lba, Tag};
use rustc_hash::FxHashMap;
use trace::block::{Action, DeviceId, Event, Events, Flags, Op};
use trace::replay::blocks::{How, Made, replay};
use trace::requests::{Request, Requests};
use trace::{Format, Names, OtherCounts, Process, TraceError};

use super::blocks::Plan;
use super::{ReplayError, Speed, Stack};

/// The process number of readings.
const READER: Process = Process(u32::MAX - 1);
/// The same as an owner on the ledger.
const READER_OWNS: u64 = READER.0 as u64 + 1;
/// Waiting is booked in multiples of this many nanoseconds.
const WHOLE: u64 = 1000;
/// Most batches queued for an account; then the sender waits.
const BATCHES: usize = 256;
/// Requests per batch.
const BATCH: usize = 1024;

/// Requests of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// Requests.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// State of an account.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Energy; owners are process numbers plus one, 0 is none.
    pub ledger: Ledger,
    /// Energy up to the end of the last request, without the waiting since: equal to a replay of the requests.
    pub of_requests: Energy,
    /// Requests by process.
    pub asked: BTreeMap<Process, Asked>,
    /// Nanoseconds since the first request.
    pub took: u64,
    /// Number of requests that the device refused, and the first error.
    pub failed: (u64, Option<String>),
}

/// Parameters of a disk's account.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The simulated device.
    pub profile: Profile,
    /// Its size and the ranges that hold data.
    pub plan: Plan,
    /// Addresses past the simulated device's end are taken modulo its size.
    pub folded: bool,
}

/// A device that is notified when an account is read.
struct Readable<'a> {
    device: &'a dyn Queue,
    /// When the last request ends.
    ends: Cell<Nanos>,
}

impl Queue for Readable<'_> {
    fn depth(&self) -> usize {
        self.device.depth()
    }
    fn now(&self) -> Nanos {
        self.device.now()
    }
    fn submit(&self, at: Nanos, ask: Ask, tag: Tag) -> device::Result<Nanos> {
        if tag.owner == READER_OWNS {
            return Ok(at);
        }
        let done = self.device.submit(at, ask, tag)?;
        self.ends.set(self.ends.get().max(done));
        Ok(done)
    }
    fn drain(&self) -> Nanos {
        self.device.drain()
    }
}

/// The incoming requests of an account.
struct Fed {
    from: Receiver<Vec<Event>>,
    batch: std::vec::IntoIter<Event>,
    names: Names,
    others: OtherCounts,
}

impl Events for Fed {
    fn format(&self) -> Format {
        Format::Ftrace
    }
    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            if let Some(event) = self.batch.next() {
                return Ok(Some(event));
            }
            match self.from.recv() {
                Ok(batch) => self.batch = batch.into_iter(),
                Err(_) => return Ok(None),
            }
        }
    }
    fn names(&self) -> &Names {
        &self.names
    }
    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }
    fn consumed(&self) -> u64 {
        0
    }
}

/// Counters of a reading that are kept during the replay.
#[derive(Default)]
struct Counted {
    asked: FxHashMap<Process, Asked>,
    failed: (u64, Option<String>),
}

impl Counted {
    fn count(&mut self, made: &Made) {
        let asked = self.asked.entry(made.request.process).or_default();
        asked.requests += 1;
        let bytes = made.request.sectors.saturating_mul(512);
        match made.request.op {
            Op::Read => asked.read = asked.read.saturating_add(bytes),
            Op::Write => asked.written = asked.written.saturating_add(bytes),
            _ => {}
        }
        if let Err(why) = &made.done {
            self.failed.0 += 1;
            self.failed.1.get_or_insert_with(|| why.clone());
        }
    }

    fn reading(&self, ledger: Ledger, of_requests: Energy, took: u64) -> Reading {
        let asked = self.asked.iter().map(|(process, asked)| (*process, *asked)).collect();
        Reading { ledger, of_requests, asked, took, failed: self.failed.clone() }
    }
}

/// Keeps an account until its input ends.
fn keep(terms: &Terms, from: Receiver<Vec<Event>>, out: &Sender<Reading>) -> Result<Reading, ReplayError> {
    let stack = Stack::new(&terms.profile, Arc::new(Blank::new(terms.plan.blocks)), &terms.plan.held, Speed::Virtual)?;
    let began = stack.now();
    let readable = Readable { device: &*stack.device, ends: Cell::new(began) };
    let fed = Fed { from, batch: Vec::new().into_iter(), names: Names::default(), others: OtherCounts::new() };
    let mut counted = Counted::default();
    // Energy and time at the end of the last completed request.
    let mut settled = (began, Energy::ZERO);
    let each = |made: &Made, _: &Names| {
        if made.request.process != READER {
            return counted.count(made);
        }
        let ends = readable.ends.get();
        let now = began + Nanos(made.given);
        let reach = |to: Nanos| {
            if let Some(clock) = &stack.virtual_clock {
                clock.advance(Duration::from_nanos(to.since(stack.now()).0));
            }
        };
        if now > ends && settled.0 < ends {
            reach(ends);
            settled = (ends, stack.device.look(Ledger::total));
        }
        reach(if now > ends { ends + Nanos(now.since(ends).0 / WHOLE * WHOLE) } else { now });
        let ledger = stack.device.ledger();
        let of_requests = if settled.0 == ends { settled.1 } else { ledger.total() };
        let reading = counted.reading(ledger, of_requests, stack.now().since(began).0);
        // A receiver that is gone has ended.
        let _ = out.send(reading);
    };
    let mut requests = Requests::new(Box::new(fed));
    // The input is no recording, so it cannot be damaged.
    let _ = replay(&mut requests, terms.plan.of, &readable, How::RECORDED, each, |_| {});
    let ledger = stack.device.ledger();
    let of_requests = if settled.0 == readable.ends.get() { settled.1 } else { ledger.total() };
    Ok(counted.reading(ledger, of_requests, stack.now().since(began).0))
}

/// A disk's account.
struct Account {
    terms: Terms,
    feed: SyncSender<Vec<Event>>,
    batch: Vec<Event>,
    readings: Receiver<Reading>,
    thread: JoinHandle<Result<Reading, ReplayError>>,
}

impl Account {
    fn open(terms: Terms) -> Self {
        let (feed, fed) = mpsc::sync_channel(BATCHES);
        let (out, readings) = mpsc::channel();
        let of_thread = terms.clone();
        let thread = std::thread::spawn(move || keep(&of_thread, fed, &out));
        Account { terms, feed, batch: Vec::new(), readings, thread }
    }

    fn add(&mut self, event: Event) {
        self.batch.push(event);
        if self.batch.len() >= BATCH {
            self.send();
        }
    }

    /// A failed thread accepts nothing; the error is reported when it is joined.
    fn send(&mut self) {
        if !self.batch.is_empty() {
            let _ = self.feed.send(std::mem::take(&mut self.batch));
        }
    }

    fn end(mut self) -> Result<Reading, ReplayError> {
        self.send();
        drop(self.feed);
        match self.thread.join() {
            Ok(reading) => reading,
            // A panic is a bug in this program, and is propagated.
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// The accounts of all disks.
#[derive(Default)]
pub struct Accounts {
    all: BTreeMap<DeviceId, Account>,
}

/// A request as an event.
fn event(request: &Request, blocks: Option<u64>) -> Event {
    let Request { time, op, flags, mut sector, sectors, device, pid, process } = *request;
    if let Some(blocks) = blocks {
        sector %= (blocks * 8).saturating_sub(sectors).max(1);
    }
    let (action, took, writing) = (Action::Issue, None, Default::default());
    Event {
        time,
        action,
        op,
        flags,
        sector,
        sectors,
        device,
        cpu: 0,
        pid,
        process,
        took,
        error: 0,
        writing,
        from: None,
    }
}

impl Accounts {
    /// True if a disk has an account.
    pub fn has(&self, disk: DeviceId) -> bool {
        self.all.contains_key(&disk)
    }

    /// Opens the account of the disk given in the terms.
    pub fn open(&mut self, terms: Terms) {
        self.all.insert(terms.plan.of, Account::open(terms));
    }

    /// Adds a request to the account of its disk, and returns it as passed on; `None` if there is no account.
    pub fn add(&mut self, request: &Request) -> Option<Event> {
        let account = self.all.get_mut(&request.device)?;
        let event = event(request, account.terms.folded.then_some(account.terms.plan.blocks));
        account.add(event);
        Some(event)
    }

    /// The state of all accounts at `time`, which later requests must not precede.
    ///
    /// # Errors
    /// Why an account failed.
    pub fn read(&mut self, time: u64) -> Result<BTreeMap<DeviceId, Reading>, ReplayError> {
        let flags = Flags::empty();
        for (disk, account) in &mut self.all {
            let read =
                Request { time, op: Op::Read, flags, sector: 0, sectors: 8, device: *disk, pid: 0, process: READER };
            account.add(event(&read, None));
            account.send();
        }
        let mut out = BTreeMap::new();
        let mut failed = None;
        for (disk, account) in &self.all {
            match account.readings.recv() {
                Ok(reading) => _ = out.insert(*disk, reading),
                Err(_) => failed = failed.or(Some(*disk)),
            }
        }
        match failed.and_then(|disk| self.all.remove(&disk)) {
            // Only a failure ends an account early.
            Some(account) => account.end().map(|_| out),
            None => Ok(out),
        }
    }

    /// The parameters of a disk's account.
    pub fn terms(&self, disk: DeviceId) -> Option<&Terms> {
        self.all.get(&disk).map(|account| &account.terms)
    }

    /// Ends the input, and returns the final state of all accounts.
    ///
    /// # Errors
    /// Why an account failed.
    pub fn end(self) -> Result<BTreeMap<DeviceId, Reading>, ReplayError> {
        self.all.into_iter().map(|(disk, account)| Ok((disk, account.end()?))).collect()
    }
}

/// The data ranges of a device that is full.
pub fn everywhere(blocks: u64) -> Vec<(Lba, u64)> {
    vec![(Lba(0), blocks)]
}

#[cfg(test)]
mod tests {
    use device::Rng;

    use super::*;

    fn requests(seed: u64, n: u64) -> Vec<Request> {
        let mut rng = Rng::new(seed);
        let mut time = 5_000_000_123;
        let mut one = |_| {
            // Bursts, and pauses in which a device falls asleep or a disk spins down.
            time += match rng.below(40) {
                0 => rng.below(30_000_000_000),
                1..10 => rng.below(5_000_000),
                _ => rng.below(40_000),
            };
            let op = [Op::Read, Op::Write, Op::Write, Op::Flush, Op::Discard][rng.below(5) as usize];
            let flags = if op == Op::Write && rng.below(5) == 0 { Flags::FUA | Flags::SYNC } else { Flags::empty() };
            let sectors = if op == Op::Flush { 0 } else { 1 + rng.below(200) };
            let process = Process(rng.below(4) as u32);
            let sector = if op == Op::Flush { 0 } else { rng.below(1 << 20) };
            Request { time, op, flags, sector, sectors, device: DeviceId::default(), pid: 0, process }
        };
        (0..n).map(&mut one).collect()
    }

    fn terms(profile: &str) -> Terms {
        let blocks = 1 << 18;
        let plan =
            Plan { of: DeviceId::default(), blocks, held: everywhere(blocks / 2), requests: 0, before: Vec::new() };
        Terms { profile: Profile::find(profile).unwrap(), plan, folded: false }
    }

    #[test]
    fn reading_an_account_often_does_not_change_its_end() {
        for profile in device::energy::profile::SHIPPED.iter().map(|(name, _)| *name) {
            for seed in 0..2 {
                let all = requests(seed, 1500);
                let mut sums = Vec::new();
                for every in [u64::MAX, 1_000_000_000, 333_333_333, 7_777_777] {
                    let mut accounts = Accounts::default();
                    accounts.open(terms(profile));
                    let (mut next, mut last, mut reads) = (all[0].time, 0, 0);
                    for request in &all {
                        while reads > 0 && next < request.time && reads < 20_000 {
                            let total = accounts.read(next).unwrap()[&DeviceId::default()].ledger.total().0;
                            assert!(total >= last, "joules went back");
                            (last, next, reads) = (total, next.saturating_add(every), reads + 1);
                        }
                        reads = reads.max(u64::from(every != u64::MAX));
                        accounts.add(request);
                    }
                    // A replay does not include waiting after the last request.
                    if every != u64::MAX {
                        accounts.read(all[all.len() - 1].time + every).unwrap();
                        accounts.read(all[all.len() - 1].time + 60_000_000_000 + every).unwrap();
                    }
                    let end = accounts.end().unwrap().remove(&DeviceId::default()).unwrap();
                    // The phones' profiles have no idle power.
                    let rests = !matches!(profile, "kirin9000-ufs31" | "oneplus8t-ufs31" | "galaxy-nexus-emmc");
                    let waits = every != u64::MAX && rests;
                    assert!(end.ledger.total() >= end.of_requests);
                    assert_eq!(end.ledger.total() > end.of_requests, waits, "{profile}");
                    sums.push(end.of_requests);
                }
                assert!(sums.iter().all(|s| *s == sums[0]), "{profile}, seed {seed}: {sums:?}");
            }
        }
    }

    #[test]
    fn a_size_that_is_too_large_is_an_error_of_the_reading() {
        let mut accounts = Accounts::default();
        let mut terms = terms("kirin9000-ufs31");
        terms.plan.blocks = 1 << 40;
        accounts.open(terms);
        accounts.add(&requests(1, 1)[0]);
        assert!(accounts.read(u64::MAX).is_err());
    }
}
