//! How do settings and counters of a running mount pass through a directory?
//!
//! As two extended attributes of its root that no list shows: [`REPORT`] is read, [`SETTING`] is
//! written as `name=value`. The file system never sees them. Only root and the user who mounted may change a setting.
//!
//! Left out on purpose: which settings there are ([`FileSystem::tune`]).

use fuser::Request;
use vfs::{Error, FileSystem, Ino, Result};

/// Reading gives a line `name value` for each counter and setting.
pub const REPORT: &str = "system.joulefs.report";
/// Writing `name=value` changes a setting.
pub const SETTING: &str = "system.joulefs.setting";

/// The answer to reading an attribute, if it is ours.
pub(crate) fn read(fs: &dyn FileSystem, ino: Ino, name: &[u8]) -> Option<Result<Vec<u8>>> {
    (ino == fs.root() && name == REPORT.as_bytes()).then(|| {
        let lines = fs.report().into_iter().map(|(name, value)| format!("{name} {value}\n"));
        Ok(lines.collect::<String>().into_bytes())
    })
}

/// The answer to writing an attribute, if it is ours.
pub(crate) fn write(fs: &dyn FileSystem, req: &Request, ino: Ino, name: &[u8], value: &[u8]) -> Option<Result<()>> {
    (ino == fs.root() && name == SETTING.as_bytes()).then(|| {
        // Who mounted is who this process runs as.
        if req.uid() != 0 && req.uid() != rustix::process::getuid().as_raw() {
            return Err(Error::NotPermitted("settings are for root and for whoever mounted"));
        }
        let text = std::str::from_utf8(value).map_err(|_| Error::Invalid("a setting is text"))?;
        let (name, value) = text.trim().split_once('=').ok_or(Error::Invalid("a setting is written name=value"))?;
        fs.tune(name, value).map_err(|why| {
            log::warn!("{name} {why}, not {value:?}");
            Error::Invalid("no such setting, or no such value for it")
        })
    })
}
