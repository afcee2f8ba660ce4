//! How is a flame graph drawn? The total is on top, and below each frame its parts, as wide as their cost.
//!
//! The picture is SVG with widths in percent, so it fits any page without a script; titles hold the full text of
//! cut-off names. A volume has more files than a picture has pixels: in a [`Node`] tree the cheap ones are merged into
//! one frame `<N others>` of their directory. Only pictures leave out names, and they leave out no energy.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use device::energy::{Component, Energy};
use maud::{Markup, html};

use super::{Amounts, Flame, Place};

/// Type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Contains others: the total, a directory, one run of several.
    Outer,
    /// A file or a process.
    Place,
    /// Something without a name.
    Special,
    /// A cause.
    Cause,
    /// A component.
    Component(Component),
    /// A part of a component's work.
    Part(Component),
}

impl Kind {
    /// Its CSS class.
    pub fn class(self) -> &'static str {
        match self {
            Kind::Outer => "outer",
            Kind::Place => "place",
            Kind::Special => "special",
            Kind::Cause => "cause",
            Kind::Component(Component::Cpu) => "cpu",
            Kind::Component(Component::Dram) => "dram",
            Kind::Component(Component::Storage) => "storage",
            Kind::Component(Component::Board) => "board",
            Kind::Part(Component::Cpu) => "cpu part",
            Kind::Part(Component::Dram) => "dram part",
            Kind::Part(Component::Storage) => "storage part",
            Kind::Part(Component::Board) => "board part",
        }
    }
}

/// A frame with its parts, the most expensive first, `<N others>` last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Text.
    pub text: String,
    /// Type.
    pub kind: Kind,
    /// Energy: the sum of its parts.
    pub energy: Energy,
    /// What it costs more than the same frame of the control, in picojoules; `None` without a control.
    pub beyond: Option<i64>,
    /// Parts.
    pub below: Vec<Node>,
}

impl Node {
    /// Compares the frames with those of a control. Merged frames are compared with what the shown ones leave of the
    /// control.
    pub fn compare(&mut self, control: &Node) {
        self.beyond = Some(difference(self.energy, control.energy));
        let mut left = control.energy;
        for node in self.below.iter_mut().filter(|n| !is_others(n)) {
            match control.below.iter().find(|c| (c.kind, &c.text) == (node.kind, &node.text)) {
                Some(same) => {
                    left = left - same.energy;
                    node.compare(same);
                }
                None => node.begin(),
            }
        }
        if let Some(others) = self.below.iter_mut().find(|n| is_others(n)) {
            others.beyond = Some(difference(others.energy, left));
        }
    }

    /// Marks the frames as new: the control has none of them.
    fn begin(&mut self) {
        self.beyond = Some(i64::try_from(self.energy.0).unwrap_or(i64::MAX));
        self.below.iter_mut().for_each(Node::begin);
    }

    /// What the control spent in frames that this tree does not have, at any depth.
    pub fn gone(&self, control: &Node) -> Energy {
        if self.below.iter().any(is_others) {
            return Energy::ZERO;
        }
        let same = |c: &Node| self.below.iter().find(|n| (n.kind, &n.text) == (c.kind, &c.text));
        control.below.iter().map(|c| same(c).map_or(c.energy, |n| n.gone(c))).sum()
    }

    /// The largest difference of a frame below the outermost one, without its sign.
    pub fn widest(&self) -> u64 {
        self.below.iter().map(|n| n.beyond.map_or(0, i64::unsigned_abs).max(n.widest())).max().unwrap_or(0)
    }
}

fn difference(energy: Energy, control: Energy) -> i64 {
    let signed = |e: Energy| i64::try_from(e.0).unwrap_or(i64::MAX);
    signed(energy).saturating_sub(signed(control))
}

/// A difference in picojoules, for people.
pub fn signed(beyond: i64) -> String {
    let sign = if beyond < 0 { "-" } else { "+" };
    format!("{sign}{}", Energy(beyond.unsigned_abs()))
}

