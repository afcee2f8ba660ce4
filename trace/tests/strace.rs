//! strace's output is read.

use std::collections::BTreeMap;
use std::path::Path;

use trace::call::{Call, Handle, How, Op, Target};
use trace::{Format, TraceError};

use crate::text::{self, Seen, line_of, read, survives_damage};

/// Whole recordings of real programs.
fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/strace").join(name)).unwrap()
}

fn ops(text: &str) -> Vec<Op> {
    let seen = read(text.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    seen.calls.into_iter().map(|c| c.op).collect()
}

/// Lines of process 7, a microsecond apart.
fn of_7(calls: &str) -> String {
    calls.lines().enumerate().map(|(n, call)| format!("7 1.{n:06} {call}\n")).collect()
}

fn path(p: &str) -> Vec<u8> {
    p.as_bytes().to_vec()
}

fn name(op: &Op) -> &'static str {
    match op {
        Op::Read { at: None, .. } => "read",
        Op::Read { .. } => "pread64",
        Op::Write { at: None, .. } => "write",
        Op::Write { .. } => "pwrite64",
        Op::Seek { .. } => "lseek",
        Op::Sync { data_only: false, .. } => "fsync",
        Op::Sync { .. } => "fdatasync",
        Op::Truncate { .. } => "ftruncate",
        Op::Allocate { .. } => "fallocate",
        Op::Unlink { .. } => "unlink",
        Op::RemoveDir { .. } => "rmdir",
        Op::MakeDir { .. } => "mkdir",
        Op::Rename { .. } => "rename",
        Op::Link { .. } => "link",
        Op::Symlink { .. } => "symlink",
        _ => "",
    }
}

fn sums(seen: &Seen) -> BTreeMap<&'static str, (u64, u64)> {
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for call in &seen.calls {
        let bytes = match call.op {
            Op::Read { bytes, .. } | Op::Write { bytes, .. } => bytes,
            _ => 0,
        };
        let sum = sums.entry(name(&call.op)).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    sums.remove("");
    sums
}

#[test]
fn sums_of_programs_equal_those_of_a_line_based_script() {
    let seen = read(&recorded("programs.y.strace.gz"));
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let expected = String::from_utf8(recorded("programs.y.sums")).unwrap();
    let got: String = sums(&seen).into_iter().map(|(name, (n, bytes))| format!("{name} {n} {bytes}\n")).collect();
    assert_eq!(got, expected);
    // Closes of descriptors that are closed already.
    // Closes, by nine processes, of the standard streams that the shell inherited.
    assert_eq!(seen.others["calls on descriptors whose opening was not recorded"], 9, "{:?}", seen.others);
}

#[test]
fn a_handle_is_open_until_its_close_or_the_end_of_its_last_process() {
    for name in ["programs.y.strace.gz", "programs.stderr.strace.gz"] {
        let seen = read(&recorded(name));
        assert!(seen.error.is_none(), "{:?}", seen.error);
        let mut open = BTreeMap::new();
        for call in seen.calls.iter().filter(|c| c.failed.is_none()) {
            let used = match &call.op {
                Op::Open { handle, path, .. } => {
                    assert_eq!(open.insert(*handle, path.clone()), None);
                    *handle
                }
                Op::Close { handle } => {
                    assert!(open.remove(handle).is_some(), "{call:?}");
                    continue;
                }
                Op::Read { handle, .. }
                | Op::Write { handle, .. }
                | Op::Seek { handle, .. }
                | Op::Sync { handle, .. }
                | Op::Allocate { handle, .. }
                | Op::List { handle }
                | Op::Stat { file: Target::Open(handle) }
                | Op::Truncate { file: Target::Open(handle), .. } => *handle,
                _ => continue,
            };
            assert!(open.contains_key(&used), "{call:?}");
        }
        assert!(open.is_empty(), "every process has ended: {open:?}");
    }
}

