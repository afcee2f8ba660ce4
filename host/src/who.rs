//! What is a thread called that the kernel names by number?
//!
//! By `/proc`, at the time its events are read: a fraction of a second after they happened. A thread that is gone by then is
//! looked for among those whose names the kernel saved (`saved_cmdlines`), of which there are few.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The namespace of processes in which the kernel counts, as `/proc/self/ns/pid` tells it.
const FIRST: &str = "pid:[4026531836]";

/// Names of threads.
pub struct Who {
    saved: PathBuf,
    /// Numbers here are those of the kernel.
    same: bool,
    /// Those asked for since [`begin`](Self::begin), and those before.
    now: BTreeMap<u32, String>,
    before: BTreeMap<u32, String>,
    /// Those the kernel saved, once they were asked for.
    kept: Option<BTreeMap<u32, String>>,
}

impl Who {
    /// By this tracefs.
    pub fn new(tracefs: &Path) -> Self {
        let same = fs::read_link("/proc/self/ns/pid").is_ok_and(|to| to.as_os_str() == FIRST);
        let saved = tracefs.join("saved_cmdlines");
        Who { saved, same, now: BTreeMap::new(), before: BTreeMap::new(), kept: None }
    }

    /// From here on names are asked for anew: a number may have been given to another thread, or a thread another name.
    pub fn begin(&mut self) {
        if !self.now.is_empty() {
            self.before = std::mem::take(&mut self.now);
        }
        self.kept = None;
    }

    /// What a thread is called; empty if nobody knows.
    pub fn name(&mut self, pid: u32) -> String {
        if let Some(known) = self.now.get(&pid) {
            return known.clone();
        }
        let name = self.find(pid);
        self.now.insert(pid, name.clone());
        name
    }

    fn find(&mut self, pid: u32) -> String {
        if self.same
            && let Ok(name) = fs::read(format!("/proc/{pid}/comm"))
        {
            return String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
        }
        let kept = self.kept.get_or_insert_with(|| {
            let text = fs::read(&self.saved).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let pairs = text.lines().filter_map(|line| line.trim_start().split_once(' '));
            pairs.filter_map(|(pid, name)| Some((pid.parse().ok()?, name.to_owned()))).collect()
        });
        kept.get(&pid).or_else(|| self.before.get(&pid)).cloned().unwrap_or_default()
    }
}
