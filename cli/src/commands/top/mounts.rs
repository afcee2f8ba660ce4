//! What do JouleFS mounts spend, by cause and by file, now?
//!
//! The mount's own meter is read ([`fuse::control::ACCOUNT`]): it counts exactly, so nothing is simulated here.

use std::path::{Path, PathBuf};

use device::energy::{Component, Energy, Nanos, Power};
use fuse::control::{ACCOUNT, REPORT};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use vfs::state::State;

use super::machine::label;
use super::screen::{seconds, watts};
use crate::table::{self, Table};
use crate::{Failure, output};

/// Maximum length of an answer.
const LONGEST: usize = 64 << 10;

/// A mount to query.
struct Mount {
    dir: PathBuf,
    /// The token of the last answer.
    token: u64,
    said: Value,
    state: State,
    /// It is no longer mounted.
    gone: bool,
}

/// Several mounts.
pub struct Mounts {
    all: Vec<Mount>,
    /// Maximum number of files listed by name.
    files: usize,
}

/// Why there is no answer.
enum No {
    /// It was unmounted.
    Gone,
    Other(Failure),
}

fn ask(dir: &Path, files: usize, since: u64) -> Result<Value, No> {
    let mut bytes = vec![0; LONGEST];
    let name = format!("{ACCOUNT}.{files}.{since}");
    let at = dir.display();
    let n = rustix::fs::getxattr(dir, &*name, &mut bytes[..]).map_err(|e| match e {
        Errno::NODATA | Errno::OPNOTSUPP | Errno::NOTCONN => No::Gone,
        Errno::PERM | Errno::ACCESS => {
            No::Other(format!("{at}: only root and the user who mounted the volume may read its energy").into())
        }
        e => No::Other(format!("{at}: {e}").into()),
    })?;
    let unread = || No::Other(format!("{at}: unexpected answer from the mount").into());
    if n == 0 {
        let why = "mounted without --profile; unmount it and run `joulefs mount IMAGE DIR --profile NAME --ledger \
            FILE`";
        return Err(No::Other(format!("{at}: {why}").into()));
    }
    serde_json::from_slice(&bytes[..n]).map_err(|_| unread())
}

/// Whether a mount can make everything durable; unknown if it does not report this.
fn state(dir: &Path) -> State {
    let mut bytes = vec![0; LONGEST];
    let n = rustix::fs::getxattr(dir, REPORT, &mut bytes[..]).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..n]);
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let report: Vec<(String, String)> = lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    State::of_report(&report).unwrap_or_default()
}

impl Mounts {
    /// Starts querying; at most `files` files are listed by name.
    pub fn open(dirs: &[PathBuf], files: usize) -> Result<Self, Failure> {
        let mut all = Vec::new();
        for dir in dirs {
            let said = ask(dir, files, 0).map_err(|no| match no {
                No::Gone if rustix::fs::getxattr(dir, REPORT, &mut [0; LONGEST][..]).is_ok() => {
                    format!("{}: mounted by an older version, which does not report energy", dir.display()).into()
                }
                No::Gone => format!("{}: not a JouleFS mount point", dir.display()).into(),
                No::Other(failure) => failure,
            })?;
            all.push(Mount { dir: dir.clone(), token: token(&said), said, state: state(dir), gone: false });
        }
        Ok(Mounts { all, files })
    }

    /// Queries all mounts.
    pub fn refresh(&mut self) -> Result<(), Failure> {
        for mount in self.all.iter_mut().filter(|m| !m.gone) {
            match ask(&mount.dir, self.files, mount.token) {
                Ok(said) => {
                    (mount.token, mount.said) = (token(&said), said);
                    mount.state = state(&mount.dir);
                }
                Err(No::Gone) => mount.gone = true,
                Err(No::Other(failure)) => return Err(failure),
            }
        }
        Ok(())
    }

    /// True if no mount is left.
    pub fn ended(&self) -> bool {
        self.all.iter().all(|m| m.gone)
    }

