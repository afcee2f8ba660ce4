//! What does a comparison of policies of cleaning not tell, and why?

use lab::control::NOBODY;

use super::outcome::{Done, Outcome};

/// In words, below the table; empty if there is nothing to say.
pub fn untold(all: &[Outcome]) -> String {
    let mut out = String::new();
    let calls = |o: &Outcome| match &o.done {
        Done::Calls(done) => Some((done.cleaned.0, done.began.waits_for_age)),
        Done::Blocks { .. } => None,
    };
    let young: Vec<&str> =
        all.iter().filter(|o| matches!(calls(o), Some((1.., true)))).map(|o| o.name.as_str()).collect();
    if !young.is_empty() {
        out += &format!(
            "\n\n{}: cost-benefit chose in ATGC's place, which goes by age, as in the kernel only on a volume that was \
             mounted for seven days (--age phone-year)",
            young.join(", ")
        );
    }
    // The control comes first where runs differ in who cleans.
    let of_cleaning = all.first().is_some_and(|o| o.name.split(' ').next() == Some(NOBODY));
    if of_cleaning && all.iter().all(|o| matches!(calls(o), Some((0, _)))) {
        out += "\n\nno section was cleaned, so this says nothing of policies: a full volume (--age, --fill), cleaning that \
                does not wait for quiet (--hurry), or more calls (--repeat) may tell them apart";
    }
    out
}
