//! Which runs are made? Every combination of what is compared, and the controls of a comparison of cleaning.

use device::energy::Nanos;
use device::energy::profile::Profile;
use lab::control::NOBODY;
use volume::{Kind, MountOptions, OptionError};

use super::Args;
use super::given::Given;
use crate::Failure;
use crate::commands::mount::options::{meant_by, meant_by_name};

/// One run.
#[derive(Clone)]
pub struct Variant {
    /// What tells it from the others; empty if there are none.
    pub name: String,
    /// Its device.
    pub profile: Profile,
    /// The file system of its volume.
    pub fs: Kind,
    /// How its volume is mounted.
    pub mount: MountOptions,
    /// An option of its mount was asked for.
    pub of_volume: bool,
    /// Its volume may hold deltas, whether they are made or not.
    pub deltas: bool,
    /// Its volume may hold compressed files, whether some are made or not.
    pub compressed: bool,
    /// Flushes that the recording does not tell of come so long after the first write behind the last one.
    pub flush_every: Option<Nanos>,
}

/// At most so many runs.
const MOST: usize = 256;

fn setting(mount: &mut MountOptions, option: &str, given: &str) -> Result<(), Failure> {
    let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
    mount.set(name, value).map_err(|e| match e {
        OptionError::Unknown(_) => {
            let tip = meant_by_name(name);
            Failure::usage(format!("{given}: no option {name:?}{tip}; see joulefs trace replay --help"))
        }
        OptionError::Value(why) => Failure::usage(format!("{given}: {why}{}", meant_by(name, value))),
    })
}

/// What is compared: a name, and its values in the order in which they were asked for.
struct Compared<'a> {
    name: &'a str,
    values: Vec<&'a str>,
    /// As it was typed.
    given: String,
}

impl<'a> Compared<'a> {
    fn parse(typed: &'a str) -> Result<Self, Failure> {
        let given = format!("--compare {typed}");
        let (name, values) =
            typed.split_once('=').ok_or_else(|| Failure::Usage(format!("{given}: write NAME=A,B,...")))?;
        let mut values: Vec<&str> = values.split(',').collect();
        if matches!(name, "gc" | "clean") {
            // It comes first wherever it was asked for.
            values.retain(|value| *value != NOBODY);
        }
        if name == "delta" {
            // The control of deltas is the same volume without them.
            values.retain(|value| *value != "off");
            values.insert(0, "off");
        }
        Ok(Compared { name, values, given })
    }

    /// True if its values differ in who cleans.
    fn of_cleaning(&self) -> bool {
        matches!(self.name, "gc" | "power" | "clean")
    }
}

/// All of them, in the order in which they were asked for. Where they differ in who cleans, the controls come first, in
/// which nobody does in the background: one for each combination of what else is compared. `there` is the file system of the
/// image, if there is one.
pub fn all(args: &Args, there: Option<Kind>) -> Result<Vec<Variant>, Failure> {
    let mut mount = MountOptions::default();
    for option in args.options.iter().filter(|o| !o.is_empty()) {
        setting(&mut mount, option, &format!("-o {option}"))?;
    }
    let given = Given::parse(&args.assume)?;
    let profile = given.applied(Profile::find(args.profile.as_deref().unwrap_or("kirin9000-ufs31"))?)?;
    let compared: Vec<Compared<'_>> = args.compare.iter().map(|c| Compared::parse(c)).collect::<Result<_, _>>()?;
    for (n, Compared { name, given, .. }) in compared.iter().enumerate() {
        let set = |option: &String| option.split('=').next() == Some(*name);
        if compared[..n].iter().any(|c| c.name == *name)
            || args.options.iter().any(set)
            || (*name == "profile" && args.profile.is_some())
            || (*name == "fs" && args.fs.is_some())
        {
            return Err(Failure::Usage(format!("{given}: {name} is given twice; write every value once, here")));
        }
    }
    let of_cleaning = compared.iter().find(|c| c.of_cleaning());
    if let Some(Compared { given, .. }) = of_cleaning
        && (!mount.f2fs.gc.on || compared.iter().any(|c| c.name == "background_gc"))
    {
        return Err(Failure::Usage(format!(
            "{given}: it has the control {NOBODY}, which is background_gc=off; leave out background_gc"
        )));
    }
    let of_deltas = |option: &String| option.split('=').next() == Some("delta");
    let deltas = args.options.iter().any(of_deltas) || compared.iter().any(|c| c.name == "delta");
    let of_compression = |option: &str| option.starts_with("compress_") || option.starts_with("nocompress_");
    let compressed = args.options.iter().any(|o| of_compression(o)) || compared.iter().any(|c| of_compression(c.name));
    let of_volume = !args.options.is_empty();
    let flush_every = given.flush_every;
    let fs = there.unwrap_or(args.fs.unwrap_or_default().into());
    let plain = Variant { name: String::new(), profile, fs, mount, of_volume, deltas, compressed, flush_every };
    let mut all = Vec::new();
    if of_cleaning.is_some() {
        let control = Variant { name: NOBODY.into(), of_volume: true, ..plain.clone() };
        let beside: Vec<&Compared<'_>> = compared.iter().filter(|c| !c.of_cleaning()).collect();
        all = combined(control, &beside, &given)?;
        for Variant { fs, mount, .. } in &mut all {
            setting(mount, nobody(*fs), NOBODY)?;
        }
    }
    all.extend(combined(plain, &compared.iter().collect::<Vec<_>>(), &given)?);
    // A control comes first, and says nothing of what was typed.
    for Variant { fs, mount, .. } in all.iter().rev() {
        if let Some(there) = there.filter(|there| there != fs) {
            let why = format!("--compare fs: the image is a volume of {there}; leave out fs, or the image");
            return Err(Failure::Usage(why));
        }
        if let Some(option) = mount.foreign(*fs) {
            return Err(Failure::Usage(format!("{option}: {fs} has no such option; see joulefs trace replay --help")));
        }
    }
    Ok(all)
}

/// The option by which nobody makes room ahead of time.
fn nobody(fs: Kind) -> &'static str {
    match fs {
        Kind::F2fs => "background_gc=off",
        Kind::ScherlFs => "clean=threading",
    }
}

/// A variant with every combination of values.
fn combined(plain: Variant, compared: &[&Compared<'_>], assumed: &Given) -> Result<Vec<Variant>, Failure> {
    let mut all = vec![plain];
    for Compared { name, values, given } in compared {
        let runs = all.len() * values.len();
        if runs > MOST {
            return Err(Failure::Usage(format!("{given}: that are {runs} runs; at most {MOST}")));
        }
        let mut more = Vec::new();
        for before in &all {
            for value in values {
                let mut variant = before.clone();
                let value_name = if *name == "delta" { format!("delta={value}") } else { (*value).to_owned() };
                variant.name =
                    if before.name.is_empty() { value_name } else { format!("{} {value_name}", before.name) };
                if *name == "profile" {
                    let profile = Profile::find(value).map_err(|e| Failure::from(e).named(given))?;
                    variant.profile = assumed.applied(profile)?;
                } else if *name == "fs" {
                    variant.of_volume = true;
                    variant.fs = value.parse().map_err(|why| Failure::Usage(format!("{given}: {why}")))?;
                } else {
                    variant.of_volume = true;
                    setting(&mut variant.mount, &format!("{name}={value}"), given)?;
                }
                more.push(variant);
            }
        }
        all = more;
    }
    Ok(all)
}
