//! How much energy has this machine's processor used, according to its own counters? RAPL, through
//! `/sys/class/powercap`.
//!
//! The tree is the kernel's (Documentation/power/powercap): one directory per domain, `intel-rapl:0`, `intel-rapl:0:1`
//! (also for AMD processors), with its `name`, its counter `energy_uj`, and `max_energy_range_uj`, the largest value
//! before the counter wraps to 0. Domains of a processor package are prefixed with it here: `package-0/core`.
//!
//! `core` and `uncore` are parts of their package. On servers `dram` is separate; `psys` is whatever the platform's
//! designer connected, packages included: the caller chooses what to add up. No domain is a storage device.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Location of the domains.
pub const POWERCAP: &str = "/sys/class/powercap";

/// Why the counters cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RaplError {
    /// There are none.
    #[error(
        "{}: no RAPL counters: the processor has none, this is a virtual machine or a container that does not show \
         them, or the module intel_rapl_msr is not loaded", .0.display()
    )]
    None(PathBuf),
    /// Only root may read them.
    #[error(
        "{}: permission denied: since CVE-2020-8694 only root may read these counters. Run as root, or let everyone \
         read them until the next boot: sudo chmod a+r {}/intel-rapl:*/energy_uj", path.display(),
         root.display()
    )]
    Forbidden {
        /// The tree.
        root: PathBuf,
        /// The file.
        path: PathBuf,
    },
    /// A file of the tree cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file of the tree holds no number.
    #[error("{}: {text:?} is not a number of microjoules", path.display())]
    NoNumber {
        /// The file.
        path: PathBuf,
        /// Its contents.
        text: String,
    },
}

/// A counter.
#[derive(Debug)]
struct Domain {
    name: String,
    file: PathBuf,
    /// Largest value before the counter wraps to 0.
    range: u64,
    last: u64,
    microjoules: u64,
}

/// All counters of a machine, and their increase since they were opened.
#[derive(Debug)]
pub struct Counters {
    root: PathBuf,
    domains: Vec<Domain>,
}

impl Counters {
    /// Finds the counters below `root` ([`POWERCAP`]) and reads their initial values.
    pub fn open(root: &Path) -> Result<Self, RaplError> {
        let none = || RaplError::None(root.to_owned());
        let entries = match fs::read_dir(root) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(none()),
            Err(source) => return Err(RaplError::Io { path: root.to_owned(), source }),
        };
        let mut zones: Vec<(String, Vec<u64>)> = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| RaplError::Io { path: root.to_owned(), source })?;
            let name = entry.file_name().to_string_lossy().into_owned();
            zones.extend(numbers(&name).map(|numbers| (name, numbers)));
        }
        // Parents before children, and the processor's own registers before the same ones through memory.
        zones.sort_by(|(a, a_numbers), (b, b_numbers)| {
            let mmio = |name: &str| name.starts_with("intel-rapl-mmio");
            (mmio(a), a_numbers).cmp(&(mmio(b), b_numbers))
        });
        let mut counters = Counters { root: root.to_owned(), domains: Vec::new() };
        for (zone, numbers) in &zones {
            let mut name = counters.text(&root.join(zone).join("name"))?;
            if numbers.len() > 1 {
                let (parent, _) = zone.rsplit_once(':').unwrap_or_default();
                name = format!("{}/{name}", counters.text(&root.join(parent).join("name"))?);
            }
            if counters.domains.iter().any(|d| d.name == name) {
                if zone.starts_with("intel-rapl-mmio") {
                    continue;
                }
                name = format!("{name} ({zone})");
            }
            let range = counters.number(&root.join(zone).join("max_energy_range_uj"))?;
            let file = root.join(zone).join("energy_uj");
            let last = counters.number(&file)?;
            counters.domains.push(Domain { name, file, range, last, microjoules: 0 });
        }
        if counters.domains.is_empty() { Err(none()) } else { Ok(counters) }
    }

    /// Reads every counter. A counter that decreased has wrapped once: reading every minute is often enough (262 kJ,
    /// the usual range, last 15 minutes at 290 W).
    pub fn read(&mut self) -> Result<(), RaplError> {
        for n in 0..self.domains.len() {
            let now = self.number(&self.domains[n].file)?;
            let d = &mut self.domains[n];
            let spent = if now >= d.last { now - d.last } else { d.range.saturating_sub(d.last).saturating_add(now) };
            d.microjoules = d.microjoules.saturating_add(spent);
            d.last = now;
        }
        Ok(())
    }

    /// Names of the domains.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.domains.iter().map(|d| d.name.as_str())
    }

    /// Joules counted by each since it was opened.
    pub fn joules(&self) -> impl Iterator<Item = f64> {
        self.domains.iter().map(|d| d.microjoules as f64 / 1e6)
    }

    fn text(&self, path: &Path) -> Result<String, RaplError> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                Err(RaplError::Forbidden { root: self.root.clone(), path: path.to_owned() })
            }
            Err(source) => Err(RaplError::Io { path: path.to_owned(), source }),
        }
    }

    fn number(&self, path: &Path) -> Result<u64, RaplError> {
        let text = self.text(path)?;
        text.parse().map_err(|_| RaplError::NoNumber { path: path.to_owned(), text })
    }
}

