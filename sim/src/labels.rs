//! What are the causes and owners in a ledger called?

use trace::replay::blocks;
use trace::{Names, Process};
use vfs::{Look, Owner, Reason, Volume};

/// Why energy was spent: a stable key for programs, and a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// In lower case with underscores.
    pub key: String,
    /// In words.
    pub text: String,
}

impl Cause {
    /// A cause of a volume or a device.
    pub fn of(key: &str, text: &str) -> Self {
        Cause { key: key.to_owned(), text: text.to_owned() }
    }

    /// A cause without a name.
    pub fn unnamed(n: u8) -> Self {
        Cause { key: format!("cause_{n}"), text: format!("cause {n}") }
    }

    /// A cause in a recording of a block device.
    pub fn of_requests(n: u8) -> Self {
        let n = usize::from(n);
        match (blocks::KEYS.get(n), blocks::CAUSES.get(n)) {
            (Some(key), Some(text)) => Cause::of(key, text),
            _ => Cause::unnamed(n as u8),
        }
    }

    /// A cause from a JouleFS recording, which has only the text. The key is that of the file system whose cause has
    /// this text. Any other text (another version, or a device behind a socket) is turned into a key.
    pub fn recorded(text: &str) -> Self {
        let known = volume::Kind::ALL.into_iter().flat_map(volume::Kind::reasons).find(|r| r.text == text);
        let words = || text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
        let key = known.map_or_else(|| words().collect::<Vec<_>>().join("_").to_lowercase(), |r| r.key.to_owned());
        Cause { key, text: text.to_owned() }
    }
}

/// The meanings of the causes of a volume's requests.
pub struct Words {
    /// The named causes.
    pub reasons: Vec<Reason>,
    /// The label for what belongs to no file.
    pub rest: String,
}

impl Words {
    /// The causes of a volume.
    pub fn of(volume: &dyn Volume) -> Self {
        Words { reasons: volume.reasons(), rest: format!("<{}>", volume.own_blocks()) }
    }

    /// The meaning of a cause, for people and programs. In an account, only idle time has no cause.
    pub fn named(&self, n: u8) -> Cause {
        match self.reasons.iter().find(|r| r.number == n) {
            _ if n == 0 => Cause::of("waiting_other", "waiting, other"),
            Some(reason) => Cause::of(reason.key, reason.text),
            None => Cause::unnamed(n),
        }
    }

    /// The text of a cause, for people.
    pub fn cause(&self, n: u8) -> String {
        self.named(n).text
    }

    /// The stable key of a cause, for programs.
    pub fn key(&self, n: u8) -> String {
        self.named(n).key
    }
}

/// The name of an owner on a volume, or a substitute; `None` if `look` does not find it.
pub fn name(volume: &dyn Volume, owner: u64, look: Look) -> Option<String> {
    match volume.owner_of(owner, look) {
        Owner::Path(path) => Some(String::from_utf8_lossy(&path).into_owned()),
        Owner::Deleted(Some(path)) => Some(format!("<deleted> {}", String::from_utf8_lossy(&path))),
        Owner::Deleted(None) => Some(format!("<deleted inode {owner}>")),
        Owner::Volume | Owner::Unnamed => None,
    }
}

/// The name of a deleted owner: consecutive files with one name, such as journals, share a line.
pub fn deleted(volume: &dyn Volume, owner: u64) -> Option<String> {
    match volume.owner_of(owner, Look::InMemory) {
        Owner::Deleted(Some(path)) => Some(format!("<deleted> {}", String::from_utf8_lossy(&path))),
        _ => None,
    }
}

/// The name of an owner on a volume, searching the volume if needed.
pub fn name_of(volume: &dyn Volume, owner: u64) -> String {
    name(volume, owner, Look::Everywhere).unwrap_or_else(|| format!("<inode {owner}>"))
}

/// Owner 0 in a recording of a block device.
pub const NO_PROCESS: &str = "<no process>";

/// The name of an owner in a recording of a block device.
pub fn process(names: &Names, owner: u64) -> String {
    match names.name(Process(owner.saturating_sub(1) as u32)) {
        "" => "<process not known>".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every existing key. Programs read them: no key may be removed or change its meaning. Add new causes here.
    const F2FS: &str = "other user_data directory_blocks nodes nodes_for_fsync checkpoint_packs nat sit segment_summaries \
        foreground_cleaning_data foreground_cleaning_nodes background_cleaning_data background_cleaning_nodes recovery mkfs \
        fsck superblock bases_of_deltas folded_deltas encoding_deltas decoding_deltas delta_nodes compressed_data compressing \
        decompressing meta_pages_of_deltas defragmentation timed_commits";
    const SCHERLFS: &str = "superblocks contents_read inodes_read directories_read inode_map_read log checkpoints \
        following_the_log making_the_volume making_room bringing_files_together timed_commits";
    const REQUESTS: &str = "waiting read read_ahead read_of_metadata write_somebody_waits_for write_in_the_background \
        write_of_metadata flush discard";

    #[test]
    fn keys_of_causes_are_distinct_words_for_programs_and_none_changes() {
        let of = |kind: volume::Kind| kind.reasons().into_iter().map(|r| (r.key, r.text)).collect::<Vec<_>>();
        let requests: Vec<_> = blocks::KEYS.into_iter().zip(blocks::CAUSES).collect();
        let all = [(of(volume::Kind::F2fs), F2FS), (of(volume::Kind::ScherlFs), SCHERLFS), (requests, REQUESTS)];
        for (causes, promised) in all {
            let keys: Vec<&str> = causes.iter().map(|(key, _)| *key).collect();
            assert_eq!(keys, promised.split_whitespace().collect::<Vec<_>>());
            for (n, (key, text)) in causes.iter().enumerate() {
                let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                assert!(key.chars().all(small) && key.starts_with(|c: char| c.is_ascii_lowercase()), "{key}");
                assert!(!key.ends_with('_') && !key.contains("__"), "{key}");
                assert!(causes[..n].iter().all(|(k, t)| k != key && t != text), "{key} comes twice");
            }
        }
        assert_eq!(Words { reasons: Vec::new(), rest: String::new() }.key(0), "waiting_other");
    }

    #[test]
    fn a_cause_that_a_recording_names_has_the_key_of_its_file_system() {
        assert_eq!(Cause::recorded("nodes for fsync").key, "nodes_for_fsync");
        assert_eq!(Cause::recorded("inode map, read").key, "inode_map_read");
        assert_eq!(Cause::recorded("Something else, once").key, "something_else_once");
        assert_eq!(
            (Cause::of_requests(2).key.as_str(), Cause::of_requests(99).key.as_str()),
            ("read_ahead", "cause_99")
        );
    }
}
