//! What can a policy see of a volume?
//!
//! A policy sees candidates only through queries ([`View`]), because examining each of hundreds of thousands
//! takes too long. Left out on purpose: how a volume's tables become candidates, and which candidate is best.

use std::ops::Range;

use format::SegNo;

/// A unit that a policy may choose: it has valid blocks and reclaimable ones, and no log writes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate {
    /// Its first segment.
    pub seg: SegNo,
    /// Valid blocks.
    pub valid: u32,
    /// *Held* blocks: those that must not be overwritten before the next checkpoint, because they are valid
    /// or the last checkpoint or recovery may need them. At least `valid`.
    pub held: u32,
    /// Mean write time of its blocks, in seconds of mounted time; for a segment, that of its section.
    pub mtime: u64,
    /// Free-space fragmentation factor of FAGC TACO'23, Algorithm 1: 0 to 4,096,512 per segment.
    pub f: u32,
    /// *Loose* blocks: free blocks in fragments, which are runs shorter than 32 blocks.
    pub loose: u32,
}

impl Candidate {
    /// Its place in age order.
    pub fn place(&self) -> AgeCut {
        (self.mtime, self.seg)
    }
    /// True if the candidate is of this kind; `unit` is its size in segments.
    pub fn is(&self, kind: Among, unit: u32) -> bool {
        match kind {
            Among::All => true,
            Among::Fragmented => 2 * u64::from(self.loose) > u64::from((512 * unit).saturating_sub(self.valid)),
            Among::Open => self.held < 512 * unit,
        }
    }
    /// Upper bound on the fragments that hold its loose blocks; exact if all have one size. By Cauchy's
    /// inequality from the sum of the sizes (`loose`) and the sum of their inverses (`f`).
    pub fn fragments(&self) -> u32 {
        let product = u64::from(self.f) * u64::from(self.loose) / 16_002;
        // The product is below 2^53, where the integer part of a double's root is exact.
        ((product as f64).sqrt() as u32).clamp(u32::from(self.loose > 0), self.loose)
    }
}

/// A kind of candidates, counted and compared together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// Every candidate.
    All,
    /// Candidates with more than half of their free blocks in fragments.
    Fragmented,
    /// *Open* candidates: at least one block may be overwritten before the next checkpoint.
    Open,
}

impl Among {
    /// Every kind, in the order of the enum.
    pub const ALL: [Among; 3] = [Among::All, Among::Fragmented, Among::Open];
}

/// Minimum and maximum of each number in a group of candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of [`Candidate::seg`].
    pub seg: (SegNo, SegNo),
    /// Of [`Candidate::mtime`].
    pub mtime: (u64, u64),
    /// Of [`Candidate::valid`].
    pub valid: (u32, u32),
    /// Of [`Candidate::held`].
    pub held: (u32, u32),
    /// Of [`Candidate::f`].
    pub f: (u32, u32),
    /// Of [`Candidate::loose`].
    pub loose: (u32, u32),
    /// Of [`Candidate::fragments`].
    pub fragments: (u32, u32),
}

impl Bounds {
    /// The bounds of an empty group.
    pub const NONE: Bounds = Bounds {
        seg: (SegNo(u32::MAX), SegNo(0)),
        mtime: (u64::MAX, 0),
        valid: (u32::MAX, 0),
        held: (u32::MAX, 0),
        f: (u32::MAX, 0),
        loose: (u32::MAX, 0),
        fragments: (u32::MAX, 0),
    };
    /// Widens the bounds to include a candidate.
    pub fn add(&mut self, c: &Candidate) {
        self.add_with_fragments(c, c.fragments());
    }
    /// Widens the bounds to include a candidate with `fragments` fragments.
    pub(crate) fn add_with_fragments(&mut self, c: &Candidate, fragments: u32) {
        let widen = |pair: &mut (u32, u32), x: u32| *pair = (pair.0.min(x), pair.1.max(x));
        self.seg = (self.seg.0.min(c.seg), self.seg.1.max(c.seg));
        self.mtime = (self.mtime.0.min(c.mtime), self.mtime.1.max(c.mtime));
        widen(&mut self.valid, c.valid);
        widen(&mut self.held, c.held);
        widen(&mut self.f, c.f);
        widen(&mut self.loose, c.loose);
        widen(&mut self.fragments, fragments);
    }
    /// True if removing this candidate, which lies within and has `fragments` fragments, could narrow the
    /// bounds.
    pub(crate) fn is_edge(&self, c: &Candidate, fragments: u32) -> bool {
        let edge = |pair: (u32, u32), x: u32| pair.0 == x || pair.1 == x;
        edge((self.seg.0.0, self.seg.1.0), c.seg.0)
            || self.mtime.0 == c.mtime
            || self.mtime.1 == c.mtime
            || edge(self.valid, c.valid)
            || edge(self.held, c.held)
            || edge(self.f, c.f)
            || edge(self.loose, c.loose)
            || edge(self.fragments, fragments)
    }
    /// Widens the bounds to include other bounds.
    pub fn join(&mut self, o: &Bounds) {
        let widen = |pair: &mut (u32, u32), x: (u32, u32)| *pair = (pair.0.min(x.0), pair.1.max(x.1));
        self.seg = (self.seg.0.min(o.seg.0), self.seg.1.max(o.seg.1));
        self.mtime = (self.mtime.0.min(o.mtime.0), self.mtime.1.max(o.mtime.1));
        widen(&mut self.valid, o.valid);
        widen(&mut self.held, o.held);
        widen(&mut self.f, o.f);
        widen(&mut self.loose, o.loose);
        widen(&mut self.fragments, o.fragments);
    }
    /// A hypothetical candidate as old, as empty and as fragmented as the bounds allow. No candidate within
    /// the bounds outranks it if the rank is monotone.
    pub fn corner(&self) -> Candidate {
        Candidate {
            seg: SegNo(0),
            valid: self.valid.0,
            held: self.held.0,
            mtime: self.mtime.0,
            f: self.f.1,
            loose: self.loose.1,
        }
    }
}

