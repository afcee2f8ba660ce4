//! Which runs are done? Every combination of the compared values, and the controls.
//!
//! Left out: the effect of a value of `--compare` ([`super::compared`]), and the selection of runs ([`super::points`]).

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use device::energy::profile::Profile;
use volume::{Kind, MountOptions};

use super::compared::{Compared, percent, recipe};
use super::error::Error;
use super::given::Given;
use super::settings::Settings;
use super::variant::{Picks, Variant};
use crate::NOBODY;

/// Maximum number of combinations.
const COMBINATIONS: usize = 16_384;

/// Seeds of a comparison whose volumes are drawn at random.
const SEEDS: NonZeroU32 = NonZeroU32::new(5).unwrap();

/// All of them, in the order given. If they differ in cleaning policy, the controls, which have no background cleaning,
/// come first: one for each combination of the other compared values. `there` is the file system of the image, if there
/// is one.
pub fn all(settings: &Settings, there: Option<Kind>) -> Result<Vec<Variant>, Error> {
    let compared: Vec<Compared<'_>> = settings.compare.iter().map(|c| Compared::parse(c)).collect::<Result<_, _>>()?;
    for (n, one) in compared.iter().enumerate() {
        let Compared { name, given, .. } = one;
        if compared[..n].iter().any(|c| c.name == *name) || one.is_given_besides(settings) {
            return Err(Error::Setting(format!("{given}: {name} is given twice; give each value once, here")));
        }
        if settings.image.is_some() && ["size", "age", "seed"].contains(name) {
            return Err(Error::Setting(format!("{given}: --image is an existing volume; leave out {name} or --image")));
        }
    }
    if settings.image.is_some() && (settings.size.is_some() || settings.age.is_some() || settings.seed.is_some()) {
        let why = "--image is an existing volume; leave out --size, --age and --seed, or --image";
        return Err(Error::Setting(why.into()));
    }
    let plain = plain(settings, &compared, there)?;
    let of_cleaning = compared.iter().find(|c| c.of_cleaning());
    if let Some(Compared { given, .. }) = of_cleaning
        && (!plain.mount.f2fs.gc.on || compared.iter().any(|c| c.name == "background_gc"))
    {
        return Err(Error::Setting(format!(
            "{given}: the control {NOBODY} is background_gc=off already; leave out background_gc"
        )));
    }
    let mut all = Vec::new();
    if of_cleaning.is_some() {
        let control = Variant { name: NOBODY.into(), ..plain.clone() };
        let beside: Vec<&Compared<'_>> = compared.iter().filter(|c| !c.of_cleaning()).collect();
        all = combined(control, &beside)?;
        for variant in &mut all {
            variant.set(nobody(variant.fs), NOBODY)?;
        }
    }
    let controls = all.len();
    all.extend(combined(plain, &compared.iter().collect::<Vec<_>>())?);
    // In reverse, because a control comes first, and its name does not show what was typed.
    for Variant { fs, mount, .. } in all.iter().rev() {
        if let Some(there) = there.filter(|there| there != fs) {
            let why = format!("--compare fs: the image is a {there} volume; leave out fs or --image");
            return Err(Error::Setting(why));
        }
        if let Some(option) = mount.foreign(*fs) {
            return Err(Error::Setting(format!("{option}: {fs} has no such option; see joulefs trace replay --help")));
        }
    }
    on_devices(&mut all)?;
    find_controls(&mut all, controls);
    let seeds = seeds(settings, &compared, &all)?;
    if all.len() * seeds.get() as usize > COMBINATIONS {
        let runs = all.len() * seeds.get() as usize;
        return Err(Error::Setting(format!("--seeds {seeds}: {runs} runs; at most {COMBINATIONS} are possible")));
    }
    Ok(repeated(all, seeds))
}

