//! How does the kernel choose segments on an image, step by step?
//!
//! [`record`] boots a kernel with tracepoints, runs a script on the image there, and makes a [`Fixture`] from the
//! script's output. The shell script calls these functions:
//!
//! * `mnt OPTIONS`, `umnt`: a recording is one or more mounts. `background_gc=off` leaves cleaning to the script.
//! * `knob NAME VALUE`: sets a file below `/sys/fs/f2fs/$DISK`.
//! * `clean background|foreground`: one round of cleaning.
//! * `fill NAME MIB`, `files NAME COUNT`, `directories NAME COUNT`, `wear SEED COUNT`: writes, so that logs need
//!   segments.
//! * `state`: a checkpoint, and its segment table.
//!
//! Left out: which scripts are worth recording.

pub mod segments;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use format::BLOCK;
use format::checkpoint::Checkpoint;
use format::sit::LogType;

use super::kernel::{Kernel, KernelRun};
use super::linux::Linux;
use super::victims::{Fixture, Gc, Looked, Mount, Outlook, Policy, Purpose, Round, Shape, State, Step, Victim};

use segments::{Window, superblock};

const GUEST: &str = include_str!("cleaning/guest.sh");
/// Time limit of a recording in the guest.
const LONGEST: Duration = Duration::from_secs(1800);

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A failure of the host.
    #[error("{what}: {source}")]
    Host {
        /// The operation.
        what: &'static str,
        /// The error.
        source: std::io::Error,
    },
    /// The image is not a volume.
    #[error("the image: {0}")]
    Image(String),
    /// The script failed, or the kernel reported errors.
    #[error("the script failed\n{0}")]
    Script(String),
    /// The guest's output has an unexpected format.
    #[error("the guest's output, byte {at}: {reason}")]
    Output {
        /// The place.
        at: usize,
        /// The error there.
        reason: String,
    },
}

/// Runs `script` on the image, which it changes, and records the kernel's choices. `about` goes to the head of the
/// recording.
///
/// # Errors
/// [`RecordError`]; a recording is complete or absent.
pub fn record(linux: Linux, image: &Path, about: &[String], script: &str) -> Result<Fixture, RecordError> {
    let host = |what| move |source| RecordError::Host { what, source };
    let file = File::open(image).map_err(host("opening the image"))?;
    let sb = superblock(|at| {
        let mut block = [0; BLOCK];
        file.read_exact_at(&mut block, u64::from(at.0) * BLOCK as u64).map(|()| block)
    })
    .map_err(RecordError::Image)?;
    let window = Window::of(&sb);
    let ranges: Vec<String> = window.ranges().iter().map(|(at, n)| format!("{at} {n}")).collect();
    let whole = format!("WINDOW='{}'\n{GUEST}\n{script}", ranges.join(" "));
    let run = Kernel::of(linux).without_mount().memory_mib(768).timeout(LONGEST).run(image, &whole);
    if !run.ok() || !run.complaints().is_empty() {
        return Err(RecordError::Script(why(&run)));
    }
    let printed = run.printed().map_err(host("reading what the guest printed"))?;
    let mut taker = Taker { window, rest: &printed, per_section: sb.segs_per_sec, volume: None, kernel: String::new() };
    let mounts = taker.mounts().map_err(|reason| taker.fault(printed.len(), reason))?;
    let Some(volume) = taker.volume else { return Err(taker.fault(printed.len(), "nothing was mounted".into())) };
    Ok(Fixture { about: about.to_vec(), kernel: taker.kernel, volume, mounts })
}

/// The reasons of a failed run: the kernel's complaints, and the end of the script's output without tables.
fn why(run: &KernelRun) -> String {
    let text = |line: &&str| !line.is_empty() && line.chars().all(|c| c == '\t' || !c.is_control() && c != '\u{FFFD}');
    let said: Vec<&str> = run.stdout.lines().filter(text).collect();
    let last = &said[said.len().saturating_sub(20)..];
    format!("{}\n{}", run.complaints().join("\n"), last.join("\n"))
}

/// The guest's output that is not parsed yet.
struct Taker<'o> {
    window: Window,
    rest: &'o [u8],
    per_section: u32,
    volume: Option<Shape>,
    kernel: String,
}

impl<'o> Taker<'o> {
    fn fault(&self, printed: usize, reason: String) -> RecordError {
        RecordError::Output { at: printed - self.rest.len(), reason }
    }

