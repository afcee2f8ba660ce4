//! What `--flame` writes: every picojoule under a stack of names, whatever the names are.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::Value;

use crate::program::parsed;
use crate::room::Room;
use crate::typed::{done, joulefs, misused, refused};

/// Stacks with their picojoules, from folded text. Each occurs once.
fn folded(text: &str) -> BTreeMap<Vec<String>, u64> {
    let mut out = BTreeMap::new();
    for line in text.lines() {
        let (stack, pj) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no number: {line}"));
        let frames: Vec<String> = stack.split(';').map(str::to_owned).collect();
        assert!(frames.iter().all(|f| !f.is_empty()), "an empty frame: {line}");
        assert_eq!(out.insert(frames, pj.parse().unwrap()), None, "twice: {line}");
    }
    out
}

/// The same from a profile of a speedscope file, which must match its schema.
fn speedscope(file: &Value, profile: usize) -> BTreeMap<Vec<String>, u64> {
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = file["shared"]["frames"].as_array().unwrap();
    let profile = &file["profiles"][profile];
    assert_eq!((&profile["type"], &profile["unit"]), (&"sampled".into(), &"none".into()));
    let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
    assert_eq!(samples.len(), weights.len());
    let name = |n: &Value| frames[n.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
    let stack = |s: &Value| s.as_array().unwrap().iter().map(name).collect::<Vec<_>>();
    let out: BTreeMap<_, _> = samples.iter().map(stack).zip(weights.iter().map(|w| w.as_u64().unwrap())).collect();
    assert_eq!(out.len(), samples.len(), "a stack stands twice");
    assert_eq!((profile["startValue"].as_u64(), profile["endValue"].as_u64()), (Some(0), Some(out.values().sum())));
    out
}

/// The tree embedded in a page, as stacks of its innermost frames.
fn tree(page: &str) -> BTreeMap<Vec<String>, u64> {
    let (_, rest) = page.split_once("<script id=\"report\" type=\"application/json\">").unwrap();
    let report: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    fn walk(node: &Value, above: &[String], out: &mut BTreeMap<Vec<String>, u64>) {
        let (value, below) = (node["v"].as_u64().unwrap(), node["c"].as_array());
        match below {
            None => assert_eq!(out.insert(above.to_vec(), value), None),
            Some(below) => {
                assert_eq!(below.iter().map(|n| n["v"].as_u64().unwrap()).sum::<u64>(), value, "{above:?}");
                for n in below {
                    walk(n, &[above, &[n["n"].as_str().unwrap().to_owned()]].concat(), out);
                }
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(&report["tree"], &[], &mut out);
    out
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Costs by the frame at `from_end` places before the last.
fn by(stacks: &BTreeMap<Vec<String>, u64>, from_end: usize) -> BTreeMap<&str, u64> {
    let mut out = BTreeMap::new();
    for (stack, pj) in stacks {
        *out.entry(stack[stack.len() - 1 - from_end].as_str()).or_default() += pj;
    }
    out
}

/// A ledger's account with fields of picojoules, without zero amounts.
fn account<'l>(ledger: &'l Value, name: &str, field: Option<&str>) -> BTreeMap<String, u64> {
    let fields = ledger[name].as_object().unwrap().iter();
    // A cause has a name for people, which the stacks use, and a key for programs.
    let words = |n: &'l String, v: &'l Value| v["name"].as_str().unwrap_or(n).to_owned();
    let all = fields.map(|(n, v): (&'l String, _)| (words(n, v), field.map_or(v, |f| &v[f]).as_u64().unwrap()));
    all.filter(|(_, pj)| *pj > 0).collect()
}

/// A path as [`by_place`] writes it, from a line of a ledger's account by file.
fn line_of(file: &str) -> String {
    // Files with one name share a line, with their number.
    file.split(" (").next().unwrap_or(file).to_owned()
}

/// The cost of each place of a volume, by the names used in ledgers.
fn by_place(stacks: &BTreeMap<Vec<String>, u64>) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for (stack, pj) in stacks {
        let place = &stack[..stack.len() - 2];
        let name = match place {
            [one] => one.clone(),
            [_, names @ ..] => {
                let names: Vec<&str> = names.iter().map(String::as_str).filter(|n| *n != "<directory>").collect();
                let path = format!("/{}", names.join("/"));
                match path.rsplit_once("/<deleted> ") {
                    Some((above, name)) => format!("<deleted> {above}/{name}"),
                    None => path,
                }
            }
            [] => panic!("no place: {stack:?}"),
        };
        *out.entry(name).or_default() += pj;
    }
    out
}

#[test]
fn a_replays_stacks_are_its_accounts_to_the_last_picojoule_in_every_form() {
    let room = Room::new();
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../recordings/chat-delete.rec");
    let at = |name: &str| room.text(name);
    let (text, scope, page) = (at("f.folded"), at("f.json"), at("f.html"));
    // A disk uses energy while idle.
    let run = ["--json", "trace", "replay", recording, "--by-file", "100000", "--profile", "laptop-disk-4200"];
    let ledger = parsed(&done(&[&run[..], &["--flame", &text, "--flame", &scope, "--flame", &page]].concat()));
    let stacks = folded(&read(&text));
    assert_eq!(stacks.values().sum::<u64>(), ledger["total_pj"].as_u64().unwrap());
    assert_eq!(speedscope(&parsed(&read(&scope)), 0), stacks);
    assert_eq!(tree(&read(&page)), stacks);
    let owned = |of: BTreeMap<&str, u64>| of.into_iter().map(|(n, pj)| (n.to_owned(), pj)).collect::<BTreeMap<_, _>>();
    assert_eq!(owned(by(&stacks, 1)), account(&ledger, "causes", Some("pj")));
    let components: BTreeMap<_, _> = owned(by(&stacks, 0)).into_iter().map(|(n, pj)| (n.to_lowercase(), pj)).collect();
    assert_eq!(components, account(&ledger, "components_pj", None));
    let mut files: BTreeMap<String, u64> = BTreeMap::new();
    for f in ledger["files"].as_array().unwrap() {
        *files.entry(line_of(f["file"].as_str().unwrap())).or_default() += f["pj"].as_u64().unwrap();
    }
    assert_eq!(by_place(&stacks), files);
    assert!(files.len() > 4 && files.contains_key("<waiting>") && files.keys().any(|f| f.starts_with("<deleted> /")));

    // The option does not change the results, and the output is reproducible.
    assert_eq!(parsed(&done(&run)), ledger);
    let again = at("again.txt");
    done(&[&run[..], &["--flame", &again]].concat());
    assert_eq!(read(&again), read(&text));

    // With parts there is one frame more, and the sums are the same.
    done(&[&run[..], &["--flame", &again, "--flame-parts"]].concat());
    let parts = folded(&read(&again));
    let mut above: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for (stack, pj) in &parts {
        *above.entry(stack[..stack.len() - 1].to_vec()).or_default() += pj;
    }
    assert_eq!(above, stacks);
    assert!(parts.keys().any(|s| s.ends_with(&["storage".into(), "platter writes".into()])));
}

#[test]
fn several_runs_are_several_profiles_or_files_and_never_a_sum() {
    let room = Room::new();
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../recordings/settings.rec");
    let (text, scope) = (room.text("f.txt"), room.text("f"));
    let run = ["--json", "trace", "replay", recording, "--compare", "delta=off,on"];
    let ledger = parsed(&done(&[&run[..], &["--flame", &text]].concat()));
    done(&[&run[..], &["--flame", &scope, "--flame-format", "speedscope"]].concat());
    let scope = parsed(&read(&scope));
    assert!(!Path::new(&text).exists());
    for (n, variant) in ledger["variants"].as_array().unwrap().iter().enumerate() {
        let name = variant["variant"].as_str().unwrap();
        let own = speedscope(&scope, n);
        assert_eq!(scope["profiles"][n]["name"], name);
        assert_eq!(own, folded(&read(&room.text(&format!("f.{name}.txt")))), "{name}");
        assert_eq!(own.values().sum::<u64>(), variant["total_pj"].as_u64().unwrap());
    }
    assert_eq!(ledger["variants"].as_array().unwrap().len(), 2);
}

/// Names that would end a line or a frame, look like something else, or are no text.
fn hostile() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [
        &b"a;b"[..],
        b"new\nline 17",
        b"<waiting>",
        b"<checkpoint, NAT, SIT, SSA>",
        b"<deleted> gone",
        b"<directory>",
        b"<2 others>",
        b"storage 12",
        b"back\\x3bslash",
        b"\xff\xfe not text",
        b"\x1b[31mred\x7f",
        b" leading and trailing ",
        b"user data",
        b"<!--<script><img src=x onerror=alert(1)>",
        "\u{202e}gpj.db".as_bytes(),
        "漢字\u{ffff}".as_bytes(),
    ]
    .map(<[u8]>::to_vec)
    .into();
    all.push(vec![b'l'; 255]);
    all
}

struct Mounted<'d>(&'d str);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            joulefs(&["unmount", self.0]);
        }
    }
}

