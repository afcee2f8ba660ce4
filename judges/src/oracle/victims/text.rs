//! The text format of a recording.
//!
//! One record per line: a keyword, then fields `name=value`. A state lists only the segments that differ from the
//! previous state in the file.

use std::fmt;

use format::sit::{LogType, MAP_BYTES};

use super::{
    Fixture, Gc, LogState, Looked, Mount, Outlook, Policy, Purpose, Round, Segment, Shape, State, Step, Victim,
};

/// First line of every recording.
const MAGIC: &str = "joulefs-victims 1";

/// A line that does not belong to a recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Malformed {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Names of the logs, in the order of [`LogType::ALL`].
const LOGS: [&str; 6] = ["hot-data", "warm-data", "cold-data", "hot-node", "warm-node", "cold-node"];
const GCS: [(&str, Gc); 2] = [("background", Gc::Background), ("foreground", Gc::Foreground)];
const PURPOSES: [(&str, Purpose); 3] =
    [("clean", Purpose::Clean), ("fill", Purpose::Fill), ("fill-by-age", Purpose::FillByAge)];
const POLICIES: [(&str, Policy); 5] = [
    ("greedy", Policy::Greedy),
    ("cost-benefit", Policy::CostBenefit),
    ("age-threshold", Policy::AgeThreshold),
    ("fagc", Policy::Fagc),
    ("joule", Policy::Joule),
];

fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, v)| v == value).map_or("?", |(name, _)| name)
}

fn or_dash(value: Option<u32>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

fn list(values: &[u32]) -> String {
    if values.is_empty() {
        return "-".into();
    }
    values.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// A valid map as text: `-` for no bits, `*` for all, else 128 hexadecimal digits.
struct Map<'m>(&'m [u8; MAP_BYTES]);

impl fmt::Display for Map<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(|&b| b == 0) {
            return f.write_str("-");
        }
        if self.0.iter().all(|&b| b == 0xFF) {
            return f.write_str("*");
        }
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Display for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{MAGIC}")?;
        for line in &self.about {
            writeln!(f, "# {line}")?;
        }
        writeln!(f, "kernel {}", self.kernel)?;
        let v = &self.volume;
        writeln!(
            f,
            "volume main={} per_section={} reserved={} overprovision={} user_blocks={}",
            v.main_segments, v.segments_per_section, v.reserved, v.overprovision, v.user_blocks
        )?;
        let mut known = vec![Segment::UNUSED; v.main_segments as usize];
        for m in &self.mounts {
            let (before, after) = m.uptime;
            writeln!(f, "mount options={} uptime={before} until={after} mounted={}", m.options, m.mounted)?;
            write!(f, "knobs")?;
            m.knobs.iter().try_for_each(|(knob, value)| write!(f, " {knob}={value}"))?;
            writeln!(f)?;
            write_state(f, &m.state, &mut known)?;
            for step in &m.steps {
                match step {
                    Step::Set { knob, value } => writeln!(f, "set {knob}={value}")?,
                    Step::Do(what) => writeln!(f, "do {what}")?,
                    Step::Failed(why) => writeln!(f, "failed {why}")?,
                    Step::State(state) => write_state(f, state, &mut known)?,
                    Step::Begin(round) => write_round(f, "begin", round)?,
                    Step::End(round) => write_round(f, "end", round)?,
                    Step::Victim(victim) => writeln!(f, "{victim}")?,
                    Step::Looked(looked) => writeln!(f, "{looked}")?,
                    Step::Checkpoint { at } => writeln!(f, "checkpoint at={at}")?,
                }
            }
            writeln!(f, "unmount")?;
        }
        Ok(())
    }
}

fn write_state(f: &mut fmt::Formatter<'_>, s: &State, known: &mut [Segment]) -> fmt::Result {
    writeln!(
        f,
        "state uptime={} elapsed={} valid={} atgc={} pinned={} marked={}",
        s.uptime,
        s.elapsed,
        s.valid_blocks,
        or_dash(s.atgc_log),
        or_dash(s.pinned_log),
        list(&s.marked)
    )?;
    write!(f, "logs")?;
    for (name, log) in LOGS.iter().zip(&s.logs) {
        write!(f, " {name}={}:{}:{}", log.segment, log.next, if log.threaded { "fill" } else { "append" })?;
    }
    writeln!(f)?;
    for (n, (segment, known)) in s.segments.iter().zip(known).enumerate() {
        if segment != known {
            let log = LOGS[segment.log.index()];
            writeln!(f, "seg {n} {log} {} {} {}", segment.valid, segment.mtime, Map(&segment.map))?;
            *known = *segment;
        }
    }
    Ok(())
}

