//! `joulefs inspect` reports the same about an Android sparse image as about the raw image.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::room::Room;
use crate::typed::{done, joulefs};

const BLOCK: usize = 4096;

/// The image as a sparse one: zero blocks are alternately omitted and written as fills, blocks of one repeated word are
/// fills, the rest is stored.
fn sparse(raw: &[u8]) -> Vec<u8> {
    let blocks: Vec<&[u8]> = raw.chunks_exact(BLOCK).collect();
    let kind = |block: &&[u8]| block.chunks_exact(4).all(|w| *w == block[..4]).then(|| block[..4].to_vec());
    let (mut chunks, mut count, mut absent) = (Vec::new(), 0_u32, false);
    for run in blocks.chunk_by(|a, b| kind(a) == kind(b)) {
        let (id, payload) = match kind(&run[0]) {
            None => (0xCAC1_u16, run.concat()),
            Some(word) => {
                absent = word == [0; 4] && !absent;
                if absent { (0xCAC3, Vec::new()) } else { (0xCAC2, word) }
            }
        };
        chunks.extend(id.to_le_bytes());
        chunks.extend([0, 0]);
        chunks.extend((run.len() as u32).to_le_bytes());
        chunks.extend((12 + payload.len() as u32).to_le_bytes());
        chunks.extend(payload);
        count += 1;
    }
    let mut out = 0xED26_FF3A_u32.to_le_bytes().to_vec();
    [1_u16, 0, 28, 12].iter().for_each(|n| out.extend(n.to_le_bytes()));
    [BLOCK as u32, blocks.len() as u32, count, 0].iter().for_each(|n| out.extend(n.to_le_bytes()));
    out.extend(chunks);
    out
}

/// The report on an image, without its name.
fn said(image: &str, code: i32, options: &[&str]) -> (Value, String) {
    let ran = joulefs(&[&["--json", "inspect", image], options].concat());
    assert_eq!(ran.code, code, "{}", ran.err);
    let mut report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["source"].take(), image);
    let text = joulefs(&[&["inspect", image], options].concat());
    assert_eq!(text.code, code, "{}", text.err);
    (report, text.out.replace(image, "IMAGE"))
}

/// Compares both images, and returns the size of the sparse one relative to the other.
fn same(room: &Room, image: &str, code: i32) -> Value {
    let raw = fs::read(image).unwrap();
    let packed = sparse(&raw);
    assert!(packed.len() * 4 < raw.len() * 3, "{} bytes of {}: not sparse", packed.len(), raw.len());
    let other = room.text("sparse.img");
    fs::write(&other, packed).unwrap();
    let options = ["--worst", "1000", "--extents", "--by", "dir"];
    let (ours, theirs) = (said(image, code, &options), said(&other, code, &options));
    assert_eq!(ours.0, theirs.0);
    assert_eq!(ours.1, theirs.1);
    ours.0
}

fn tree(room: &Room) -> PathBuf {
    let tree = room.path("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    for n in 0..40 {
        fs::write(tree.join(format!("deep/{n}.db")), vec![n; 3000 * usize::from(n)]).unwrap();
    }
    fs::write(tree.join("deep/er/large"), (0..900_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    tree
}

#[test]
fn a_sparse_image_of_f2fs_says_what_the_image_says() {
    let room = Room::new();
    let image = room.text("v.img");
    done(&["age", &image, "--recipe", "full", "--size", "128M", "--seed", "3"]);
    // The volume's own files contain no blocks of one repeated word; these files do, and removing them frees space.
    done(&["rm", "-r", &format!("{image}:/copies")]);
    done(&["cp", "-r", tree(&room).to_str().unwrap(), &format!("{image}:/tree")]);
    let report = same(&room, &image, 0);
    assert!(report["all"]["files"].as_u64() > Some(40) && report["worst"].as_array().is_some_and(|w| !w.is_empty()));
}

#[test]
fn a_damaged_one_has_the_same_damage() {
    let room = Room::new();
    let image = room.text("v.img");
    done(&["mkfs", &image, "--size", "64M"]);
    done(&["cp", "-r", tree(&room).to_str().unwrap(), &format!("{image}:/tree")]);
    let mut bytes = fs::read(&image).unwrap();
    // The first copy of the superblock, and every seventh block that begins with a file's mode.
    bytes[1024..1100].fill(0x5a);
    let nodes: Vec<usize> = (0..bytes.len()).step_by(BLOCK).filter(|at| bytes[*at..at + 2] == [0xa4, 0x81]).collect();
    assert!(nodes.len() > 30, "{} inodes", nodes.len());
    nodes.iter().step_by(7).for_each(|at| bytes[at + 600..at + 700].fill(0xa5));
    fs::write(&image, bytes).unwrap();
    let report = same(&room, &image, 1);
    assert!(report["damage"].as_array().is_some_and(|d| d.len() > 1), "{:#}", report["damage"]);
}

#[test]
fn a_sparse_image_of_ext4_says_what_the_image_says() {
    let room = Room::new();
    let image = room.text("v.img");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-d", tree(&room).to_str().unwrap(), &image])
        .env("PATH", path)
        .status();
    assert!(made.expect("mke2fs is needed by this test: apt-get install e2fsprogs").success());
    let report = same(&room, &image, 0);
    assert_eq!((&report["file_system"], &report["all"]["files"]), (&"ext4".into(), &41.into()));
}
