//! What does the user of a phone do on a day, and when?
//!
//! Left out: the volume's own work in between, and measuring ([`super`]).

use std::collections::VecDeque;
use std::time::Duration;

use device::clock::Clock;
use vfs::{Caller, FileSystem, RenameFlags};

use super::super::app_noted::Times;
use super::super::cleaned;
use super::{Large, Parameters, Use};
use crate::apps::play::{Made, Player};
use crate::error::LabError;
use sim::bench::{Bench, Recorder};

/// What happens at a moment of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Photo(u64),
    Video(u64),
    Update(u64),
}

/// An application being used.
pub(super) struct User<'s> {
    pub(super) player: Player<'s>,
    /// When its next call is due.
    due: Duration,
    /// Whether that begins a session.
    begins: bool,
    /// Time left of this session.
    left: Duration,
    /// Later sessions.
    starts: VecDeque<Duration>,
    minutes: u64,
    package: u64,
}

impl<'s> User<'s> {
    pub(super) fn new(player: Player<'s>, of: &Use, package: u64, p: &Parameters) -> Self {
        // Not all applications at once.
        let on = |day: u64| {
            let morning = (p.day() + p.night()) * day as u32;
            moments(p.day(), of.sessions, 0.1 * package as f64).map(move |at| morning + at)
        };
        let mut starts: VecDeque<_> = (0..p.days).flat_map(on).collect();
        let due = starts.pop_front().unwrap_or_default();
        User { player, due, begins: true, left: Duration::ZERO, starts, minutes: of.minutes, package }
    }

    fn begin(&mut self) {
        (self.begins, self.left) = (false, Duration::from_secs(60 * self.minutes));
    }

    /// Pauses. At the end of a session, until the next one; the last one lasts until the script ends.
    fn pause(&mut self, now: Duration, time: Duration) {
        self.left = self.left.saturating_sub(time);
        self.due = now + time;
        if self.left.is_zero()
            && let Some(start) = self.starts.pop_front()
        {
            (self.due, self.begins) = (self.due.max(start), true);
        }
    }
}

/// Moments at even distances in the day, from `offset` of a distance on.
fn moments(day: Duration, times: u64, offset: f64) -> impl Iterator<Item = Duration> {
    (0..times).map(move |n| day.mul_f64((n as f64 + offset) / times as f64))
}

pub(super) fn photo(n: u64) -> String {
    format!("photo-{n:04}")
}
pub(super) fn video(n: u64) -> String {
    format!("video-{n:04}")
}
pub(super) fn package(n: u64) -> String {
    format!("package-{n:02}")
}

/// Requests of a reader, like the kernel's read-ahead.
const AHEAD: usize = 128 << 10;

/// A phone's day on a volume.
pub(super) struct Day<'a> {
    bench: &'a Bench,
    p: &'a Parameters,
    seed: u64,
    /// The first morning.
    began: Duration,
    pub(super) times: Times,
    /// How late each call began, in ns.
    pub(super) late: Vec<u64>,
}

impl<'a> Day<'a> {
    pub(super) fn new(bench: &'a Bench, p: &'a Parameters, seed: u64, began: Duration) -> Self {
        Day { bench, p, seed, began, times: Times::default(), late: Vec::new() }
    }

    pub(super) fn write(&self, name: &str, kib: u64) -> Result<u64, LabError> {
        let fs = self.bench.f2fs()?;
        let ino = self.bench.file(name)?;
        self.bench.write_whole(ino, kib << 10, self.seed ^ ino.0)?;
        fs.forget(ino, 1);
        Ok(kib << 10)
    }

    fn remove(&self, name: &str) -> Result<(), LabError> {
        let fs = self.bench.f2fs()?;
        Ok(fs.unlink(fs.root(), name.as_bytes())?)
    }

    /// Reads the begin of an application's package.
    fn launch(&mut self, package: &str) -> Result<u64, LabError> {
        let (fs, clock) = (self.bench.f2fs()?, self.bench.clock());
        let ino = fs.lookup(fs.root(), package.as_bytes())?.attr.ino;
        let mut piece = vec![0; AHEAD];
        let (end, mut at) = (self.p.launch_kib << 10, 0);
        while at < end {
            let began = clock.monotonic();
            let n = fs.read(ino, at, &mut piece)?;
            self.times.reads.push((clock.monotonic() - began).as_nanos() as u64);
            if n == 0 {
                break;
            }
            at += n as u64;
        }
        fs.forget(ino, 1);
        Ok(at)
    }

    fn large(&self, deed: Deed) -> Result<u64, LabError> {
        match deed {
            Deed::Photo(n) => {
                self.remove(&photo(n))?;
                self.write(&photo(n + self.p.photos.times), self.p.photos.kib)
            }
            Deed::Video(n) => {
                self.remove(&video(n))?;
                self.write(&video(n + self.p.videos.times), self.p.videos.kib)
            }
            Deed::Update(n) => {
                let bytes = self.write("package-new", self.p.updates.kib)?;
                let fs = self.bench.f2fs()?;
                let (root, name) = (fs.root(), package(n % self.p.apps.len() as u64));
                let to = (root, name.as_bytes());
                fs.rename(Caller::default(), (root, b"package-new"), to, RenameFlags::empty())?;
                Ok(bytes)
            }
        }
    }

