//! `joulefs unmount`: is everything durable before a mount goes, and what did its process say at the end?

use std::path::PathBuf;
use std::time::Duration;

use fuse::unmount::{Between, Ending};
use serde_json::json;

use crate::{Failure, output};

/// Unmount, once everything is durable, and wait until the volume is closed.
///
/// If what was written cannot be made durable (the host is full, the disk fails, the image was removed), the mount stays
/// and nothing is lost: what is wrong and what can be done is said, and the exit code is 1. `joulefs ctl DIR retry` tries
/// again, `joulefs ctl DIR save OUT` copies it elsewhere, and with --give-up-unwritten the mount ends all the same.
///
/// A mount in use is tried again for a second. One that is mounted in a second place too (`mount --bind`) lives on
/// there and is not waited for.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs unmount /mnt && fsck.f2fs --dry-run disk.img\n  \
    joulefs unmount --give-up-unwritten /mnt")]
pub struct Args {
    /// Where it is mounted.
    dir: PathBuf,
    /// Seconds to wait for what is written.
    #[arg(long, default_value_t = 60)]
    wait: u64,
    /// Unmount even if what was written since the last checkpoint cannot be made durable. IT IS LOST then; the exit code is
    /// 1.
    #[arg(long)]
    give_up_unwritten: bool,
}

fn tell(between: &Between) {
    let text = match between {
        Between::Refused(why) => {
            format!(
                "not all that was written found its place ({why}); whoever wrote it was told when it was closed or synced"
            )
        }
        Between::Unheard => "everything is durable, but how its process ends cannot be heard from here".to_owned(),
        Between::Failing { image, status } => {
            let why = status.failed.as_deref().unwrap_or("no reason is known");
            let (image, seconds) = (image.display(), status.retrying_s.unwrap_or(0));
            format!(
                "{image}: the last checkpoint failed: {why}; its process keeps what is in memory and tries again for {seconds} s; \
                 joulefs ctl {image} retry does so now, joulefs ctl {image} save NEW_DIR copies it elsewhere"
            )
        }
    };
    eprintln!("joulefs: {}", output::plain(&text));
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let ending = Ending { patience: Duration::from_secs(args.wait), give_up: args.give_up_unwritten };
    let done = fuse::unmount::unmount(&args.dir, "fuse.joulefs", ending, tell).map_err(|e| e.to_string())?;
    let mut said = json!({ "unmounted": args.dir.display().to_string() });
    if let Some(checkpoint) = done.word.and_then(|word| word.checkpoint) {
        said["durable_checkpoint"] = json!(checkpoint);
    }
    if let Some(dir) = done.elsewhere {
        let dir = dir.display().to_string();
        if !as_json {
            output::line(&format!("the volume is still mounted at {dir}"));
        }
        said["mounted"] = json!(dir);
    }
    output::done(as_json, &said);
    Ok(())
}
