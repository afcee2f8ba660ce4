//! How is the cost of a replay presented, to people and machines? One run in full, several side by side.

use std::path::Path;

use device::energy::{Component, Draws, Energy};
use serde_json::{Map, Value, json};
use sim::labels::Words;
use sim::replay::judged::Judged;
use sim::replay::{Done, InDirectory, OnDevice, Outcome, Point, Sensitivity, policies};
use sim::traces::calls::OnVolumeDone;
use trace::replay::blocks::Latency;
use trace::replay::calls;
use unicode_width::UnicodeWidthStr;
use vfs::Cleaned;

use super::{assumed, judged};
use crate::spent::{self, Spent};
use crate::table::{self, Table};
use crate::{joules, of_devices, output, recorded};

/// What a run spent; at most `most` owners by name.
fn spent(o: &Outcome, most: usize) -> Spent {
    let ledger = &o.run.ledger;
    let name = |owner| output::plain(&o.owner(owner));
    Spent {
        profile: o.profile.name.clone(),
        ledger: ledger.clone(),
        range: Draws::of(&o.profile, ledger).range(),
        took: o.run.took,
        causes: spent::by_cause(ledger, o.cause()),
        files: spent::by_file(ledger, most, &o.rest(), |owner| o.deleted(owner), name),
        owners: o.owners(),
        counters: o.run.counters.clone(),
    }
}

/// A run for machines.
fn json(o: &Outcome, most: usize) -> Value {
    let mut all = spent(o, most).json();
    let mut replay = match &o.done {
        Done::Blocks(OnDevice { done, plan, cleared, left_out, .. }) => {
            let mut value = serde_json::to_value(done).unwrap_or_default();
            value["cleared"] = json!(cleared);
            value["not_counted"] = of_devices::json(left_out);
            value["of"] = json!("blocks");
            value["device"] = json!(plan.of.to_string());
            value["device_bytes"] = json!(plan.blocks * 4096);
            value
        }
        Done::Calls(done) => {
            let mut value = serde_json::to_value(&done.calls).unwrap_or_default();
            let words = Words::of(&*done.volume);
            let by_cause: Map<String, Value> = done
                .counts
                .causes()
                .map(|(n, c)| (words.key(n), json!({ "read": c.blocks_read, "written": c.blocks_written })))
                .collect();
            value["of"] = json!("calls");
            value["file_system"] = json!(done.fs.type_name());
            value["device_bytes"] = json!(done.device_bytes);
            value["blocks_by_cause"] = by_cause.into();
            value["sections_cleaned"] = json!(done.cleaned.sections);
            value["sections_cleaned_while_waited_for"] = json!(done.cleaned.waited_for);
            value["blocks_moved"] = json!(done.cleaned.moved);
            value["free_segments_held"] = json!(done.free_segments);
            value["began"] = json!(done.began);
            value["blocks_written"] = json!(done.counts.total().blocks_written);
            value["flushes"] = json!(done.counts.total().flushes);
            value["deltas"] = json!(done.deltas);
            value["bytes_before_recorded"] = json!(done.prepared.recorded);
            value["bytes_before_generated"] = json!(done.prepared.generated);
            value
        }
    };
    replay["write_amplification_of_file_system"] = json!(o.amplification_above());
    replay["write_amplification_of_device"] = json!(o.amplification_inside());
    all.insert("assumed".into(), assumed::names(&o.profile));
    all.insert("variant".into(), json!(o.name));
    if let Some(idle) = o.idle {
        all.insert("idle_pj".into(), json!(idle.0));
    }
    replay["timing"] = json!(o.timing);
    replay["said"] = json!(o.notes);
    all.insert("replay".into(), replay);
    all.insert("damage".into(), json!(o.damage().map(ToString::to_string)));
    all.into()
}

/// What was done, in one or two lines, and notes about the recording, one line each.
fn text(o: &Outcome) -> String {
    o.notes.iter().fold(made(o), |text, said| text + "\n" + &output::plain(said))
}

