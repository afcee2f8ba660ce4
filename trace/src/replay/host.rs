//! When is a recorded request issued to the device?
//!
//! A host issues a request on arrival, in parallel to those in progress, if the queue has room. The replay waits only
//! where the host itself did: a flush is issued when all earlier writes are done, and no request waits for it. Back to
//! back, requests have no arrival times: each is issued when the queue has room, and a flush is a barrier between
//! earlier and later requests.
//!
//! Left out: requests that a program made only after another one completed. A recording of a device does not show that.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use device::energy::Nanos;
use device::queue::{Ask, Queue};
use device::{DeviceError, Tag};

/// A request of the host.
#[derive(Debug, Clone, Copy)]
pub struct Coming<R> {
    /// Arrival; `None` back to back.
    pub came: Option<Nanos>,
    /// The device request.
    pub ask: Ask,
    /// Its process and cause.
    pub tag: Tag,
    /// True if it ends when durable: a flush follows it.
    pub durable: bool,
    /// The caller's data.
    pub of: R,
}

/// A served request.
#[derive(Debug)]
pub struct Served<R> {
    /// Arrival.
    pub came: Nanos,
    /// When it was issued.
    pub given: Nanos,
    /// When it completed, or why the device refused it.
    pub done: Result<Nanos, DeviceError>,
    /// The caller's data.
    pub of: R,
}

/// A flush that waits for writes.
struct Held<R> {
    ready: Nanos,
    number: u64,
    came: Nanos,
    /// When the write was issued that this flush belongs to; `None` for a separate flush.
    given: Option<Nanos>,
    tag: Tag,
    of: R,
}

impl<R> PartialEq for Held<R> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<R> Eq for Held<R> {}
impl<R> PartialOrd for Held<R> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<R> Ord for Held<R> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.ready, self.number).cmp(&(other.ready, other.number))
    }
}

/// A host above a device.
pub struct Host<'a, R> {
    device: &'a dyn Queue,
    room: usize,
    /// End times of the requests in progress.
    under_way: BinaryHeap<Reverse<Nanos>>,
    held: BinaryHeap<Reverse<Held<R>>>,
    held_ever: u64,
    /// When the last request was issued.
    last: Nanos,
    /// When all writes issued so far are done.
    written: Nanos,
    /// Back to back, the end of the last flush: nothing is issued before.
    barrier: Nanos,
    most: usize,
}

impl<'a, R> Host<'a, R> {
    /// A host that has at most `room` requests in progress, and at least one.
    pub fn new(device: &'a dyn Queue, room: usize) -> Self {
        let now = device.now();
        Host {
            device,
            room: room.max(1),
            under_way: BinaryHeap::new(),
            held: BinaryHeap::new(),
            held_ever: 0,
            last: now,
            written: now,
            barrier: now,
            most: 0,
        }
    }

    /// Most requests in progress so far.
    pub fn most(&self) -> usize {
        self.most
    }

    /// A request arrives, not before the last one; `served` receives requests that were issued.
    pub fn come(&mut self, coming: Coming<R>, served: &mut dyn FnMut(Served<R>)) {
        let from = coming.came.unwrap_or(self.barrier);
        if matches!(coming.ask, Ask::Flush) {
            let ready = from.max(self.written);
            self.hold(ready, coming.came.unwrap_or(self.last), None, coming.tag, coming.of);
        } else {
            // Flushes that become ready earlier go first, and may take its slot.
            let at = loop {
                let at = self.room_from(from);
                match self.held.peek() {
                    Some(Reverse(held)) if held.ready <= at => self.give_held(served),
                    _ => break at,
                }
            };
            let came = coming.came.unwrap_or(at);
            match self.give(at, coming.ask, coming.tag) {
                Ok(done) => {
                    if matches!(coming.ask, Ask::Write { .. }) {
                        self.written = self.written.max(done);
                    }
                    if coming.durable {
                        self.hold(done, came, Some(at), coming.tag, coming.of);
                    } else {
                        served(Served { came, given: at, done: Ok(done), of: coming.of });
                    }
                }
                refused => served(Served { came, given: at, done: refused, of: coming.of }),
            }
        }
        if coming.came.is_none() {
            self.give_all_held(served);
        }
    }

    /// Ends the input and waits until all requests are done.
    pub fn end(&mut self, served: &mut dyn FnMut(Served<R>)) {
        self.give_all_held(served);
        self.device.drain();
    }

    fn hold(&mut self, ready: Nanos, came: Nanos, given: Option<Nanos>, tag: Tag, of: R) {
        self.held.push(Reverse(Held { ready, number: self.held_ever, came, given, tag, of }));
        self.held_ever += 1;
    }

    /// The first time, not before `from`, at which another request may be issued.
    fn room_from(&self, from: Nanos) -> Nanos {
        let at = from.max(self.last);
        if self.under_way.len() < self.room {
            return at;
        }
        // Requests that end by then have left; at most `room` remain, so one end is enough.
        self.under_way.peek().map_or(at, |ends| at.max(ends.0))
    }