    /// What was spent, for machines: whole picojoules in total and since the previous refresh.
    pub fn json(&self, since: f64, interval: f64, ended: bool) -> Value {
        let rows = |said: &Value, what: &str| -> Value {
            let list = said[what].as_array().map_or(&[][..], Vec::as_slice);
            let row = |r: &Value| {
                let mut r = r.clone();
                r["power_uw"] = json!(Power::from_watts(power(&r, interval)));
                r
            };
            list.iter().map(row).collect()
        };
        let mount = |m: &Mount| {
            let said = m.current();
            let mut out: Map<String, Value> = said.as_object().cloned().unwrap_or_default();
            out.remove("token");
            out.insert("mount".into(), json!(m.dir.display().to_string()));
            out.insert("mounted".into(), json!(!m.gone));
            out.insert("failed".into(), json!(m.state.failed));
            let age = m.state.age_s.map(|s| s.saturating_mul(1_000_000_000));
            out.insert("durable_age_ns".into(), json!(age));
            out.insert("power_uw".into(), json!(Power::from_watts(power(&said, interval))));
            out.insert("causes".into(), rows(&said, "causes"));
            out.insert("files".into(), rows(&said, "files"));
            Value::Object(out)
        };
        let total: u64 = self.all.iter().map(|m| number(&m.said, "pj")).sum();
        json!({
            "time_ns": Nanos::from_seconds(since),
            "interval_ns": Nanos::from_seconds(interval),
            "ended": ended,
            "power_uw": Power::from_watts(self.watts(interval)),
            "total_pj": total,
            "mounts": self.all.iter().map(mount).collect::<Value>(),
        })
    }

    fn watts(&self, interval: f64) -> f64 {
        self.all.iter().map(|m| power(&m.current(), interval)).fold(0.0, |a, b| a + b)
    }

    /// The same for people.
    pub fn text(&self, since: f64, interval: f64) -> String {
        let total: u64 = self.all.iter().map(|m| number(&m.said, "pj")).sum();
        let mut out = format!(
            "{} now, {} since mounting; shown for {}",
            watts(self.watts(interval)),
            Energy(total),
            seconds(since)
        );
        for mount in &self.all {
            let said = mount.current();
            out += &format!(
                "\n\n{}: {}, {} on {}{}",
                output::plain(&mount.dir.display().to_string()),
                watts(power(&said, interval)),
                Energy(number(&said, "pj")),
                said["profile"].as_str().unwrap_or_default(),
                if mount.gone { "; unmounted" } else { "" }
            );
            if let Some(why) = &mount.state.failed {
                out += &format!("\nits last checkpoint failed: {}", output::plain(why));
            }
            for (what, list) in [("cause", "causes"), ("file", "files")] {
                out += &format!("\n\n{}", table(what, &said[list], interval, self.files));
            }
        }
        out
    }

