//! How does a client find the serving process, and verify it?

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::PidfdFlags;

use super::{PREFIX, Reply, Request, identity};
use crate::control::SOCKET;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// No process listens.
    #[error("no JouleFS process answers for it")]
    Nobody,
    /// The process exists, but its socket is not visible here.
    #[error("its process cannot be reached from here: it runs in another network namespace")]
    Elsewhere,
    /// The process refused.
    #[error("{0}")]
    Refused(String),
    /// The process ended.
    #[error("its process ended without an answer")]
    Ended,
    /// The process did not answer in time.
    #[error("its process has not answered within {seconds} s")]
    Late {
        /// Time waited, in seconds.
        seconds: u64,
    },
    /// The answer cannot be parsed.
    #[error("its process is of another version and sent an unknown answer")]
    Strange,
    /// Any other system error.
    #[error("cannot reach its process: {0}")]
    Io(#[from] io::Error),
}

/// A connection to the process that serves a mount.
pub struct Client {
    stream: BufReader<UnixStream>,
    /// Deadline of the next answer.
    until: Option<(Instant, u64)>,
}

impl Client {
    /// Connects to the process that serves the mount at `dir`, its topmost directory.
    pub fn of_mount(dir: &Path) -> Result<Self, SocketError> {
        let mut bytes = [0; 256];
        let n = match rustix::fs::getxattr(dir, SOCKET, &mut bytes[..]) {
            Ok(n) => n,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Err(SocketError::Nobody),
            Err(e) => return Err(io::Error::from(e).into()),
        };
        let name = std::str::from_utf8(&bytes[..n]).ok().filter(|name| name.starts_with(PREFIX));
        connect(name.ok_or(SocketError::Strange)?).map_err(|e| match e.kind() {
            ErrorKind::ConnectionRefused => SocketError::Elsewhere,
            _ => e.into(),
        })
    }

    /// The serving process, readable when it has ended. `None` if it is not visible from here, or is this process.
    pub(crate) fn process(&self) -> Option<OwnedFd> {
        let peer = rustix::net::sockopt::socket_peercred(self.stream.get_ref()).ok()?.pid;
        let other = (peer != rustix::process::getpid()).then_some(peer)?;
        rustix::process::pidfd_open(other, PidfdFlags::empty()).ok()
    }

    /// Connects to the process that uses `image`, mounted or not.
    pub fn of_image(image: &Path) -> Result<Self, SocketError> {
        let wanted = format!("@{PREFIX}{}/", identity(image)?);
        let table = fs::read_to_string("/proc/net/unix")?;
        let mut names: Vec<&str> = table.lines().filter_map(|line| line.split_whitespace().nth(7)).collect();
        names.retain(|name| name.starts_with(&wanted));
        names.sort_unstable();
        names.dedup();
        for name in names {
            // Another user's program may listen under such a name; `is_of` rejects it.
            if let Ok(client) = connect(&name[1..])
                && client.is_of(image)?
            {
                return Ok(client);
            }
        }
        Err(SocketError::Nobody)
    }

    /// True if the other side is root's or this user's. Root also accepts other users' processes that have the image
    /// open.
    fn is_of(&self, image: &Path) -> io::Result<bool> {
        let peer = rustix::net::sockopt::socket_peercred(self.stream.get_ref())?;
        let me = rustix::process::geteuid();
        if peer.uid.is_root() || peer.uid == me {
            return Ok(true);
        }
        let wanted = identity(image)?;
        let open = |entry: io::Result<fs::DirEntry>| Some(identity(&entry.ok()?.path()).ok()? == wanted);
        let descriptors = fs::read_dir(format!("/proc/{}/fd", peer.pid.as_raw_nonzero()));
        Ok(me.is_root() && descriptors.is_ok_and(|mut all| all.any(|entry| open(entry) == Some(true))))
    }

    /// Sets the time limit for answers, from now.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.wait_for(patience);
        self
    }

    /// The same.
    pub fn wait_for(&mut self, patience: Duration) {
        self.until = Some((Instant::now() + patience, patience.as_secs()));
    }

    /// Sends the request, with a descriptor if one is given, and returns the first answer.
    pub fn ask(&mut self, request: &Request, descriptor: Option<BorrowedFd<'_>>) -> Result<Reply, SocketError> {
        let mut line = serde_json::to_vec(request).map_err(io::Error::from)?;
        line.push(b'\n');
        let stream = self.stream.get_mut();
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let sent = rustix::net::sendmsg(&*stream, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL);
        // A process that refuses answers before it has read anything.
        let _ = sent.map_err(io::Error::from).and_then(|sent| stream.write_all(&line[sent..]));
        self.next()
    }

    /// The next answer.
    #[allow(clippy::should_implement_trait, reason = "an end is a failure here")]
    pub fn next(&mut self) -> Result<Reply, SocketError> {
        let mut line = Vec::new();
        loop {
            if let Some((until, seconds)) = self.until {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(SocketError::Late { seconds });
                }
                self.stream.get_ref().set_read_timeout(Some(left))?;
            }
            match self.stream.read_until(b'\n', &mut line) {
                Ok(_) if line.last() == Some(&b'\n') => break,
                Ok(_) => return Err(SocketError::Ended),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Err(SocketError::Ended),
                Err(e) => return Err(e.into()),
            }
        }
        match serde_json::from_slice(&line) {
            Ok(Reply::Refused(why)) => Err(SocketError::Refused(why)),
            Ok(reply) => Ok(reply),
            Err(_) => Err(SocketError::Strange),
        }
    }
}

fn connect(name: &str) -> io::Result<Client> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    Ok(Client { stream: BufReader::new(stream), until: None })
}
