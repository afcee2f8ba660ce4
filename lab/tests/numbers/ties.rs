//! Which number of a document is tied to which source?

use std::ops::Range;

use super::shape::{Found, MEASURED, bare, numbers, only, row};
use super::sources::Sources;

/// Beginning of a comment with ties.
pub const OPEN: &str = "<!-- numbers\n";

/// A number of a document and its source.
#[derive(Debug)]
pub struct Tie {
    /// The words or the cell around it.
    pub words: String,
    /// The number.
    pub number: Found,
    /// Positions and texts of the number: in the document's text, and in the comment if that repeats it.
    pub places: Vec<(Range<usize>, String)>,
    /// Its source.
    pub source: String,
}

/// All ties of a document, and the errors in its comments.
pub fn of(text: &str, sources: &Sources) -> (Vec<Tie>, Vec<String>) {
    let (mut ties, mut wrong, mut from) = (Vec::new(), Vec::new(), 0);
    while let Some(open) = text[from..].find(OPEN).map(|n| from + n) {
        let lines = open + OPEN.len();
        let close = text[lines..].find("-->").map_or(text.len(), |n| lines + n);
        // A comment applies to the text after the previous comment or heading.
        let heading = text[from..open].rfind("\n#").map_or(from, |n| from + n + 1);
        let scope = Scope::of(text, heading..open);
        let (mut at, mut next) = (lines, 0);
        for line in text[lines..close].split_inclusive('\n') {
            let start = at + line.len() - line.trim_start().len();
            at += line.len();
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let Some((words, source)) = line.split_once(" = ") else {
                wrong.push(format!("{line:?}: no source"));
                continue;
            };
            let column = words.strip_prefix("column ");
            if words == "table" || column.is_some() {
                match cells(text, heading..open, column, source, sources) {
                    Ok(more) => ties.extend(more),
                    Err(e) => wrong.push(format!("{line:?}: {e}")),
                }
                continue;
            }
            match scope.find(words, &mut next) {
                Ok((number, place)) => {
                    let beside = only(words).map(|n| (start + n.at.start..start + n.at.end, n.text));
                    let places = [(place, number.text.clone())].into_iter().chain(beside).collect();
                    ties.push(Tie { words: words.into(), number, places, source: source.into() });
                }
                Err(e) => wrong.push(format!("{words:?} = {source}: {e}")),
            }
        }
        from = close;
    }
    (ties, wrong)
}

/// A part of a document with single spaces between words and without the stars of bold text.
struct Scope {
    text: String,
    /// The position of each byte in the document.
    places: Vec<usize>,
}

impl Scope {
    fn of(document: &str, range: Range<usize>) -> Self {
        let mut all = Scope { text: String::new(), places: Vec::new() };
        for (at, c) in document[range.clone()].char_indices() {
            let c = if c.is_whitespace() { ' ' } else { c };
            if c == '*' || c == ' ' && all.text.ends_with(' ') {
                continue;
            }
            all.text.push(c);
            all.places.extend(std::iter::repeat_n(range.start + at, c.len_utf8()));
        }
        all
    }

    /// The number in some words, and its position in the document. Ties are in the order of the text, so the search
    /// continues after the previous words.
    fn find(&self, words: &str, next: &mut usize) -> Result<(Found, Range<usize>), String> {
        let number = only(words).ok_or("the words must have one number in them")?;
        let plain = words.replace('*', "");
        let shift = words[..number.at.start].matches('*').count();
        let whole = |at: &usize| {
            let (before, after) = (&self.text[..*at], &self.text[at + plain.len()..]);
            let digit = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric());
            // Not in the middle of a word or a number.
            let cut_before =
                digit(before.chars().next_back()) || number.at.start == 0 && before.ends_with(['.', ',', '+', '-']);
            let cut_behind =
                digit(after.chars().next()) || after.starts_with(['.', ',']) && digit(after[1..].chars().next());
            let starts = !plain.starts_with(char::is_alphanumeric) || !cut_before;
            let ends = !plain.ends_with(char::is_alphanumeric) || !cut_behind;
            starts && ends
        };
        let places = self.text[*next..].match_indices(&plain).map(|(n, _)| *next + n);
        let Some(at) = { places }.find(whole) else {
            return self.find_other(&plain[..number.at.start - shift], &plain[number.at.end - shift..], next);
        };
        let start = at + number.at.start - shift;
        *next = at + plain.len();
        let length = number.text.len();
        let mut found = number;
        // The unit may follow the words.
        if found.unit.is_empty() && found.at.end == words.len() {
            found.unit = numbers(&self.text[start..]).first().map_or_else(String::new, |n| n.unit.clone());
        }
        Ok((found, self.places[start]..self.places[start + length - 1] + 1))
    }

    /// Finds the same words around another number.
    fn find_other(&self, before: &str, behind: &str, next: &mut usize) -> Result<(Found, Range<usize>), String> {
        let fits = |n: &Found| {
            self.text[..*next + n.at.start].ends_with(before) && self.text[*next + n.at.end..].starts_with(behind)
        };
        let found = numbers(&self.text[*next..]).into_iter().find(|n| before.len() + behind.len() > 0 && fits(n));
        let found = found.ok_or("these words are not in the text above, behind those of the tie before it")?;
        let (start, end) = (*next + found.at.start, *next + found.at.end);
        *next = end + behind.len();
        Ok((found, self.places[start]..self.places[end - 1] + 1))
    }
}

