//! Which `joulefs` command lines do the project's documents contain?

use std::fs;
use std::path::{Path, PathBuf};

/// The words of each command in a shell line, without shell syntax: pipes, redirections, comments.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut chars = line.chars().peekable();
    // The next word is the target of a redirection.
    let mut redirected = false;
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => word.get_or_insert_default().extend(chars.by_ref().take_while(|q| *q != c)),
            '#' if word.is_none() => break,
            ' ' | '|' | '&' | ';' | '>' | '<' => {
                let ended = word.take().filter(|_| !std::mem::take(&mut redirected));
                match c {
                    '>' | '<' => {
                        words.extend(ended.filter(|w| w.parse::<u32>().is_err()));
                        redirected = true;
                        while chars.next_if(|c| " >&".contains(*c)).is_some() {}
                    }
                    ' ' => words.extend(ended),
                    _ => {
                        words.extend(ended);
                        all.push(std::mem::take(&mut words));
                    }
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.filter(|_| !redirected));
    all.push(words);
    all
}

/// The program's command lines in a text of shell lines, where `\` at the end continues a line.
pub fn typed(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.trim().trim_start_matches("$ "));
    let commands = lines.flat_map(commands_of).map(|mut words| {
        if words.first().is_some_and(|w| w == "sudo") {
            words.remove(0);
        }
        words
    });
    commands.filter(|words| words.first().is_some_and(|w| w == "joulefs")).collect()
}

/// A command line in a document.
pub struct Shown {
    /// The file.
    pub document: PathBuf,
    /// The words, `joulefs` first.
    pub words: Vec<String>,
    /// It is code that a reader may type. Otherwise it is only mentioned, and may lack arguments.
    pub whole: bool,
}

/// All command lines in the documents below the source root.
pub fn shown(root: &Path) -> Vec<Shown> {
    let mut all = Vec::new();
    for document in documents(root) {
        let text = fs::read_to_string(&document).unwrap();
        let shown = |words, whole| Shown { document: document.clone(), words, whole };
        all.extend(typed(&code(&text)).into_iter().map(|words| shown(words, true)));
        let plain: String = text.split("```").step_by(2).collect();
        let plain: Vec<&str> = plain.lines().filter(|line| !line.starts_with("    ")).collect();
        for quoted in plain.join("\n").split('`').skip(1).step_by(2) {
            // Replaces placeholders: any number, and optional further arguments.
            let quoted = quoted.replace('\n', " ").replace(" ...", "").replace("=N", "=1");
            all.extend(typed(&quoted).into_iter().map(|words| shown(words, false)));
        }
    }
    all
}

/// Every document of the project.
fn documents(root: &Path) -> Vec<PathBuf> {
    fn below(dir: &Path, deep: bool, all: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            let (path, name) = (entry.path(), entry.file_name());
            let hidden = name.as_encoded_bytes().starts_with(b".") || name == "target";
            if entry.file_type().unwrap().is_dir() && !hidden && deep {
                below(&path, true, all);
            } else if path.extension().is_some_and(|e| e == "md") {
                all.push(path);
            }
        }
    }
    let mut all = Vec::new();
    below(root, true, &mut all);
    all
}

/// The code lines of a document: fenced, or indented.
fn code(text: &str) -> String {
    let mut fenced = false;
    let mut out = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            out += line;
            out += "\n";
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_found_among_what_is_said_to_the_shell() {
        let text = "$ cat x | joulefs trace stat - > out 2>&1 && sudo joulefs energy measure -- make   # joulefs no\n\
            joulefs cp \\\n  'a b' v.img:/; ls";
        let found: Vec<String> = typed(text).iter().map(|words| words.join("|")).collect();
        assert_eq!(found, ["joulefs|trace|stat|-", "joulefs|energy|measure|--|make", "joulefs|cp|a b|v.img:/"]);
    }
}