fn made(o: &Outcome) -> String {
    match &o.done {
        Done::Blocks(OnDevice { done, plan, cleared, .. }) => {
            let mut text = format!(
                "{} requests of device {} on one of {}: {} read, {} written",
                done.requests,
                plan.of,
                output::bytes(plan.blocks * 4096),
                output::bytes(done.read),
                output::bytes(done.written)
            );
            if done.queue > 1 {
                text += &format!(", at most {} of {} in flight", done.most_at_once, done.queue);
            }
            if done.of_others > 0 {
                text += &format!("; {} of other devices skipped", done.of_others);
            }
            if done.left_out > 0 {
                text += &format!("; {} of other kinds skipped", done.left_out);
            }
            cleared.iter().for_each(|what| text += &format!("; {what}"));
            text + &failed(done.failed, done.first_failure.as_deref())
        }
        Done::Calls(done) => {
            let mut text = if done.compared { compared(&done.calls) } else { calls_text(&done.calls) };
            text += &format!("\n{}", state(done));
            let all = done.counts.total();
            text += &format!("; {} blocks written, {} flushes", all.blocks_written, all.flushes);
            if done.deltas > 0 {
                text += &format!(", {} pages became deltas", done.deltas);
            }
            if done.cleaned.sections > 0 {
                text += &format!(
                    "; {} sections cleaned, {} of them in the foreground, {} blocks moved",
                    done.cleaned.sections, done.cleaned.waited_for, done.cleaned.moved
                );
            }
            text + "\n" + &contents(done)
        }
    }
}

/// The state of the volume before the calls.
fn state(done: &OnVolumeDone) -> String {
    let OnVolumeDone { device_bytes, began, .. } = done;
    let free = match (began.free_segments, began.free_pieces) {
        (Some(segments), _) => format!(" with {segments} segments free"),
        (None, pieces) => format!(", its free space in {} fragments,", pieces.unwrap_or_default()),
    };
    let mut text = format!(
        "volume of {}, {:.0} % full{free} when the calls began",
        output::bytes(*device_bytes),
        100.0 * began.full,
    );
    if began.needs > 0 {
        text += &format!(", which need {} more", output::bytes(began.needs));
    }
    if began.waits_for_age {
        text += "; mounted for less than seven days, so cost-benefit is used in place of ATGC";
    }
    text
}

fn failed(n: u64, first: Option<&str>) -> String {
    match first {
        Some(first) => format!("; {n} failed, the first: {first}"),
        None => String::new(),
    }
}

/// The calls, on one line.
fn calls_text(done: &calls::Replayed) -> String {
    let mut text =
        format!("{} calls: {} read, {} written", done.calls, output::bytes(done.read), output::bytes(done.written));
    if done.left_out > 0 {
        text += &format!("; {} skipped that had failed or whose file's opening was not recorded", done.left_out);
    }
    text + &failed(done.failed, done.first_failure.as_deref())
}

/// The same for a recording with results.
fn compared(done: &calls::Replayed) -> String {
    let mut text =
        format!("{} calls: {} read, {} written", done.calls, output::bytes(done.read), output::bytes(done.written));
    if done.left_out > 0 {
        let first = done.first_left_out.as_deref().unwrap_or_default();
        text += &format!("; {} skipped because their inode does not exist, the first: {first}", done.left_out);
    }
    if let Some(first) = &done.first_failure {
        text += &format!("; {} ended differently than in the recording, the first: {first}", done.failed);
    }
    text
}

fn contents(done: &OnVolumeDone) -> String {
    recorded::contents_of(&done.prepared, done.calls.written, done.calls.generated)
}

fn latencies(list: &[Latency]) -> String {
    let times = ["mean", "p50", "p99", "p99.9", "max"].map(|head| table::number(head).least(11));
    let columns = [table::word("latency").least(10), table::number("count").least(10)].into_iter().chain(times);
    let mut table = Table::new(columns).between(1);
    for Latency { op, spread: s } in list {
        let times = [s.mean_ns as u64, s.p50_ns, s.p99_ns, s.p999_ns, s.max_ns].map(joules::time);
        table.cells([(*op).to_owned(), s.count.to_string()].into_iter().chain(times));
    }
    table.text()
}

