//! Prints what was planned and done, for people and for machines.

use device::energy::profile::Profile;
use inspect::price::Cost;
use serde_json::{Value, json};

use super::{Args, Outcome, Treated};
use crate::joules::time;
use crate::output;

/// Name of the JSON schema.
const SCHEMA: &str = "joulefs-clean";
const VERSION: u32 = 1;

/// Prints the whole result.
pub fn all(args: &Args, profile: &Profile, all: &[Treated], unread: &[String], as_json: bool) {
    if as_json {
        return output::print(&json!({
            "schema": SCHEMA,
            "schema_version": VERSION,
            "source": args.source.display().to_string(),
            "profile": profile.name,
            "how": if args.remap { "remap" } else { "copy" },
            "dry_run": args.dry_run,
            "parts": args.parts.as_ref().map(|p| p.display().to_string()),
            "files": all.iter().map(file).collect::<Vec<_>>(),
            "unread": unread,
            "moved_blocks": moved(all),
            "cost": cost(&sum(all)),
        }));
    }
    unread.iter().for_each(|why| output::warn(&format!("{why}; its files are skipped")));
    let source = args.source.display();
    if all.is_empty() {
        return output::line(&format!("{source}: no file has excess extents"));
    }
    let used = if args.parts.is_some() { "use" } else { "read" };
    output::line(&format!(
        "{:>7} {:>6} {:>10} {:>10} {:>9} {:>10} {:>6}  {}",
        "pieces",
        "then",
        "moved",
        "cost",
        "time",
        format!("saved/{used}"),
        "earned",
        "file"
    ));
    for t in all {
        if let Some(plan) = &t.plan {
            let then = match t.outcome {
                Outcome::Moved { extents } => extents,
                Outcome::Planned => plan.extents.1,
                _ => plan.extents.0,
            };
            let (cost, earned) = (t.cost(), t.pays_after().map_or("never".to_owned(), |n| n.to_string()));
            let (moved, saved) = (output::bytes(blocks(t) * 4096), plan.saved().energy.to_string());
            let (now, cost, time) = (plan.extents.0, cost.energy.to_string(), time(cost.time.0));
            let numbers = format!("{now:>7} {then:>6} {moved:>10} {cost:>10} {time:>9} {saved:>10} {earned:>6}");
            output::line(&format!("{numbers}  {}", t.path));
        } else {
            output::line(&format!("{:>64}  {}", "", t.path));
        }
        let said = outcome_text(&t.outcome);
        if !said.is_empty() {
            output::line(&format!("        {said}"));
        }
        if let (Some(whole), true) = (&t.instead, matches!(t.outcome, Outcome::Moved { .. } | Outcome::Planned)) {
            let (moved, cost, saved) = (output::bytes(whole.blocks * 4096), whole.cost.energy, whole.saved().energy);
            output::line(&format!("        the whole file would be {moved} for {cost} and save {saved} of the same"));
        }
        if t.room.blocks > 0 && !matches!(t.outcome, Outcome::Skipped(_)) {
            let verb = if args.dry_run { "would move" } else { "moved" };
            let (sections, blocks, cost) = (t.room.short, t.room.blocks, t.room.cost.energy);
            output::line(&format!(
                "        cleaning {verb} {blocks} blocks for {sections} free sections: {cost} at most"
            ));
        }
    }
    let verb = if args.dry_run { "would move" } else { "moved" };
    let all_blocks = if args.dry_run { all.iter().map(blocks).sum() } else { moved(all) };
    let cost = sum(all);
    output::line(&format!(
        "{source}: {verb} {} for {} and {} ({})",
        output::bytes(all_blocks * 4096),
        cost.energy,
        time(cost.time.0),
        profile.name
    ));
}

/// Blocks moved or planned.
fn blocks(t: &Treated) -> u64 {
    match t.outcome {
        Outcome::Moved { .. } | Outcome::Failed(_) => t.moved,
        Outcome::Planned => t.plan.as_ref().map_or(0, |p| p.blocks),
        _ => 0,
    }
}

fn moved(all: &[Treated]) -> u64 {
    all.iter().map(|t| t.moved).sum()
}

/// The cost of the blocks moved or planned.
fn sum(all: &[Treated]) -> Cost {
    let paid = all.iter().filter(|t| matches!(t.outcome, Outcome::Moved { .. } | Outcome::Planned));
    paid.map(Treated::cost).sum()
}

fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Whole => "nothing to move".to_owned(),
        Outcome::NeverPays => "skipped: the cost is never repaid (--force moves it)".to_owned(),
        Outcome::Planned | Outcome::Moved { .. } => String::new(),
        Outcome::Skipped(why) => format!("skipped: {why}"),
        Outcome::Failed(why) => format!("failed: {why}"),
    }
}

fn cost(c: &Cost) -> Value {
    json!({ "pj": c.energy.0, "ns": c.time.0 })
}

fn file(t: &Treated) -> Value {
    let (outcome, why) = match &t.outcome {
        Outcome::Whole => ("whole", None),
        Outcome::NeverPays => ("never-pays", None),
        Outcome::Planned => ("planned", None),
        Outcome::Moved { .. } => ("moved", None),
        Outcome::Skipped(why) => ("skipped", Some(why)),
        Outcome::Failed(why) => ("failed", Some(why)),
    };
    let after = match t.outcome {
        Outcome::Moved { extents } => Some(extents),
        _ => None,
    };
    let mut out = json!({ "path": t.path, "outcome": outcome, "why": why, "moved_blocks": blocks(t), "extents_after": after,
        "room": { "short_sections": t.room.short, "blocks": t.room.blocks, "cost": cost(&t.room.cost) } });
    if let (Some(whole), Some(out)) = (&t.instead, out.as_object_mut()) {
        out.insert(
            "whole_file".into(),
            json!({
                "blocks": whole.blocks,
                "cost": cost(&whole.cost),
                "saved_per_use": cost(&whole.saved()),
                "pays_after_uses": whole.pays_after(),
            }),
        );
    }
    if let (Some(plan), Some(out)) = (&t.plan, out.as_object_mut()) {
        out.insert(
            "plan".into(),
            json!({
                "ranges": plan.ranges.iter().map(|r| [r.start, r.end]).collect::<Vec<_>>(),
                "blocks": plan.blocks,
                "extents": plan.extents.0,
                "extents_then": plan.extents.1,
                "cost": cost(&plan.cost),
                "use": cost(&plan.uses.0),
                "use_then": cost(&plan.uses.1),
                "whole_read": cost(&plan.whole.0),
                "whole_read_then": cost(&plan.whole.1),
                "saved_per_use": cost(&plan.saved()),
                "pays_after_uses": t.pays_after(),
            }),
        );
    }
    out
}