fn write_round(f: &mut fmt::Formatter<'_>, word: &str, round: &Round) -> fmt::Result {
    write!(f, "{word} at={}", round.at)?;
    round.counters.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))?;
    writeln!(f)
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "victim at={} log={} gc={} for={} policy={} segment={} cost={} unit={} at_section={} prefree={} free={}",
            self.at,
            self.log.map_or("any", |log| LOGS[log.index()]),
            name_of(&GCS, &self.gc),
            name_of(&PURPOSES, &self.purpose),
            name_of(&POLICIES, &self.policy),
            self.segment,
            self.cost,
            self.unit,
            or_dash(self.at_section),
            self.prefree,
            self.free
        )
    }
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = &self.outlook;
        write!(
            f,
            "looked at={} log={} gc={} for={} policy={} segment={} valid={} f={} loose={} fragments={} candidates={} refused={} \
             free_sections={} now={} battery={} holes={} soon={} kept={} asked={} takes={} writes={} cuts={} moved_cuts={} in_holes={}",
            self.at,
            self.log.map_or("any", |log| LOGS[log.index()]),
            name_of(&GCS, &self.gc),
            name_of(&PURPOSES, &self.purpose),
            name_of(&POLICIES, &self.policy),
            or_dash(self.segment),
            self.valid,
            self.factor,
            self.loose,
            self.fragments,
            self.candidates,
            self.refused,
            self.free_sections,
            self.now,
            u8::from(self.on_battery),
            u8::from(self.into_holes),
            next.free,
            next.kept_back,
            next.asked,
            next.takes,
            next.writes,
            next.cuts,
            next.moved_cuts,
            next.holes
        )
    }
}

/// The rest of a line: fields by name.
struct Fields<'l>(&'l str);

impl<'l> Fields<'l> {
    fn all(&self) -> impl Iterator<Item = Result<(&'l str, &'l str), String>> + use<'l> {
        let split = |word: &'l str| word.split_once('=').ok_or_else(|| format!("`{word}` is no name=value"));
        self.0.split_whitespace().map(split)
    }
    fn text(&self, name: &str) -> Result<&'l str, String> {
        self.all()
            .find_map(|field| field.ok().filter(|(n, _)| *n == name).map(|(_, value)| value))
            .ok_or_else(|| format!("no field `{name}`"))
    }
    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        number(self.text(name)?)
    }
    fn optional(&self, name: &str) -> Result<Option<u32>, String> {
        match self.text(name)? {
            "-" => Ok(None),
            value => number(value).map(Some),
        }
    }
    fn one_of<T: Copy>(&self, name: &str, table: &[(&str, T)]) -> Result<T, String> {
        let text = self.text(name)?;
        table.iter().find(|(n, _)| *n == text).map(|&(_, v)| v).ok_or_else(|| format!("`{text}` is no {name}"))
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number that fits"))
}

fn log_named(text: &str) -> Result<LogType, String> {
    LOGS.iter().position(|name| *name == text).map(|n| LogType::ALL[n]).ok_or_else(|| format!("`{text}` is no log"))
}

fn map(text: &str) -> Result<[u8; MAP_BYTES], String> {
    let mut out = [0; MAP_BYTES];
    match text {
        "-" => {}
        "*" => out.fill(0xFF),
        _ => {
            if text.len() != 2 * MAP_BYTES || !text.is_ascii() {
                return Err(format!("a map of {} digits instead of {}", text.len(), 2 * MAP_BYTES));
            }
            for (n, byte) in out.iter_mut().enumerate() {
                let digits = &text[2 * n..2 * n + 2];
                *byte = u8::from_str_radix(digits, 16).map_err(|_| format!("`{digits}` is no byte"))?;
            }
        }
    }
    Ok(out)
}

fn log_or_any(fields: &Fields<'_>) -> Result<Option<LogType>, String> {
    match fields.text("log")? {
        "any" => Ok(None),
        name => log_named(name).map(Some),
    }
}