    fn line(&mut self) -> Option<&'o str> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&b| b == b'\n').unwrap_or(self.rest.len());
        let line = &self.rest[..end];
        self.rest = &self.rest[(end + 1).min(self.rest.len())..];
        Some(std::str::from_utf8(line).unwrap_or("not text"))
    }

    /// Lines up to the next one that begins with `@@`, exclusive.
    fn plain(&mut self) -> Vec<&'o str> {
        let mut lines = Vec::new();
        while !self.rest.starts_with(b"@@") {
            let Some(line) = self.line() else { break };
            lines.push(line);
        }
        lines
    }

    fn expect(&mut self, word: &str) -> Result<&'o str, String> {
        let line = self.line().ok_or_else(|| format!("no `{word}`"))?;
        let rest = line.strip_prefix(word).ok_or_else(|| format!("`{line}` instead of `{word}`"))?;
        Ok(rest.trim_start())
    }

    /// Parses the segment table printed by the guest's `table`.
    fn table(&mut self) -> Result<State, String> {
        let uptime = number(self.expect("@@table")?)?;
        let len = self.window.blocks() as usize * BLOCK;
        let bytes = self.rest.get(..len).ok_or("a table cut short")?;
        let (cp, mut state) = self.window.read(bytes)?;
        self.rest = &self.rest[len..];
        state.uptime = uptime;
        self.volume = Some(self.shape(&cp, &state));
        Ok(state)
    }

    fn shape(&self, cp: &Checkpoint, state: &State) -> Shape {
        Shape {
            main_segments: state.segments.len() as u32,
            segments_per_section: self.per_section,
            reserved: cp.reserved_segs,
            overprovision: cp.overprov_segs,
            user_blocks: cp.user_blocks,
        }
    }

    fn mounts(&mut self) -> Result<Vec<Mount>, String> {
        self.kernel = self.expect("@@kernel")?.to_owned();
        let mut mounts: Vec<Mount> = Vec::new();
        while let Some(line) = self.line() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            if word == "@@mount" {
                mounts.push(self.mount(rest)?);
                continue;
            }
            let mount = mounts.last_mut().ok_or_else(|| format!("`{line}` before any mount"))?;
            let step = match word {
                "@@set" => {
                    let (knob, value) = rest.split_once(' ').ok_or("`@@set` wants a knob and a value")?;
                    Step::Set { knob: knob.to_owned(), value: number(value)? }
                }
                "@@do" => Step::Do(rest.to_owned()),
                "@@failed" => Step::Failed(rest.to_owned()),
                "@@state" => Step::State(Box::new(self.later_state()?)),
                "@@unmounted" => continue,
                _ => match traced(line)? {
                    Some(step) => step,
                    None => continue,
                },
            };
            mount.steps.push(step);
        }
        Ok(mounts)
    }

    fn mount(&mut self, options: &str) -> Result<Mount, String> {
        let state = self.table()?;
        let numbers = self.expect("@@mounted")?.split_whitespace().map(number).collect::<Result<Vec<u64>, _>>()?;
        let [before, after, mounted] = numbers[..] else { return Err("`@@mounted` wants three numbers".into()) };
        let mut knobs = Vec::new();
        while self.rest.starts_with(b"@@knob ") {
            let (name, value) = self.expect("@@knob")?.split_once(' ').ok_or("`@@knob` wants a name and a value")?;
            knobs.push((name.to_owned(), number(value)?));
        }
        Ok(Mount { options: options.to_owned(), uptime: (before, after), mounted, knobs, state, steps: Vec::new() })
    }

    /// Parses the output of the guest's `state`.
    fn later_state(&mut self) -> Result<State, String> {
        let mut state = self.table()?;
        self.expect("@@logs")?;
        for line in self.plain() {
            let mut words = line.split(':').nth(1).unwrap_or("").split_whitespace();
            // -1 means none.
            let segment = words.next().and_then(|word| word.parse().ok());
            match line.contains("ATGC") {
                true => state.atgc_log = segment,
                false => state.pinned_log = segment,
            }
        }
        self.expect("@@marked")?;
        // Ten sections per line after the number of the first.
        let flags = self.plain().into_iter().flat_map(|line| line.split_whitespace().skip(1));
        state.marked = flags.zip(0..).filter(|(flag, _)| *flag == "1").map(|(_, n)| n).collect();
        self.expect("@@state-ends")?;
        Ok(state)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is no number that fits"))
}

