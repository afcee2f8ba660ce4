//! What does it cost to repeat the requests or calls of a recording, and what changes with other settings?
//!
//! This is the engine of `joulefs trace replay`. [`Settings`] are its options. [`Replay::open`] examines the recording,
//! [`Replay::points`] lists the runs, and [`Replay::run`] makes them.
//!
//! * [`settings`]: what is replayed, and how; [`sizes`]: sizes as text; [`error`]: why it failed; [`program`]: what the
//!   calling program provides.
//! * [`variants`]: all runs; [`variant`]: one of them; [`compared`]: what changes from run to run; [`given`]: numbers
//!   that the user assumes; [`assumed`]: runs that show their effect.
//! * [`points`]: the selected runs; [`keys`]: their identities.
//! * [`opening`]: recordings and parts of them; [`devices`]: the devices in them; [`notes`]: what is reported about
//!   them.
//! * [`blocks`], [`calls`], [`directory`]: replays of requests, of calls on a volume, of calls in a directory;
//!   [`at_once`]: several runs.
//! * [`pasts`]: aged volumes that runs share; [`cache`]: those of earlier commands.
//! * [`judged`]: what a comparison says, and how sure it is.
//! * [`outcome`]: results; [`policies`]: what a comparison of cleaning policies does not show; [`no_space`] and
//!   [`failed`]: what users do about a failure.

pub mod assumed;
mod at_once;
mod blocks;
mod cache;
mod calls;
mod compared;
pub mod devices;
mod directory;
mod error;
mod failed;
mod given;
pub mod judged;
mod keys;
mod no_space;
pub mod notes;
pub mod opening;
mod outcome;
mod pasts;
mod points;
pub mod policies;
mod program;
mod settings;
pub mod sizes;
mod variant;
mod variants;

use std::path::Path;

use device::BlockDevice;
use device::energy::Energy;
use trace::Kind;

use self::assumed::Tried;
pub use self::cache::Cache;
use self::compared::Compared;
pub use self::directory::InDirectory;
pub use self::error::Error;
pub use self::given::GIVEN;
use self::judged::Judged;
pub use self::keys::Known;
pub use self::outcome::{Done, OnDevice, Outcome};
use self::pasts::Pasts;
pub use self::points::{Point, Which};
pub use self::program::{Image, Job, Program, Progress, Total};
pub use self::settings::{OverTime, Settings};
pub use self::variant::{Picks, Variant};
use crate::traces::Speed;
use crate::traces::by_inode::{ByInode, How};
use crate::traces::past::Whose;

impl Settings {
    /// All runs, in the order given. If they differ in cleaning policy, the controls come first. `image` is the file
    /// system of the image, if there is one.
    ///
    /// # Errors
    /// A setting is wrong, or does not suit another.
    pub fn variants(&self, image: Option<volume::Kind>) -> Result<Vec<Variant>, Error> {
        variants::all(self, image)
    }
}

/// A recording, ready to be replayed with some settings.
pub struct Replay<'a> {
    settings: &'a Settings,
    program: &'a dyn Program,
    kind: Kind,
    /// The recording, if it is one of JouleFS's calls.
    ours: Option<ByInode>,
    image: Option<Image>,
}

/// The effect of assumed numbers.
pub struct Sensitivity {
    /// The varied numbers.
    pub tried: Vec<Tried>,
    /// Total energy of each run that they name.
    pub totals: Vec<Energy>,
}

impl<'a> Replay<'a> {
    /// Examines a recording.
    ///
    /// # Errors
    /// The recording cannot be read twice, is of a meter, has no calls, or does not suit the settings.
    pub fn open(settings: &'a Settings, program: &'a dyn Program) -> Result<Self, Error> {
        let path = &settings.recording;
        std::iter::once(path).chain(&settings.part.read.further).try_for_each(|file| opening::again(file))?;
        let kind = opening::open_part(path, &settings.part)?.opened.kind();
        for typed in &settings.compare {
            let compared = Compared::parse(typed)?;
            if let Some(why) = compared.out_of_place(kind) {
                let (file, given) = (path.display(), &compared.given);
                return Err(Error::Setting(format!("{file}: a recording of {kind}: {given}: {why}")));
            }
        }
        if let Some(option) = settings.misplaced(kind) {
            return Err(Error::Misplaced { recording: path.clone(), kind, option });
        }
        if kind == Kind::Power {
            return Err(Error::of_kind(path, "a meter", "requests to a block device, or of calls"));
        }
        let how = How { span: settings.part.span, thinks: settings.closed_loop, own_background: settings.hurry };
        let ours = if kind == Kind::Calls { ByInode::open(path, how)? } else { None };
        if let Some(ours) = ours.as_ref().filter(|ours| !ours.has_calls()) {
            return Err(Error::Failed(settings.no_call(&ours.timing())));
        }
        Ok(Replay { settings, program, kind, ours, image: None })
    }

    /// The kind of the recording.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Replays the calls in an empty directory of the host, in real time. Settings of devices and volumes do not count.
    ///
    /// # Errors
    /// The recording has no paths, the directory is not empty, or its file system fails.
    pub fn in_directory(&self, dir: &Path) -> Result<InDirectory, Error> {
        if self.ours.is_some() {
            let file = self.settings.recording.display();
            let why = "a JouleFS recording has inodes instead of paths, so it cannot be replayed in a directory: leave \
                out --into, or record the program with strace (strace -f -ttt -T -y)";
            return Err(Error::Setting(format!("{file}: {why}")));
        }
        directory::into(self.settings, dir, self.program)
    }

