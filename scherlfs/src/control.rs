//! Settings of a mounted volume, its background work, and reports of both.
//!
//! When checkpoints are due is configurable (Scherl 2004, section 4.2.3), and so is the power source. This file
//! moves no blocks.

use std::time::Duration;

use vfs::{Error, Power, Result};

use crate::clean::strategy::{Clean, Strategy};
use crate::volume::{State, Volume};

/// Callers are idle after this time without changes.
const IDLE: Duration = Duration::from_secs(1);
/// Delay before the next step, if there is one.
const SOON: Duration = Duration::from_millis(5);

/// Settings of a mounted volume: name, values, meaning.
pub const KNOBS: &[(&str, &str, &str)] = &[
    (
        "clean",
        "auto|threading|copying|plugging|combined",
        "how to free space; auto: not at all on battery, combined on external power",
    ),
    ("power", "battery|powered", "power source; on external power files are defragmented too"),
    (
        "checkpoint_bytes",
        "BYTES",
        "log size after which a checkpoint is due; checked when writes fill `dirty`, and with sync=call after each \
         call",
    ),
    ("checkpoint_seconds", "N", "time after which a checkpoint is due; 0: never by time"),
    ("writeback_seconds", "N", "time after which waiting changes are written"),
    ("dirty", "MIB", "maximum of waiting changes in memory"),
];

/// Checks a value of a setting.
///
/// # Errors
/// The fault, as the end of the sentence "NAME ...".
pub fn check(name: &str, value: &str) -> std::result::Result<(), String> {
    match name {
        "clean" => Clean::parse(value).map(drop),
        "power" => Power::parse(value).map(drop),
        "dirty" => number(value, 1, "a number of MiB").map(drop),
        "writeback_seconds" => number(value, 1, "a number of seconds").map(drop),
        "checkpoint_seconds" => number(value, 0, "a number of seconds; 0: never").map(drop),
        "checkpoint_bytes" => number(value, 4096, "a number of bytes").map(drop),
        _ => Err("is not a setting of ScherlFS".to_owned()),
    }
}

fn number(value: &str, least: u64, what: &str) -> std::result::Result<u64, String> {
    let number = value.parse().ok().filter(|n| *n >= least);
    number.ok_or_else(|| format!("is {what}, {least} or more"))
}

impl State {
    /// Does a step of background work; false if there is none.
    fn care_step(&mut self) -> Result<bool> {
        let mark = (self.background.changes, self.accesses.lock().opens);
        if self.is_cleaning() {
            return self.clean_step(crate::clean::pass::STEP).map(|_| true);
        }
        if let Some(mut work) = self.background.gathering.take() {
            // After an error it is retried only when something has changed.
            self.background.settled = Some(mark);
            if self.gather_step(&mut work)? {
                self.background.gathering = Some(work);
            }
            return Ok(true);
        }
        if self.worth_a_pass() && self.begin_pass(u64::MAX)? {
            return Ok(true);
        }
        let changed = self.background.settled != Some(mark);
        let split = self.background.passes.is_some_and(|passes| passes < self.care.done.passes);
        let fresh = (changed || split) && self.care.power == Power::Powered;
        if fresh {
            self.background.passes = changed.then_some(self.care.done.passes);
            self.background.gathering = Some(self.begin_gathering());
        }
        Ok(fresh)
    }
}

impl Volume {
    /// Background work: writes blocks that waited long enough and timed checkpoints, and does a step of cleaning
    /// while callers are idle. Returns when to call again.
    pub(crate) fn tick_all(&self) -> Result<Duration> {
        let every = Duration::from_secs(1);
        if self.options.read_only {
            return Ok(every);
        }
        let now = self.clock.monotonic();
        self.watch_host_room()?;
        self.write_when_due()?;
        let more_ahead = self.read_ahead();
        let more_to_fill = self.fill_in_background()?.or(more_ahead);
        // Time alone does not wake a sleeping disk.
        let asleep = self.archive.as_ref().and_then(|a| a.wakes.as_ref()).is_some_and(|w| !w.is_awake_for_readers());
        if asleep {
            return Ok(more_to_fill.unwrap_or(every));
        }
        let mut state = self.state.write();
        let commit = state.commit_at().map(|at| at.saturating_sub(now));
        let every = more_to_fill.unwrap_or(every).min(commit.unwrap_or(every));
        if state.ended || state.broken.is_some() {
            return Ok(every.max(SOON));
        }
        let due = state.pace.checkpoint_every.is_some_and(|t| now.saturating_sub(state.checkpointed) >= t);
        if due {
            state.checkpointed = now;
            if state.logged > 0 {
                state.checkpoint(false)?;
            }
        }
        let idle = now.saturating_sub(state.changed) >= IDLE;
        let cares = state.care.strategy() != Strategy::Threading || state.is_cleaning();
        if idle && cares && !state.background.paused && state.care_step()? {
            let references = self.references.lock();
            state.trim(self.options.inode_cache, |ino| references.contains_key(&ino));
            return Ok(SOON);
        }
        Ok(every)
    }