/// A tracepoint's line; `None` for an empty one.
fn traced(line: &str) -> Result<Option<Step>, String> {
    let strange = || format!("`{line}` is no tracepoint's");
    if line.trim().is_empty() {
        return Ok(None);
    }
    let event = line.find(": f2fs_").ok_or_else(strange)?;
    let at = microseconds(line[..event].split_whitespace().last().unwrap_or(""))?;
    let (name, rest) = line[event + 2..].split_once(": ").ok_or_else(strange)?;
    Ok(Some(match name {
        "f2fs_get_victim" => Step::Victim(victim(at, rest).ok_or_else(strange)?),
        "f2fs_victim_frag" => Step::Looked(looked(at, rest).ok_or_else(strange)?),
        "f2fs_gc_begin" => Step::Begin(round(at, rest)),
        "f2fs_gc_end" => Step::End(round(at, rest)),
        // Of its three lines, the one between the last data written and the tables.
        "f2fs_write_checkpoint" if !rest.ends_with("state = finish block_ops") => return Ok(None),
        "f2fs_write_checkpoint" => Step::Checkpoint { at },
        _ => return Err(strange()),
    }))
}

/// `SECONDS.SIX_DIGITS`.
fn microseconds(text: &str) -> Result<u64, String> {
    let (seconds, fraction) = text.split_once('.').ok_or_else(|| format!("`{text}` is no time"))?;
    Ok(number::<u64>(seconds)? * 1_000_000 + number::<u64>(fraction)?)
}

/// The fields of a line: `name = value` or `name:value`, separated by commas except inside parentheses.
fn fields(text: &str) -> Vec<(&str, &str)> {
    let mut depth = 0;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .filter_map(|field| field.split_once(" = ").or_else(|| field.split_once(':')))
    .map(|(name, value)| (name.trim(), value.trim()))
    .collect()
}

/// A temperature; `Some(None)` means any.
fn log(text: &str) -> Option<Option<LogType>> {
    Some(match text {
        "Hot DATA" => Some(LogType::HotData),
        "Warm DATA" => Some(LogType::WarmData),
        "Cold DATA" => Some(LogType::ColdData),
        "Hot NODE" => Some(LogType::HotNode),
        "Warm NODE" => Some(LogType::WarmNode),
        "Cold NODE" => Some(LogType::ColdNode),
        "No TYPE" => None,
        _ => return None,
    })
}

/// `(WHO, PURPOSE, POLICY)`.
fn who(text: &str) -> Option<(Gc, Purpose, Policy)> {
    let [gc, purpose, policy] = text.trim_matches(['(', ')']).split(", ").collect::<Vec<_>>()[..] else { return None };
    Some((
        match gc {
            "Background GC" => Gc::Background,
            "Foreground GC" => Gc::Foreground,
            _ => return None,
        },
        match purpose {
            "LFS-mode" => Purpose::Clean,
            "SSR-mode" => Purpose::Fill,
            "AT_SSR-mode" => Purpose::FillByAge,
            _ => return None,
        },
        match policy {
            "Greedy" => Policy::Greedy,
            "Cost-Benefit" => Policy::CostBenefit,
            "Age-threshold" => Policy::AgeThreshold,
            "FAGC" => Policy::Fagc,
            "Joule" => Policy::Joule,
            _ => return None,
        },
    ))
}

fn looked(at: u64, text: &str) -> Option<Looked> {
    let fields = fields(text);
    let get = |name: &str| fields.iter().find(|(n, _)| *n == name).map(|&(_, value)| value);
    let count = |name: &str| get(name)?.parse::<u32>().ok();
    let (gc, purpose, policy) = who(get("policy")?)?;
    Some(Looked {
        at,
        log: log(get("type")?)?,
        gc,
        purpose,
        policy,
        // -1 means none.
        segment: count("victim"),
        valid: count("valid")?,
        factor: count("f")?,
        loose: count("frag_blocks")?,
        fragments: count("fragments")?,
        candidates: count("candidates")?,
        refused: count("refused")?,
        free_sections: count("free_sec")?,
        now: get("now")?.parse().ok()?,
        on_battery: get("on_battery")? == "1",
        into_holes: get("into_holes")? == "1",
        outlook: Outlook {
            free: count("free_soon")?,
            kept_back: count("kept_back")?,
            asked: count("asked")?,
            takes: get("takes")?.parse().ok()?,
            // Only for what a flash copies inside, which the kernel leaves out.
            writes: 0,
            cuts: count("cuts")?,
            moved_cuts: count("moved_cuts")?,
            holes: get("holes")?.parse().ok()?,
            only_appends: false,
        },
    })
}

