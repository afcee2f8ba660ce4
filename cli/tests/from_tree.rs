//! Images of trees: reproducible, following the lists, and accepted by Linux, simg2img and libselinux.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use judges::oracle::kernel::Kernel;
use judges::oracle::tools::locate;
use vfs::FileSystem;

use crate::room::Room;
use crate::theirs::assert_clean;

fn mkfs(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_joulefs")).arg("mkfs").args(args).output().unwrap()
}

fn made(args: &[&str]) {
    let out = mkfs(args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

fn refused(args: &[&str]) -> String {
    let out = mkfs(args);
    assert!(!out.status.success());
    String::from_utf8_lossy(&out.stderr).trim_end().to_owned()
}

/// A small system. `backwards`: creates its files in another order.
fn tree(root: &Path, backwards: bool) {
    let mut files: Vec<(String, Vec<u8>)> = (0..300u32)
        .map(|n| (format!("etc/d{}/f{n}", n % 7), (0..(n * 97 % 9000)).map(|b| (b ^ n) as u8 | 1).collect()))
        .collect();
    files.push(("bin/sh".into(), vec![7; 300_000]));
    files.push(("bin/ping".into(), vec![8; 5000]));
    if backwards {
        files.reverse();
    }
    for (name, bytes) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    symlink("sh", root.join("bin/link")).unwrap();
    fs::hard_link(root.join("bin/sh"), root.join("bin/twin")).unwrap();
    fs::File::create(root.join("hole")).unwrap().set_len(30 << 20).unwrap();
}

/// Every path of a tree in the format of a list of owners.
fn list(root: &Path, at: &str, out: &mut String) {
    let owned = match at {
        "bin/sh" | "bin/twin" => "0 2000 0750",
        "bin/ping" => "0 0 0755 capabilities=0x2000000001",
        _ => "1000 1001 0711",
    };
    out.push_str(&format!("{at} {owned}\n"));
    let here = root.join(at);
    if here.is_dir() {
        for name in fs::read_dir(here).unwrap() {
            let name = name.unwrap().file_name().into_string().unwrap();
            list(root, &if at.is_empty() { name } else { format!("{at}/{name}") }, out);
        }
    }
}

const CONTEXTS: &str = "/(.*)? u:object_r:rootfs:s0\n/bin(/.*)? u:object_r:bin:s0\n/bin/sh -- u:object_r:shell:s0\n\
    /etc/d[1-3](/.*)? <<none>>\n/hole u:object_r:hole:s0\n";

#[test]
fn the_same_tree_is_the_same_image_wherever_and_whenever_it_is_made() {
    let room = Room::new();
    tree(&room.path("one"), false);
    tree(&room.path("two"), true);
    for more in [&[][..], &["--compress", "lz4"], &["--type", "scherlfs", "--size", "64M"]] {
        for name in ["one", "two"] {
            let (image, from) = (room.text(&format!("{name}.img")), room.text(name));
            made(&[&[&*image, "--from", &*from, "--timestamp", "1700000000", "--force"], more].concat());
        }
        let [one, two] = ["one.img", "two.img"].map(|name| fs::read(room.path(name)).unwrap());
        assert!(one == two, "{more:?}");
    }
    // Another time, another image.
    made(&[&room.text("two.img"), "--from", &room.text("two"), "--timestamp", "1700000001", "--force"]);
    assert!(fs::read(room.path("one.img")).unwrap() != fs::read(room.path("two.img")).unwrap());
    // The variable set by build tools has the same effect.
    for (name, variable) in [("a.img", Some("1700000000")), ("b.img", None)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulefs"));
        command.args(["mkfs", &room.text(name), "--from", &room.text("one")]);
        match variable {
            Some(secs) => command.env("SOURCE_DATE_EPOCH", secs),
            None => command.args(["--timestamp", "1700000000"]),
        };
        assert!(command.status().unwrap().success());
    }
    assert!(fs::read(room.path("a.img")).unwrap() == fs::read(room.path("b.img")).unwrap());
}

#[test]
fn linux_finds_owners_modes_labels_capabilities_and_times_as_the_lists_say_and_never_writes() {
    let room = Room::new();
    let root = room.path("tree");
    tree(&root, false);
    let mut owners = String::new();
    list(&root, "", &mut owners);
    fs::write(room.path("owners"), owners).unwrap();
    fs::write(room.path("contexts"), CONTEXTS).unwrap();
    let image = room.path("v.img");
    let (owners, contexts) = (room.text("owners"), room.text("contexts"));
    made(&[
        &room.text("v.img"),
        "--from",
        &room.text("tree"),
        "--fs-config",
        &owners,
        "--file-contexts",
        &contexts,
        "--timestamp",
        "1700000000",
        "--read-only",
    ]);
    assert_clean(&image);
    let script = "find . -not -name lost+found | sort | xargs stat -c '%n %u %g %a %h %s %Y' > $OUT/stat\n\
        getfattr -R -h -d -m - -e hex . > $OUT/attributes 2>/dev/null\ncat bin/sh bin/ping etc/d*/* | cksum > $OUT/sum\n\
        touch bin/new 2> $OUT/error && exit 3; true";
    let run = Kernel::new().fs_type("f2fs").read_only().run(&image, script).expect_ok();
    let told = |name: &str| fs::read_to_string(run.out().join(name)).unwrap();
    let stat = told("stat");
    let line = |name: &str| stat.lines().find(|l| l.starts_with(&format!("{name} "))).unwrap_or_default().to_owned();
    assert_eq!(line("./bin/sh"), "./bin/sh 0 2000 750 2 300000 1700000000");
    assert_eq!(line("./bin/ping"), "./bin/ping 0 0 755 1 5000 1700000000");
    assert_eq!(line("./bin/link"), "./bin/link 1000 1001 777 1 2 1700000000");
    assert_eq!(line("."), format!(". 1000 1001 711 5 {} 1700000000", line(".").split(' ').nth(5).unwrap()));
    assert_eq!(stat.lines().count(), 300 + 2 + 2 + 1 + 1 + 1 + 7 + 1, "{stat}");
    let attributes = told("attributes");
    let of = |name: &str| {
        let at = attributes.find(&format!("# file: {name}\n")).map(|at| &attributes[at..]).unwrap_or_default();
        at.split("\n\n").next().unwrap_or_default().to_owned()
    };
    let label = |text: &str| text.bytes().chain([0]).fold("0x".to_owned(), |out, b| format!("{out}{b:02x}"));
    assert!(of("bin/sh").contains(&label("u:object_r:shell:s0")), "{}", of("bin/sh"));
    assert!(
        of("bin/twin").contains(&label("u:object_r:shell:s0")) || of("bin/twin").contains(&label("u:object_r:bin:s0"))
    );
    assert!(of("bin/link").contains(&label("u:object_r:bin:s0")));
    assert!(of("lost+found").contains(&label("u:object_r:rootfs:s0")), "{attributes}");
    assert!(!of("etc/d1/f1").contains("selinux"), "{}", of("etc/d1/f1"));
    assert!(
        of("bin/ping").contains("security.capability=0x0100000201000000000000002000000000000000"),
        "{}",
        of("bin/ping")
    );
    assert!(told("error").contains("Read-only"), "{}", told("error"));
    let mut all = fs::read(root.join("bin/sh")).unwrap();
    all.extend(fs::read(root.join("bin/ping")).unwrap());
    let mut names: Vec<_> =
        (0..7).flat_map(|d| fs::read_dir(root.join(format!("etc/d{d}"))).unwrap()).map(|f| f.unwrap().path()).collect();
    names.sort();
    names.iter().for_each(|name| all.extend(fs::read(name).unwrap()));
    fs::write(room.path("all"), all).unwrap();
    let sum = Command::new("cksum").stdin(fs::File::open(room.path("all")).unwrap()).output().unwrap().stdout;
    assert_eq!(told("sum").trim(), String::from_utf8(sum).unwrap().trim());
    // Our own checker reads it, and does not write to it.
    let own = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_joulefs")).args(args).output().unwrap();
    assert!(own(&["fsck", &room.text("v.img")]).status.success());
    // An image of mkfs.f2fs differs: it has no summaries to check.
    fs::File::create(room.path("theirs.img")).unwrap().set_len(100 << 20).unwrap();
    let theirs =
        Command::new("mkfs.f2fs").args(["-q", "-f", "-O", "ro,extra_attr", &room.text("theirs.img")]).output().unwrap();
    assert!(theirs.status.success(), "{}", String::from_utf8_lossy(&theirs.stderr));
    let out = own(&["fsck", &room.text("theirs.img")]);
    let why = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && why.contains("ro without summaries"), "{why}");
    let out = own(&["rm", &format!("{}:/bin/sh", room.text("v.img"))]);
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("ro"));
}