    /// The same as OpenMetrics text. Includes only files listed by name.
    pub fn metrics(&self, interval: f64) -> String {
        let mut out = String::from(
            "# TYPE joulefs_mount_joules counter\n# UNIT joulefs_mount_joules joules\n\
             # HELP joulefs_mount_joules Energy of a mount on the device of its profile, by cause.\n",
        );
        let mut files = String::from(
            "# TYPE joulefs_file_joules counter\n# UNIT joulefs_file_joules joules\n\
             # HELP joulefs_file_joules The same by file, for the most expensive files.\n",
        );
        let mut power_of = String::from(
            "# TYPE joulefs_mount_power_watts gauge\n# UNIT joulefs_mount_power_watts watts\n\
             # HELP joulefs_mount_power_watts Power of a mount between the last two refreshes.\n",
        );
        let mut failed = String::from(
            "# TYPE joulefs_mount_failed gauge\n\
             # HELP joulefs_mount_failed 1 if its last checkpoint could not be written.\n",
        );
        let mut failure = String::from(
            "# TYPE joulefs_mount_failure info\n# HELP joulefs_mount_failure Why it could not be written.\n",
        );
        let mut age = String::from(
            "# TYPE joulefs_mount_durable_age_seconds gauge\n# UNIT joulefs_mount_durable_age_seconds seconds\n\
             # HELP joulefs_mount_durable_age_seconds Time since its last checkpoint became durable.\n",
        );
        for mount in &self.all {
            let dir = label(&mount.dir.display().to_string());
            failed += &format!("joulefs_mount_failed{{mount=\"{dir}\"}} {}\n", u8::from(mount.state.failed.is_some()));
            if let Some(why) = &mount.state.failed {
                failure += &format!("joulefs_mount_failure_info{{mount=\"{dir}\",reason=\"{}\"}} 1\n", label(why));
            }
            if let Some(seconds) = mount.state.age_s {
                age += &format!("joulefs_mount_durable_age_seconds{{mount=\"{dir}\"}} {seconds}\n");
            }
            for row in mount.said["causes"].as_array().into_iter().flatten() {
                let cause = label(row["cause"].as_str().unwrap_or_default());
                for (component, pj) in row["components_pj"].as_object().into_iter().flatten() {
                    let joules = Energy(pj.as_u64().unwrap_or(0)).joules();
                    let labels = format!("mount=\"{dir}\",cause=\"{cause}\",component=\"{component}\"");
                    out += &format!("joulefs_mount_joules_total{{{labels}}} {joules}\n");
                }
            }
            for row in mount.said["files"].as_array().into_iter().flatten().filter(|row| row["inode"].is_u64()) {
                let file = label(row["file"].as_str().unwrap_or_default());
                let joules = Energy(number(row, "pj")).joules();
                let labels = format!("mount=\"{dir}\",file=\"{file}\",inode=\"{}\"", row["inode"]);
                files += &format!("joulefs_file_joules_total{{{labels}}} {joules}\n");
            }
            let now = power(&mount.current(), interval);
            power_of += &format!("joulefs_mount_power_watts{{mount=\"{dir}\"}} {now}\n");
        }
        out + &files + &power_of + &failed + &failure + &age + "# EOF\n"
    }
}

impl Mount {
    /// The last answer; for an ended mount, with no spending since.
    fn current(&self) -> Value {
        fn still(value: &mut Value) {
            match value {
                Value::Object(map) => {
                    for (name, value) in map {
                        if name.starts_with("since") {
                            zero(value);
                        } else {
                            still(value);
                        }
                    }
                }
                Value::Array(list) => list.iter_mut().for_each(still),
                _ => {}
            }
        }
        fn zero(value: &mut Value) {
            match value {
                Value::Object(map) => map.values_mut().for_each(zero),
                other => *other = json!(0),
            }
        }
        let mut said = self.said.clone();
        if self.gone {
            still(&mut said);
        }
        said
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(0)
}

fn token(said: &Value) -> u64 {
    number(said, "token")
}

fn power(row: &Value, interval: f64) -> f64 {
    if interval > 0.0 { Energy(number(row, "since_pj")).joules() / interval } else { 0.0 }
}

/// Rows, those with the highest cost since the last refresh first.
fn table(what: &str, rows: &Value, interval: f64, most: usize) -> String {
    let mut rows: Vec<&Value> = rows.as_array().into_iter().flatten().collect();
    rows.sort_by_key(|row| std::cmp::Reverse((number(row, "since_pj"), number(row, "pj"))));
    let left_out = rows.len().saturating_sub(most);
    rows.truncate(most);
    // A cause has a name for people and a key for programs.
    let name = |row: &Value| output::plain(row["name"].as_str().or(row[what].as_str()).unwrap_or_default());
    let heads = ["watts", "since", "in all"].into_iter().chain(Component::ALL.iter().map(|c| c.text()));
    let heads = heads.map(|head| table::number(head).least(10));
    let mut set = Table::new([table::text(what)].into_iter().chain(heads));
    for row in rows {
        let first = [name(row), watts(power(row, interval))];
        let energies = ["since_pj", "pj"].map(|name| Energy(number(row, name)).to_string());
        let of = |c: &Component| Energy(number(&row["components_pj"], &c.text().to_lowercase())).to_string();
        set.cells(first.into_iter().chain(energies).chain(Component::ALL.iter().map(of)));
    }
    let mut out = set.text();
    if left_out > 0 {
        out += &format!("\n{left_out} more");
    }
    out
}