    /// The selected runs, with their keys if `keys`.
    ///
    /// # Errors
    /// A setting is wrong; the image cannot be opened; a file that a key depends on cannot be read.
    pub fn points(&mut self, which: &Which, keys: bool) -> Result<Vec<Point>, Error> {
        let settings = self.settings;
        self.image = settings.image.as_deref().map(|path| self.program.image(path)).transpose()?;
        let fs = self.image.as_ref().map(|i| kind_of(&*i.device, &i.path, settings.fs)).transpose()?;
        let all = settings.variants(fs)?;
        if self.kind == Kind::Calls && all.iter().any(|v| v.flush_every.is_some()) {
            let why = "--assume flush is for recordings of a block device; calls include every fsync";
            return Err(Error::Setting(why.into()));
        }
        let known = match keys || matches!(which, Which::Keys(_)) {
            true => {
                let (ours, build) = (self.ours.is_some(), self.program.build());
                let known = keys::known(settings, self.kind, ours, self.image.as_ref(), build, &all)?;
                known.into_iter().map(Some).collect()
            }
            false => vec![None; all.len()],
        };
        which.select(all, known)
    }

    /// Makes these runs, and returns their results in the same order.
    ///
    /// # Errors
    /// There are too many runs; the recording has no calls; or a run failed.
    pub fn run(&self, points: &[Point]) -> Result<Vec<Outcome>, Error> {
        at_once::check(points)?;
        let outcomes = self.outcomes(points, self.program.cache())?;
        match outcomes.iter().find_map(|outcome| outcome.made_no_call(self.settings)) {
            Some(empty) => Err(Error::Failed(empty)),
            None => Ok(outcomes),
        }
    }

    /// What the results say about each configuration, in the order of its first run.
    pub fn judged(&self, points: &[Point], outcomes: &[Outcome]) -> Vec<Judged> {
        let is_open = self.settings.speed == Speed::Virtual
            && match self.kind {
                Kind::Blocks => true,
                _ if self.settings.closed_loop => false,
                _ => self.settings.on_time || self.ours.is_some(),
            };
        judged::all(points, outcomes, is_open)
    }

    /// Makes a run again with half and with twice each assumed number.
    ///
    /// # Errors
    /// A run failed.
    pub fn sensitivity(&self, point: &Point) -> Result<Sensitivity, Error> {
        let (tried, runs) = assumed::runs(&point.variant);
        let runs: Vec<Point> = runs.into_iter().map(|variant| Point { number: 0, variant, known: None }).collect();
        // Not cached: these runs are many, and seldom wanted again.
        let totals = self.outcomes(&runs, None)?.iter().map(Outcome::total).collect();
        Ok(Sensitivity { tried, totals })
    }

    /// Assumed numbers of the profiles that could turn the sign of a difference: with half or twice the number, the run
    /// of a configuration and that of its control compare the other way round. Both runs have the same seed.
    ///
    /// # Errors
    /// A run failed.
    pub fn turning(&self, of: (&Point, Energy), control: (&Point, Energy)) -> Result<Vec<String>, Error> {
        let tried = [self.sensitivity(of.0)?, self.sensitivity(control.0)?];
        Ok(assumed::turning(&tried[0], of.1, &tried[1], control.1))
    }

    /// The pasts that these runs share.
    fn pasts(&self, points: &[Point], cache: Option<Cache>) -> Result<Pasts, Error> {
        let settings = self.settings;
        let ours = self.ours.is_some();
        let mut variants = Vec::with_capacity(points.len());
        for Point { variant, .. } in points {
            let options = calls::options(settings, variant, ours, None)?;
            let mount = || options.mount_in_the_past(!settings.after.is_empty(), Whose::Any);
            variants.push((variant.is_random() && options.has_past(ours)).then(|| (variant, mount())));
        }
        if self.image.is_some() || variants.iter().all(Option::is_none) || (cache.is_none() && points.len() == 1) {
            return Ok(Pasts::default());
        }
        Ok(Pasts::new(keys::of_pasts(settings, ours, self.program.build(), &variants)?, cache))
    }

    fn outcomes(&self, points: &[Point], cache: Option<Cache>) -> Result<Vec<Outcome>, Error> {
        match self.kind {
            Kind::Blocks => blocks::on_device(self.settings, points, self.program),
            _ => {
                let pasts = self.pasts(points, cache)?;
                let (ours, image) = (self.ours.as_ref(), self.image.as_ref());
                calls::on_volume(self.settings, ours, image, points, &pasts, self.program)
            }
        }
    }
}

/// The file system of an image; it must be `wanted`, if that is given.
///
/// # Errors
/// It is another one.
pub fn kind_of(image: &dyn BlockDevice, path: &Path, wanted: Option<volume::Kind>) -> Result<volume::Kind, Error> {
    let there = volume::probe(image).unwrap_or_default();
    match wanted.filter(|wanted| *wanted != there) {
        Some(wanted) => {
            let (path, wanted) = (path.display(), wanted.type_name());
            Err(Error::Setting(format!("--fs {wanted}: {path} is a {there} volume; leave out --fs")))
        }
        None => Ok(there),
    }
}
