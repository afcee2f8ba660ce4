//! A recording of several files is read as one.

use std::path::{Path, PathBuf};

use trace::{Opened, Options, TraceError, open_with};

use crate::text::{Seen, all_of};

fn write(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn join(paths: &[&Path]) -> Result<Opened, TraceError> {
    let further = paths[1..].iter().map(|path| path.to_path_buf()).collect();
    open_with(paths[0], &Options { further, ..Options::default() })
}

fn times(seen: &Seen) -> Vec<u64> {
    assert!(seen.error.is_none(), "{:?}", seen.error);
    seen.events.iter().map(|e| e.time).chain(seen.calls.iter().map(|c| c.time)).map(|ns| ns / 1_000_000_000).collect()
}

#[test]
fn requests_of_several_files_are_merged_by_time() {
    let dir = tempfile::tempdir().unwrap();
    let line = |cpu: u32, time: u32, name: &str| format!("8,0 {cpu} 1 {time}.000000000 7 D R 2048 + 8 [{name}]\n");
    let a = write(&dir, "a", &(line(0, 2, "cat") + &line(0, 5, "dd")));
    let b = write(&dir, "b", &(line(1, 1, "dd") + &line(1, 3, "cat") + &line(1, 9, "cat")));
    for paths in [[&*a, &*b], [&*b, &*a]] {
        let seen = all_of(join(&paths));
        assert_eq!(times(&seen), [1, 2, 3, 5, 9]);
        assert_eq!(seen.names, ["dd", "cat", "cat", "dd", "cat"]);
    }
    assert_eq!(times(&all_of(join(&[&a, &a]))), [2, 5], "a file is read once");
    let broken = write(&dir, "broken", &(line(0, 4, "x") + "8,0 1"));
    let seen = all_of(join(&[&a, &broken]));
    assert!(seen.error.as_ref().is_some_and(TraceError::is_cut_short) && seen.events.len() == 2, "{:?}", seen.error);
}

#[test]
fn devices_with_one_name_are_one_device() {
    let dir = tempfile::tempdir().unwrap();
    let line = |time: u64, host: &str| format!("{},{host},0,Read,0,4096,1\n", 128_166_372_000_000_000 + time);
    let a = write(&dir, "a", &(line(1, "usr") + &line(3, "web")));
    let b = write(&dir, "b", &(line(2, "web") + &line(4, "usr")));
    let Ok(Opened::Blocks(mut events)) = join(&[&a, &b]) else { panic!("no block events") };
    let mut seen = Vec::new();
    while let Some(event) = events.next().unwrap() {
        seen.push((event.device, events.device(event.device).unwrap()));
    }
    let names: Vec<&str> = seen.iter().map(|(_, name)| &**name).collect();
    assert_eq!(names, ["usr 0", "web 0", "web 0", "usr 0"]);
    assert!(seen[0].0 == seen[3].0 && seen[1].0 == seen[2].0 && seen[0].0 != seen[1].0);
}

#[test]
fn files_of_calls_follow_each_other_with_their_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let first = write(
        &dir,
        "log",
        "7 1.0 openat(AT_FDCWD, \"/a\", O_RDWR) = 3 <0.1>\n7 2.0 write(3, \"\", 5 <unfinished ...>\n",
    );
    let second = write(&dir, "log.1", "7 3.0 <... write resumed>) = 5 <1.0>\n7 4.0 fsync(3) = 0 <0.1>\n");
    let seen = all_of(join(&[&second, &first]));
    assert_eq!(times(&seen), [1, 2, 4]);
    let requests = write(&dir, "blk", "8,0 0 1 0.000000000 7 D R 2048 + 8 [x]\n");
    assert!(matches!(join(&[&first, &requests]), Err(TraceError::Unsupported { .. })));
}
