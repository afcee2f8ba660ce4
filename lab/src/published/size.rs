//! How near must our number be to the published one?
//!
//! A printed number allows a difference of [`NEAR`] percent, a number after "about" one of [`ABOUT`]. A statement
//! without a number has one of the [`WORDS`] in the column `value`, and each word has a size. `20-28` is a range.

use crate::claim::{Comparison, How};

/// Differences up to this are not significant: in percent, or in points if the paper's value is 0. Papers' repeated
/// measurements differ by as much.
pub const NEAR: f64 = 7.0;
/// The difference that "about", "around" and "nearly" allow, in percent.
pub const ABOUT: f64 = 10.0;

/// A word for a difference between two measurements, and its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Word {
    /// The word.
    pub word: &'static str,
    /// The least difference in percent that satisfies it.
    pub least: f64,
    /// The greatest difference in percent.
    pub most: f64,
}

const fn word(word: &'static str, least: f64, most: f64) -> Word {
    Word { word, least, most }
}

/// All words.
pub const WORDS: [Word; 11] = [
    word("far above", 25.0, f64::INFINITY),
    word("significantly above", 5.0, f64::INFINITY),
    word("slightly above", 0.5, ABOUT),
    word("above", 0.5, f64::INFINITY),
    word("about the same", -ABOUT, ABOUT),
    word("the same", -NEAR, NEAR),
    word("not significantly below", -5.0, f64::INFINITY),
    word("below", f64::NEG_INFINITY, -0.5),
    word("slightly below", -ABOUT, -0.5),
    word("significantly below", f64::NEG_INFINITY, -5.0),
    word("far below", f64::NEG_INFINITY, -25.0),
];

impl Word {
    /// The word in a published value.
    pub fn find(value: &str) -> Option<Word> {
        WORDS.into_iter().find(|w| w.word == value)
    }

    /// Its size as text.
    pub fn size(self) -> String {
        match (self.least.is_finite(), self.most.is_finite()) {
            (true, true) => format!("{:+} to {:+} %", self.least, self.most),
            (true, false) => format!("{:+} % or more", self.least),
            (false, _) => format!("{:+} % or less", self.most),
        }
    }
}

/// How far our number is from what is published.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// Whether it is near enough.
    pub is_near: bool,
    /// The distance, for choosing the worst of several: in percent, or in points. Negative inside a bound.
    pub size: f64,
}

/// The distance of our number from the published `value`; none if we have no number.
pub fn distance(value: &str, c: &Comparison) -> Option<Distance> {
    let ours = c.ours?;
    let within = |least: f64, most: f64| {
        let size = (least - ours).max(ours - most);
        Distance { is_near: size <= 0.0, size }
    };
    let percent = |published: f64| 100.0 * (ours / published - 1.0);
    let near = |most: f64| match c.claim.value {
        0.0 => Distance { is_near: ours.abs() <= most, size: ours.abs() },
        published => Distance { is_near: percent(published).abs() <= most, size: percent(published).abs() },
    };
    let slack = NEAR / 100.0;
    if let Some(word) = Word::find(value) {
        return Some(within(word.least, word.most));
    }
    if let Some((least, most)) = range(value) {
        return Some(within(least * (1.0 - slack), most * (1.0 + slack)));
    }
    Some(match value.split_once(' ').map_or(value, |(first, _)| first) {
        _ if c.claim.how == How::AtMost => within(f64::NEG_INFINITY, c.claim.value * (1.0 + slack)),
        "about" | "around" | "nearly" => near(ABOUT),
        "more" => within(c.claim.value, f64::INFINITY),
        "up" => within(f64::NEG_INFINITY, c.claim.value * (1.0 + slack)),
        _ => near(NEAR),
    })
}

/// Both ends of `20-28`.
fn range(value: &str) -> Option<(f64, f64)> {
    let (least, most) = value.split_once('-')?;
    Some((least.parse().ok()?, most.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Claim;

    fn is_near(printed: &str, how: How, value: f64, ours: f64) -> bool {
        let text = String::new;
        let (quantity, unit, place, measure) = (text(), text(), text(), text());
        let claim = Claim { quantity, value, unit, place, how, measure, of: text(), over: text(), note: text() };
        distance(printed, &Comparison { claim, ours: Some(ours) }).unwrap().is_near
    }

    #[test]
    fn each_word_has_its_size() {
        let of = |word: &str, ours: [f64; 2]| ours.map(|ours| is_near(word, How::Increase, 0.0, ours));
        assert_eq!(of("far above", [25.0, 24.9]), [true, false]);
        assert_eq!(of("significantly above", [5.0, 4.9]), [true, false]);
        assert_eq!(of("slightly above", [0.5, 10.1]), [true, false]);
        assert_eq!(of("above", [0.5, 0.11]), [true, false]);
        assert_eq!(of("about the same", [-10.0, 10.1]), [true, false]);
        assert_eq!(of("not significantly below", [-4.9, -5.1]), [true, false]);
        assert_eq!(of("slightly below", [-8.9, -30.3]), [true, false]);
        assert_eq!(of("far below", [-25.0, -5.0]), [true, false]);
        let words: std::collections::BTreeSet<_> = WORDS.iter().map(|w| w.word).collect();
        assert_eq!(words.len(), WORDS.len());
        let sizes = ["above", "below", "slightly above"].map(|w| Word::find(w).unwrap().size());
        assert_eq!(sizes, ["+0.5 % or more", "-0.5 % or less", "+0.5 to +10 %"]);
    }

    #[test]
    fn a_range_has_two_ends() {
        let of = |ours| is_near("42-475", How::AtMost, 475.0, ours);
        assert_eq!([34.4, 42.0, 500.0, 510.0].map(of), [false, true, true, false]);
    }

    #[test]
    fn a_bound_has_one_end_and_about_is_wider_than_near() {
        let of = |printed: &str, how, ours: [f64; 2]| ours.map(|ours| is_near(printed, how, 100.0, ours));
        assert_eq!(of("100", How::Mean, [106.9, 107.1]), [true, false]);
        assert_eq!(of("about 100", How::Mean, [109.0, 111.0]), [true, false]);
        assert_eq!(of("<100", How::AtMost, [5.0, 108.0]), [true, false]);
        assert_eq!(of("more than 100", How::Mean, [300.0, 99.0]), [true, false]);
        assert_eq!(of("up to 100", How::Mean, [106.0, 108.0]), [true, false]);
        assert_eq!(["0"; 2].map(|p| is_near(p, How::Increase, 0.0, -6.0)), [true; 2]);
    }

    #[test]
    fn the_distance_tells_the_worse_of_two() {
        let text = String::new;
        let (quantity, unit, place, measure) = (text(), text(), text(), text());
        let how = How::Increase;
        let claim = Claim { quantity, value: 0.0, unit, place, how, measure, of: text(), over: text(), note: text() };
        let size = |ours| distance("far above", &Comparison { claim: claim.clone(), ours }).map(|d| d.size);
        assert_eq!([size(Some(20.0)), size(Some(-5.0)), size(None)], [Some(5.0), Some(30.0), None]);
        assert_eq!(size(Some(60.0)), Some(-35.0), "and the one of two that is nearer to the bound");
    }
}
