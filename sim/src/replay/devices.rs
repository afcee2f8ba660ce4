//! Which device of a recording is replayed, and on how large a one?

use std::path::{Path, PathBuf};

use trace::block::DeviceId;
use trace::only::{Devices, Only};
use trace::requests::Requests;

use super::error::Error;
use super::opening::{self, Part};
use super::program::{Progress, Total, share};
use crate::traces::ReplayError;
use crate::traces::blocks::{Options, Plan};

/// A device by number, such as 8,0, or by name.
///
/// # Errors
/// The text is neither.
pub fn device(text: &str) -> Result<Devices, Error> {
    let numbers = text.split_once([',', ':']).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    if let Some((major, minor)) = numbers {
        return Ok(Devices { numbers: vec![DeviceId { major, minor }], names: Vec::new() });
    }
    let name = text.strip_prefix("/dev/").unwrap_or(text);
    if name.is_empty() || text.starts_with([',', ':']) || text.ends_with([',', ':']) {
        return Err(Error::Setting(format!(
            "--of {text}: write MAJOR,MINOR, e.g. 8,0, or a name; `joulefs trace stat` lists them"
        )));
    }
    Ok(Devices { numbers: fixed(name).into_iter().collect(), names: vec![text.to_owned()] })
}

/// The fixed device number of this name in Linux's list of allocated devices.
fn fixed(name: &str) -> Option<DeviceId> {
    let numbered = |prefix: &str, major: u32| {
        let minor = name.strip_prefix(prefix)?.parse().ok()?;
        Some(DeviceId { major, minor })
    };
    let scsi = || {
        let mut rest = name.strip_prefix("sd")?.chars();
        let disk = rest.next().filter(|c| ('a'..='p').contains(c))? as u32 - 'a' as u32;
        let partition = match rest.as_str() {
            "" => 0,
            digits => digits.parse().ok().filter(|n| (1..=15).contains(n))?,
        };
        Some(DeviceId { major: 8, minor: disk * 16 + partition })
    };
    numbered("loop", 7).or_else(|| numbered("md", 9)).or_else(|| numbered("ram", 1)).or_else(scsi)
}

/// The requests to replay, opened repeatedly.
pub struct Source<'a> {
    path: &'a Path,
    part: &'a Part,
    /// Read only the events of this device.
    only: Option<DeviceId>,
}

impl Source<'_> {
    /// Opens them from the start; also returns the file's size in bytes.
    pub fn open(&self) -> Result<(Requests, u64), Error> {
        let (events, length) = opening::events(self.path, self.part)?;
        let events = match self.only {
            Some(id) => Box::new(Only::new(events, Devices { numbers: vec![id], names: Vec::new() })),
            None => events,
        };
        Ok((Requests::new(events), length))
    }
}

/// All requests of a recording that is replayed before the counted one.
pub(super) fn earlier(path: &Path) -> Result<Requests, Error> {
    opening::again(path)?;
    opening::requests(path, &Part::default()).map(|(requests, _)| requests).map_err(|e| e.named("--after"))
}

/// Plans the replay of a recording's requests on the device `of`, or on the busiest one, after those of the busiest
/// device of each recording in `before`. A device that gets no requests (device mapper) is replayed from its
/// completions or queued bios, if it is named.
pub fn planned<'a>(
    path: &'a Path,
    before: &[PathBuf],
    part: &'a Part,
    of: Option<&str>,
    options: Options,
    progress: &dyn Progress,
) -> Result<Result<(Plan, Source<'a>), ReplayError>, Error> {
    let of = of.map(|text| found(path, part, text)).transpose()?;
    let options = Options { of, ..options };
    let plan = |source: &Source<'_>| -> Result<Result<Plan, ReplayError>, Error> {
        let (requests, length) = source.open()?;
        let job = progress.begin("looking", Total::Bytes(length));
        let before = before.iter().map(|file| earlier(file)).collect::<Result<_, _>>()?;
        Ok(options.plan_behind(before, requests, share(&*job, length, length)))
    };
    let mut source = Source { path, part, only: None };
    let first = plan(&source)?;
    if !matches!(first, Err(ReplayError::NotRecorded { .. })) {
        return Ok(first.map(|plan| (plan, source)));
    }
    source.only = of;
    // If the recording has nothing of that device, the error lists the devices it has.
    Ok(match plan(&source)? {
        Err(ReplayError::NotRecorded { .. } | ReplayError::Empty(_)) => first.map(|plan| (plan, source)),
        other => other.map(|plan| (plan, source)),
    })
}

/// The numbers of a named device.
fn found(path: &Path, part: &Part, text: &str) -> Result<DeviceId, Error> {
    let wanted = device(text)?;
    if let [id] = wanted.numbers[..] {
        return Ok(id);
    }
    let (mut requests, _) = opening::requests(path, part)?;
    let named =
        |requests: &Requests| requests.devices().find(|id| wanted.has(*id, requests.events().device(*id).as_deref()));
    // Damage ends the search; it is reported when the requests are replayed.
    while let Ok(Some(_)) = requests.seen() {
        if let Some(id) = named(&requests) {
            return Ok(id);
        }
    }
    Err(not_there(path, text, &requests))
}

/// Error: the recording has no such device; lists those it has.
pub fn not_there(path: &Path, text: &str, requests: &Requests) -> Error {
    let mut known: Vec<DeviceId> = requests.devices().collect();
    known.sort_unstable();
    if known.len() > 1 {
        // Events without a device, such as plugging.
        known.retain(|id| *id != DeviceId::default());
    }
    let known: Vec<String> = known
        .into_iter()
        .map(|id| requests.events().device(id).map_or_else(|| id.to_string(), |name| format!("{name} ({id})")))
        .collect();
    let there = if known.is_empty() { "none".into() } else { known.join(", ") };
    Error::Setting(format!("--of {text}: {}: no such device in the recording; it has {there}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_linux_names_them_or_by_numbers() {
        let numbers = |text: &str| device(text).unwrap().numbers.first().map(ToString::to_string);
        for (text, id) in
            [("8,0", "8,0"), ("254:4", "254,4"), ("loop3", "7,3"), ("/dev/sdb2", "8,18"), ("md127", "9,127")]
        {
            assert_eq!(numbers(text).as_deref(), Some(id), "{text}");
        }
        for text in ["sdq", "sda16", "vda", "host-0"] {
            assert_eq!(numbers(text), None, "{text}");
        }
        assert!(device("8,").is_err() && device("").is_err());
    }
}
