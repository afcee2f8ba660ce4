//! Drawing of blocks: a *map*, row by row to scale, with a legend of its areas; small structures as *bars* of
//! fields. Plain SVG without scripts or fonts, which follows the reader's light or dark colours.

use std::fmt::Write as _;
use std::ops::Range;

/// Width of a picture in pixels: it stays readable in a narrow window.
const WIDTH: usize = 480;
const MARGIN: usize = 10;
const INNER: usize = WIDTH - 2 * MARGIN;
/// Bytes in a row of a map, and its height.
const ROW: usize = 256;
const TALL: usize = 13;

/// A colour, by meaning. The style sheet has a light and a dark variant of each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    Plain,
    Address,
    Free,
    Delta(usize),
    Head,
    Other,
}

impl Ink {
    fn class(self) -> String {
        match self {
            Ink::Plain => "plain".into(),
            Ink::Address => "address".into(),
            Ink::Free => "free".into(),
            Ink::Delta(n) => format!("d{}", n % 3),
            Ink::Head => "head".into(),
            Ink::Other => "other".into(),
        }
    }
}

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#1b1f24}.small{font-size:11px;fill:#57606a}.title{font-weight:600}
.page{fill:#fff}.plain{fill:#d0d7de}.address{fill:#9ec5fe}.free{fill:#f6f8fa}.head{fill:#c8b6f2}.other{fill:#b7dfb9}
.d0{fill:#ffb870}.d1{fill:#ffd8a8}.d2{fill:#ff9e6b}rect,path{stroke:#57606a;stroke-width:.7}.page{stroke:none}
.map rect{stroke:none;shape-rendering:crispEdges}.map path{fill:none}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}.plain{fill:#3d444d}
.address{fill:#1f4f8f}.free{fill:#161b22}.head{fill:#53408a}.other{fill:#2a5a31}.d0{fill:#9a5312}.d1{fill:#7a4a1c}
.d2{fill:#b0561f}rect,path{stroke:#9198a1}}";

/// A picture that grows downwards.
pub struct Picture {
    title: &'static str,
    body: String,
    y: usize,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Approximate width of a text of the larger size, in pixels.
fn pixels(text: &str) -> usize {
    text.chars().count() * 29 / 4
}

impl Picture {
    pub fn new(title: &'static str) -> Self {
        Picture { title, body: String::new(), y: MARGIN }
    }

    fn text(&mut self, x: usize, y: usize, class: &str, text: &str) {
        writeln!(self.body, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", escaped(text)).unwrap();
    }

    /// A line of text; a long one is wrapped.
    pub fn line(&mut self, class: &str, text: &str) {
        let mut line = String::new();
        let most = if class == "small" { INNER * 7 / 6 } else { INNER };
        for word in text.split(' ') {
            if !line.is_empty() && pixels(&line) + pixels(word) + 4 > most {
                self.y += 16;
                self.text(MARGIN, self.y, class, &std::mem::take(&mut line));
            }
            line.extend((!line.is_empty()).then_some(' '));
            line.push_str(word);
        }
        self.y += 16;
        self.text(MARGIN, self.y, class, &line);
    }

    pub fn gap(&mut self, pixels: usize) {
        self.y += pixels;
    }

    /// A block of 4096 bytes, row by row, and a legend. The areas must cover it.
    pub fn map(&mut self, areas: &[(Range<usize>, Ink, String)]) {
        let mut at = 0;
        let top = self.y + 6;
        let x = |byte: usize| MARGIN as f64 + (byte as f64) * INNER as f64 / ROW as f64;
        self.body.push_str("<g class=\"map\">\n");
        for (range, ink, name) in areas {
            assert_eq!(range.start, at, "{name} begins where the area before it ends");
            at = range.end;
            let mut from = range.start;
            while from < range.end {
                let row = from / ROW;
                let to = range.end.min((row + 1) * ROW);
                let (left, right) = (x(from % ROW), x(to - row * ROW));
                let y = top + row * TALL;
                let (w, class) = (right - left, ink.class());
                writeln!(
                    self.body,
                    "<rect x=\"{left:.1}\" y=\"{y}\" width=\"{w:.1}\" height=\"{TALL}\" class=\"{class}\"/>"
                )
                .unwrap();
                from = to;
            }
            // The border between this area and the next.
            let (row, column) = (range.end / ROW, range.end % ROW);
            if column > 0 {
                let (edge, y) = (x(column), top + row * TALL);
                writeln!(self.body, "<path d=\"M{MARGIN} {}H{edge:.1}V{y}H{}\"/>", y + TALL, WIDTH - MARGIN).unwrap();
            } else if range.end < 4096 {
                writeln!(self.body, "<path d=\"M{MARGIN} {}H{}\"/>", top + row * TALL, WIDTH - MARGIN).unwrap();
            }
        }
        assert_eq!(at, 4096, "the areas cover the block");
        let tall = 4096 / ROW * TALL;
        writeln!(self.body, "<path d=\"M{MARGIN} {top}h{INNER}v{tall}H{MARGIN}z\"/>\n</g>").unwrap();
        self.y = top + tall + 6;
        for (range, ink, name) in areas {
            let y = self.y + 15;
            let class = ink.class();
            writeln!(self.body, "<rect x=\"{MARGIN}\" y=\"{}\" width=\"12\" height=\"12\" class=\"{class}\"/>", y - 11)
                .unwrap();
            self.text(MARGIN + 20, y, "small", &format!("{}..{}", range.start, range.end));
            self.text(MARGIN + 100, y, "", name);
            self.y += 17;
        }
        self.gap(8);
    }

    /// A small structure: its fields in order, each with its bytes, `None` for a variable number.
    pub fn bar(&mut self, fields: &[(Option<Range<usize>>, Ink, String)]) {
        let needs: Vec<usize> =
            fields.iter().map(|(_, _, name)| name.lines().map(pixels).max().unwrap_or(0).max(34) + 10).collect();
        let all: usize = needs.iter().sum();
        assert!(all <= INNER + INNER / 6, "a bar of {all} pixels");
        let lines = fields.iter().map(|(_, _, name)| name.lines().count()).max().unwrap_or(1);
        let (tall, top) = (12 + 15 * lines, self.y + 22);
        let known = || fields.iter().filter_map(|(range, ..)| range.as_ref());
        assert!(
            known().zip(known().skip(1)).all(|(a, b)| a.end == b.start),
            "no gap between fields: {:?}",
            known().collect::<Vec<_>>()
        );
        assert!(known().all(|r| !r.is_empty()), "no field without bytes");
        let mut done = 0;
        for ((range, ink, name), need) in fields.iter().zip(needs) {
            let (left, right) = (MARGIN + done * INNER / all, MARGIN + (done + need) * INNER / all);
            done += need;
            let class = ink.class();
            writeln!(
                self.body,
                "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{tall}\" class=\"{class}\"/>",
                right - left
            )
            .unwrap();
            let bytes = match range {
                Some(r) if r.len() == 1 => r.start.to_string(),
                Some(r) => format!("{}..{}", r.start, r.end),
                None => "...".into(),
            };
            self.text(left + 2, top - 4, "small", &bytes);
            for (n, line) in name.lines().enumerate() {
                self.text(left + 5, top + 17 + 15 * n, "", line);
            }
        }
        self.y = top + tall + 8;
    }

    pub fn finish(self) -> String {
        let (title, body, tall) = (escaped(self.title), self.body, self.y + MARGIN);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{tall}\" \
             viewBox=\"0 0 {WIDTH} {tall}\" role=\"img\">\n<title>{title}</title>\n<style>\n{STYLE}\n</style>\n\
             <rect width=\"{WIDTH}\" height=\"{tall}\" class=\"page\"/>\n{body}</svg>\n"
        )
    }
}