    /// Does all work at once that would be done on the charger while callers are idle: cleaning and
    /// defragmentation.
    ///
    /// # Errors
    /// Those of the device, and a damaged volume.
    pub fn tidy(&self) -> Result<crate::Done> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        let mut state = self.state.write();
        state.writable()?;
        let (before, power) = (state.care.done, state.care.power);
        state.care.power = Power::Powered;
        state.background.settled = None;
        let mut done = state.go_another_way();
        while matches!(done, Ok(())) {
            match state.care_step() {
                Ok(true) => {
                    let references = self.references.lock();
                    state.trim(self.options.inode_cache, |ino| references.contains_key(&ino));
                }
                Ok(false) => break,
                Err(e) => done = Err(e),
            }
        }
        state.care.power = power;
        done.and_then(|()| state.go_another_way())?;
        let (a, b) = (state.care.done, before);
        Ok(crate::Done {
            passes: a.passes - b.passes,
            segments: a.segments - b.segments,
            moved: a.moved - b.moved,
            files: a.files - b.files,
            gathered: a.gathered - b.gathered,
        })
    }

    /// Cleaning and defragmentation since the mount.
    pub fn done(&self) -> crate::Done {
        self.state.read().care.done
    }

    /// Changes a setting. The error completes the sentence "NAME ...".
    pub(crate) fn set(&self, name: &str, value: &str) -> std::result::Result<(), String> {
        check(name, value)?;
        let mut state = self.state.write();
        match name {
            "clean" => state.care.clean = Clean::parse(value)?,
            "power" => state.care.power = Power::parse(value)?,
            "dirty" => state.pace.dirty = number(value, 1, "a number of MiB")?.saturating_mul(256),
            "writeback_seconds" => {
                state.pace.writeback = Duration::from_secs(number(value, 1, "a number of seconds")?);
            }
            "checkpoint_seconds" => {
                let seconds = number(value, 0, "a number of seconds; 0: never")?;
                state.pace.checkpoint_every = (seconds > 0).then(|| Duration::from_secs(seconds));
            }
            "checkpoint_bytes" => {
                state.pace.checkpoint_blocks = number(value, 4096, "a number of bytes")? / 4096;
            }
            _ => return Err("is not a setting of ScherlFS".to_owned()),
        }
        Ok(())
    }

    /// Settings and counters.
    pub(crate) fn lines(&self) -> Vec<(String, String)> {
        let state = self.state.read();
        let done = state.care.done;
        let failed = state.broken.as_ref().map(|broken| broken.why.clone());
        let durable = vfs::state::State { failed, checkpoint: Some(state.sb.checkpoint), age_s: None };
        let mut lines = durable.lines();
        lines.extend([
            ("clean".to_owned(), state.care.clean.name().to_owned()),
            ("strategy".to_owned(), state.care.strategy().name().to_owned()),
            ("power".to_owned(), state.care.power.name().to_owned()),
        ]);
        let numbers = [
            ("dirty", state.pace.dirty / 256),
            ("commit_seconds", state.pace.commit.map_or(0, |commit| commit.after.as_secs())),
            ("writeback_seconds", state.pace.writeback.as_secs()),
            ("checkpoint_bytes", state.pace.checkpoint_blocks * 4096),
            ("checkpoint_seconds", state.pace.checkpoint_every.map_or(0, |t| t.as_secs())),
            ("free_blocks", state.free.count()),
            ("dead_blocks", state.dead.count()),
            ("free_runs", state.free.runs() as u64),
            ("free_in_long_runs", state.path.preferred()),
            ("promised_blocks", state.promised),
            ("waiting_blocks", state.need),
            ("transaction", state.seq.0),
            ("checkpoint", state.sb.checkpoint),
            ("logged_blocks", state.logged),
            ("inodes", state.imap.used),
            ("cleaning_passes", done.passes),
            ("cleared_segments", done.segments),
            ("moved_blocks", done.moved),
            ("gathered_files", done.files),
            ("gathered_blocks", done.gathered),
        ];
        lines.extend(numbers.map(|(name, value)| (name.to_owned(), value.to_string())));
        lines
    }
}
