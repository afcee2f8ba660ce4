//! `IMAGE:/path`, or a path of the host.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// What a person names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A path inside an image.
    Inside {
        /// The image.
        image: PathBuf,
        /// The path, with its leading slash.
        path: Vec<u8>,
    },
    /// A path of the host.
    Host(PathBuf),
}

impl From<OsString> for Place {
    /// The first `:/` parts image and path, unless the whole is a file of the host; `IMAGE:` alone
    /// means its root.
    fn from(text: OsString) -> Self {
        let bytes = text.as_bytes();
        let host = || Place::Host(PathBuf::from(&text));
        if std::fs::symlink_metadata(&text).is_ok() {
            return host();
        }
        let cut = bytes
            .windows(2)
            .position(|w| w == b":/")
            .or_else(|| bytes.strip_suffix(b":").map(<[u8]>::len));
        match cut {
            Some(0) | None => host(),
            Some(at) => {
                let path = if at + 1 < bytes.len() { bytes[at + 1..].to_vec() } else { b"/".to_vec() };
                Place::Inside { image: PathBuf::from(OsStr::from_bytes(&bytes[..at])), path }
            }
        }
    }
}

impl std::str::FromStr for Place {
    type Err = std::convert::Infallible;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Ok(OsString::from(s).into())
    }
}

impl Place {
    /// The place as a person wrote it.
    pub fn text(&self) -> String {
        match self {
            Place::Host(p) => p.display().to_string(),
            Place::Inside { image, path } => {
                format!("{}:{}", image.display(), OsString::from_vec(path.clone()).display())
            }
        }
    }
    /// Image and path, or a failure that says how to write it.
    pub fn inside(&self) -> Result<(&PathBuf, &[u8]), String> {
        match self {
            Place::Inside { image, path } => Ok((image, path)),
            Place::Host(p) => Err(format!(
                "{0}: not a place inside an image; write IMAGE:/path, e.g. {0}:/",
                p.display()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_and_slash_part_image_and_path() {
        let p = Place::from(OsString::from("a/b.img:/x:/y"));
        assert_eq!(p, Place::Inside { image: "a/b.img".into(), path: b"/x:/y".to_vec() });
        assert_eq!(Place::from(OsString::from("/plain")), Place::Host("/plain".into()));
    }
}
