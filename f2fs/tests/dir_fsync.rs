//! What fsync of a directory promises without a checkpoint, at which cost, and that Linux recovers the same state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Loss, Memory, PowerCut};
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use judges::oracle::kernel::Kernel;
use judges::oracle::linux::Linux;
use judges::oracle::tools::assert_fsck_clean;
use vfs::{DirEntry, FileKind, FileSystem, Flow, Ino, RenameFlags, SetAttr, XattrFlags};

use crate::log_rig::*;

/// A volume with durable files `old`, `other` and `third`, each containing its name, and directories `d` and `e`.
struct World {
    dev: Arc<PowerCut>,
    vol: Arc<Volume>,
}

fn world() -> World {
    let dev = power_cut(&formatted(64, &Options::modern()));
    let vol = mount(dev.clone());
    let w = World { dev, vol };
    ["old", "other", "third"].iter().for_each(|name| w.make(name, name));
    ["d", "e"].iter().for_each(|name| assert!(w.vol.mkdir(ROOT, w.vol.root(), name.as_bytes(), 0o755, 0).is_ok()));
    w.vol.sync().unwrap();
    w
}

impl World {
    fn place<'p>(&self, path: &'p str) -> (Ino, &'p [u8]) {
        match path.split_once('/') {
            Some((dir, name)) => (find(&self.vol, dir).unwrap(), name.as_bytes()),
            None => (self.vol.root(), path.as_bytes()),
        }
    }
    fn ino(&self, path: &str) -> Ino {
        let (dir, name) = self.place(path);
        let ino = self.vol.lookup(dir, name).unwrap().attr.ino;
        self.vol.forget(ino, 1);
        ino
    }
    fn make(&self, path: &str, text: &str) {
        let (dir, name) = self.place(path);
        let ino = new_file(&self.vol, dir, std::str::from_utf8(name).unwrap());
        // More than fits in an inode.
        write(&self.vol, ino, 0, text.repeat(5000).as_bytes());
        self.vol.forget(ino, 1);
    }
    fn synced(&self, path: &str, text: &str) {
        self.make(path, text);
        self.fsync(path);
    }
    fn fsync(&self, path: &str) {
        self.vol.fsync(self.ino(path), false).unwrap();
    }
    fn unlink(&self, path: &str) {
        let (dir, name) = self.place(path);
        self.vol.unlink(dir, name).unwrap();
    }
    fn rename(&self, from: &str, to: &str) {
        self.vol.rename(ROOT, self.place(from), self.place(to), RenameFlags::empty()).unwrap();
    }
    fn exchange(&self, a: &str, b: &str) {
        self.vol.rename(ROOT, self.place(a), self.place(b), RenameFlags::EXCHANGE).unwrap();
    }
    fn link(&self, from: &str, to: &str) {
        let (dir, name) = self.place(to);
        let ino = self.vol.link(self.ino(from), dir, name).unwrap().attr.ino;
        self.vol.forget(ino, 1);
    }
    /// Fsyncs the root, or a directory in it.
    fn fsync_dir(&self, path: &str) {
        let dir = if path.is_empty() { self.vol.root() } else { self.ino(path) };
        self.vol.fsyncdir(dir, false).unwrap();
    }
    /// Cost of fsyncing it: writes, flushes and checkpoints.
    fn cost(&self, path: &str) -> (u64, u64, u64) {
        let now = || (self.dev.write_count(), self.dev.flush_count(), self.vol.counters.checkpoints.load(Relaxed));
        let before = now();
        self.fsync_dir(path);
        let after = now();
        (after.0 - before.0, after.1 - before.1, after.2 - before.2)
    }
    fn checkpoints(&self) -> u64 {
        self.vol.counters.checkpoints.load(Relaxed)
    }
}

/// Every file, by path, with the first word of its contents.
fn listed(vol: &Volume) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(String::new(), vol.root())];
    while let Some((path, dir)) = waiting.pop() {
        let mut entries = Vec::new();
        let each = |e: DirEntry<'_>| {
            if e.name != b"." && e.name != b".." && e.name != b"lost+found" {
                entries.push((String::from_utf8(e.name.to_vec()).unwrap(), e.ino, e.kind));
            }
            Flow::Continue
        };
        vol.readdir(dir, 0, &mut { each }).unwrap();
        for (name, ino, kind) in entries {
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            if kind == FileKind::Directory {
                waiting.push((path, ino));
            } else {
                let text = String::from_utf8(read_all(vol, ino)).unwrap();
                found.insert(path, text.chars().take(20).collect());
            }
        }
    }
    found
}