/// A rank of candidates: the greatest wins. The first number that differs decides.
pub type Rank = [u64; 4];

/// A place in age order: write time, then segment. Every candidate up to this place is at least as old.
pub type AgeCut = (u64, SegNo);

/// The last place among candidates written at `mtime`.
pub fn end_of(mtime: u64) -> AgeCut {
    (mtime, SegNo(u32::MAX))
}

/// A scan over candidates.
pub trait Visit {
    /// True to skip the next group of `count` candidates, which lie within `bounds` and end with `last`.
    fn passes(&mut self, bounds: &Bounds, count: u32, last: SegNo) -> bool;
    /// Receives one candidate; false ends the scan.
    fn visit(&mut self, c: Candidate) -> bool;
}

/// A scan that skips nothing.
struct Each<'a>(&'a mut dyn FnMut(Candidate) -> bool);

impl Visit for Each<'_> {
    fn passes(&mut self, _: &Bounds, _: u32, _: SegNo) -> bool {
        false
    }
    fn visit(&mut self, c: Candidate) -> bool {
        (self.0)(c)
    }
}

/// The queries of a policy on a volume. Age order is by write time, then segment; places are counted from 0
/// among the candidates of one kind.
pub trait View {
    /// Number of candidates.
    fn count(&self) -> u32;
    /// The first segment of the candidate that lies last on the volume.
    fn last(&self) -> Option<SegNo>;
    /// Visits the candidates with `from <= seg < to`, in order of segment number. A view may let the scan
    /// skip whole groups.
    fn walk(&self, from: SegNo, to: SegNo, visit: &mut dyn Visit);
    /// The candidate with `from <= seg < to` and the fewest valid blocks, the first of equals.
    fn emptiest(&self, from: SegNo, to: SegNo) -> Option<Candidate>;
    /// Number of candidates of a kind up to and including `cut`.
    fn count_to(&self, kind: Among, cut: AgeCut) -> u32;
    /// The `n`-th oldest candidate of a kind, counted from 0.
    fn nth_oldest(&self, kind: Among, n: u32) -> Option<AgeCut>;
    /// Calls `each` for the candidates of a kind whose place lies in `range`, the oldest first.
    fn by_age(&self, kind: Among, range: Range<u32>, each: &mut dyn FnMut(Candidate));
    /// The candidate of a kind with the highest `rank` among the places in `range`; of equal ranks the
    /// oldest, then the first on the volume. `limit` is at least the rank of any candidate within the bounds,
    /// so a view may skip a group whose limit is too low.
    fn search(
        &self,
        kind: Among,
        range: Range<u32>,
        limit: &dyn Fn(&Bounds) -> Rank,
        rank: &dyn Fn(&Candidate) -> Rank,
    ) -> Option<Candidate>;

    /// Smallest and greatest `f` among the candidates of a kind whose place lies in `range`.
    fn range_of_f(&self, kind: Among, range: Range<u32>) -> Option<(u32, u32)>;
    /// The candidate with the greatest gain; `None` if none gains anything. Of equals the oldest, then the
    /// first on the volume. `gain` receives the candidate and its number of fragments.
    ///
    /// The gain may depend only on write time, valid blocks, fragments and loose blocks, and of two
    /// candidates that differ only in age the older must not gain less. `limit` is at least the gain of any
    /// candidate within the bounds; it may read only the bounds of these four numbers.
    fn most_gained(&self, limit: &dyn Fn(&Bounds) -> u64, gain: &dyn Fn(&Candidate, u32) -> u64) -> Option<Candidate>;

    /// Calls `each` for the candidates with `from <= seg < to`, in order of segment number, until it returns
    /// false.
    fn scan(&self, from: SegNo, to: SegNo, each: &mut dyn FnMut(Candidate) -> bool) {
        self.walk(from, to, &mut Each(each));
    }
    /// Number of candidates written at `mtime` or before.
    fn count_up_to(&self, mtime: u64) -> u32 {
        self.count_to(Among::All, end_of(mtime))
    }
    /// The candidate of a kind up to `cut` with the highest `rank`; of equal ranks the oldest, then the first
    /// on the volume.
    ///
    /// The rank must be monotone: a candidate that is no younger, has no more valid (and held) blocks, no
    /// smaller `f` and no fewer loose blocks than another never ranks lower, wherever it lies.
    fn best(&self, kind: Among, cut: AgeCut, rank: &dyn Fn(&Candidate) -> Rank) -> Option<Candidate> {
        let range = 0..self.count_to(kind, cut);
        self.search(kind, range, &|b| rank(&b.corner()), rank)
    }
}
