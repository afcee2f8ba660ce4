//! The inspection for people: verdict and price first, then tables, in 100 columns.

use device::energy::Energy;
use format::checkpoint::CpFlags;
use format::sit::LogType;
use inspect::Volume;
use inspect::advice::Advice;
use inspect::space::{LEVELS, MAX_FRAGMENTATION, Space};
use inspect::verdict::{Priced, Sum};

use super::groups;
use super::mounted::Mounted;
use super::{Args, By, Found, Seen};
use crate::joules::time;
use crate::output::{bytes, plain};

/// Groups listed individually.
const GROUPS: usize = 5;
/// Findings listed individually, before tables.
const FINDINGS: usize = 2;
/// Width in columns.
const WIDTH: usize = 100;
/// Default number of lines.
const HEIGHT: usize = 40;
/// Default number of worst files.
const WORST: usize = 7;

/// All lines.
pub fn lines(seen: &Seen<'_>, args: &Args) -> Vec<String> {
    let mut out = Vec::new();
    match seen.found {
        Found::Volume(v) => {
            damage(seen, &mut out);
            if v.checkpoint.is_none() {
                out.push(format!("{}: {}", source(seen), size(v)));
                return out;
            }
            verdict(seen, &mut out);
            volume(v, &seen.verdict.all, &mut out);
            advice(&seen.advice, &mut out);
        }
        Found::Mounted(m) => {
            damage(seen, &mut out);
            verdict(seen, &mut out);
            directory(m, &mut out);
            advice(&seen.advice, &mut out);
        }
    }
    out.push(String::new());
    table(seen, args.by, &mut out);
    if let Some((_, space)) = seen.found.segments() {
        let (has_logs, has_ages) = match seen.found {
            Found::Volume(_) => (true, true),
            Found::Mounted(m) => m.known.as_ref().map_or((false, false), |k| (k.has_logs, k.now.is_some())),
        };
        if has_logs {
            out.push(String::new());
            segments(space, has_ages, &mut out);
        }
        free(space, &mut out);
    }
    worst(seen, args, &mut out);
    out
}

/// Advice not contained in the verdict.
fn advice(all: &[Advice], out: &mut Vec<String>) {
    let said = |a: &&Advice| !matches!(a, Advice::Defragment { .. } | Advice::DoNotDefragment | Advice::Nothing);
    all.iter().filter(said).for_each(|a| wrap(&a.to_string(), out));
}

/// Adds lines of at most [`WIDTH`] columns.
fn wrap(text: &str, out: &mut Vec<String>) {
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push(std::mem::replace(&mut line, " ".into()));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push(line);
}

/// What was examined below a directory, and what was not.
fn directory(m: &Mounted, out: &mut Vec<String>) {
    let used = m.bytes.saturating_sub(m.free_bytes) as f64 * 100.0 / m.bytes.max(1) as f64;
    let kind = if m.file_system.is_empty() { "file system" } else { &m.file_system };
    out.push(format!(
        "{kind} of {}, {used:.1} % in use; visited {} files in {} directories",
        bytes(m.bytes),
        m.files.len(),
        m.dirs
    ));
    if m.left > 0 {
        let of = if m.inodes > 0 { format!(" of {} inodes", m.inodes) } else { String::new() };
        out.push(format!("a sample{of}: {} directories were found and not visited; --whole visits all", m.left));
    }
    let mut apart = Vec::new();
    for (n, what) in [
        (m.closed, "are not readable"),
        (m.silent, "do not report where they lie"),
        (m.waiting, "blocks have no address yet"),
    ] {
        if n > 0 {
            apart.push(format!("{n} {what}"));
        }
    }
    if !apart.is_empty() {
        out.push(format!("not counted: {}", apart.join(", ")));
    }
}

fn damage(seen: &Seen<'_>, out: &mut Vec<String>) {
    let findings = seen.found.damage();
    // Without tables, there is room for all findings.
    let has_tables = !matches!(seen.found, Found::Volume(v) if v.checkpoint.is_none());
    let most = if has_tables { FINDINGS } else { findings.len() };
    out.extend(findings.iter().take(most).map(|f| format!("damaged: {f}")));
    if let Some(more) = findings.len().checked_sub(most).filter(|n| *n > 0) {
        out.push(format!("damaged: and {more} more; --json lists them all"));
    }
}

