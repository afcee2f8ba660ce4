//! How does a mount get into the background without losing its first error?
//!
//! A process with threads cannot fork, and a fork needs unsafe code. So the parent starts the same program again, and
//! the child prints a line on its standard output when the mount is ready. If it fails before that, the parent passes
//! on its message and exit status.
//!
//! Parent: [`start`] with a command line that leads to the child's part. Child: mounts, then calls [`ready`] (which
//! also leaves the terminal) from the `ready` callback of [`run_until_unmounted`](crate::run_until_unmounted).

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

/// The line that reports readiness.
const READY: &str = "joulefs: mounted";
/// Prefix of a line for the user that is not an error.
const NOTE: &str = "joulefs: note: ";

/// Why the background mount failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The program could not be started again.
    #[error("cannot start the background process: {0}")]
    Start(#[from] io::Error),
    /// It ended before the mount was ready.
    #[error("{}", message(*status, text))]
    Failed {
        /// Its exit status.
        status: ExitStatus,
        /// Its standard error, trimmed.
        text: String,
    },
}

fn message(status: ExitStatus, text: &str) -> String {
    match (text, status.signal()) {
        ("", Some(signal)) => format!("the background process was killed by signal {signal}"),
        ("", None) => format!("the background process ended with {status}"),
        (text, _) => text.to_owned(),
    }
}

/// Starts `command` and returns its process id after it has called [`ready`]; the callback gets the texts that the
/// child passes to [`note`].
pub fn start(mut command: Command, note: impl Fn(&str)) -> Result<u32, DaemonError> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("no pipes to the background process").into());
    };
    // Both pipes are read concurrently, so that a full one cannot block the child.
    let text = thread::Builder::new().name("daemon-errors".to_owned()).spawn(move || {
        let mut text = Vec::new();
        let mut stderr = stderr;
        let _ = stderr.read_to_end(&mut text);
        String::from_utf8_lossy(&text).trim().to_owned()
    })?;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if line == READY {
            return Ok(child.id());
        }
        line.strip_prefix(NOTE).into_iter().for_each(&note);
    }
    let status = child.wait()?;
    let text = text.join().unwrap_or_default();
    Err(DaemonError::Failed { status, text })
}

/// Sends the waiting parent one line for its user. Only before [`ready`].
pub fn note(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{NOTE}{text}")?;
    stdout.flush()
}

/// Signals the waiting parent that the mount is ready, and leaves the terminal: a new session, working directory `/`,
/// and `/dev/null` as standard streams.
pub fn ready() -> io::Result<()> {
    // Fails for a process group leader, which does not need it.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{READY}")?;
    stdout.flush()?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_ready_child_keeps_running_and_its_notes_are_passed_on() {
        let notes = std::cell::RefCell::new(Vec::new());
        let script = format!("echo other words; echo '{NOTE}heed this'; echo '{READY}'; exec sleep 0.2");
        let id = start(shell(&script), |text| notes.borrow_mut().push(text.to_owned())).unwrap();
        assert_eq!(notes.into_inner(), ["heed this"]);
        assert!(std::path::Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn a_child_that_fails_first_hands_over_its_message() {
        let error = start(shell("echo image.f2fs: no such file >&2; exit 3"), |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "image.f2fs: no such file");
        let DaemonError::Failed { status, .. } = error else { panic!("{error:?}") };
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn a_child_that_dies_silently_is_still_an_error() {
        let error = start(shell("kill -9 $$"), |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "the background process was killed by signal 9");
    }
}
