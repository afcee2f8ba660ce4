//! What do the protocol's bytes mean?
//!
//! The fixed newstyle handshake and simple replies, as `doc/proto.md` of the NBD project describes them; all
//! numbers are big-endian. No I/O here, and no panic on any bytes.

use bitflags::bitflags;

/// The longest data of an option that is listened to. The longest sensible one is a name of 4,096 bytes and a few
/// numbers.
pub const OPTION_LIMIT: u32 = 1 << 13;

/// The most bytes one request may read or write: what clients that do not ask may rely on.
pub const REQUEST_LIMIT: u32 = 1 << 25;

/// What a client sends that ends the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    /// Not the number that starts an option.
    #[error("{found:#018x} at the start of an option")]
    NoOption {
        /// What stands there.
        found: u64,
    },
    /// Not the number that starts a request.
    #[error("{found:#010x} at the start of a request")]
    NoRequest {
        /// What stands there.
        found: u32,
    },
    /// Flags nobody offered.
    #[error("client flags {found:#x}, of which only 3 were offered")]
    Flags {
        /// All of them.
        found: u32,
    },
    /// Data of an option beyond [`OPTION_LIMIT`].
    #[error("{length} bytes of data with option {option}; the limit is {OPTION_LIMIT}")]
    LongOption {
        /// The option.
        option: u32,
        /// The length it claims.
        length: u32,
    },
}

/// A big-endian number at a place inside.
macro_rules! number {
    ($kind:ty, $bytes:expr, $at:expr) => {{
        let mut raw = [0; size_of::<$kind>()];
        raw.copy_from_slice(&$bytes[$at..$at + size_of::<$kind>()]);
        <$kind>::from_be_bytes(raw)
    }};
}

// ---- the handshake

const NEWSTYLE: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;

bitflags! {
    /// What both sides say of the handshake before it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Handshake: u16 {
        /// Options are answered.
        const FIXED_NEWSTYLE = 1;
        /// No padding after the answer to `EXPORT_NAME`.
        const NO_ZEROES = 2;
    }
}

/// The server's first words.
pub fn greeting() -> [u8; 18] {
    let mut out = [0; 18];
    out[..8].copy_from_slice(b"NBDMAGIC");
    out[8..16].copy_from_slice(&NEWSTYLE.to_be_bytes());
    out[16..].copy_from_slice(&Handshake::all().bits().to_be_bytes());
    out
}

/// The client's first words.
pub fn client_flags(bytes: [u8; 4]) -> Result<Handshake, WordError> {
    let found = u32::from_be_bytes(bytes);
    u16::try_from(found).ok().and_then(Handshake::from_bits).ok_or(WordError::Flags { found })
}

/// What a client wants to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// This export, without an answer that could refuse it.
    ExportName,
    /// Nothing any more.
    Abort,
    /// The names of the exports.
    List,
    /// What an export is like.
    Info,
    /// This export.
    Go,
    /// Something this server does not do.
    Other,
}

/// An option without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHead {
    /// The number as it was sent; the answer repeats it.
    pub number: u32,
    /// Bytes of data that follow, at most [`OPTION_LIMIT`].
    pub length: u32,
}

impl OptionHead {
    /// Reads one.
    pub fn decode(bytes: [u8; 16]) -> Result<Self, WordError> {
        let found = number!(u64, bytes, 0);
        if found != NEWSTYLE {
            return Err(WordError::NoOption { found });
        }
        let (option, length) = (number!(u32, bytes, 8), number!(u32, bytes, 12));
        if length > OPTION_LIMIT {
            return Err(WordError::LongOption { option, length });
        }
        Ok(OptionHead { number: option, length })
    }

    /// What is wanted.
    pub fn choice(self) -> Choice {
        match self.number {
            1 => Choice::ExportName,
            2 => Choice::Abort,
            3 => Choice::List,
            6 => Choice::Info,
            7 => Choice::Go,
            _ => Choice::Other,
        }
    }
}

/// The data of `INFO` and `GO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'d> {
    /// The export's name.
    pub name: &'d [u8],
    /// Numbers of two bytes each: what the client wants to know.
    facts: &'d [u8],
}

impl<'d> Wanted<'d> {
    /// Reads it; nothing if the lengths inside are not those of the data.
    pub fn decode(data: &'d [u8]) -> Option<Self> {
        let (length, rest) = data.split_first_chunk::<4>()?;
        let (name, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        let (count, facts) = rest.split_first_chunk::<2>()?;
        (facts.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some(Wanted { name, facts })
    }

    /// Whether a fact is wanted.
    pub fn asks(&self, fact: Fact) -> bool {
        self.facts.chunks_exact(2).any(|n| n == (fact as u16).to_be_bytes())
    }
}

/// What is said of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// Its size and flags; said unasked.
    Export = 0,
    /// A text for people.
    Description = 2,
    /// The least, the best and the largest request.
    BlockSize = 3,
}

/// How an option is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Answer {
    /// Done.
    Ack = 1,
    /// One export's name.
    Server = 2,
    /// A [`Fact`].
    Info = 3,
    /// No such option here.
    Unsupported = (1 << 31) + 1,
    /// Not now: all places are taken.
    Policy = (1 << 31) + 2,
    /// The option's data make no sense.
    Invalid = (1 << 31) + 3,
    /// No such export.
    Unknown = (1 << 31) + 6,
}

