//! What may one client request, and how is it answered?
//!
//! A session is a [`handshake`] and then a [`transmission`], over any reader and writer. Requests run one after the
//! other, in order of arrival; clients that want parallel requests open several connections.
//!
//! A session holds at most one request's data, up to [`REQUEST_LIMIT`].

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use device::DeviceError;
use device::gauge::Gauge;

use crate::word::{
    self, Answer, Choice, Command, Errno, Fact, Flags, Handshake, OptionHead, REQUEST_LIMIT, Request, Transmission,
    Wanted, WordError,
};

/// A buffer larger than this is freed after its request.
const KEPT: usize = 1 << 20;

/// The server's only disk. Its export name is empty, the protocol's default.
pub struct Export {
    /// The device.
    pub gauge: Arc<Gauge>,
    /// Description for people.
    pub description: String,
}

/// Why a session ended without the client's request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The client violates the protocol.
    #[error(transparent)]
    Word(#[from] WordError),
    /// It selects an unknown export with an option that has no error reply.
    #[error("no export {0:?}")]
    NoExport(String),
    /// There is no slot for it.
    #[error("rejected: {0}")]
    NoPlace(String),
    /// The connection broke, or a time limit passed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

type Result<T> = std::result::Result<T, SessionError>;

/// What follows a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Requests.
    Transmission,
    /// Nothing: the client is done.
    End,
}

/// The next bytes, or none if the other side closed just before them. If it may be `idle`, there is no time limit for
/// the first byte.
fn next<const N: usize>(input: &mut impl Read, idle: bool) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match input.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if idle && filled == 0 && matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Some(bytes))
}

