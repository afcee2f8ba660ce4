//! How does a volume's free space become fragmented?
//!
//! As in Scherl 2004, section 6.6: files of 8 KB are written until the volume is full, then random files are deleted
//! until a given share of the volume is in use. The same for every implementation of [`Room`].

use device::Rng;

/// Bytes per file.
pub const BYTES: u64 = 8192;
/// Files per directory.
pub const PER_DIRECTORY: u32 = 200;

/// The name of a file's directory.
pub fn directory_name(file: u32) -> String {
    format!("x{:04}", file / PER_DIRECTORY)
}

/// The name of a file in its directory.
pub fn file_name(file: u32) -> String {
    format!("y{file:07}")
}

/// A volume to fill.
pub trait Room {
    /// Errors other than lack of space.
    type Error;
    /// Creates a file; if there is no space, returns false and leaves no file.
    fn make(&mut self, file: u32) -> Result<bool, Self::Error>;
    /// Deletes a file.
    fn delete(&mut self, file: u32) -> Result<(), Self::Error>;
    /// The share of the volume that is in use, in percent.
    fn used(&mut self) -> Result<f64, Self::Error>;
}

/// Creates files until the volume is full; returns their number.
pub fn fill<R: Room>(room: &mut R) -> Result<u32, R::Error> {
    let mut files = 0;
    while room.make(files)? {
        files += 1;
    }
    Ok(files)
}

/// Deletes random files until at most `percent` of the volume is in use or no file is left.
pub fn thin<R: Room>(room: &mut R, mut files: Vec<u32>, percent: u32, seed: u64) -> Result<(), R::Error> {
    Rng::new(seed ^ u64::from(percent) << 32).shuffle(&mut files);
    for (n, file) in files.into_iter().enumerate() {
        // On some file systems this query scans all files.
        if n.is_multiple_of(64) && room.used()? <= f64::from(percent) {
            break;
        }
        room.delete(file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Space for a number of files.
    struct Shelf {
        files: BTreeSet<u32>,
        room: usize,
    }

    impl Room for Shelf {
        type Error = String;
        fn make(&mut self, file: u32) -> Result<bool, String> {
            Ok(self.files.len() < self.room && self.files.insert(file))
        }
        fn delete(&mut self, file: u32) -> Result<(), String> {
            self.files.remove(&file).then_some(()).ok_or_else(|| format!("{file} is deleted twice"))
        }
        fn used(&mut self) -> Result<f64, String> {
            Ok(100.0 * self.files.len() as f64 / self.room as f64)
        }
    }

    #[test]
    fn a_volume_becomes_full_and_is_thinned_out_evenly() {
        let mut shelf = Shelf { files: BTreeSet::new(), room: 10_000 };
        assert_eq!(fill(&mut shelf), Ok(10_000));
        for percent in [80, 40] {
            let there: Vec<u32> = shelf.files.iter().copied().collect();
            thin(&mut shelf, there, percent, 1).unwrap();
            let left = shelf.files.len();
            assert!((0..100).contains(&(percent as i64 * 100 - left as i64)), "{percent} %: {left}");
            let half = shelf.files.range(..5000).count() as f64 / left as f64;
            assert!((0.47..0.53).contains(&half), "{half} of them in the first half");
        }
    }
}
