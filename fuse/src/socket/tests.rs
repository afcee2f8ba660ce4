//! How does a socket without a mount answer clients?

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// Connects to a socket by its name, with a time limit of ten seconds.
fn raw(name: &str) -> UnixStream {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

#[track_caller]
fn soon(mut is_so: impl FnMut() -> bool) {
    let mut tries = 0;
    while !is_so() {
        tries += 1;
        assert!(tries < 2000, "it never is so");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn image() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new().unwrap()
}

fn socket(image: &Path, saver: Option<Saver>) -> (Arc<ControlSocket>, Arc<AtomicUsize>) {
    let socket = Arc::new(ControlSocket::bind(Some(image), saver, None).unwrap());
    let poked = Arc::new(AtomicUsize::new(0));
    let count = poked.clone();
    let poke = Box::new(move || _ = count.fetch_add(1, Ordering::Relaxed));
    let fs = Arc::new(judges::memfs::MemFs::new(1 << 20));
    socket.serve(Served { fs, dir: "/mnt".into(), device: 0, poke }).unwrap();
    (socket, poked)
}

fn ask(image: &Path, request: &Request) -> Result<Reply, SocketError> {
    Client::of_image(image).unwrap().patience(Duration::from_secs(10)).ask(request, None)
}

#[test]
fn a_process_is_found_by_any_path_of_its_image_and_reports_its_state() {
    let (dir, image) = (tempfile::tempdir().unwrap(), image());
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(image.path(), &link).unwrap();
    assert!(matches!(Client::of_image(&link).err(), Some(SocketError::Nobody)));
    let (socket, _) = socket(image.path(), None);
    let Ok(Reply::Status(status)) = ask(&link, &Request::Status) else { panic!("no status") };
    assert_eq!((status.process, status.mounted), (std::process::id(), Some("/mnt".into())));
    assert_eq!((status.failed, status.retrying_s), (None, None));
    socket.detached();
    socket.failing("no room", Instant::now() + Duration::from_secs(50));
    let Ok(Reply::Status(status)) = ask(&link, &Request::Status) else { panic!("no status") };
    assert_eq!((status.failed.as_deref(), &status.mounted), (Some("no room"), &None));
    assert!(status.retrying_s.is_some_and(|s| (40..=50).contains(&s)), "{status:?}");
    assert!(matches!(Client::of_image(&dir.path().join("none")).err(), Some(SocketError::Io(_))));
    drop(socket);
    assert!(matches!(Client::of_image(&link).err(), Some(SocketError::Nobody)));
}

#[test]
fn a_successful_retry_ends_the_wait_for_the_next_one() {
    let image = image();
    let (socket, poked) = socket(image.path(), None);
    socket.failing("no room", Instant::now() + Duration::from_secs(50));
    let Ok(Reply::Durable(status)) = ask(image.path(), &Request::Retry) else { panic!("not durable") };
    assert_eq!((status.failed, poked.load(Ordering::Relaxed)), (None, 1));
}

#[test]
fn an_invalid_request_is_refused_with_a_text() {
    let image = image();
    let (socket, _) = socket(image.path(), None);
    for line in ["\n", "{}\n", "{\"ask\":\"dance\"}\n", "\u{0}\u{ff}\n", "[1,2]\n"] {
        let mut stream = raw(socket.name());
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"refused\":"), "{line:?}: {answer}");
    }
    // A client that never ends its line is disconnected, and the others are answered.
    let mut stream = raw(socket.name());
    let endless = std::iter::repeat_n([b'x'; 4096], 16).try_for_each(|part| stream.write_all(&part));
    let ended = endless.and_then(|()| stream.read(&mut [0; 16]));
    assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    assert!(matches!(ask(image.path(), &Request::Status), Ok(Reply::Status(_))));
    assert!(matches!(ask(image.path(), &Request::Save { to: "/x".into() }), Err(SocketError::Refused(_))));
}

#[test]
fn silent_clients_block_no_other_client_below_a_limit_that_is_reported() {
    let image = image();
    let (socket, _) = socket(image.path(), None);
    let mut silent: Vec<UnixStream> = (0..31).map(|_| raw(socket.name())).collect();
    assert!(matches!(ask(image.path(), &Request::Status), Ok(Reply::Status(_))));
    silent.extend((0..2).map(|_| raw(socket.name())));
    let mut said = String::new();
    silent.last_mut().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("too many clients"), "{said}");
    drop(silent);
    let again = || matches!(ask(image.path(), &Request::Status), Ok(Reply::Status(_)));
    soon(again);
}

