//! The only place where joules are counted.

use parking_lot::Mutex;

use super::ledger::Ledger;
use super::profile::Host;
use super::purpose::Operation;
use super::units::{Energy, Nanos, Part, Power};
use crate::{BLOCK, Tag};

/// The cost of one operation while it is being put together.
#[derive(Debug, Default)]
pub struct Bill {
    amounts: Vec<(Part, Energy)>,
}

impl Bill {
    /// Adds an amount.
    pub fn add(&mut self, part: Part, energy: Energy) {
        match self.amounts.iter_mut().find(|(p, _)| *p == part) {
            Some((_, e)) => *e += energy,
            None => self.amounts.push((part, energy)),
        }
    }
    /// Adds a power over a time.
    pub fn add_power(&mut self, part: Part, power: Power, time: Nanos) {
        self.add(part, power.over(time));
    }
    /// Its sum.
    pub fn total(&self) -> Energy {
        self.amounts.iter().map(|(_, e)| *e).sum()
    }
    /// What it holds, each part once.
    pub fn amounts(&self) -> &[(Part, Energy)] {
        &self.amounts
    }
    /// Empties it for the next operation.
    pub fn clear(&mut self) {
        self.amounts.clear();
    }
}

/// Who computes for a file system, and has it booked: a simulated device's host.
pub trait Processor: Send + Sync {
    /// Computes for `busy`. The time is a profile's, never this machine's, so that runs repeat.
    fn compute(&self, busy: Nanos, tag: Tag);
}

impl std::fmt::Debug for dyn Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Processor")
    }
}

/// Adds the shares of host and board to the device's, and books all of them in the ledger.
///
/// May be shared: the file system announces work to the meter its device books on.
#[derive(Debug)]
pub struct Meter {
    host: Host,
    ledger: Mutex<Ledger>,
}

impl Meter {
    /// A meter with nothing on it and the host's prices.
    pub fn new(host: Host) -> Self {
        Meter { host, ledger: Mutex::default() }
    }

    /// Books a request: the device's `bill`, and the host's share for `blocks` blocks and a wait of `took`.
    pub fn request(&self, operation: Operation, tag: Tag, blocks: u64, took: Nanos, bill: &mut Bill) {
        self.request_for(operation, tag, &[], blocks, took, bill);
    }

    /// The same for a request whose blocks belong to several: `owners` has one for each block and counts
    /// instead of the tag's; none if the tag's is right. Of a request that shares its time with others, `took` is zero:
    /// its share of the board comes later ([`share`](Self::share)).
    pub fn request_for(
        &self,
        operation: Operation,
        tag: Tag,
        owners: &[u64],
        blocks: u64,
        took: Nanos,
        bill: &mut Bill,
    ) {
        let (h, bytes) = (&self.host, blocks.saturating_mul(BLOCK as u64));
        bill.add(Part::CpuRequest, h.cpu_request);
        if bytes > 0 && matches!(operation, Operation::Read | Operation::Write) {
            bill.add(Part::CpuBytes, h.cpu_byte.of(bytes));
            bill.add(Part::Dram, h.dram_byte.of(bytes));
        }
        bill.add_power(Part::Board, h.board, took);
        self.ledger.lock().book(operation, tag, owners, &bill.amounts);
    }

    /// Books what a request pays of the board's power, which all that are under way at once pay together.
    pub fn share(&self, operation: Operation, tag: Tag, owners: &[u64], board: Energy) {
        self.ledger.lock().add(operation, tag, owners, &[(Part::Board, board)]);
    }

    /// Books time that passed: the device's `bill` for it, and the board's.
    pub fn time(&self, operation: Operation, tag: Tag, took: Nanos, bill: &mut Bill) {
        let board = if operation == Operation::Idle { self.host.board_idle } else { self.host.board };
        bill.add_power(Part::Board, board, took);
        self.ledger.lock().book(operation, tag, &[], &bill.amounts);
    }

    /// Books computation that keeps the processor busy for `busy`: compressing a page, looking for a victim. `waited` is
    /// the time that the board is awake for it alone, less than `busy` while requests are under way, and `bill` what the
    /// device spends meanwhile.
    pub fn work(&self, tag: Tag, busy: Nanos, waited: Nanos, bill: &mut Bill) {
        bill.add_power(Part::CpuWork, self.host.cpu_busy, busy);
        bill.add_power(Part::Board, self.host.board, waited);
        self.ledger.lock().book(Operation::Work, tag, &[], &bill.amounts);
    }

    /// What is on it now.
    pub fn ledger(&self) -> Ledger {
        self.look(Ledger::clone)
    }

    /// Looks at what is on it now. Nothing is booked meanwhile: for sums, which take less time than a copy.
    pub fn look<T>(&self, at: impl FnOnce(&Ledger) -> T) -> T {
        at(&self.ledger.lock())
    }

    /// Forgets all that is on it.
    pub fn forget(&self) {
        *self.ledger.lock() = Ledger::default();
    }

    /// The host's prices.
    pub fn host(&self) -> &Host {
        &self.host
    }
}
