//! How does the background clean one section after another?
//!
//! A batch cleans one victim, or continues while its pace allows ([`Pace`]) and no request arrives. It empties a
//! section in small steps ([`Settings::step_blocks`]), or in larger ones while no request arrives; other operations run
//! between the steps. The duration of each step and each checkpoint of a batch is recorded, because other operations
//! wait meanwhile (`waits`).
//!
//! Left out on purpose: when a section is due (`pacer`), cleaning because space is short (`pace`), which section to
//! clean (the `victim` crate).

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::RwLockWriteGuard;
use victim::{Hurry, Policy};

use super::ledger::{self, Account, Done};
use super::pacer::Situation;
use super::settings::{Pace, Settings, Urgency, Zoned};
use super::uses::Amounts;
use super::work::{Into, When, Work};
use crate::error::Result;
use crate::gc::Cleaning;
use crate::pack::{PackState, Reason};
use crate::segment::{Expected, Segments};

/// Limit of emptied sections that wait for a checkpoint within a batch, while without it moved blocks would fill holes.
const WAITING: u32 = 8;

impl Cleaning {
    /// Notes a request to the volume, which is therefore not idle.
    pub(crate) fn note_use(&self) {
        if !self.ctx.used.load(Ordering::Relaxed) {
            self.ctx.used.store(true, Ordering::Relaxed);
        }
    }

    /// Cleans a section in the background if one is due; returns how long to wait before the next call.
    pub(crate) fn clean_if_due(&self) -> Result<Duration> {
        let settings = *self.settings.lock();
        let now = self.ctx.clock.monotonic();
        let used = self.ctx.used.swap(false, Ordering::Relaxed);
        let situation = self.situation(now, used, settings.zoned);
        if used {
            self.cleaner.uses.lock().note();
        }
        let mut pacer = self.cleaner.pacer.lock();
        let turn = pacer.turn(situation);
        if !settings.on {
            return Ok(settings.intervals.max);
        }
        if !turn {
            return Ok(pacer.sleep(now));
        }
        drop(pacer);
        // Cleaning that does not wait for idle time runs during uses.
        if settings.urgency == Urgency::Normal && !used {
            self.cleaner.uses.lock().rest(self.amounts());
        }
        let found = self.clean_for_a_turn(&settings)?;
        let now = self.ctx.clock.monotonic();
        let mut pacer = self.cleaner.pacer.lock();
        pacer.cleaned(now, found);
        Ok(pacer.sleep(now))
    }

    fn situation(&self, now: Duration, used: bool, zoned: Option<Zoned>) -> Situation {
        let Some(z) = zoned else {
            return Situation { now, used, much_to_gain: self.much_to_gain(), enough_free: false };
        };
        let free = u64::from(self.logs.seg.lock().table.free_sections());
        let more_than = |percent: u32| free > u64::from(self.ctx.sb.sections()) * u64::from(percent) / 100;
        Situation { now, used, much_to_gain: !more_than(z.few_free), enough_free: more_than(z.enough_free) }
    }

    /// Blocks used since the mount.
    pub(super) fn amounts(&self) -> Amounts {
        let placed = self.logs.seg.lock().tally.placed();
        // Cleaning does not count as use.
        let takes = placed.saturating_sub(self.ctx.counters.moved_blocks());
        Amounts { takes, writes: takes + self.ctx.counters.in_place.load(Ordering::Relaxed) }
    }

    /// Cleans one batch; false if no section was worth cleaning.
    fn clean_for_a_turn(&self, settings: &Settings) -> Result<bool> {
        let free = || self.logs.seg.lock().free_soon();
        let enough = free().saturating_add(settings.pace.sections);
        // A batch must not delay the checkpoint of users' changes.
        let end = self.ctx.clock.monotonic() + self.ctx.options.checkpoint_after;
        let at_rest = !self.ctx.changed.load(Ordering::Acquire);
        let since = self.cleaner.ledger.lock().sections();
        let mut found = false;
        for _ in 0..settings.pace.sections.saturating_mul(Pace::VICTIMS).max(1) {
            if !self.files.host_allows_cleaning() || !self.clean_in_background(settings)? {
                break;
            }
            found = true;
            if free() >= enough || self.ctx.used.load(Ordering::Relaxed) || self.ctx.clock.monotonic() >= end {
                break;
            }
            if self.would_fill_holes() {
                // A checkpoint would write contents that may die young; the next timed one frees the sections, too.
                if self.logs.pressure.data.load(Ordering::Relaxed) > 0 {
                    break;
                }
                self.on_account(since, || self.holding_off(|| self.checkpoint(Reason::Running)).map(|()| true))?;
            }
        }
        if found && at_rest && settings.policy == Policy::Joule && !self.ctx.used.load(Ordering::Relaxed) {
            // Only cleaning needs a checkpoint: now, while the device is awake, and not at the next commit.
            self.on_account(since, || self.holding_off(|| self.checkpoint(Reason::Running)).map(|()| true))?;
        }
        Ok(found)
    }

    /// Runs background work during which changes wait, and records its duration.
    fn holding_off<T>(&self, work: impl FnOnce() -> T) -> T {
        let from = self.ctx.clock.monotonic();
        let out = work();
        self.ctx.counters.waits.count(self.ctx.clock.monotonic().saturating_sub(from));
        out
    }

    /// True if the next moved blocks would fill holes, and a checkpoint frees enough sections to be worth it.
    fn would_fill_holes(&self) -> bool {
        let seg = self.logs.seg.lock();
        seg.need_threading() && seg.table.prefree_segments() / self.ctx.sb.segs_per_sec >= WAITING
    }

