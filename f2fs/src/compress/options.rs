//! Which new files are compressed, and how: Linux's mount options `compress_*`.

use format::compress::{Algorithm, Method};

/// Longest extension (kernel `F2FS_EXTENSION_LEN`, which includes a final NUL).
const EXTENSION: usize = 7;
/// Most extensions of each kind (kernel `COMPRESS_EXT_NUM`).
const EXTENSIONS: usize = 16;
/// Highest level of Zstandard.
const ZSTD_MOST: u8 = 22;

/// What triggers the compression of a file marked as compressed?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The file system compresses clusters when it writes them.
    #[default]
    Fs,
    /// An explicit request of a user; writes are stored uncompressed.
    User,
}

/// Mount options for compression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Method for files that become compressed files under this mount.
    pub method: Method,
    /// What triggers compression.
    pub mode: Mode,
    /// New files with these extensions are compressed; `*` matches all.
    pub extensions: Vec<String>,
    /// New files with these extensions are not compressed.
    pub not: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        let method = Method { algorithm: Algorithm::Lz4, log_cluster_size: 2, checksum: false, level: 0 };
        Options { method, mode: Mode::default(), extensions: Vec::new(), not: Vec::new() }
    }
}

impl Options {
    /// Sets a mount option by its Linux name. Returns false for an unknown option; the error describes an invalid
    /// value.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<bool, String> {
        let given = || value.filter(|v| !v.is_empty()).ok_or_else(|| format!("write {name}=VALUE"));
        match name {
            "compress_algorithm" => (self.method.algorithm, self.method.level) = algorithm(given()?)?,
            "compress_log_size" => {
                let log = given()?.parse().ok().filter(|log| (2..=8).contains(log));
                self.method.log_cluster_size = log.ok_or("a number from 2 to 8: clusters of 2^2 to 2^8 blocks")?;
            }
            "compress_chksum" if value.is_some() => return Err("compress_chksum takes no value".into()),
            "compress_chksum" => self.method.checksum = true,
            "compress_mode" => {
                self.mode = match given()? {
                    "fs" => Mode::Fs,
                    "user" => Mode::User,
                    _ => return Err("fs or user".into()),
                };
            }
            "compress_extension" => put(&mut self.extensions, given()?, &self.not)?,
            "nocompress_extension" if value == Some("*") => {
                return Err("to compress only files marked by chattr +c, leave compress_extension out".into());
            }
            "nocompress_extension" => put(&mut self.not, given()?, &self.extensions)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the name of a new file makes it compressed or not compressed; `None` if neither.
    pub(crate) fn by_name(&self, name: &[u8]) -> Option<bool> {
        let is = |list: &[String]| list.iter().any(|e| e == "*" || ends_in(name, e.as_bytes()));
        if is(&self.not) { Some(false) } else { is(&self.extensions).then_some(true) }
    }
}

fn put(list: &mut Vec<String>, extension: &str, other: &[String]) -> Result<(), String> {
    let extension = extension.trim_start_matches('.').to_ascii_lowercase();
    if extension.is_empty() || extension.len() > EXTENSION {
        return Err(format!("an extension has 1 to {EXTENSION} bytes"));
    }
    if list.len() == EXTENSIONS {
        return Err(format!("there can be {EXTENSIONS} extensions"));
    }
    if other.contains(&extension) {
        return Err("this extension is named in the other list too".into());
    }
    list.push(extension);
    Ok(())
}

/// True if a name ends in a dot and this extension, in any case.
fn ends_in(name: &[u8], extension: &[u8]) -> bool {
    let at = name.len().checked_sub(extension.len() + 1).filter(|at| *at > 0);
    at.is_some_and(|at| name[at] == b'.' && name[at + 1..].eq_ignore_ascii_case(extension))
}

fn algorithm(text: &str) -> Result<(Algorithm, u8), String> {
    let (name, level) = text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
    let algorithm = match name {
        "lzo" => Algorithm::Lzo,
        "lz4" => Algorithm::Lz4,
        "zstd" => Algorithm::Zstd,
        "lzo-rle" => Algorithm::LzoRle,
        _ => return Err("lzo, lz4, zstd, zstd:LEVEL or lzo-rle".into()),
    };
    let level = match level {
        None => 0,
        Some(level) if algorithm == Algorithm::Zstd => level
            .parse()
            .ok()
            .filter(|level| (1..=ZSTD_MOST).contains(level))
            .ok_or_else(|| format!("a level of zstd is a number from 1 to {ZSTD_MOST}"))?,
        Some(_) => return Err(format!("{name} has one level here, write compress_algorithm={name}")),
    };
    Ok((algorithm, level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_linuxs_names_and_wrong_values_are_named() {
        let mut o = Options::default();
        for (name, value) in [
            ("compress_algorithm", Some("zstd:7")),
            ("compress_log_size", Some("4")),
            ("compress_chksum", None),
            ("compress_mode", Some("user")),
            ("compress_extension", Some("txt")),
            ("nocompress_extension", Some("JPG")),
        ] {
            assert_eq!(o.set(name, value), Ok(true), "{name}");
        }
        let method = Method { algorithm: Algorithm::Zstd, log_cluster_size: 4, checksum: true, level: 7 };
        assert_eq!((o.method, o.mode), (method, Mode::User));
        for (name, value) in [
            ("compress_algorithm", Some("gzip")),
            ("compress_algorithm", Some("lz4:9")),
            ("compress_algorithm", Some("zstd:23")),
            ("compress_log_size", Some("1")),
            ("compress_log_size", Some("9")),
            ("compress_log_size", None),
            ("compress_chksum", Some("on")),
            ("compress_mode", Some("auto")),
            ("compress_extension", Some("longerthan7")),
            ("compress_extension", Some("jpg")),
            ("nocompress_extension", Some("*")),
        ] {
            assert!(o.set(name, value).is_err(), "{name}={value:?}");
        }
        assert_eq!(o.set("discard", None), Ok(false));
    }

    #[test]
    fn a_name_says_by_its_end_whether_the_file_is_compressed() {
        let mut o = Options::default();
        o.set("compress_extension", Some("txt")).unwrap();
        o.set("nocompress_extension", Some("jpg")).unwrap();
        let said = |o: &Options| {
            [&b"a.txt"[..], b"a.TXT", b".txt", b"txt", b"a.txt.jpg", b"a.txt.tmp", b"b"].map(|name| o.by_name(name))
        };
        assert_eq!(said(&o), [Some(true), Some(true), None, None, Some(false), None, None]);
        o.set("compress_extension", Some("*")).unwrap();
        assert_eq!(said(&o), [true, true, true, true, false, true, true].map(Some));
    }
}
