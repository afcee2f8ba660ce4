//! How are a recipe's steps carried out?

use device::BLOCK;
use device::clock::VirtualClock;
use vfs::Volume;

use super::AgeError;
use super::amount::Amount;
use super::files::{Done, Files, Wish};
use super::recipe::{Delete, Recipe, Rewrite, Sizes, Step, Write};

/// Progress of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Text of the step.
    pub what: String,
    /// Amount done.
    pub done: u64,
    /// Total amount, in the same unit.
    pub total: u64,
}

/// Ages one mounted volume.
pub struct Ager<'v> {
    pub(super) files: Files<'v>,
    device_bytes: u64,
    user_bytes: u64,
    own_time: bool,
    cleans: bool,
}

pub(super) type Report<'r> = &'r mut dyn FnMut(&Progress);

impl<'v> Ager<'v> {
    /// Ages `vol`, whose clock is `clock`; `seed` determines all random choices. Time passes at the recipe's rate.
    pub fn new(vol: &'v dyn Volume, clock: &'v VirtualClock, seed: u64) -> Self {
        let device_bytes = vol.device_blocks() * BLOCK as u64;
        let user_bytes = vol.statfs().map_or(0, |st| st.blocks * BLOCK as u64);
        Ager { files: Files::new(vol, clock, seed), device_bytes, user_bytes, own_time: true, cleans: false }
    }

    /// Time is that of the device under the volume.
    #[must_use]
    pub fn on_the_devices_time(mut self) -> Self {
        self.own_time = false;
        self
    }

    /// Allows the volume's background cleaning while aging, as configured.
    #[must_use]
    pub fn with_cleaning(mut self) -> Self {
        self.cleans = true;
        self
    }

    /// Carries out recipes one after the other. Without [`with_cleaning`](Self::with_cleaning), background cleaning is
    /// off meanwhile: recipes define the state, and experiments measure cleaning.
    pub fn all(&mut self, chain: &[Recipe], report: Report<'_>) -> Result<Done, AgeError> {
        let vol = self.files.vol;
        let cleaned = vol.cleans_ahead();
        vol.clean_ahead(cleaned && self.cleans);
        let out = chain.iter().try_for_each(|r| self.run_recipe(r, report));
        vol.clean_ahead(cleaned);
        out.map(|()| self.files.done)
    }

    /// Carries out one recipe without its predecessors.
    fn run_recipe(&mut self, recipe: &Recipe, report: Report<'_>) -> Result<(), AgeError> {
        let began = self.files.now();
        self.files.rate = self.own_time.then_some(recipe.rate.0);
        let scale = self.device_bytes as f64 / recipe.reference.0 as f64;
        for (n, step) in recipe.steps.iter().enumerate() {
            let mut steps = Steps {
                ager: self,
                scale,
                what: format!("{} {}/{}: {}", recipe.name, n + 1, recipe.steps.len(), step.describe()),
                report,
            };
            let out = match step {
                Step::Write(w) => steps.write(w),
                Step::Delete(d) => steps.delete(d),
                Step::Rewrite(r) => steps.rewrite(r),
                Step::Live(l) => steps.live(l),
            };
            out.map_err(|e| e.during(|| format!("recipe {}, step {}", recipe.name, n + 1)))?;
            self.files.sync()?;
        }
        self.files.done.took += self.files.now().saturating_sub(began);
        Ok(())
    }
}

impl AgeError {
    /// Adds when it happened.
    pub(super) fn during(self, when: impl FnOnce() -> String) -> Self {
        match self {
            AgeError::Fs { what, source } => AgeError::Fs { what: format!("{}: {what}", when()), source },
            other => other,
        }
    }
}

/// When a writing step ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// After this many files.
    Files(u64),
    /// After this many bytes.
    Written(u64),
    /// When this much or less is free.
    Free(u64),
}

/// The steps of one recipe on one volume.
pub(super) struct Steps<'s, 'v, 'r> {
    pub(super) ager: &'s mut Ager<'v>,
    /// Device size divided by the recipe's reference size.
    pub(super) scale: f64,
    what: String,
    report: Report<'r>,
}