/// Number of seeds of each run.
fn seeds(settings: &Settings, compared: &[Compared<'_>], all: &[Variant]) -> Result<NonZeroU32, Error> {
    let Some(seeds) = settings.seeds else {
        let is_judged = !compared.is_empty() && compared.iter().all(|c| c.name != "seed");
        let is_random = settings.image.is_none() && all.iter().any(Variant::is_random);
        return Ok(if is_judged && is_random { SEEDS } else { NonZeroU32::MIN });
    };
    let refused = match () {
        () if compared.is_empty() => "this repeats the runs of a comparison; give --compare, or --compare seed=1,2,...",
        () if compared.iter().any(|c| c.name == "seed") => "--compare seed lists the seeds already; leave out one",
        () if settings.image.is_some() => {
            "--image is an existing volume, in which nothing is random; leave out --seeds"
        }
        () => return Ok(seeds),
    };
    Err(Error::Setting(format!("--seeds {seeds}: {refused}")))
}

/// These runs, and after them the same with the following seeds. The first ones keep their names.
fn repeated(mut all: Vec<Variant>, seeds: NonZeroU32) -> Vec<Variant> {
    let once = all.len();
    for more in 1..seeds.get() {
        let like = |n: usize| {
            let variant = &all[n];
            let control = variant.control.map(|c| c + more as usize * once);
            Variant { control, ..variant.with_seed(variant.seed.wrapping_add(more.into())) }
        };
        let repetition: Vec<Variant> = (0..once).map(like).collect();
        all.extend(repetition);
    }
    all
}

/// The common configuration of all runs.
fn plain(settings: &Settings, compared: &[Compared<'_>], there: Option<Kind>) -> Result<Variant, Error> {
    let named = |name: &str| name.split('=').next().unwrap_or_default().to_owned();
    let options: Vec<&String> = settings.options.iter().filter(|o| !o.is_empty()).collect();
    let asked: Vec<String> = options.iter().map(|o| named(o)).chain(compared.iter().map(|c| c.name.into())).collect();
    let of_compression = |name: &String| name.starts_with("compress_") || name.starts_with("nocompress_");
    let given = Given::parse(&settings.assume)?;
    if let Some(name) = &settings.age {
        recipe("--age", name)?;
    }
    let chosen = settings.profile().to_owned();
    let mut plain = Variant {
        name: String::new(),
        picks: Vec::new(),
        control: None,
        profile: Profile::find(&chosen)?,
        chosen,
        fs: there.unwrap_or(settings.fs.unwrap_or_default()),
        mount: MountOptions::default(),
        options: BTreeMap::new(),
        deltas: asked.iter().any(|name| name.starts_with("delta")),
        compressed: asked.iter().any(of_compression),
        flush_every: given.flush_every,
        given,
        size: settings.size.clone(),
        age: settings.age.clone(),
        repeats: false,
        seed: settings.seed.unwrap_or(1),
        fill: settings.fill.as_ref().map(|text| percent("--fill", text)).transpose()?,
        full: settings.full,
        queue: settings.queue,
    };
    options.iter().try_for_each(|option| plain.set(option, &format!("-o {option}")))?;
    Ok(plain)
}

/// The option that turns background cleaning off.
fn nobody(fs: Kind) -> &'static str {
    match fs {
        Kind::F2fs => "background_gc=off",
        Kind::ScherlFs => "clean=threading",
    }
}

/// Every combination of values, applied to a variant.
fn combined(plain: Variant, compared: &[&Compared<'_>]) -> Result<Vec<Variant>, Error> {
    let mut all = vec![plain];
    for one in compared {
        let runs = all.len() * one.values.len();
        if runs > COMBINATIONS {
            return Err(Error::Setting(format!("{}: {runs} runs; at most {COMBINATIONS} are possible", one.given)));
        }
        let mut more = Vec::with_capacity(runs);
        for before in &all {
            for value in &one.values {
                let mut variant = before.clone();
                one.apply(&mut variant, value)?;
                more.push(variant);
            }
        }
        all = more;
    }
    Ok(all)
}

/// Sets the profile of each variant, with its assumed numbers.
fn on_devices(all: &mut [Variant]) -> Result<(), Error> {
    let mut known: BTreeMap<String, Profile> = BTreeMap::new();
    for variant in all {
        if !known.contains_key(&variant.chosen) {
            known.insert(variant.chosen.clone(), Profile::find(&variant.chosen)?);
        }
        variant.profile = variant.given.applied(known[&variant.chosen].clone())?;
        variant.flush_every = variant.given.flush_every;
    }
    Ok(())
}

/// Sets the control of each run. If runs differ in cleaning policy, it is the one of the first `controls` runs that is
/// equal otherwise; then, if deltas are compared, the equal run without them.
fn find_controls(all: &mut [Variant], controls: usize) {
    // By whether the run is a control, and its values.
    let places: BTreeMap<(bool, Picks), usize> =
        all.iter().enumerate().map(|(n, v)| ((n < controls, v.picks.clone()), n)).collect();
    for (n, variant) in all.iter_mut().enumerate() {
        let mut like = variant.picks.clone();
        if n >= controls && controls > 0 {
            like.retain(|(name, _)| !Compared::is_of_cleaning(name));
            variant.control = places.get(&(true, like)).copied();
            continue;
        }
        let delta = like.iter_mut().find(|(name, value)| name == "delta" && value != "off");
        if let Some((_, value)) = delta {
            "off".clone_into(value);
            variant.control = places.get(&(n < controls, like)).copied();
        }
    }
}