/// The operations, ending with promises about all changes, and the mechanism that must keep them.
struct Case {
    name: &'static str,
    how: Kept,
    does: fn(&World),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Only roll-forward.
    ByNodes,
    /// A checkpoint.
    ByCheckpoint,
}
use Kept::*;

const CASES: &[Case] = &[
    Case {
        name: "a new name",
        how: ByNodes,
        does: |w| {
            w.synced("new", "1");
            w.fsync_dir("");
        },
    },
    Case {
        name: "new names that nobody synced",
        how: ByNodes,
        does: |w| {
            ["a", "b", "c"].iter().for_each(|n| w.make(n, n));
            w.fsync_dir("");
        },
    },
    Case {
        name: "more new names than are worth it",
        how: ByCheckpoint,
        does: |w| {
            (0..9).for_each(|i| w.make(&format!("new{i}"), "n"));
            w.fsync_dir("");
        },
    },
    Case {
        name: "a journal, removed",
        how: ByNodes,
        does: |w| {
            w.synced("journal", "1");
            w.fsync_dir("");
            w.unlink("journal");
            w.fsync_dir("");
        },
    },
    Case {
        name: "journals, one after another, removed",
        how: ByNodes,
        does: |w| {
            for i in 0..5 {
                w.synced("journal", &i.to_string());
                w.fsync_dir("");
                w.fsync("old");
                w.unlink("journal");
                w.fsync_dir("");
            }
            w.synced("kept", "kept");
        },
    },
    Case {
        name: "a journal synced several times, removed",
        how: ByNodes,
        does: |w| {
            w.synced("journal", "1");
            for round in 0..3 {
                write(&w.vol, w.ino("journal"), round * 9000, &[b'2'; 4000]);
                w.fsync("journal");
            }
            w.fsync_dir("");
            w.unlink("journal");
            w.fsync_dir("");
            w.synced("after", "after");
        },
    },
    Case {
        name: "a name made again and again",
        how: ByNodes,
        does: |w| {
            for i in 0..6 {
                w.synced("journal", &i.to_string());
                w.fsync_dir("");
                w.unlink("journal");
            }
            w.synced("journal", "last");
            w.fsync_dir("");
        },
    },
    Case {
        name: "a name made again and again, then removed",
        how: ByCheckpoint,
        does: |w| {
            for i in 0..3 {
                w.synced("journal", &i.to_string());
                w.unlink("journal");
            }
            w.fsync_dir("");
        },
    },
    Case {
        name: "a name of the checkpoint, removed",
        how: ByCheckpoint,
        does: |w| {
            w.unlink("old");
            w.fsync_dir("");
        },
    },
    Case {
        name: "a name of the checkpoint, removed and made again",
        how: ByNodes,
        does: |w| {
            w.unlink("old");
            w.synced("old", "again");
            w.fsync_dir("");
        },
    },
    Case {
        name: "a name of the checkpoint, made again and removed",
        how: ByCheckpoint,
        does: |w| {
            w.unlink("old");
            w.synced("old", "again");
            w.unlink("old");
            w.fsync_dir("");
        },
    },
    Case {
        name: "a file put in the place of another, again and again",
        how: ByNodes,
        does: |w| {
            for i in 0..5 {
                w.synced("old.tmp", &i.to_string());
                w.rename("old.tmp", "old");
                w.fsync_dir("");
            }
        },
    },
    Case {
        name: "a file put in the place of another, again and again, and only files synced",
        how: ByNodes,
        does: |w| {
            for i in 0..5 {
                w.synced("old.tmp", &i.to_string());
                w.rename("old.tmp", "old");
            }
            w.fsync("old");
        },
    },
    Case {
        name: "a file delivered to another directory",
        how: ByNodes,
        does: |w| {
            for i in 0..4 {
                w.synced("d/message", &i.to_string());
                w.rename("d/message", &format!("e/{i}"));
                w.fsync_dir(if i % 2 == 0 { "e" } else { "d" });
            }
            w.fsync_dir("d");
            w.fsync_dir("e");
        },
    },
    Case {
        name: "a new file moved twice, its first name made again",
        how: ByNodes,
        does: |w| {
            w.synced("a", "a");
            w.rename("a", "b");
            w.rename("b", "c");
            w.synced("a", "second");
            w.fsync_dir("");
        },
    },
    Case {
        name: "two new files that exchange names",
        how: ByCheckpoint,
        does: |w| {
            w.synced("a", "a");
            w.synced("b", "b");
            w.exchange("a", "b");
            w.fsync_dir("");
        },
    },
    Case {
        name: "two new files that exchange names, of which one is synced then",
        how: ByCheckpoint,
        does: |w| {
            new_file(&w.vol, w.vol.root(), "a");
            new_file(&w.vol, w.vol.root(), "b");
            w.exchange("a", "b");
            w.fsync("b");
        },
    },
    Case {
        name: "a new file and a directory that exchange names, the file synced",
        how: ByCheckpoint,
        does: |w| {
            w.synced("a", "a");
            w.vol.mkdir(ROOT, w.vol.root(), b"f", 0o755, 0).unwrap();
            w.exchange("a", "f");
            w.fsync("f");
        },
    },
    Case {
        name: "two new files that exchange names by a third",
        how: ByCheckpoint,
        does: |w| {
            w.synced("a", "a");
            w.synced("b", "b");
            w.rename("a", "x");
            w.rename("b", "a");
            w.rename("x", "b");
            w.fsync_dir("");
        },
    },
    Case {
        name: "a file of the checkpoint, moved",
        how: ByCheckpoint,
        does: |w| {
            w.rename("old", "new");
            w.fsync_dir("");
        },
    },
    Case {
        name: "a file of the checkpoint, moved away and back",
        how: ByNodes,
        does: |w| {
            w.rename("old", "new");
            w.rename("new", "old");
            w.fsync_dir("");
        },
    },
    Case {
        name: "a new file that took a name and left it",
        how: ByCheckpoint,
        does: |w| {
            w.synced("tmp", "tmp");
            w.rename("tmp", "old");
            w.fsync_dir("");
            w.rename("old", "elsewhere");
            w.fsync_dir("");
        },
    },
    Case {
        name: "a second name",
        how: ByCheckpoint,
        does: |w| {
            w.synced("a", "a");
            w.link("a", "b");
            w.fsync_dir("");
        },
    },
    Case {
        name: "a second name instead of the first",
        how: ByCheckpoint,
        does: |w| {
            w.synced("d/a", "a");
            w.link("d/a", "e/b");
            w.unlink("d/a");
            w.fsync_dir("e");
            w.fsync_dir("d");
        },
    },
    Case {
        name: "a file that had no name",
        how: ByNodes,
        does: |w| {
            let ino = w.vol.tmpfile(ROOT, w.vol.root(), 0o600, 0).unwrap().attr.ino;
            write(&w.vol, ino, 0, b"nameless");
            w.vol.link(ino, w.vol.root(), b"named").unwrap();
            w.vol.forget(ino, 2);
            w.fsync_dir("");
        },
    },
    Case {
        name: "a deleted file that gets its name back",
        how: ByNodes,
        does: |w| {
            w.synced("a", "a");
            let ino = w.vol.lookup(w.vol.root(), b"a").unwrap().attr.ino;
            w.unlink("a");
            w.fsync_dir("");
            w.vol.link(ino, w.vol.root(), b"a").unwrap();
            w.vol.forget(ino, 2);
            w.vol.fsync(ino, true).unwrap();
            w.fsync_dir("");
        },
    },
    Case {
        name: "a directory",
        how: ByCheckpoint,
        does: |w| {
            w.vol.mkdir(ROOT, w.vol.root(), b"f", 0o755, 0).unwrap();
            w.fsync_dir("");
            w.make("f/inside", "1");
            w.fsync_dir("f");
        },
    },
    Case {
        name: "a directory that nobody kept",
        how: ByNodes,
        does: |w| {
            w.vol.mkdir(ROOT, w.vol.root(), b"f", 0o755, 0).unwrap();
            w.vol.rmdir(w.vol.root(), b"f").unwrap();
            w.synced("f", "a file");
            w.fsync_dir("");
        },
    },
    Case {
        name: "in a new directory",
        how: ByCheckpoint,
        does: |w| {
            w.vol.mkdir(ROOT, w.vol.root(), b"f", 0o755, 0).unwrap();
            w.make("f/inside", "1");
            w.fsync_dir("f");
        },
    },
    Case {
        name: "a symlink",
        how: ByCheckpoint,
        does: |w| {
            w.vol.symlink(ROOT, w.vol.root(), b"l", b"old").unwrap();
            w.fsync_dir("");
        },
    },
    Case {
        name: "a directory's mode",
        how: ByCheckpoint,
        does: |w| {
            w.vol.setattr(w.vol.root(), &SetAttr { perm: Some(0o711), ..SetAttr::default() }).unwrap();
            w.fsync_dir("");
        },
    },
    Case {
        name: "a directory's attribute",
        how: ByCheckpoint,
        does: |w| {
            w.vol.setxattr(w.ino("d"), b"user.a", b"1", XattrFlags::empty()).unwrap();
            w.synced("d/f", "f");
            w.fsync_dir("d");
        },
    },
    Case {
        name: "a directory that moved",
        how: ByCheckpoint,
        does: |w| {
            w.rename("d", "g");
            w.fsync_dir("g");
            w.synced("g/f", "f");
            w.fsync_dir("g");
        },
    },
    Case {
        name: "more names than one block of a directory holds",
        how: ByNodes,
        does: |w| {
            for i in 0..250 {
                w.synced(&format!("d/name of some length {i}"), "x");
                if i % 3 == 0 {
                    w.unlink(&format!("d/name of some length {i}"));
                }
                w.fsync_dir("d");
            }
        },
    },
];

