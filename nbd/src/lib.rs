//! How does a metered device become a disk that clients use through a socket?
//!
//! This is the server side of the network block device protocol: [`word`] encodes and decodes its messages, [`session`]
//! handles one client, [`listen`] accepts clients and ends the server. The device is a [`device::gauge::Gauge`]; only
//! client requests cost energy.
//!
//! How protocol requests map to device requests:
//!
//! | request | device |
//! |---|---|
//! | `READ`, `WRITE` | a read, a write; parts of blocks are read, changed and written |
//! | `FLUSH` | a flush |
//! | `TRIM` | a discard of the whole blocks inside |
//! | `WRITE_ZEROES` | a discard, if the device then reads zeroes; partial blocks are written |
//! | `WRITE_ZEROES` with `NO_HOLE` | writes of zeroes, of 1 MiB each |
//! | `FUA` with any of the last four | a flush after it |
//!
//! Left out: TLS and passwords (a Unix socket belongs to its user; on TCP everyone who reaches the port can use the
//! disk), structured replies, extended headers, block status, resizing. Negotiation reports these as unsupported.
#![forbid(unsafe_code)]

pub mod address;
pub mod listen;
pub mod session;
pub mod word;

pub use address::{Address, AddressError};
pub use listen::{ListenError, Listener, Patience, Stop};
pub use session::Export;
