//! Owners and modes from a list in the format of Android's `fs_config`, one path per line:
//!
//!     path uid gid mode [capabilities=MASK]
//!
//! Paths begin with the mount point without its leading `/`; the mode is octal.

use std::collections::HashMap;

/// `security.capability` attribute, revision 2, with the effective flag (kernel `vfs_cap_data`).
const REVISION_2: u32 = 0x0200_0000;
const EFFECTIVE: u32 = 1;

/// The entry of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    pub uid: u32,
    pub gid: u32,
    pub perm: u16,
    /// Capability bits; 0: none.
    pub capabilities: u64,
}

impl Owned {
    /// The attribute with a program's capabilities.
    pub fn attribute(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (low, high) = (self.capabilities as u32, (self.capabilities >> 32) as u32);
        // Permitted and inheritable, the lower halves first.
        let words = [REVISION_2 | EFFECTIVE, low, 0, high, 0];
        let value = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        (self.capabilities != 0).then(|| (b"security.capability".to_vec(), value))
    }
}

/// The list. The last of several lines for one path wins.
#[derive(Debug, Default)]
pub struct Owners(HashMap<Vec<u8>, Owned>);

fn line(text: &str) -> Result<(Vec<u8>, Owned), String> {
    // The root's path may be empty: then the line begins with a blank.
    let (path, rest) = match text.strip_prefix(' ') {
        Some(rest) => ("", rest),
        None => text.split_once(char::is_whitespace).ok_or("no owner")?,
    };
    let mut words = rest.split_whitespace();
    let mut number = |what: &str, radix: u32| {
        let word = words.next().ok_or(format!("no {what}"))?;
        u32::from_str_radix(word, radix).map_err(|_| format!("{word}: no {what}"))
    };
    let (uid, gid) = (number("user", 10)?, number("group", 10)?);
    let perm = number("mode (octal)", 8)?;
    let perm = u16::try_from(perm).ok().filter(|p| *p <= 0o7777).ok_or(format!("{perm:o}: no mode"))?;
    let mut capabilities = 0;
    for word in words {
        let mask = word.strip_prefix("capabilities=").ok_or(format!("{word}: not known"))?;
        let digits = mask.strip_prefix("0x").or_else(|| mask.strip_prefix("0X"));
        let parsed = digits.map_or_else(|| mask.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
        capabilities = parsed.ok_or(format!("{word}: not a capability mask"))?;
    }
    Ok((path.trim_matches('/').as_bytes().to_vec(), Owned { uid, gid, perm, capabilities }))
}

impl Owners {
    /// Parses a list. The error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all = HashMap::new();
        for (n, text) in text.lines().enumerate() {
            if text.trim().is_empty() || text.trim_start().starts_with('#') {
                continue;
            }
            let (path, owned) = line(text).map_err(|e| format!("line {}: {e}", n + 1))?;
            all.insert(path, owned);
        }
        Ok(Owners(all))
    }

    /// The entry of a path, which begins with the mount point.
    pub fn of(&self, path: &[u8]) -> Option<&Owned> {
        let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
        self.0.get(&path[start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gives_owners_modes_and_capabilities() {
        let list = Owners::parse("# of a system\n 0 0 0755\nbin/su 0 2000 04750 capabilities=0x0\nbin/ping 0 0 755 capabilities=0x2000000001\n").unwrap();
        let owned = |perm, gid, capabilities| Owned { uid: 0, gid, perm, capabilities };
        assert_eq!(list.of(b"/"), Some(&owned(0o755, 0, 0)));
        assert_eq!(list.of(b"/bin/su"), Some(&owned(0o4750, 2000, 0)));
        let ping = list.of(b"/bin/ping").unwrap();
        let (name, value) = ping.attribute().unwrap();
        assert_eq!(name, b"security.capability");
        assert_eq!(value, [1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(list.of(b"/bin"), None);
        for (wrong, words) in [
            ("a 0 0", "line 1: no mode"),
            ("a 0 x 755", "x: no group"),
            ("a 0 0 899", "899"),
            ("\na 0 0 1 what", "line 2: what"),
        ] {
            let e = Owners::parse(wrong).unwrap_err();
            assert!(e.contains(words), "{e}");
        }
    }
}