#[test]
fn a_sparse_image_expands_to_the_same_volume_over_whatever_was_there() {
    let room = Room::new();
    tree(&room.path("tree"), false);
    let common = ["--from", &room.text("tree"), "--timestamp", "5"];
    made(&[&[&*room.text("whole.img")], &common[..]].concat());
    made(&[&[&*room.text("sparse.img"), "--sparse"], &common[..]].concat());
    assert!(
        fs::metadata(room.path("sparse.img")).unwrap().len() < fs::metadata(room.path("whole.img")).unwrap().len() / 10
    );
    let expand = |to: &str| {
        let program = locate("simg2img", "android-sdk-libsparse-utils");
        let done = Command::new(program).args([room.text("sparse.img"), room.text(to)]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    expand("expanded.img");
    assert_clean(room.path("expanded.img"));
    // A flashed device keeps old contents where the image says "don't care".
    let whole = fs::metadata(room.path("whole.img")).unwrap().len();
    fs::write(room.path("used.img"), vec![0xA5; whole as usize]).unwrap();
    let expanded = fs::read(room.path("expanded.img")).unwrap();
    let dev = device::open_image(room.path("sparse.img"), device::Access::ReadOnly).unwrap();
    assert_eq!(dev.blocks() * 4096, whole);
    assert!(expanded.len() as u64 == whole);
    let cat = |image: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_joulefs"))
            .args(["cat", &format!("{}:/bin/sh", room.text(image))])
            .output();
        out.unwrap().stdout
    };
    assert_eq!(cat("expanded.img"), vec![7; 300_000]);
    assert_eq!(cat("sparse.img"), vec![7; 300_000]);
}

#[test]
fn labels_are_those_that_libselinux_looks_up() {
    let room = Room::new();
    let lines = "/bin/x\\.y u:a:plain:s0\n/(.*)? u:a:rootfs:s0\n/bin(/.*)? u:a:bin:s0\n/bin/sh -- u:a:shell:s0\n\
        /bin/[a-c]+ -d u:a:abc:s0\n/none <<none>>\n/bin/a u:a:one:s0\n/bin/a.* u:a:dot:s0\n/bin/(ab|ba)+x? u:a:alt:s0\n\
        /lib(64)?/.*\\.so(\\.[^/]*)* -- u:a:lib:s0\n/dev/[0-9]+ -c u:a:dev:s0\n";
    fs::write(room.path("contexts"), lines).unwrap();
    let paths = [
        "bin/sh",
        "bin/x.y",
        "bin/xzy",
        "none",
        "bin/a",
        "bin/ab",
        "bin/abbax",
        "bin/aZ",
        "lib/libc.so",
        "lib64/libc.so.6",
        "lib/libd.so/x",
        "lib64/libe.so.7",
        "dev/17",
        "dev/a",
    ];
    let root = room.path("tree");
    let mut asked = Vec::new();
    for (n, path) in paths.iter().enumerate() {
        let at = root.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        // Some are directories, because others are below them or by chance.
        if path.contains("so/") || at.is_dir() || n % 4 == 3 {
            fs::create_dir_all(&at).unwrap();
            asked.push((*path, 0o040_000));
        } else {
            fs::write(&at, "").unwrap();
            asked.push((*path, 0o100_000));
        }
    }
    made(&[&room.text("v.img"), "--from", &room.text("tree"), "--file-contexts", &room.text("contexts")]);
    let lookup = locate("selabel_lookup", "selinux-utils");
    let dev = device::open_image(room.path("v.img"), device::Access::ReadOnly).unwrap();
    let options = f2fs::MountOptions { read_only: true, ..f2fs::MountOptions::default() };
    let volume = f2fs::Volume::mount(dev, std::sync::Arc::new(device::VirtualClock::default()), options).unwrap();
    let mut found_some = 0;
    for (path, kind) in asked {
        let found = Command::new(&lookup)
            .args(["-b", "file", "-f", &room.text("contexts"), "-k", &format!("/{path}"), "-t", &kind.to_string()])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        let theirs = text.trim().strip_prefix("Default context: ").map(str::to_owned);
        let at = vfs::path::walk(&*volume, format!("/{path}").as_bytes()).unwrap();
        let ours = volume.getxattr(at.ino(), b"security.selinux").ok();
        let ours = ours.map(|l| String::from_utf8(l).unwrap().trim_end_matches('\0').to_owned());
        assert_eq!(ours, theirs, "/{path}");
        found_some += u32::from(theirs.is_some());
    }
    assert!(found_some > 10);
}

#[test]
fn under_fakeroot_owners_and_devices_are_those_that_it_shows() {
    let room = Room::new();
    fs::create_dir_all(room.path("tree/dev")).unwrap();
    fs::write(room.path("tree/mine"), "x").unwrap();
    let script = "chown 5:6 tree/mine && mknod tree/dev/null c 1 3 && exec \"$0\" mkfs v.img --from tree";
    let done = Command::new(locate("fakeroot", "fakeroot"))
        .args(["sh", "-c", script, env!("CARGO_BIN_EXE_joulefs")])
        .current_dir(room.path(""))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let dev = device::open_image(room.path("v.img"), device::Access::ReadOnly).unwrap();
    let options = f2fs::MountOptions { read_only: true, ..f2fs::MountOptions::default() };
    let volume = f2fs::Volume::mount(dev, std::sync::Arc::new(device::VirtualClock::default()), options).unwrap();
    let attr = |path: &[u8]| volume.getattr(vfs::path::walk(&*volume, path).unwrap().ino()).unwrap();
    assert_eq!((attr(b"/mine").uid, attr(b"/mine").gid), (5, 6));
    let null = attr(b"/dev/null");
    assert_eq!((null.kind, null.rdev.major, null.rdev.minor), (vfs::FileKind::CharDevice, 1, 3));
}

#[test]
fn of_an_image_that_cannot_be_made_nothing_is_left() {
    let room = Room::new();
    tree(&room.path("tree"), false);
    let (image, from) = (room.text("v.img"), room.text("tree"));
    fs::write(room.path("owners"), " 0 0 755\nbin 0 0 755\n").unwrap();
    // A program with two names, one of which has capabilities.
    let mut twins = String::new();
    list(&room.path("tree"), "", &mut twins);
    twins.push_str("bin/twin 0 2000 0750 capabilities=0x2000\nlarge 0 0 0644\n");
    fs::write(room.path("twins"), twins).unwrap();
    fs::write(room.path("contexts"), "/a(b u:x\n").unwrap();
    fs::write(room.path("tree/large"), vec![9; 40 << 20]).unwrap();
    let cases = [
        (vec!["--fs-config", "owners"], "not in --fs-config"),
        (vec!["--fs-config", "twins"], "are the same file, but have different entries in --fs-config"),
        (vec!["--file-contexts", "contexts"], "line 1: /a(b: unsupported expression"),
        (vec!["--fs-config", "nowhere"], "No such file"),
        (vec!["--size", "52M"], "give a larger --size"),
        (vec!["--type", "scherlfs"], "needs --size"),
        (vec!["--compress", "zip"], "--compress zip"),
    ];
    for (more, words) in cases {
        let more: Vec<String> = more
            .iter()
            .map(|a| if room.path(a).exists() || *a == "nowhere" { room.text(a) } else { (*a).to_owned() })
            .collect();
        let args: Vec<&str> = [&*image, "--from", &*from].into_iter().chain(more.iter().map(|a| &**a)).collect();
        let why = refused(&args);
        assert!(why.contains(words) && why.lines().count() == 1, "{args:?}: {why}");
        let left: Vec<_> = fs::read_dir(room.path("")).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert!(!left.iter().any(|n| n.to_string_lossy().contains("v.img")), "{left:?}");
    }
    assert!(refused(&[&image, "--timestamp", "5"]).contains("--from"));
    fs::write(room.path("v.img"), "mine").unwrap();
    assert!(refused(&[&image, "--from", &from]).contains("--force"));
    assert_eq!(fs::read(room.path("v.img")).unwrap(), b"mine");
    // An image inside the tree is not copied into itself.
    let inside = room.text("tree/v.img");
    let why = refused(&[&inside, "--from", &from]);
    assert!(why.contains("is the image being written"), "{why}");
}
