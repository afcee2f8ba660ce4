//! What happens to data that a volume could not write? Retried, or copied elsewhere.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fuse::socket::{Client, Reply, Request, Saved, SocketError, Status};
use rustix::fs::{CWD, Mode, OFlags};
use serde_json::json;

use crate::{Failure, output};

/// Connects to the process that serves a mount or holds an image.
fn connect(place: &Path) -> Result<Client, Failure> {
    let meta = fs::metadata(place).map_err(|e| format!("{}: {e}", place.display()))?;
    let client = if meta.is_dir() { Client::of_mount(place) } else { Client::of_image(place) };
    client.map_err(|e| match e {
        SocketError::Nobody if meta.is_dir() => format!("{}: not a JouleFS mount point", place.display()).into(),
        SocketError::Nobody => {
            format!("{}: not mounted, and no process holds unwritten changes of it", place.display()).into()
        }
        e => failed(place)(e),
    })
}

fn failed(place: &Path) -> impl Fn(SocketError) -> Failure {
    move |e| format!("{}: {e}", place.display()).into()
}

/// An answer that does not fit the request.
fn strange(place: &Path) -> Failure {
    failed(place)(SocketError::Strange)
}

/// The report of the process that holds an image.
pub fn report(image: &Path) -> Result<Vec<(String, String)>, Failure> {
    match connect(image)?.ask(&Request::Status, None).map_err(failed(image))? {
        Reply::Status(Status { failed, mounted, retrying_s, mut report, .. }) => {
            // A process that retries reports more than the volume does.
            let more = [
                ("mounted", mounted.map(|dir| dir.display().to_string())),
                ("last_checkpoint_failed", retrying_s.and(failed)),
                ("retrying_s", retrying_s.map(|seconds| seconds.to_string())),
            ];
            let more = more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            report.splice(0..0, more);
            Ok(report)
        }
        _ => Err(strange(image)),
    }
}

/// Retries making everything durable.
pub fn retry(place: &Path, as_json: bool) -> Result<(), Failure> {
    let mut client = connect(place)?;
    if place.is_dir()
        && let Err(e) = fuse::unmount::write_back(place)
    {
        let place = output::plain(&place.display().to_string());
        eprintln!(
            "joulefs: {place}: some writes were lost ({e}); the programs that wrote them got the error on close or \
             fsync"
        );
    }
    match client.ask(&Request::Retry, None).map_err(failed(place))? {
        Reply::Durable(Status { doomed: Some(why), .. }) => Err(format!(
            "{place}: everything is durable, but {why}; the whole volume is gone once it is unmounted: copy it elsewhere: \
             joulefs ctl {place} save NEW_DIR",
            place = place.display()
        )
        .into()),
        Reply::Durable(status) => {
            output::done(as_json, &json!({ "durable": true, "durable_checkpoint": status.checkpoint }));
            Ok(())
        }
        Reply::Failed(status) => {
            let (place, what, why) = (place.display(), status.not_durable(), status.failed.unwrap_or_default());
            Err(format!(
                "{place}: {what} is not durable: {why}; it stays in memory: make room and try again, or copy it \
                 elsewhere: joulefs ctl {place} save NEW_DIR"
            )
            .into())
        }
        _ => Err(strange(place)),
    }
}

/// Creates the target directory if needed. True if it was created.
fn make(to: &Path, place: &Path) -> Result<bool, Failure> {
    let named = |e: std::io::Error| format!("{}: {e}", to.display());
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    // Checked first: the process that serves the mount would create it on the volume that cannot be written.
    let above = match to.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let lies = if to.exists() { to } else { above };
    if place.is_dir() && device(lies).is_some() && device(lies) == device(place) {
        return Err(Failure::usage(format!(
            "{}: is inside the mount itself; give a directory elsewhere",
            to.display()
        )));
    }
    match fs::create_dir(to) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            if fs::read_dir(to).map_err(named)?.next().is_some() {
                return Err(Failure::usage(format!("{}: not empty; give a new or empty directory", to.display())));
            }
            Ok(false)
        }
        Err(e) => Err(named(e).into()),
    }
}

/// Copies data that is not durable into a directory.
pub fn save(place: &Path, to: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let mut client = connect(place)?;
    let made = make(to, place)?;
    let saved = ask_to_save(&mut client, place, to);
    if let (true, Err(_)) = (made, &saved) {
        // Remove the directory if nothing was copied; otherwise this fails.
        let _ = fs::remove_dir(to);
    }
    let Saved { files, bytes, failed, failed_more } = saved?;
    let whole = failed.is_empty();
    if as_json {
        let to = to.display().to_string();
        let saved = json!({ "to": to, "files": files, "bytes": bytes, "failed": failed, "failed_more": failed_more });
        output::print(&json!({ "saved": saved }));
    } else {
        for why in failed {
            output::failure(&output::plain(&why), false);
        }
        if failed_more > 0 {
            output::failure(&format!("{failed_more} more files were not copied"), false);
        }
        output::line(&format!("{files} files and directories, {}, copied to {}", output::bytes(bytes), to.display()));
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn ask_to_save(client: &mut Client, place: &Path, to: &Path) -> Result<Saved, Failure> {
    let named = |e: std::io::Error| format!("{}: {e}", to.display());
    let directory = rustix::fs::openat(CWD, to, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let directory = directory.map_err(|e| named(e.into()))?;
    let to: PathBuf = std::path::absolute(to).map_err(named)?.display().to_string().into();
    match client.ask(&Request::Save { to }, Some(directory.as_fd())).map_err(failed(place))? {
        Reply::Saved(saved) => Ok(saved),
        _ => Err(strange(place)),
    }
}
