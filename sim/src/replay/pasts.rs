//! Which runs begin with the same aged volume, and who ages it?
//!
//! Aging takes most of the time of a comparison. Runs with the same key share one [`Past`]: the first of them makes it,
//! or finds it in the [`Cache`]. A key covers everything that the past depends on, so results do not change. Only runs
//! whose volume is mounted just before the calls have a past ([`Options::has_past`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::cache::Cache;
use crate::traces::ReplayError;
#[cfg(doc)]
use crate::traces::calls::Options;
use crate::traces::past::{Past, Whose};

/// The pasts of some runs.
#[derive(Default)]
pub(super) struct Pasts {
    cache: Option<Cache>,
    /// For each run.
    runs: Vec<Option<Arc<One>>>,
}

/// A past, and the runs that still need it.
struct One {
    key: String,
    users: AtomicUsize,
    /// True while a run is about to make it.
    begun: AtomicBool,
    made: Mutex<Option<Arc<Past>>>,
}

impl Pasts {
    /// The pasts of runs with these keys; none for a run that has no past to share.
    pub(super) fn new(keys: Vec<Option<String>>, cache: Option<Cache>) -> Self {
        let mut all: BTreeMap<String, Arc<One>> = BTreeMap::new();
        let mut runs: Vec<Option<Arc<One>>> = Vec::with_capacity(keys.len());
        for key in keys {
            let one = key.map(|key| {
                let new = || One { key: key.clone(), users: 0.into(), begun: false.into(), made: Mutex::default() };
                all.entry(key.clone()).or_insert_with(|| Arc::new(new())).clone()
            });
            one.iter().for_each(|one| _ = one.users.fetch_add(1, Ordering::Relaxed));
            runs.push(one);
        }
        // Without a cache, a past of one run is not worth its copy.
        let shared = |one: &Arc<One>| cache.is_some() || one.users.load(Ordering::Relaxed) > 1;
        let runs = runs.into_iter().map(|one| one.filter(shared)).collect();
        Pasts { cache, runs }
    }

    /// True if this run begins with a past.
    pub(super) fn has(&self, run: usize) -> bool {
        self.one(run).is_some()
    }

    fn one(&self, run: usize) -> Option<&Arc<One>> {
        self.runs.get(run)?.as_ref()
    }

    /// True if this run would wait for another one that makes its past.
    pub(super) fn would_wait(&self, run: usize) -> bool {
        self.one(run).is_some_and(|one| one.begun.load(Ordering::Acquire))
    }

    /// This run begins: if its past is missing, others would wait for it.
    pub(super) fn begins(&self, run: usize) {
        if let Some(one) = self.one(run)
            && one.made.try_lock().is_some_and(|made| made.is_none())
        {
            one.begun.store(true, Ordering::Release);
        }
    }

    /// The past of this run, which `make` makes if it does not exist. Called once for each run, and once more for one with
    /// a past of its own, which is cached but not shared.
    pub(super) fn past(
        &self,
        run: usize,
        whose: Whose,
        make: &mut dyn FnMut() -> Result<Past, ReplayError>,
    ) -> Result<Arc<Past>, ReplayError> {
        let Some(one) = self.one(run) else { return make().map(Arc::new) };
        if whose == Whose::Own {
            let key = blake3::hash(format!("{} with its own policy", one.key).as_bytes());
            return self.find(&key.to_hex()[..32], make).map(Arc::new);
        }
        let mut made = one.made.lock();
        let past = match &*made {
            Some(past) => Ok(past.clone()),
            None => self.find(&one.key, make).map(Arc::new),
        };
        let is_last = one.users.fetch_sub(1, Ordering::Relaxed) == 1;
        *made = past.as_ref().ok().filter(|_| !is_last).cloned();
        one.begun.store(false, Ordering::Release);
        past
    }

    fn find(&self, key: &str, make: &mut dyn FnMut() -> Result<Past, ReplayError>) -> Result<Past, ReplayError> {
        if let Some(past) = self.cache.as_ref().and_then(|cache| cache.get(key, |from| Past::read_from(from))) {
            return Ok(past);
        }
        let past = make()?;
        if let Some(cache) = &self.cache {
            cache.put(key, |out| past.write_to(out));
        }
        Ok(past)
    }
}