/// After the case and any cut, all names are as they were at the cut: each case ends with a promise about all of its
/// changes.
#[test]
fn every_change_of_names_is_durable_by_the_cheapest_way_that_keeps_it() {
    for case in CASES {
        let w = world();
        let before = w.checkpoints();
        (case.does)(&w);
        let how = if w.checkpoints() == before { ByNodes } else { ByCheckpoint };
        assert_eq!(how, case.how, "{}", case.name);
        let expected = listed(&w.vol);
        for loss in [Loss::AllLost, Loss::AllKept, Loss::Random(7)] {
            recovered(&w.dev.image(loss), |vol| assert_eq!(listed(vol), expected, "{}, {loss}", case.name));
        }
        assert_tools_clean(&w.dev.image(Loss::AllLost));
        w.vol.unmount().unwrap();
        assert_tools_clean(&w.dev.image(Loss::AllLost));
    }
}

fn kernels() -> Vec<Linux> {
    match Linux::complete() {
        Ok(other) if other == Linux::asked() => vec![other],
        Ok(other) => vec![Linux::asked(), other],
        Err(why) => {
            testlog::missing(why);
            vec![Linux::asked()]
        }
    }
}

#[test]
fn linux_recovers_every_change_of_names() {
    let dir = tempfile::tempdir().unwrap();
    for linux in kernels() {
        let mut expected = Vec::new();
        for (i, case) in CASES.iter().enumerate() {
            let w = world();
            (case.does)(&w);
            w.dev.image(Loss::AllLost).save(dir.path().join(format!("image.{i}"))).unwrap();
            expected.push(listed(&w.vol));
        }
        let run = Kernel::of(linux.clone()).without_mount().directory(dir.path()).run(
            &dir.path().join("image.0"),
            &format!(
                "cd /tmp; load loop\n\
                 for i in $(seq 0 {}); do\n\
                 L=$(losetup -f --show $DIR/image.$i); mount -t f2fs $L m 2>$OUT/error.$i || continue\n\
                 cp -r m $OUT/tree.$i\n\
                 umount m && : >$OUT/done.$i; losetup -d $L\n\
                 done",
                CASES.len() - 1
            ),
        );
        assert!(run.ok(), "{linux:?}: {}", run.describe());
        run.assert_no_f2fs_complaints();
        for (i, (case, expected)) in CASES.iter().zip(&expected).enumerate() {
            let why = std::fs::read_to_string(run.out().join(format!("error.{i}"))).unwrap_or_default();
            assert!(run.out().join(format!("done.{i}")).exists(), "{linux:?}, {}: {why}", case.name);
            let mut found = BTreeMap::new();
            let mut waiting = vec![run.out().join(format!("tree.{i}"))];
            while let Some(dir) = waiting.pop() {
                for e in std::fs::read_dir(&dir).unwrap().map(Result::unwrap) {
                    let path = e.path();
                    if path.is_dir() {
                        waiting.push(path);
                        continue;
                    }
                    let text = match e.file_type().unwrap().is_symlink() {
                        true => std::fs::read_link(&path).unwrap().display().to_string(),
                        false => std::fs::read_to_string(&path).unwrap(),
                    };
                    let inside = path.strip_prefix(run.out().join(format!("tree.{i}"))).unwrap();
                    found.insert(inside.display().to_string(), text.chars().take(20).collect());
                }
            }
            assert_eq!(found, *expected, "{linux:?}, {}", case.name);
            let image = dir.path().join(format!("image.{i}"));
            assert_fsck_clean(&image);
            assert_clean(&Memory::load(&image).unwrap(), case.name);
        }
    }
}

