//! What is the name of a thread that the kernel reports by number?
//!
//! It is read from `/proc` when the events are read, a fraction of a second after they happened. A thread that has
//! exited by then is looked up in the short list of names saved by the kernel (`saved_cmdlines`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The initial PID namespace, as in `/proc/self/ns/pid`; the kernel reports its numbers.
const FIRST: &str = "pid:[4026531836]";

/// Names of threads.
pub struct Who {
    saved: PathBuf,
    /// True if this process sees the kernel's thread numbers.
    same: bool,
    /// Names read since [`begin`](Self::begin), and those read before.
    now: BTreeMap<u32, String>,
    before: BTreeMap<u32, String>,
    /// The kernel's saved names, read on first use.
    kept: Option<BTreeMap<u32, String>>,
}

impl Who {
    /// For this tracefs.
    pub fn new(tracefs: &Path) -> Self {
        let same = fs::read_link("/proc/self/ns/pid").is_ok_and(|to| to.as_os_str() == FIRST);
        let saved = tracefs.join("saved_cmdlines");
        Who { saved, same, now: BTreeMap::new(), before: BTreeMap::new(), kept: None }
    }

    /// Makes later lookups read names again: a number may have been reused, or a thread renamed.
    pub fn begin(&mut self) {
        if !self.now.is_empty() {
            self.before = std::mem::take(&mut self.now);
        }
        self.kept = None;
    }

    /// The name of a thread; empty if unknown.
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
