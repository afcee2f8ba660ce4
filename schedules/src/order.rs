//! Can the answers be put in an order in which they are right?
//!
//! The search of Wing and Gong (1993) with Lowe's memory of what was tried (2017): of the calls that no other
//! one ended before, the one that ended first is tried first; a call whose device failed may have happened, or
//! not, or in part if it writes. Histories are bounded (some forty operations), and an order is nearly always found at once.

use rustc_hash::FxHashMap;

use crate::course::Range;
use crate::hand::{Answer, Call, Event};
use crate::tree::{Effect, Tree};

/// Positions and trees that are tried before the search gives up.
const MOST: usize = 2_000_000;

/// How many calls that were refused after a failure are taken to have happened all the same: few first (limited
/// discrepancy search, Harvey and Ginsberg 1995). Otherwise one such call near the beginning would be guessed right only
/// after all combinations of those behind it.
const GUESSES: [usize; 5] = [0, 1, 2, 4, usize::MAX];

/// An order that is right: what each call changed, by the event's number, and the tree at the end.
#[derive(Debug)]
pub struct Order {
    /// In that order. A call whose device failed has its changes here whether it happened or not.
    pub changes: Vec<(usize, Effect)>,
    /// What the volume holds after all.
    pub tree: Tree,
}

/// Whether a tree is what was found.
pub type Seen<'f> = &'f dyn Fn(&Tree) -> bool;

struct Search<'e> {
    events: &'e [Event],
    /// What was found after a cut, and how many calls of each thread come before it: up to the last sync that returned.
    seen: Option<(Seen<'e>, Vec<u16>)>,
    /// Events of each thread, in order.
    threads: Vec<Vec<usize>>,
    /// With how many guesses at most.
    tried: FxHashMap<(Vec<u16>, u64), usize>,
    steps: usize,
    /// The longest beginning that was right: how many calls, and those that could not follow.
    furthest: (usize, Vec<usize>),
    changes: Vec<(usize, Effect)>,
}

/// An order of all events, from a tree on.
///
/// # Errors
/// Why there is none: the calls that can follow nowhere.
pub fn find(events: &[Event], start: &Tree) -> Result<Order, String> {
    search(events, start, None)
}

/// The same, of a volume that was found like this after a cut and that keeps calls in their order: at some place of the order,
/// behind all syncs that returned, the tree is what was found. A call is there as a whole or not at all.
///
/// # Errors
/// Why there is none.
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
    // The last says whether what was found is behind.
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

/// What a call on contents whose device failed may have done of what it was asked: whole blocks from its beginning.
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
    /// True if another call that failed had begun before this one ended.
    fn after_failure(&self, i: usize) -> bool {
        let mut failed = self.events.iter().enumerate().filter(|(k, e)| *k != i && e.answer == Answer::Failed);
        failed.any(|(_, e)| e.from < self.events[i].to)
    }

    /// Recurses once for each event.
    fn go(&mut self, mut at: Vec<u16>, tree: &Tree, done: usize, guesses: usize) -> Option<Tree> {
        // Where it can be first is as good as any later place: what is found changes nothing.
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
            // A volume that failed once refuses what comes later. The other guess would be one of two for each call, and
            // all their combinations.
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
            // It may not have happened: the changes stay, as those that may be found. Not those of an inode that
            // was not made: it has no place in the tree.
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
