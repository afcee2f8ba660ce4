//! Which file, cause and component used each phase's energy? As flame graphs.
//!
//! The costliest measured phase is open, the others are collapsed.

use std::cmp::Reverse;

use device::energy::Energy;
use maud::{Markup, html};

use crate::result::{Outcome, VariantResult};
use sim::flame::{icicle, phase};
use sim::result::Phase;

/// The flame graphs of a result; empty if no energy was spent.
pub(super) fn section(o: &Outcome) -> Markup {
    let mut phases: Vec<(&VariantResult, &Phase)> = o.phases().filter(|(_, p)| p.total() != Energy::ZERO).collect();
    // Stable: the first of equals.
    let first = phases.iter().enumerate().min_by_key(|(_, (_, p))| (!p.stage.is_measured(), Reverse(p.total())));
    let first = first.map(|(n, _)| n);
    let first = first.map(|n| phases.remove(n));
    html! {
        @if let Some((v, p)) = first {
            h3 { "Where it went" }
            p.note {
                "Frames below a frame are its parts: directories, file, cause, component. "
                "Widths are joules. Point at a frame to see its name and cost."
            }
            (picture(o, v, p))
            @if !phases.is_empty() {
                details {
                    summary { "Where it went in the other phases (" (phases.len()) " flame graphs)" }
                    @for (v, p) in phases { (picture(o, v, p)) }
                }
            }
        }
    }
}

fn picture(o: &Outcome, v: &VariantResult, p: &Phase) -> Markup {
    let name = format!("{}, {}", o.name_of(v), p.name);
    html! { div.flame { (icicle::svg(&icicle::tree(&phase::flame(p), &name, usize::MAX))) } }
}