fn source(seen: &Seen<'_>) -> String {
    fit(&seen.source, 40)
}

fn size(volume: &Volume) -> String {
    let sb = &volume.superblock;
    let label = if sb.label.is_empty() { String::new() } else { format!(" {}", fit(&plain(&sb.label), 20)) };
    format!("volume{label} of {}", bytes(sb.block_count * 4096))
}

fn verdict(seen: &Seen<'_>, out: &mut Vec<String>) {
    let v = &seen.verdict;
    let (all, excess) = (&v.all, v.all.excess());
    if excess == 0 {
        out.push(format!("{}: no file has excess extents; there is nothing to gain", source(seen)));
    } else {
        let share = v.few_excess as f64 * 100.0 / excess as f64;
        out.push(format!(
            "{}: {} of {} files hold {share:.0} % of the {excess} excess extents",
            source(seen),
            v.few,
            all.files
        ));
        out.push(treatment(&v.few_priced));
    }
    let p = &all.priced;
    out.push(format!(
        "reading all files once: {}, {} now; {}, {} at best ({})",
        p.read.energy,
        time(p.read.time.0),
        p.ideal.energy,
        time(p.ideal.time.0),
        fit(&seen.profile.name, 20)
    ));
}

fn treatment(p: &Priced) -> String {
    let cost = p.treatment.energy;
    match p.pays_after() {
        Some(reads) => format!(
            "copying these costs {cost} and saves {} a read: the cost is repaid after {reads} full read{}",
            p.saved(),
            if reads == 1 { "" } else { "s" }
        ),
        None => format!("copying these costs {cost} and saves nothing: the cost is never repaid"),
    }
}

fn volume(v: &Volume, all: &Sum, out: &mut Vec<String>) {
    let Some(cp) = &v.checkpoint else { return };
    let used = v.counts.blocks as f64 * 100.0 / cp.user_blocks.max(1) as f64;
    out.push(format!(
        "{}, {used:.1} % in use: {} files, {} directories, {} nodes",
        size(v),
        v.counts.files,
        v.counts.dirs,
        v.counts.nodes
    ));
    let clean = if cp.flags.contains(CpFlags::UMOUNT) { "unmounted" } else { "not unmounted" };
    out.push(format!(
        "checkpoint {}, {clean}; {} deltas, room in inodes for {} more",
        cp.version,
        all.deltas,
        bytes(all.delta_room)
    ));
}

fn ratio(dof: Option<f64>) -> String {
    dof.map_or("-".into(), |d| format!("{d:.2}"))
}

fn table(seen: &Seen<'_>, by: By, out: &mut Vec<String>) {
    let head = match by {
        By::Class => "class",
        By::App => "application",
        By::Dir => "directory",
    };
    let all = groups::of(seen, by);
    let (shown, rest) = all.split_at(all.len().min(GROUPS));
    let mut rows: Vec<(String, Sum)> = shown.to_vec();
    if !rest.is_empty() {
        let sum = rest.iter().fold(Sum::default(), |a, (_, b)| a + *b);
        rows.push((format!("<{} others>", rest.len()), sum));
    }
    rows.push(("all".into(), seen.verdict.all));
    out.push(format!(
        "{head:<24} {:>7} {:>7} {:>11} {:>8} {:>8} {:>6} {:>10} {:>10}",
        "files", "inline", "bytes", "extents", "fewest", "DoF", "read", "could be"
    ));
    for (name, s) in rows {
        out.push(format!(
            "{:<24} {:>7} {:>7} {:>11} {:>8} {:>8} {:>6} {:>10} {:>10}",
            fit(&plain(&name), 24),
            s.files,
            s.inline,
            bytes(s.bytes),
            s.extents,
            s.min_extents,
            ratio(s.dof()),
            s.priced.read.energy,
            s.priced.ideal.energy
        ));
    }
}