/// The purpose of the withdrawal.
#[test]
fn a_deleted_file_that_was_synced_comes_back_if_its_directory_is_not_synced() {
    let w = world();
    w.synced("journal", "1");
    w.unlink("journal");
    let image = w.dev.image(Loss::AllLost);
    recovered(&image, |vol| assert!(find(vol, "journal").is_some()));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for linux in kernels() {
        image.save(&path).unwrap();
        let run = Kernel::of(linux).run(&path, "ls").expect_ok();
        assert!(run.stdout.contains("journal"), "{}", run.stdout);
    }
    w.fsync_dir("");
    let image = w.dev.image(Loss::AllLost);
    recovered(&image, |vol| assert!(find(vol, "journal").is_none()));
    for linux in kernels() {
        image.save(&path).unwrap();
        let run = Kernel::of(linux).run(&path, "ls").expect_ok();
        assert!(run.stdout.contains("old") && !run.stdout.contains("journal"), "{}", run.stdout);
    }
}

#[test]
fn an_fsync_of_a_directory_costs_what_is_missing_and_no_more() {
    let w = world();
    assert_eq!(w.cost(""), (0, 0, 0), "nothing changed");
    w.synced("journal", "1");
    assert_eq!(w.cost(""), (0, 0, 0), "the file's own fsync has made its name durable");
    w.unlink("journal");
    assert_eq!(w.cost(""), (1, 1, 0), "the journal's inode is withdrawn");
    assert_eq!(w.cost(""), (0, 0, 0), "once");
    w.synced("old.tmp", "1");
    w.rename("old.tmp", "old");
    assert_eq!(w.cost(""), (1, 1, 0), "the inode with its new name");
    w.synced("old.tmp", "2");
    w.rename("old.tmp", "old");
    w.unlink("other");
    let (writes, flushes, checkpoints) = w.cost("");
    assert_eq!(checkpoints, 1, "a name of the checkpoint is gone");
    assert!(writes > 1 && flushes == 2);
    let n = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
    let c = &w.vol.counters;
    assert_eq!((n(&c.fast_dir_fsyncs), n(&c.names_put), n(&c.names_withdrawn)), (5, 1, 1));
}

#[test]
fn what_a_directory_promised_holds_until_the_flush_that_others_wait_for() {
    // The first flush fails: no caller may see success.
    let dev = Arc::new(device::Faulty::new(formatted(64, &Options::modern())));
    let vol = mount(dev.clone());
    let f = new_file(&vol, vol.root(), "f");
    vol.forget(f, 1);
    let n = dev.requests(device::Op::Flush) + 1;
    dev.add(device::Fault::Nth { op: device::Op::Flush, requests: n..n + 1 });
    assert!(vol.fsync(f, false).is_err());
    assert!(vol.fsyncdir(vol.root(), false).is_err());
}
