//! Can a mount be exported? NFS identifies a file by a handle (inode number and generation) and expects to find it
//! again after the server has lost all other state.
//!
//! Perl creates and opens the handles: every Debian has it, and it can make any system call.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use f2fs::mkfs::Options;

use crate::rig::again;
use crate::rig::*;

/// Numbers of `name_to_handle_at` and `open_by_handle_at`.
const CALLS: Option<(u32, u32)> = match () {
    () if cfg!(target_arch = "x86_64") => Some((303, 304)),
    () if cfg!(target_arch = "aarch64") => Some((264, 265)),
    () => None,
};
const ESTALE: i32 = 116;

const TAKE: &str = r#"
    my ($call, $path) = @ARGV;
    my ($handle, $mount) = (pack("Ii", 128, 0) . "\0" x 128, pack("i", 0));
    syscall($call + 0, -100, $path, $handle, $mount, 0) == 0 or exit $!;
    print substr($handle, 0, 8 + unpack("I", $handle));
"#;
const OPEN: &str = r#"
    my ($call, $root) = @ARGV;
    local $/;
    my $handle = <STDIN>;
    sysopen(my $mount, $root, 0) or exit $!;
    my $fd = syscall($call + 0, fileno($mount), $handle, 0);
    exit $! if $fd < 0;
    exec("/bin/sh", "-c", "if test -d /dev/fd/$fd; then ls -i /dev/fd/$fd/; else cat /dev/fd/$fd; fi") or exit $! if $^F = 255;
"#;

fn perl(program: &str, call: u32, path: &Path, input: &[u8]) -> Output {
    use std::io::Write;
    use std::process::Stdio;
    let mut command = Command::new("perl");
    command.arg("-e").arg(program).arg(call.to_string()).arg(path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("perl runs");
    child.stdin.take().expect("a pipe").write_all(input).expect("read by perl");
    child.wait_with_output().expect("perl ends")
}

fn take(path: &Path) -> Vec<u8> {
    let out = perl(TAKE, CALLS.expect("known").0, path, b"");
    assert!(out.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// The contents of the handle's file, or the error number.
fn open(root: &Path, handle: &[u8]) -> Result<String, i32> {
    let out = perl(OPEN, CALLS.expect("known").1, root, handle);
    match out.status.code() {
        Some(0) => Ok(String::from_utf8(out.stdout).expect("text")),
        code => Err(code.expect("ended by itself")),
    }
}

#[test]
fn handles_outlive_every_cache_and_die_with_their_file() {
    if CALLS.is_none() || !rustix::process::geteuid().is_root() {
        return testlog::missing("root, or the numbers of the system calls on this architecture");
    }
    let mount = OnFuse::new(64, &Options::default());
    fs::create_dir_all(mount.path("a/b")).expect("directories");
    fs::write(mount.path("a/b/file"), "text\n").expect("written");
    fs::write(mount.path("a/gone"), "gone\n").expect("written");
    let [dir, file, gone] = ["a/b", "a/b/file", "a/gone"].map(|name| take(&mount.path(name)));
    assert_eq!(open(&mount.root, &file).as_deref(), Ok("text\n"));

    // A new mount: neither the kernel nor the volume has anything cached.
    let mount = again(mount);
    assert_eq!(open(&mount.root, &file).as_deref(), Ok("text\n"));
    let mount = again(mount);
    let listed = open(&mount.root, &dir).expect("a directory");
    assert!(listed.ends_with(" file\n"), "{listed:?}");
    assert_eq!(open(&mount.root, &gone).as_deref(), Ok("gone\n"));

    // While the file is open its handle works, afterwards it is stale.
    fs::remove_file(mount.path("a/gone")).expect("removed");
    let mount = again(mount);
    assert_eq!(open(&mount.root, &gone), Err(ESTALE));

    // The reused number has another generation.
    let number = u64::from(u32::from_le_bytes(gone[8 + 4..8 + 8].try_into().expect("4 bytes")));
    let number = number | u64::from(u32::from_le_bytes(gone[8..8 + 4].try_into().expect("4 bytes"))) << 32;
    let reused = (0..20_000).any(|i| {
        let path = mount.path(&format!("next-{i}"));
        fs::write(&path, "next\n").expect("written");
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).expect("stat")) == number
    });
    assert!(reused, "inode number {number} was not used again");
    let mount = again(mount);
    assert_eq!(open(&mount.root, &gone), Err(ESTALE));
    assert_eq!(open(&mount.root, &file).as_deref(), Ok("text\n"));
    mount.end();
}
