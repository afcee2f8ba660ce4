//! Which devices of a recording are selected, and what is reported about devices that are not counted?

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sim::traces::ReplayError;
use sim::traces::blocks::{Options, Plan};
use trace::Opened;
use trace::block::DeviceId;
use trace::only::{Devices, Only};
use trace::requests::Requests;
use trace::stacks::LeftOut;

use crate::session::SessionArgs;
use crate::{Failure, recorded};

/// Devices that are asked for.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct OfArgs {
    /// Only this device of the recording, by number, e.g. 8,0, or by name, e.g. sda or loop0; may be given several
    /// times. Default: every device except those whose requests were also recorded on a lower device.
    #[arg(long, value_name = "DEV")]
    of: Vec<String>,
}

impl OfArgs {
    /// The arguments as typed.
    pub fn typed(&self) -> &[String] {
        &self.of
    }

    /// The devices; none if all are selected.
    pub fn devices(&self) -> Result<Devices, Failure> {
        let mut all = Devices::default();
        for text in &self.of {
            let Devices { numbers, names } = device(text)?;
            all.numbers.extend(numbers);
            all.names.extend(names);
        }
        Ok(all)
    }
}

/// A device by number or name.
pub fn device(text: &str) -> Result<Devices, Failure> {
    let numbers = text.split_once([',', ':']).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    if let Some((major, minor)) = numbers {
        return Ok(Devices { numbers: vec![DeviceId { major, minor }], names: Vec::new() });
    }
    let name = text.strip_prefix("/dev/").unwrap_or(text);
    if name.is_empty() || text.starts_with([',', ':']) || text.ends_with([',', ':']) {
        return Err(Failure::usage(format!(
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
    part: &'a SessionArgs,
    /// Read only the events of this device.
    only: Option<DeviceId>,
}

impl Source<'_> {
    /// Opens them from the start; also returns the file's length.
    pub fn open(&self) -> Result<(Requests, u64), Failure> {
        requests(self.path, self.part, self.only)
    }
}

/// The requests of a block device recording, without the duplicates of a mobile block trace.
fn requests(path: &Path, part: &SessionArgs, only: Option<DeviceId>) -> Result<(Requests, u64), Failure> {
    let recorded::Recorded { opened, length } = recorded::open_cleared(path, part)?;
    let Opened::Blocks(events) = opened else { return Err(recorded::no_blocks(path, &opened)) };
    let events = match only {
        Some(id) => Box::new(Only::new(events, Devices { numbers: vec![id], names: Vec::new() })),
        None => events,
    };
    Ok((Requests::new(events), length))
}

/// All requests of a recording, for `--after`.
pub fn earlier(path: &Path) -> Result<Requests, Failure> {
    recorded::again(path)?;
    requests(path, &SessionArgs::default(), None).map(|(requests, _)| requests).map_err(|e| e.named("--after"))
}

/// Plans the replay of a recording's requests on the device `of`, or on the busiest one, after those of the busiest
/// device of each recording in `before`. A device that gets no requests (device mapper) is replayed from its
/// completions or queued bios, if it is named.
pub fn planned<'a>(
    path: &'a Path,
    before: &[PathBuf],
    part: &'a SessionArgs,
    of: Option<&str>,
    options: Options,
) -> Result<Result<(Plan, Source<'a>), ReplayError>, Failure> {
    let of = of.map(|text| found(path, part, text)).transpose()?;
    let options = Options { of, ..options };
    let plan = |source: &Source<'_>| -> Result<Result<Plan, ReplayError>, Failure> {
        let (requests, length) = source.open()?;
        let (bar, moved) = recorded::bar(length, "looking");
        let before = before.iter().map(|file| earlier(file)).collect::<Result<_, _>>()?;
        let plan = options.plan_behind(before, requests, moved);
        bar.finish_and_clear();
        Ok(plan)
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
fn found(path: &Path, part: &SessionArgs, text: &str) -> Result<DeviceId, Failure> {
    let wanted = device(text)?;
    if let [id] = wanted.numbers[..] {
        return Ok(id);
    }
    let (mut requests, _) = requests(path, part, None)?;
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
pub fn not_there(path: &Path, text: &str, requests: &Requests) -> Failure {
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
    Failure::Usage(format!("--of {text}: {}: no such device in the recording; it has {there}", path.display()))
}

/// The devices left out so that no request counts twice, in words.
pub fn said(left_out: &[LeftOut]) -> Vec<String> {
    let said = |l: &LeftOut| format!("{} requests of {} skipped: it {}", l.count, l.device, l.reason());
    left_out.iter().filter(|l| l.has_requests()).map(said).collect()
}

/// The same for machines, with devices that have no requests.
pub fn json(left_out: &[LeftOut]) -> Value {
    let one = |l: &LeftOut| {
        json!({
            "device": l.device.to_string(),
            "count": l.count,
            "event": l.action.letter(),
            "why": l.why,
            "passes_on_to": l.passes_on_to.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    left_out.iter().map(one).collect()
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
