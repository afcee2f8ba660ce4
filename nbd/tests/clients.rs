//! A server answers clients that are byte-exact.

#[allow(dead_code)]
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use device::BLOCK;
use device::energy::Operation;
use device::gauge::Gauge;
use nbd::{Address, ListenError, Listener, Patience, Stop};
use tempfile::TempDir;

use crate::drivers;

const BLOCKS: u64 = 64;
const BYTES: u64 = BLOCKS * BLOCK as u64;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const NO_HOLE: u16 = 2;

struct Server {
    gauge: Arc<Gauge>,
    stop: Arc<Stop>,
    thread: JoinHandle<Result<(), ListenError>>,
    dir: TempDir,
}

impl Server {
    fn start() -> Self {
        Self::patient(Patience::default())
    }

    fn patient(patience: Patience) -> Self {
        let dir = TempDir::new().unwrap();
        let listener = Listener::bind(&Address::Unix(dir.path().join("socket"))).unwrap().with_patience(patience);
        let (export, stop) = (drivers::export(BLOCKS), Arc::new(Stop::new().unwrap()));
        let (gauge, until) = (export.gauge.clone(), stop.clone());
        let thread = thread::spawn(move || listener.serve(export, &until));
        Server { gauge, stop, thread, dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Number of device requests by type.
    fn counts(&self) -> [u64; 4] {
        let ledger = self.gauge.report().ledger;
        [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard]
            .map(|o| ledger.operation(o).operations)
    }

    fn end(self) {
        self.stop.now().unwrap();
        self.thread.join().unwrap().unwrap();
        assert!(!self.dir.path().join("socket").exists());
    }
}

struct Client(UnixStream);

impl Client {
    /// Connects and sends the client's flags.
    fn connect(socket: &Path, flags: u32) -> Self {
        let mut client = Client(UnixStream::connect(socket).unwrap());
        assert_eq!(client.take(18), *b"NBDMAGICIHAVEOPT\0\x03");
        client.0.write_all(&flags.to_be_bytes()).unwrap();
        client
    }

    /// Connects, negotiates and continues with requests.
    fn ready(socket: &Path) -> Self {
        let mut client = Self::connect(socket, 3);
        client.option(7, &[0, 0, 0, 0, 0, 0]);
        assert_eq!(client.answer(7).0, 3);
        assert_eq!(client.answer(7), (1, vec![]));
        client
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        let mut buf = vec![0; n];
        self.0.read_exact(&mut buf).unwrap();
        buf
    }

    fn option(&mut self, number: u32, data: &[u8]) {
        let length = data.len() as u32;
        let head = [&b"IHAVEOPT"[..], &number.to_be_bytes(), &length.to_be_bytes(), data].concat();
        self.0.write_all(&head).unwrap();
    }

    fn answer(&mut self, option: u32) -> (u32, Vec<u8>) {
        let head = self.take(20);
        assert_eq!(head[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        assert_eq!(head[8..12], option.to_be_bytes());
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        (word(12), self.take(word(16) as usize))
    }

    fn send(&mut self, command: u16, flags: u16, offset: u64, length: u32, data: &[u8]) {
        let mut out = vec![0x25, 0x60, 0x95, 0x13];
        out.extend(flags.to_be_bytes());
        out.extend(command.to_be_bytes());
        out.extend(b"a cookie");
        out.extend(offset.to_be_bytes());
        out.extend(length.to_be_bytes());
        out.extend(data);
        self.0.write_all(&out).unwrap();
    }

    /// The error number, or `length` bytes of data.
    fn reply(&mut self, length: u32) -> Result<Vec<u8>, u32> {
        let head = self.take(16);
        assert_eq!((&head[..4], &head[8..]), (&[0x67, 0x44, 0x66, 0x98][..], &b"a cookie"[..]));
        match u32::from_be_bytes(head[4..8].try_into().unwrap()) {
            0 => Ok(self.take(length as usize)),
            error => Err(error),
        }
    }

    fn ask(&mut self, command: u16, flags: u16, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        self.send(command, flags, offset, length, &[]);
        self.reply(if command == READ { length } else { 0 })
    }

    fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Result<Vec<u8>, u32> {
        self.send(WRITE, flags, offset, data.len() as u32, data);
        self.reply(0)
    }

    fn closed(&mut self) {
        // Unread bytes from us turn the close into a reset.
        match self.0.read(&mut [0]) {
            Ok(n) => assert_eq!(n, 0),
            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn a_client_learns_size_and_capabilities_of_the_disk() {
    let server = Server::start();
    let mut client = Client::connect(&server.socket(), 3);
    client.option(3, &[]);
    assert_eq!(client.answer(3), (2, vec![0; 4]));
    assert_eq!(client.answer(3), (1, vec![]));
    client.option(3, b"?");
    assert_eq!(client.answer(3).0, (1 << 31) + 3, "LIST has no data");
    for unknown in [5, 8, 9, 10, 11, 77] {
        client.option(unknown, b"whatever");
        assert_eq!(client.answer(unknown).0, (1 << 31) + 1);
    }
    client.option(6, &[0, 0, 0, 1, b'x', 0, 0]);
    assert_eq!(client.answer(6).0, (1 << 31) + 6, "no export x");
    for broken in [&[][..], &[0, 0, 0, 9, 0, 0], &[0xff, 0xff, 0xff, 0xff, 0, 0], &[0, 0, 0, 0, 0, 2, 0, 3], &[0; 7]] {
        client.option(7, broken);
        assert_eq!(client.answer(7).0, (1 << 31) + 3, "{broken:?}");
    }
    client.option(6, &[0, 0, 0, 0, 0, 2, 0, 3, 0, 2]);
    // Flags, flush, FUA, trim, zeroes, several connections; not read-only, nothing else.
    let flags = 1 | 4 | 8 | 32 | 64 | 256_u16;
    let fact = [&[0, 0][..], &BYTES.to_be_bytes(), &flags.to_be_bytes()].concat();
    assert_eq!(client.answer(6), (3, fact.clone()));
    assert_eq!(client.answer(6), (3, [&[0, 2][..], b"sixteen blocks"].concat()));
    assert_eq!(client.answer(6), (3, vec![0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0]));
    assert_eq!(client.answer(6), (1, vec![]));
    client.option(2, &[]);
    assert_eq!(client.answer(2), (1, vec![]));
    client.closed();

    for (flags, padding) in [(3, 0), (1, 124), (0, 124)] {
        let mut old = Client::connect(&server.socket(), flags);
        old.option(1, &[]);
        assert_eq!(old.take(10), fact[2..]);
        assert_eq!(old.take(padding), vec![0; padding]);
        assert_eq!(old.ask(READ, 0, 0, 1), Ok(vec![0]));
        old.send(DISCONNECT, 0, 0, 0, &[]);
        old.closed();
    }
    let mut other = Client::connect(&server.socket(), 3);
    other.option(1, b"other");
    other.closed();
    server.end();
}

#[test]
fn every_request_has_its_own_cost() {
    let server = Server::start();
    let mut client = Client::ready(&server.socket());
    let block = BLOCK as u64;
    let ok = Ok(vec![]);
    let mut before = server.counts();
    let mut cost = |what: &str, expected: [u64; 4]| {
        let now = server.counts();
        assert_eq!([0, 1, 2, 3].map(|n| now[n] - before[n]), expected, "{what}: reads, writes, flushes, discards");
        before = now;
    };
    assert_eq!(client.write(0, 0, &[1; 4 * BLOCK]), ok);
    cost("a write", [0, 1, 0, 0]);
    assert_eq!(client.write(FUA, 4 * block, &[2; BLOCK]), ok);
    cost("a write through", [0, 1, 1, 0]);
    assert_eq!(client.write(0, 512, &[3; 512]), ok);
    cost("a part of a block", [1, 1, 0, 0]);
    assert_eq!(client.ask(FLUSH, 0, 0, 0), ok);
    cost("a flush", [0, 0, 1, 0]);
    let found = client.ask(READ, FUA, 511, 514).unwrap();
    assert_eq!((found[0], &found[1..513], found[513]), (1, &[3; 512][..], 1));
    cost("a read", [1, 0, 0, 0]);
    assert_eq!(client.ask(TRIM, 0, 1, 3 * BLOCK as u32), ok);
    cost("a trim of parts and two whole blocks", [0, 0, 0, 1]);
    assert_eq!(client.ask(TRIM, 0, 1, 100), ok);
    cost("a trim of no whole block", [0; 4]);
    assert_eq!(client.ask(TRIM, FUA, 0, BLOCK as u32), ok);
    cost("a trim that lasts", [0, 0, 1, 1]);
    assert_eq!(client.ask(WRITE_ZEROES, 0, 2 * block, 2 * BLOCK as u32), ok);
    cost("zeroes that may be a hole", [0, 0, 0, 1]);
    assert_eq!(client.ask(WRITE_ZEROES, NO_HOLE | FUA, 4 * block, BLOCK as u32), ok);
    cost("zeroes that last", [0, 1, 1, 0]);
    assert_eq!(client.write(0, 60, &[]), ok);
    assert_eq!(client.ask(READ, 0, BYTES, 0), ok);
    cost("nothing", [0; 4]);
    assert_eq!(client.ask(READ, 0, 0, 5 * BLOCK as u32), Ok(vec![0; 5 * BLOCK]));
    server.end();
}

#[test]
fn an_impossible_request_is_refused_and_the_next_one_is_served() {
    const INVALID: Result<Vec<u8>, u32> = Err(22);
    const NO_SPACE: Result<Vec<u8>, u32> = Err(28);
    let server = Server::start();
    let mut client = Client::ready(&server.socket());
    assert_eq!(client.ask(READ, 0, BYTES, 1), INVALID);
    assert_eq!(client.ask(READ, 0, u64::MAX, 2), INVALID);
    assert_eq!(client.ask(READ, 0, 0, u32::MAX), INVALID);
    assert_eq!(client.ask(READ, 4, 0, 1), INVALID, "a flag of structured replies");
    assert_eq!(client.write(0, BYTES - 1, b"ab"), NO_SPACE);
    assert_eq!(client.write(0, u64::MAX - 1, b"ab"), NO_SPACE);
    assert_eq!(client.write(1 << 9, 0, b"ab"), INVALID);
    assert_eq!(client.ask(TRIM, 0, 1, BYTES as u32), INVALID);
    assert_eq!(client.ask(TRIM, NO_HOLE, 0, BLOCK as u32), INVALID);
    assert_eq!(client.ask(WRITE_ZEROES, 0, 1, BYTES as u32), NO_SPACE);
    assert_eq!(client.ask(WRITE_ZEROES, 16, 0, 1), INVALID, "zeroes in no time were not offered");
    assert_eq!(client.ask(FLUSH, 0, 1, 0), INVALID);
    for unknown in [5, 7, 8, 99, u16::MAX] {
        assert_eq!(client.ask(unknown, 0, 0, 0), INVALID, "{unknown}");
    }
    assert_eq!(server.counts(), [0; 4], "what is refused costs nothing");
    // Longer than a request may be: read and dropped.
    let long = (1 << 25) + 1;
    client.send(WRITE, 0, 0, long, &[]);
    client.0.write_all(&vec![9; long as usize]).unwrap();
    assert_eq!(client.reply(0), INVALID);
    assert_eq!(client.ask(READ, 0, 0, 1), Ok(vec![0]));
    server.end();
}

#[test]
fn a_bad_client_is_cut_off_and_other_clients_go_on() {
    let server = Server::start();
    let mut good = Client::ready(&server.socket());
    let bad: [&dyn Fn() -> Client; 5] = [
        &|| Client::connect(&server.socket(), 4),
        &|| Client::connect(&server.socket(), 0x1_0003),
        &|| {
            let mut c = Client::connect(&server.socket(), 3);
            c.0.write_all(b"GET / HTTP/1.1\r\n").unwrap();
            c
        },
        &|| {
            // An option with a gigabyte of data.
            let mut c = Client::connect(&server.socket(), 3);
            c.0.write_all(b"IHAVEOPT\0\0\0\x07\x40\0\0\0").unwrap();
            c
        },
        &|| {
            let mut c = Client::ready(&server.socket());
            c.0.write_all(&[0; 28]).unwrap();
            c
        },
    ];
    for bad in bad {
        bad().closed();
        assert_eq!(good.ask(READ, 0, 0, 1), Ok(vec![0]));
    }
    // Clients that disconnect in the middle of a message, of data, of an answer.
    let mut c = Client::ready(&server.socket());
    c.send(WRITE, 0, 0, 1000, &[1; 999]);
    drop(c);
    let mut c = Client::ready(&server.socket());
    c.0.write_all(&[0x25]).unwrap();
    drop(c);
    let mut c = Client::ready(&server.socket());
    c.send(READ, 0, 0, BYTES as u32, &[]);
    drop(c);
    assert_eq!(good.ask(READ, 0, 0, 1), Ok(vec![0]));
    server.end();
}

#[test]
fn clients_beyond_the_limit_are_refused_until_one_leaves() {
    let server = Server::start();
    let mut clients: Vec<Client> = (0..32).map(|_| Client::ready(&server.socket())).collect();
    let mut more = Client::connect(&server.socket(), 3);
    more.option(7, &[0, 0, 0, 0, 0, 0]);
    let (refused, why) = more.answer(7);
    let why = String::from_utf8(why).unwrap();
    assert_eq!(refused, (1 << 31) + 2, "{why}");
    assert!(why.contains("32 clients are connected") && why.contains("disconnect one"), "{why}");
    more.closed();
    // An old client, to which no error can be reported.
    let mut old = Client::connect(&server.socket(), 3);
    old.option(1, &[]);
    old.closed();
    assert_eq!(clients[31].ask(READ, 0, 0, 1), Ok(vec![0]));
    let mut last = clients.pop().unwrap();
    last.send(DISCONNECT, 0, 0, 0, &[]);
    last.closed();
    // The client leaves the list before its connection is closed.
    assert_eq!(Client::ready(&server.socket()).ask(READ, 0, 0, 1), Ok(vec![0]));
    server.end();
}

/// Time limits short enough for a test, and long enough for a busy machine.
const SHORT: Patience = Patience { handshake: Duration::from_millis(700), transfer: Duration::from_millis(700) };

#[test]
fn silent_clients_block_no_other_client() {
    let server = Server::start();
    let silent: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(server.socket()).unwrap()).collect();
    assert_eq!(Client::ready(&server.socket()).ask(READ, 0, 0, 1), Ok(vec![0]));
    drop(silent);
    server.end();
}

#[test]
fn the_time_to_settle_runs_out_though_a_byte_comes_now_and_then() {
    let server = Server::patient(SHORT);
    let mut slow = Client::connect(&server.socket(), 3);
    slow.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    // A long option that arrives byte by byte.
    slow.0.write_all(&[&b"IHAVEOPT"[..], &[0, 0, 0, 99], &[0, 0, 0x10, 0]].concat()).unwrap();
    let ended = (0..100).any(|_| {
        let gone = slow.0.write_all(&[0]).is_err();
        gone || !matches!(slow.0.read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock)
    });
    assert!(ended, "after ten seconds it still settles what it wants");
    server.end();
}

#[test]
fn a_client_may_be_silent_between_requests_and_not_within_one() {
    let server = Server::patient(SHORT);
    let (mut idle, mut stuck) = (Client::ready(&server.socket()), Client::ready(&server.socket()));
    let mut half = Client::ready(&server.socket());
    stuck.send(WRITE, 0, 0, 4096, &[1; 100]);
    half.0.write_all(&[0x25, 0x60]).unwrap();
    for client in [&mut stuck, &mut half] {
        client.0.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.closed();
    }
    thread::sleep(2 * SHORT.transfer);
    assert_eq!(idle.ask(READ, 0, 0, 2), Ok(vec![0; 2]), "an idle disk was taken away, or half a request was done");
    server.end();
}

#[test]
fn a_client_that_takes_no_answer_is_cut_off() {
    let server = Server::patient(SHORT);
    let mut deaf = Client::ready(&server.socket());
    // More answers than a socket buffers, and the client reads none.
    deaf.0.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    for _ in 0..1000 {
        let mut out = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0];
        out.extend(b"a cookie");
        out.extend(0_u64.to_be_bytes());
        out.extend((BYTES as u32).to_be_bytes());
        match deaf.0.write_all(&out) {
            Ok(()) => {}
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{e}");
                break;
            }
        }
    }
    // The answers until then, followed by the end of the stream.
    let mut left = Vec::new();
    let _ = deaf.0.read_to_end(&mut left);
    assert!(left.len() < 1000 * BYTES as usize, "all was answered");
    server.end();
}

#[test]
fn one_connection_reads_the_data_of_another() {
    let server = Server::start();
    let (mut one, mut two) = (Client::ready(&server.socket()), Client::ready(&server.socket()));
    one.write(0, 100, b"hello").unwrap();
    assert_eq!(two.ask(READ, 0, 100, 5), Ok(b"hello".to_vec()));
    let threads: Vec<_> = (0..4u8)
        .map(|n| {
            let mut client = Client::ready(&server.socket());
            // All threads write to the same blocks, each to its own part.
            thread::spawn(move || {
                for at in 0..64u64 {
                    client.write(0, at * 512 + u64::from(n) * 128, &[n + 1; 128]).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let found = one.ask(READ, 0, 0, 64 * 512).unwrap();
    for (at, byte) in found.iter().enumerate() {
        assert_eq!(usize::from(*byte), at / 128 % 4 + 1, "byte {at}");
    }
    server.end();
}

#[test]
fn a_server_ends_although_silent_clients_stay() {
    let server = Server::start();
    let silent = UnixStream::connect(server.socket()).unwrap();
    let mut ready = Client::ready(&server.socket());
    let socket = server.socket();
    server.end();
    ready.closed();
    drop(silent);
    assert_eq!(UnixStream::connect(socket).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_socket_belongs_to_its_user_and_is_replaced_only_without_a_listener() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("socket");
    let place = Address::Unix(path.clone());
    // Left behind by a killed server.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = Listener::bind(&place).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(Listener::bind(&place), Err(ListenError::Taken(p)) if p == path));
    drop(listener);
    assert!(!path.exists());

    fs::write(&path, b"precious").unwrap();
    assert!(matches!(Listener::bind(&place), Err(ListenError::NoSocket(p)) if p == path));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    fs::remove_file(&path).unwrap();

    // Another program replaced the socket: the listener must not remove it.
    let listener = Listener::bind(&place).unwrap();
    fs::remove_file(&path).unwrap();
    let theirs = UnixListener::bind(&path).unwrap();
    drop(listener);
    assert!(path.exists());
    drop(theirs);
    let nowhere = Listener::bind(&Address::Unix(dir.path().join("no/such/socket")));
    assert!(nowhere.err().unwrap().to_string().contains("no/such/socket"));
}
