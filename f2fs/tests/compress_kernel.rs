//! Linux reads files compressed by JouleFS, byte for byte, and can change them; and vice versa.
//!
//! Needs a kernel with F2FS compression. Debian's user-mode-linux lacks it; `scripts/install-tools kernel` builds one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Access, FileDevice, Rng};
use format::superblock::Features;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use judges::oracle::kernel::Kernel;
use judges::oracle::linux::Linux;
use judges::oracle::tools::assert_fsck_clean;
use sha2::{Digest, Sha256};
use vfs::{Allocate, FileSystem, SetAttr};

use crate::log_rig::*;

/// Operations by `ioctl` in `perl`: `release FILE` and `reserve FILE` print the number of blocks, `saved FILE` the
/// saved blocks.
const PERL: &str = r#"
call() { perl -e 'open my $f, "+<", $ARGV[1] or die; my $n = pack("Q", 0); ioctl $f, hex $ARGV[0], $n or die "$ARGV[0] $ARGV[1]: $!\n"; print unpack("Q", $n), "\n"' $1 $2; }
release() { call 8008f512 $1; }
reserve() { call 8008f513 $1; }
saved() { call 8008f511 $1; }
"#;

fn mounted(image: &Path, said: &[(&str, &str)]) -> Arc<Volume> {
    let mut options = MountOptions::default();
    for (name, value) in said {
        options.compress.set(name, Some(*value)).unwrap();
    }
    let dev = FileDevice::open(image, Access::ReadWrite).unwrap();
    Volume::mount(Arc::new(dev), clock(), options).unwrap()
}

/// An image of `mib` MiB that allows compressed files.
fn compressing(dir: &Path, mib: u64) -> PathBuf {
    let image = dir.join("image");
    let modern = Options::modern();
    let options = Options { features: modern.features | Features::COMPRESSION, ..modern };
    formatted(mib, &options).save(&image).unwrap();
    image
}

fn text(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u64 / 700 + seed) as u8 ^ b"of words there is no end "[i % 25]).collect()
}

/// Words, then noise, then zeroes, then words.
fn mixed(seed: u64, len: usize) -> Vec<u8> {
    let part = len / 4;
    [text(seed, part), pattern(seed, part), vec![0; part], text(seed + 1, len - 3 * part)].concat()
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Names and checksums, as printed by `sha256sum`.
fn printed(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|l| l.split_once("  "));
    lines.map(|(sum, name)| (name.to_owned(), sum.to_owned())).collect()
}

fn sums(vol: &Volume, names: &[String]) -> BTreeMap<String, String> {
    names.iter().map(|n| (n.clone(), sum(&read_all(vol, find(vol, n).unwrap())))).collect()
}