fn segments(space: &Space, has_ages: bool, out: &mut Vec<String>) {
    out.push(format!("{:<24} {:>8} {:>8} {:>9} {:>7} {:>12}", "log", "segments", "full", "in use", "f", "age"));
    let names = LogType::ALL.map(log_name).into_iter().chain(["of no type"]);
    for (name, log) in names.zip(&space.logs).filter(|(_, log)| log.segments > 0) {
        let n = log.segments as f64;
        out.push(format!(
            "{name:<24} {:>8} {:>8} {:>7.1} % {:>5.1} % {:>12}",
            log.segments,
            log.full,
            log.valid as f64 * 100.0 / (n * 512.0),
            log.fragmentation * 100.0 / (n * MAX_FRAGMENTATION),
            if has_ages { age(log.age / log.segments) } else { "-".into() }
        ));
    }
    out.push(format!(
        "{:<24} {:>8} {:>8} {:>7.1} %",
        "free",
        space.free_segments,
        "",
        space.valid() as f64 * 100.0 / (space.segments.max(1) as f64 * 512.0)
    ));
}

fn free(space: &Space, out: &mut Vec<String>) {
    let cells = |cell: &dyn Fn(usize) -> String| (0..LEVELS).map(|n| format!(" {:>9}", cell(n))).collect::<String>();
    out.push(String::new());
    out.push(format!("free     {}", cells(&|n| format!("L{}", n + 1))));
    out.push(format!("pieces   {}", cells(&|n| space.pieces[n].to_string())));
    out.push(format!("MiB      {}", cells(&|n| format!("{:.1}", space.piece_blocks[n] as f64 / 256.0))));
}

fn worst(seen: &Seen<'_>, args: &Args, out: &mut Vec<String>) {
    // A blank line and a heading precede them.
    let most = args.worst.unwrap_or(WORST.min(HEIGHT.saturating_sub(out.len() + 2)));
    let worst = &seen.verdict.worst[..seen.verdict.worst.len().min(most)];
    if worst.is_empty() {
        return;
    }
    out.push(String::new());
    out.push(format!(
        "{:>8} {:>7} {:>8} {:>10} {:>9} {:>9} {:>7}  {}",
        "extents", "fewest", "DoF", "bytes", "read", "could be", "earned", "most fragmented"
    ));
    for &i in worst {
        let (file, priced) = (&seen.files()[i], &seen.verdict.priced[i]);
        out.push(format!(
            "{:>8} {:>7} {:>8} {:>10} {:>9} {:>9} {:>7}  {}",
            file.layout.extents,
            file.layout.min_extents,
            ratio(file.dof()),
            bytes(file.size),
            short(priced.read.energy),
            short(priced.ideal.energy),
            priced.pays_after().map_or("never".into(), |n| n.to_string()),
            path(seen, i, WIDTH - 66)
        ));
        if args.extents {
            let each = |e: &inspect::file::Extent| format!("    {} +{} at {:#x}", e.from, e.blocks, e.addr);
            out.extend(file.extents.iter().map(each));
        }
    }
}

fn path(seen: &Seen<'_>, i: usize, width: usize) -> String {
    let path = seen.path(i);
    let mark = if path.is_sure { "" } else { "~" };
    fit(&format!("{mark}{}", plain(&path.text())), width)
}

/// Formats an energy in at most nine columns.
fn short(energy: Energy) -> String {
    energy.to_string()
}

/// Shortens a text at its start, the least informative part of a path or package name.
pub fn fit(text: &str, width: usize) -> String {
    let long = text.chars().count();
    if long <= width {
        return text.to_owned();
    }
    format!("...{}", text.chars().skip(long + 3 - width).collect::<String>())
}

/// What a log holds.
pub fn log_name(log: LogType) -> &'static str {
    match log {
        LogType::HotData => "hot data",
        LogType::WarmData => "warm data",
        LogType::ColdData => "cold data",
        LogType::HotNode => "hot nodes",
        LogType::WarmNode => "warm nodes",
        LogType::ColdNode => "cold nodes",
    }
}

/// Seconds for people.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_loses_its_beginning() {
        assert_eq!(fit("/short", 10), "/short");
        assert_eq!(fit("/a/long/path/to/file.db", 10), "...file.db");
        assert_eq!([0, 119, 7199, 7200, 172_800].map(age), ["0 s", "119 s", "119 min", "2 h", "2 d"]);
    }
}
