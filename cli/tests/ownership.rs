//! Who owns a volume: the user who runs mkfs, or the user set by a mount option; and what an ordinary user may do then.
//!
//! The ordinary user is `nobody`, whom `fusermount3` finds in the list of users. Only root can switch to that user.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::room::Room;
use crate::theirs::assert_clean;
use crate::typed::{done, misused, refused};

const NOBODY: u32 = 65534;
/// For shell lines: the program is in their working directory.
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin:.";

/// Where a shell line runs: in a directory, on this machine directly or in a mount namespace.
trait Place {
    fn room(&self) -> &Room;
    /// The start of a line's command.
    fn enter(&self) -> Command;
}

impl Place for Room {
    fn room(&self) -> &Room {
        self
    }

    fn enter(&self) -> Command {
        Command::new("env")
    }
}

/// A mount namespace in which `/dev/fuse` has the permissions under test.
///
/// Debian opens it to all users by udev; without udev only root may use it.
struct View<'r> {
    room: &'r Room,
    holder: Child,
}

impl<'r> View<'r> {
    /// `None`, with a message, if no namespace can be created.
    fn with_fuse(room: &'r Room, rights: &str) -> Option<Self> {
        // If the permissions already match, the device is not replaced.
        let set = format!(
            "[ \"$(stat -c %a /dev/fuse)\" = {rights} ] || {{ \
             mount -t tmpfs -o mode=755 none /mnt && mknod /mnt/fuse c 10 229 && chmod {rights} /mnt/fuse \
             && mount --bind /mnt/fuse /dev/fuse && umount -l /mnt; }} && echo ready && exec cat"
        );
        let mut shell = Command::new("unshare");
        shell.args(["-m", "sh", "-c", &set]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut view = Self { room, holder: shell.spawn().unwrap() };
        let mut told = String::new();
        BufReader::new(view.holder.stdout.take().unwrap()).read_line(&mut told).unwrap();
        if told != "ready\n" {
            testlog::missing("the right to mount another /dev/fuse by `unshare -m`");
            return None;
        }
        Some(view)
    }
}

impl Place for View<'_> {
    fn room(&self) -> &Room {
        self.room
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        // Given by name, so that the directory is the namespace's.
        command.args(["--mount", "--target", &self.holder.id().to_string()]);
        command.arg(format!("--wdns={}", self.room.text(".")));
        command
    }
}

impl Drop for View<'_> {
    /// Unmounts after a failed test; mounts in a namespace vanish with its last process.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.enter().args(["sh", "-c", "joulefs unmount m || umount -l m"]).env("PATH", PATH).output();
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A directory owned by user `nobody`, with the program in it; `None` if that user is not available, or mounting is not
/// possible.
fn rooms_of_nobody() -> Option<Room> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        testlog::missing("root, to become another user, or /dev/fuse");
        return None;
    }
    let room = Room::new();
    fs::set_permissions(room.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    chown(room.path("."), Some(NOBODY), Some(NOBODY)).unwrap();
    // The build directory may be inaccessible to other users. Copied by another process: a writable descriptor of this
    // one could be inherited by a child of another test, which would prevent execution.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_joulefs")).arg(room.path("joulefs")).status();
    assert!(copied.unwrap().success());
    fs::set_permissions(room.path("joulefs"), fs::Permissions::from_mode(0o755)).unwrap();
    Some(room)
}

/// Runs a shell line as a user, in the directory.
fn typed_by(uid: u32, place: &impl Place, line: &str) -> Output {
    let id = uid.to_string();
    let mut command = place.enter();
    command.args(["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", "--", "sh", "-c", line]);
    command.current_dir(place.room().path(".")).env("PATH", PATH).output().unwrap()
}

fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

#[track_caller]
fn works(uid: u32, place: &impl Place, line: &str) -> String {
    let out = typed_by(uid, place, line);
    assert!(out.status.success(), "{line}: {}", said(&out));
    said(&out)
}

#[track_caller]
fn fails(uid: u32, place: &impl Place, line: &str, why: &str) {
    let out = typed_by(uid, place, line);
    assert!(!out.status.success() && said(&out).contains(why), "{line}: not {why:?}: {}", said(&out));
}

/// Unmounts when a test fails.
struct Mounted<'r>(&'r Room);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new(env!("CARGO_BIN_EXE_joulefs")).arg("unmount").arg(self.0.path("m")).output();
        }
    }
}

