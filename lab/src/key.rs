//! What identifies a measured phase on any machine?
//!
//! A key is a hash of all inputs of the phase's numbers: the program, the kind of work, the device's numbers, seed and
//! parameters, and the bytes of the files they name. Equal keys mean equal numbers, to the picojoule. The plan's text
//! and name are not in it: if another plan runs the same work, the key is the same.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::LabError;
use crate::keep::in_order;
use crate::plan::{Job, Kind};
use crate::theirs;
use sim::aging::Recipe;

/// The key of everything a job measures.
#[derive(Debug, Clone)]
pub struct Key(Sha256);

impl Key {
    /// The key of a job as this program's build `build` runs it.
    pub fn of(build: &str, kind: Kind, job: &Job) -> Result<Self, LabError> {
        let mut all = Sha256::new();
        let mut add = |bytes: &[u8]| {
            all.update((bytes.len() as u64).to_le_bytes());
            all.update(bytes);
        };
        add(build.as_bytes());
        add(format!("{kind:?} {}", job.seed).as_bytes());
        for number in job.profile()?.numbers() {
            add(format!("{} {} {}", number.name, number.value, number.unit).as_bytes());
        }
        add(in_order(&job.parameters).as_bytes());
        if let Some(state) = job.parameters.get("state").and_then(toml::Value::as_str) {
            add(format!("{:?}", Recipe::chain(state)).as_bytes());
        }
        let mut files = Vec::new();
        let needed = job.needs.as_deref();
        needed.into_iter().for_each(|name| files.extend(file(name)));
        job.parameters.values().for_each(|value| named(value, &mut files));
        for path in files {
            let unreadable = |e: io::Error| LabError::parameters(format!("{}: {e}", path.display()));
            let mut of_file = Sha256::new();
            File::open(&path).and_then(|mut file| io::copy(&mut file, &mut of_file)).map_err(unreadable)?;
            add(&of_file.finalize());
        }
        Ok(Key(all))
    }

    /// The key of the job's `n`-th phase.
    pub fn phase(&self, n: usize, name: &str) -> String {
        let all = self.0.clone().chain_update(format!("{n} {name}"));
        all.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A file named by its path, or an external recording.
fn file(name: &str) -> Option<PathBuf> {
    let by_path = || Some(Path::new(name)).filter(|_| name.contains('/')).map(Path::to_owned);
    theirs::find(name).or_else(by_path).filter(|path| path.is_file())
}

/// Collects the files that a parameter names.
fn named(value: &toml::Value, files: &mut Vec<PathBuf>) {
    match value {
        toml::Value::String(name) => files.extend(file(name)),
        toml::Value::Array(list) => list.iter().for_each(|value| named(value, files)),
        toml::Value::Table(table) => table.values().for_each(|value| named(value, files)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Changes, Experiment};

    const PLAN: &str = "title = \"t\"\nkind = \"file-io\"\nprofile = \"microdrive\"\n[parameters]\na = 5\nb = 1\n";

    fn key(build: &str, plan: &str) -> String {
        let experiment = Experiment::parse("x", "", plan, "").unwrap();
        let job = &experiment.jobs(&Changes::default()).unwrap()[0];
        Key::of(build, experiment.plan.kind, job).unwrap().phase(0, "read")
    }

    #[test]
    fn what_numbers_depend_on_makes_another_key_and_words_do_not() {
        let before = key("1", PLAN);
        assert_eq!(before, key("1", &PLAN.replace("\"t\"", "\"u\"").replace("a = 5\nb = 1", "b = 1\na = 5")));
        let others = [
            key("2", PLAN),
            key("1", &PLAN.replace("file-io", "bound")),
            key("1", &PLAN.replace("microdrive", "laptop-disk-4200")),
            key("1", &PLAN.replace("a = 5", "a = 6")),
            key("1", &format!("seeds = [2]\n{PLAN}")),
            key("1", &format!("{PLAN}state = \"full\"\n")),
            key("1", &format!("{PLAN}[[variant]]\nname = \"v\"\nassume = {{ \"device.spin_up\" = 9.5 }}\n")),
        ];
        let mut all = others.to_vec();
        all.push(before);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 8, "{others:?}");
    }

    #[test]
    fn the_bytes_of_a_file_that_is_named_count() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.rec");
        let plan = format!("{PLAN}work = {{ files = [{:?}] }}\n", file.display().to_string());
        let none = key("1", &plan);
        std::fs::write(&file, "1").unwrap();
        let one = key("1", &plan);
        std::fs::write(&file, "2").unwrap();
        let two = key("1", &plan);
        assert!(none != one && one != two && two != none);
        std::fs::write(&file, "1").unwrap();
        assert_eq!(key("1", &plan), one);
    }
}