#[test]
fn a_directory_comes_with_a_request_to_save_and_is_not_in_the_mount_itself() {
    let (image, dir) = (image(), tempfile::tempdir().unwrap());
    let saver: Saver = Arc::new(|saving: Saving| {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let file = rustix::fs::openat(&saving.to, "saved", flags, mode).map_err(|e| e.to_string())?;
        File::from(file).write_all(b"here").map_err(|e| e.to_string())?;
        Ok(Saved { files: 1, bytes: 4, failed: vec![saving.named.display().to_string()], failed_more: 0 })
    });
    let socket = ControlSocket::bind(Some(image.path()), Some(saver), None).unwrap();
    let device = std::fs::metadata("/proc").unwrap().dev();
    let fs = Arc::new(judges::memfs::MemFs::new(1 << 20));
    socket.serve(Served { fs, dir: "/mnt".into(), device, poke: Box::new(|| ()) }).unwrap();
    let save = |to: &Path| {
        let descriptor = File::open(to).unwrap();
        let request = Request::Save { to: "a name".into() };
        Client::of_image(image.path()).unwrap().ask(&request, Some(descriptor.as_fd()))
    };
    let Ok(Reply::Saved(saved)) = save(dir.path()) else { panic!("not saved") };
    assert_eq!((saved.files, saved.failed), (1, vec!["a name".to_owned()]));
    assert_eq!(std::fs::read(dir.path().join("saved")).unwrap(), b"here");
    let error = save(Path::new("/proc")).unwrap_err().to_string();
    assert!(error.contains("inside the mount itself"), "{error}");
    let error = ask(image.path(), &Request::Save { to: "/x".into() }).unwrap_err().to_string();
    assert!(error.contains("no directory came"), "{error}");
}

#[test]
fn copying_ends_when_its_client_hangs_up_and_when_the_process_ends() {
    let image = image();
    let stopped = Arc::new(AtomicBool::new(false));
    let seen = stopped.clone();
    let saver: Saver = Arc::new(move |saving: Saving| {
        while !saving.stop.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        seen.store(true, Ordering::Release);
        Err("interrupted".to_owned())
    });
    let (socket, _) = socket(image.path(), Some(saver));
    let begin = || {
        let mut client = raw(socket.name());
        let (line, mut space) = (b"{\"ask\":\"save\",\"to\":\"x\"}\n", [std::mem::MaybeUninit::uninit(); 64]);
        let here = File::open("/").unwrap();
        let descriptors = [here.as_fd()];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors)));
        let parts = [std::io::IoSlice::new(line)];
        rustix::net::sendmsg(&client, &parts, &mut control, rustix::net::SendFlags::empty()).unwrap();
        while !socket.is_busy() {
            std::thread::sleep(Duration::from_millis(1));
        }
        client.flush().unwrap();
        client
    };
    drop(begin());
    while socket.is_busy() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(stopped.swap(false, Ordering::AcqRel));
    let mut client = begin();
    socket.last_word(&LastWord::default());
    assert!(stopped.load(Ordering::Acquire));
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    assert_eq!(said, "{\"refused\":\"interrupted\"}\n");
}

#[test]
fn a_waiting_client_receives_all_reports_and_the_last_word() {
    let image = image();
    let (socket, _) = socket(image.path(), None);
    let wait = |give_up| {
        let mut client = Client::of_image(image.path()).unwrap().patience(Duration::from_secs(10));
        assert!(matches!(client.ask(&Request::Wait { give_up }, None), Ok(Reply::Waiting(_))));
        client
    };
    let mut first = wait(false);
    assert!(!socket.gives_up());
    let second = wait(true);
    assert!(socket.gives_up());
    drop(second);
    soon(|| !socket.gives_up());
    socket.failing("no room", Instant::now());
    let Ok(Reply::Failing(status)) = first.next() else { panic!("nothing said") };
    assert_eq!(status.failed.as_deref(), Some("no room"));
    let word =
        LastWord { lost: Some("no room".into()), checkpoint: Some(17), age_s: Some(95), amiss: None, doomed: false };
    socket.last_word(&word);
    assert_eq!(first.next().unwrap(), Reply::LastWord(word.clone()));
    assert!(matches!(first.next(), Err(SocketError::Ended)));
    assert_eq!(word.what_is_lost(), "everything since checkpoint 17 (95 s ago)");
    assert!(matches!(Client::of_image(image.path()).err(), Some(SocketError::Nobody)));
}

#[test]
fn waiting_ends_when_the_process_dies_or_the_time_limit_passes() {
    let image = image();
    let (socket, _) = socket(image.path(), None);
    let mut client = Client::of_image(image.path()).unwrap().patience(Duration::from_millis(50));
    client.ask(&Request::Wait { give_up: false }, None).unwrap();
    assert!(matches!(client.next(), Err(SocketError::Late { .. })));
    drop(socket);
    // A killed process: its listener closes with a client in the queue.
    let name = format!("{PREFIX}{}/x", identity(image.path()).unwrap());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    let mut client = Client::of_image(image.path()).unwrap().patience(Duration::from_secs(10));
    drop(listener);
    assert!(matches!(client.ask(&Request::Status, None), Err(SocketError::Ended)));
}