#[test]
fn an_ordinary_user_makes_a_volume_mounts_it_and_writes_to_it() {
    for kind in ["f2fs", "scherlfs"] {
        let Some(room) = rooms_of_nobody() else { return };
        let Some(view) = View::with_fuse(&room, "666") else { return };
        works(
            NOBODY,
            &view,
            &format!("joulefs mkfs v.img --size 64M --type {kind} && mkdir m && joulefs mount v.img m"),
        );
        works(NOBODY, &view, "echo hi > m/x");
        assert_eq!(works(NOBODY, &view, "cat m/x && stat -c %u:%g m m/x"), "hi\n65534:65534\n65534:65534\n");
        works(NOBODY, &view, "joulefs unmount m");
        if kind == "f2fs" {
            assert_clean(room.path("v.img"));
        }
    }
}

#[test]
fn what_a_user_may_not_read_is_left_out_when_torn_files_are_looked_for_and_is_named() {
    let Some(room) = rooms_of_nobody() else { return };
    let Some(view) = View::with_fuse(&room, "666") else { return };
    works(NOBODY, &view, "joulefs mkfs v.img --size 64M && mkdir m && joulefs mount v.img m -o background_gc=off");
    let tear = "for n in 1 2 3 4 5 6 7 8 9 10; do for f in m/one m/two; do head -c 4096 /dev/urandom >> $f; sync $f; done; done";
    works(NOBODY, &view, tear);
    works(NOBODY, &view, "mkdir m/closed && cp m/one m/closed && chmod 000 m/closed");
    let out = typed_by(NOBODY, &view, "joulefs clean m --worst 3 --dry-run");
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("m/closed: Permission denied"), "{}", said(&out));
    assert!(said(&out).contains("/one") && said(&out).contains("/two"), "{}", said(&out));
    let out = typed_by(NOBODY, &view, "joulefs --json clean m --worst 3 --dry-run");
    let all: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((all["unread"].as_array().unwrap().len(), all["files"].as_array().unwrap().len()), (1, 2), "{all}");
    works(NOBODY, &view, "chmod 700 m/closed && joulefs unmount m");
}

#[test]
fn a_volume_of_root_is_for_others_what_a_mount_shows() {
    for kind in ["f2fs", "scherlfs"] {
        let Some(room) = rooms_of_nobody() else { return };
        let Some(view) = View::with_fuse(&room, "666") else { return };
        works(NOBODY, &view, &format!("joulefs mkfs v.img --size 64M --type {kind} --root-owner 0:7 && mkdir m"));
        works(NOBODY, &view, "joulefs mount v.img m");
        assert_eq!(works(NOBODY, &view, "stat -c %u:%g m"), "0:7\n");
        fails(NOBODY, &view, "echo hi > m/x", "ermission denied");
        works(NOBODY, &view, "joulefs unmount m");
        works(NOBODY, &view, "joulefs mount v.img m -o uid=65534,gid=65534");
        assert_eq!(works(NOBODY, &view, "echo hi > m/x && stat -c %u:%g m m/x"), "65534:65534\n65534:65534\n");
        works(NOBODY, &view, "joulefs unmount m");
        let rows: serde_json::Value = serde_json::from_str(&done(&["--json", "ls", &room.text("v.img:/")])).unwrap();
        let stored = rows.as_array().unwrap().iter().find(|row| row["name"] == "x").unwrap().clone();
        assert_eq!((stored["uid"].as_u64(), stored["gid"].as_u64()), (Some(65534), Some(65534)), "who made it");
    }
}

#[test]
fn where_only_root_may_open_fuse_others_are_told_and_do_what_needs_no_mount() {
    let Some(room) = rooms_of_nobody() else { return };
    let Some(view) = View::with_fuse(&room, "600") else { return };
    works(NOBODY, &view, "joulefs mkfs v.img --size 64M && mkdir m");
    for line in ["mount v.img m", "mount -f v.img m", "device m --size 64M --image disk"] {
        fails(NOBODY, &view, &format!("timeout 60 joulefs {line}"), "chmod 666 /dev/fuse");
    }
    assert_eq!(works(NOBODY, &view, "ls m && ls"), "joulefs\nm\nv.img\n", "half-done work was left");
    works(NOBODY, &view, "echo hi > x && joulefs cp x v.img:/");
    assert_eq!(works(NOBODY, &view, "joulefs cat v.img:/x"), "hi\n");
}