/// Paths below the programs' directory, with the bytes written to them.
fn written(seen: &Seen) -> BTreeMap<String, u64> {
    let mut open = BTreeMap::new();
    let mut sums = BTreeMap::new();
    for call in seen.calls.iter().filter(|c| c.failed.is_none()) {
        match &call.op {
            Op::Open { handle, path, .. } => _ = open.insert(*handle, String::from_utf8(path.clone()).unwrap()),
            Op::Write { handle, bytes, .. } => *sums.entry(open[handle].clone()).or_default() += bytes,
            _ => {}
        }
    }
    sums
}

#[test]
fn without_process_numbers_and_shown_paths_the_same_programs_are_the_same() {
    let (shown, bare) = (read(&recorded("programs.y.strace.gz")), read(&recorded("programs.stderr.strace.gz")));
    assert!(bare.error.is_none(), "{:?}", bare.error);
    let expected = written(&shown);
    assert_eq!(written(&bare), expected);
    assert_eq!(expected["/tmp/vol/threads"], 80_000);
    assert_eq!(expected["/tmp/vol/sent"], 3_000);
    assert_eq!(expected["/tmp/vol/d/e/b"], 6, "written by cat, whose standard output the shell made it");
    let durable = |seen: &Seen| seen.calls.iter().filter(|c| matches!(c.op, Op::Sync { .. })).count();
    assert_eq!(durable(&bare), durable(&shown));
    assert!(bare.others["messages of strace"] > 10);
    assert_eq!(bare.calls.iter().filter(|c| c.took.is_some()).count(), 0);
}