fn victim(fields: &Fields<'_>) -> Result<Victim, String> {
    Ok(Victim {
        at: fields.number("at")?,
        log: log_or_any(fields)?,
        gc: fields.one_of("gc", &GCS)?,
        purpose: fields.one_of("for", &PURPOSES)?,
        policy: fields.one_of("policy", &POLICIES)?,
        segment: fields.number("segment")?,
        cost: fields.number("cost")?,
        unit: fields.number("unit")?,
        at_section: fields.optional("at_section")?,
        prefree: fields.number("prefree")?,
        free: fields.number("free")?,
    })
}

fn looked(fields: &Fields<'_>) -> Result<Looked, String> {
    Ok(Looked {
        at: fields.number("at")?,
        log: log_or_any(fields)?,
        gc: fields.one_of("gc", &GCS)?,
        purpose: fields.one_of("for", &PURPOSES)?,
        policy: fields.one_of("policy", &POLICIES)?,
        segment: fields.optional("segment")?,
        valid: fields.number("valid")?,
        factor: fields.number("f")?,
        loose: fields.number("loose")?,
        fragments: fields.number("fragments")?,
        candidates: fields.number("candidates")?,
        refused: fields.number("refused")?,
        free_sections: fields.number("free_sections")?,
        now: fields.number("now")?,
        on_battery: fields.number::<u8>("battery")? == 1,
        into_holes: fields.number::<u8>("holes")? == 1,
        outlook: Outlook {
            free: fields.number("soon")?,
            kept_back: fields.number("kept")?,
            asked: fields.number("asked")?,
            takes: fields.number("takes")?,
            writes: fields.number("writes")?,
            cuts: fields.number("cuts")?,
            moved_cuts: fields.number("moved_cuts")?,
            holes: fields.number("in_holes")?,
            only_appends: false,
        },
    })
}

fn round(fields: &Fields<'_>) -> Result<Round, String> {
    let mut counters = Vec::new();
    for field in fields.all() {
        let (name, value) = field?;
        if name != "at" {
            counters.push((name.to_owned(), number(value)?));
        }
    }
    Ok(Round { at: fields.number("at")?, counters })
}

/// `LOG=SEGMENT:NEXT:append|fill`, six times.
fn logs(fields: &Fields<'_>) -> Result<[LogState; 6], String> {
    let mut out = [LogState::default(); 6];
    for (name, log) in LOGS.iter().zip(&mut out) {
        let text = fields.text(name)?;
        let parts: Vec<&str> = text.split(':').collect();
        let [segment, next, how] = parts[..] else { return Err(format!("`{text}` is no place of a log")) };
        let threaded = match how {
            "append" => false,
            "fill" => true,
            _ => return Err(format!("`{how}` is no way to write")),
        };
        *log = LogState { segment: number(segment)?, next: number(next)?, threaded };
    }
    Ok(out)
}

/// The recording up to the current line.
#[derive(Default)]
struct Reader {
    about: Vec<String>,
    kernel: Option<String>,
    volume: Option<Shape>,
    known: Vec<Segment>,
    mounts: Vec<Mount>,
    /// The mount whose first state is still missing.
    begun: Option<Mount>,
    /// The state whose segments are being read.
    open: Option<State>,
}

