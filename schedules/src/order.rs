//! Is there an order in which all answers are correct?
//!
//! The search of Wing and Gong (1993) with Lowe's memoization (2017): among the calls that began before every other
//! call's end, the one that ended first is tried first; a call whose device failed may have happened, or not, or in
//! part if it writes. Histories are bounded (about forty operations), and an order is nearly always found immediately.

use rustc_hash::FxHashMap;

use crate::course::Range;
use crate::hand::{Answer, Call, Event};
use crate::tree::{Effect, Tree};

/// Maximum number of positions and trees tried.
const MOST: usize = 2_000_000;

/// How many calls that were refused after a failure may have happened nevertheless: few first (limited discrepancy
/// search, Harvey and Ginsberg 1995). Otherwise the search would guess one such call near the beginning only after all
/// combinations of the later ones.
const GUESSES: [usize; 5] = [0, 1, 2, 4, usize::MAX];

/// A correct order: what each call changed, by the event's number, and the final tree.
#[derive(Debug)]
pub struct Order {
    /// In this order. A call whose device failed has its changes here whether it happened or not.
    pub changes: Vec<(usize, Effect)>,
    /// The final contents of the volume.
    pub tree: Tree,
}

/// Whether a tree equals the volume's contents.
pub type Seen<'f> = &'f dyn Fn(&Tree) -> bool;

struct Search<'e> {
    events: &'e [Event],
    /// The contents after a cut, and how many calls of each thread precede them: up to its last successful sync.
    seen: Option<(Seen<'e>, Vec<u16>)>,
    /// Events of each thread, in order.
    threads: Vec<Vec<usize>>,
    /// Positions tried, with the maximum number of guesses.
    tried: FxHashMap<(Vec<u16>, u64), usize>,
    steps: usize,
    /// The longest correct prefix: number of calls, and the calls that could not follow.
    furthest: (usize, Vec<usize>),
    changes: Vec<(usize, Effect)>,
}

/// Finds an order of all events, starting from a tree.
///
/// # Errors
/// The calls that fit nowhere.
pub fn find(events: &[Event], start: &Tree) -> Result<Order, String> {
    search(events, start, None)
}

/// Like `find`, for a volume read after a cut that keeps calls in order: at some point after all successful syncs, the
/// tree equals the contents. A call is complete or missing.
///
/// # Errors
/// Why there is no order.
pub fn find_seen(events: &[Event], start: &Tree, found: Seen<'_>) -> Result<Order, String> {
    search(events, start, Some(found))
}

fn search(events: &[Event], start: &Tree, found: Option<Seen<'_>>) -> Result<Order, String> {
    let mut threads: Vec<Vec<usize>> = Vec::new();
    for (i, e) in events.iter().enumerate() {
        if threads.len() <= e.thread {
            threads.resize(e.thread + 1, Vec::new());
        }
        threads[e.thread].push(i);
    }
    // The last element: whether the contents after the cut were matched.
    let mut at = vec![0; threads.len() + 1];
    at[threads.len()] = u16::from(found.is_none());
    let synced = |i: &usize| {
        let e: &Event = &events[*i];
        matches!(e.call, Call::Fsync(_) | Call::FsyncDir(_) | Call::Sync) && e.answer == Answer::Done
    };
    let until = |t: &Vec<usize>| t.iter().rposition(synced).map_or(0, |n| n as u16 + 1);
    let mut search = Search {
        events,
        seen: found.map(|found| (found, threads.iter().map(until).collect())),
        threads,
        tried: FxHashMap::default(),
        steps: 0,
        furthest: (0, Vec::new()),
        changes: Vec::new(),
    };
    match GUESSES.iter().find_map(|guesses| search.go(at.clone(), start, 0, *guesses)) {
        Some(tree) => Ok(Order { changes: search.changes, tree }),
        None => {
            let (done, stuck) = &search.furthest;
            let calls: Vec<String> = stuck.iter().map(|i| format!("{:?}", events[*i])).collect();
            let nowhere = search.seen.is_some() && *done == events.len();
            let found = match search.steps > MOST {
                _ if nowhere => "what was found is at no place of an order behind the syncs that returned".to_owned(),
                true => format!("no order was found in {MOST} steps"),
                false => "no order is right".to_owned(),
            };
            Err(format!(
                "{found}: after {done} of {} calls, none of these can follow:\n  {}",
                events.len(),
                calls.join("\n  ")
            ))
        }
    }
}

