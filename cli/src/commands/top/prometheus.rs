//! Who scrapes counters gets them over HTTP: the text of the last refresh, whatever path is asked for.
//!
//! One answer a connection, as HTTP/1.0 has it. A client that dawdles is hung up on.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Failure;

/// How long a client may take for a step.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request that is read.
const LONGEST: usize = 16 << 10;
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is answered.
#[derive(Clone)]
pub struct Answers {
    text: Arc<Mutex<String>>,
    /// Where they are to be had.
    pub at: SocketAddr,
}

impl Answers {
    /// Begins to answer; nothing was measured yet.
    fn serve(address: &str) -> Result<Self, Failure> {
        let named = |e: io::Error| Failure::from(format!("--prometheus {address}: {e}"));
        let listener = TcpListener::bind(address).map_err(named)?;
        let at = listener.local_addr().map_err(named)?;
        let answers = Answers { text: Arc::new(Mutex::new("# EOF\n".into())), at };
        let text = answers.text.clone();
        // It ends with the process.
        thread::Builder::new()
            .name("prometheus".into())
            .spawn(move || {
                for client in listener.incoming() {
                    let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    // A client that is gone needs no answer, and one error to accept is followed by others soon.
                    match client {
                        Ok(client) => _ = answer(client, &text),
                        Err(_) => thread::sleep(PATIENCE),
                    }
                }
            })
            .map_err(named)?;
        Ok(answers)
    }

    /// The same, and says where.
    pub fn begin(address: &str) -> Result<Self, Failure> {
        let answers = Self::serve(address)?;
        eprintln!("joulefs: counters at http://{}/metrics", answers.at);
        Ok(answers)
    }

    /// What is answered from now on.
    pub fn set(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

fn answer(mut client: TcpStream, text: &str) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
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
