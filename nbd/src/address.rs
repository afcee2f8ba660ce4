//! Where does a server listen, and by which URI do clients reach it?

use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A listening address: `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host (name, IPv4 address, or IPv6 address in brackets) and a port.
    Tcp(String),
}

/// A text that is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: not an address; write unix:PATH or tcp:HOST:PORT")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refused = || AddressError(text.to_owned());
        match text.split_once(':').ok_or_else(refused)? {
            ("unix", path) if !path.is_empty() => Ok(Address::Unix(path.into())),
            ("tcp", place) => {
                let (host, port) = place.rsplit_once(':').ok_or_else(refused)?;
                // Port 0 means any port, which no client would know.
                let port = port.parse::<u16>().ok().filter(|p| *p > 0).ok_or_else(refused)?;
                let bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
                if host.is_empty() || !bare { Err(refused()) } else { Ok(Address::Tcp(format!("{host}:{port}"))) }
            }
            _ => Err(refused()),
        }
    }
}

impl Address {
    /// The same address, independent of the current directory.
    pub fn absolute(self) -> std::io::Result<Self> {
        Ok(match self {
            Address::Unix(path) => Address::Unix(std::path::absolute(path)?),
            tcp @ Address::Tcp(_) => tcp,
        })
    }

    /// The socket's file, if it is a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Address::Unix(path) => Some(path),
            Address::Tcp(_) => None,
        }
    }

    /// URI for clients (the NBD project's `doc/uri.md`).
    pub fn uri(&self) -> String {
        match self {
            Address::Unix(path) => {
                let mut out = "nbd+unix:///?socket=".to_owned();
                for byte in path.as_os_str().as_bytes() {
                    match byte {
                        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                            out.push(char::from(*byte));
                        }
                        // Writing to a string cannot fail.
                        other => drop(write!(out, "%{other:02X}")),
                    }
                }
                out
            }
            Address::Tcp(place) => format!("nbd://{place}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => path.display().fmt(f),
            Address::Tcp(place) => f.write_str(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_socket_or_a_host_with_a_port() {
        let uri = |text: &str| text.parse::<Address>().unwrap().uri();
        assert_eq!(uri("unix:/tmp/s"), "nbd+unix:///?socket=/tmp/s");
        assert_eq!(uri("unix:/a b&c/ü"), "nbd+unix:///?socket=/a%20b%26c/%C3%BC");
        assert_eq!(uri("tcp:localhost:10809"), "nbd://localhost:10809");
        assert_eq!(uri("tcp:[::1]:1"), "nbd://[::1]:1");
        let wrong = [
            "",
            "unix",
            "unix:",
            "tcp:",
            "tcp:host",
            "tcp::1",
            "tcp:h:0",
            "tcp:h:65536",
            "tcp:::1",
            "/tmp/s",
            "nbd:h:1",
        ];
        for text in wrong {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
