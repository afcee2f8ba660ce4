//! Which of several layers that record the same requests is used?
//!
//! This is decided at the first event of a lower layer, by looking ahead for an issue or completion of the block layer,
//! which is preferred. Events of other layers are counted.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::{Heard, Layer};
use crate::block::{Action, DeviceId, Event, Events};
use crate::names::count;
use crate::writeback::Writings;
use crate::{Format, Names, OtherCounts, TraceError};

/// Most events to look ahead.
const LOOK: usize = 1 << 16;
/// Most requests in progress whose sizes are remembered.
const UNDER_WAY: usize = 1 << 16;

/// A recording of tracepoints with all layers.
pub(crate) trait Source: Send {
    /// The format.
    fn format(&self) -> Format;
    /// The next event; `None` at a complete end.
    fn pull(&mut self) -> Result<Option<Heard>, TraceError>;
    /// Names of processes so far.
    fn names(&self) -> &Names;
    /// The names, mutable.
    fn names_mut(&mut self) -> &mut Names;
    /// Counts so far.
    fn other_counts(&self) -> &OtherCounts;
    /// The counts, mutable.
    fn other_counts_mut(&mut self) -> &mut OtherCounts;
    /// Bytes of the file read so far.
    fn consumed(&self) -> u64;
}

/// One layer of a recording.
pub(crate) struct Layered<S> {
    source: S,
    chosen: Option<Layer>,
    ahead: VecDeque<Heard>,
    failed: Option<TraceError>,
    /// Inodes that threads write back.
    writings: Writings,
    /// Sectors of requests whose completion lacks them (`block_io_done`).
    sizes: FxHashMap<(DeviceId, u64), u64>,
    ended: bool,
    /// True if the block layer was chosen and no looked-ahead events are left.
    settled: bool,
}

/// True if an event decides for its layer.
fn decides(heard: &Heard) -> bool {
    matches!(heard.event.action, Action::Issue | Action::Complete)
}

/// Name under which an ignored event is counted.
fn name(heard: &Heard) -> &'static str {
    match (heard.layer, heard.event.action) {
        (Layer::Block, Action::Issue) => "block_rq_issue",
        (Layer::Block, _) => "block_rq_complete",
        (Layer::Accounting, Action::Issue) => "block_io_start",
        (Layer::Accounting, _) => "block_io_done",
        (Layer::Controller, _) => "ufshcd_command",
        // It never decides.
        (Layer::Writeback, _) => "writeback",
    }
}

impl<S: Source> Layered<S> {
    pub(crate) fn new(source: S) -> Self {
        Layered {
            source,
            chosen: None,
            ahead: VecDeque::new(),
            failed: None,
            writings: Writings::default(),
            sizes: FxHashMap::default(),
            ended: false,
            settled: false,
        }
    }

    /// Looks ahead until a layer can be chosen; `first` is the next event.
    fn choose(&mut self, first: Heard) -> Layer {
        let mut best = first.layer;
        self.ahead.push_back(first);
        while best != Layer::Block && self.ahead.len() < LOOK {
            match self.source.pull() {
                Ok(Some(heard)) => {
                    if decides(&heard) {
                        best = best.min(heard.layer);
                    }
                    self.ahead.push_back(heard);
                }
                Ok(None) => break,
                Err(e) => {
                    self.failed = Some(e);
                    break;
                }
            }
        }
        best
    }

    /// Returns the event if its layer was chosen.
    fn listen(&mut self, chosen: Layer, heard: Heard) -> Option<Event> {
        if decides(&heard) && heard.layer != chosen {
            count(self.source.other_counts_mut(), name(&heard));
            return None;
        }
        let mut event = heard.event;
        if let Some(notice) = heard.notice {
            self.writings.add(notice, (event.time, event.pid, event.process), self.source.names());
            return None;
        }
        if event.action == Action::Queue {
            let (time, pid, device) = (event.time, event.pid, event.device);
            event.writing = self.writings.part_of(time, pid, device, self.source.names_mut());
        }
        if heard.layer == Layer::Accounting {
            let place = (event.device, event.sector);
            if event.action == Action::Issue {
                if self.sizes.len() < UNDER_WAY {
                    self.sizes.insert(place, event.sectors);
                }
            } else if let Some(sectors) = self.sizes.remove(&place)
                && event.sectors == 0
            {
                event.sectors = sectors;
            }
        }
        Some(event)
    }
}

impl<S: Source> Events for Layered<S> {
    fn format(&self) -> Format {
        self.source.format()
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        // The usual case: nothing to decide or remember.
        while self.settled {
            match self.source.pull() {
                Ok(Some(heard)) if heard.layer == Layer::Block && heard.event.action != Action::Queue => {
                    return Ok(Some(heard.event));
                }
                Ok(Some(heard)) => {
                    if let Some(event) = self.listen(Layer::Block, heard) {
                        return Ok(Some(event));
                    }
                }
                end => {
                    (self.settled, self.ended) = (false, true);
                    return end.map(|_| None);
                }
            }
        }
        // After an error below, nothing follows.
        while !std::mem::replace(&mut self.ended, true) {
            let heard = match self.ahead.pop_front() {
                Some(heard) => heard,
                None => match self.failed.take() {
                    Some(e) => return Err(e),
                    None => match self.source.pull()? {
                        Some(heard) => heard,
                        None => break,
                    },
                },
            };
            self.ended = false;
            self.settled = self.chosen == Some(Layer::Block) && self.ahead.is_empty() && self.failed.is_none();
            let event = match self.chosen {
                Some(chosen) => self.listen(chosen, heard),
                None if !decides(&heard) => self.listen(Layer::Block, heard),
                None => {
                    self.chosen = Some(self.choose(heard));
                    continue;
                }
            };
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    fn names(&self) -> &Names {
        self.source.names()
    }

    fn other_counts(&self) -> &OtherCounts {
        self.source.other_counts()
    }

    fn consumed(&self) -> u64 {
        self.source.consumed()
    }
}
