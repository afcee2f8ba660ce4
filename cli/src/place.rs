//! `IMAGE:/path`, or a path of the host.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::{Failure, output};

/// A path as given by the user.
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
    /// The longest prefix before a `:` that is an existing file is the image, unless the whole text is a file; if there
    /// is none, the first `:/` separates image and path. `IMAGE:` alone means its root.
    fn from(text: OsString) -> Self {
        let bytes = text.as_bytes();
        let host = || Place::Host(PathBuf::from(&text));
        if std::fs::symlink_metadata(&text).is_ok() {
            return host();
        }
        let is_image = |at: &usize| std::fs::metadata(OsStr::from_bytes(&bytes[..*at])).is_ok_and(|m| !m.is_dir());
        let colons = || (1..bytes.len()).filter(|&i| bytes[i] == b':');
        let cut = colons()
            .rfind(is_image)
            .or_else(|| colons().find(|&i| bytes.get(i + 1) == Some(&b'/')))
            .or_else(|| bytes.strip_suffix(b":").map(<[u8]>::len).filter(|&n| n > 0));
        match cut {
            None => host(),
            Some(at) => {
                let after = &bytes[at + 1..];
                let slash = if after.starts_with(b"/") { &b""[..] } else { b"/" };
                let image = PathBuf::from(OsStr::from_bytes(&bytes[..at]));
                Place::Inside { image, path: [slash, after].concat() }
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
    /// The place, escaped for display.
    pub fn text(&self) -> String {
        output::plain(&self.raw())
    }

    /// The place as typed.
    pub fn raw(&self) -> String {
        match self {
            Place::Host(p) => p.display().to_string(),
            Place::Inside { image, path } => {
                format!("{}:{}", image.display(), OsString::from_vec(path.clone()).display())
            }
        }
    }

    /// Image and path, or a failure that explains the syntax.
    pub fn inside(&self) -> Result<(&PathBuf, &[u8]), Failure> {
        match self {
            Place::Inside { image, path } => Ok((image, path)),
            Place::Host(p) => Err(Failure::usage(format!(
                "{0}: not a path inside an image; write IMAGE:/path, e.g. {0}:/",
                p.display()
            ))),
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
        assert_eq!(Place::from(OsString::from(":/x")), Place::Host(":/x".into()));
        let root = Place::Inside { image: "b.img".into(), path: b"/".to_vec() };
        assert_eq!(Place::from(OsString::from("b.img:")), root);
    }

    #[test]
    fn an_image_that_exists_is_found_whatever_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("a:").join("b:c.img");
        std::fs::create_dir_all(image.parent().unwrap()).unwrap();
        std::fs::write(&image, b"").unwrap();
        let mut text = image.clone().into_os_string();
        text.push(":x:/y");
        assert_eq!(Place::from(text), Place::Inside { image, path: b"/x:/y".to_vec() });
    }
}
