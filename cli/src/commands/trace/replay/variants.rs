//! Which runs are made: every combination of what is compared.

use device::energy::profile::Profile;
use f2fs::MountOptions;

use super::Args;
use crate::{Failure, volume_options};

/// One run.
pub struct Variant {
    /// What tells it from the others; empty if there are none.
    pub name: String,
    /// Its device.
    pub profile: Profile,
    /// How its volume is mounted.
    pub mount: MountOptions,
    /// Something of that was asked for.
    pub of_volume: bool,
}

/// At most so many runs.
const MOST: usize = 256;

fn setting(mount: &mut MountOptions, option: &str, given: &str) -> Result<(), Failure> {
    let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
    match volume_options::set(mount, name, value) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::usage(format!("{given}: no option {name:?}; see joulefs trace replay --help"))),
        Err(why) => Err(Failure::usage(format!("{given}: {why}"))),
    }
}

/// All of them, in the order in which they were asked for.
pub fn all(args: &Args) -> Result<Vec<Variant>, Failure> {
    let mut mount = MountOptions::default();
    for option in args.options.iter().filter(|o| !o.is_empty()) {
        setting(&mut mount, option, &format!("-o {option}"))?;
    }
    let mut names: Vec<&str> = Vec::new();
    let profile = Profile::find(args.profile.as_deref().unwrap_or("kirin9000-ufs31"))?;
    let of_volume = !args.options.is_empty();
    let mut all = vec![Variant { name: String::new(), profile, mount, of_volume }];
    for compare in &args.compare {
        let given = format!("--compare {compare}");
        let (name, values) =
            compare.split_once('=').ok_or_else(|| Failure::Usage(format!("{given}: write NAME=A,B,...")))?;
        let set = |option: &String| option.split('=').next() == Some(name);
        if names.contains(&name) || args.options.iter().any(set) || (name == "profile" && args.profile.is_some()) {
            return Err(Failure::Usage(format!("{given}: {name} is given twice; write every value once, here")));
        }
        names.push(name);
        let mut more = Vec::new();
        for before in &all {
            for value in values.split(',') {
                let label = if before.name.is_empty() { value.to_owned() } else { format!("{} {value}", before.name) };
                let mut variant = Variant {
                    name: label,
                    profile: before.profile.clone(),
                    mount: before.mount.clone(),
                    of_volume: before.of_volume || name != "profile",
                };
                if name == "profile" {
                    variant.profile = Profile::find(value).map_err(|e| Failure::from(e).named(&given))?;
                } else {
                    setting(&mut variant.mount, &format!("{name}={value}"), &given)?;
                }
                more.push(variant);
            }
        }
        if more.len() > MOST {
            return Err(Failure::usage(format!("{given}: that are {} runs; at most {MOST}", more.len())));
        }
        all = more;
    }
    Ok(all)
}
