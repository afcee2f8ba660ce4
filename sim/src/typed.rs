//! How are segments written that differ in valid blocks and in pieces of free space?
//!
//! The volume of FAGC TACO'23, section 6.1: segments of three types, written one type after the other. A and B have the
//! same number of valid blocks; the free blocks of A are in one piece, those of B in as many as possible. C has the
//! remaining valid blocks, given the published share of invalid ones, and its free blocks are in one piece.

use device::{BLOCK, generate};
use f2fs::Volume;
use vfs::{Allocate, Caller, DeviceNumber, FileKind, FileSystem, Ino, NewNode, WriteFlags};

use crate::error::SimError;

/// Blocks per segment.
pub const SEGMENT: u64 = 512;

/// One kind of segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// A, B or C.
    pub name: &'static str,
    /// Valid blocks.
    pub valid: u64,
    /// Pieces of its free blocks.
    pub pieces: u64,
}

/// The three types; A and B have `valid` blocks, and `invalid_percent` of all blocks are invalid.
pub fn types(valid: u64, invalid_percent: f64) -> Result<[Type; 3], SimError> {
    let all = (3.0 * SEGMENT as f64 * (1.0 - invalid_percent / 100.0)).round() as u64;
    let fits = |valid: &u64| (1..SEGMENT).contains(valid);
    let rest = all.checked_sub(valid.saturating_mul(2)).filter(fits).filter(|_| fits(&valid));
    let Some(rest) = rest else {
        return Err(SimError::Parameters(format!(
            "{valid} valid blocks in segments of types A and B and {invalid_percent} % invalid in all leave no number \
             for type C"
        )));
    };
    // A valid block separates two pieces.
    let most = valid.min(SEGMENT - valid);
    Ok([
        Type { name: "A", valid, pieces: 1 },
        Type { name: "B", valid, pieces: most },
        Type { name: "C", valid: rest, pieces: 1 },
    ])
}

/// Writes a file and punches the type's holes into each segment; calls `step` after each segment.
pub fn write(
    fs: &Volume,
    t: &Type,
    segments: u64,
    seed: u64,
    mut step: impl FnMut() -> Result<(), SimError>,
) -> Result<(), SimError> {
    let ino = create(fs, &format!("type-{}", t.name))?;
    align(fs, &format!("before-{}", t.name))?;
    let mut buf = vec![0; SEGMENT as usize * BLOCK];
    for n in 0..segments {
        let first = n * SEGMENT;
        generate(seed, first as u32, &mut buf);
        fs.write(ino, first * BLOCK as u64, &buf, WriteFlags::empty())?;
        step()?;
    }
    fs.fsync(ino, false)?;
    for n in 0..segments {
        punch(fs, ino, n * SEGMENT, t)?;
    }
    Ok(fs.sync()?)
}

fn create(fs: &Volume, name: &str) -> Result<Ino, SimError> {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: DeviceNumber::default() };
    Ok(fs.mknod(Caller::default(), fs.root(), name.as_bytes(), &new)?.attr.ino)
}

/// Fills the log of file contents, so that the next file begins a segment.
pub fn align(fs: &Volume, name: &str) -> Result<(), SimError> {
    fs.sync()?;
    let warm = format::sit::LogType::WarmData.index();
    let next = fs.state().logs.get(warm).map_or(0, |l| u64::from(l.2));
    let ino = create(fs, name)?;
    let mut buf = vec![0; ((SEGMENT - next) % SEGMENT) as usize * BLOCK];
    generate(0, 0, &mut buf);
    fs.write(ino, 0, &buf, WriteFlags::empty())?;
    Ok(fs.fsync(ino, false)?)
}

/// Punches the type's holes, almost equal in size and spread evenly over the segment.
fn punch(fs: &Volume, ino: Ino, first: u64, t: &Type) -> Result<(), SimError> {
    let share = |of: u64, n: u64| of * (n + 1) / t.pieces - of * n / t.pieces;
    let mut at = first;
    for n in 0..t.pieces {
        at += share(t.valid, n);
        let piece = share(SEGMENT - t.valid, n);
        fs.fallocate(ino, Allocate::PunchHole, at * BLOCK as u64, piece * BLOCK as u64)?;
        at += piece;
    }
    Ok(())
}