/// The colour of a difference, as of difffolded.pl: the more it grew the redder, the more it shrank the bluer.
fn tint(beyond: i64, widest: u64) -> String {
    let faint = 235 - (120.0 * beyond.unsigned_abs() as f64 / widest.max(1) as f64).min(120.0) as u8;
    match beyond {
        0 => "rgb(235,235,235)".to_owned(),
        1.. => format!("rgb(255,{faint},{faint})"),
        _ => format!("rgb({faint},{faint},255)"),
    }
}

/// A tree under construction, keyed by type and text.
#[derive(Default)]
struct Growing {
    energy: Energy,
    below: BTreeMap<(Kind, String), Growing>,
}

impl Growing {
    fn add<'a>(&mut self, stack: impl IntoIterator<Item = (Kind, &'a str)>, energy: Energy) {
        self.energy += energy;
        let mut at = self;
        for (kind, text) in stack {
            at = at.below.entry((kind, text.to_owned())).or_default();
            at.energy += energy;
        }
    }

    fn grown(self, kind: Kind, text: String) -> Node {
        let mut below: Vec<Node> = self.below.into_iter().map(|((kind, text), node)| node.grown(kind, text)).collect();
        below.sort_by_key(|n| (is_others(n), Reverse(n.energy)));
        Node { text, kind, energy: self.energy, beyond: None, below }
    }
}

fn is_others(node: &Node) -> bool {
    node.kind == Kind::Special && node.text.ends_with(" others>")
}

/// The frames of a flame graph. The `most` most expensive places are shown individually; the others are added up in the
/// innermost directory that contains one of those.
pub fn tree(flame: &Flame, name: &str, most: usize) -> Node {
    let mut order: Vec<(&Place, &Amounts)> = flame.places.iter().collect();
    order.sort_by_key(|(_, amounts)| Reverse(amounts.total()));
    let (kept, others) = order.split_at(most.min(order.len()));
    let mut shown: Vec<(Place, usize, Amounts)> = kept.iter().map(|(p, a)| ((*p).clone(), 1, (*a).clone())).collect();
    let outer: HashSet<&str> = kept.iter().flat_map(|(place, _)| above(&place.0)).collect();
    let mut summed: BTreeMap<&str, (usize, Amounts, &Place)> = BTreeMap::new();
    for (place, amounts) in others {
        let at = above(&place.0).find(|directory| outer.contains(directory)).unwrap_or_default();
        let (count, sum, _) = summed.entry(at).or_insert((0, Amounts::default(), place));
        *count += 1;
        amounts.0.iter().for_each(|(what, energy)| sum.add(*what, *energy));
    }
    for (at, (count, sum, place)) in summed {
        let parted = if at.is_empty() { "" } else { ";" };
        match count {
            1 => shown.push((place.clone(), 1, sum)),
            _ => shown.push((Place(format!("{at}{parted}<{count} others>")), count, sum)),
        }
    }
    let mut root = Growing::default();
    for (place, _, amounts) in &shown {
        let frames = place.frames().count();
        for (stack, energy) in flame.below(place, amounts) {
            root.add(stack.iter().enumerate().map(|(n, text)| (kind(n, frames, &stack), *text)), energy);
        }
    }
    root.grown(Kind::Outer, name.to_owned())
}

/// The directories above a place, the innermost first.
fn above(place: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(place.rsplit_once(';').map(|(up, _)| up), |at| at.rsplit_once(';').map(|(up, _)| up))
}

/// The type of the `n`th frame of a stack whose first `frames` frames are a place.
fn kind(n: usize, frames: usize, stack: &[&str]) -> Kind {
    let component = || Component::ALL.into_iter().find(|c| stack.get(frames + 1) == Some(&c.text()));
    match n.checked_sub(frames) {
        None if n + 1 < frames => Kind::Outer,
        None if stack[n].starts_with('<') && !stack[n].starts_with("<deleted> ") => Kind::Special,
        None => Kind::Place,
        Some(0) => Kind::Cause,
        Some(1) => component().map_or(Kind::Special, Kind::Component),
        Some(_) => component().map_or(Kind::Special, Kind::Part),
    }
}

/// Pixels of a frame's height.
pub const ROW: usize = 22;
/// Least width of a drawn frame, in percent, if the picture cannot be zoomed.
const NARROWEST: f64 = 0.1;

