//! How far is a job?

/// The progress of a job, for a display. A part of the job reports through [`Progress::part`].
pub struct Progress<'a> {
    tell: &'a (dyn Fn(f64) + Sync),
    from: f64,
    span: f64,
}

impl<'a> Progress<'a> {
    /// The progress of a whole job.
    pub fn new(tell: &'a (dyn Fn(f64) + Sync)) -> Self {
        Progress { tell, from: 0.0, span: 1.0 }
    }

    /// The progress of part `n` of `of` equal parts.
    pub fn part(&self, n: usize, of: usize) -> Progress<'a> {
        let span = self.span / of.max(1) as f64;
        Progress { tell: self.tell, from: self.from + span * n as f64, span }
    }

    /// Reports the share that is done, 0 to 1.
    pub fn report(&self, share: f64) {
        (self.tell)(self.from + self.span * share.clamp(0.0, 1.0));
    }
}
