//! The side that asks: where is the process, and is it the right one?

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::{PREFIX, Reply, Request, identity};
use crate::control::SOCKET;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Nobody listens for it.
    #[error("no JouleFS process answers for it")]
    Nobody,
    /// There is a process, but its socket is not seen here.
    #[error("its process cannot be reached from here: it runs in another network namespace")]
    Elsewhere,
    /// The process does not want to.
    #[error("{0}")]
    Refused(String),
    /// The process ended.
    #[error("its process ended without an answer")]
    Ended,
    /// The process did not answer in time.
    #[error("its process has not answered within {seconds} s")]
    Late {
        /// How long was waited.
        seconds: u64,
    },
    /// An answer that is not understood.
    #[error("its process is of another version and sent an unknown answer")]
    Strange,
    /// Anything else the system says.
    #[error("cannot reach its process: {0}")]
    Io(#[from] io::Error),
}

/// A connection to the process that serves a mount.
pub struct Client {
    stream: BufReader<UnixStream>,
    /// When the next answer must be there.
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

    /// Connects to the process that has `image` in use, whether it is still mounted or not.
    pub fn of_image(image: &Path) -> Result<Self, SocketError> {
        let wanted = format!("@{PREFIX}{}/", identity(image)?);
        let table = fs::read_to_string("/proc/net/unix")?;
        let mut names: Vec<&str> = table.lines().filter_map(|line| line.split_whitespace().nth(7)).collect();
        names.retain(|name| name.starts_with(&wanted));
        names.sort_unstable();
        names.dedup();
        for name in names {
            // Others may listen under such a name, but not as who has the image.
            if let Ok(client) = connect(&name[1..])
                && client.is_of(image)?
            {
                return Ok(client);
            }
        }
        Err(SocketError::Nobody)
    }

    /// True if the other side is root's or this user's. Root believes others, too, if they have the image open.
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

    /// Answers must be there that soon from now.
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
        // A process that refuses says so before it has read anything.
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
