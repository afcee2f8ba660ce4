//! Reads the lines of a file as another process writes them.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Failure;

/// Maximum length of a line; Alumet's have some hundred bytes.
const LONGEST: usize = 1 << 20;

/// A growing file.
pub struct Followed {
    pub path: PathBuf,
    file: File,
    read: u64,
    /// Bytes after the last complete line.
    rest: Vec<u8>,
}

impl Followed {
    /// Opens it.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|e| Failure::from(format!("--alumet {}: {e}", path.display())))?;
        Ok(Followed { path: path.to_owned(), file, read: 0, rest: Vec::new() })
    }

    /// Passes each complete new line to `line`; its flag is true for the first line after the file was recreated.
    pub fn lines(&mut self, mut line: impl FnMut(&str, bool)) -> std::io::Result<()> {
        // Alumet recreates its file when it starts.
        let now = fs::metadata(&self.path);
        let mut again = self.file.metadata()?.len() < self.read;
        if let Ok(now) = &now {
            let had = self.file.metadata()?;
            again |= (now.dev(), now.ino()) != (had.dev(), had.ino());
        }
        if again {
            self.file = File::open(&self.path)?;
            self.read = 0;
            self.rest.clear();
        }
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = vec![0; 1 << 16];
        loop {
            let got = match self.file.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(got) => got,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.read += got as u64;
            self.rest.extend_from_slice(&bytes[..got]);
            let Some(end) = self.rest.iter().rposition(|b| *b == b'\n') else {
                if self.rest.len() > LONGEST {
                    self.rest.clear();
                }
                continue;
            };
            let rest = self.rest.split_off(end + 1);
            let whole = std::mem::replace(&mut self.rest, rest);
            for text in String::from_utf8_lossy(&whole).lines() {
                line(text, std::mem::take(&mut again));
            }
        }
    }

    /// The first line so far, or a part of it; the read position does not change.
    pub fn first(&mut self) -> std::io::Result<Option<String>> {
        let mut head = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        (&self.file).take(1 << 16).read_to_end(&mut head)?;
        let line = head.split(|b| *b == b'\n').next().map(|line| String::from_utf8_lossy(line).into_owned());
        Ok(line.filter(|_| !head.is_empty()))
    }
}