/// What is printed.
pub struct Printed<'a> {
    /// The runs.
    pub points: &'a [Point],
    /// Their results.
    pub outcomes: &'a [Outcome],
    /// What the comparison says; empty for one run.
    pub judged: &'a [Judged],
    /// The effect of assumed numbers.
    pub sensitivity: Option<&'a Sensitivity>,
}

/// Prints one run, or several side by side. `wrong` is why the results are invalid; JSON includes it.
pub fn all(printed: &Printed<'_>, most: usize, (as_json, wrong): (bool, Option<&str>)) {
    let Printed { points, outcomes, judged, sensitivity } = *printed;
    let shown: Vec<&Outcome> =
        points.iter().zip(outcomes).filter(|(point, _)| !point.variant.repeats).map(|(_, outcome)| outcome).collect();
    if !as_json {
        output::lines(&match shown[..] {
            [one] if judged.is_empty() => {
                let moved = sensitivity.map(|s| format!("\n\n{}", assumed::table(s, one.total())));
                whole(one, most) + &moved.unwrap_or_default()
            }
            _ => side_by_side(&shown, &judged::text(judged, points, outcomes)),
        });
        return;
    }
    let mut value = match shown[..] {
        [one] if judged.is_empty() => json(one, most),
        _ => json!({
            "variants": shown.iter().map(|o| json(o, most)).collect::<Value>(),
            "comparison": judged::json(judged, points, outcomes),
        }),
    };
    if let Some(s) = sensitivity {
        value["sensitivity"] = assumed::json(s);
    }
    if let Some(wrong) = wrong {
        value["error"] = json!(wrong);
    }
    output::print(&value);
}

fn whole(o: &Outcome, most: usize) -> String {
    let spent = spent(o, most);
    let amplification = match (o.amplification_above(), o.amplification_inside()) {
        (None, None) => String::new(),
        (above, inside) => {
            let part = |name: &str, x: Option<f64>| x.map(|x| format!("{x:.2} {name}"));
            let parts: Vec<_> =
                [part("by the file system", above), part("by the device", inside)].into_iter().flatten().collect();
            format!("\nwrite amplification {}", parts.join(", "))
        }
    };
    let assumed = assumed::line(&o.profile, o.assumed_flushes()).map_or(String::new(), |line| format!("\n{line}"));
    format!(
        "{}: {} in {} (recorded in {})\n{}{amplification}{assumed}\n\n{}\n\n{}",
        spent.profile,
        spent.total(),
        joules::time(spent.took),
        joules::time(o.recorded()),
        text(o),
        latencies(o.latencies()),
        spent.tables()
    )
}

/// Idle energy of each run's device in the same time: the control of a comparison of file systems.
fn control(all: &[&Outcome]) -> String {
    let spent = |o: &Outcome| o.idle.map(|idle| format!("{idle} for {} ({})", joules::time(o.run.took), o.name));
    let each: Vec<String> = all.iter().copied().filter_map(spent).collect();
    if each.is_empty() { String::new() } else { format!("\n\nan idle device spends {}", each.join(", ")) }
}

