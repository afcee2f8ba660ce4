//! Recordings with the inode that a kernel thread writes, and the process that dirtied it: `joulefs top --from` and
//! `joulefs trace replay` name the file, and totals stay the same.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::program::json;
use crate::room::Room;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/fixtures/ftrace").join(name);
    path.to_str().unwrap().to_owned()
}

fn text(file: &str) -> String {
    let mut out = vec![0; 16 << 20];
    let n = ruzstd::decoding::FrameDecoder::new().decode_all(&std::fs::read(file).unwrap(), &mut out).unwrap();
    out.truncate(n);
    String::from_utf8(out).unwrap()
}

/// Bytes written by file and dirtier; without processes that have their own row.
fn written(top: &Value) -> BTreeMap<(String, String), u64> {
    let mut out = BTreeMap::new();
    for row in top["disks"][0]["processes"].as_array().unwrap() {
        let by: Vec<&str> = row["dirtied_by"].as_array().into_iter().flatten().map(|n| n.as_str().unwrap()).collect();
        if let Some(file) = row["file"].as_str() {
            out.insert((file.to_owned(), by.join(", ")), row["bytes_written"].as_u64().unwrap());
        }
    }
    out
}

/// What was written where, by a simpler parser of the text: for every bio, the inode whose writing its thread had begun
/// and not ended, and the dirtiers by the names before their thread numbers.
fn read_simply(text: &str) -> BTreeMap<u64, (u64, Vec<String>)> {
    let mut begun: BTreeMap<&str, u64> = BTreeMap::new();
    let mut out: BTreeMap<u64, (u64, Vec<String>)> = BTreeMap::new();
    for line in text.lines().filter(|l| l.contains(": writeback_") || l.contains(": block_bio_queue:")) {
        let thread = line.split(" [").next().unwrap().trim();
        let inode = || {
            let rest = line.split_once("ino=").or_else(|| line.split_once(" ino ")).unwrap().1;
            rest.split_whitespace().next().unwrap().parse().unwrap()
        };
        if line.contains("single_inode_start") {
            begun.insert(thread, inode());
        } else if line.contains("single_inode:") {
            begun.remove(thread);
        } else if line.contains("dirty_folio") {
            let name = thread.rsplit_once('-').unwrap().0.to_owned();
            let by = &mut out.entry(inode()).or_default().1;
            if !by.contains(&name) {
                by.push(name);
                by.sort();
            }
        } else if let Some(inode) = begun.get(thread)
            && line.contains(" W")
        {
            let sectors = line.rsplit_once(" + ").unwrap().1.split(' ').next().unwrap();
            out.entry(*inode).or_default().0 += sectors.parse::<u64>().unwrap() * 512;
        }
    }
    out.retain(|_, (bytes, _)| *bytes > 0);
    out
}

#[test]
fn a_file_that_is_written_back_is_named_with_who_made_it_dirty() {
    for (name, said) in [
        ("writeback.txt.zst", "writeback.txt.zst"),
        ("writeback.report.txt.zst", "writeback.report.txt.zst"),
        ("writeback.dat.zst", "writeback.report.txt.zst"),
    ] {
        let top = json(&["top", "--from", &fixture(name), "--once"]);
        let found = written(&top);
        let expected: BTreeMap<(String, String), u64> = read_simply(&text(&fixture(said)))
            .into_iter()
            .map(|(inode, (bytes, by))| {
                let device = inode == 98 << 20;
                let file = if device { "blocks of 98,0".to_owned() } else { format!("inode {inode} of 98,0") };
                ((file, by.join(", ")), bytes)
            })
            .collect();
        // With one writer, with two, and a device's own blocks.
        assert!(expected.len() >= 3 && expected.keys().any(|(_, by)| by == "dd, perl"), "{name}: {expected:#?}");
        // A device's own blocks may be merged with a neighbour's.
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_replay_names_the_files_too_and_costs_what_it_does_without() {
    let room = Room::new();
    let whole = text(&fixture("writeback.txt.zst"));
    let (with, without) = (room.text("with.txt"), room.text("without.txt"));
    std::fs::write(&with, &whole).unwrap();
    let plain: String = whole.lines().filter(|l| !l.contains(": writeback_")).map(|l| format!("{l}\n")).collect();
    std::fs::write(&without, plain).unwrap();
    let [a, b] = [&with, &without].map(|file| json(&["trace", "replay", file, "--by-file", "30"]));
    for what in ["total_pj", "components_pj", "causes"] {
        assert_eq!(a[what], b[what], "{what}");
    }
    let rows = |v: &Value| -> BTreeMap<String, u64> {
        let rows = v["files"].as_array().unwrap();
        rows.iter().map(|r| (r["file"].as_str().unwrap().to_owned(), r["pj"].as_u64().unwrap())).collect()
    };
    let (a, b) = (rows(&a), rows(&b));
    let files: u64 = a.iter().filter(|(name, _)| name.starts_with("<writeback>")).map(|(_, pj)| pj).sum();
    assert!(a.contains_key("<writeback> inode 17 of 98,0 (dd, perl)"), "{a:#?}");
    // They are subtracted from the thread that submitted them, and all other rows are unchanged.
    let workers = |rows: &BTreeMap<String, u64>| -> u64 {
        rows.iter().filter(|(name, _)| name.starts_with("kworker/")).map(|(_, pj)| pj).sum()
    };
    assert_eq!(workers(&a) + files, workers(&b), "{a:#?} {b:#?}");
    for (name, pj) in b.iter().filter(|(name, _)| !name.starts_with("kworker/")) {
        assert_eq!(a.get(name), Some(pj), "{name}");
    }
    // `top` plays the same requests.
    let top = json(&["top", "--from", &with, "--once"]);
    assert_eq!(top["total_pj"], json(&["trace", "replay", &with])["total_pj"]);
}
