//! Which clients are connected, and how does the server end?
//!
//! Every connection has its own thread. A client that connects and stays silent blocks no other: it must finish
//! negotiation within a time limit, and if many are slow, the oldest is disconnected. Later a client may be silent
//! between two requests for as long as it likes, and keeps its slot, but not in the middle of a request.
//!
//! A [`Stop`] ends the server: it accepts no new clients, answers requests in progress, then closes the connections;
//! clients that do not read the answer within 5 seconds are cut off.
//!
//! A Unix socket is accessible only to its user. Its file exists as long as the [`Listener`], which may be longer than
//! the server runs: when the file is gone, everything is done. A file left behind by a killed server is replaced; one
//! with a listening server is not.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use device::clock::{Clock, RealClock};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::address::Address;
use crate::session::{self, Export, Next, SessionError};

/// Clients that may send requests at the same time. Each may hold one request's data.
const CLIENTS: usize = 32;

/// Clients that may negotiate at the same time.
const SETTLING: usize = 32;

/// Time limits for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// From the connection to the first request, in total.
    pub handshake: Duration,
    /// For the next byte of a request that has begun, and for the client to read the next byte of an answer.
    pub transfer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { handshake: Duration::from_secs(10), transfer: Duration::from_secs(30) }
    }
}

/// Time for clients to read the last answer.
const GRACE: Duration = Duration::from_secs(5);

/// Pause before accepting again when a resource has run out.
const BREATH: Duration = Duration::from_millis(100);

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("{place}: {error}")]
    Bind {
        /// The address.
        place: Address,
        /// The system's error.
        error: io::Error,
    },
    /// Another server listens there.
    #[error("{}: another server listens there already", .0.display())]
    Taken(PathBuf),
    /// The file exists and is not a socket.
    #[error("{}: exists and is not a socket", .0.display())]
    NoSocket(PathBuf),
    /// Waiting for clients or for the stop failed.
    #[error("waiting for clients: {0}")]
    Wait(#[from] io::Error),
}

/// Ends a server.
pub struct Stop {
    asked: UnixStream,
    ask: UnixStream,
}

impl Stop {
    /// A stop that has not been requested yet.
    pub fn new() -> io::Result<Self> {
        let (asked, ask) = UnixStream::pair()?;
        Ok(Stop { asked, ask })
    }

    /// From now on SIGINT, SIGTERM and SIGHUP end the server.
    pub fn on_signals(&self) -> io::Result<()> {
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, self.ask.try_clone()?)?;
        }
        Ok(())
    }

    /// Ends the server.
    pub fn now(&self) -> io::Result<()> {
        (&self.ask).write_all(&[0])
    }
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(s) => s.as_fd(),
            Socket::Tcp(s) => s.as_fd(),
        }
    }
}

impl Socket {
    fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Socket::Unix(s) => Stream::Unix(s.accept()?.0),
            Socket::Tcp(s) => {
                let stream = s.accept()?.0;
                // Answers are written whole, so there is nothing to gain from a delay.
                stream.set_nodelay(true)?;
                // A dead machine sends nothing: its slot is freed after two minutes.
                set_socket_keepalive(&stream, true)?;
                set_tcp_keepidle(&stream, Duration::from_secs(60))?;
                set_tcp_keepintvl(&stream, Duration::from_secs(10))?;
                set_tcp_keepcnt(&stream, 6)?;
                Stream::Tcp(stream)
            }
        })
    }
}

/// A client's connection.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Stream::Unix(s) => Stream::Unix(s.try_clone()?),
            Stream::Tcp(s) => Stream::Tcp(s.try_clone()?),
        })
    }

    fn patience(&self, most: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(s) => s.set_read_timeout(most).and_then(|()| s.set_write_timeout(most)),
            Stream::Tcp(s) => s.set_read_timeout(most).and_then(|()| s.set_write_timeout(most)),
        }
    }

    fn shutdown(&self, how: Shutdown) {
        // The client may be gone already.
        let _ = match self {
            Stream::Unix(s) => s.shutdown(how),
            Stream::Tcp(s) => s.shutdown(how),
        };
    }
}

