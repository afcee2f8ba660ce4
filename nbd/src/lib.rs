//! How does a metered device become a disk that others reach through a socket?
//!
//! The network block device protocol, the server's side: [`word`] knows what its bytes mean, [`session`] what
//! one client may ask and what it gets, [`listen`] who is a client and when it all ends. The device is a
//! [`device::gauge::Gauge`]; nothing here costs a joule but what clients ask of it.
//!
//! What the protocol's words ask of the device:
//!
//! | request | device |
//! |---|---|
//! | `READ`, `WRITE` | a read, a write; parts of blocks are read, changed and written |
//! | `FLUSH` | a flush |
//! | `TRIM` | a discard of the whole blocks inside |
//! | `WRITE_ZEROES` | a discard, as a device does that promises zeroes after one; what fills no block is written |
//! | `WRITE_ZEROES` with `NO_HOLE` | writes of zeroes, of 1 MiB each |
//! | `FUA` with any of the last four | a flush after it |
//!
//! Left out: TLS and passwords (a Unix socket belongs to its user; on TCP whoever reaches the port has the disk),
//! structured replies, extended headers, block status, resizing. Clients are told so and do without.
#![forbid(unsafe_code)]

pub mod address;
pub mod listen;
pub mod session;
pub mod word;

pub use address::{Address, AddressError};
pub use listen::{ListenError, Listener, Patience, Stop};
pub use session::Export;
