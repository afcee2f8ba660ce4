//! Who may send requests to a mount's socket, and how are they answered?

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use vfs::FileSystem;
use vfs::state::State;

use super::{LastWord, PREFIX, Reply, Request, Saved, Status, identity};

/// Time limit for a client to send its request, or to read an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest request in bytes.
const LONGEST: usize = 16 << 10;
/// Most clients at the same time.
const CLIENTS: usize = 32;
/// Pause of a listener that cannot accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Copies data that is not durable.
pub type Saver = Arc<dyn Fn(Saving) -> Result<Saved, String> + Send + Sync>;

/// Says why the whole volume goes with its process, if it does.
pub type Doom = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// The destination of a copy.
pub struct Saving {
    /// The directory.
    pub to: OwnedFd,
    /// Its name in error messages.
    pub named: PathBuf,
    /// Set when the client has stopped waiting.
    pub stop: Arc<AtomicBool>,
}

/// The file system behind a socket.
pub(crate) struct Served {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) dir: PathBuf,
    /// The device number of files in the mount.
    pub(crate) device: u64,
    /// Triggers the next retry of the last checkpoint.
    pub(crate) poke: Box<dyn Fn() + Send + Sync>,
}

/// The socket of a mount.
pub struct ControlSocket {
    name: String,
    listener: UnixListener,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<Inner>,
    doom: Option<Doom>,
    /// Signalled when no request is running.
    idle: Condvar,
    /// Copying must stop.
    stop: AtomicBool,
}

#[derive(Default)]
struct Inner {
    /// It keeps the image open.
    saver: Option<Saver>,
    served: Option<Arc<Served>>,
    /// The mount has ended.
    detached: bool,
    /// Why the last checkpoint failed, and until when it is retried.
    failing: Option<(String, Instant)>,
    waiters: Vec<Waiter>,
    clients: usize,
    /// Number of running requests.
    running: usize,
    /// Stop flags of running copies.
    stops: Vec<Arc<AtomicBool>>,
    next: u64,
}

struct Waiter {
    number: u64,
    stream: UnixStream,
    give_up: bool,
}

impl ControlSocket {
    /// Creates the socket for a mount of `image`. Clients can connect; they are answered after `serve`.
    ///
    /// # Errors
    /// The system has no Unix sockets, or no random numbers.
    pub fn bind(image: Option<&Path>, saver: Option<Saver>, doom: Option<Doom>) -> io::Result<Self> {
        let image = image.map(identity).transpose()?.unwrap_or_else(|| "-".to_owned());
        let token: String = device::rng::entropy()?.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{PREFIX}{image}/{token}");
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let state = Mutex::new(Inner { saver, ..Inner::default() });
        let shared = Shared { state, doom, idle: Condvar::new(), stop: AtomicBool::new(false) };
        Ok(ControlSocket { name, listener, shared: Arc::new(shared), accepting: Mutex::new(None) })
    }

    /// Its abstract name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts answering.
    pub(crate) fn serve(&self, served: Served) -> io::Result<()> {
        let (listener, shared) = (self.listener.try_clone()?, self.shared.clone());
        shared.state.lock().served = Some(Arc::new(served));
        let thread = thread::Builder::new().name("control-socket".to_owned()).spawn(move || {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => shared.clone().accept(stream),
                    // The listener was shut down.
                    Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return,
                    // Too many open files, or the client has gone.
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        })?;
        *self.accepting.lock() = Some(thread);
        Ok(())
    }

    /// The mount has ended; the volume has not.
    pub(crate) fn detached(&self) {
        self.shared.state.lock().detached = true;
    }

    /// The last checkpoint failed and is retried until then.
    pub(crate) fn failing(&self, why: &str, until: Instant) {
        self.shared.state.lock().failing = Some((why.to_owned(), until));
        let status = self.shared.status();
        self.shared.tell(&Reply::Failing(status));
    }