/// The ties of the cells in the last table of a part of a document, if they have a source.
fn cells(
    document: &str,
    range: Range<usize>,
    column: Option<&str>,
    source: &str,
    sources: &Sources,
) -> Result<Vec<Tie>, String> {
    let part = &document[range.clone()];
    let mut at = range.start;
    let mut table: Vec<Vec<(usize, &str)>> = Vec::new();
    let mut ended = false;
    for line in part.split_inclusive('\n') {
        if line.trim_start().starts_with('|') {
            if std::mem::take(&mut ended) {
                table.clear();
            }
            table.push(row(at, line));
        } else if !table.is_empty() {
            ended = true;
        }
        at += line.len();
    }
    let [head, _, rows @ ..] = table.as_slice() else {
        return Err("there is no table above it".into());
    };
    let (mut ties, inside) = (Vec::new(), column.is_some_and(|c| c.ends_with(" ()")));
    let column = column.map(|c| c.trim_end_matches(" ()")).map(|c| c.split_once('#').unwrap_or((c, "1")));
    // Counts columns with the same name.
    let nth = |at: usize| head[1..=at].iter().filter(|(_, name)| bare(name) == bare(head[at].1)).count().to_string();
    for cells in rows {
        let Some((_, first)) = cells.first() else { continue };
        for (at, ((_, name), (start, cell))) in head.iter().zip(cells).enumerate().skip(1) {
            let (name, first) = (bare(name), bare(first.split(": ").next().unwrap_or_default()));
            if column.is_some_and(|(only, n)| only != name || n != nth(at)) {
                continue;
            }
            let skipped = if inside { cell.find('(').map_or(cell.len(), |at| at + 1) } else { 0 };
            let filled = |name: &str| source.replace("{row}", &first).replace("{column}", name);
            let all = [filled(&name), filled(&name.to_lowercase())];
            let known = all.into_iter().find(|s| sources.one(s).is_ok());
            let (Some(source), Some(number)) = (known, numbers(&cell[skipped..]).into_iter().next()) else {
                continue;
            };
            let start = start + skipped;
            let place = start + number.at.start..start + number.at.end;
            let places = vec![(place, number.text.clone())];
            ties.push(Tie { words: format!("{first}, {name}"), number, places, source });
        }
    }
    if ties.is_empty() { Err("none of the table's cells has this source".into()) } else { Ok(ties) }
}

/// Numbers with measured units and no tie.
pub fn untied(text: &str, sources: &Sources) -> Vec<String> {
    let places: Vec<_> = of(text, sources).0.into_iter().flat_map(|tie| tie.places).collect();
    let (mut all, mut at, mut hidden) = (Vec::new(), 0, false);
    for line in text.split_inclusive('\n') {
        let is_edge = line.starts_with("```") || line.starts_with("<!--") || line.starts_with("-->");
        hidden ^= is_edge && !line.trim_end().ends_with("-->") || line.starts_with("-->");
        if !hidden && !is_edge && !line.starts_with("    ") {
            for n in numbers(&text[at..at + line.len()]) {
                let is_tied = places.iter().any(|(p, _)| p.start <= at + n.at.start && at + n.at.end <= p.end);
                // The unit may stand on the next line.
                let unit = if n.unit.is_empty() { next_unit(text, at + n.at.end) } else { n.unit };
                if MEASURED.contains(&unit.as_str()) && !is_tied {
                    all.push(format!("{} {unit}: {:?}", n.text, line.trim()));
                }
            }
        }
        at += line.len();
    }
    all
}

fn next_unit(text: &str, end: usize) -> String {
    numbers(&format!("0{}", &text[end..])).first().map_or_else(String::new, |n| n.unit.clone())
}