/// The numbers in a domain's directory name; `None` for other directories.
fn numbers(name: &str) -> Option<Vec<u64>> {
    let rest = name.strip_prefix("intel-rapl-mmio").or_else(|| name.strip_prefix("intel-rapl"))?;
    rest.strip_prefix(':')?.split(':').map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake tree.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            let tree = Tree(tempfile::tempdir().unwrap());
            tree.zone("intel-rapl:0", "package-0", 1_000, 262_143_328_850);
            tree.zone("intel-rapl:0:0", "core", 500, 262_143_328_850);
            tree.zone("intel-rapl:0:1", "dram", 100, 65_712_999_613);
            tree.zone("intel-rapl:1", "psys", 5_000, 262_143_328_850);
            fs::create_dir(tree.0.path().join("intel-rapl")).unwrap();
            fs::create_dir(tree.0.path().join("dtpm")).unwrap();
            tree
        }

        fn zone(&self, zone: &str, name: &str, energy: u64, range: u64) {
            fs::create_dir(self.0.path().join(zone)).unwrap();
            self.write(zone, "name", name);
            self.write(zone, "energy_uj", energy);
            self.write(zone, "max_energy_range_uj", range);
        }

        fn write(&self, zone: &str, file: &str, text: impl std::fmt::Display) {
            fs::write(self.0.path().join(zone).join(file), format!("{text}\n")).unwrap();
        }

        fn open(&self) -> Result<Counters, RaplError> {
            Counters::open(self.0.path())
        }
    }

    #[test]
    fn domains_are_named_after_their_package() {
        let tree = Tree::new();
        tree.zone("intel-rapl:10", "package-1", 1, 10);
        // The same counter again, through memory; and one that exists only in memory.
        tree.zone("intel-rapl-mmio:0", "package-0", 7, 10);
        tree.zone("intel-rapl-mmio:1", "gpu", 7, 10);
        let names: Vec<String> = tree.open().unwrap().names().map(str::to_owned).collect();
        assert_eq!(names, ["package-0", "package-0/core", "package-0/dram", "psys", "package-1", "gpu"]);
    }

    #[test]
    fn counters_count_from_when_they_were_opened_and_go_on_after_their_largest_number() {
        let tree = Tree::new();
        let mut counters = tree.open().unwrap();
        assert_eq!(counters.joules().collect::<Vec<_>>(), [0.0; 4]);
        tree.write("intel-rapl:0", "energy_uj", 3_001_000);
        tree.write("intel-rapl:0:1", "energy_uj", 65_712_999_613_u64);
        counters.read().unwrap();
        assert_eq!(counters.joules().collect::<Vec<_>>(), [3.0, 0.0, 65_712.999_513, 0.0]);
        tree.write("intel-rapl:0:1", "energy_uj", 500_000);
        counters.read().unwrap();
        assert_eq!(counters.joules().nth(2), Some(65_713.499_513));
    }

    #[test]
    fn a_machine_without_counters_gets_an_explanation() {
        let empty = tempfile::tempdir().unwrap();
        for root in [empty.path(), Path::new("/nowhere/at/all")] {
            let e = Counters::open(root).unwrap_err();
            assert!(matches!(e, RaplError::None(_)) && e.to_string().contains("no RAPL counters"), "{e}");
        }
    }

    #[test]
    fn a_counter_that_cannot_be_read_is_named() {
        let tree = Tree::new();
        let file = tree.0.path().join("intel-rapl:0:0/energy_uj");
        let mut counters = tree.open().unwrap();
        tree.write("intel-rapl:0:0", "energy_uj", "many");
        let e = counters.read().unwrap_err();
        assert!(matches!(&e, RaplError::NoNumber { path, text } if *path == file && text == "many"), "{e}");
        fs::remove_file(&file).unwrap();
        assert!(matches!(tree.open(), Err(RaplError::Io { path, .. }) if path == file));
        fs::create_dir(&file).unwrap();
        assert!(matches!(counters.read(), Err(RaplError::Io { path, .. }) if path == file));
    }
}
