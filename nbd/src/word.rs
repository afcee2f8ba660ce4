//! What do the protocol's bytes mean?
//!
//! The fixed newstyle handshake and simple replies, as the NBD project's `doc/proto.md` describes them; all numbers are
//! big-endian. No I/O here, and no bytes cause a panic.

use bitflags::bitflags;

/// The longest accepted option data. The longest sensible data is a name of 4,096 bytes and a few numbers.
pub const OPTION_LIMIT: u32 = 1 << 13;

/// The largest read or write in bytes: the limit that clients may assume without asking.
pub const REQUEST_LIMIT: u32 = 1 << 25;

/// A client's message that ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    /// Not the magic number of an option.
    #[error("{found:#018x} at the start of an option")]
    NoOption {
        /// The number found.
        found: u64,
    },
    /// Not the magic number of a request.
    #[error("{found:#010x} at the start of a request")]
    NoRequest {
        /// The number found.
        found: u32,
    },
    /// Flags that were not offered.
    #[error("client flags {found:#x}, of which only 3 were offered")]
    Flags {
        /// All flags sent.
        found: u32,
    },
    /// Data of an option beyond [`OPTION_LIMIT`].
    #[error("{length} bytes of data with option {option}; the limit is {OPTION_LIMIT}")]
    LongOption {
        /// The option's number.
        option: u32,
        /// The length it claims.
        length: u32,
    },
}

/// The big-endian number at an offset.
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
    /// Handshake flags of both sides.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Handshake: u16 {
        /// Options are answered.
        const FIXED_NEWSTYLE = 1;
        /// No padding after the answer to `EXPORT_NAME`.
        const NO_ZEROES = 2;
    }
}

/// The server's first message.
pub fn greeting() -> [u8; 18] {
    let mut out = [0; 18];
    out[..8].copy_from_slice(b"NBDMAGIC");
    out[8..16].copy_from_slice(&NEWSTYLE.to_be_bytes());
    out[16..].copy_from_slice(&Handshake::all().bits().to_be_bytes());
    out
}

/// The client's first message.
pub fn client_flags(bytes: [u8; 4]) -> Result<Handshake, WordError> {
    let found = u32::from_be_bytes(bytes);
    u16::try_from(found).ok().and_then(Handshake::from_bits).ok_or(WordError::Flags { found })
}

/// The option that a client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Select this export; there is no error reply.
    ExportName,
    /// End the session.
    Abort,
    /// List the exports.
    List,
    /// Describe an export.
    Info,
    /// Select this export.
    Go,
    /// Not supported by this server.
    Other,
}

/// An option without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHead {
    /// The number as sent; the answer repeats it.
    pub number: u32,
    /// Length of the data that follows, at most [`OPTION_LIMIT`].
    pub length: u32,
}

impl OptionHead {
    /// Decodes an option.
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

    /// The option's meaning.
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
    /// Requested information types, two bytes each.
    facts: &'d [u8],
}

impl<'d> Wanted<'d> {
    /// Decodes the data; `None` if the lengths inside do not match.
    pub fn decode(data: &'d [u8]) -> Option<Self> {
        let (length, rest) = data.split_first_chunk::<4>()?;
        let (name, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        let (count, facts) = rest.split_first_chunk::<2>()?;
        (facts.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some(Wanted { name, facts })
    }

    /// Whether the client requests this information.
    pub fn includes(&self, fact: Fact) -> bool {
        self.facts.chunks_exact(2).any(|n| n == (fact as u16).to_be_bytes())
    }
}

/// Information about an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// Its size and flags; always sent.
    Export = 0,
    /// A description for people.
    Description = 2,
    /// The smallest, preferred and largest request.
    BlockSize = 3,
}

/// Reply types for options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Answer {
    /// Done.
    Ack = 1,
    /// One export's name.
    Server = 2,
    /// A [`Fact`].
    Info = 3,
    /// Option not supported.
    Unsupported = (1 << 31) + 1,
    /// Not now: all slots are taken.
    Policy = (1 << 31) + 2,
    /// The option's data is invalid.
    Invalid = (1 << 31) + 3,
    /// Unknown export.
    Unknown = (1 << 31) + 6,
}

/// The reply to an option. `data` must be shorter than 4 GiB.
pub fn option_reply(option: u32, answer: Answer, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(20 + data.len());
    out.extend(OPTION_REPLY.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend((answer as u32).to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
    out
}

/// The data of [`Fact::Export`]; without its first two bytes, the answer to `EXPORT_NAME`.
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

/// The data of [`Fact::BlockSize`]. Requests may have any byte offset; whole blocks cost least.
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
    /// Capabilities of an export.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Transmission: u16 {
        /// The other bits are valid.
        const HAS_FLAGS = 1;
        /// The export is read-only.
        const READ_ONLY = 1 << 1;
        /// `FLUSH` is supported.
        const SEND_FLUSH = 1 << 2;
        /// [`Flags::FUA`] is supported.
        const SEND_FUA = 1 << 3;
        /// `TRIM` is supported.
        const SEND_TRIM = 1 << 5;
        /// `WRITE_ZEROES` is supported.
        const SEND_WRITE_ZEROES = 1 << 6;
        /// A flush on one connection covers all connections.
        const CAN_MULTI_CONN = 1 << 8;
    }

    /// Flags of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Flags: u16 {
        /// Make it durable before the answer.
        const FUA = 1;
        /// Allocate space for the zeroes.
        const NO_HOLE = 1 << 1;
    }
}

/// Type of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read bytes.
    Read,
    /// Write the bytes that follow the request.
    Write,
    /// End the session.
    Disconnect,
    /// Make everything written durable.
    Flush,
    /// Discard bytes.
    Trim,
    /// Write zeroes.
    WriteZeroes,
    /// Not supported by this server.
    Other,
}

/// A request without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Flags.
    pub flags: Flags,
    /// Type.
    pub command: Command,
    /// The client's identifier of the request.
    pub cookie: [u8; 8],
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

impl Request {
    /// Size in bytes.
    pub const SIZE: usize = 28;

    /// Decodes a request.
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

/// NBD error numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errno {
    /// The export is read-only.
    Permission = 1,
    /// The device failed.
    Io = 5,
    /// The request is invalid.
    Invalid = 22,
    /// The request exceeds the export.
    NoSpace = 28,
}

/// The header of a reply; read data follows it.
pub fn reply(cookie: [u8; 8], result: Result<(), Errno>) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&0x6744_6698_u32.to_be_bytes());
    out[4..8].copy_from_slice(&result.map_or_else(|e| e as u32, |()| 0).to_be_bytes());
    out[8..].copy_from_slice(&cookie);
    out
}
