//! Mount options by name and value, before the kind of file system is known.

pub mod f2fs;
pub mod scherlfs;

use std::sync::Arc;
use std::time::Duration;

use device::HostRoom;
use vfs::Commit;

use crate::Kind;

/// Mount options for each file system.
#[derive(Clone)]
pub struct MountOptions {
    /// Options of F2FS.
    pub f2fs: ::f2fs::MountOptions,
    /// Options of ScherlFS.
    pub scherlfs: ::scherlfs::MountOptions,
    /// Options set by name, with the file systems that accept them.
    given: Vec<(String, Vec<Kind>)>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self::of_f2fs(::f2fs::MountOptions::default())
    }
}

impl From<::f2fs::MountOptions> for MountOptions {
    fn from(f2fs: ::f2fs::MountOptions) -> Self {
        Self::of_f2fs(f2fs)
    }
}

/// Why an option is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Its value is wrong.
    #[error("{0}")]
    Value(String),
    /// No file system has this option.
    #[error("no option {0:?}")]
    Unknown(String),
}

impl MountOptions {
    /// These options for F2FS, defaults for others.
    pub fn of_f2fs(f2fs: ::f2fs::MountOptions) -> Self {
        let read_only = f2fs.read_only;
        let scherlfs = ::scherlfs::MountOptions { read_only, ..Default::default() };
        MountOptions { f2fs, scherlfs, given: Vec::new() }
    }

    /// Sets a read-only mount.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.set_read_only(read_only);
        self
    }

    /// The same in place.
    pub fn set_read_only(&mut self, read_only: bool) {
        (self.f2fs.read_only, self.scherlfs.read_only) = (read_only, read_only);
    }

    /// True for a read-only mount.
    pub fn is_read_only(&self) -> bool {
        self.f2fs.read_only
    }

    /// Sets the room that the host has for the image.
    pub fn set_host_room(&mut self, room: &Arc<HostRoom>) {
        (self.f2fs.host_room, self.scherlfs.host_room) = (Some(room.clone()), Some(room.clone()));
    }

    /// See [`Self::set_host_room`].
    pub fn host_room(&self) -> Option<&Arc<HostRoom>> {
        self.f2fs.host_room.as_ref()
    }

    /// Skips or discards files fsynced after the last checkpoint instead of replaying them; for F2FS only. In
    /// ScherlFS the log behind the checkpoint is part of the volume.
    pub fn roll_forward(&mut self, name: &str, how: ::f2fs::RollForward) {
        self.for_f2fs(name, |options| options.roll_forward = how);
    }

    /// Sets an option that only F2FS has, under the given name: mounting any other volume then fails.
    pub fn for_f2fs(&mut self, name: &str, set: impl FnOnce(&mut ::f2fs::MountOptions)) {
        set(&mut self.f2fs);
        self.given.push((name.to_owned(), vec![Kind::F2fs]));
    }

    /// Records an option that only ScherlFS has and that is not a setting of the volume, such as a separate file.
    pub fn only_scherlfs(&mut self, option: &str) {
        self.given.push((option.to_owned(), vec![Kind::ScherlFs]));
    }

    /// Sets an option by name for every file system that has it.
    ///
    /// # Errors
    /// A wrong value, or no file system with this option.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        let of_f2fs = f2fs::set(&mut self.f2fs, name, value);
        let of_scherlfs = scherlfs::set(&mut self.scherlfs, name, value);
        let mut whose = Vec::new();
        let mut wrong = None;
        for (kind, done) in [(Kind::F2fs, of_f2fs), (Kind::ScherlFs, of_scherlfs)] {
            match done {
                Ok(true) => whose.push(kind),
                Ok(false) => {}
                Err(why) => {
                    wrong.get_or_insert(why);
                }
            }
        }
        match wrong {
            // A value that only one of them accepts is for that one.
            Some(why) if whose.is_empty() => Err(OptionError::Value(why)),
            None if whose.is_empty() => Err(OptionError::Unknown(name.to_owned())),
            _ => {
                let text = value.map_or_else(|| name.to_owned(), |v| format!("{name}={v}"));
                self.given.push((text, whose));
                Ok(())
            }
        }
    }

    /// The first given option that this file system does not have.
    pub fn foreign(&self, kind: Kind) -> Option<&str> {
        self.given.iter().find(|(_, whose)| !whose.contains(&kind)).map(|(name, _)| name.as_str())
    }
}