fn victim(at: u64, text: &str) -> Option<Victim> {
    let fields = fields(text);
    let get = |name: &str| fields.iter().find(|(n, _)| *n == name).map(|&(_, value)| value);
    let count = |name: &str| get(name)?.parse::<u32>().ok();
    let (gc, purpose, policy) = who(get("policy")?)?;
    Some(Victim {
        at,
        log: log(get("type")?)?,
        gc,
        purpose,
        policy,
        segment: count("victim")?,
        cost: count("cost")?,
        unit: count("ofs_unit")?,
        at_section: count("pre_victim_secno"),
        prefree: count("prefree")?,
        free: count("free")?,
    })
}

/// All numbers of a line; `gc_type` is one of them, 0 in the background and 1 in the foreground.
fn round(at: u64, text: &str) -> Round {
    let value = |name: &str, text: &str| match (name, text) {
        ("gc_type", "Background GC") => Some(0),
        ("gc_type", "Foreground GC") => Some(1),
        _ => text.parse().ok(),
    };
    let counters = fields(text).into_iter().filter_map(|(name, text)| Some((name.to_owned(), value(name, text)?)));
    Round { at, counters: counters.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracepoints_line_is_understood() {
        let line = "            perl-128     [000] .....     3.685871: f2fs_get_victim: dev = (254,0), type = No TYPE, \
                    policy = (Background GC, LFS-mode, Cost-Benefit), victim = 37, cost = 4294961695, ofs_unit = 1, \
                    pre_victim_secno = -1, prefree = 2, free = 210";
        let Ok(Some(Step::Victim(victim))) = traced(line) else { panic!("{:?}", traced(line)) };
        let want = Victim {
            at: 3_685_871,
            log: None,
            gc: Gc::Background,
            purpose: Purpose::Clean,
            policy: Policy::CostBenefit,
            segment: 37,
            cost: 4_294_961_695,
            unit: 1,
            at_section: None,
            prefree: 2,
            free: 210,
        };
        assert_eq!(victim, want);
    }

    #[test]
    fn a_search_that_refuses_is_told_too() {
        let line = "  perl-128  [000] .....  3.685871: f2fs_victim_frag: dev = (98,16), type = No TYPE, policy = (Background GC, LFS-mode, \
                    Joule), victim = -1, valid = 0, f = 0, frag_blocks = 0, fragments = 0, candidates = 9, refused = 7, \
                    free_sec = 40, now = 86400, on_battery = 1, into_holes = 0, free_soon = 41, kept_back = 12, asked = 3, cuts = 90, \
                    moved_cuts = 512, takes = 7000, holes = 900";
        let Ok(Some(Step::Looked(looked))) = traced(line) else { panic!("{:?}", traced(line)) };
        assert_eq!((looked.policy, looked.segment, looked.refused), (Policy::Joule, None, 7));
        assert_eq!((looked.candidates, looked.free_sections, looked.now, looked.on_battery), (9, 40, 86_400, true));
        let outlook = Outlook {
            free: 41,
            kept_back: 12,
            asked: 3,
            takes: 7000,
            writes: 0,
            cuts: 90,
            moved_cuts: 512,
            holes: 900,
            only_appends: false,
        };
        assert_eq!((looked.into_holes, looked.outlook), (false, outlook));
    }

    #[test]
    fn a_checkpoint_is_told_once() {
        let line = |state: &str| {
            traced(&format!(
                "  mkdir-131  [000] .....  14.000001: f2fs_write_checkpoint: dev = (98,16), checkpoint for Sync, state = {state}"
            ))
        };
        assert_eq!(line("start block_ops"), Ok(None));
        assert_eq!(line("finish block_ops"), Ok(Some(Step::Checkpoint { at: 14_000_001 })));
        assert_eq!(line("finish checkpoint"), Ok(None));
    }

    #[test]
    fn a_rounds_counters_keep_their_names() {
        let line = "  perl-129  [000] .....  13.000042: f2fs_gc_begin: dev = (254,0), gc_type = Foreground GC, \
                    no_background_GC = -1, nr_free_secs = 0, nodes = 7, free_sec:210, free_seg:211, rsv_seg:28";
        let Ok(Some(Step::Begin(round))) = traced(line) else { panic!("{:?}", traced(line)) };
        let named = |name: &str| round.counters.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
        assert_eq!(round.at, 13_000_042);
        assert_eq!(
            ["gc_type", "no_background_GC", "nodes", "free_sec", "free_seg", "rsv_seg"].map(named),
            [1, -1, 7, 210, 211, 28].map(Some)
        );
        assert_eq!(named("dev"), None);
    }
}
