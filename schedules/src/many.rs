//! Runs many cases, on all processors.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::course::{Case, Type};
use crate::run::{Failure, Outcome, run};

/// Totals of several cases.
#[derive(Debug, Default)]
pub struct Sum {
    /// Cases run.
    pub cases: u64,
    /// Calls made.
    pub calls: u64,
    /// Number of scheduler choices.
    pub choices: u64,
    /// Dirty pages that became deltas.
    pub deltas: u64,
    /// Database pages kept in delta nodes, for blocks of journals.
    pub kept: u64,
    /// Blocks of defragmented files.
    pub together: u64,
    /// Blocks that ScherlFS moved to free space.
    pub moved: u64,
    /// Clusters that were packed.
    pub packed: u64,
    /// New pages that were packed into delta nodes.
    pub packed_pages: u64,
    /// Files whose saved space was released.
    pub released: u64,
    /// Cases with a failed check.
    pub failures: u64,
    /// fsyncs of directories without a checkpoint, files written to record their names, names removed from the chain.
    pub names: [u64; 3],
    schedules: HashSet<u64>,
    crashes: HashSet<u64>,
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.calls += outcome.calls as u64;
        self.choices += outcome.chosen.choices;
        self.deltas += outcome.deltas;
        self.kept += outcome.kept;
        self.together += outcome.together;
        self.moved += outcome.moved;
        self.packed += outcome.packed;
        self.packed_pages += outcome.packed_pages;
        self.released += outcome.released;
        self.names.iter_mut().zip(outcome.names).for_each(|(sum, n)| *sum += n);
        self.schedules.insert(outcome.chosen.digest);
        if let Some(first) = outcome.digest.first_chunk().filter(|_| outcome.cut) {
            self.crashes.insert(u64::from_le_bytes(*first));
        }
    }

    /// Number of distinct sequences of choices.
    pub fn distinct_schedules(&self) -> usize {
        self.schedules.len()
    }

    /// Number of distinct crash images, including their energy.
    pub fn distinct_crashes(&self) -> usize {
        self.crashes.len()
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} schedules, {} of them distinct, {} distinct crash states, {} calls, {} choices, {} deltas, {} kept pages, \
             {} new pages packed, {} blocks brought together, {} moved, {} clusters packed, {} files released, {} failures",
            self.cases,
            self.distinct_schedules(),
            self.distinct_crashes(),
            self.calls,
            self.choices,
            self.deltas,
            self.kept,
            self.packed_pages,
            self.together,
            self.moved,
            self.packed,
            self.released,
            self.failures,
        )
    }
}

/// Runs up to `count` seeds from `from` on, on one file system, until `stop` is set. Passes each failure to `told` when
/// it happens.
pub fn many(of: Type, from: u64, count: u64, stop: &AtomicBool, told: &(dyn Fn(&Failure) + Sync)) -> Sum {
    let (sum, next) = (Mutex::new(Sum::default()), AtomicU64::new(0));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|s| {
        for _ in 0..workers {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    let n = next.fetch_add(1, Relaxed);
                    if n >= count {
                        break;
                    }
                    let out = run(&Case::on(of, from.wrapping_add(n)));
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.cases += 1;
                    match out {
                        Ok(outcome) => sum.add(&outcome),
                        Err(failure) => {
                            sum.failures += 1;
                            told(&failure);
                        }
                    }
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}