    /// True if a waiting client wants no more retries.
    pub(crate) fn gives_up(&self) -> bool {
        self.shared.state.lock().waiters.iter().any(|waiter| waiter.give_up)
    }

    /// True if a request is running.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.state.lock().running > 0
    }

    /// Stops running requests.
    pub(crate) fn stop(&self) {
        self.shared.stop();
    }

    /// The current state.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Sends the final report to waiting clients. Later requests are not answered. Called while the image is still
    /// locked.
    pub fn last_word(&self, word: &LastWord) {
        self.close();
        self.shared.tell(&Reply::LastWord(word.clone()));
        for waiter in self.shared.state.lock().waiters.drain(..) {
            // Sent data still arrives.
            let _ = waiter.stream.shutdown(Shutdown::Both);
        }
    }

    /// Accepts no more requests, and waits for running ones.
    fn close(&self) {
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.accepting.lock().take() {
            let _ = thread.join();
        }
        self.shared.stop();
        let mut state = self.shared.state.lock();
        state.served = None;
        while state.running > 0 {
            self.shared.idle.wait(&mut state);
        }
        state.saver = None;
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.close();
    }
}

/// A running request: the volume stays meanwhile.
struct Running<'s> {
    shared: &'s Shared,
    served: Arc<Served>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().running -= 1;
        self.shared.idle.notify_all();
    }
}

impl Shared {
    fn accept(self: Arc<Self>, stream: UnixStream) {
        if let Err(why) = self.let_in(&stream) {
            // One short line fits the buffer, or the client is not reading.
            let _ = stream.set_nonblocking(true).and_then(|()| send(&stream, &Reply::Refused(why.to_owned())));
            return;
        }
        let shared = self.clone();
        let thread = thread::Builder::new().name("control-client".to_owned()).spawn(move || {
            // A client that is gone needs no answer.
            let _ = shared.answer(&stream);
            shared.state.lock().clients -= 1;
        });
        if thread.is_err() {
            self.state.lock().clients -= 1;
        }
    }

