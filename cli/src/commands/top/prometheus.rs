//! Serves counters over HTTP: the text of the last refresh, for any path.
//!
//! One answer per connection, as in HTTP/1.0. Each client has a thread and a few seconds in total; if there are too
//! many slow clients, the oldest one is disconnected.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use device::{Clock, RealClock};

use crate::{Failure, output};

/// Time limit of a client, from its connection to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Delay after a failure to accept a connection.
const BREATH: Duration = Duration::from_millis(100);
/// Maximum number of clients at a time.
const CLIENTS: usize = 64;
/// Maximum length of a request.
const LONGEST: usize = 16 << 10;
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text to serve.
#[derive(Clone)]
pub struct Answers {
    text: Arc<Mutex<String>>,
    /// The server's address.
    pub at: SocketAddr,
}

impl Answers {
    /// Starts serving an empty text.
    fn serve(address: &str) -> Result<Self, Failure> {
        let named = |e: io::Error| Failure::from(format!("--prometheus {address}: {e}"));
        let listener = TcpListener::bind(address).map_err(named)?;
        let at = listener.local_addr().map_err(named)?;
        let answers = Answers { text: Arc::new(Mutex::new("# EOF\n".into())), at };
        let text = answers.text.clone();
        // The thread ends with the process.
        thread::Builder::new()
            .name("prometheus".into())
            .spawn(move || {
                let mut clients = VecDeque::new();
                for client in listener.incoming() {
                    // Ignore disconnected clients; a persistent accept error is handled by the delay.
                    let served = client.and_then(|client| welcome(&mut clients, client, &text));
                    if served.is_err() {
                        thread::sleep(BREATH);
                    }
                }
            })
            .map_err(named)?;
        Ok(answers)
    }

    /// Starts serving, and prints the address.
    pub fn begin(address: &str) -> Result<Self, Failure> {
        let answers = Self::serve(address)?;
        output::warn(&format!("counters at http://{}/metrics", answers.at));
        Ok(answers)
    }

    /// Sets the text to serve.
    pub fn set(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// Connected clients: a handle to disconnect each, and its thread.
type Served = VecDeque<(TcpStream, thread::JoinHandle<()>)>;

fn welcome(clients: &mut Served, client: TcpStream, text: &Arc<Mutex<String>>) -> io::Result<()> {
    clients.retain(|(_, thread)| !thread.is_finished());
    if clients.len() >= CLIENTS
        && let Some((dawdler, _)) = clients.pop_front()
    {
        // It may have disconnected meanwhile.
        let _ = dawdler.shutdown(Shutdown::Both);
    }
    let (held, text) = (client.try_clone()?, text.clone());
    let thread = thread::Builder::new().name("prometheus-client".into()).spawn(move || {
        let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let client = Timed { client, clock: RealClock::new() };
        // A client that is too slow gets no answer.
        let _ = answer(&client, &text);
        let _ = client.client.shutdown(Shutdown::Both);
    })?;
    clients.push_back((held, thread));
    Ok(())
}

/// A client with a time limit.
struct Timed {
    client: TcpStream,
    /// Time since its connection.
    clock: RealClock,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        match PATIENCE.saturating_sub(self.clock.monotonic()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for &Timed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.client.set_read_timeout(self.left()?)?;
        (&self.client).read(buf)
    }
}

impl Write for &Timed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.client.set_write_timeout(self.left()?)?;
        (&self.client).write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answer(mut client: &Timed, text: &str) -> io::Result<()> {
    let (mut asked, mut byte) = (Vec::new(), [0; 512]);
    while !asked.windows(4).any(|w| w == b"\r\n\r\n") && asked.len() < LONGEST {
        match client.read(&mut byte)? {
            0 => break,
            got => asked.extend_from_slice(&byte[..got]),
        }
    }
    let (status, body) = match asked.split(|b| *b == b' ').next() {
        Some(b"GET") => ("200 OK", text),
        Some(b"HEAD") => ("200 OK", ""),
        _ => ("405 Method Not Allowed", ""),
    };
    let length = if status.starts_with("200") { text.len() } else { 0 };
    write!(
        client,
        "HTTP/1.0 {status}\r\nContent-Type: {TYPE}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    client.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scraped(at: SocketAddr) -> String {
        let mut scraper = TcpStream::connect(at).unwrap();
        scraper.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        scraper.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        scraper.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn clients_that_say_nothing_keep_no_scraper_waiting() {
        let answers = Answers::serve("127.0.0.1:0").unwrap();
        answers.set("a 1\n# EOF\n".into());
        let silent = |n: usize| (0..n).map(|_| TcpStream::connect(answers.at).unwrap()).collect::<Vec<_>>();
        let few = silent(10);
        assert!(scraped(answers.at).ends_with("\r\n\r\na 1\n# EOF\n"));
        let many = silent(2 * CLIENTS);
        assert!(scraped(answers.at).ends_with("\r\n\r\na 1\n# EOF\n"));
        drop((few, many));
    }

    #[test]
    fn a_client_that_brings_a_byte_now_and_then_is_hung_up_on() {
        let answers = Answers::serve("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(answers.at).unwrap();
        slow.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let tries = 10 * (PATIENCE.as_secs() as usize + 10);
        let ended = (0..tries).any(|_| {
            let gone = slow.write_all(b"G").is_err();
            gone || !matches!(slow.read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock)
        });
        assert!(ended, "it is still served");
    }
}
