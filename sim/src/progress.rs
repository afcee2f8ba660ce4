//! How far a job is.

/// How far a job is, for a display. Parts of the job tell their own way through
/// [`Progress::part`].
pub struct Progress<'a> {
    tell: &'a (dyn Fn(f64) + Sync),
    from: f64,
    span: f64,
}

impl<'a> Progress<'a> {
    /// From nothing to all of a job.
    pub fn new(tell: &'a (dyn Fn(f64) + Sync)) -> Self {
        Progress { tell, from: 0.0, span: 1.0 }
    }

    /// Part `n` of `of` equal ones.
    pub fn part(&self, n: usize, of: usize) -> Progress<'a> {
        let span = self.span / of.max(1) as f64;
        Progress { tell: self.tell, from: self.from + span * n as f64, span }
    }

    /// So much of it is done, 0 to 1.
    pub fn at(&self, share: f64) {
        (self.tell)(self.from + self.span * share.clamp(0.0, 1.0));
    }
}