impl Steps<'_, '_, '_> {
    /// The bytes of an amount on this volume.
    pub(super) fn bytes(&self, amount: Amount) -> u64 {
        match amount {
            Amount::Bytes(n) => (n as f64 * self.scale) as u64,
            Amount::Percent(p) => (self.ager.user_bytes as f64 * p / 100.0) as u64,
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.ager.user_bytes
    }

    pub(super) fn progress(&mut self, done: u64, total: u64) {
        (self.report)(&Progress { what: self.what.clone(), done: done.min(total), total });
    }

    fn write(&mut self, w: &Write) -> Result<(), AgeError> {
        let size_scale = if w.scale_size { self.scale } else { 1.0 };
        let count_scale = if w.scale_count { self.scale } else { 1.0 };
        let end = match (w.count, w.total, w.free) {
            (Some(n), ..) => End::Files((n as f64 * count_scale).round() as u64),
            (_, Some(a), _) => End::Written(self.bytes(a)),
            (.., free) => End::Free(free.map_or(0, |a| self.bytes(a))),
        };
        let begin = self.ager.files.free()?;
        let (mut made, mut written, mut others) = (0, 0, 0.0);
        loop {
            let (done, all) = match end {
                End::Files(n) => (made, n),
                End::Written(n) => (written, n),
                End::Free(target) => (begin.saturating_sub(self.ager.files.free()?), begin.saturating_sub(target)),
            };
            self.progress(done, all);
            if done >= all {
                return Ok(());
            }
            let Some(bytes) = self.make(end, &w.set, w.suffix.as_deref(), &w.size, size_scale, w)? else {
                return Ok(());
            };
            made += 1;
            written += bytes;
            // Fewer next to a smaller file, so that both keep the shares of the reference.
            others += w.then.as_ref().map_or(0.0, |o| o.count as f64 * size_scale);
            while others >= 1.0 {
                others -= 1.0;
                let Some(o) = &w.then else { break };
                match self.make(end, &o.set, o.suffix.as_deref(), &o.size, 1.0, w)? {
                    Some(bytes) => written += bytes,
                    None => return Ok(()),
                }
            }
        }
    }

    /// Creates a file, cut to fit if free space is the limit; `None` if none fits any more.
    fn make(
        &mut self,
        end: End,
        set: &str,
        suffix: Option<&str>,
        sizes: &Sizes,
        scale: f64,
        w: &Write,
    ) -> Result<Option<u64>, AgeError> {
        let mut bytes = self.ager.files.draw_size(sizes, scale);
        if let End::Free(target) = end {
            let room = self.ager.files.free()?.saturating_sub(target);
            match self.ager.files.vol.largest_file(room / BLOCK as u64) {
                Some(fits) => bytes = bytes.min(fits * BLOCK as u64),
                None => return Ok(None),
            }
        }
        self.ager.files.make(set, Wish { suffix, bytes, order: w.order, sync: w.sync })?;
        Ok(Some(bytes))
    }

    fn delete(&mut self, d: &Delete) -> Result<(), AgeError> {
        let target = d.free.map(|a| self.bytes(a));
        let files = &mut self.ager.files;
        let free = files.free()?;
        let Some(set) = files.set(&d.set).filter(|s| s.len() > 0) else { return Ok(()) };
        let mut numbers: Vec<u32> = set.files().map(|f| f.number).collect();
        let there = numbers.len() as f64;
        // Space of all of them, inodes included.
        let held: u64 = set.files().map(|f| f.bytes.div_ceil(BLOCK as u64) + 1).sum::<u64>() * BLOCK as u64;
        let interval = match (d.every, target) {
            (Some(n), _) => n as f64,
            (None, target) => {
                let missing = target.unwrap_or(0).saturating_sub(free);
                (held as f64 / missing.max(1) as f64).clamp(1.0, there)
            }
        };
        if d.random {
            files.rng.shuffle(&mut numbers);
        }
        let end = (there / interval) as u64;
        for n in 0..end {
            if n.is_multiple_of(64) {
                self.progress(n, end);
            }
            let files = &mut self.ager.files;
            if let Some(target) = target
                && files.free()? >= target
            {
                return Ok(());
            }
            // The last file of each interval.
            let at = ((n + 1) as f64 * interval) as usize - 1;
            files.delete(&d.set, numbers[at.min(numbers.len() - 1)])?;
        }
        Ok(())
    }

    fn rewrite(&mut self, r: &Rewrite) -> Result<(), AgeError> {
        let total = self.bytes(r.total);
        let mut done = 0;
        while done < total {
            self.progress(done, total);
            match self.ager.files.change(&r.set, r.piece.0, false, r.sync)? {
                0 => return Ok(()),
                n => done += n,
            }
        }
        Ok(())
    }
}