/// Default time within which changes become durable: as on ext4.
pub const COMMIT: Duration = Duration::from_secs(5);

/// Seconds within which changes become durable; 0: never by time alone. An earlier setting for idle volumes is
/// kept.
fn commit(value: Option<&str>, before: Option<Commit>) -> Result<Option<Commit>, String> {
    const MOST: u64 = 86_400;
    let seconds = value.and_then(|text| text.parse::<u64>().ok()).filter(|seconds| *seconds <= MOST);
    let seconds = seconds.ok_or("write commit=SECONDS, 0 to 86400; 0: no timed commits")?;
    let when_idle = before.is_none_or(|commit| commit.when_idle);
    Ok((seconds > 0).then(|| Commit { when_idle, ..Commit::within(Duration::from_secs(seconds)) }))
}

/// Sets whether changes become durable earlier on an idle volume.
fn commit_idle(value: Option<&str>, commit: &mut Option<Commit>) -> Result<(), String> {
    let when_idle = on(value)?;
    match commit {
        Some(commit) => commit.when_idle = when_idle,
        None => *commit = when_idle.then_some(Commit::within(COMMIT)),
    }
    Ok(())
}

/// Parses on or off; on without a value.
pub fn on(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(_) => Err("on or off".into()),
    }
}

/// Parses a number of at least 1.
pub fn number(name: &str, value: Option<&str>) -> Result<usize, String> {
    let number = value.and_then(|v| v.parse().ok()).filter(|n| (1..=1 << 20).contains(n));
    number.ok_or_else(|| format!("write {name}=NUMBER, 1 or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_set_for_all_that_have_it_and_foreign_to_the_others() {
        let mut options = MountOptions::default();
        options.set("dirty", Some("8")).unwrap();
        options.set("dir_cache", Some("0")).unwrap();
        assert_eq!((options.f2fs.dirty_limit, options.scherlfs.dirty), (2048, 2048));
        assert_eq!(options.foreign(Kind::ScherlFs), None);
        assert_eq!((options.scherlfs.dir_cache, options.foreign(Kind::F2fs)), (0, Some("dir_cache=0")));
        let mut options = MountOptions::default();
        options.set("delta", Some("off")).unwrap();
        assert_eq!((options.foreign(Kind::F2fs), options.foreign(Kind::ScherlFs)), (None, Some("delta=off")));
        options.set("sync", Some("call")).unwrap();
        assert_eq!(options.foreign(Kind::F2fs), Some("sync=call"));
        options.roll_forward("norecovery", ::f2fs::RollForward::Leave);
    }

    #[test]
    fn a_wrong_value_and_an_unknown_name_are_errors() {
        let mut options = MountOptions::default();
        let wrong = |name: &str, value, options: &mut MountOptions| options.set(name, value).unwrap_err().to_string();
        assert_eq!(wrong("sync", Some("never"), &mut options), "call, fsync or burst");
        assert_eq!(wrong("dirty", Some("x"), &mut options), "write dirty=NUMBER, 1 or more");
        assert_eq!(wrong("speed", None, &mut options), "no option \"speed\"");
        assert_eq!(wrong("checkpoint_bytes", Some("1"), &mut options), "write checkpoint_bytes=SIZE, 4K or more");
        assert_eq!((options.foreign(Kind::F2fs), options.foreign(Kind::ScherlFs)), (None, None));
    }
}
