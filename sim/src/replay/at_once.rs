//! How are several runs done at once?

use parking_lot::Mutex;

use super::error::Error;
use super::pasts::Pasts;
use super::points::Point;
use super::program::{Job, Program, Total};

/// Steps of the display for each run.
pub(super) const STEPS: u64 = 1000;

/// Maximum number of runs: their ledgers and volumes stay in memory until all are done.
const AT_ONCE: usize = 256;

/// Each run's result, in order; runs use all processors. A run that would wait for the past that another one makes is
/// begun after those that would not.
pub(super) fn at_once<T: Send>(
    points: &[Point],
    pasts: &Pasts,
    program: &dyn Program,
    work: impl Fn(usize, &Point, &dyn Job) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let job = program.begin("replaying", Total::Steps(STEPS * points.len() as u64));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(points.len());
    let left = Mutex::new((0..points.len()).collect::<Vec<_>>());
    let next = || {
        let mut left = left.lock();
        let free = left.iter().position(|run| !pasts.would_wait(*run)).unwrap_or(0);
        let run = (!left.is_empty()).then(|| left.remove(free))?;
        pasts.begins(run);
        Some(run)
    };
    let mut done: Vec<(usize, Result<T, Error>)> = std::thread::scope(|s| {
        let worker = || {
            let mut out = Vec::new();
            loop {
                let Some(n) = next() else { return out };
                let result = work(n, &points[n], &*job);
                let failed = result.is_err();
                out.push((n, result));
                if failed {
                    return out;
                }
            }
        };
        let all: Vec<_> = (0..threads).map(|_| s.spawn(worker)).collect();
        // A worker panics only because of a bug in this program; the panic continues here.
        all.into_iter().flat_map(|w| w.join().unwrap()).collect()
    });
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Fails if there are too many runs.
pub(super) fn check(points: &[Point]) -> Result<(), Error> {
    let n = points.len();
    if n <= AT_ONCE {
        return Ok(());
    }
    let parts = n.div_ceil(AT_ONCE) + 1;
    Err(Error::Setting(format!(
        "--compare: {n} runs; at most {AT_ONCE} are possible at once; split them with --shard 1/{parts} and so on"
    )))
}