/// Fills `buf` with exactly `length` bytes. It grows as they arrive: a length alone takes no memory.
fn data(input: &mut impl Read, length: u32, buf: &mut Vec<u8>) -> io::Result<()> {
    buf.clear();
    match input.take(length.into()).read_to_end(buf)? == length as usize {
        true => Ok(()),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Flags of the export's capabilities.
fn offered(export: &Export) -> Transmission {
    use Transmission as T;
    // All connections share one device and no connection has its own cache: a flush on any of them flushes everything
    // answered on all.
    let always = T::HAS_FLAGS | T::CAN_MULTI_CONN;
    if export.gauge.disk().read_only() {
        always | T::READ_ONLY
    } else {
        always | T::SEND_FLUSH | T::SEND_FUA | T::SEND_TRIM | T::SEND_WRITE_ZEROES
    }
}

/// Negotiates with a client. `admit` gives it a slot when it wants to send requests, or returns why there is none.
pub fn handshake(
    input: &mut impl Read,
    output: &mut impl Write,
    export: &Export,
    mut admit: impl FnMut() -> std::result::Result<(), String>,
) -> Result<Next> {
    output.write_all(&word::greeting())?;
    let Some(flags) = next(input, false)? else { return Ok(Next::End) };
    let flags = word::client_flags(flags)?;
    let mut buf = Vec::new();
    while let Some(head) = next(input, false)? {
        let head = OptionHead::decode(head)?;
        data(input, head.length, &mut buf)?;
        let mut answer = |answer, data: &[u8]| output.write_all(&word::option_reply(head.number, answer, data));
        match head.choice() {
            Choice::ExportName if buf.is_empty() => {
                // This option has no error reply.
                admit().map_err(SessionError::NoPlace)?;
                let fact = word::export(export.gauge.disk().bytes(), offered(export));
                let padding = if flags.contains(Handshake::NO_ZEROES) { 0 } else { 124 };
                output.write_all(&[&fact[2..], &vec![0; padding]].concat())?;
                return Ok(Next::Transmission);
            }
            Choice::ExportName => return Err(SessionError::NoExport(String::from_utf8_lossy(&buf).into_owned())),
            Choice::Abort => {
                answer(Answer::Ack, &[])?;
                return Ok(Next::End);
            }
            Choice::List if buf.is_empty() => {
                // One export, with an empty name.
                answer(Answer::Server, &0_u32.to_be_bytes())?;
                answer(Answer::Ack, &[])?;
            }
            Choice::List => answer(Answer::Invalid, &[])?,
            choice @ (Choice::Info | Choice::Go) => match Wanted::decode(&buf) {
                None => answer(Answer::Invalid, &[])?,
                Some(wanted) if !wanted.name.is_empty() => answer(Answer::Unknown, b"the only export has no name")?,
                Some(wanted) => {
                    if choice == Choice::Go
                        && let Err(why) = admit()
                    {
                        answer(Answer::Policy, why.as_bytes())?;
                        return Err(SessionError::NoPlace(why));
                    }
                    answer(Answer::Info, &word::export(export.gauge.disk().bytes(), offered(export)))?;
                    if wanted.includes(Fact::Description) {
                        answer(Answer::Info, &word::description(&export.description))?;
                    }
                    if wanted.includes(Fact::BlockSize) {
                        answer(Answer::Info, &word::block_size())?;
                    }
                    answer(Answer::Ack, &[])?;
                    if choice == Choice::Go {
                        return Ok(Next::Transmission);
                    }
                }
            },
            Choice::Other => answer(Answer::Unsupported, &[])?,
        }
    }
    Ok(Next::End)
}

/// Handles a client's requests until it disconnects, or `stop` returns true between two requests. Between them it may
/// be silent for any time, like an unused mounted disk; if `input` times out within a request, the session ends.
pub fn transmission(
    input: &mut impl Read,
    output: &mut impl Write,
    export: &Export,
    stop: impl Fn() -> bool,
) -> Result<()> {
    let mut buf = Vec::new();
    while let Some(bytes) = next(input, true)? {
        let request = Request::decode(bytes)?;
        let too_long = request.length > REQUEST_LIMIT;
        if request.command == Command::Disconnect || stop() {
            return Ok(());
        }
        if request.command == Command::Write {
            if too_long {
                skip(input, request.length)?;
            } else {
                data(input, request.length, &mut buf)?;
            }
        }
        let result = match request.command {
            Command::Read | Command::Write if too_long => Err(Errno::Invalid),
            Command::Read => {
                // The answer and the data are sent together.
                buf.clear();
                buf.extend(word::reply(request.cookie, Ok(())));
                read(export, &request, &mut buf)
            }
            _ => change(export, &request, &buf),
        };
        match result {
            Ok(()) if request.command == Command::Read => output.write_all(&buf)?,
            _ => output.write_all(&word::reply(request.cookie, result))?,
        }
        if buf.capacity() > KEPT {
            buf = Vec::new();
        }
    }
    Ok(())
}

/// Skips unwanted data.
fn skip(input: &mut impl Read, length: u32) -> io::Result<()> {
    match io::copy(&mut input.take(length.into()), &mut io::sink())? == u64::from(length) {
        true => Ok(()),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Appends the data to `out`.
fn read(export: &Export, request: &Request, out: &mut Vec<u8>) -> std::result::Result<(), Errno> {
    let (disk, length) = (export.gauge.disk(), request.length as usize);
    // FUA has no meaning for a read and is no error.
    if !(request.flags - Flags::FUA).is_empty() || !disk.holds(request.offset, length as u64) {
        return Err(Errno::Invalid);
    }
    let head = out.len();
    out.resize(head + length, 0);
    disk.read(request.offset, &mut out[head..]).map(drop).map_err(failed)
}

/// Runs every request that returns no data.
fn change(export: &Export, request: &Request, payload: &[u8]) -> std::result::Result<(), Errno> {
    let (disk, at, length) = (export.gauge.disk(), request.offset, u64::from(request.length));
    let known = match request.command {
        Command::WriteZeroes => Flags::FUA | Flags::NO_HOLE,
        _ => Flags::FUA,
    };
    if !(request.flags - known).is_empty() {
        return Err(Errno::Invalid);
    }
    let inside = disk.holds(at, length);
    match request.command {
        Command::Flush if (at, length) != (0, 0) => return Err(Errno::Invalid),
        Command::Flush => return disk.flush().map_err(failed),
        Command::Write | Command::Trim | Command::WriteZeroes if disk.read_only() => return Err(Errno::Permission),
        Command::Write | Command::WriteZeroes if !inside => return Err(Errno::NoSpace),
        Command::Write => disk.write(at, payload).map(drop),
        Command::Trim if !inside => return Err(Errno::Invalid),
        Command::Trim => disk.trim(at, length),
        Command::WriteZeroes if request.flags.contains(Flags::NO_HOLE) => disk.zero(at, length),
        Command::WriteZeroes => disk.discard(at, length),
        Command::Read | Command::Disconnect | Command::Other => return Err(Errno::Invalid),
    }
    .map_err(failed)?;
    if request.flags.contains(Flags::FUA) { disk.flush().map_err(failed) } else { Ok(()) }
}

/// Converts a failure to an NBD error number and logs its text.
fn failed(error: DeviceError) -> Errno {
    match error {
        DeviceError::ReadOnly { .. } => Errno::Permission,
        DeviceError::OutOfRange { .. } => Errno::NoSpace,
        other => {
            log::error!("{other}");
            Errno::Io
        }
    }
}