/// A client with a deadline for its negotiation.
struct Timed<'s> {
    stream: &'s Stream,
    /// Time since the client connected.
    clock: RealClock,
    until: Cell<Option<Duration>>,
}

impl Timed<'_> {
    /// Limits the next read or write to the remaining time.
    fn hurry(&self) -> io::Result<()> {
        match self.until.get().map(|until| until.saturating_sub(self.clock.monotonic())) {
            None => Ok(()),
            Some(Duration::ZERO) => Err(ErrorKind::TimedOut.into()),
            left => self.stream.patience(left),
        }
    }
}

impl Read for &Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.hurry()?;
        match self.stream {
            Stream::Unix(s) => (&mut &*s).read(buf),
            Stream::Tcp(s) => (&mut &*s).read(buf),
        }
    }
}

impl Write for &Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.hurry()?;
        match self.stream {
            Stream::Unix(s) => (&mut &*s).write(buf),
            Stream::Tcp(s) => (&mut &*s).write(buf),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connected client.
struct Connected {
    stream: Stream,
    /// True after its negotiation.
    settled: bool,
}

/// All connected clients, in the order of arrival.
#[derive(Default)]
struct Clients {
    connected: Mutex<BTreeMap<u64, Connected>>,
    gone: Condvar,
    ending: AtomicBool,
    patience: Patience,
}

/// Removes a client from the list, however its thread ends.
struct Leaving {
    clients: Arc<Clients>,
    number: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut connected = self.clients.connected.lock();
        if let Some(client) = connected.remove(&self.number) {
            client.stream.shutdown(Shutdown::Both);
        }
        self.clients.gone.notify_all();
    }
}

impl Clients {
    fn welcome(self: &Arc<Self>, stream: Stream, number: u64, export: &Arc<Export>) -> io::Result<()> {
        {
            let mut connected = self.connected.lock();
            let settling = || connected.iter().filter(|(_, client)| !client.settled).map(|(number, _)| *number);
            let (dawdler, count) = (settling().next(), settling().count());
            if let Some(dawdler) = dawdler.filter(|_| count >= SETTLING) {
                log::warn!("client {dawdler} disconnected: it did not finish the handshake, and others wait");
                if let Some(client) = connected.remove(&dawdler) {
                    client.stream.shutdown(Shutdown::Both);
                }
            }
            connected.insert(number, Connected { stream: stream.try_clone()?, settled: false });
        }
        let leaving = Leaving { clients: self.clone(), number };
        let (clients, export) = (self.clone(), export.clone());
        thread::Builder::new().name(format!("nbd-{number}")).spawn(move || {
            let _leaving = leaving;
            match serve(&stream, &export, &clients, number) {
                Ok(()) => log::debug!("client {number} has ended"),
                Err(error @ SessionError::NoPlace(_)) => log::warn!("client {number} is {error}"),
                Err(error) => log::info!("client {number}: {error}"),
            }
        })?;
        Ok(())
    }

    /// Gives a client a slot after its negotiation, until it leaves.
    fn admit(&self, number: u64) -> Result<(), String> {
        let mut connected = self.connected.lock();
        if connected.values().filter(|client| client.settled).count() >= CLIENTS {
            return Err(format!("{CLIENTS} clients are connected, the maximum; disconnect one"));
        }
        let Some(client) = connected.get_mut(&number) else { return Err("came too late".to_owned()) };
        client.settled = true;
        Ok(())
    }

    /// Ends all sessions: first only their input, so that answers can leave; after the grace period their output too.
    fn dismiss(&self) {
        self.ending.store(true, Ordering::Relaxed);
        let clock = RealClock::new();
        let mut connected = self.connected.lock();
        for how in [Shutdown::Read, Shutdown::Both] {
            for client in connected.values() {
                client.stream.shutdown(how);
            }
            let until = clock.monotonic() + GRACE;
            loop {
                let left = until.saturating_sub(clock.monotonic());
                if connected.is_empty() || left.is_zero() {
                    break;
                }
                self.gone.wait_for(&mut connected, left);
            }
        }
    }
}