#[test]
fn descriptors_live_through_dup_fork_and_exec() {
    let text = "\
7 1.0 openat(AT_FDCWD, \"/a\", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 3 <0.000010>
7 1.1 dup(3) = 4
7 1.2 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 8
8 1.3 write(4, \"x\", 1) = 1
8 1.4 execve(\"/bin/x\", [\"x\"], 0x7 /* 1 vars */) = 0
8 1.5 write(3, \"x\", 1) = -1 EBADF (Bad file descriptor)
8 1.6 read(4, \"x\", 10) = 1
7 1.7 close(3) = 0
7 1.8 close(4) = 0
8 1.9 +++ exited with 0 +++
7 2.0 fsync(3) = -1 EBADF (Bad file descriptor)
";
    let handle = Handle(1);
    let seen = read(text.as_bytes());
    let got: Vec<(u32, Op)> = seen.calls.iter().map(|c| (c.thread, c.op.clone())).collect();
    assert_eq!(
        got,
        [
            (7, Op::Open { handle, path: path("/a"), how: How::READ | How::WRITE | How::CREATE }),
            (8, Op::Write { handle, at: None, bytes: 1 }),
            (8, Op::Read { handle, at: None, bytes: 1 }),
            (8, Op::Close { handle }),
        ]
    );
    assert_eq!(seen.calls[0].took, Some(10_000));
    assert_eq!(seen.others["closes of files that stay open elsewhere"], 2);
    assert_eq!(seen.others["calls on descriptors whose opening was not recorded"], 2);
}

#[test]
fn an_interrupted_call_has_its_start_time() {
    let text = "\
7 1.000000 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, exit_signal=0}, 88 <unfinished ...>
8 1.100000 openat(AT_FDCWD, \"/a\", O_WRONLY <unfinished ...>
7 1.200000 <... clone3 resumed>) = 8
7 1.300000 --- SIGUSR1 {si_signo=SIGUSR1} ---
8 1.400000 <... openat resumed>)       = 3 <0.3>
7 1.500000 close(3 <unfinished ...>
8 1.600000 openat(AT_FDCWD, \"/b\", O_WRONLY) = 3
7 1.700000 <... close resumed>) = 0
8 1.800000 write(3, \"\", 5) = 5
7 1.900000 read(0,  <unfinished ...>) = ?
";
    let seen = read(text.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let got: Vec<(u64, u32, Op)> = seen.calls.into_iter().map(|c| (c.time / 100_000_000, c.thread, c.op)).collect();
    assert_eq!(
        got,
        [
            (11, 8, Op::Open { handle: Handle(1), path: path("/a"), how: How::WRITE }),
            (16, 8, Op::Open { handle: Handle(2), path: path("/b"), how: How::WRITE }),
            (15, 7, Op::Close { handle: Handle(1) }),
            (18, 8, Op::Write { handle: Handle(2), at: None, bytes: 5 }),
        ]
    );
    assert_eq!((seen.others["signals"], seen.others["calls that did not return"]), (1, 1));
}

#[test]
fn relative_paths_begin_where_the_process_is() {
    let got = ops(&of_7(
        "getcwd(\"/home/x\", 100) = 8
mkdir(\"a\", 0777) = 0
chdir(\"a/../b\") = 0
openat(AT_FDCWD, \"../c\", O_RDONLY|O_DIRECTORY) = 3
mkdirat(3, \"d\", 0777) = 0
fchdir(3) = 0
rename(\"e\", \"/home/x/f\") = 0
chdir(\"/\") = 0
symlink(\"../t\\303\\244\", \"s\") = 0
renameat2(AT_FDCWD</etc>, \"e\", 3, \"f\", RENAME_NOREPLACE) = 0
unlink(\"/dev/x\") = 0
link(\"/home/x/f\", \"g\") = -1 EEXIST (File exists)
unlinkat(3, \"d\", AT_REMOVEDIR) = 0
newfstatat(3, \"\", {st_mode=S_IFDIR|0755, ...}, AT_EMPTY_PATH) = 0",
    ));
    let how = How::READ | How::DIRECTORY;
    assert_eq!(
        got,
        [
            Op::MakeDir { path: path("/home/x/a") },
            Op::Open { handle: Handle(1), path: path("/home/x/c"), how },
            Op::MakeDir { path: path("/home/x/c/d") },
            Op::Rename { from: path("/home/x/c/e"), to: path("/home/x/f") },
            Op::Symlink { path: path("/s"), target: "../tä".as_bytes().to_vec() },
            Op::Rename { from: path("/etc/e"), to: path("/home/x/c/f") },
            Op::Link { from: path("/home/x/f"), to: path("/g") },
            Op::RemoveDir { path: path("/home/x/c/d") },
            Op::Stat { file: Target::Open(Handle(1)) },
        ]
    );
    assert_eq!(ops(&of_7("mkdir(\"a\", 0777) = 0\ngetcwd(\"/b\", 9) = 3"))[0], Op::MakeDir { path: path("/b/a") });
    let shell = "newfstatat(AT_FDCWD, \"/b\", {st_mode=S_IFDIR|0755, ...}, 0) = 0
newfstatat(AT_FDCWD, \".\", {st_mode=S_IFDIR|0755, ...}, 0) = 0
mkdir(\"a\", 0777) = 0";
    assert_eq!(ops(&of_7(shell))[2], Op::MakeDir { path: path("/b/a") });
    assert_eq!(ops(&of_7("mkdir(\"a\", 0777) = 0"))[0], Op::MakeDir { path: path("/unknown/a") });
}

#[test]
fn every_way_to_move_bytes_is_a_read_or_a_write() {
    let handle = Handle(1);
    let other = Handle(2);
    let got = ops(&of_7(
        "open(\"/a\", O_RDWR|O_APPEND|O_DSYNC) = 3
creat(\"/b\", 0644) = 4
readv(3, [{iov_base=\"a\", iov_len=1}, {iov_base=\"\", iov_len=9}], 2) = 1
pread64(3, \"\"..., 10, 4096) = 10
preadv2(3, [{iov_base=\"\", iov_len=9}], 1, -1, 0) = 2
writev(3, [{iov_base=\"a\", iov_len=1}], 1) = 1
pwritev(3, [{iov_base=\"a\", iov_len=1}], 1, 77) = 1
copy_file_range(3, [5], 4, NULL, 100, 0) = 50
sendfile(4, 3, [7] => [10], 3) = 3
splice(9, NULL, 4, [8], 3, SPLICE_F_MOVE) = 3
sendfile(9, 3, NULL, 3) = 3
lseek(3, -5, SEEK_END) = 95
_llseek(3, 4294967296, [4294967296], SEEK_SET) = 0
ftruncate(4, 10) = 0
truncate(\"/b\", 5) = 0
fallocate(4, FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE, 0, 4096) = 0
fallocate(4, 0, 4096, 8192) = 0
syncfs(3) = 0
sync() = 0
close_range(3, 4294967295, 0) = 0",
    ));
    assert_eq!(
        got,
        [
            Op::Open { handle, path: path("/a"), how: How::READ | How::WRITE | How::APPEND | How::DATA_SYNC },
            Op::Open { handle: other, path: path("/b"), how: How::WRITE | How::CREATE | How::TRUNCATE },
            Op::Read { handle, at: None, bytes: 1 },
            Op::Read { handle, at: Some(4096), bytes: 10 },
            Op::Read { handle, at: None, bytes: 2 },
            Op::Write { handle, at: None, bytes: 1 },
            Op::Write { handle, at: Some(77), bytes: 1 },
            Op::Read { handle, at: Some(5), bytes: 50 },
            Op::Write { handle: other, at: None, bytes: 50 },
            Op::Read { handle, at: Some(7), bytes: 3 },
            Op::Write { handle: other, at: None, bytes: 3 },
            Op::Write { handle: other, at: Some(8), bytes: 3 },
            Op::Read { handle, at: None, bytes: 3 },
            Op::Seek { handle, to: Some(95) },
            Op::Seek { handle, to: Some(1 << 32) },
            Op::Truncate { file: Target::Open(other), length: 10 },
            Op::Truncate { file: Target::Path(path("/b")), length: 5 },
            Op::Allocate { handle: other, at: 0, bytes: 4096, punch: true, keep_size: true },
            Op::Allocate { handle: other, at: 4096, bytes: 8192, punch: false, keep_size: false },
            Op::SyncAll,
            Op::SyncAll,
            Op::Close { handle },
            Op::Close { handle: other },
        ]
    );
}

#[test]
fn calls_on_other_objects_are_counted() {
    let seen = read(
        of_7(
            "pipe2([3, 4], O_CLOEXEC) = 0
socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0) = 5
bind(5, {sa_family=AF_UNIX, sun_path=\"/run/s\"}, 110) = 0
openat(AT_FDCWD, \"/dev/null\", O_RDONLY) = 6
read(3, \"\", 1) = 1
write(5, \"\", 1) = 1
read(6, \"\", 1) = 1
unlink(\"/run/s\") = 0
openat(AT_FDCWD, \"/x\", O_RDWR) = 7
fstat(7, {st_mode=S_IFIFO|0600, st_size=0, ...}) = 0
read(7, \"\", 1) = 1
close(7) = 0
read(99, \"\", 1) = 1
openat(AT_FDCWD, \"/y\", O_RDWR|O_PATH) = 7
brk(NULL) = 0x55d6eb50d000
mmap(NULL, 46107, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f24d1d2e000",
        )
        .as_bytes(),
    );
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let x = Op::Open { handle: Handle(1), path: path("/x"), how: How::READ | How::WRITE };
    assert_eq!(seen.calls.iter().map(|c| c.op.clone()).collect::<Vec<_>>(), [x, Op::Close { handle: Handle(1) }]);
    let others: Vec<(&str, u64)> = seen.others.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    assert_eq!(
        others,
        [
            ("bind", 1),
            ("brk", 1),
            ("calls on descriptors whose opening was not recorded", 1),
            ("calls on sockets, pipes and devices", 6),
            ("mmap of files", 1),
            ("opens of paths alone", 1),
            ("paths of devices and of the kernel", 2),
            ("pipe2", 1),
            ("socket", 1),
        ]
    );
}

#[test]
fn listing_a_directory_is_one_call_and_a_nameless_file_is_made_and_removed() {
    let got = ops(&of_7(
        "openat(AT_FDCWD, \"/d\", O_RDONLY|O_DIRECTORY) = 3
getdents64(3, 0x1 /* 99 entries */, 32768) = 3000
getdents64(3, 0x1 /* 9 entries */, 32768) = 300
getdents64(3, 0x1 /* 0 entries */, 32768) = 0
getdents64(3, 0x1 /* 99 entries */, 32768) = 3000
openat(AT_FDCWD, \"/d\", O_RDWR|O_TMPFILE, 0600) = 4",
    ));
    let how = How::READ | How::WRITE | How::CREATE | How::EXCLUSIVE;
    assert_eq!(
        got[1..],
        [
            Op::List { handle: Handle(1) },
            Op::List { handle: Handle(1) },
            Op::Open { handle: Handle(2), path: path("/d/nameless-2"), how },
            Op::Unlink { path: path("/d/nameless-2") },
        ]
    );
}

#[test]
fn failures_have_their_names_and_change_nothing() {
    let seen = read(
        of_7(
            "openat(AT_FDCWD, \"/a\", O_RDONLY) = -1 ENOENT (No such file or directory)
openat(AT_FDCWD, \"/b\", O_RDONLY) = 3
read(3, 0x7f, 5) = -1 EIO (Input/output error)
chdir(\"/none\") = -1 ENOENT (No such file or directory)
openat(AT_FDCWD, NULL, O_RDONLY) = -1 EFAULT (Bad address)
ftruncate(3, -1) = -1 EINVAL (Invalid argument)
read(3, 0x7f, 5) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)
mkdir(\"c\", 0777) = 0",
        )
        .as_bytes(),
    );
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let failed: Vec<Option<&str>> = seen.calls.iter().map(|c: &Call| c.failed.as_deref()).collect();
    assert_eq!(failed, [Some("ENOENT"), None, Some("EIO"), Some("EINVAL"), None]);
    assert_eq!(seen.calls[4].op, Op::MakeDir { path: path("/unknown/c") });
}

#[test]
fn times_of_day_go_on_after_midnight() {
    let text = "23:59:59.5 sync() = 0\n00:00:01.0 sync() = 0\n00:00:00.9 sync() = 0\n";
    let times: Vec<u64> = read(text.as_bytes()).calls.iter().map(|c| c.time / 100_000_000).collect();
    assert_eq!(times, [863_995, 864_010, 864_009]);
}

#[test]
fn times_since_the_line_before_are_summed() {
    let seen = read(b"7         0.000000 sync() = 0\n7         0.500000 sync() = 0\n7    100000.250000 sync() = 0\n");
    let times: Vec<u64> = seen.calls.iter().map(|c| c.time / 1_000_000).collect();
    assert_eq!(times, [0, 500, 100_000_750]);

    // A real run (`strace -f -r`): its last line's time is the sum of all.
    let text = text::plain(&recorded("relative.strace.gz"));
    let sum: f64 = String::from_utf8(text.clone())
        .unwrap()
        .lines()
        .map(|l| l.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap())
        .sum();
    let seen = read(&text);
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let last = seen.calls.iter().map(|c| c.time).max().unwrap();
    assert!(last as f64 / 1e9 > 0.6 && last as f64 / 1e9 <= sum + 1e-6, "{last} of {sum} s: it slept three times");

    // Another one with both (`-ttt -r`): both readings agree.
    let both = text::plain(&recorded("both.strace.gz"));
    let alone: String = String::from_utf8(both.clone())
        .unwrap()
        .lines()
        .map(|line| {
            let (pid, rest) = line.split_once(' ').unwrap();
            let (since, call) = rest.split_once("(+").unwrap().1.split_once(')').unwrap();
            format!("{pid} {}{call}\n", since)
        })
        .collect();
    let (both, alone) = (read(&both), read(alone.as_bytes()));
    assert!(both.error.is_none() && alone.error.is_none(), "{:?} {:?}", both.error, alone.error);
    assert!(both.calls.len() > 100);
    let (first, zero) = (both.calls[0].time, alone.calls[0].time);
    for (a, b) in both.calls.iter().zip(&alone.calls) {
        assert_eq!(a.op, b.op);
        let (a, b) = (a.time - first, b.time - zero);
        // strace reads the two times one after the other.
        assert!(a.abs_diff(b) < 5_000_000, "{a} and {b}");
    }
    assert_eq!((both.calls.len(), &both.others), (alone.calls.len(), &alone.others));
}

#[test]
fn requests_of_io_submit_are_reads_and_writes() {
    let text = of_7(
        "openat(AT_FDCWD, \"/a\", O_RDWR) = 3\n\
         io_submit(0x7f0c, 4, [{aio_data=0, aio_lio_opcode=IOCB_CMD_PWRITE, aio_fildes=3, aio_buf=\"a},{\"..., aio_nbytes=4096, \
         aio_offset=8192}, {aio_data=0, aio_lio_opcode=IOCB_CMD_PREADV, aio_reqprio=1, aio_fildes=3</a>, \
         aio_buf=[{iov_base=0x1, iov_len=100}, {iov_base=0x2, iov_len=50}], aio_offset=0}, {aio_data=0, \
         aio_lio_opcode=IOCB_CMD_FDSYNC, aio_fildes=3}, {aio_data=0, aio_lio_opcode=IOCB_CMD_FSYNC, aio_fildes=3}]) = 3\n\
         io_submit(0x7f0c, 40, [{aio_data=0, aio_lio_opcode=IOCB_CMD_FSYNC, aio_fildes=3}, ...]) = 40\n\
         io_submit(0x7f0c, 1, [{aio_data=0, aio_lio_opcode=IOCB_CMD_FSYNC, aio_fildes=3}]) = -1 EAGAIN (again)\n\
         io_uring_enter(6, 4, 0, 0, NULL, 8) = 4\n\
         io_uring_enter(6, 0, 1, IORING_ENTER_GETEVENTS, NULL, 8) = 0\n\
         mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3</a>, 0) = 0x7f1000\n\
         mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3</a>, 0) = 0x7f1000\n\
         mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE, 3</a>, 0) = 0x7f1000\n\
         mmap(NULL, 144, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_POPULATE, 9<anon_inode:[io_uring]>, 0) = 0x7f1000\n\
         msync(0x7f1000, 4096, MS_SYNC) = 0",
    );
    let seen = read(text.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let handle = Handle(1);
    let ops: Vec<&Op> = seen.calls.iter().map(|c| &c.op).collect();
    assert_eq!(
        ops[1..],
        [
            &Op::Write { handle, at: Some(8192), bytes: 4096 },
            &Op::Read { handle, at: Some(0), bytes: 150 },
            &Op::Sync { handle, data_only: true },
            &Op::Sync { handle, data_only: false },
        ]
    );
    assert_eq!(
        trace::missing_details(&seen.others),
        [
            "left out: 1 files mapped to be written: what was written there is not in the recording",
            "left out: 1 io_uring_enter calls: what they asked for is not in the recording",
            "left out: 1 msync calls: what they wrote is not in the recording",
            "left out: 39 requests of io_submit: what they asked for is not in the recording",
        ]
    );
    assert_eq!((seen.others["mmap of files"], seen.others["io_uring_enter"], seen.others["io_submit"]), (3, 1, 1));
}

#[test]
fn libaio_requests_of_fio_equal_its_own_summary() {
    let seen = read(&text::plain(&recorded("libaio.strace.gz")));
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let of_file = |path: &[u8]| path.ends_with(b"/fio.dat");
    let handles: Vec<Handle> = (seen.calls.iter())
        .filter_map(|c| match &c.op {
            Op::Open { handle, path, .. } if of_file(path) => Some(*handle),
            _ => None,
        })
        .collect();
    let placed = |c: &&Call| match c.op {
        Op::Read { handle, at: Some(_), .. } | Op::Write { handle, at: Some(_), .. } => handles.contains(&handle),
        _ => false,
    };
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for call in seen.calls.iter().filter(placed) {
        let (Op::Read { bytes, .. } | Op::Write { bytes, .. }) = call.op else { continue };
        let sum = sums.entry(name(&call.op)).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    // From fio's own summary in fixtures/strace/README.md.
    assert_eq!(sums, BTreeMap::from([("pread64", (29, 118_784)), ("pwrite64", (35, 143_360))]));
    assert!(trace::missing_details(&seen.others).is_empty());
}

#[test]
fn every_error_names_its_line() {
    let good = of_7("openat(AT_FDCWD, \"/a\", O_RDWR) = 3\nread(3, \"\", 1) = 1");
    for (bad, what) in [
        ("hello", "time"),
        ("7 1.0 close(3)", "without end"),
        ("7 1.0 write(3, \"abc, 3) = 3", "without end"),
        ("7 1.0 mkdir(7, 0777) = 0", "no sense"),
        ("7 1.0 read(x, \"\", 1) = 1", "no sense"),
        ("7 1.0 pread64(3, \"\", 1) = 1", "no sense"),
        ("7 1.0 --- SIG", "signal"),
        ("7 1.0 +++ superseded by execve in pid x +++", "process"),
        ("7 1.0 pipe(3) = 0", "no sense"),
        ("7 1.0 io_submit(0x1, 1, [{aio_fildes=3}]) = 1", "no sense"),
        ("7 x.0 sync() = 0", "time"),
    ] {
        let seen = read(format!("{good}{bad}\n{good}").as_bytes());
        assert_eq!((seen.calls.len(), line_of(&seen)), (2, 3), "{bad}");
        let text = seen.error.unwrap().to_string();
        assert!(text.contains(what) && text.contains("strace"), "{text}");
    }
    let crossed = format!("{good}7 1.1 read(3,  <unfinished ...>\n7 1.2 <... write resumed>\"\", 1) = 1\n");
    assert_eq!(line_of(&read(crossed.as_bytes())), 4);
    let cut = read(good.trim_end().as_bytes());
    assert!(cut.error.as_ref().unwrap().is_cut_short() && cut.calls.len() == 1 && line_of(&cut) == 2);
    assert!(matches!(read(b"7 close(3) = 0\n").error, Some(TraceError::Unknown { .. })), "without times");
}

#[test]
fn stack_traces_pointers_numbers_and_commands_do_not_end_the_recording() {
    let stacks = "\
100 1700000000.000100 openat(AT_FDCWD, \"/data/a\", O_RDWR|O_CREAT, 0600) = 3 <0.0001>
 > /lib/libc.so.6(open64+0x6) [0xf8000]
100 1700000000.000200 write(3, \"x\"..., 4096) = 4096 <0.0001>
 > /lib/libc.so.6(write+0x6) [0xf9000]
 > [unknown] [0x1]
100 1700000000.000300 fsync(3) = 0 <0.0001>
";
    let seen = read(stacks.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    assert_eq!(seen.others["lines of stack traces"], 3);
    let plain: String = stacks.lines().filter(|l| l.starts_with("100")).map(|l| format!("{l}\n")).collect();
    let expected = read(plain.as_bytes()).calls;
    assert_eq!((seen.calls.len(), &seen.calls), (3, &expected));
    // `-Y`, `-n`, `-i`.
    let more = plain
        .replace("100 17", "100<my app> 17")
        .replace(" openat", " [ 257] [00007f6e2a1b3c4d] openat")
        .replace(" fsync", " [  74] [????????????????] fsync");
    let seen = read(more.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    assert_eq!(seen.calls, expected);
}

#[test]
fn descriptors_that_strace_left_out_are_unknown() {
    let text = of_7(
        "openat(AT_FDCWD, \"/a\", O_RDONLY) = 4\npipe2([...], 0) = 0\nread(5, \"\"..., 9) = 9\nread(4, \"\"..., 9) = 9",
    );
    let seen = read(text.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    assert_eq!(seen.calls.len(), 2);
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    text::drivers::strace(b"x");
    for name in ["programs.y.strace.gz", "programs.stderr.strace.gz", "relative.strace.gz", "libaio.strace.gz"] {
        // The lines between `dd` and the end of the threads include all kinds.
        let text = text::plain(&recorded(name));
        let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
        let mut some: Vec<u8> = lines[..1].concat();
        for chunk in lines.chunks(200) {
            some.extend_from_slice(&chunk[..2].concat());
        }
        survives_damage(&some);
        survives_damage(&lines[lines.len() - 20..].concat());
    }
    let seen = read(b"strace: Process 9 attached\n9 1.0 sync() = 0\n");
    assert_eq!(seen.calls.len(), 1);
    let trace::Opened::Calls(calls) = text::open(b"9 1.0 sync() = 0\n").unwrap() else { panic!("no calls") };
    assert_eq!(calls.format(), Format::Strace);
}
