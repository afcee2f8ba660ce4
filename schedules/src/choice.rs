//! Which thread runs next? Chosen at random, or by priorities that change at a few points.
//!
//! Everything depends only on the case's seed, so a case can be repeated alone. (The schedulers of `shuttle` depend on
//! all previous schedules; its PCT learns the length of a schedule from them.) PCT is that of Burckhardt et al., ASPLOS
//! 2010: each thread has a priority, the highest runnable one runs, and at `depth - 1` steps drawn beforehand the
//! running thread falls below all others.

use std::hash::Hasher;
use std::sync::{Arc, Mutex};

use device::Rng;
use rustc_hash::FxHasher;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// How to choose the next thread.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Manner {
    /// Each runnable thread is equally likely; the current one continues `sticky` times out of `sticky + 1`.
    Random { sticky: u64 },
    /// By priority; at these steps the current thread gets the lowest.
    Priorities { points: Vec<u64> },
}

/// The choices in one schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chosen {
    /// A hash of the sequence of chosen threads, wherever there was a choice.
    pub digest: u64,
    /// Number of choices.
    pub choices: u64,
}

/// A schedule in progress.
struct State {
    begun: bool,
    manner: Manner,
    rng: Rng,
    /// By task number: the runnable task with the smallest value runs.
    priorities: Vec<u64>,
    lowest: u64,
    hash: FxHasher,
    choices: u64,
}

/// The scheduler of one schedule. Clones share its state.
#[derive(Clone)]
pub struct Chooser(Arc<Mutex<State>>);

/// How the schedule of a seed is chosen, as a word.
pub fn manner(seed: u64) -> &'static str {
    match draw(&mut Rng::new(seed), 1, 1) {
        Manner::Random { sticky: 0 } => "random",
        Manner::Random { .. } => "random, mostly going on",
        Manner::Priorities { .. } => "priorities",
    }
}

fn draw(rng: &mut Rng, operations: u64, each: u64) -> Manner {
    match rng.below(4) {
        0 => Manner::Random { sticky: 0 },
        1 => Manner::Random { sticky: 1 + rng.below(15) },
        _ => {
            let depth = 1 + rng.below(4);
            let steps = operations * each;
            Manner::Priorities { points: (0..depth).map(|_| 1 + rng.below(steps)).collect() }
        }
    }
}

impl Chooser {
    /// The schedule of `seed`, for `operations` operations of `each` steps: PCT draws its points among these steps.
    pub fn new(seed: u64, operations: usize, each: u64) -> Self {
        let mut rng = Rng::new(seed);
        let manner = draw(&mut rng, operations.max(1) as u64, each);
        let (priorities, hash) = (Vec::new(), FxHasher::default());
        let state = State { begun: false, manner, rng, priorities, lowest: 1 << 32, hash, choices: 0 };
        Chooser(Arc::new(Mutex::new(state)))
    }

    /// The choices so far.
    ///
    /// # Panics
    /// Never: choosing does not panic.
    pub fn chosen(&self) -> Chosen {
        let state = self.0.lock().unwrap();
        Chosen { digest: state.hash.finish(), choices: state.choices }
    }
}

impl State {
    fn priority(&mut self, task: TaskId) -> u64 {
        let n = usize::from(task);
        while self.priorities.len() <= n {
            self.priorities.push(self.rng.below(1 << 32));
        }
        self.priorities[n]
    }

    fn lower(&mut self, task: TaskId) {
        self.priority(task);
        self.lowest += 1;
        self.priorities[usize::from(task)] = self.lowest;
    }

    fn next(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> TaskId {
        if let [only] = runnable {
            return only.id();
        }
        self.choices += 1;
        let still = current.filter(|c| !yields && runnable.iter().any(|t| t.id() == *c));
        let next = match &self.manner {
            Manner::Random { sticky } => match still {
                Some(c) if self.rng.below(sticky + 1) > 0 => c,
                _ => runnable[self.rng.index(runnable.len())].id(),
            },
            Manner::Priorities { points } => {
                let falls = yields || points.contains(&self.choices);
                if let Some(c) = current.filter(|_| falls) {
                    self.lower(c);
                }
                let mut ranked: Vec<_> = runnable.iter().map(|t| (self.priority(t.id()), t.id())).collect();
                ranked.sort();
                ranked[0].1
            }
        };
        self.hash.write_usize(usize::from(next));
        next
    }
}

impl Scheduler for Chooser {
    fn new_execution(&mut self) -> Option<Schedule> {
        let begun = &mut self.0.lock().unwrap().begun;
        (!std::mem::replace(begun, true)).then(|| Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        Some(self.0.lock().unwrap().next(runnable, current, yields))
    }

    fn next_u64(&mut self) -> u64 {
        self.0.lock().unwrap().rng.next_u64()
    }
}
