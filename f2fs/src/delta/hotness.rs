//! Which files are read often, and which are written often?
//!
//! Like Hcluster in MedFS FAST'25 (section 4.2): the reads and writes of each file in a window of 60 seconds are a
//! point, and K-means divides the points into four classes. Each window starts from the centres of the window before.
//! Two things differ. Points are logarithms, because files differ by factors. Classes are named by the position of
//! their centres, not by number, because centres move.
//!
//! `volume::restore` and [`super::plan`] define what a class means for deltas.

use std::time::Duration;

use format::Ino;

/// Length of a window (the paper's T).
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// Reads and writes of a file in one window, as logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    reads: f64,
    writes: f64,
}

/// The class of a file, relative to other files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Neither read nor written often.
    Quiet,
    /// Read often, written seldom.
    Read,
    /// Written often, seldom read.
    Written,
    /// Read and written often.
    Both,
}

/// Most rounds of moving centres. Files move little from window to window.
const ROUNDS: usize = 16;
/// Initial coordinates of centres: 0, and this value (a few hundred requests a minute, as a logarithm).
const FAR: f64 = 5.0;

impl Point {
    /// The point for these counts.
    pub(crate) fn of(reads: u32, writes: u32) -> Point {
        Point { reads: f64::from(reads).ln_1p(), writes: f64::from(writes).ln_1p() }
    }
    fn distance(self, other: Point) -> f64 {
        (self.reads - other.reads).powi(2) + (self.writes - other.writes).powi(2)
    }
}

/// The centres of the four classes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Clusters([Point; 4]);

impl Default for Clusters {
    fn default() -> Self {
        let at = |reads, writes| Point { reads, writes };
        Clusters([at(0.0, 0.0), at(FAR, 0.0), at(0.0, FAR), at(FAR, FAR)])
    }
}

impl Clusters {
    fn nearest(&self, point: Point) -> usize {
        let by_distance = |a: &usize, b: &usize| point.distance(self.0[*a]).total_cmp(&point.distance(self.0[*b]));
        // OK to unwrap: there are four centres.
        (0..self.0.len()).min_by(by_distance).unwrap()
    }

    /// Moves the centres to the middles of their points until nothing changes. A centre without points stays.
    pub(crate) fn update(&mut self, points: &[Point]) {
        for _ in 0..ROUNDS {
            let mut sums = [(0.0, 0.0, 0_usize); 4];
            for p in points {
                let sum = &mut sums[self.nearest(*p)];
                *sum = (sum.0 + p.reads, sum.1 + p.writes, sum.2 + 1);
            }
            let before = *self;
            for (centre, (reads, writes, n)) in self.0.iter_mut().zip(sums) {
                if n > 0 {
                    *centre = Point { reads: reads / n as f64, writes: writes / n as f64 };
                }
            }
            if *self == before {
                return;
            }
        }
    }

    /// The class of a file.
    pub(crate) fn class_of(&self, point: Point) -> Class {
        let centre = self.0[self.nearest(point)];
        let middle = |of: fn(&Point) -> f64| {
            let (low, high) = self.0.iter().map(of).fold((f64::MAX, 0.0_f64), |(l, h), x| (l.min(x), h.max(x)));
            f64::midpoint(low, high)
        };
        match (centre.reads > middle(|p| p.reads), centre.writes > middle(|p| p.writes)) {
            (false, false) => Class::Quiet,
            (true, false) => Class::Read,
            (false, true) => Class::Written,
            (true, true) => Class::Both,
        }
    }
}

/// A file's activity in the last window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeat {
    /// The file.
    pub ino: Ino,
    /// Number of reads.
    pub reads: u32,
    /// Number of writes.
    pub writes: u32,
    /// Its class, relative to other files.
    pub class: Class,
}

/// Activity of all files.
#[derive(Default)]
pub(crate) struct Hotness {
    pub(crate) clusters: Clusters,
    /// When the window began.
    pub(crate) since: Duration,
    /// Files that were read or written in the window before, if classes are enabled.
    pub(crate) last: Vec<FileHeat>,
    /// Files whose delta nodes must be emptied.
    pub(crate) waiting: Vec<Ino>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_differ_by_factors_fall_into_four_classes() {
        let mut clusters = Clusters::default();
        let near =
            |reads: u32, writes: u32| (0..20).map(move |i| Point::of(reads + reads * i / 40, writes + writes * i / 40));
        let groups = [(2, 1, Class::Quiet), (900, 3, Class::Read), (4, 700, Class::Written), (500, 400, Class::Both)];
        let points: Vec<Point> = groups.iter().flat_map(|(r, w, _)| near(*r, *w)).collect();
        for _ in 0..3 {
            clusters.update(&points);
        }
        for (r, w, class) in groups {
            assert!(near(r, w).all(|p| clusters.class_of(p) == class), "{r} reads, {w} writes: {clusters:?}");
        }
    }

    #[test]
    fn centres_move_to_the_load_of_the_machine() {
        let mut clusters = Clusters::default();
        let point = Point::of(40, 0);
        assert_eq!(clusters.class_of(point), Class::Read);
        // On a busy machine that is little activity.
        let busy: Vec<Point> = (0..50).flat_map(|i| [Point::of(40 + i, 1), Point::of(60_000 + i, 2)]).collect();
        (0..4).for_each(|_| clusters.update(&busy));
        assert_eq!(clusters.class_of(point), Class::Quiet);
        assert_eq!(clusters.class_of(Point::of(60_000, 1)), Class::Read);
    }

    #[test]
    fn nothing_moves_without_files() {
        let mut clusters = Clusters::default();
        clusters.update(&[]);
        assert_eq!(clusters, Clusters::default());
    }
}
