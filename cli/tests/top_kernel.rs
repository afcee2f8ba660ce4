//! `joulefs top` with known requests on a real kernel that has tracepoints (`scripts/install-tools kernel`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use judges::oracle::kernel::{Kernel, KernelRun};
use judges::oracle::linux::Linux;
use judges::oracle::tools::locate;
use serde_json::Value;

/// The start of every script: functions that start and end `top`, and a kernel that writes dirty pages after one
/// second.
const WORDS: &str = r#"
T=/sys/kernel/tracing
mount -t tracefs t $T
echo 100 >/proc/sys/vm/dirty_expire_centisecs
echo 50 >/proc/sys/vm/dirty_writeback_centisecs
for name in left_a left_b left_c; do cp "$(command -v dd)" /tmp/$name; done
# NAME OPTIONS...: starts it, and returns when it listens. Its lines are in $OUT/NAME, its errors in $OUT/NAME.err.
listen() {
    name=$1
    shift
    joulefs top --json --delay 0.5 "$@" >$OUT/$name 2>$OUT/$name.err &
    pid=$!
    echo $pid >/tmp/$name.pid
    until [ "$(cat $T/instances/joulefs-$pid/events/block/block_rq_issue/enable 2>/dev/null)" = 1 ]; do sleep 0.05; done
    sleep 0.3
}
# NAME: ends it by a signal, and waits for its last line.
end() {
    kill -TERM $(cat /tmp/$1.pid)
    wait $(cat /tmp/$1.pid)
    echo $? >$OUT/$1.code
}
# What the disk says it was given: all requests, in one number. It counts a flush that comes alone as a write of nothing, too.
echo 'nr_sector == 0' >$T/events/block/block_bio_queue/filter
echo 1 >$T/events/block/block_bio_queue/enable
given() {
    alone=$(grep -c "block_bio_queue: $(tr : , </sys/block/$DISK/dev) F" $T/trace) || true
    awk -v alone=$alone '{ print $1 + $5 + $12 + $16 - alone }' /sys/block/$DISK/stat
}
"#;

/// A disk with a file system, or with none.
fn made(dir: &Path, kind: &str) -> PathBuf {
    let image = dir.join("v.img");
    fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
    let (program, package, options): (_, _, &[&str]) = match kind {
        "ext4" => ("mkfs.ext4", "e2fsprogs", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
        "f2fs" => ("mkfs.f2fs", "f2fs-tools", &["-q"]),
        "xfs" => ("mkfs.xfs", "xfsprogs", &["-q"]),
        "btrfs" => (concat!(env!("CARGO_MANIFEST_DIR"), "/../judges/mkfs.btrfs"), "btrfs-progs", &[]),
        _ => return image,
    };
    let ran = Command::new(locate(program, package)).args(options).arg(&image).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    image
}

/// The script creates what it needs.
const NONE: &str = "none";

/// Runs a script on a mounted file system of this kind; `None` without such a kernel.
fn run(kind: &str, script: &str) -> Option<KernelRun> {
    let linux = match Linux::complete() {
        Ok(linux) => linux,
        Err(why) => {
            testlog::missing(why);
            return None;
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let image = made(dir.path(), kind);
    let kernel = if kind == NONE { Kernel::of(linux).without_mount() } else { Kernel::of(linux).fs_type(kind) };
    let kernel =
        kernel.memory_mib(768).timeout(Duration::from_secs(240)).program("joulefs", env!("CARGO_BIN_EXE_joulefs"));
    Some(kernel.run(&image, &format!("{WORDS}\n{script}")).expect_ok())
}

/// The same on several kinds at once: the guests mostly wait.
fn run_on<'k>(kinds: &[&'k str], script: &str) -> Vec<(&'k str, Option<KernelRun>)> {
    std::thread::scope(|scope| {
        let begin = |kind: &&'k str| {
            let kind = *kind;
            (kind, scope.spawn(move || run(kind, script)))
        };
        let running: Vec<_> = kinds.iter().map(begin).collect();
        running.into_iter().map(|(kind, running)| (kind, running.join().unwrap())).collect()
    })
}