#[test]
fn root_mounts_for_somebody_and_what_others_own_is_theirs_to_change_but_not_to_own() {
    let Some(room) = rooms_of_nobody() else { return };
    let _guard = Mounted(&room);
    let (image, dir) = (room.text("v.img"), room.text("m"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    fs::write(room.path("secret"), "s").unwrap();
    fs::set_permissions(room.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let program = room.path("program");
    fs::write(&program, "p").unwrap();
    done(&["cp", &room.text("secret"), program.to_str().unwrap(), &format!("{image}:/")]);

    done(&["mount", &image, &dir]);
    fs::set_permissions(room.path("m/program"), fs::Permissions::from_mode(0o6755)).unwrap();
    fails(NOBODY, &room, "cat m/secret", "ermission denied");
    done(&["unmount", &dir]);
    done(&["mount", &image, &dir, "-o", "uid=65534,gid=65534"]);
    assert_eq!(works(NOBODY, &room, "cat m/secret"), "s");
    fails(1, &room, "cat m/secret", "ermission denied");
    fails(1, &room, "echo x > m/new", "ermission denied");
    assert_eq!(works(NOBODY, &room, "stat -c '%u:%g %a' m/program"), "65534:65534 755\n", "bits of others' rights");
    works(NOBODY, &room, "chown 65534:65534 m/secret && chmod 640 m/secret && echo y > m/program && mkdir m/d");
    for line in ["chown 0 m/secret", "chmod u+s m/program", "chmod g+s m/program"] {
        fails(0, &room, line, "Operation not permitted");
        fails(NOBODY, &room, line, "Operation not permitted");
    }
    // Root creates a file there: it is shown as the user's, and stored as root's.
    works(0, &room, "echo r > m/of-root");
    works(NOBODY, &room, "echo more >> m/of-root && rm m/secret");
    done(&["unmount", &dir]);

    done(&["mount", &image, &dir]);
    let stored = |name: &str| {
        let m = fs::metadata(room.path(name)).unwrap();
        (m.uid(), m.mode() & 0o7777)
    };
    assert_eq!(stored("m/program"), (0, 0o755), "changed by somebody, it no longer runs as root");
    assert_eq!((stored("m/of-root").0, stored("m/d").0), (0, NOBODY));
    done(&["unmount", &dir]);
    assert_clean(room.path("v.img"));
}

#[test]
fn a_mask_gives_everybody_the_rights_that_it_leaves_and_takes_the_others_from_all() {
    const OTHER: u32 = 1;
    let Some(room) = rooms_of_nobody() else { return };
    let _guard = Mounted(&room);
    let (image, dir) = (room.text("v.img"), room.text("m"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &image, "--size", "64M"]);
    done(&["mount", &image, &dir]);
    fs::write(room.path("m/secret"), "s").unwrap();
    fs::create_dir(room.path("m/d")).unwrap();
    fs::set_permissions(room.path("m/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(room.path("m/d"), fs::Permissions::from_mode(0o700)).unwrap();
    fails(OTHER, &room, "cat m/secret", "ermission denied");
    done(&["unmount", &dir]);

    // All users may read, only the owner may write; files are not executable. The owner is given by name.
    done(&["mount", &image, &dir, "-o", "uid=nobody,umask=022,fmask=133"]);
    assert_eq!(works(OTHER, &room, "stat -c '%a %u' m m/d m/secret"), "755 65534\n755 65534\n644 65534\n");
    assert_eq!(works(OTHER, &room, "cat m/secret && ls m/d"), "s");
    fails(OTHER, &room, "echo x > m/secret", "ermission denied");
    fails(OTHER, &room, "touch m/d/new", "ermission denied");
    works(NOBODY, &room, "printf t > m/secret && touch m/d/new && chmod 644 m/secret");
    for who in [0, NOBODY] {
        fails(who, &room, "chmod 600 m/secret", "Operation not permitted");
    }
    fails(NOBODY, &room, "setfacl -m u:1:rw m/secret", "");
    done(&["unmount", &dir]);

    // A mask for directories leaves file permissions unchanged; a full mask excludes other users.
    done(&["mount", &image, &dir, "-o", "dmask=000"]);
    works(OTHER, &room, "touch m/d/theirs");
    fails(OTHER, &room, "cat m/secret", "ermission denied");
    done(&["unmount", &dir]);
    done(&["mount", &image, &dir, "-o", "uid=65534,umask=077"]);
    fails(OTHER, &room, "ls m", "ermission denied");
    assert_eq!(works(NOBODY, &room, "cat m/secret"), "t");
    done(&["unmount", &dir]);

    done(&["mount", &image, &dir]);
    let rights = |name: &str| fs::metadata(room.path(name)).unwrap().mode() & 0o7777;
    assert_eq!((rights("m/secret"), rights("m/d")), (0o600, 0o700), "what is stored stays as it was");
    done(&["unmount", &dir]);
    assert_clean(room.path("v.img"));
}

#[test]
fn what_root_makes_is_roots_and_owners_that_cannot_be_are_named() {
    let room = Room::new();
    let image = room.text("v.img");
    for wrong in ["me", "1000", "1:", ":1", "-1:0", "4294967295:0", "1:2:3"] {
        misused(&["mkfs", &image, "--size", "64M", &format!("--root-owner={wrong}")], &["--root-owner"]);
    }
    misused(&["mkfs", &image, "--from", &room.text("."), "--root-owner", "1:1"], &["--root-owner", "--from"]);
    done(&["mkfs", &image, "--size", "64M"]);
    for wrong in ["uid", "uid=", "gid=1x", "uid=-1", "uid=4294967295"] {
        misused(&["mount", &image, &room.text("."), "-o", wrong], &[wrong, "number of a user or group"]);
    }
    misused(&["mount", &image, &room.text("."), "-o", "gid=nobody-is-so"], &["unknown group", "nobody-is-so"]);
    for wrong in ["umask", "umask=8", "dmask=rwx", "fmask=1000"] {
        misused(&["mount", &image, &room.text("."), "-o", wrong], &[wrong, "octal, 0 to 777"]);
    }
    misused(&["mount", &image, &room.text("."), "-o", "fmsk=0"], &["fmsk", "did you mean fmask?"]);
    for beside in ["dev", "suid"] {
        misused(&["mount", &image, &room.text("."), "-o", &format!("uid=5,{beside}")], &[beside, "uid="]);
    }
    if rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists() {
        let _guard = Mounted(&room);
        fs::create_dir(room.path("m")).unwrap();
        done(&["mount", &image, &room.text("m")]);
        let m = fs::metadata(room.path("m")).unwrap();
        assert_eq!((m.uid(), m.gid()), (0, 0));
        done(&["unmount", &room.text("m")]);
    } else {
        testlog::missing("root, or /dev/fuse");
    }
}

#[test]
fn a_place_to_mount_on_that_is_not_there_must_be_made() {
    if !Path::new("/dev/fuse").exists() {
        return testlog::missing("/dev/fuse");
    }
    let room = Room::new();
    let (image, none) = (room.text("v.img"), room.text("none"));
    done(&["mkfs", &image, "--size", "64M"]);
    let words = ["none: no such directory", &format!("mkdir {none}")];
    refused(&["mount", &image, &none], &words);
    refused(&["mount", "-f", &image, &none], &words);
    let disk = room.text("disk");
    refused(&["device", &none, "--size", "64M", "--image", &disk], &words);
    assert!(!room.path("disk").exists(), "an image was made for nothing");
    refused(&["mount", &image, &image], &["v.img: not a directory"]);
}

#[test]
fn a_machine_without_fuse_says_so_and_what_works_there() {
    if !rustix::process::geteuid().is_root() {
        return testlog::missing("root, to hide /dev/fuse");
    }
    let room = Room::new();
    let (image, dir) = (room.text("v.img"), room.text("."));
    done(&["mkfs", &image, "--size", "64M"]);
    // A machine in which /dev has only what every program needs.
    let hidden = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec \"$0\" \"$@\"";
    for line in [&["mount", &image, &dir][..], &["mount", "-f", &image, &dir], &["device", &dir, "--size", "64M"]] {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", hidden, env!("CARGO_BIN_EXE_joulefs")]).args(line);
        let out = command.output().unwrap();
        let text = said(&out);
        if text.contains("unshare") {
            return testlog::missing(text);
        }
        assert_eq!((out.status.code(), text.lines().count()), (Some(1), 1), "{line:?}: {text}");
        for word in ["/dev/fuse", "modprobe fuse", "--device /dev/fuse", "ls, cat, cp"] {
            assert!(text.contains(word), "{line:?}: {text}");
        }
    }
}
