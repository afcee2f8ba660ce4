//! Which options of `-o` would have no effect on this mount?
//!
//! Options that need a feature of the volume are checked by the file system. This module checks the others: those that
//! need companion files or other options.

use device::energy::profile::{DeviceSpec, Profile};
use f2fs::streams::Streams;
use f2fs::{FsyncMode, Holes, Mode};
use format::superblock::Features;
use victim::Policy;
use volume::{MountOptions, Mounted};

use crate::Failure;

/// Refuses options that cannot have an effect.
pub fn refuse(core: &MountOptions, profile: Option<&Profile>) -> Result<(), Failure> {
    let has_handles = profile.is_some_and(|profile| match &profile.device {
        DeviceSpec::Flash(flash) => flash.nand.handles.as_ref().is_some_and(|handles| handles.value > 1),
        DeviceSpec::Disk(_) => false,
    });
    if core.f2fs.streams != Streams::One && !has_handles {
        let why =
            "only a simulated device with placement handles separates writes (--profile PROFILE with nand.handles)";
        return Err(Failure::usage(format!("-o streams has no effect: {why}; leave it out")));
    }
    let wants_deltas = |(given, _): &&(String, Features)| given == "delta" || given.starts_with("delta=");
    if let Some((given, _)) = core.f2fs.needs.iter().find(wants_deltas)
        && core.f2fs.fsync_mode == FsyncMode::NoBarrier
    {
        let why = "without flushes deltas cost more joules than they save";
        return Err(Failure::usage(format!(
            "-o {given} has no effect with fsync_mode=nobarrier: {why}; leave one out"
        )));
    }
    if core.f2fs.prices.copy_inside == 0 && (core.f2fs.wear > 0 || core.f2fs.discard_holes == Holes::Worth) {
        let why = "the device of this profile overwrites in place";
        return Err(Failure::usage(format!("-o wear and discard_unit=price have no effect: {why}; leave them out")));
    }
    if core.f2fs.discard_holes != Holes::Kept && !core.f2fs.discard {
        let why = "nothing is discarded on this mount";
        return Err(Failure::usage(format!("-o discard_unit has no effect: {why}; leave it or discard=off out")));
    }
    if core.f2fs.prealloc.is_some() && core.f2fs.mode == Mode::Lfs {
        let why = "mode=lfs reserves no blocks";
        return Err(Failure::usage(format!("-o prealloc has no effect: {why}; leave one of them out")));
    }
    Ok(())
}

/// Options that affect only writing.
const OF_WRITING: [&str; 38] = [
    "background_gc",
    "checkpoint_bytes",
    "checkpoint_seconds",
    "clean",
    "commit",
    "commit_idle",
    "compress_algorithm",
    "compress_chksum",
    "compress_extension",
    "compress_log_size",
    "compress_mode",
    "delta",
    "delta_layout",
    "delta_reads",
    "delta_return",
    "dirty",
    "discard",
    "discard_unit",
    "fsync_mode",
    "gc",
    "in_place",
    "inline",
    "mode",
    "nocompress_extension",
    "nodiscard",
    "placement",
    "power",
    "prealloc",
    "profile",
    "relatime",
    "retry",
    "sleep",
    "stage",
    "streams",
    "sync",
    "wear",
    "writeback",
    "writeback_seconds",
];

/// Warnings about options that have no effect here, or not yet.
pub fn notes(mounted: &Mounted, given: &[String], read_only: bool) -> Vec<String> {
    if read_only {
        let name = |option: &&String| option.split('=').next().is_some_and(|name| OF_WRITING.contains(&name));
        let idle: Vec<&str> = given.iter().filter(name).map(String::as_str).collect();
        return match idle.is_empty() {
            true => Vec::new(),
            false => vec![format!("{} has no effect on a read-only mount", idle.join(","))],
        };
    }
    let Some(volume) = mounted.f2fs() else { return Vec::new() };
    let has = |feature| volume.superblock().features.contains(feature);
    let find = |names: &[&str]| given.iter().find(|option| names.contains(&option.as_str()));
    let begins = |name: &str| given.iter().find(|option| option.starts_with(name));
    let class = find(&["profile=phone", "profile=card"]);
    let mut notes = Vec::new();
    if let Some(class) = class.filter(|_| !has(Features::DELTA)) {
        notes.push(format!(
            "{class}: deltas would pay here, but the volume cannot hold any; joulefs unsettle changes that"
        ));
    } else if let (Some(class), Some(mode)) = (class, find(&["fsync_mode=nobarrier"])) {
        notes.push(format!("{class} makes no deltas with {mode}, which would cost more than they save"));
    }
    if let Some(option) = find(&["discard_unit=block", "discard_unit=price"]).filter(|_| has(Features::BLKZONED)) {
        notes.push(format!("{option} has no effect on a zoned device, whose zones are reset as a whole"));
    }
    if let Some(option) = begins("in_place=").filter(|_| volume.is_append_only()) {
        notes.push(format!("{option} has no effect where nothing is overwritten in place (mode=lfs, zones)"));
    }
    // Of the mount, which does not take the policy that was preferred everywhere.
    let policy = volume.cleaning().policy;
    if let Some(power) = begins("power=").filter(|_| policy != Policy::Joule) {
        notes.push(format!("{power} has no effect on cleaning with gc={}: only gc=joule uses it", policy.name()));
    }
    notes
}
