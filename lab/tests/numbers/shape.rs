//! How is a number written in a text: its digits, sign, unit and table cell?

use std::ops::Range;

/// Units of measured results.
pub const MEASURED: [&str; 6] = ["J", "mJ", "uJ", "kJ", "ms", "%"];

/// Units that are multiples of each other, with their sizes.
const SCALES: &[(&str, &str, f64)] = &[
    ("J", "pJ", 1e-12),
    ("J", "nJ", 1e-9),
    ("J", "uJ", 1e-6),
    ("J", "mJ", 1e-3),
    ("J", "J", 1.0),
    ("J", "kJ", 1e3),
    ("s", "ns", 1e-9),
    ("s", "us", 1e-6),
    ("s", "ms", 1e-3),
    ("s", "s", 1.0),
    ("W", "mW", 1e-3),
    ("W", "W", 1.0),
    ("%", "%", 1.0),
];

/// Small numbers written as words.
const WORDS: [&str; 13] =
    ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// A number in a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its position, including its sign.
    pub at: Range<usize>,
    /// Its text.
    pub text: String,
    /// Its unit, if known.
    pub unit: String,
}

impl Found {
    /// Formats another number like this one.
    pub fn like(&self, value: f64) -> String {
        if let Some(word) = WORDS.iter().position(|w| w.eq_ignore_ascii_case(&self.text)) {
            let capital = self.text.starts_with(char::is_uppercase) && word > 0;
            return match WORDS.get(value.round() as usize) {
                Some(word) if capital => word[..1].to_uppercase() + &word[1..],
                Some(word) => (*word).to_owned(),
                None => format!("{value:.0}"),
            };
        }
        let places = self.text.split_once('.').map_or(0, |(_, digits)| digits.len());
        // Halves are rounded up.
        let scale = 10_f64.powi(i32::try_from(places).unwrap());
        let plain = format!("{:.places$}", (value.abs() * scale).round() / scale);
        let is_zero = plain.chars().all(|c| c == '0' || c == '.');
        let sign = match value {
            v if v < 0.0 && !is_zero => "-",
            _ if self.text.starts_with('+') || is_zero && self.text.starts_with('-') => &self.text[..1],
            _ => "",
        };
        let (whole, rest) =
            plain.split_once('.').map_or((plain.as_str(), String::new()), |(w, r)| (w, format!(".{r}")));
        let with_commas = self.text.contains(',') || whole.len() > 4;
        let bare =
            self.text.trim_start_matches(['+', '-']).split('.').next().is_some_and(|w| w.len() > 4 && !w.contains(','));
        let whole = if with_commas && !bare { commas(whole) } else { whole.to_owned() };
        format!("{sign}{whole}{rest}")
    }
}

fn commas(digits: &str) -> String {
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The factor from one unit to another; none if they are incompatible.
pub fn factor(from: &str, to: &str) -> Option<f64> {
    if to.is_empty() || from == to {
        return Some(1.0);
    }
    let from = from.split('/').next().unwrap_or(from);
    let scale = |unit: &str| SCALES.iter().find(|(_, name, _)| *name == unit);
    match (scale(from), scale(to)) {
        (Some((a, _, from)), Some((b, _, to))) if a == b => Some(from / to),
        _ => None,
    }
}

/// The numbers in digits in a text, except parts of names, versions and ordinals.
pub fn numbers(text: &str) -> Vec<Found> {
    let (bytes, mut all, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let mut end = at;
        while end < bytes.len() && is_part(bytes, end) {
            end += 1;
        }
        let before = text[..at].chars().next_back();
        let signed = matches!(before, Some('+' | '-'));
        let beyond = if signed { text[..at - 1].chars().next_back() } else { before };
        let named = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || "_-.".contains(c));
        // In a range like 27-29 the second number has no sign.
        let range = signed && beyond.is_some_and(|c| c.is_ascii_digit());
        let (start, of_name) = if range { (at, false) } else { (at - usize::from(signed), named(beyond)) };
        let after = text[end..].chars().next();
        if !of_name && !after.is_some_and(|c| c.is_alphabetic() || c == '_') {
            all.push(Found { at: start..end, text: text[start..end].to_owned(), unit: unit(&text[end..]) });
        }
        at = end;
    }
    all
}

/// Whether a byte belongs to a number: a digit, or a point or comma between two digits.
fn is_part(bytes: &[u8], at: usize) -> bool {
    let digit = |n: usize| bytes.get(n).is_some_and(u8::is_ascii_digit);
    digit(at) || matches!(bytes[at], b'.' | b',') && digit(at + 1)
}

/// The unit at the beginning of a text.
fn unit(text: &str) -> String {
    let rest = text.trim_start_matches(['*', ' ', '\n']);
    let end = rest.find(|c: char| !c.is_alphabetic() && c != '%').unwrap_or(rest.len());
    let known = SCALES.iter().any(|(_, unit, _)| *unit == &rest[..end]);
    if known { rest[..end].to_owned() } else { String::new() }
}

/// The only number in some words, in digits or otherwise as a word.
pub fn only(words: &str) -> Option<Found> {
    let mut all = numbers(words);
    if all.is_empty() {
        let mut at = 0;
        for word in words.split_inclusive(|c: char| !c.is_alphabetic()) {
            let bare = word.trim_end_matches(|c: char| !c.is_alphabetic());
            if WORDS.iter().any(|w| w.eq_ignore_ascii_case(bare)) {
                all.push(Found { at: at..at + bare.len(), text: bare.to_owned(), unit: String::new() });
            }
            at += word.len();
        }
    }
    (all.len() == 1).then(|| all.remove(0))
}

/// The cells of a table's line, with their positions.
pub fn row(mut at: usize, line: &str) -> Vec<(usize, &str)> {
    let mut all = Vec::new();
    for cell in line.split('|') {
        all.push((at, cell));
        at += cell.len() + 1;
    }
    all.remove(0);
    all.pop();
    all
}

/// A cell's text without markup.
pub fn bare(cell: &str) -> String {
    cell.trim().replace(['`', '*'], "")
}

#[test]
fn numbers_are_found_and_names_are_not() {
    let texts = |text: &str| numbers(text).into_iter().map(|n| format!("{}|{}", n.text, n.unit)).collect::<Vec<_>>();
    assert_eq!(texts("-9 to +29 % (27-29, 1,704.5 mJ.)"), ["-9|", "+29|%", "27|", "29|", "1,704.5|mJ"]);
    assert!(texts("ext4 kirin9000-ufs31 99th v1.2 64M L1 fig-7").is_empty(), "{:?}", texts("ext4 fig-7"));
    assert_eq!(only("in Five papers").unwrap().text, "Five");
    assert_eq!(only("at 2 of 3"), None);
}

#[test]
fn a_number_is_written_as_the_one_before_it() {
    let like = |text: &str, value: f64| only(text).unwrap().like(value);
    let all =
        [("0.98", 1.234), ("+5", 7.6), ("1,000", 12345.6), ("999", 12345.0), ("-1", -0.2), ("three", 4.0), ("7", 8.5)];
    let texts: Vec<_> = all.iter().map(|(text, value)| like(text, *value)).collect();
    assert_eq!(texts, ["1.23", "+8", "12,346", "12,345", "-0", "four", "9"]);
    assert_eq!(
        [factor("mJ", "J"), factor("J/h", "J"), factor("mW", "J"), factor("x", "")],
        [Some(1e-3), Some(1.0), None, Some(1.0)]
    );
}
