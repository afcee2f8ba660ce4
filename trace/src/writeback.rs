//! Which inode's pages does a kernel thread write?
//!
//! Dirty pages of processes are written later by shared kernel threads. The kernel's writeback tracepoints record when
//! such a thread begins to write an inode (`writeback_single_inode_start`) and when it has finished
//! (`writeback_single_inode`): the thread's requests in between are that inode's. They also record which process makes
//! pages dirty (`writeback_dirty_folio`, before Linux 5.18 `writeback_dirty_page`) or a clean inode dirty
//! (`writeback_dirty_inode_enqueue`).
//!
//! Left out: requests made through another thread (compressed and checksummed data of Btrfs, dm-crypt), and which
//! process dirtied a particular page of an inode. Most events name the disk, not the partition: if two partitions of a
//! disk have dirty inodes with the same number at the same time, the processes of both are merged.

use rustc_hash::FxHashMap;

use crate::block::DeviceId;
use crate::names::files::{Place, Writing, Written};
use crate::{Names, Process};

/// Least number of inodes whose dirtying processes are remembered; the most is twice as many.
const REMEMBERED: usize = 1 << 15;
/// Most processes named per inode.
const NAMED: usize = 4;
/// Nanoseconds after which a thread is taken to have finished an inode, even without an event.
const LONGEST: u64 = 60_000_000_000;

/// Type of an inode event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A page of the inode, or the inode itself, became dirty.
    Dirtied,
    /// The thread begins to write it.
    Begins,
    /// The thread has finished it.
    Ends {
        /// True if pages are still dirty, or dirty again.
        left: bool,
    },
}

/// An event with its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) what: What,
    pub(crate) place: Place,
    pub(crate) ino: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Dirtiers {
    by: Vec<Process>,
    more: bool,
}

impl Dirtiers {
    fn add(&mut self, process: Process) {
        if let Err(at) = self.by.binary_search(&process) {
            if self.by.len() < NAMED {
                self.by.insert(at, process);
            } else {
                self.more = true;
            }
        }
    }
    fn join(&mut self, other: Dirtiers) {
        other.by.into_iter().for_each(|process| self.add(process));
        self.more |= other.more;
    }
}

type Inode = (Place, u64);

/// An inode that a thread is writing.
#[derive(Debug)]
struct Open {
    inode: Inode,
    since: u64,
    by: Dirtiers,
    /// Writeback of its requests on a device.
    known: Option<(DeviceId, Writing)>,
}

/// The processes that dirtied inodes, and the inodes being written.
#[derive(Debug, Default)]
pub(crate) struct Writings {
    young: FxHashMap<Inode, Dirtiers>,
    old: FxHashMap<Inode, Dirtiers>,
    /// By thread.
    open: FxHashMap<u32, Open>,
}

/// True for kernel threads shared by all processes.
pub(crate) fn works_for_anybody(name: &str) -> bool {
    ["kworker/", "swapper/", "ksoftirqd/", "irq/", "flush-"].iter().any(|begins| name.starts_with(begins))
}

impl Writings {
    fn dirtiers_mut(&mut self, inode: Inode) -> &mut Dirtiers {
        if !self.young.contains_key(&inode) {
            if self.young.len() == REMEMBERED {
                self.old = std::mem::take(&mut self.young);
            }
            let known = self.old.remove(&inode).unwrap_or_default();
            self.young.insert(inode, known);
        }
        self.young.entry(inode).or_default()
    }

    fn take(&mut self, inode: Inode) -> Dirtiers {
        self.young.remove(&inode).or_else(|| self.old.remove(&inode)).unwrap_or_default()
    }

    /// Handles an event of a thread with this number and name.
    pub(crate) fn add(&mut self, notice: Notice, (time, pid, process): (u64, u32, Process), names: &Names) {
        let inode = (notice.place, notice.ino);
        match notice.what {
            What::Dirtied => {
                let name = names.name(process);
                if !name.is_empty() && !works_for_anybody(name) {
                    self.dirtiers_mut(inode).add(process);
                }
            }
            What::Begins => {
                let by = self.take(inode);
                if self.open.len() >= REMEMBERED {
                    self.open.clear();
                }
                self.open.insert(pid, Open { inode, since: time, by, known: None });
            }
            What::Ends { left } => {
                if let Some(open) = self.open.remove(&pid)
                    && left
                    && open.inode == inode
                {
                    self.dirtiers_mut(inode).join(open.by);
                }
            }
        }
    }

    /// Events were lost: forgets what threads are writing.
    pub(crate) fn forget_open(&mut self) {
        self.open.clear();
    }

    /// The writeback that a thread's request to a device belongs to.
    #[inline]
    pub(crate) fn part_of(&mut self, time: u64, pid: u32, device: DeviceId, names: &mut Names) -> Writing {
        if self.open.is_empty() {
            return Writing::default();
        }
        self.look(time, pid, device, names)
    }

    fn look(&mut self, time: u64, pid: u32, device: DeviceId, names: &mut Names) -> Writing {
        let Some(open) = self.open.get_mut(&pid) else { return Writing::default() };
        if time.saturating_sub(open.since) > LONGEST {
            self.open.remove(&pid);
            return Writing::default();
        }
        match open.known {
            Some((of, writing)) if of == device => return writing,
            _ => {}
        }
        let (place, ino) = open.inode;
        // Requests that a stacked device passes on belong to its own inode.
        let above = numbers(names.files.place(place)).filter(|(major, _)| *major != device.major);
        let of = above.unwrap_or((device.major, device.minor));
        // The dirtying processes may have been recorded by partition.
        let named = names.files.place_of(of);
        let partition = (named, ino);
        if partition != open.inode
            && let Some(more) = self.young.remove(&partition).or_else(|| self.old.remove(&partition))
        {
            open.by.join(more);
        }
        let Dirtiers { by, more } = open.by.clone();
        let writing = names.files.writing(Written { device: of, place, ino, by, more });
        open.known = Some((device, writing));
        writing
    }
}

