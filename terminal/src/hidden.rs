//! Which characters act on a terminal instead of being shown, and how are they escaped?

/// True for a character that acts on a terminal, changes the order of what it shows, or is invisible: control
/// characters, line and paragraph separators, bidirectional controls, joiners and zero-width characters. Two names that
/// differ only in these would look the same.
pub fn is_hidden(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let unseen = matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{feff}');
    c.is_control() || turns || unseen || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Writes a hidden character as Rust and the shell's `$'...'` write it.
pub fn escape(c: char, out: &mut String) {
    match c {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        '\0'..='\u{7f}' => *out += &format!("\\x{:02x}", c as u32),
        _ => *out += &format!("\\u{{{:x}}}", c as u32),
    }
}

/// Escapes hidden characters in JSON for printing or writing to a file; the strings keep their values.
pub fn shown_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Outside strings, JSON contains only line ends and indents. All hidden characters are in the basic
        // multilingual plane.
        if is_hidden(c) && c != '\n' { out += &format!("\\u{:04x}", c as u32) } else { out.push(c) }
    }
    out
}
