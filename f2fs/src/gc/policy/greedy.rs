//! Greedy: the section with the fewest valid blocks (kernel `GC_GREEDY`: the cost is the number of
//! valid blocks, and the first of equals wins).

use super::{Candidate, View};

/// The cheapest section to empty now; `None` if there is none to choose from.
pub fn choose(view: &(impl View + ?Sized)) -> Option<Candidate> {
    let mut best: Option<Candidate> = None;
    view.candidates(&mut |c| {
        if best.is_none_or(|b| c.valid < b.valid) {
            best = Some(c);
        }
    });
    best
}

#[cfg(test)]
mod tests {
    use format::addr::SecNo;

    use super::*;

    #[test]
    fn the_first_of_the_emptiest_wins() {
        let c = |section, valid| Candidate { section: SecNo(section), valid };
        assert_eq!(choose(&[c(3, 9), c(5, 4), c(7, 4), c(8, 6)][..]), Some(c(5, 4)));
        assert_eq!(choose(&[][..]), None);
    }
}
