//! Which options of `-o` would do nothing on this mount?
//!
//! What needs a feature of the volume is refused by the file system, which knows it. This looks at the rest: at what stands
//! beside the volume, and at other options.

use device::energy::profile::{DeviceSpec, Profile};
use f2fs::Mode;
use f2fs::streams::Streams;
use victim::Policy;
use volume::{Kind, MountOptions};

use crate::Failure;

/// Refuses options that cannot act.
pub fn refuse(core: &MountOptions, profile: Option<&Profile>) -> Result<(), Failure> {
    let has_handles = profile.is_some_and(|profile| match &profile.device {
        DeviceSpec::Flash(flash) => flash.nand.handles.as_ref().is_some_and(|handles| handles.value > 1),
        DeviceSpec::Disk(_) => false,
    });
    if core.f2fs.streams != Streams::One && !has_handles {
        let why =
            "only a simulated device with placement handles keeps writes apart (--profile PROFILE with nand.handles)";
        return Err(Failure::usage(format!("-o streams would do nothing: {why}; leave it away")));
    }
    if core.f2fs.prealloc.is_some() && core.f2fs.mode == Mode::Lfs {
        let why = "with mode=lfs no block is set aside";
        return Err(Failure::usage(format!("-o prealloc would do nothing: {why}; leave one of them away")));
    }
    Ok(())
}

/// What is said of options that cannot act yet, but can be made to while the volume is mounted.
pub fn notes(core: &MountOptions, given: &[String], kind: Kind) -> Option<String> {
    let power = given.iter().find(|option| option.starts_with("power="))?;
    let policy = core.f2fs.gc.policy;
    let idle = kind == Kind::F2fs && policy != Policy::Joule;
    idle.then(|| format!("{power} changes nothing while gc={}: only gc=joule looks at it", policy.name()))
}