/// A disk's numbers, separated by a colon.
fn numbers(place: &str) -> Option<(u32, u32)> {
    let (major, minor) = place.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DeviceId = DeviceId { major: 8, minor: 0 };
    const PARTITION: DeviceId = DeviceId { major: 8, minor: 1 };

    struct Events {
        writings: Writings,
        names: Names,
        time: u64,
    }

    impl Events {
        fn new() -> Self {
            Events { writings: Writings::default(), names: Names::default(), time: 0 }
        }
        fn add(&mut self, pid: u32, name: &str, place: &str, ino: u64, what: What) {
            self.time += 1;
            let (process, place) = (self.names.number(name.as_bytes()), self.names.files.place_named(place.as_bytes()));
            self.writings.add(Notice { what, place, ino }, (self.time, pid, process), &self.names);
        }
        fn part_of(&mut self, pid: u32, device: DeviceId) -> Option<(u64, Vec<String>, (u32, u32))> {
            let writing = self.writings.part_of(self.time, pid, device, &mut self.names);
            let written = self.names.files.written(writing)?;
            let by = written.by.iter().map(|p| self.names.name(*p).to_owned()).collect();
            Some((written.ino, by, written.device))
        }
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn exactly_the_requests_between_begin_and_end_belong_to_the_inode() {
        let mut t = Events::new();
        t.add(7, "dd", "8:0", 12, What::Dirtied);
        t.add(8, "cp", "8:0", 13, What::Dirtied);
        t.add(9, "cat", "8:0", 13, What::Dirtied);
        t.add(3, "kworker/1", "8:0", 13, What::Dirtied);
        assert_eq!(t.part_of(3, PARTITION), None);
        t.add(3, "kworker/1", "8:0", 12, What::Begins);
        t.add(4, "kworker/2", "8:0", 13, What::Begins);
        assert_eq!(t.part_of(3, PARTITION), Some((12, names(&["dd"]), (8, 1))));
        assert_eq!(t.part_of(4, PARTITION), Some((13, names(&["cp", "cat"]), (8, 1))));
        assert_eq!(t.part_of(5, PARTITION), None);
        t.add(3, "kworker/1", "8:0", 12, What::Ends { left: false });
        assert_eq!(t.part_of(3, PARTITION), None);
    }

    #[test]
    fn dirtiers_count_until_their_pages_are_written() {
        let mut t = Events::new();
        t.add(7, "dd", "8:0", 12, What::Dirtied);
        for (left, then) in [(true, names(&["dd", "cp"])), (false, names(&["cp"]))] {
            t.add(3, "kworker/1", "8:0", 12, What::Begins);
            assert_eq!(t.part_of(3, DISK).unwrap().1[0], "dd");
            t.add(8, "cp", "8:0", 12, What::Dirtied);
            t.add(3, "kworker/1", "8:0", 12, What::Ends { left });
            t.add(3, "kworker/1", "8:0", 12, What::Begins);
            assert_eq!(t.part_of(3, DISK).unwrap().1, then);
            // As if nothing had been written.
            t.add(3, "kworker/1", "8:0", 12, What::Ends { left: true });
        }
    }

    #[test]
    fn dirtying_processes_recorded_by_partition_and_requests_to_a_lower_disk_are_found() {
        let mut t = Events::new();
        t.add(7, "dd", "8:1", 12, What::Dirtied);
        t.add(7, "dd", "8:2", 12, What::Dirtied);
        t.add(8, "cp", "253:0", 5, What::Dirtied);
        t.add(3, "kworker/1", "8:0", 12, What::Begins);
        assert_eq!(t.part_of(3, PARTITION), Some((12, names(&["dd"]), (8, 1))));
        t.add(3, "kworker/1", "253:0", 5, What::Begins);
        assert_eq!(t.part_of(3, DISK), Some((5, names(&["cp"]), (253, 0))));
        t.add(3, "kworker/1", "btrfs-1", 257, What::Begins);
        assert_eq!(t.part_of(3, DISK), Some((257, Vec::new(), (8, 0))));
    }

    #[test]
    fn many_dirtiers_and_inodes_take_bounded_room() {
        let mut t = Events::new();
        for n in 0..9 {
            t.add(n, &format!("p{n}"), "8:0", 1, What::Dirtied);
        }
        assert_eq!(t.writings.take((t.names.files.place_named(b"8:0"), 1)).by.len(), NAMED);
        for n in 0..5 * REMEMBERED as u64 {
            t.add(7, "dd", "8:0", n, What::Dirtied);
            t.add(n as u32, "kworker/1", "8:0", n + 1, What::Begins);
        }
        assert!(t.writings.young.len() <= REMEMBERED && t.writings.old.len() <= REMEMBERED);
        assert!(t.writings.open.len() <= REMEMBERED);
        // A thread without an end event has finished after a timeout.
        t.add(3, "kworker/1", "8:0", 12, What::Begins);
        t.time += LONGEST + 1;
        assert_eq!(t.part_of(3, DISK), None);
    }
}
