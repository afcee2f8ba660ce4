//! The only place where joules are counted.

use parking_lot::Mutex;

use super::ledger::Ledger;
use super::pauses::Pause;
use super::profile::Host;
use super::purpose::{Operation, Work};
use super::units::{Energy, Nanos, Part, Power};
use crate::{BLOCK, Tag};

/// The cost of one operation while it is collected.
#[derive(Debug, Default)]
pub struct Bill {
    amounts: Vec<(Part, Energy)>,
    pauses: Vec<Pause>,
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
    /// Reports that the device has rested for this long by now, or that a request ended such a pause. No pause if the
    /// time is zero.
    pub fn rested(&mut self, length: Nanos, ended: bool) {
        if length > Nanos(0) {
            self.pauses.push(Pause { length, ended });
        }
    }
    /// Its sum.
    pub fn total(&self) -> Energy {
        self.amounts.iter().map(|(_, e)| *e).sum()
    }
    /// Its amounts, each part once.
    pub fn amounts(&self) -> &[(Part, Energy)] {
        &self.amounts
    }
    /// Empties it for the next operation.
    pub fn clear(&mut self) {
        self.amounts.clear();
        self.pauses.clear();
    }
}

/// Books computation of a file system: the host of a simulated device.
pub trait Processor: Send + Sync {
    /// Does some work, for `busy`. The time comes from a profile, never from this machine, so that runs are reproducible.
    fn compute(&self, work: Work, busy: Nanos, tag: Tag);
}

impl std::fmt::Debug for dyn Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Processor")
    }
}

/// Adds the shares of host and board to the device's, and books all of them in the ledger.
///
/// May be shared: the file system reports its work to the same meter that its device uses.
#[derive(Debug)]
pub struct Meter {
    host: Host,
    ledger: Mutex<Ledger>,
}

impl Meter {
    /// An empty meter with the host's prices.
    pub fn new(host: Host) -> Self {
        Meter { host, ledger: Mutex::default() }
    }

    /// Books a request: the device's `bill`, and the host's share for `blocks` blocks and a wait of `took`.
    pub fn request(&self, operation: Operation, tag: Tag, blocks: u64, took: Nanos, bill: &mut Bill) {
        self.request_for(operation, tag, &[], blocks, took, bill);
    }

    /// The same for a request whose blocks belong to several owners: `owners` has one for each block and replaces
    /// the tag's; it is empty if the tag's owner is right. For a request that shares its time with others, `took`
    /// is zero: its share of the board comes later ([`share`](Self::share)).
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
        let mut ledger = self.ledger.lock();
        ledger.rested(&bill.pauses);
        ledger.book(operation, tag, owners, &bill.amounts);
    }

    /// Books a request's share of the board's energy, which all concurrent requests pay together.
    pub fn share(&self, operation: Operation, tag: Tag, owners: &[u64], board: Energy) {
        self.ledger.lock().add(operation, tag, owners, &[(Part::Board, board)]);
    }

    /// Books elapsed time: the device's `bill` for it, and the board's.
    pub fn time(&self, operation: Operation, tag: Tag, took: Nanos, bill: &mut Bill) {
        let board = if operation == Operation::Idle { self.host.board_idle } else { self.host.board };
        bill.add_power(Part::Board, board, took);
        let mut ledger = self.ledger.lock();
        if operation == Operation::Idle {
            ledger.waited(took);
        }
        ledger.rested(&bill.pauses);
        ledger.book(operation, tag, &[], &bill.amounts);
    }

    /// Books computation that keeps the processor busy for `busy`: compressing a page, searching for a victim.
    /// `waited` is the time for which the board is awake only for it (less than `busy` while requests are under
    /// way), and `bill` is the device's energy meanwhile.
    pub fn work(&self, work: Work, tag: Tag, busy: Nanos, waited: Nanos, bill: &mut Bill) {
        bill.add_power(Part::CpuWork, self.host.cpu_busy, busy);
        bill.add_power(Part::Board, self.host.board, waited);
        let mut ledger = self.ledger.lock();
        ledger.waited(waited);
        ledger.worked(work, busy);
        ledger.rested(&bill.pauses);
        ledger.book(Operation::Work, tag, &[], &bill.amounts);
    }

    /// A copy of the current ledger.
    pub fn ledger(&self) -> Ledger {
        self.look(Ledger::clone)
    }

    /// Reads the current ledger without a copy. Booking waits meanwhile, so keep it short.
    pub fn look<T>(&self, at: impl FnOnce(&Ledger) -> T) -> T {
        at(&self.ledger.lock())
    }

    /// Clears the ledger.
    pub fn forget(&self) {
        *self.ledger.lock() = Ledger::default();
    }

    /// The host's prices.
    pub fn host(&self) -> &Host {
        &self.host
    }
}
