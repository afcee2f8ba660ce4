//! `--flame FILE`: where the joules of a command went, as stacks for external tools or as a page.
//!
//! This module reads the options and writes the files; [`names`] maps owners to frames, [`page`] renders the page.
//! `sim::flame` defines flame graphs and their other formats.

pub mod names;
mod page;

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use sim::flame::{Depth, Flame, folded, speedscope};

use crate::{Failure, whole};

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line per stack: frames separated by `;`, a space, picojoules. For flamegraph.pl, inferno, difffolded.pl.
    Folded,
    /// speedscope's file format, weights in picojoules.
    Speedscope,
    /// A self-contained HTML page.
    Html,
}

/// Options of commands that know who spent what.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct FlameArgs {
    /// Write a flame graph of the joules to this file: directories, file (or process), cause, component. The file's
    /// ending selects the format: .folded or .txt (stacks and picojoules, for flamegraph.pl and inferno), .json (for
    /// speedscope), .html (a page). May be given several times. Of a comparison, each run has its own picture, profile
    /// or file (RUN is inserted before the ending); in a page, colours show the difference to the control.
    #[arg(long, value_name = "FILE")]
    flame: Vec<PathBuf>,
    /// Format of the --flame files, whatever their names.
    #[arg(long, value_name = "FORM", requires = "flame")]
    flame_format: Option<Format>,
    /// Add a level below the component for its activity: flash programs, the device's own cleaning, bytes over the
    /// link.
    #[arg(long, requires = "flame")]
    flame_parts: bool,
}

/// Files to write, each with its format.
#[derive(Debug, Clone, Default)]
pub struct Files {
    all: Vec<(PathBuf, Format)>,
    depth: Depth,
}

impl FlameArgs {
    /// True if the option was given.
    pub fn is_given(&self) -> bool {
        !self.flame.is_empty()
    }

    /// The files to write, checked before any work is done.
    ///
    /// # Errors
    /// A file with an unknown format, or in a directory that does not exist.
    pub fn files(&self) -> Result<Files, Failure> {
        let form = |file: &Path| match (self.flame_format, file.extension().and_then(|e| e.to_str())) {
            (Some(format), _) => Ok(format),
            (None, Some("folded" | "txt")) => Ok(Format::Folded),
            (None, Some("json")) => Ok(Format::Speedscope),
            (None, Some("html" | "htm")) => Ok(Format::Html),
            _ => Err(Failure::Usage(format!(
                "--flame {}: name it .folded, .json or .html, or give --flame-format",
                file.display()
            ))),
        };
        let one = |file: &PathBuf| {
            let format = form(file)?;
            // A daemon has another working directory.
            let path = std::path::absolute(file).map_err(|e| format!("--flame {}: {e}", file.display()))?;
            match path.parent() {
                Some(dir) if !dir.is_dir() => Err(format!("--flame {}: no such directory", file.display()).into()),
                _ => Ok((path, format)),
            }
        };
        let depth = if self.flame_parts { Depth::Parts } else { Depth::Components };
        Ok(Files { all: self.flame.iter().map(one).collect::<Result<_, Failure>>()?, depth })
    }
}

/// One run's flame graph.
pub struct Graph {
    /// Its name, if there are several.
    pub name: String,
    /// What was spent.
    pub flame: Flame,
    /// Elapsed device time in nanoseconds.
    pub took: u64,
    /// The graph of the run that it is compared with, by index.
    pub control: Option<usize>,
}

impl Files {
    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Depth of the stacks.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// Fails if one of them is the recording being read.
    pub fn apart(&self, recording: &Path) -> Result<(), Failure> {
        self.apart_from("the recording", recording)
    }

    /// Like [`apart`](Self::apart), for any input; `what` names it.
    pub fn apart_from(&self, what: &str, read: &Path) -> Result<(), Failure> {
        self.all.iter().try_for_each(|(file, _)| whole::apart_from(what, "--flame", file, read))
    }

    /// Writes all of them. `title` names the subject. Of several graphs each has a picture, a profile, or a file of
    /// stacks with its name; none is a sum.
    pub fn write(&self, title: &str, graphs: &[Graph]) -> Result<(), Failure> {
        for (file, format) in &self.all {
            match graphs {
                [_, _, ..] if *format == Format::Folded => of_runs(file, title, graphs)?,
                _ => one(file, *format, title, graphs)?,
            }
        }
        Ok(())
    }
}

/// Writes the stacks of each run to a file of its own: `joules.folded` becomes `joules.RUN.folded`.
fn of_runs(file: &Path, title: &str, graphs: &[Graph]) -> Result<(), Failure> {
    if !whole::is_plain(file) {
        let n = graphs.len();
        return Err(
            format!("--flame {}: {n} runs need a file each: name a file, or end it in .html", file.display()).into()
        );
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    for graph in graphs {
        let letter = |c: char| if c.is_alphanumeric() || "-=._+".contains(c) { c } else { '-' };
        let mut run: String = graph.name.chars().map(letter).collect();
        let count = seen.entry(run.clone()).or_default();
        *count += 1;
        if *count > 1 {
            run += &format!("-{count}");
        }
        let extension = file.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()));
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        one(
            &file.with_file_name(format!("{stem}.{run}{extension}")),
            Format::Folded,
            title,
            std::slice::from_ref(graph),
        )?;
    }
    Ok(())
}

fn one(file: &Path, format: Format, title: &str, graphs: &[Graph]) -> Result<(), Failure> {
    let failed = |e: std::io::Error| format!("--flame {}: {e}", file.display());
    if !whole::is_plain(file) {
        let open = std::fs::File::options().write(true).open(file).map_err(failed)?;
        return Ok(to(format, title, graphs, &mut BufWriter::new(open)).map_err(failed)?);
    }
    let (part, open) = whole::Part::create(file, true).map_err(failed)?;
    to(format, title, graphs, &mut BufWriter::new(open)).map_err(failed)?;
    Ok(part.finish().map_err(failed)?)
}

fn to(format: Format, title: &str, graphs: &[Graph], out: &mut dyn Write) -> std::io::Result<()> {
    match format {
        Format::Speedscope => {
            let profiles: Vec<(String, &Flame)> = graphs.iter().map(|g| (g.name.clone(), &g.flame)).collect();
            speedscope::write(title, &profiles, out)?;
        }
        Format::Html => out.write_all(page::page(title, graphs).as_bytes())?,
        Format::Folded => graphs.iter().try_for_each(|graph| folded::write(&graph.flame, out))?,
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use crate::hidden::is_hidden;

    #[test]
    fn a_frame_shows_no_name_with_a_character_that_a_terminal_hides() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| is_hidden(*c)) {
            let frame = sim::flame::escaped(format!("a{c}b").as_bytes());
            assert!(!frame.contains(is_hidden), "{c:?} is shown as it is");
        }
    }
}