/// The possible effects of a call on contents whose device failed: whole blocks from its beginning.
fn parts(e: &Event) -> Vec<Call> {
    let ends = |at: u64, cells: u64| (at / 8 + 1..(at + cells).div_ceil(8)).map(move |block| block * 8 - at);
    match e.call {
        _ if e.answer != Answer::Failed => Vec::new(),
        Call::Write(ino, at, cells, token) => ends(at, cells).map(|n| Call::Write(ino, at, n, token)).collect(),
        Call::Allocate(ino, range @ (Range::Punch | Range::Reserve | Range::Zero), at, cells) => {
            ends(at, cells).map(|n| Call::Allocate(ino, range, at, n)).collect()
        }
        _ => Vec::new(),
    }
}

impl Search<'_> {
    /// Whether another, failed call began before this one ended.
    fn after_failure(&self, i: usize) -> bool {
        let mut failed = self.events.iter().enumerate().filter(|(k, e)| *k != i && e.answer == Answer::Failed);
        failed.any(|(_, e)| e.from < self.events[i].to)
    }

    /// Recurses one level per event.
    fn go(&mut self, mut at: Vec<u16>, tree: &Tree, done: usize, guesses: usize) -> Option<Tree> {
        // The first possible position is as good as any later one: matching changes nothing.
        if let Some((found, until)) = &self.seen
            && at.last() == Some(&0)
            && at.iter().zip(until).all(|(n, until)| n >= until)
            && found(tree)
        {
            at[until.len()] = 1;
        }
        let mut heads: Vec<usize> =
            self.threads.iter().zip(&at).filter_map(|(t, n)| t.get(usize::from(*n)).copied()).collect();
        if heads.is_empty() {
            return (at.last() == Some(&1)).then(|| tree.clone());
        }
        self.steps += 1;
        let key = (!self.tried.is_empty()).then(|| (at.clone(), tree.digest()));
        if self.steps > MOST || key.as_ref().is_some_and(|k| self.tried.get(k).is_some_and(|n| *n >= guesses)) {
            return None;
        }
        let first_end = heads.iter().map(|i| self.events[*i].to).min()?;
        heads.retain(|i| self.events[*i].from < first_end);
        heads.sort_unstable_by_key(|i| self.events[*i].to);
        for i in &heads {
            let e = &self.events[*i];
            let mut next = at.clone();
            next[e.thread] += 1;
            let kept = self.changes.len();
            let mut effects = Vec::new();
            let mut after = Vec::new();
            let parts = if self.seen.is_none() { parts(e) } else { Vec::new() };
            for call in std::iter::once(e.call).chain(parts) {
                let mut changed = tree.clone();
                if changed.step(&call, &e.answer, &mut effects) {
                    after.push(changed);
                }
            }
            self.changes.extend(effects.into_iter().map(|effect| (*i, effect)));
            // A volume that failed refuses later calls. Guessing both outcomes for each call would multiply their
            // combinations.
            let refused = e.answer == Answer::Failed && self.after_failure(*i);
            if refused && let Some(end) = self.go(next.clone(), tree, done + 1, guesses) {
                return Some(end);
            }
            let left = if refused { guesses.checked_sub(1) } else { Some(guesses) };
            for changed in after {
                if let Some(left) = left
                    && let Some(end) = self.go(next.clone(), &changed, done + 1, left)
                {
                    return Some(end);
                }
            }
            // If it did not happen, its changes remain possible contents. Not those of an inode that was not created:
            // it is not in the tree.
            if matches!(e.call, Call::Create(..)) {
                self.changes.truncate(kept);
            }
            if e.answer == Answer::Failed
                && !refused
                && let Some(end) = self.go(next, tree, done + 1, guesses)
            {
                return Some(end);
            }
            self.changes.truncate(kept);
        }
        if self.furthest.0 <= done {
            self.furthest = (done, heads);
        }
        self.tried.insert(key.unwrap_or_else(|| (at, tree.digest())), guesses);
        None
    }
}
