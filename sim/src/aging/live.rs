//! How do files of several kinds come, change and go, hour by hour?

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::AgeError;
use super::files::{Wish, normal};
use super::recipe::{Kind, Live, Order};
use super::run::Steps;

const HOUR: Duration = Duration::from_secs(3600);

/// Pending deletions: hour, kind, number; the earliest on top.
type Deaths = BinaryHeap<Reverse<(u64, usize, u32)>>;

/// What may happen in an hour.
#[derive(Debug, Clone, Copy)]
enum Event {
    New,
    Change,
}

/// Turns a fractional rate into whole events.
#[derive(Debug, Clone, Copy, Default)]
struct Due(f64);

impl Due {
    fn take(&mut self, rate: f64) -> u64 {
        self.0 += rate;
        let n = self.0.floor();
        self.0 -= n;
        n as u64
    }
}

impl Steps<'_, '_, '_> {
    pub(super) fn live(&mut self, live: &Live) -> Result<(), AgeError> {
        let full = self.bytes(live.fill);
        let mut due = vec![(Due::default(), Due::default()); live.kinds.len()];
        let mut deaths = Deaths::new();
        let hours = u64::from(live.days) * 24;
        for hour in 0..hours {
            self.progress(hour, hours);
            let mut events = Vec::new();
            for (k, kind) in live.kinds.iter().enumerate() {
                let (new, change) = &mut due[k];
                let times = |rate: f64| rate * self.scale / 24.0;
                events.extend((0..new.take(times(kind.per_day))).map(|_| (k, Event::New)));
                events.extend((0..change.take(times(kind.changes_per_day))).map(|_| (k, Event::Change)));
            }
            self.ager.files.rng.shuffle(&mut events);
            let pause = HOUR / (events.len() as u32 + 1);
            while let Some(&Reverse((when, k, number))) = deaths.peek() {
                if when > hour {
                    break;
                }
                deaths.pop();
                self.ager.files.delete(&live.kinds[k].set, number)?;
            }
            for (k, event) in events {
                self.event(&live.kinds[k], k, event, hour, full, live, &mut deaths)?;
                self.ager.files.wait(pause)?;
            }
            self.ager.files.wait(pause)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // they are the state of one hour
    fn event(
        &mut self,
        kind: &Kind,
        k: usize,
        event: Event,
        hour: u64,
        full: u64,
        live: &Live,
        deaths: &mut Deaths,
    ) -> Result<(), AgeError> {
        let least_free = self.capacity().saturating_sub(full);
        let files = &mut self.ager.files;
        let (need, wish) = match event {
            Event::Change => (kind.piece.0, None),
            Event::New => {
                let bytes = files.draw_size(&kind.size, 1.0);
                let order = Order::Sequential;
                (bytes, Some(Wish { suffix: kind.suffix.as_deref(), bytes, order, sync: kind.sync }))
            }
        };
        while files.free()? < least_free + need {
            let Some(Reverse((_, of, number))) = deaths.pop() else { return Ok(()) };
            files.delete(&live.kinds[of].set, number)?;
        }
        let Some(wish) = wish else {
            let append = files.rng.unit() < kind.appends;
            return files.change(&kind.set, kind.piece.0, append, kind.sync).map(drop);
        };
        let number = files.make(&kind.set, wish)?;
        if let Some(days) = kind.life_days {
            let hours = days * 24.0 * (kind.life_sigma * normal(&mut files.rng)).exp();
            deaths.push(Reverse((hour + 1 + hours.min(1e9) as u64, k, number)));
        }
        Ok(())
    }
}