/// An answer to an option. `data` must be shorter than 4 GiB.
pub fn option_reply(option: u32, answer: Answer, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(20 + data.len());
    out.extend(OPTION_REPLY.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend((answer as u32).to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
    out
}

/// The data of [`Fact::Export`], and without its first two bytes the answer to `EXPORT_NAME`.
pub fn export(size: u64, flags: Transmission) -> [u8; 12] {
    let mut out = [0; 12];
    out[..2].copy_from_slice(&(Fact::Export as u16).to_be_bytes());
    out[2..10].copy_from_slice(&size.to_be_bytes());
    out[10..].copy_from_slice(&flags.bits().to_be_bytes());
    out
}

/// The data of [`Fact::Description`].
pub fn description(text: &str) -> Vec<u8> {
    [&(Fact::Description as u16).to_be_bytes(), text.as_bytes()].concat()
}

/// The data of [`Fact::BlockSize`]. Any byte can be asked for; whole blocks cost least.
pub fn block_size() -> [u8; 14] {
    let mut out = [0; 14];
    out[..2].copy_from_slice(&(Fact::BlockSize as u16).to_be_bytes());
    for (place, size) in out[2..].chunks_exact_mut(4).zip([1, device::BLOCK as u32, REQUEST_LIMIT]) {
        place.copy_from_slice(&size.to_be_bytes());
    }
    out
}

// ---- requests

bitflags! {
    /// What may be asked of an export.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Transmission: u16 {
        /// The other bits mean something.
        const HAS_FLAGS = 1;
        /// Nothing can be changed.
        const READ_ONLY = 1 << 1;
        /// `FLUSH` is there.
        const SEND_FLUSH = 1 << 2;
        /// [`Flags::FUA`] is there.
        const SEND_FUA = 1 << 3;
        /// `TRIM` is there.
        const SEND_TRIM = 1 << 5;
        /// `WRITE_ZEROES` is there.
        const SEND_WRITE_ZEROES = 1 << 6;
        /// A flush on one connection is one for all.
        const CAN_MULTI_CONN = 1 << 8;
    }

    /// How a request is to be done.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Flags: u16 {
        /// Durable before it is answered.
        const FUA = 1;
        /// Zeroes that need no space later.
        const NO_HOLE = 1 << 1;
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Bytes.
    Read,
    /// To store bytes, which follow the request.
    Write,
    /// To end.
    Disconnect,
    /// To make durable what was written.
    Flush,
    /// To forget bytes.
    Trim,
    /// To store zeroes.
    WriteZeroes,
    /// Something this server does not do.
    Other,
}

/// A request without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// How.
    pub flags: Flags,
    /// What.
    pub command: Command,
    /// The client's name for the request.
    pub cookie: [u8; 8],
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub length: u32,
}

impl Request {
    /// Bytes of one.
    pub const SIZE: usize = 28;

    /// Reads one.
    pub fn decode(bytes: [u8; Self::SIZE]) -> Result<Self, WordError> {
        let found = number!(u32, bytes, 0);
        if found != 0x2560_9513 {
            return Err(WordError::NoRequest { found });
        }
        let mut cookie = [0; 8];
        cookie.copy_from_slice(&bytes[8..16]);
        Ok(Request {
            flags: Flags::from_bits_retain(number!(u16, bytes, 4)),
            command: match number!(u16, bytes, 6) {
                0 => Command::Read,
                1 => Command::Write,
                2 => Command::Disconnect,
                3 => Command::Flush,
                4 => Command::Trim,
                6 => Command::WriteZeroes,
                _ => Command::Other,
            },
            cookie,
            offset: number!(u64, bytes, 16),
            length: number!(u32, bytes, 24),
        })
    }
}

/// Why a request failed, in the protocol's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errno {
    /// The export is read-only.
    Permission = 1,
    /// The device failed.
    Io = 5,
    /// The request makes no sense.
    Invalid = 22,
    /// It passes the end.
    NoSpace = 28,
}

/// The answer to a request; what was read follows it.
pub fn reply(cookie: [u8; 8], result: Result<(), Errno>) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&0x6744_6698_u32.to_be_bytes());
    out[4..8].copy_from_slice(&result.map_or_else(|e| e as u32, |()| 0).to_be_bytes());
    out[8..].copy_from_slice(&cookie);
    out
}