fn read(run: &KernelRun, name: &str) -> String {
    fs::read_to_string(run.out().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn lines(run: &KernelRun, name: &str) -> Vec<Value> {
    let said = read(run, name);
    said.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{name}: {e}: {l}"))).collect()
}

/// The last line: no event was lost, late or unknown, and it ended properly.
#[track_caller]
fn last(run: &KernelRun, name: &str) -> Value {
    let last =
        lines(run, name).pop().unwrap_or_else(|| panic!("nothing of {name}: {}", read(run, &format!("{name}.err"))));
    assert_eq!(last["ended"], true);
    for (what, n) in last["notes"].as_object().unwrap() {
        assert!(n == 0 || what == "requests of other disks", "{n} {what}");
    }
    last
}

/// The disk's name in the guest kernel.
fn name() -> &'static str {
    Linux::complete().expect("the kernel that ran").disks()[0]
}

/// The account of the disk.
#[track_caller]
fn disk(line: &Value) -> &Value {
    let disks = line["disks"].as_array().unwrap();
    disks.iter().find(|d| d["name"] == name()).unwrap_or_else(|| panic!("no {}: {disks:#?}", name()))
}

fn number(run: &KernelRun, name: &str) -> u64 {
    read(run, name).trim().parse().unwrap()
}

/// The result of replaying the recorded requests on the same disk.
fn replayed(run: &KernelRun, name: &str, err: &str) -> u64 {
    let said = read(run, err);
    let line = said.lines().find(|l| l.contains(&format!("{}: joulefs trace replay", self::name()))).unwrap();
    let words: Vec<&str> = line.split_whitespace().skip_while(|w| *w != "trace").collect();
    let file = run.out().join(name).display().to_string();
    let words: Vec<&str> = words.iter().map(|w| if w.ends_with(name) { &*file } else { w }).collect();
    let ran = Command::new(env!("CARGO_BIN_EXE_joulefs")).args(words).arg("--json").output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice::<Value>(&ran.stdout).unwrap()["total_pj"].as_u64().unwrap()
}

#[test]
fn every_request_the_disk_is_given_is_counted_once_and_costs_what_a_replay_says() {
    let script = r#"
        # What the disk was asked before somebody listened must not be counted: it has to rest.
        for try in 1 2 3 4 5 6 7 8 9; do
            sync; sleep 1
            before=$(given)
            listen first --record $OUT/requests.txt
            [ $before = $(given) ] && break
            end first
        done
        echo $before >$OUT/before
        /tmp/left_a if=/dev/zero of=synced bs=4k count=200 oflag=dsync 2>/dev/null
        /tmp/left_b if=/dev/urandom of=left bs=64k count=64 2>/dev/null
        listen second
        mkdir many; for n in 1 2 3 4 5 6 7 8 9; do echo $n >many/$n; done
        sleep 3
        sync
        echo 3 >/proc/sys/vm/drop_caches
        cat left synced many/* >/dev/null
        rm -r many left; sync; fstrim . || true
        sleep 1
        end second
        ls $T/instances >$OUT/one-left
        sleep 0.5
        given >$OUT/after
        end first
        ls $T/instances >$OUT/none-left
    "#;
    for (kind, run) in run_on(&["ext4", "f2fs"], script) {
        let Some(run) = run else { return };
        let (first, second) = (last(&run, "first"), last(&run, "second"));
        let given = number(&run, "after") - number(&run, "before");
        assert!(given > 250, "{kind}: {given}");
        assert_eq!(disk(&first)["requests"].as_u64(), Some(given), "{kind}: {first:#}");
        // Two concurrent instances do not disturb each other.
        assert!(disk(&second)["requests"].as_u64().unwrap() < given);
        assert_eq!(disk(&first)["replay_pj"].as_u64(), Some(replayed(&run, "requests.txt", "first.err")), "{kind}");
        let of_processes: u64 =
            disk(&first)["processes"].as_array().unwrap().iter().map(|p| p["pj"].as_u64().unwrap()).sum();
        assert_eq!(disk(&first)["pj"].as_u64(), Some(of_processes), "{kind}");
        assert_eq!((number(&run, "first.code"), number(&run, "second.code")), (0, 0));
        assert_eq!(read(&run, "one-left").lines().count(), 2, "{}", read(&run, "one-left"));
        assert_eq!(read(&run, "none-left"), "");
    }
}

#[test]
fn what_a_killed_one_leaves_is_removed_by_the_next_and_nothing_else_is() {
    let script = r#"
        mkdir $T/instances/joulefs-of-somebody
        listen alive
        listen killed
        kill -9 $(cat /tmp/killed.pid); wait $(cat /tmp/killed.pid) || true
        ls $T/instances >$OUT/killed-left
        joulefs top --once --delay 0.2 >/dev/null
        ls $T/instances >$OUT/next-left
        echo > written; sync; sleep 1
        end alive
        ls $T/instances >$OUT/end-left
    "#;
    let Some(run) = run("ext4", script) else { return };
    assert_eq!(read(&run, "killed-left").lines().count(), 5);
    assert_eq!(read(&run, "next-left").lines().count(), 3, "{}", read(&run, "next-left"));
    assert_eq!(read(&run, "end-left"), "joulefs-of-somebody\n");
    assert!(disk(&last(&run, "alive"))["requests"].as_u64().unwrap() > 0);
}

/// Bytes written back by file and dirtiers; "" for bytes that belong to no file.
fn written_back(line: &Value) -> BTreeMap<(String, Vec<String>), u64> {
    let mut out = BTreeMap::new();
    for row in disk(line)["processes"].as_array().unwrap().iter().filter(|r| r["process"] == "<writeback>") {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let mut by: Vec<String> = row["dirtied_by"].as_array().into_iter().flatten().map(text).collect();
        by.sort();
        *out.entry((text(&row["file"]), by)).or_default() += row["bytes_written"].as_u64().unwrap();
    }
    out
}

/// The bytes of all rows of a file, by path or number, which may name only the processes in `by`; and the bytes by
/// process.
fn of_file(found: &BTreeMap<(String, Vec<String>), u64>, names: [&str; 2], by: &[&str]) -> (u64, Vec<u64>) {
    let rows: Vec<_> = found.iter().filter(|((file, _), _)| names.contains(&file.as_str())).collect();
    for ((file, named), _) in &rows {
        assert!(named.iter().all(|n| by.contains(&n.as_str())), "{file} by {named:?}, not by {by:?}: {found:#?}");
    }
    let naming = |who: &&str| rows.iter().filter(|((_, by), _)| by.iter().any(|n| n == who)).map(|(_, n)| **n).sum();
    (rows.iter().map(|(_, n)| **n).sum(), by.iter().map(naming).collect())
}

/// Writers of known sizes; one of them still has its file open during writeback.
const WRITERS: &str = r#"
    touch one both held; sync; sleep 2
    listen top --writeback HOW
    /tmp/left_a if=/dev/urandom of=one conv=notrunc bs=64k count=32 2>/dev/null
    /tmp/left_a if=/dev/urandom of=both conv=notrunc bs=64k count=16 2>/dev/null
    /tmp/left_b if=/dev/urandom of=both conv=notrunc bs=64k count=16 seek=16 2>/dev/null
    { head -c 1048576 /dev/urandom; sleep 4; } | /tmp/left_c of=held conv=notrunc bs=4k iflag=fullblock 2>/dev/null &
    held=$!
    sleep 3.5
    ls -i one both held >$OUT/inodes
    wait $held
    end top
    cat $OUT/top >&2
"#;

#[test]
fn pages_written_back_are_of_their_file_and_of_who_made_them_dirty() {
    for (kind, run) in run_on(&["ext4", "f2fs", "xfs", "btrfs"], &WRITERS.replace("HOW", "pages")) {
        let Some(run) = run else { return };
        let inodes = read(&run, "inodes");
        let inode = |name: &str| {
            let line = inodes.lines().find(|l| l.ends_with(&format!(" {name}"))).unwrap();
            format!("inode {} of {}", line.split_whitespace().next().unwrap(), self::name())
        };
        let found = written_back(&last(&run, "top"));
        let of = |name: &str, by: &[&str]| {
            let (path, number) = (format!("/tmp/m/{name}"), inode(name));
            // On these the kernel reports the path.
            assert!(!matches!(kind, "ext4" | "f2fs") || found.keys().all(|(file, _)| *file != number), "{found:#?}");
            of_file(&found, [&path, &number], by)
        };
        let (one, both, held) = (of("one", &["left_a"]), of("both", &["left_a", "left_b"]), of("held", &["left_c"]));
        if kind == "btrfs" {
            // On Btrfs checksum threads make these requests, for unknown inodes. What is attributed to an inode is
            // correct.
            assert!(
                found.iter().filter(|((file, _), _)| file.is_empty()).map(|(_, n)| n).sum::<u64>() > 4 << 20,
                "{found:#?}"
            );
            continue;
        }
        assert_eq!(one, (2 << 20, vec![2 << 20]), "{kind}: {found:#?}");
        assert_eq!(held, (1 << 20, vec![1 << 20]), "{kind}: {found:#?}");
        // Each process has half of it, unless it was written before the other process started.
        assert!(both.0 == 2 << 20 && both.1.iter().all(|n| *n >= 1 << 20), "{kind}: {both:?} {found:#?}");
        assert!(found.keys().any(|(file, _)| file == "/tmp/m/held"), "{kind}: who holds it tells the path: {found:#?}");
        let nobody: u64 = found.iter().filter(|((_, by), _)| by.is_empty()).map(|(_, n)| n).sum();
        assert!(nobody < 1 << 20, "{kind}: {found:#?}");
    }
}

#[test]
fn a_file_on_a_partition_is_found_there() {
    // Two partitions of 100 MiB, written by hand.
    let script = r#"
        perl -e 'print "\0" x 446; print pack("CCCCCCCCVV", 0, 0, 0, 0, 0x83, 0, 0, 0, $_, 204800) for 2048, 206848; print "\0" x 32, "\x55\xaa"' |
            dd of=/dev/$DISK conv=notrunc 2>/dev/null
        blockdev --rereadpt /dev/$DISK
        mknod /tmp/one b $(tr : ' ' </sys/block/$DISK/${DISK}1/dev)
        mknod /tmp/two b $(tr : ' ' </sys/block/$DISK/${DISK}2/dev)
        for p in one two; do
            mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 /tmp/$p
            mkdir /tmp/on-$p
            mount /tmp/$p /tmp/on-$p
        done
        sync; sleep 1
        listen top
        /tmp/left_a if=/dev/urandom of=/tmp/on-one/a bs=64k count=4 2>/dev/null
        sleep 3
        /tmp/left_b if=/dev/urandom of=/tmp/on-two/b bs=64k count=8 2>/dev/null
        sleep 3
        end top
        umount /tmp/on-one /tmp/on-two
    "#;
    let Some(run) = run(NONE, script) else { return };
    let found = written_back(&last(&run, "top"));
    let of = |file: &str, by: &str| found.get(&(file.to_owned(), vec![by.to_owned()])).copied();
    // Both have the same inode number.
    let both = (of("/tmp/on-one/a", "left_a"), of("/tmp/on-two/b", "left_b"));
    assert_eq!(both, (Some(4 << 16), Some(8 << 16)), "{found:#?}");
}

#[test]
fn who_dirtied_what_can_be_told_by_fewer_events_or_not_at_all() {
    let [files, off] = ["files", "off"].map(|how| WRITERS.replace("HOW", how));
    let (files, off) = std::thread::scope(|scope| {
        let off = scope.spawn(|| run("ext4", &off));
        (run("ext4", &files), off.join().unwrap())
    });
    let (Some(files), Some(off)) = (files, off) else { return };
    let found = written_back(&last(&files, "top"));
    let of = |name: &str, by: &[&str]| of_file(&found, [&format!("/tmp/m/{name}"), "-"], by).0;
    // In either order.
    let all = (of("one", &["left_a"]), of("both", &["left_a", "left_b"]), of("held", &["left_c"]));
    assert_eq!(all, (2 << 20, 2 << 20, 1 << 20), "{found:#?}");
    assert!(found.keys().filter(|(file, _)| file == "/tmp/m/both").all(|(_, by)| by.len() == 1), "{found:#?}");
    let found = written_back(&last(&off, "top"));
    assert_eq!(found.keys().map(|(file, _)| file.as_str()).collect::<Vec<_>>(), [""], "{found:#?}");
    assert!(found.values().sum::<u64>() >= 5 << 20);
}