    /// Cleans one section in steps, between which other operations run; false if no section is worth cleaning.
    pub(crate) fn clean_in_background(&self, settings: &Settings) -> Result<bool> {
        let since = self.cleaner.ledger.lock().sections();
        self.on_account(since, || self.empty_a_section(settings))
    }

    fn empty_a_section(&self, settings: &Settings) -> Result<bool> {
        self.ctx.check_writable()?;
        // The first change since the mount costs a checkpoint; under the policy that weighs whether cleaning pays, it
        // waits for a section worth cleaning.
        let untouched = settings.policy == Policy::Joule && self.ctx.untouched.load(Ordering::Acquire);
        if !untouched {
            self.holding_off(|| self.balance())?;
        }
        let begun = self.holding_off(|| {
            let mut alone = self.ctx.cp.write();
            let mut begun = self.cleaner.begun.lock();
            if begun.is_none() {
                *begun = self.next_work(&mut alone, settings);
            }
            begun.is_some()
        });
        if !begun {
            self.ctx.counters.nothing_to_clean.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        if untouched {
            // If space is short, this may itself empty the section.
            self.holding_off(|| self.balance())?;
        }
        loop {
            let mut alone = self.ctx.cp.write();
            // Between two steps the volume may have been unmounted, or have failed.
            self.ctx.check_writable()?;
            let from = self.ctx.clock.monotonic();
            // A writer that was short of space may have emptied the section meanwhile.
            let Some(work) = self.cleaner.begun.lock().take() else { break };
            self.ctx.changed.store(true, Ordering::Release);
            let most = match self.ctx.used.load(Ordering::Relaxed) {
                true => settings.step_blocks,
                false => settings.step_blocks.max(settings.pace.quiet_step),
            };
            let rest = self.clean_step(&mut alone, work, most.max(1))?;
            *self.cleaner.begun.lock() = rest;
            self.ctx.counters.held_off(self.ctx.clock.monotonic().saturating_sub(from));
            // Fair: a waiting operation gets the lock before the next step does.
            RwLockWriteGuard::unlock_fair(alone);
            if rest.is_none() {
                break;
            }
        }
        Ok(true)
    }

    /// What the volume did since the mount.
    pub(super) fn done(&self, seg: &Segments) -> Done {
        let requests = self.ctx.requests.snapshot().total();
        Done { requests, placing: seg.tally.placing(), saved: seg.saved() }
    }

    /// The account of cleaning.
    pub(crate) fn account(&self) -> Account {
        let seg = self.logs.seg.lock();
        self.cleaner.ledger.lock().account(seg.chooser.prices(), &self.done(&seg))
    }

    /// Does background work, and enters what it cost if it did anything, as ordered unless a section was begun on the
    /// account since it had `since` sections. Requests of others meanwhile count, too: the volume was idle when it began.
    fn on_account(&self, since: u64, work: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let from = self.ctx.requests.snapshot().total();
        let out = work();
        if matches!(out, Ok(false)) {
            return out;
        }
        let requests = self.ctx.requests.snapshot().total() - from;
        let seg = self.logs.seg.lock();
        let mut ledger = self.cleaner.ledger.lock();
        let ordered = ledger.sections() == since;
        ledger.enter(seg.chooser.prices(), requests, ordered);
        out
    }

    fn next_work(&self, alone: &mut PackState, settings: &Settings) -> Option<Work> {
        let hurry = match settings.urgency {
            Urgency::Normal => Hurry::Background,
            Urgency::High => Hurry::UrgentHigh,
            Urgency::Low | Urgency::Mid => Hurry::Urgent,
        };
        let now = self.ctx.mounted_seconds();
        let so_far = self.amounts();
        let Amounts { takes, writes } = self.cleaner.uses.lock().next(so_far);
        let asked =
            (u64::from(self.ctx.sb.sections()) * u64::from(settings.keep_free) / 100).min(u32::MAX.into()) as u32;
        let (victim, into) = {
            let mut seg = self.logs.seg.lock();
            let expected = Expected { takes, writes, asked, valid: self.nodes.space.valid_blocks() };
            let (victim, to) = seg.choose_victim(hurry, now, expected)?;
            if settings.policy == Policy::Joule && hurry == Hurry::Background && seg.free_soon() >= asked {
                let mut ledger = self.cleaner.ledger.lock();
                let prices = seg.chooser.prices();
                let alone = !self.ctx.changed.load(Ordering::Acquire);
                let checkpoint = if alone { ledger::checkpoint(prices) } else { 0 };
                let cost = ledger::estimate(prices, to.cost, self.ctx.sb.segs_per_sec);
                let lot = cost.saturating_mul(1 + u128::from(seg.sections_without_use()));
                if !ledger.allows(checkpoint + lot, &ledger.account(prices, &self.done(&seg))) {
                    return None;
                }
                ledger.begin(checkpoint + cost);
                drop(ledger);
                seg.begin_shadow();
            }
            (victim, if to.fills_holes && settings.urgency != Urgency::High { Into::SimilarAge } else { Into::ColdLog })
        };
        Some(self.begin_cleaning(alone, Work::new(self.ctx.sb.section_of(victim.seg), When::Background, into)))
    }

    /// Kernel `has_enough_invalid_blocks`: more than 40 % of the user blocks are invalid, and less than 40 % of the
    /// invalid blocks are in free segments beyond the reserve.
    fn much_to_gain(&self) -> bool {
        let user = self.nodes.space.user_blocks();
        let invalid = user.saturating_sub(self.nodes.space.valid_blocks());
        let free = {
            let seg = self.logs.seg.lock();
            u64::from(seg.table.free_segments().saturating_sub(self.ctx.overprov_segs)) * 512
        };
        invalid > user / 100 * 40 && free < invalid / 100 * 40
    }
}
