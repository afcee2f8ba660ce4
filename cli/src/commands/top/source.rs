//! Where do requests come from: live from the kernel, or from a recording played as if live?

use std::path::Path;
use std::time::Duration;

use host::kernel::Kernel;
use sim::replay::Error;
use sim::replay::opening::{self, Part};
use trace::askers::Attributed;
use trace::requests::{Request, Requests, Seen};
use trace::{Names, Opened, TraceError};

use crate::Failure;

/// Interval of reading requests and checking for signals.
pub const STEP: Duration = Duration::from_millis(100);

/// A recording being played.
pub struct Recording {
    requests: Requests,
    ahead: Option<Request>,
    /// Why reading it ended early.
    pub damage: Option<TraceError>,
}

/// The requests of a recording, each with its process.
pub fn open(file: &Path) -> Result<Requests, Failure> {
    // Read as a part that covers everything: then events out of time order are counted.
    let opened = match opening::open_part(file, &Part::default())?.opened {
        Opened::Blocks(events) => events,
        Opened::Calls(_) => {
            return Err(Error::of_kind(file, "calls to a file system", "requests to a block device").into());
        }
        Opened::Power(_) => return Err(Error::of_kind(file, "a meter", "requests to a block device").into()),
    };
    let cleared = sim::traces::requeued::Cleared::new(opened);
    Ok(Requests::new(Box::new(Attributed::new(Box::new(cleared)))))
}

impl Recording {
    /// Plays a recording.
    pub fn new(requests: Requests) -> Self {
        Recording { requests, ahead: None, damage: None }
    }

    /// Number of events out of time order so far.
    pub fn late(&self) -> u64 {
        self.requests.events().timing().late
    }

    /// The next request, without removing it.
    pub fn peek(&mut self) -> Option<Request> {
        while self.ahead.is_none() && self.damage.is_none() {
            match self.requests.seen() {
                Ok(Some(Seen::Asked(request))) => self.ahead = Some(request),
                Ok(Some(Seen::Done { .. })) => {}
                Ok(None) => break,
                Err(e) => self.damage = Some(e),
            }
        }
        self.ahead
    }

    /// Removes the next request if it came before `until`.
    fn before(&mut self, until: u64) -> Option<Request> {
        self.peek().filter(|r| r.time < until)?;
        self.ahead.take()
    }
}

/// A source of requests.
pub enum Source {
    /// The kernel's.
    Kernel(Box<Kernel>),
    /// Those of a recording.
    Recording(Box<Recording>),
}

impl Source {
    /// Takes the requests since the last call, from a recording those up to `until`. Returns the time up to which they
    /// are complete.
    pub fn take(&mut self, until: u64, mut take: impl FnMut(Request, &Names)) -> Result<u64, Failure> {
        match self {
            Source::Kernel(kernel) => kernel.requests(take).map_err(|e| e.to_string().into()),
            Source::Recording(recording) => {
                while let Some(request) = recording.before(until) {
                    take(request, recording.requests.names());
                }
                Ok(until)
            }
        }
    }

    /// Time of the first request by the events' clock; 0 for the kernel.
    pub fn begins(&mut self) -> u64 {
        match self {
            Source::Kernel(_) => 0,
            Source::Recording(recording) => recording.peek().map_or(0, |r| r.time),
        }
    }

    /// Waits for requests, at most `most`.
    pub fn wait(&self, most: Duration) {
        match self {
            Source::Kernel(kernel) => kernel.wait(most),
            Source::Recording(_) => std::thread::sleep(most.min(STEP)),
        }
    }

    /// Names of processes in the requests so far.
    pub fn names(&self) -> &Names {
        match self {
            Source::Kernel(kernel) => kernel.names(),
            Source::Recording(recording) => recording.requests.names(),
        }
    }

    /// True at the end of a recording.
    pub fn ended(&mut self) -> bool {
        match self {
            Source::Kernel(_) => false,
            Source::Recording(recording) => recording.peek().is_none(),
        }
    }
}