    fn give(&mut self, at: Nanos, ask: Ask, tag: Tag) -> Result<Nanos, DeviceError> {
        let done = self.device.submit(at, ask, tag)?;
        self.last = self.last.max(at);
        while self.under_way.peek().is_some_and(|ends| ends.0 <= at) {
            self.under_way.pop();
        }
        self.under_way.push(Reverse(done));
        self.most = self.most.max(self.under_way.len());
        Ok(done)
    }

    fn give_held(&mut self, served: &mut dyn FnMut(Served<R>)) {
        let Some(Reverse(held)) = self.held.pop() else { return };
        let at = self.room_from(held.ready);
        let done = self.give(at, Ask::Flush, held.tag);
        if let Ok(done) = done {
            self.barrier = self.barrier.max(done);
        }
        served(Served { came: held.came, given: held.given.unwrap_or(at), done, of: held.of });
    }

    fn give_all_held(&mut self, served: &mut dyn FnMut(Served<R>)) {
        while !self.held.is_empty() {
            self.give_held(served);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use device::Lba;

    use super::*;

    /// A device whose requests take one nanosecond per block, and flushes 10, independent of load.
    #[derive(Default)]
    struct Plain {
        asked: RefCell<Vec<(u64, Ask)>>,
    }

    impl Queue for Plain {
        fn depth(&self) -> usize {
            8
        }
        fn now(&self) -> Nanos {
            Nanos(0)
        }
        fn submit(&self, at: Nanos, ask: Ask, _: Tag) -> Result<Nanos, DeviceError> {
            let mut asked = self.asked.borrow_mut();
            assert!(asked.last().is_none_or(|(before, _)| *before <= at.0), "requests come in order of time");
            asked.push((at.0, ask));
            Ok(match ask {
                Ask::Read { blocks, .. } | Ask::Write { blocks, .. } => at + Nanos(blocks),
                _ => at + Nanos(10),
            })
        }
        fn drain(&self) -> Nanos {
            Nanos(0)
        }
    }

    fn coming(came: Option<u64>, ask: Ask, of: u8) -> Coming<u8> {
        Coming { came: came.map(Nanos), ask, tag: Tag::default(), durable: false, of }
    }

    fn read(blocks: u64) -> Ask {
        Ask::Read { at: Lba(0), blocks }
    }

    fn write(blocks: u64) -> Ask {
        Ask::Write { at: Lba(0), blocks }
    }

    /// Issue and end of each request, by name.
    fn all(room: usize, requests: Vec<Coming<u8>>) -> Vec<(u8, u64, u64)> {
        let device = Plain::default();
        let mut host = Host::new(&device, room);
        let mut out = Vec::new();
        let mut served = |s: Served<u8>| out.push((s.of, s.given.0, s.done.unwrap().0));
        requests.into_iter().for_each(|r| host.come(r, &mut served));
        host.end(&mut served);
        out.sort_unstable();
        out
    }

    #[test]
    fn requests_are_under_way_together_and_one_too_many_waits_for_the_first_end() {
        let requests = vec![
            coming(Some(0), read(100), 1),
            coming(Some(10), read(20), 2),
            coming(Some(11), read(5), 3),
            coming(Some(12), read(5), 4),
        ];
        assert_eq!(all(2, requests.clone()), [(1, 0, 100), (2, 10, 30), (3, 30, 35), (4, 35, 40)]);
        assert_eq!(all(8, requests.clone()), [(1, 0, 100), (2, 10, 30), (3, 11, 16), (4, 12, 17)]);
        assert_eq!(all(1, requests), [(1, 0, 100), (2, 100, 120), (3, 120, 125), (4, 125, 130)]);
    }

    #[test]
    fn a_flush_waits_for_earlier_writes_and_no_request_waits_for_it() {
        let requests = vec![
            coming(Some(0), write(100), 1),
            coming(Some(5), Ask::Flush, 2),
            coming(Some(6), read(10), 3),
            coming(Some(7), write(1000), 4),
            coming(Some(120), read(1), 5),
        ];
        assert_eq!(all(8, requests), [(1, 0, 100), (2, 100, 110), (3, 6, 16), (4, 7, 1007), (5, 120, 121)]);
    }

    #[test]
    fn a_write_that_must_be_durable_ends_with_its_flush() {
        let durable = Coming { durable: true, ..coming(Some(0), write(100), 1) };
        assert_eq!(all(8, vec![durable, coming(Some(1), read(3), 2)]), [(1, 0, 110), (2, 1, 4)]);
    }

    #[test]
    fn back_to_back_a_flush_keeps_apart_what_was_before_it_and_after() {
        let requests = vec![
            coming(None, write(100), 1),
            coming(None, write(40), 2),
            coming(None, Ask::Flush, 3),
            coming(None, read(7), 4),
        ];
        assert_eq!(all(8, requests), [(1, 0, 100), (2, 0, 40), (3, 100, 110), (4, 110, 117)]);
    }
}
