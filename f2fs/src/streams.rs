//! Which blocks go to which placement handle of the device?
//!
//! A device with several handles of reclaim units ([`BlockDevice::place`](device::BlockDevice::place)) stores writes
//! with the same handle together. Blocks that will be invalidated together should be together there, too: then the
//! device's own cleaning copies less. The mapping ([`Streams`]) is a pure function of a block's log and of whether
//! cleaning moves it there. Metadata in fixed places keeps handle 0.
//!
//! Left out on purpose: querying a device's number of handles (a missing one means 0), and setting the handle
//! (`segment::placed`).

use format::sit::LogType;

/// How writes are mapped to handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Streams {
    /// One handle for everything.
    #[default]
    One,
    /// File contents: hot 1, warm 2, cold 3; nodes 0: kernel `f2fs_io_type_to_write_stream` (Linux 7.2), for devices
    /// with at least three streams.
    Data,
    /// One handle for each log, 1 to 6: the distinctions of the write-life hints of Linux 6.12
    /// (`f2fs_io_type_to_rw_hint`).
    Logs,
    /// As `Data`, and 4 for contents that cleaning moves.
    DataMoved,
    /// As `Logs`, and 7 for contents that cleaning moves.
    LogsMoved,
    /// File contents 1, file contents moved by cleaning 2, nodes 0.
    Moved,
}

impl Streams {
    /// All mappings, by the names used in plans.
    pub const ALL: [(&str, Streams); 6] = [
        ("one", Streams::One),
        ("data", Streams::Data),
        ("logs", Streams::Logs),
        ("data-moved", Streams::DataMoved),
        ("logs-moved", Streams::LogsMoved),
        ("moved", Streams::Moved),
    ];

    /// The handle of a block in a log.
    pub fn handle(self, log: LogType, moved: bool) -> u8 {
        let (index, node) = (log.index() as u8, log.is_node());
        match self {
            Streams::One => 0,
            Streams::DataMoved if moved && !node => 4,
            Streams::Data | Streams::DataMoved => {
                if node {
                    0
                } else {
                    index + 1
                }
            }
            Streams::LogsMoved if moved && !node => 7,
            Streams::Logs | Streams::LogsMoved => index + 1,
            Streams::Moved if node => 0,
            Streams::Moved => 1 + u8::from(moved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handles(s: Streams, moved: bool) -> [u8; 6] {
        LogType::ALL.map(|log| s.handle(log, moved))
    }

    #[test]
    fn linux_tells_contents_apart_by_temperature_and_leaves_nodes() {
        assert_eq!(handles(Streams::Data, false), [1, 2, 3, 0, 0, 0]);
        assert_eq!(handles(Streams::Data, true), [1, 2, 3, 0, 0, 0], "it does not ask who writes");
        assert_eq!(handles(Streams::Logs, false), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn contents_that_move_are_apart_from_all_others_and_nodes_stay() {
        assert_eq!(handles(Streams::DataMoved, true), [4, 4, 4, 0, 0, 0]);
        assert_eq!(handles(Streams::LogsMoved, true), [7, 7, 7, 4, 5, 6]);
        assert_eq!(
            (handles(Streams::Moved, false), handles(Streams::Moved, true)),
            ([1, 1, 1, 0, 0, 0], [2, 2, 2, 0, 0, 0])
        );
        for (name, s) in Streams::ALL {
            assert!(handles(s, true)[3..] == handles(s, false)[3..], "{name}");
        }
    }

    #[test]
    fn without_streams_nothing_is_told_apart() {
        assert_eq!((handles(Streams::One, false), handles(Streams::default(), true)), ([0; 6], [0; 6]));
    }
}
