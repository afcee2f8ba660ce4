//! The initial file system of a kernel in memory.
//!
//! An archive in the format that Linux unpacks (cpio, "new" ASCII headers), the libraries of a program, and modules in
//! the order of their dependencies.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::locate;

/// An archive under construction.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    seen: BTreeSet<String>,
    inodes: u32,
}

impl Archive {
    /// Adds a directory, and its parents, unless present.
    pub fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.seen.contains(path) {
            return;
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.directory(above);
        }
        self.entry(path, 0o040_755, &[]);
    }
    /// Adds a file that is not executable.
    pub fn file(&mut self, path: &str, contents: &[u8]) {
        self.regular(path, 0o100_644, contents);
    }
    /// Adds a program or library.
    pub fn program(&mut self, path: &str, contents: &[u8]) {
        self.regular(path, 0o100_755, contents);
    }
    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn regular(&mut self, path: &str, mode: u32, contents: &[u8]) {
        let path = path.trim_matches('/');
        if self.seen.contains(path) {
            return;
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.directory(above);
        }
        self.entry(path, mode, contents);
    }

    /// A header of thirteen numbers in eight hexadecimal digits each, the name, the contents; both padded to 4.
    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) {
        self.seen.insert(path.to_owned());
        self.inodes += 1;
        let size = u32::try_from(contents.len()).unwrap_or(u32::MAX);
        let name = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        // inode, mode, owner, group, links, time, size, device, device of a node, length of the name, sum.
        let numbers = [self.inodes, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn printed(command: &mut Command) -> io::Result<String> {
    let output = command.env("LC_ALL", "C").output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))),
    }
}

/// The libraries of a program according to `ldd`, with its loader; none for a static program.
pub fn libraries(program: &Path) -> io::Result<Vec<PathBuf>> {
    let Ok(text) = printed(Command::new("ldd").arg(program)) else { return Ok(Vec::new()) };
    let path = |word: &str| word.starts_with('/').then(|| PathBuf::from(word));
    Ok(text.lines().filter_map(|line| line.split_whitespace().find_map(path)).collect())
}

/// The files of the modules `wanted` and of their dependencies, each after what it needs. Missing modules are built
/// into the kernel.
pub fn modules(root: &Path, wanted: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    walk(root, &mut found)?;
    found.sort();
    let mut order = Vec::new();
    for name in wanted {
        insert(name, &found, &mut order)?;
    }
    Ok(order)
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "ko") {
            found.push(path);
        }
    }
    Ok(())
}

fn insert(name: &str, found: &[PathBuf], order: &mut Vec<PathBuf>) -> io::Result<()> {
    // File names may have `-` or `_` where the module name has an underscore.
    let is = |path: &&PathBuf| {
        path.file_stem().is_some_and(|s| s.to_string_lossy().replace('-', "_") == name.replace('-', "_"))
    };
    let Some(path) = found.iter().find(is) else { return Ok(()) };
    if order.contains(path) {
        return Ok(());
    }
    let needs = printed(Command::new(locate("modinfo", "kmod")).args(["-F", "depends"]).arg(path))?;
    for need in needs.trim().split(',').filter(|need| !need.is_empty()) {
        insert(need, found, order)?;
    }
    order.push(path.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_start_at_multiples_of_four_and_directories_come_first() {
        let mut archive = Archive::default();
        archive.file("a/bc/d", b"hello");
        archive.directory("/a/bc/");
        let bytes = archive.finish();
        let starts: Vec<usize> = (0..bytes.len() - 5).filter(|&i| &bytes[i..i + 6] == b"070701").collect();
        assert_eq!(starts.len(), 4, "a, a/bc, the file, the trailer");
        assert!(starts.iter().all(|start| start % 4 == 0));
        let name = |start: usize| bytes[start + 110..].split(|&b| b == 0).next().map(<[u8]>::to_vec);
        let names: Vec<Vec<u8>> = starts.iter().filter_map(|&s| name(s)).collect();
        assert_eq!(names, [&b"a"[..], b"a/bc", b"a/bc/d", b"TRAILER!!!"]);
    }
}