fn write(path: &Path, bytes: usize) {
    let mut file = File::create(path).unwrap();
    file.write_all(&vec![7; bytes]).unwrap();
    file.sync_all().unwrap();
}

/// The bytes of a name in a frame.
fn bytes(frame: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), frame.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let escaped = *first == b'\\';
        out.push(if escaped { u8::from_str_radix(&frame_text(&after[1..3]), 16).unwrap() } else { *first });
        rest = if escaped { &after[3..] } else { after };
    }
    out
}

fn frame_text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn whatever_files_are_called_a_mount_says_where_the_joules_went() {
    let room = Room::new();
    let (image, dir, ledger) = (room.text("v.img"), room.text("mnt"), room.text("l.json"));
    let (text, scope, page) = (room.text("f.folded"), room.text("f.json"), room.text("f.html"));
    fs::create_dir(&dir).unwrap();
    done(&["mkfs", &image, "--size", "256M"]);
    let flames = ["--flame", &text, "--flame", &scope, "--flame", &page];
    let how = ["--profile", "kirin9000-ufs31", "--ledger", &ledger, "--by-file", "100000"];
    done(&[&["mount", &image, &dir], &how[..], &flames].concat());
    let _guard = Mounted(&dir);
    let mnt = Path::new(&dir);
    for name in hostile() {
        write(&mnt.join(OsStr::from_bytes(&name)), 9_000);
    }
    // A path as deep as name lengths allow.
    let mut deep = mnt.join("deep");
    for _ in 0..12 {
        deep.push("d".repeat(200));
    }
    fs::create_dir_all(&deep).unwrap();
    write(&deep.join("bottom"), 9_000);
    fs::create_dir(mnt.join("dir;")).unwrap();
    for n in 0..3_000 {
        fs::write(mnt.join(format!("dir;/{n}")), [1; 5_000]).unwrap();
    }
    for _ in 0..4 {
        write(&mnt.join("dir;/journal;"), 20_000);
        fs::remove_file(mnt.join("dir;/journal;")).unwrap();
    }
    File::open(mnt).unwrap().sync_all().unwrap();
    done(&["unmount", &dir]);

    let ledger = parsed(&read(&ledger));
    let lines = read(&text);
    assert!(!lines.contains(|c: char| c.is_control() && c != '\n') && !lines.contains('\u{202e}'));
    let stacks = folded(&lines);
    assert_eq!(stacks.values().sum::<u64>(), ledger["total_pj"].as_u64().unwrap());
    assert_eq!(speedscope(&parsed(&read(&scope)), 0), stacks);
    for name in hostile() {
        let found = stacks.keys().filter(|s| s[0] == "/" && bytes(&s[1]) == name && s.len() == 4);
        assert!(found.count() > 0, "{:?} cost nothing", String::from_utf8_lossy(&name));
    }
    let joules_of = |start: &[&str]| -> u64 {
        stacks.iter().filter(|(s, _)| s.iter().zip(start).all(|(a, b)| a == b)).map(|(_, pj)| pj).sum()
    };
    let in_ledger = |name: &str| -> u64 {
        let files = ledger["files"].as_array().unwrap().iter();
        files.filter(|f| line_of(f["file"].as_str().unwrap()) == name).map(|f| f["pj"].as_u64().unwrap()).sum()
    };
    // Labels for unnamed owners differ from files with the same names.
    for (frame, line) in [("<checkpoint, NAT, SIT, SSA>", "<checkpoint, NAT, SIT, SSA>"), ("<waiting>", "<waiting>")] {
        assert_eq!(joules_of(&[frame]), in_ledger(line), "{frame}");
        assert!(frame == "<waiting>" || joules_of(&[frame]) > 0);
    }
    assert_eq!(joules_of(&["/", "dir\\x3b", "<deleted> journal\\x3b"]), in_ledger("<deleted> /dir;/journal;"));
    assert_eq!(joules_of(&["/", "dir\\x3b", "<directory>"]), in_ledger("/dir;"));
    assert_eq!(joules_of(&["/", "a\\x3bb"]), in_ledger("/a;b"));
    let bottom = stacks.keys().find(|s| s.contains(&"bottom".to_owned())).unwrap();
    assert_eq!(bottom.len(), 1 + 1 + 12 + 1 + 2);
    let files = stacks.keys().filter(|s| s[1] == "dir\\x3b" && bytes(&s[2]).iter().all(u8::is_ascii_digit));
    let files: std::collections::BTreeSet<_> = files.map(|s| &s[2]).collect();
    assert_eq!(files.len(), 3_000, "every file has a line");

    // The page merges small places, and loses no energy.
    let page = read(&page);
    let shown = tree(&page);
    assert_eq!(shown.values().sum::<u64>(), stacks.values().sum::<u64>());
    let others = shown.keys().flatten().find(|f| f.ends_with(" others>") && f.starts_with('<'));
    assert!(others.is_some() && shown.len() < stacks.len());
    assert!(!page.contains("<img"));
}

