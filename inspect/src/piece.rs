//! What does one node record about its file's blocks, in sixteen bytes per run?

use format::{BlockAddr, Ino};

/// A run of slots of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// The file.
    pub ino: u32,
    /// 0: the inode's own slots; n: the n-th direct node; [`NODE`]: no slots, but one of the file's nodes.
    pub number: u32,
    /// First slot.
    pub slot: u16,
    /// Number of slots.
    pub len: u16,
    /// Address of the first block, the others follow; or one of the two marks, which then holds for every slot.
    pub addr: BlockAddr,
}

/// The number of a piece that stands for a node.
pub const NODE: u32 = u32::MAX;

impl Piece {
    /// A node of a file, other than its inode.
    pub fn node(ino: Ino, addr: BlockAddr) -> Self {
        Piece { ino: ino.0, number: NODE, slot: 0, len: 0, addr }
    }
}

/// Appends the runs of a node's slots. Holes are left out.
pub fn runs(ino: Ino, number: u32, slots: impl Iterator<Item = BlockAddr>, out: &mut Vec<Piece>) {
    let from = out.len();
    for (slot, addr) in (0..=u16::MAX).zip(slots).filter(|(_, addr)| *addr != BlockAddr::NULL) {
        if let Some(last) = out[from..].last_mut() {
            let next = if last.addr.is_real() { last.addr.plus(last.len.into()) } else { last.addr };
            if last.slot + last.len == slot && next == addr && addr.is_real() == last.addr.is_real() {
                last.len += 1;
                continue;
            }
        }
        out.push(Piece { ino: ino.0, number, slot, len: 1, addr });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_holes_marks_and_other_places() {
        let slots = [5, 6, 0, 7, 8, u32::MAX, u32::MAX, u32::MAX - 1, 9, 3, 4].map(BlockAddr);
        let mut out = vec![Piece::node(Ino(1), BlockAddr(4))];
        runs(Ino(1), 2, slots.into_iter(), &mut out);
        let seen: Vec<(u16, u16, u32)> = out[1..].iter().map(|p| (p.slot, p.len, p.addr.0)).collect();
        let marks = [(5, 2, u32::MAX), (7, 1, u32::MAX - 1)];
        assert_eq!(seen, [&[(0, 2, 5), (3, 2, 7)][..], &marks, &[(8, 1, 9), (9, 2, 3)]].concat());
    }
}
