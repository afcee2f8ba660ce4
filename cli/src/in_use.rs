//! Why has a process an image in use, whose mount is gone or takes no more changes?

use std::path::Path;
use std::time::Duration;

use fuse::socket::{Client, Reply, Request};

/// How long an answer is waited for: a volume that is being written answers late.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is said of an image in use by a process that cannot make durable what it holds; `None` if there is none that this
/// user may ask.
pub fn why(image: &Path) -> Option<String> {
    let answer = Client::of_image(image).ok()?.patience(PATIENCE).ask(&Request::Status, None).ok()?;
    let Reply::Status(status) = answer else { return None };
    let (what, why, process, image) = (status.not_durable(), status.failed?, status.process, image.display());
    Some(match status.mounted {
        Some(dir) => {
            let dir = dir.display();
            format!(
                "{image}: mounted at {dir} by process {process}, which cannot make {what} durable: {why}; joulefs ctl {dir} retry \
                 tries again, joulefs ctl {dir} save NEW_DIR copies it elsewhere"
            )
        }
        None => {
            let seconds = status.retrying_s.unwrap_or(0);
            format!(
                "{image}: unmounted, but process {process} holds {what}, which it cannot write: {why}; it retries for \
                 {seconds} s; joulefs ctl {image} retry does so now, joulefs ctl {image} save NEW_DIR copies it \
                 elsewhere"
            )
        }
    })
}
