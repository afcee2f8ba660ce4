//! Why does a process still hold an image whose mount is gone or read-only?

use std::path::Path;
use std::time::Duration;

use fuse::socket::{Client, Reply, Request};

/// How long to wait for an answer: a process busy with writing answers late.
const PATIENCE: Duration = Duration::from_secs(2);

/// The reason, if an image is held by a process that cannot make its data durable; `None` if there is no such process
/// that this user may query.
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
