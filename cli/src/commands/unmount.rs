//! `joulefs unmount`: is everything durable before the unmount, and what did the serving process report at the end?

use std::path::PathBuf;
use std::time::Duration;

use fuse::unmount::{Between, Ending};
use serde_json::json;

use crate::{Failure, output};

/// Unmount a volume.
///
/// First makes everything durable, then unmounts, and waits until the volume is closed. If changes cannot be made
/// durable (the host is full, the disk fails, the image was removed), the volume stays mounted, nothing is lost, and the exit code is 1.
/// `joulefs ctl DIR retry` tries again, `joulefs ctl DIR save OUT` copies the changes elsewhere, and
/// --give-up-unwritten unmounts and loses them.
///
/// If the mount is in use, the command retries for a second. If the volume is also mounted in a second place (`mount
/// --bind`), it stays mounted there, and the command does not wait for it.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs unmount /mnt && fsck.f2fs --dry-run disk.img\n  \
    joulefs unmount --give-up-unwritten /mnt")]
pub struct Args {
    /// The mount point.
    dir: PathBuf,
    /// Seconds to wait for writes to finish.
    #[arg(long, default_value_t = 60)]
    wait: u64,
    /// Unmount even if changes since the last checkpoint cannot be made durable. THEY ARE LOST then; the exit code is
    /// 1.
    #[arg(long)]
    give_up_unwritten: bool,
}

fn tell(between: &Between) {
    let text = match between {
        Between::Refused(why) => {
            format!("some writes were lost ({why}); the programs that wrote them got the error on close or fsync")
        }
        Between::Unheard => "everything is durable, but the end of the mount process cannot be observed from \
            here"
            .to_owned(),
        Between::Failing { image, status } => {
            let why = status.failed.as_deref().unwrap_or("unknown reason");
            let (image, seconds) = (image.display(), status.retrying_s.unwrap_or(0));
            format!(
                "{image}: the last checkpoint failed: {why}; its process keeps the changes in memory and retries for \
                 {seconds} s; joulefs ctl {image} retry does so now, joulefs ctl {image} save NEW_DIR copies them \
                 elsewhere"
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
