//! `joulefs settle` and `joulefs unsettle`

use std::path::PathBuf;
use std::sync::Arc;

use device::RealClock;
use f2fs::settle;
use serde_json::json;

use crate::{Failure, image, output, progress};

/// Convert a volume with deltas to plain F2FS.
///
/// Rewrites every page that is stored as a delta as a whole page, and restores the magic number by which Linux, Android
/// and fsck.f2fs recognise F2FS. Until then they refuse the volume. After a power cut the volume is either unchanged or
/// settled.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs settle disk.img\n  fsck.f2fs disk.img")]
pub struct Args {
    /// The image or block device; not mounted.
    image: PathBuf,
}

/// Allow deltas on a volume: small updates stored in inodes.
///
/// Changes only the magic number in both superblocks. Then only JouleFS can mount the volume, until `joulefs settle`
/// converts it back to plain F2FS. The volume needs the features extra_attr and inode_checksum; --upgrade adds the
/// latter, for volumes made by `mkfs.f2fs -g android`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  joulefs unsettle disk.img\n  joulefs mount disk.img /mnt\n  ...\n  joulefs settle disk.img\n  \
        joulefs unsettle userdata.img --upgrade"
)]
pub struct UnsettleArgs {
    /// The image or block device; not mounted.
    image: PathBuf,
    /// Add the feature inode_checksum if the volume lacks it: every inode is written with its checksum. Linux reads the
    /// volume with and without it. After a power cut the volume is either unchanged or upgraded.
    #[arg(long)]
    upgrade: bool,
}

/// Calls `work` with a function that shows its progress.
fn with_bar<T>(what: &'static str, work: impl FnOnce(&mut dyn FnMut(u32, u32)) -> T) -> T {
    let bar = progress::steps(1, what);
    let out = work(&mut |done, total| {
        bar.set_length(total.into());
        bar.set_position(done.into());
        progress::show_if_slow(&bar);
    });
    bar.finish_and_clear();
    out
}

/// Runs `settle`.
pub fn settle(args: &Args, as_json: bool) -> Result<(), Failure> {
    let path = args.image.display();
    let dev = image::open_device(&args.image, true)?;
    image::only_f2fs(&*dev, &args.image, "joulefs settle")?;
    let done = with_bar("settling", |progress| settle::settle(dev, Arc::new(RealClock::new()), progress));
    let done = done.map_err(|e| format!("{path}: {e}"))?;
    if as_json {
        let counts = done.unwrap_or_default();
        output::print(&json!({
            "image": path.to_string(),
            "held_deltas": done.is_some(),
            "deltas": counts.deltas,
            "files": counts.inodes,
        }));
        return Ok(());
    }
    output::line(&match done {
        Some(done) => format!("{path}: now plain F2FS; {} deltas of {} files written whole", done.deltas, done.inodes),
        None => format!("{path}: is plain F2FS already"),
    });
    Ok(())
}

/// Runs `unsettle`.
pub fn unsettle(args: &UnsettleArgs, as_json: bool) -> Result<(), Failure> {
    let path = args.image.display();
    let dev = image::open_device(&args.image, true)?;
    image::only_f2fs(&*dev, &args.image, "joulefs unsettle")?;
    let sealed = match args.upgrade {
        true => with_bar("upgrading", |progress| settle::upgrade(dev, Arc::new(RealClock::new()), progress)),
        false => settle::unsettle(&*dev).map(|changed| changed.then_some(0)),
    };
    let sealed = sealed.map_err(|e| format!("{path}: {e}"))?;
    if as_json {
        let inodes = sealed.unwrap_or_default();
        output::print(&json!({ "image": path.to_string(), "changed": sealed.is_some(), "inodes_upgraded": inodes }));
        return Ok(());
    }
    let now = "may hold deltas now; only JouleFS can mount it until it is settled";
    output::line(&match sealed {
        None => format!("{path}: may hold deltas already"),
        Some(0) => format!("{path}: {now}"),
        Some(inodes) => format!("{path}: {inodes} inodes got a checksum; {now}"),
    });
    Ok(())
}