#[test]
fn linux_and_we_take_turns_with_compressed_files() {
    let linux = match Linux::complete() {
        Ok(linux) => linux,
        Err(why) => return testlog::missing(why),
    };
    let dir = tempfile::tempdir().unwrap();
    let image = compressing(dir.path(), 128);
    let vol = mounted(&image, &[("compress_extension", "*")]);
    let mut names = Vec::new();
    for algorithm in 0..4 {
        for log in [2, 3, 5, 8] {
            let name = format!("a{algorithm}c{log}");
            let f = new_file(&vol, vol.root(), &name);
            vol.set_compression(f, algorithm, log).unwrap();
            write(&vol, f, 0, &mixed(u64::from(algorithm), 2_100_123));
            // An overwrite, a hole, and a file end inside clusters.
            vol.sync().unwrap();
            write(&vol, f, 70_001, &text(9, 5000));
            vol.fallocate(f, Allocate::PunchHole, 200_000, 300_000).unwrap();
            vol.setattr(f, &SetAttr { size: Some(1_900_123), ..SetAttr::default() }).unwrap();
            names.push(name);
        }
    }
    for name in ["checksums", "released"] {
        let f = new_file(&vol, vol.root(), name);
        write(&vol, f, 0, &text(3, 3_000_000));
        names.push(name.into());
    }
    vol.sync().unwrap();
    let given = vol.release_saved(find(&vol, "released").unwrap()).unwrap();
    let ours = sums(&vol, &names);
    vol.unmount().unwrap();
    drop(vol);
    assert_fsck_clean(&image);

    let mut rng = Rng::new(7);
    for round in 0..3 {
        let mut script = format!("{PERL} sha256sum [acr]* >$OUT/before\n");
        for name in &names {
            let (at, len) = (rng.below(1_800_000), rng.range(1..40_000));
            if round == 0 && name == "released" {
                continue;
            }
            // Words in place of noise, noise in place of words; a shorter or longer file.
            script += &format!(
                "seq {at} | head -c 300000 | dd of={name} bs=4k seek={} conv=notrunc 2>/dev/null\n\
                 dd if=/dev/urandom of={name} bs={len} count=1 seek={} conv=notrunc 2>/dev/null\n\
                 truncate -s {} {name}; sync {name}; head -c 70000 $HOST/bin/sh >>{name}\n",
                rng.below(500),
                rng.below(1_800_000 / len),
                1_000_000 + rng.below(900_000),
            );
        }
        script += match round {
            0 => "saved released; reserve released; saved released; release checksums; sync\n",
            1 => "saved checksums; sync\n",
            _ => "sync\n",
        };
        script += "sha256sum [acr]* >$OUT/after\n";
        let run = Kernel::of(linux.clone()).memory_mib(768).run(&image, &script).expect_ok();
        run.assert_no_f2fs_complaints();
        assert_fsck_clean(&image);
        let said = |name: &str| printed(&std::fs::read_to_string(run.out().join(name)).unwrap());
        if round == 0 {
            assert_eq!(said("before"), ours);
            let counts: Vec<u64> = run.stdout.lines().map(|l| l.parse().unwrap()).collect();
            let [none, reserved, saved, released] = counts[..] else { panic!("{counts:?}") };
            assert_eq!((none, reserved, saved), (0, given, given));
            assert!(released > 0);
        }

        let vol = mounted(&image, &[]);
        assert_eq!(sums(&vol, &names), said("after"), "round {round}");
        if round == 0 {
            let f = find(&vol, "checksums").unwrap();
            assert!(vol.compression(f).unwrap().unwrap().released);
            vol.reserve_saved(f).unwrap();
        }
        for name in &names {
            let f = find(&vol, name).unwrap();
            let size = vol.getattr(f).unwrap().size;
            write(&vol, f, rng.below(size), &mixed(round, 100_000));
            write(&vol, f, size + 10_000, &text(round, 50_000));
        }
        vol.sync().unwrap();
        let ours = sums(&vol, &names);
        vol.unmount().unwrap();
        drop(vol);
        assert_fsck_clean(&image);
        let run = Kernel::of(linux.clone()).run(&image, "sha256sum [acr]*").expect_ok();
        run.assert_no_f2fs_complaints();
        assert_eq!(printed(&run.stdout), ours, "round {round}");
    }
}

/// One cluster per file, for every length of incompressible data before compressible data, and for streams with copies
/// of every distance and length: the kernel's decoders read the output of JouleFS's compressors.
#[test]
fn the_kernels_decoders_read_every_stream_of_ours() {
    let linux = match Linux::complete() {
        Ok(linux) => linux,
        Err(why) => return testlog::missing(why),
    };
    let dir = tempfile::tempdir().unwrap();
    let image = compressing(dir.path(), 256);
    let vol = mounted(&image, &[("compress_extension", "*"), ("compress_algorithm", "lz4")]);
    let mut rng = Rng::new(3);
    let mut names = Vec::new();
    for algorithm in 0..4u8 {
        for (log, clusters) in [(2, 500), (4, 120), (8, 10)] {
            let name = format!("a{algorithm}c{log}");
            let f = new_file(&vol, vol.root(), &name);
            vol.set_compression(f, algorithm, log).unwrap();
            let bytes = 4096usize << log;
            let mut data: Vec<u8> = Vec::new();
            for cluster in 1..=clusters {
                while data.len() < cluster * bytes {
                    let most = [6, 40, 600, 5000][rng.index(4)];
                    let n = rng.range(1..most) as usize;
                    match rng.below(5) {
                        0 | 1 => data.resize(data.len() + n, 0),
                        2 | 3 if !data.is_empty() => {
                            let from = data.len() - data.len().min(rng.range(1..52_000) as usize);
                            (0..n).for_each(|i| data.push(data[from + i]));
                        }
                        _ => data.extend((0..n).map(|_| rng.below(256) as u8)),
                    }
                }
                data.truncate(cluster * bytes);
            }
            write(&vol, f, 0, &data);
            vol.fsync(f, false).unwrap();
            let saved = vol.compression(f).unwrap().unwrap().saved;
            assert!(saved > (clusters as u64) << log >> 3, "{name}: {saved}");
            names.push(name);
        }
    }
    let ours = sums(&vol, &names);
    vol.unmount().unwrap();
    let run = Kernel::of(linux).run(&image, "sha256sum [acr]*").expect_ok();
    run.assert_no_f2fs_complaints();
    assert_eq!(printed(&run.stdout), ours);
}
