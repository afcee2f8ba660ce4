//! The side that serves: who may ask, and what is answered.

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

/// How long a client may take to send its request, or to take an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest request.
const LONGEST: usize = 16 << 10;
/// Clients at once.
const CLIENTS: usize = 32;
/// How long a listener that cannot accept rests.
const PAUSE: Duration = Duration::from_millis(100);

/// Copies what is not durable.
pub type Saver = Arc<dyn Fn(Saving) -> Result<Saved, String> + Send + Sync>;

/// Says why the whole volume goes with its process, if it does.
pub type Doom = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Where to.
pub struct Saving {
    /// The directory.
    pub to: OwnedFd,
    /// What it is called where something fails.
    pub named: PathBuf,
    /// Set when nobody waits for it any more.
    pub stop: Arc<AtomicBool>,
}

/// What is served behind a socket.
pub(crate) struct Served {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) dir: PathBuf,
    /// The device number that files in the mount have.
    pub(crate) device: u64,
    /// Makes whoever waits to try the last checkpoint again try now.
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
    /// Nothing is running any more.
    idle: Condvar,
    /// Copying is to end.
    stop: AtomicBool,
}

#[derive(Default)]
struct Inner {
    /// It keeps the image open.
    saver: Option<Saver>,
    served: Option<Arc<Served>>,
    /// The mount is gone.
    detached: bool,
    /// Why the last checkpoint failed, and until when it is tried again.
    failing: Option<(String, Instant)>,
    waiters: Vec<Waiter>,
    clients: usize,
    /// Requests that are being worked on.
    running: usize,
    /// What the last of them stop by.
    stops: Vec<Arc<AtomicBool>>,
    next: u64,
}

struct Waiter {
    number: u64,
    stream: UnixStream,
    give_up: bool,
}

impl ControlSocket {
    /// Makes the socket for a mount of `image`. Clients can connect; they are answered once something is served.
    ///
    /// # Errors
    /// There are no Unix sockets here, or no random numbers.
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

    /// Answers from now on.
    pub(crate) fn serve(&self, served: Served) -> io::Result<()> {
        let (listener, shared) = (self.listener.try_clone()?, self.shared.clone());
        shared.state.lock().served = Some(Arc::new(served));
        let thread = thread::Builder::new().name("control-socket".to_owned()).spawn(move || {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => shared.clone().accept(stream),
                    // The listener was shut down.
                    Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return,
                    // Too many open files, or a client that is gone again.
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        })?;
        *self.accepting.lock() = Some(thread);
        Ok(())
    }

    /// The mount is gone; the volume is not yet.
    pub(crate) fn detached(&self) {
        self.shared.state.lock().detached = true;
    }

    /// The last checkpoint failed and is tried again until then.
    pub(crate) fn failing(&self, why: &str, until: Instant) {
        self.shared.state.lock().failing = Some((why.to_owned(), until));
        let status = self.shared.status();
        self.shared.tell(&Reply::Failing(status));
    }

    /// True if a client that waits for the end wants no further attempts.
    pub(crate) fn gives_up(&self) -> bool {
        self.shared.state.lock().waiters.iter().any(|waiter| waiter.give_up)
    }

    /// True if something that was asked for is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.state.lock().running > 0
    }

    /// Ends what is under way.
    pub(crate) fn stop(&self) {
        self.shared.stop();
    }

    /// How it is now.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Says to those who wait how it ended. No more is answered. Called while the image is still locked.
    pub fn last_word(&self, word: &LastWord) {
        self.close();
        self.shared.tell(&Reply::LastWord(word.clone()));
        for waiter in self.shared.state.lock().waiters.drain(..) {
            // What was written arrives all the same.
            let _ = waiter.stream.shutdown(Shutdown::Both);
        }
    }

    /// Takes no more requests, and waits for those under way.
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

/// A request that is worked on: the volume does not go meanwhile.
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
            // One small line fits, or nobody reads it.
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

    /// Counts a client that may ask.
    fn let_in(&self, stream: &UnixStream) -> Result<(), &'static str> {
        let peer = rustix::net::sockopt::socket_peercred(stream).map_err(|_| "it is not known who asks")?;
        // Who mounted is who this process runs as.
        if !peer.uid.is_root() && peer.uid != rustix::process::getuid() {
            return Err("only root and the user who mounted may ask this");
        }
        let mut state = self.state.lock();
        if state.clients >= CLIENTS {
            return Err("too many others are connected to its process");
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
        // JSON has no other names.
        let mounted = (!detached).then(|| served.dir.display().to_string().into());
        let doomed = self.doom.as_ref().and_then(|doom| doom());
        Status { failed, checkpoint, age_s, mounted, retrying_s, process, doomed, report }
    }

    /// Says something to all who wait.
    fn tell(&self, reply: &Reply) {
        for waiter in &self.state.lock().waiters {
            // One that is gone is taken out by its own thread.
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
                &Reply::Refused("its process is of another version, which does not know this".to_owned()),
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
            return Reply::Refused("nothing can be saved of it".to_owned());
        };
        let Some(to) = to else { return Reply::Refused("no directory came with the request".to_owned()) };
        if rustix::fs::fstat(&to).is_ok_and(|stat| stat.st_dev == running.served.device) {
            return Reply::Refused(format!("{}: is in the mount itself; name a place elsewhere", named.display()));
        }
        let stop = Arc::new(AtomicBool::new(self.stop.load(Ordering::Acquire)));
        self.state.lock().stops.push(stop.clone());
        let saved = thread::scope(|scope| {
            // Nobody waits for it any more once the client has hung up.
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
            // Under the lock, so that no other word comes before it.
            send(stream, &Reply::Waiting(status))?;
            let number = state.next;
            state.next += 1;
            state.waiters.push(Waiter { number, stream: stream.try_clone()?, give_up });
            number
        };
        stream.set_read_timeout(None)?;
        // Until either side has ended.
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

/// A request, and the descriptor that came with it.
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
