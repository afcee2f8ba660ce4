//! `joulefs ctl`: how does a mounted volume clean, and with which settings? What happens to data it could not write?
//!
//! Settings and counters are extended attributes of the mount's directory (`fuse::control`). The core defines the
//! settings. Longer operations, and requests after the mount is gone, use the socket of the serving process
//! ([`rescue`]).

mod rescue;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use f2fs::gc::control::{KNOBS, check};
use rustix::fs::XattrFlags;
use serde_json::{Map, Value, json};

use crate::{Failure, meant, output};

/// Show and change the settings of a mount, and save changes that could not be written.
///
/// Without settings, or with `stat`, prints the volume's state, counters and settings. Only root and the user who
/// mounted the volume may change them. A change lasts until the volume is unmounted.
///
/// When a checkpoint fails (the host is full, the disk fails), the state is `failed`, the volume accepts no more
/// changes, and unwritten changes stay in memory. `retry` writes them after you have made room. `save OUT` copies them
/// into the directory OUT, which must be new or empty. After an unmount, both also accept the image in place of DIR,
/// as long as the mount process still holds the unwritten changes.
#[derive(clap::Args)]
#[command(after_help = after_help())]
pub struct Args {
    /// The mount point, or the image.
    dir: PathBuf,
    /// `stat`, `retry`, `save OUT`, or settings to change, as NAME=VALUE.
    #[arg(value_name = "stat|retry|save OUT|NAME=VALUE")]
    what: Vec<OsString>,
}

fn after_help() -> String {
    let mut text = "Example:\n  joulefs ctl /mnt gc=fagc gc_urgent=1\n  joulefs ctl /archive power=powered\n  \
                    joulefs ctl /mnt stat\n  joulefs ctl /mnt retry\n  joulefs ctl disk.img save rescued\n\nSettings of F2FS:\n"
        .to_owned();
    for (name, values, meaning) in KNOBS {
        text += &format!("  {name}={values}\n        {meaning}\n");
    }
    text += "\nSettings of ScherlFS:\n";
    for (name, values, meaning) in scherlfs::control::KNOBS {
        text += &format!("  {name}={values}\n        {meaning}\n");
    }
    text
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    match &args.what[..] {
        [word] if word == "retry" => return rescue::retry(&args.dir, as_json).map(|()| ExitCode::SUCCESS),
        [word, to] if word == "save" => return rescue::save(&args.dir, Path::new(to), as_json),
        [word, ..] if word == "save" => return Err(Failure::usage("save: name one directory to copy to")),
        [word, ..] if word == "retry" => return Err(Failure::usage("retry: takes no further arguments")),
        _ => {}
    }
    let what: Vec<String> = args.what.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let wanted: Vec<&String> = what.iter().filter(|w| *w != "stat").collect();
    let mut settings = Vec::new();
    for text in &wanted {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Failure::usage(format!("{text:?}: write NAME=VALUE, stat, retry or save OUT; see joulefs ctl --help"))
        })?;
        let of_scherlfs = scherlfs::control::KNOBS.iter().any(|(known, ..)| *known == name);
        if let (Err(f2fs), Err(scherlfs)) = (check(name, value), scherlfs::control::check(name, value)) {
            let why = if of_scherlfs { scherlfs } else { f2fs };
            return Err(Failure::usage(format!("{name} {why}{}", meant_by(name, value))));
        }
        settings.push((name, value));
    }
    // Fails if this is not a JouleFS mount, before any change.
    let before = match settings.is_empty() && !args.dir.is_dir() {
        true => rescue::report(&args.dir)?,
        false => report(&args.dir)?,
    };
    let check = if before.iter().any(|(name, _)| name == "strategy") { scherlfs::control::check } else { check };
    for (name, value) in &settings {
        check(name, value).map_err(|why| {
            let tip = meant_by(name, value);
            Failure::usage(format!("{}: {name} {why}{tip}", args.dir.display()))
        })?;
    }
    for (name, value) in &settings {
        let text = format!("{name}={value}");
        let name = fuse::control::SETTING;
        rustix::fs::setxattr(&args.dir, name, text.as_bytes(), XattrFlags::empty()).map_err(|e| {
            let dir = args.dir.display();
            match e {
                rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => {
                    format!("{dir}: {text}: only root and the user who mounted the volume may change settings")
                }
                _ => format!("{dir}: {text}: {e}"),
            }
        })?;
    }
    let now = if settings.is_empty() { before } else { report(&args.dir)? };
    let shown: Vec<_> = match wanted.len() == what.len() && !wanted.is_empty() {
        true => now.into_iter().filter(|(n, _)| settings.iter().any(|s| s.0 == n)).collect(),
        false => now,
    };
    if as_json {
        let map: Map<String, Value> = shown.into_iter().map(|(n, v)| (n, number_or_text(v))).collect();
        output::print(&json!(map));
    } else {
        for (name, value) in shown {
            output::line(&format!("{name:<26} {}", output::plain(&value)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Suggestions for an unknown setting, or for an invalid value of a setting.
fn meant_by(name: &str, value: &str) -> String {
    let all = || KNOBS.iter().chain(scherlfs::control::KNOBS);
    if !all().any(|knob| knob.0 == name) {
        return meant::tip(name, all().map(|knob| knob.0));
    }
    // A single word is a placeholder for a number.
    let words = all().filter(|knob| knob.0 == name && knob.1.contains('|')).flat_map(|knob| knob.1.split('|'));
    meant::tip(value, words)
}

fn number_or_text(value: String) -> Value {
    value.parse::<u64>().map_or(Value::String(value), Value::from)
}

/// What a mount reports: names and values.
pub fn report(dir: &Path) -> Result<Vec<(String, String)>, Failure> {
    let mut bytes = vec![0; 64 * 1024];
    let n = rustix::fs::getxattr(dir, fuse::control::REPORT, &mut bytes[..]).map_err(|e| match e {
        rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP => {
            format!("{}: this directory is not a JouleFS mount point", dir.display())
        }
        e => format!("{}: {e}", dir.display()),
    })?;
    let text = String::from_utf8_lossy(&bytes[..n]);
    Ok(text.lines().filter_map(|l| l.split_once(' ')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect())
}