    /// Everything that the user does on a day until the evening; returns the bytes read and written.
    pub(super) fn pass(
        &mut self,
        nth: u64,
        users: &mut [User<'_>],
        recorder: &mut Recorder<'_>,
    ) -> Result<u64, LabError> {
        let (p, clock) = (self.p, self.bench.clock().clone());
        let volume = self.bench.f2fs()?.clone();
        let began = self.began;
        let morning = (p.day() + p.night()) * nth as u32;
        let evening = morning + p.day();
        let of = |large: Large, offset, deed: fn(u64) -> Deed| {
            let at = moments(p.day(), large.times, offset).map(move |at| morning + at);
            at.zip((nth * large.times..).map(deed))
        };
        let mut deeds: Vec<(Duration, Deed)> = of(p.photos, 0.4, Deed::Photo)
            .chain(of(p.videos, 0.6, Deed::Video))
            .chain(of(p.updates, 0.8, Deed::Update))
            .collect();
        deeds.sort_unstable();
        let mut deeds = VecDeque::from(deeds);
        let mut bytes = 0;
        loop {
            let user = users.iter_mut().filter(|u| u.player.left() > 0 && u.due < evening).min_by_key(|u| u.due);
            let due = user.as_ref().map(|u| u.due);
            let large = deeds.front().copied().filter(|(at, _)| due.is_none_or(|due| *at <= due));
            let Some(due) = large.map(|(at, _)| at).or(due) else { break };
            cleaned::pass_time(self.bench, recorder, (began + due).saturating_sub(clock.monotonic()))?;
            let now = || clock.monotonic() - began;
            self.late.push((now().saturating_sub(due)).as_nanos() as u64);
            if let Some((_, deed)) = large {
                deeds.pop_front();
                bytes += self.large(deed)?;
                recorder.step()?;
                continue;
            }
            let Some(user) = user else { break };
            if user.begins {
                user.begin();
                bytes += self.launch(&package(user.package))?;
            }
            while user.player.left() > 0 {
                bytes += user.player.bytes();
                let made = self.times.step(&mut user.player, &volume, &clock)?;
                recorder.step()?;
                if let Made::Wait(time) = made {
                    user.pause(now(), time);
                    break;
                }
            }
        }
        cleaned::pass_time(self.bench, recorder, (began + evening).saturating_sub(clock.monotonic()))?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::App;

    #[test]
    fn moments_are_even_and_lie_in_the_day() {
        let day = Duration::from_secs(100);
        let at = |times, offset| moments(day, times, offset).map(|at| at.as_secs()).collect::<Vec<_>>();
        assert_eq!(at(4, 0.0), [0, 25, 50, 75]);
        assert_eq!(at(4, 0.4), [10, 35, 60, 85]);
        assert!(at(0, 0.4).is_empty());
    }

    #[test]
    fn a_session_ends_after_its_minutes_and_the_next_one_begins_when_it_is_due_or_when_the_last_one_ended() {
        let script = App::find("WC").unwrap().script(9, 1, None).unwrap();
        let p: Parameters = toml::from_str(
            "apps = []\nphotos = { times = 0, kib = 0 }\nvideos = { times = 0, kib = 0 }\nupdates = { times = 0, kib = 0 }\n\
             day_hours = 1\nnight_hours = 1\ndays = 2\nlaunch_kib = 0\nkeeping = 'in-place'\ncleaning = 'none'\n\
             age_threshold = 0\nmemory_mib = 1\nfill_percent = 1\nbattery_wh = 1.0\nstorage_gib = 1",
        )
        .unwrap();
        let of = Use { app: "WC".into(), sessions: 2, minutes: 3 };
        let mut user = User::new(Player::among_others(&script, ""), &of, 0, &p);
        let minutes = |n: u64| Duration::from_secs(60 * n);
        assert!(user.begins && user.due == minutes(0));
        user.begin();
        user.pause(minutes(1), minutes(2));
        assert!(!user.begins && user.due == minutes(3), "one of three minutes is left");
        user.pause(minutes(3), minutes(1));
        assert!(user.begins && user.due == minutes(30), "the second session");
        user.begin();
        user.pause(minutes(130), minutes(3));
        assert!(user.begins && user.due == minutes(133), "the second day began long ago: at once");
        user.begin();
        user.pause(minutes(133), minutes(3));
        assert!(user.begins && user.due == minutes(150));
        user.begin();
        user.pause(minutes(150), minutes(3));
        assert!(!user.begins && user.due == minutes(153), "no later session: this one lasts until the script ends");
    }
}