    /// Counts a client that may send requests.
    fn let_in(&self, stream: &UnixStream) -> Result<(), &'static str> {
        let peer = rustix::net::sockopt::socket_peercred(stream).map_err(|_| "the caller is unknown")?;
        // This process runs as the user who mounted.
        if !peer.uid.is_root() && peer.uid != rustix::process::getuid() {
            return Err("only root and the user who mounted the volume may do this");
        }
        let mut state = self.state.lock();
        if state.clients >= CLIENTS {
            return Err("too many clients are connected to its process");
        }
        state.clients += 1;
        Ok(())
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        for stop in &self.state.lock().stops {
            stop.store(true, Ordering::Release);
        }
    }

    fn status(&self) -> Status {
        let (served, detached, failing) = {
            let state = self.state.lock();
            (state.served.clone(), state.detached, state.failing.clone())
        };
        let process = std::process::id();
        let Some(served) = served else { return Status { process, ..Status::default() } };
        let report = served.fs.report();
        let State { failed, checkpoint, age_s } = State::of_report(&report).unwrap_or_default();
        let retrying_s = failing.as_ref().map(|(_, until)| until.saturating_duration_since(Instant::now()).as_secs());
        let failed = failing.map(|(why, _)| why).or(failed);
        // JSON strings are UTF-8.
        let mounted = (!detached).then(|| served.dir.display().to_string().into());
        let doomed = self.doom.as_ref().and_then(|doom| doom());
        Status { failed, checkpoint, age_s, mounted, retrying_s, process, doomed, report }
    }

    /// Sends a reply to all waiting clients.
    fn tell(&self, reply: &Reply) {
        for waiter in &self.state.lock().waiters {
            // A disconnected client is removed by its own thread.
            let _ = send(&waiter.stream, reply);
        }
    }

    fn begin(&self) -> Option<Running<'_>> {
        let mut state = self.state.lock();
        let served = state.served.clone()?;
        state.running += 1;
        Some(Running { shared: self, served })
    }

    fn answer(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (line, to) = receive(stream)?;
        let Ok(request) = serde_json::from_slice::<Request>(&line) else {
            return send(
                stream,
                &Reply::Refused("its process is of another version, which does not support this request".to_owned()),
            );
        };
        let ended = || Reply::Refused("it has just ended".to_owned());
        let reply = match request {
            Request::Status => Reply::Status(self.status()),
            Request::Retry => self.begin().map_or_else(ended, |running| self.retry(&running)),
            Request::Save { to: named } => {
                self.begin().map_or_else(ended, |running| self.save(&running, stream, to, named))
            }
            Request::Wait { give_up } => return self.wait(stream, give_up),
        };
        send(stream, &reply)
    }

    fn retry(&self, running: &Running<'_>) -> Reply {
        match running.served.fs.sync() {
            Ok(()) => {
                self.state.lock().failing = None;
                (running.served.poke)();
                Reply::Durable(self.status())
            }
            Err(error) => {
                log::error!("{}: not everything can be made durable: {error}", running.served.dir.display());
                Reply::Failed(Status { failed: Some(error.to_string()), ..self.status() })
            }
        }
    }

    fn save(&self, running: &Running<'_>, stream: &UnixStream, to: Option<OwnedFd>, named: PathBuf) -> Reply {
        let Some(saver) = self.state.lock().saver.clone() else {
            return Reply::Refused("it cannot save files".to_owned());
        };
        let Some(to) = to else { return Reply::Refused("no directory came with the request".to_owned()) };
        if rustix::fs::fstat(&to).is_ok_and(|stat| stat.st_dev == running.served.device) {
            return Reply::Refused(format!(
                "{}: is inside the mount itself; give a directory elsewhere",
                named.display()
            ));
        }
        let stop = Arc::new(AtomicBool::new(self.stop.load(Ordering::Acquire)));
        self.state.lock().stops.push(stop.clone());
        let saved = thread::scope(|scope| {
            // Stops the copy when the client hangs up.
            let (heard, stopped) = (stream, stop.clone());
            let _ = stream.set_read_timeout(None);
            scope.spawn(move || {
                let _ = (&*heard).read(&mut [0]);
                stopped.store(true, Ordering::Release);
            });
            let saved = saver(Saving { to, named, stop: stop.clone() });
            let _ = stream.shutdown(Shutdown::Read);
            saved
        });
        self.state.lock().stops.retain(|other| !Arc::ptr_eq(other, &stop));
        saved.map_or_else(Reply::Refused, Reply::Saved)
    }

    fn wait(&self, stream: &UnixStream, give_up: bool) -> io::Result<()> {
        let status = self.status();
        let number = {
            let mut state = self.state.lock();
            if state.served.is_none() {
                return send(stream, &Reply::Refused("it has just ended".to_owned()));
            }
            // Under the lock, so that no other reply comes before it.
            send(stream, &Reply::Waiting(status))?;
            let number = state.next;
            state.next += 1;
            state.waiters.push(Waiter { number, stream: stream.try_clone()?, give_up });
            number
        };
        stream.set_read_timeout(None)?;
        // Until either side closes.
        let read = (&*stream).read(&mut [0]);
        self.state.lock().waiters.retain(|waiter| waiter.number != number);
        read.map(drop)
    }
}

fn send(mut stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Receives a request, and the descriptor that came with it.
fn receive(stream: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let (mut line, mut descriptor) = (Vec::new(), None);
    let mut bytes = [0; 4096];
    while line.last() != Some(&b'\n') {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = rustix::net::recvmsg(stream.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                descriptor = descriptors.last().or(descriptor);
            }
        }
        line.extend_from_slice(&bytes[..got]);
        if got == 0 || line.len() > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok((line, descriptor))
}