/// What the comparison says, a line for each run, then their differences by owner and cause.
fn side_by_side(all: &[&Outcome], judged: &str) -> String {
    // All tables have the same layout.
    let width = all.iter().map(|o| o.name.width()).max().unwrap_or(0).max(8);
    let mut out = format!("{}, {}", text(all[0]).lines().next().unwrap_or_default(), joules::time(all[0].recorded()));
    if let Done::Calls(done) = &all[0].done {
        out += &format!("\n{}\n{}", state(done), contents(done));
    }
    all[0].notes.iter().for_each(|said| out += &format!("\n{said}"));
    let joules = Component::ALL.iter().map(|c| c.text()).chain(["all"]).map(|head| table::number(head).least(11));
    let counts = ["blocks", "flushes", "deltas", "WA of fs", "of device", "cleaned", "moved", "segs held"];
    let counts = counts.map(|head| table::number(head).least(9));
    let columns = [table::text("").least(width)].into_iter().chain(joules).chain(counts);
    let mut runs = Table::new(columns).between(1);
    for o in all {
        let total = o.run.ledger.total();
        let joules = Component::ALL.into_iter().map(|c| o.run.ledger.component(c)).chain([total]);
        let factor = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.3}"));
        let [blocks, flushes, deltas, cleaned, moved, held] = match &o.done {
            Done::Blocks(_) => ["-"; 6].map(str::to_owned),
            Done::Calls(done) => {
                let all = done.counts.total();
                let Cleaned { sections, moved, .. } = done.cleaned;
                let n = |n: u64| n.to_string();
                let held = done.free_segments.map_or("-".into(), n);
                [n(all.blocks_written), n(all.flushes), n(done.deltas), n(sections), n(moved), held]
            }
        };
        let [above, inside] = [o.amplification_above(), o.amplification_inside()].map(factor);
        let counts = [blocks, flushes, deltas, above, inside, cleaned, moved, held];
        runs.cells([o.name.clone()].into_iter().chain(joules.map(|e| e.to_string())).chain(counts));
    }
    out += &format!("\n\n{judged}\n\n{}", runs.text());
    out += &control(all);
    policies::notes(all).iter().for_each(|note| out += &format!("\n\n{note}"));
    let mut kinds: Vec<&'static str> = all.iter().flat_map(|o| o.latencies().iter().map(|l| l.op)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.retain(|k| ["read", "write", "flush", "discard", "fsync", "fdatasync", "sync"].contains(k));
    let heads = kinds.iter().map(|kind| table::number(format!("{kind}: p50, p99, p99.9")).least(35));
    let mut latencies = Table::new([table::text("latency").least(width)].into_iter().chain(heads)).between(1);
    for o in all {
        let of = |kind: &&str| {
            o.latencies().iter().find(|l| l.op == *kind).map_or(String::new(), |l| {
                let s = &l.spread;
                [s.p50_ns, s.p99_ns, s.p999_ns].map(joules::time).join(", ")
            })
        };
        latencies.cells([o.name.clone()].into_iter().chain(kinds.iter().map(of)));
    }
    out += &format!("\n\n{}", latencies.text());
    // The causes of all runs; known causes keep the volume's order.
    let spent: Vec<Spent> = all.iter().map(|o| spent(o, 0)).collect();
    let mut causes: Vec<&str> = Vec::new();
    for s in &spent {
        for line in &s.causes {
            if !causes.contains(&line.line.name.as_str()) {
                causes.push(&line.line.name);
            }
        }
    }
    let order: Vec<&str> = match all.first().map(|o| &o.done) {
        Some(Done::Calls(done)) => done.volume.reasons().iter().map(|r| r.text).collect(),
        _ => Vec::new(),
    };
    causes.sort_by_key(|name| order.iter().position(|text| text == name).unwrap_or(0));
    let runs = all.iter().map(|o| table::number(o.name.as_str()).least(11));
    let mut by_cause = Table::new([table::text("cause")].into_iter().chain(runs)).between(1);
    for cause in causes {
        let of = |s: &Spent| {
            let lines = s.causes.iter().map(|c| &c.line).filter(|l| l.name == cause);
            lines.flat_map(|l| l.energy).sum::<Energy>().to_string()
        };
        by_cause.cells([cause.to_owned()].into_iter().chain(spent.iter().map(of)));
    }
    out + &format!("\n\n{}", by_cause.text())
}

/// Prints the result of a replay in a directory.
pub fn of_directory(dir: &Path, result: &InDirectory, as_json: bool) {
    let InDirectory { done, took, notes, timing, damage, wrong } = result;
    if as_json {
        let damage = damage.as_ref().map(ToString::to_string);
        let mut value = json!({ "replay": done, "took_ns": took, "damage": damage });
        value["replay"]["of"] = json!("calls");
        value["replay"]["timing"] = json!(timing);
        value["replay"]["said"] = json!(notes);
        value["directory"] = json!(dir.display().to_string());
        if let Some(wrong) = wrong {
            value["error"] = json!(wrong);
        }
        output::print(&value);
        return;
    }
    output::lines(&format!(
        "{}: {} (recorded in {})\n{}\n\n{}",
        output::plain(&dir.display().to_string()),
        joules::time(*took),
        joules::time(done.span_ns),
        notes.iter().fold(calls_text(done), |text, note| text + "\n" + &output::plain(note)),
        latencies(&done.latencies)
    ));
}