/// Styles for the picture in any page, light or dark. The class `icicle-colours` has its colours by name, for a legend.
pub const STYLE: &str = "
.icicle { display: block; width: 100%; max-width: none; margin: .5rem 0; font: 12px system-ui, sans-serif }
.icicle, .icicle-colours {
  --ink: #1a1a1a; --outer: #d9dee5; --place: #b5d3f2; --special: #dedad3; --cause: #f5dc9c; --cpu: #dcc7f0; --dram: #b9e3dc; --storage: #bfe0b0; --board: #f1c4b4 }
.icicle rect { stroke: none } .icicle text { fill: var(--ink) }
.icicle .outer rect { fill: var(--outer) } .icicle .place rect { fill: var(--place) } .icicle .special rect { fill: var(--special) }
.icicle .cause rect { fill: var(--cause) } .icicle .cpu rect { fill: var(--cpu) } .icicle .dram rect { fill: var(--dram) }
.icicle .storage rect { fill: var(--storage) } .icicle .board rect { fill: var(--board) } .icicle .part rect { fill-opacity: .65 }
.icicle.compared { --ink: #1a1a1a } .icicle.compared .part rect { fill-opacity: 1 }
@media (prefers-color-scheme: dark) { .icicle, .icicle-colours { --ink: #f0f0f0; --outer: #3a414b; --place: #24507c; --special: #4b4740;
  --cause: #6b5214; --cpu: #563a73; --dram: #1f5f56; --storage: #2f5a22; --board: #733c2b } .icicle.compared { --ink: #1a1a1a } }
";

/// Draws a tree.
pub fn svg(root: &Node) -> Markup {
    let widest = root.widest();
    let mut frames = Vec::new();
    let deepest = lay(root, 0, 0.0, 100.0, &mut frames);
    let all = root.energy.0.max(1) as f64;
    html! {
        svg class={ "icicle" @if root.beyond.is_some() { " compared" } } width="100%" height=((deepest + 1) * ROW) role="img" aria-label="Joules as an icicle: below each frame what it is made of" {
            @for (node, row, x, width) in &frames {
                svg class=(node.kind.class()) x=(percent(*x)) y=(row * ROW) width=(percent(*width)) height=(ROW - 1) {
                    title { (node.text) ": " (node.energy) ", " (share(node.energy.0 as f64 / all)) " of all"
                        @if let Some(beyond) = node.beyond { ", " (signed(beyond)) " against the control" }
                    }
                    rect width="100%" height="100%" style=[node.beyond.map(|b| format!("fill:{}", tint(b, widest)))] {}
                    // No text if not even a letter fits.
                    @if *width >= 1.0 { text x="3" y="15" { (node.text) } }
                }
            }
        }
    }
}

fn percent(x: f64) -> String {
    format!("{x:.4}%")
}

/// A share as text.
pub fn share(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// Lays out the frames that are wide enough; returns the lowest row used.
fn lay<'a>(node: &'a Node, row: usize, x: f64, width: f64, out: &mut Vec<(&'a Node, usize, f64, f64)>) -> usize {
    // A narrow gap between two frames.
    out.push((node, row, x, (width - 0.05).max(width / 2.0)));
    let (mut at, mut deepest) = (x, row);
    for below in &node.below {
        let part = width * below.energy.0 as f64 / node.energy.0.max(1) as f64;
        if part >= NARROWEST {
            deepest = deepest.max(lay(below, row + 1, at, part, out));
        }
        at += part;
    }
    deepest
}

#[cfg(test)]
mod tests {
    use device::energy::Part;

    use super::super::Depth;
    use super::*;

    fn flame(files: u64) -> Flame {
        let mut out = Flame::default();
        for n in 0..files {
            let place = Place::path(format!("/d{}/f{n}", n % 7).as_bytes(), "", false);
            let sums = [("user data".into(), Part::Link, Energy(1 + n)), ("nodes".into(), Part::Board, Energy(n))];
            let one = Flame::from_sums(place, Depth::Components, sums);
            let numbers: Vec<u16> = one.causes.iter().map(|c| out.number(c.clone())).collect();
            for (place, amounts) in one.places {
                let renumbered = amounts.0.into_iter().map(|((c, p), e)| ((numbers[usize::from(c)], p), e));
                let mut here = Amounts::default();
                renumbered.for_each(|(what, e)| here.add(what, e));
                out.add(place, here);
            }
        }
        out
    }

    fn sums_hold(node: &Node) {
        if !node.below.is_empty() {
            assert_eq!(node.below.iter().map(|n| n.energy).sum::<Energy>(), node.energy, "{}", node.text);
        }
        node.below.iter().for_each(sums_hold);
    }

    #[test]
    fn of_thousands_of_files_few_are_drawn_and_no_joule_is_missing() {
        let flame = flame(5_000);
        for most in [0, 1, 10, 5_000] {
            let root = tree(&flame, "all", most);
            assert_eq!(root.energy, flame.total(), "{most}");
            sums_hold(&root);
            let mut names = Vec::new();
            fn walk(node: &Node, names: &mut Vec<String>) {
                names.push(node.text.clone());
                node.below.iter().for_each(|n| walk(n, names));
            }
            walk(&root, &mut names);
            let files = names.iter().filter(|n| n.starts_with('f')).count();
            let others: usize =
                names.iter().filter_map(|n| n.strip_prefix('<')?.strip_suffix(" others>")?.parse::<usize>().ok()).sum();
            assert_eq!(files + others, 5_000, "{most}");
            assert!(files <= most + 8, "{most}: {files}");
        }
    }

    /// The tree of one file with these energies by cause.
    fn compared(causes: &[(&str, u64)]) -> Node {
        let sums = causes.iter().map(|(cause, pj)| ((*cause).to_owned(), Part::Link, Energy(*pj)));
        tree(&Flame::from_sums(Place::path(b"/f", "", false), Depth::Components, sums), "all", 10)
    }

    #[test]
    fn a_frame_that_costs_more_than_the_controls_is_red_one_that_costs_less_blue() {
        let control = compared(&[("nodes", 10), ("user data", 50), ("gone", 7)]);
        let mut run = compared(&[("nodes", 30), ("user data", 40), ("cleaning", 5)]);
        run.compare(&control);
        let file = &run.below[0].below[0];
        assert_eq!((run.beyond, file.text.as_str(), file.beyond), (Some(8), "f", Some(8)));
        let of: BTreeMap<&str, Option<i64>> = file.below.iter().map(|n| (n.text.as_str(), n.beyond)).collect();
        assert_eq!(of, [("cleaning", Some(5)), ("nodes", Some(20)), ("user data", Some(-10))].into());
        assert_eq!((run.gone(&control), run.widest()), (Energy(7), 20));
        let text = svg(&run).into_string();
        for part in ["fill:rgb(255,115,115)", "fill:rgb(175,175,255)", "-10.00 pJ against the control"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }

    #[test]
    fn merged_frames_are_compared_with_what_the_shown_ones_leave() {
        let (mut run, control) = (tree(&flame(50), "all", 3), tree(&flame(60), "all", usize::MAX));
        run.compare(&control);
        fn adds_up(node: &Node, control: &Node, gone: &mut i64) {
            if node.below.is_empty() {
                return;
            }
            *gone += node.beyond.unwrap() - node.below.iter().filter_map(|n| n.beyond).sum::<i64>();
            for n in &node.below {
                if let Some(same) = control.below.iter().find(|c| (c.kind, &c.text) == (n.kind, &n.text)) {
                    adds_up(n, same, gone);
                }
            }
        }
        let mut gone = 0;
        adds_up(&run, &control, &mut gone);
        assert_eq!(run.beyond.unwrap(), flame(50).total().0 as i64 - flame(60).total().0 as i64);
        assert_eq!(gone.unsigned_abs(), run.gone(&control).0);
    }

    #[test]
    fn a_name_in_a_picture_stays_a_name() {
        let place = Place::named(b"</text><script>alert(1)</script>");
        let flame = Flame::from_sums(place, Depth::Components, [("user data".into(), Part::Link, Energy(5))]);
        let text = svg(&tree(&flame, "all", 10)).into_string();
        assert!(!text.contains("<script>") && text.contains("&lt;script&gt;"), "{text}");
    }
}