impl Reader {
    fn close_state(&mut self) -> Result<(), String> {
        let Some(mut state) = self.open.take() else { return Ok(()) };
        state.segments.clone_from(&self.known);
        if let Some(mut mount) = self.begun.take() {
            mount.state = state;
            self.mounts.push(mount);
            return Ok(());
        }
        self.step(Step::State(Box::new(state)))
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        if self.begun.is_some() {
            return Err("a mount must begin with knobs and a state".into());
        }
        self.mounts.last_mut().ok_or("nothing is mounted")?.steps.push(step);
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let fields = Fields(rest);
        if !matches!(word, "seg" | "logs") {
            self.close_state()?;
        }
        match word {
            "#" => self.about.push(rest.to_owned()),
            "kernel" => self.kernel = Some(rest.to_owned()),
            "volume" => {
                let main_segments = fields.number("main")?;
                // A SIT of 2^22 segments covers 8 TiB, more than a text can hold.
                if main_segments > 1 << 22 {
                    return Err(format!("{main_segments} segments are too many for a text"));
                }
                self.known = vec![Segment::UNUSED; main_segments as usize];
                self.volume = Some(Shape {
                    main_segments,
                    segments_per_section: fields.number("per_section")?,
                    reserved: fields.number("reserved")?,
                    overprovision: fields.number("overprovision")?,
                    user_blocks: fields.number("user_blocks")?,
                });
            }
            "mount" => {
                self.begun = Some(Mount {
                    options: fields.text("options")?.to_owned(),
                    uptime: (fields.number("uptime")?, fields.number("until")?),
                    mounted: fields.number("mounted")?,
                    knobs: Vec::new(),
                    state: State {
                        uptime: 0,
                        elapsed: 0,
                        valid_blocks: 0,
                        logs: [LogState::default(); 6],
                        atgc_log: None,
                        pinned_log: None,
                        marked: Vec::new(),
                        segments: Vec::new(),
                    },
                    steps: Vec::new(),
                });
            }
            "knobs" => {
                let mount = self.begun.as_mut().ok_or("knobs belong behind `mount`")?;
                for field in fields.all() {
                    let (knob, value) = field?;
                    mount.knobs.push((knob.to_owned(), number(value)?));
                }
            }
            "state" => {
                let marked = match fields.text("marked")? {
                    "-" => Vec::new(),
                    text => text.split(',').map(number).collect::<Result<_, _>>()?,
                };
                self.open = Some(State {
                    uptime: fields.number("uptime")?,
                    elapsed: fields.number("elapsed")?,
                    valid_blocks: fields.number("valid")?,
                    logs: [LogState::default(); 6],
                    atgc_log: fields.optional("atgc")?,
                    pinned_log: fields.optional("pinned")?,
                    marked,
                    segments: Vec::new(),
                });
            }
            "logs" => self.open.as_mut().ok_or("logs belong behind `state`")?.logs = logs(&fields)?,
            "seg" => self.segment(rest)?,
            "set" => {
                let (knob, value) = rest.split_once('=').ok_or("`set` wants knob=value")?;
                self.step(Step::Set { knob: knob.to_owned(), value: number(value)? })?;
            }
            "do" => self.step(Step::Do(rest.to_owned()))?,
            "failed" => self.step(Step::Failed(rest.to_owned()))?,
            "begin" => self.step(Step::Begin(round(&fields)?))?,
            "victim" => self.step(Step::Victim(victim(&fields)?))?,
            "looked" => self.step(Step::Looked(looked(&fields)?))?,
            "end" => self.step(Step::End(round(&fields)?))?,
            "checkpoint" => self.step(Step::Checkpoint { at: fields.number("at")? })?,
            "unmount" => {}
            _ => return Err(format!("`{word}` begins no record")),
        }
        Ok(())
    }

    fn segment(&mut self, rest: &str) -> Result<(), String> {
        if self.open.is_none() {
            return Err("segments belong behind `state`".into());
        }
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [n, log, valid, mtime, bits] = words[..] else {
            return Err(format!("a segment has 5 fields, not {}", words.len()));
        };
        let entry = Segment { log: log_named(log)?, valid: number(valid)?, mtime: number(mtime)?, map: map(bits)? };
        let n: u32 = number(n)?;
        let population = entry.map.iter().map(|b| b.count_ones()).sum::<u32>();
        if population != u32::from(entry.valid) {
            return Err(format!("segment {n} has {} valid blocks and {population} bits", entry.valid));
        }
        let known = self.known.get_mut(n as usize).ok_or_else(|| format!("segment {n} is outside the volume"))?;
        *known = entry;
        Ok(())
    }
}

impl Fixture {
    /// Parses the text form.
    ///
    /// # Errors
    /// The first invalid line, and why.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut reader = Reader::default();
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, first)| first) != Some(MAGIC) {
            return Err(Malformed { line: 1, reason: format!("not `{MAGIC}`") });
        }
        let mut last = 1;
        for (n, line) in lines {
            last = n + 1;
            reader.line(line).map_err(|reason| Malformed { line: last, reason })?;
        }
        let missing = |what: &str| Malformed { line: last, reason: format!("the text ends without `{what}`") };
        reader.close_state().map_err(|reason| Malformed { line: last, reason })?;
        if reader.begun.is_some() {
            return Err(missing("state"));
        }
        Ok(Fixture {
            about: reader.about,
            kernel: reader.kernel.ok_or_else(|| missing("kernel"))?,
            volume: reader.volume.ok_or_else(|| missing("volume"))?,
            mounts: reader.mounts,
        })
    }
}
