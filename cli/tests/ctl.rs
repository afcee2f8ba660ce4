//! `joulefs ctl` changes how a mounted volume cleans, shows the results, and gives one-line errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{command, done, text};

/// An exit code and one line that contains all of `words`.
fn is_refusal(out: &Output, code: i32, what: &str, words: &[&str]) {
    let said = text(out);
    assert_eq!(out.status.code(), Some(code), "{what}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{what}: one line, not:\n{said}");
    assert!(words.iter().all(|w| said.contains(w)), "{what}: no {words:?} in: {said}");
}

fn refused(args: &[&str], words: &[&str]) {
    is_refusal(&command().args(args).output().unwrap(), 1, &format!("joulefs {args:?}"), words);
}

/// The same for a usage error.
fn misused(args: &[&str], words: &[&str]) {
    is_refusal(&command().args(args).output().unwrap(), 2, &format!("joulefs {args:?}"), words);
}

/// A volume on a real mount, unmounted at the end of the test.
struct Mount {
    room: TempDir,
    dir: PathBuf,
}

impl Mount {
    fn new(size: &str, options: &str) -> Mount {
        let room = tempfile::tempdir().unwrap();
        fs::set_permissions(room.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (image, dir) = (room.path().join("v.img"), room.path().join("mnt"));
        fs::create_dir(&dir).unwrap();
        done(&["mkfs", image.to_str().unwrap(), "--size", size]);
        done(&["mount", image.to_str().unwrap(), dir.to_str().unwrap(), "-o", options]);
        Mount { room, dir }
    }
    fn dir(&self) -> &str {
        self.dir.to_str().unwrap()
    }
    fn ctl(&self, what: &[&str]) -> String {
        done(&[&["ctl", self.dir()], what].concat())
    }
    fn stat(&self) -> Value {
        serde_json::from_str(&done(&["--json", "ctl", self.dir(), "stat"])).unwrap()
    }
    fn number(&self, name: &str) -> u64 {
        self.stat()[name].as_u64().unwrap_or_else(|| panic!("{name} is no number"))
    }
    fn image(&self) -> String {
        self.room.path().join("v.img").display().to_string()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = command().arg("unmount").arg(&self.dir).output();
    }
}

#[test]
fn settings_are_shown_and_changed_by_name() {
    let m = Mount::new("64M", "gc=atgc,background_gc=off,power=powered");
    let all = m.ctl(&[]);
    assert_eq!(all, m.ctl(&["stat"]));
    for line in all.lines() {
        assert_eq!(line.split_whitespace().count(), 2, "{line}");
    }
    let s = m.stat();
    assert_eq!((&s["gc"], &s["background_gc"], &s["power"]), (&"atgc".into(), &"off".into(), &"powered".into()));
    assert_eq!(
        (&s["gc_urgent"], &s["gc_urgent_sleep_time"], &s["gc_max_sleep_time"]),
        (&0.into(), &500.into(), &60_000.into())
    );
    for counter in
        ["gc_background_calls", "moved_blocks_background", "free_segments", "free_fragments", "free_pieces_L9"]
    {
        assert!(s[counter].is_u64(), "{counter}: {}", s[counter]);
    }
    let said = m.ctl(&["gc=fagc", "power=battery", "gc_min_sleep_time=1000"]);
    assert_eq!(said.lines().count(), 3, "what was changed, and nothing else:\n{said}");
    assert!(said.contains("fagc") && said.contains("battery") && said.contains("1000"), "{said}");
    let s = m.stat();
    assert_eq!((&s["gc"], &s["power"], &s["gc_min_sleep_time"]), (&"fagc".into(), &"battery".into(), &1000.into()));
    assert_eq!(s["background_gc"], "off");
    m.ctl(&["atgc_age_threshold=5", "max_victim_search=17", "gc_step_blocks=512"]);
    let s = m.stat();
    assert_eq!(
        (&s["atgc_age_threshold"], &s["max_victim_search"], &s["gc_step_blocks"]),
        (&5.into(), &17.into(), &512.into())
    );
    // The pace follows the policy until the user sets it.
    let pace = |m: &Mount| {
        let s = m.stat();
        ["gc_turn_sections", "gc_quiet_step_blocks", "gc_keep_free"].map(|name| s[name].as_u64().unwrap())
    };
    assert_eq!(pace(&m), [0, 0, 0]);
    m.ctl(&["gc=joule", "gc_keep_free=12"]);
    assert_eq!(pace(&m), [16, 512, 12]);
    m.ctl(&["gc_turn_sections=4", "gc=atgc"]);
    assert_eq!(pace(&m), [4, 512, 12]);
}

#[test]
fn whatever_is_wrong_is_said_in_one_line_and_changes_nothing() {
    let m = Mount::new("64M", "gc=greedy");
    fs::create_dir(m.dir.join("below")).unwrap();
    let before = m.stat();
    misused(&["ctl", m.dir(), "gc=best"], &["gc is one of", "fagc"]);
    misused(&["ctl", m.dir(), "gc=gredy"], &["gc is one of", "did you mean greedy?"]);
    misused(&["ctl", m.dir(), "gc_urgnt=1"], &["gc_urgnt is not a setting", "did you mean gc_urgent?"]);
    misused(&["ctl", m.dir(), "power=batery"], &["power is battery or powered", "did you mean battery?"]);
    misused(&["ctl", m.dir(), "gc="], &["gc is one of"]);
    misused(&["ctl", m.dir(), "gc_urgent=4"], &["gc_urgent is 0, 1, 2 or 3"]);
    misused(&["ctl", m.dir(), "gc_step_blocks=0"], &["gc_step_blocks", "1 to 512"]);
    misused(&["ctl", m.dir(), "gc_keep_free=91"], &["gc_keep_free", "0 to 90"]);
    misused(&["ctl", m.dir(), "gc_turn_sections=many"], &["gc_turn_sections", "0 to 1024"]);
    misused(&["ctl", m.dir(), "gc_quiet_step_blocks=513"], &["gc_quiet_step_blocks", "0 to 512"]);
    misused(&["ctl", m.dir(), "gc_min_sleep_time=soon"], &["gc_min_sleep_time", "number"]);
    misused(&["ctl", m.dir(), "gc_min_sleep_time=-1"], &["gc_min_sleep_time", "number"]);
    misused(&["ctl", m.dir(), "max_victim_search=99999999999"], &["max_victim_search", "large"]);
    misused(&["ctl", m.dir(), "background_gc=sync"], &["background_gc is on or off"]);
    misused(&["ctl", m.dir(), "power=nuclear"], &["power is battery or powered"]);
    misused(&["ctl", m.dir(), "speed=9"], &["speed", "not a setting"]);
    misused(&["ctl", m.dir(), "faster"], &["faster", "NAME=VALUE"]);
    // All or nothing.
    misused(&["ctl", m.dir(), "gc=fagc", "power=nuclear"], &["power"]);
    let after = m.stat();
    assert_eq!(before["gc"], after["gc"]);
    assert_eq!(before["gc_min_sleep_time"], after["gc_min_sleep_time"]);

    let elsewhere = m.room.path().to_str().unwrap();
    refused(&["ctl", elsewhere], &[elsewhere, "not a JouleFS mount point"]);
    refused(&["ctl", &format!("{}/below", m.dir()), "gc=fagc"], &["below", "not a JouleFS mount point"]);
    refused(&["ctl", &format!("{elsewhere}/missing")], &["missing", "No such file"]);
    refused(&["ctl", &m.image(), "gc=fagc"], &["v.img", "not a JouleFS mount point"]);
    let other = m.room.path().join("other.img");
    done(&["mkfs", other.to_str().unwrap(), "--size", "64M"]);
    refused(&["ctl", other.to_str().unwrap()], &["other.img", "not mounted, and no process"]);
    refused(&["ctl", "/proc"], &["/proc", "not a JouleFS mount point"]);
}

#[test]
fn mount_options_about_cleaning_are_refused_in_one_line_if_they_make_no_sense() {
    let room = tempfile::tempdir().unwrap();
    let (image, dir) = (room.path().join("v.img"), room.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    let (image, dir) = (image.to_str().unwrap(), dir.to_str().unwrap());
    done(&["mkfs", image, "--size", "64M"]);
    misused(&["mount", image, dir, "-o", "gc=best"], &["gc=best", "fagc"]);
    misused(&["mount", image, dir, "-o", "gc"], &["gc", "fagc"]);
    misused(&["mount", image, dir, "-o", "background_gc=sync"], &["background_gc", "on or off"]);
    misused(&["mount", image, dir, "-o", "power=wind"], &["power=wind", "battery"]);
    // Nothing is mounted by now.
    done(&["fsck", image]);
    done(&["mount", image, dir, "-o", "gc=fagc,power=auto,background_gc=off"]);
    let m = Mount { dir: dir.into(), room };
    let power = m.stat()["power"].as_str().unwrap().to_owned();
    assert!(power == "battery" || power == "powered", "{power}");
}

#[test]
fn a_volume_told_to_hurry_is_cleaned_while_it_is_mounted() {
    let m = Mount::new("128M", "gc=fagc");
    for n in 0..1600 {
        fs::write(m.dir.join(format!("f{n}")), vec![n as u8; 12_000]).unwrap();
    }
    fs::File::open(&m.dir).unwrap().sync_all().unwrap();
    for n in (0..1600).filter(|n| n % 2 == 0) {
        fs::remove_file(m.dir.join(format!("f{n}"))).unwrap();
    }
    fs::File::open(&m.dir).unwrap().sync_all().unwrap();
    let before = m.stat();
    assert_eq!(before["gc_background_calls"], 0, "half a minute has not passed");
    m.ctl(&["gc_urgent=1", "gc_urgent_sleep_time=10"]);
    // This takes at most a second; on a busy machine a minute.
    let mut tries = 0;
    while m.number("gc_data_victims") < 2 {
        tries += 1;
        assert!(tries < 1200, "nothing cleaned: {}", m.stat());
        std::thread::sleep(Duration::from_millis(50));
    }
    let after = m.stat();
    assert!(after["moved_blocks_background"].as_u64() > before["moved_blocks_background"].as_u64());
    assert!(after["longest_pause_us"].as_u64() > Some(0));
    let us = |name: &str| after[name].as_u64().unwrap();
    assert!(us("gc_held_off_us") >= us("longest_pause_us"), "{after}");
    assert!(us("gc_wait_p99_us") > 0 && us("gc_wait_p99_us") >= us("gc_wait_p50_us"), "{after}");
    assert!(us("gc_wait_most_us") >= us("gc_wait_p99_us").max(us("longest_pause_us")), "{after}");
    m.ctl(&["gc_urgent=0"]);
    let image = m.image();
    for n in (0..1600).filter(|n| n % 2 == 1) {
        assert!(fs::read(m.dir.join(format!("f{n}"))).unwrap() == vec![n as u8; 12_000], "f{n}");
    }
    done(&["unmount", m.dir()]);
    done(&["fsck", &image]);
}

#[test]
fn only_root_and_who_mounted_change_settings() {
    if !rustix::process::geteuid().is_root() {
        return testlog::missing("root, to become another user");
    }
    let m = Mount::new("64M", "gc=greedy,allow_other");
    // A copy made by another process: the build directory may be inaccessible to other users.
    let program = m.room.path().join("joulefs");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_joulefs")).arg(&program).status().unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let nobody =
        |what: &str| Command::new(&program).args(["ctl", m.dir(), what]).uid(65534).gid(65534).output().unwrap();
    is_refusal(&nobody("gc=fagc"), 1, "as nobody", &["only root and the user who mounted"]);
    assert_eq!(m.stat()["gc"], "greedy");
    let looked = nobody("stat");
    assert!(looked.status.success() && text(&looked).contains("greedy"), "{}", text(&looked));
}