/// The session with one client.
fn serve(stream: &Stream, export: &Export, clients: &Clients, number: u64) -> Result<(), SessionError> {
    let until = Cell::new(Some(clients.patience.handshake));
    let timed = Timed { stream, clock: RealClock::new(), until };
    let (mut input, mut output) = (BufReader::new(&timed), &timed);
    if session::handshake(&mut input, &mut output, export, || clients.admit(number))? == Next::End {
        return Ok(());
    }
    timed.until.set(None);
    stream.patience(Some(clients.patience.transfer))?;
    session::transmission(&mut input, &mut output, export, || clients.ending.load(Ordering::Relaxed))
}

/// A socket that clients can connect to.
pub struct Listener {
    socket: Socket,
    /// The socket's file, with its device and inode number.
    file: Option<(PathBuf, u64, u64)>,
    patience: Patience,
}

impl Listener {
    /// Binds the address. Clients that connect from now on wait for [`serve`](Self::serve).
    pub fn bind(place: &Address) -> Result<Self, ListenError> {
        let failed = |error| ListenError::Bind { place: place.clone(), error };
        let (socket, file) = match place {
            Address::Tcp(at) => (Socket::Tcp(TcpListener::bind(at.as_str()).map_err(failed)?), None),
            Address::Unix(path) => {
                let socket = match UnixListener::bind(path) {
                    Err(e) if e.kind() == ErrorKind::AddrInUse => {
                        remove_stale(path, failed)?;
                        UnixListener::bind(path)
                    }
                    other => other,
                };
                let socket = socket.map_err(failed)?;
                let meta = fs::symlink_metadata(path).map_err(failed)?;
                fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
                (Socket::Unix(socket), Some((path.clone(), meta.dev(), meta.ino())))
            }
        };
        let patient = match &socket {
            Socket::Unix(s) => s.set_nonblocking(true),
            Socket::Tcp(s) => s.set_nonblocking(true),
        };
        patient.map_err(failed)?;
        Ok(Listener { socket, file, patience: Patience::default() })
    }

    /// The same with other time limits.
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Serves until stopped; then all sessions have ended.
    pub fn serve(&self, export: Export, stop: &Stop) -> Result<(), ListenError> {
        let (export, clients) = (Arc::new(export), Arc::new(Clients { patience: self.patience, ..Clients::default() }));
        let ended = self.let_in(&export, &clients, stop);
        clients.dismiss();
        ended.map_err(ListenError::Wait)
    }

    fn let_in(&self, export: &Arc<Export>, clients: &Arc<Clients>, stop: &Stop) -> io::Result<()> {
        for number in 1.. {
            let stream = loop {
                let mut either = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&stop.asked, PollFlags::IN)];
                match poll(&mut either, None) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(e) => return Err(e.into()),
                }
                if !either[1].revents().is_empty() {
                    return Ok(());
                }
                match self.socket.accept() {
                    Ok(stream) => break stream,
                    // The client has already gone.
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
                    Err(e) => {
                        log::warn!("cannot accept a client: {e}");
                        thread::sleep(BREATH);
                    }
                }
            };
            if let Err(e) = clients.welcome(stream, number, export) {
                log::warn!("client {number} rejected: {e}");
            }
        }
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, device, inode)) = &self.file
            && fs::symlink_metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (*device, *inode))
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a socket without a listening server.
fn remove_stale(path: &Path, failed: impl Fn(io::Error) -> ListenError) -> Result<(), ListenError> {
    if !fs::symlink_metadata(path).map_err(&failed)?.file_type().is_socket() {
        return Err(ListenError::NoSocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        Err(e) => Err(failed(e)),
        Ok(_) => Err(ListenError::Taken(path.to_owned())),
    }
}