#[test]
fn a_process_pays_in_a_flame_graph_what_it_pays_in_the_table() {
    let room = Room::new();
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces").into();
    let traces = std::env::var_os("JOULEFS_TRACES").unwrap_or(beside);
    let trace = Path::new(&traces).join("telegram_exec.csv.gz");
    if !trace.exists() {
        return testlog::not_shipped("telegram_exec.csv.gz: set JOULEFS_TRACES to a directory that has it");
    }
    let trace = trace.to_str().unwrap();
    let (text, of_top) = (room.text("f.folded"), room.text("top.folded"));
    let ledger = parsed(&done(&["--json", "trace", "replay", trace, "--by-file", "100000", "--flame", &text]));
    let stacks = folded(&read(&text));
    assert_eq!(stacks.values().sum::<u64>(), ledger["total_pj"].as_u64().unwrap());
    let mut processes: BTreeMap<&str, u64> = BTreeMap::new();
    stacks.iter().for_each(|(s, pj)| *processes.entry(&s[0]).or_default() += pj);
    for line in ledger["files"].as_array().unwrap() {
        assert_eq!(processes.get(line["file"].as_str().unwrap()), line["pj"].as_u64().as_ref(), "{line}");
    }
    let shown = parsed(done(&["--json", "top", "--from", trace, "--once", "--flame", &of_top]).lines().last().unwrap());
    let stacks = folded(&read(&of_top));
    let total: u64 = shown["disks"].as_array().unwrap().iter().map(|d| d["pj"].as_u64().unwrap()).sum();
    assert_eq!(stacks.values().sum::<u64>(), total);
    assert!(
        stacks.keys().any(|s| s.len() == 4 && s[0] == "8,0" && s[1] == "writeFileQueue"),
        "{:?}",
        stacks.keys().next()
    );
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is_done() {
    let room = Room::new();
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../recordings/settings.rec");
    misused(&["trace", "replay", recording, "--flame", &room.text("f.svg")], &["f.svg", "--flame-format"]);
    refused(&["trace", "replay", recording, "--flame", &room.text("no/f.html")], &["no/f.html", "no such directory"]);
    misused(&["trace", "replay", recording, "--flame-parts"], &["--flame"]);
    misused(&["mount", &room.text("v"), &room.text("m"), "--flame", &room.text("f.txt")], &["--profile"]);
    let own = room.text("own.txt");
    fs::copy(recording, &own).unwrap();
    misused(&["replay", &own, "--flame", &own], &["own.txt", "is the recording, which is being read"]);
    misused(&["trace", "replay", &own, "--flame", &own], &["own.txt", "is the recording, which is being read"]);
    assert!(fs::read_dir(room.path("")).unwrap().count() == 1);
}
