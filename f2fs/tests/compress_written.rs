//! Compressed files are compared with plain bytes in memory: after any operation they read the same, and every checker
//! accepts the volume.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{Memory, Rng};
use format::superblock::Features;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{Allocate, Error, FileFlags, FileSystem, Ino, Seek, SetAttr, WriteFlags};

use crate::log_rig::*;

const BLOCK: u64 = 4096;

fn volume(mib: u64) -> Memory {
    let modern = Options::modern();
    formatted(mib, &Options { features: modern.features | Features::COMPRESSION, ..modern })
}

/// A mount with compression options.
fn options(said: &[(&str, &str)]) -> MountOptions {
    let mut options = MountOptions::default();
    for (name, value) in said {
        assert_eq!(options.compress.set(name, Some(*value)), Ok(true), "{name}={value}");
    }
    options
}

fn mounted(dev: &Arc<Memory>, options: &MountOptions) -> Arc<Volume> {
    Volume::mount(dev.clone(), clock(), options.clone()).unwrap()
}

/// Words, zeroes and noise; only words if `plain`.
fn contents(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let n = rng.range(100..20_000) as usize;
        match rng.below(5) {
            0 => out.resize(out.len() + n, 0),
            1 => out.extend((0..n / 8 + 1).flat_map(|_| rng.next_u64().to_le_bytes())),
            k => out.extend((0..n).map(|i| b"the log cleans its segments, "[i % 29] ^ k as u8)),
        }
    }
    out.truncate(len);
    out
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 512) as u8 ^ b"of words there is no end "[i % 25]).collect()
}

fn size(vol: &Volume, ino: Ino, size: u64) -> vfs::Result<()> {
    vol.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).map(drop)
}

fn end(dev: &Arc<Memory>, vol: &Volume) {
    vol.audit_segments().unwrap();
    vol.unmount().unwrap();
    assert_clean(&**dev, "at the end");
    assert_tools_clean(dev);
}

#[test]
fn a_new_file_is_compressed_and_reads_the_same() {
    for algorithm in ["lz4", "zstd", "zstd:9", "lzo", "lzo-rle"] {
        for log in ["2", "4", "8"] {
            let dev = Arc::new(volume(64));
            let how = options(&[
                ("compress_algorithm", algorithm),
                ("compress_log_size", log),
                ("compress_extension", "txt"),
            ]);
            let vol = mounted(&dev, &how);
            let f = new_file(&vol, vol.root(), "words.txt");
            let other = new_file(&vol, vol.root(), "words.bin");
            // Up to the second direct node, not to the end of a cluster.
            let data = text(9_000_123);
            write(&vol, f, 0, &data);
            write(&vol, other, 0, &data[..100_000]);
            vol.fsync(f, false).unwrap();
            let said = vol.compression(f).unwrap().unwrap();
            assert!(said.saved * BLOCK > data.len() as u64 / 2, "{algorithm}: {said:?}");
            assert_eq!(
                (said.name, said.log_cluster.to_string()),
                (algorithm.split(':').next().unwrap(), log.to_owned())
            );
            assert_eq!(vol.compression(other).unwrap(), None);
            assert!(vol.counters.packed_saved.load(Relaxed) >= said.saved);
            assert!(read_all(&vol, f) == data, "{algorithm}, before");
            vol.unmount().unwrap();
            let vol = mounted(&dev, &MountOptions::default());
            let f = find(&vol, "words.txt").unwrap();
            assert!(read_all(&vol, f) == data, "{algorithm}, after");
            assert!(vol.flags(f).unwrap().flags.contains(FileFlags::COMPRESS));
            end(&dev, &vol);
        }
    }
}

#[test]
fn what_does_not_compress_is_stored_as_it_is() {
    let dev = Arc::new(volume(64));
    let vol = mounted(&dev, &options(&[("compress_extension", "*")]));
    let f = new_file(&vol, vol.root(), "noise");
    let data = pattern(5, 3_000_000);
    write(&vol, f, 0, &data);
    vol.sync().unwrap();
    assert_eq!(vol.compression(f).unwrap().unwrap().saved, 0);
    assert!(read_all(&vol, f) == data);
    end(&dev, &vol);
}

#[test]
fn flags_and_names_say_which_new_files_are_compressed() {
    let dev = Arc::new(volume(64));
    let how = options(&[("compress_extension", "txt"), ("nocompress_extension", "jpg")]);
    let vol = mounted(&dev, &how);
    let set = |ino, flags| vol.set_flags(ino, flags, None);
    let compressed = |ino| vol.compression(ino).unwrap().is_some();
    let d = vol.mkdir(ROOT, vol.root(), b"d", 0o755, 0).unwrap().attr.ino;
    set(d, FileFlags::COMPRESS).unwrap();
    let below = vol.mkdir(ROOT, d, b"below", 0o755, 0).unwrap().attr.ino;
    assert!(compressed(new_file(&vol, below, "any")));
    assert!(!compressed(new_file(&vol, below, "photo.jpg")));
    // The superblock's list marks databases as hot; they are never compressed.
    assert!(!compressed(new_file(&vol, below, "x.db")));
    set(d, FileFlags::NOCOMP).unwrap();
    let never = new_file(&vol, d, "any");
    assert!(!compressed(never) && vol.flags(never).unwrap().flags.contains(FileFlags::NOCOMP));
    assert!(compressed(new_file(&vol, d, "a.txt")));
    let f = new_file(&vol, vol.root(), "plain");
    assert!(!compressed(f));
    set(f, FileFlags::COMPRESS).unwrap();
    assert!(compressed(f));
    assert!(matches!(set(f, FileFlags::COMPRESS | FileFlags::NOCOMP), Err(Error::Invalid(_))));
    vol.set_compression(f, 2, 5).unwrap();
    assert_eq!(vol.compression(f).unwrap().map(|c| (c.name, c.log_cluster)), Some(("zstd", 5)));
    assert!(matches!(vol.set_compression(f, 4, 5), Err(Error::Invalid(_))));
    write(&vol, f, 0, &text(300_000));
    // While it has blocks, it stays compressed.
    assert!(matches!(set(f, FileFlags::empty()), Err(Error::Invalid(_))));
    assert!(matches!(vol.set_compression(f, 1, 2), Err(Error::Invalid(_))));
    let g = new_file(&vol, vol.root(), "small");
    write(&vol, g, 0, b"inside the inode");
    assert!(matches!(set(g, FileFlags::COMPRESS), Err(Error::Invalid(_))));
    size(&vol, f, 0).unwrap();
    set(f, FileFlags::empty()).unwrap();
    write(&vol, f, 0, &text(300_000));
    assert!(!compressed(f));
    end(&dev, &vol);
    let plain = Arc::new(formatted(64, &Options::modern()));
    let vol = mounted(&plain, &MountOptions::default());
    let f = new_file(&vol, vol.root(), "f");
    assert!(matches!(vol.set_flags(f, FileFlags::COMPRESS, None), Err(Error::Unsupported(_))));
}

#[test]
fn released_room_is_free_until_it_is_reserved_and_the_file_stands_still_meanwhile() {
    let dev = Arc::new(volume(64));
    let vol = mounted(&dev, &options(&[("compress_extension", "*")]));
    let f = new_file(&vol, vol.root(), "f");
    assert!(matches!(vol.release_saved(f), Err(Error::NotPermitted(_))), "nothing is saved");
    assert!(matches!(vol.reserve_saved(f), Err(Error::Invalid(_))), "nothing is released");
    let data = text(6_000_000);
    write(&vol, f, 0, &data);
    vol.sync().unwrap();
    let saved = vol.compression(f).unwrap().unwrap().saved;
    let free = || vol.statfs().unwrap().blocks_free;
    let (before, blocks) = (free(), vol.getattr(f).unwrap().blocks512);
    assert_eq!(vol.release_saved(f).unwrap(), saved);
    assert!(matches!(vol.release_saved(f), Err(Error::Invalid(_))));
    assert_eq!((free(), vol.getattr(f).unwrap().blocks512), (before + saved, blocks - saved * 8));
    assert!(read_all(&vol, f) == data);
    vol.sync().unwrap();
    assert_clean(&*dev, "released");
    for refused in [
        vol.write(f, 5, b"x", WriteFlags::empty()).map(drop),
        vol.fallocate(f, Allocate::PunchHole, 0, 100_000),
        vol.fallocate(f, Allocate::Reserve { keep_size: true }, 0, 100_000),
        size(&vol, f, 5000),
        vol.repack(f, false),
    ] {
        assert!(matches!(refused, Err(Error::NotPermitted(_))), "{refused:?}");
    }
    // It may be truncated between two clusters.
    size(&vol, f, 64 * 4 * BLOCK).unwrap();
    let said = vol.compression(f).unwrap().unwrap();
    assert!(said.released && said.saved == 0);
    vol.sync().unwrap();
    assert_clean(&*dev, "cut");
    let again = vol.reserve_saved(f).unwrap();
    assert!(again > 64 && again < saved);
    assert_eq!(vol.compression(f).unwrap().unwrap().saved, again);
    write(&vol, f, 5, b"x");
    let mut want = data[..64 * 4 * 4096].to_vec();
    want[5] = b'x';
    assert!(read_all(&vol, f) == want);
    end(&dev, &vol);
}

#[test]
fn a_released_file_grows_by_whole_clusters_and_none_of_its_clusters_is_written_again() {
    let dev = Arc::new(volume(64));
    let vol = mounted(&dev, &options(&[("compress_extension", "*")]));
    let f = new_file(&vol, vol.root(), "f");
    let mut data = text(1_000_000);
    write(&vol, f, 0, &data);
    vol.sync().unwrap();
    vol.release_saved(f).unwrap();
    vol.sync().unwrap();
    let free = vol.statfs().unwrap().blocks_free;
    // Its end is inside a packed cluster, with zeroes after it.
    size(&vol, f, 64 * 4 * BLOCK).unwrap();
    vol.sync().unwrap();
    assert_eq!(vol.statfs().unwrap().blocks_free, free);
    assert!(vol.compression(f).unwrap().unwrap().released);
    assert_clean(&*dev, "grown");
    data.resize(64 * 4 * 4096, 0);
    assert!(read_all(&vol, f) == data);
    vol.reserve_saved(f).unwrap();
    write(&vol, f, 5, b"x");
    data[5] = b'x';
    vol.sync().unwrap();
    assert!(read_all(&vol, f) == data);
    vol.unmount().unwrap();
    assert_clean(&*dev, "reserved");
}

#[test]
fn releasing_and_deleting_gives_every_block_back() {
    let dev = Arc::new(volume(64));
    let vol = mounted(&dev, &options(&[("compress_extension", "*")]));
    let kept = new_file(&vol, vol.root(), "kept");
    write(&vol, kept, 0, b"something");
    vol.sync().unwrap();
    let free = vol.statfs().unwrap().blocks_free;
    for release in [false, true] {
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &text(5_000_000));
        vol.sync().unwrap();
        if release {
            vol.release_saved(f).unwrap();
        }
        vol.unlink(vol.root(), b"f").unwrap();
        vol.forget(f, 1);
        assert_eq!(vol.statfs().unwrap().blocks_free, free);
    }
    end(&dev, &vol);
}

#[test]
fn reserving_takes_all_of_the_room_or_none() {
    let dev = Arc::new(volume(64));
    let vol = mounted(&dev, &options(&[("compress_extension", "*")]));
    let f = new_file(&vol, vol.root(), "f");
    let data = text(8 << 20);
    write(&vol, f, 0, &data);
    vol.sync().unwrap();
    vol.release_saved(f).unwrap();
    let noise = new_file(&vol, vol.root(), "x.db");
    let mut at = 0;
    while let Ok(n) = vol.write(noise, at, &pattern(at, 1 << 20), WriteFlags::empty()) {
        at += n as u64;
    }
    let before = vol.statfs().unwrap();
    assert!(matches!(vol.reserve_saved(f), Err(Error::NoSpace)));
    assert_eq!(vol.statfs().unwrap(), before);
    assert!(read_all(&vol, f) == data);
    vol.sync().unwrap();
    assert_clean(&*dev, "full");
    size(&vol, noise, 0).unwrap();
    vol.reserve_saved(f).unwrap();
    write(&vol, f, 0, &pattern(3, 8 << 20));
    assert!(read_all(&vol, f) == pattern(3, 8 << 20));
    end(&dev, &vol);
}

#[test]
fn a_full_volume_takes_every_overwrite_of_what_was_compressed() {
    let dev = Arc::new(volume(64));
    let vol = mounted(&dev, &options(&[("compress_extension", "*")]));
    let f = new_file(&vol, vol.root(), "f");
    let mut data = Vec::new();
    loop {
        let more = text(1 << 20);
        match vol.write(f, data.len() as u64, &more, WriteFlags::empty()) {
            Ok(n) => data.extend_from_slice(&more[..n]),
            Err(e) => break assert_eq!(e, Error::NoSpace),
        }
    }
    vol.sync().unwrap();
    let saved = vol.compression(f).unwrap().unwrap().saved;
    assert!(saved * BLOCK > data.len() as u64 / 2);
    // Room was reserved for contents that do not compress.
    let mut rng = Rng::new(1);
    for round in 0..200 {
        let at = rng.below(data.len() as u64 - 200_000);
        let noise = pattern(round, rng.range(1..200_000) as usize);
        write(&vol, f, at, &noise);
        data[at as usize..at as usize + noise.len()].copy_from_slice(&noise);
        if round % 40 == 0 {
            vol.fsync(f, false).unwrap();
        }
    }
    assert!(read_all(&vol, f) == data);
    vol.sync().unwrap();
    assert!(vol.compression(f).unwrap().unwrap().saved < saved);
    end(&dev, &vol);
}

#[test]
fn a_user_packs_and_unpacks_what_is_there() {
    let dev = Arc::new(volume(64));
    let vol = mounted(&dev, &options(&[("compress_extension", "*"), ("compress_mode", "user")]));
    let f = new_file(&vol, vol.root(), "f");
    let data = [text(3_000_000), pattern(1, 50_000), text(2_000_000)].concat();
    write(&vol, f, 0, &data);
    vol.fallocate(f, Allocate::PunchHole, 500_000, 200_000).unwrap();
    let mut data = data;
    data[500_000..700_000].fill(0);
    vol.sync().unwrap();
    assert_eq!(vol.compression(f).unwrap().unwrap().saved, 0);
    vol.repack(f, true).unwrap();
    let saved = vol.compression(f).unwrap().unwrap().saved;
    assert!(saved * BLOCK > 2_500_000, "{saved}");
    assert!(read_all(&vol, f) == data);
    vol.sync().unwrap();
    assert_clean(&*dev, "packed");
    vol.repack(f, false).unwrap();
    assert_eq!(vol.compression(f).unwrap().unwrap().saved, 0);
    assert!(read_all(&vol, f) == data);
    end(&dev, &vol);
}

#[test]
fn a_cluster_that_the_end_cuts_shows_zeroes_when_the_file_grows_again() {
    let dev = Arc::new(volume(64));
    let vol = mounted(&dev, &options(&[("compress_extension", "*")]));
    let data = text(64 * 4096);
    for (k, cut) in [5000, 4096, 3 * 4096, 4 * 4096, 16 * 4096 + 1].into_iter().enumerate() {
        for synced in [false, true] {
            let f = new_file(&vol, vol.root(), &format!("f{k}{synced}"));
            write(&vol, f, 0, &data);
            vol.sync().unwrap();
            size(&vol, f, cut).unwrap();
            if synced {
                vol.sync().unwrap();
                assert_clean(&*dev, "cut");
            }
            size(&vol, f, 100_000).unwrap();
            let mut want = data[..cut as usize].to_vec();
            want.resize(100_000, 0);
            assert!(read_all(&vol, f) == want, "cut at {cut}");
            write(&vol, f, 120_000, b"x");
            want.resize(120_000, 0);
            want.push(b'x');
            assert!(read_all(&vol, f) == want, "cut at {cut}");
        }
    }
    end(&dev, &vol);
}

/// A file and its expected bytes.
struct Pair {
    name: String,
    ino: Ino,
    bytes: Vec<u8>,
}

/// A volume's compressed files and their expected bytes.
struct Lockstep {
    dev: Arc<Memory>,
    vol: Arc<Volume>,
    how: MountOptions,
    rng: Rng,
    files: Vec<Pair>,
    longest: u64,
}

impl Lockstep {
    fn new(mib: u64, seed: u64, longest: u64, how: MountOptions) -> Self {
        let dev = Arc::new(volume(mib));
        let vol = mounted(&dev, &how);
        let mut all = Lockstep { dev, vol, how, rng: Rng::new(seed), files: Vec::new(), longest };
        (0..8).for_each(|k| all.make(k));
        all
    }

    fn make(&mut self, k: usize) {
        let name = format!("f{k}");
        let ino = new_file(&self.vol, self.vol.root(), &name);
        let log = [2, 2, 3, 5, 8][self.rng.index(5)];
        self.vol.set_compression(ino, k as u8 % 4, log).unwrap();
        let pair = Pair { name, ino, bytes: Vec::new() };
        if k < self.files.len() { self.files[k] = pair } else { self.files.push(pair) }
    }

    fn offset(&mut self, len: usize) -> u64 {
        let any = self.rng.below(len as u64 + 70_000).min(self.longest);
        if self.rng.chance(1, 2) { any / BLOCK * BLOCK } else { any }
    }

    fn length(&mut self) -> u64 {
        let most = [10, 5000, 40_000, 300_000, 2_000_000][self.rng.index(5)];
        let len = self.rng.range(1..most);
        if len > BLOCK && self.rng.chance(1, 2) { len / BLOCK * BLOCK } else { len }
    }

    fn step(&mut self) {
        let k = self.rng.index(self.files.len());
        let (ino, len) = (self.files[k].ino, self.files[k].bytes.len());
        let (at, n) = (self.offset(len), self.length());
        let vol = self.vol.clone();
        match self.rng.below(40) {
            0..14 => {
                let mut data = contents(&mut self.rng, n as usize);
                let flags = if self.rng.chance(1, 3) { WriteFlags::FROM_CACHE } else { WriteFlags::empty() };
                match vol.write(ino, at, &data, flags) {
                    Ok(n) => data.truncate(n),
                    Err(e) => return assert_eq!(e, Error::NoSpace, "write of {n} at {at}"),
                }
                let bytes = &mut self.files[k].bytes;
                bytes.resize(len.max(at as usize + data.len()), 0);
                bytes[at as usize..at as usize + data.len()].copy_from_slice(&data);
            }
            14..18 => {
                size(&vol, ino, at).unwrap();
                self.files[k].bytes.resize(at as usize, 0);
            }
            18..24 => {
                let keep_size = self.rng.chance(1, 2);
                let what = match self.rng.below(4) {
                    0 => Allocate::Reserve { keep_size },
                    1 => Allocate::Zero { keep_size },
                    _ => Allocate::PunchHole,
                };
                match vol.fallocate(ino, what, at, n) {
                    Ok(()) => {}
                    // A range zeroed before space ran out already reads as zeroes.
                    Err(Error::NoSpace) if !matches!(what, Allocate::Zero { .. }) => return,
                    Err(Error::NoSpace) => {}
                    Err(e) => panic!("{what:?} at {at}, {n}: {e}"),
                }
                let bytes = &mut self.files[k].bytes;
                let grown = vol.getattr(ino).unwrap().size as usize;
                if !matches!(what, Allocate::Reserve { .. }) {
                    let end = bytes.len().min((at + n) as usize);
                    bytes[(at as usize).min(end)..end].fill(0);
                }
                if what != Allocate::PunchHole && !keep_size {
                    bytes.resize(grown, 0);
                }
            }
            24..28 => {
                let mut have = vec![1; n as usize];
                let got = vol.read(ino, at, &mut have).unwrap();
                let want = &self.files[k].bytes[len.min(at as usize)..len.min((at + n) as usize)];
                assert!(have[..got] == *want, "{}: {n} bytes at {at}", self.files[k].name);
            }
            28 => self.seek(k),
            29..31 => vol.fsync(ino, false).unwrap(),
            31 => vol.sync().unwrap(),
            32 => drop(vol.tick().unwrap()),
            33 => {
                vol.unlink(vol.root(), self.files[k].name.as_bytes()).unwrap();
                vol.forget(ino, 1);
                self.make(k);
            }
            34 => {
                if vol.release_saved(ino).is_ok() {
                    self.compare(k);
                    assert_clean_when_synced(&vol, &self.dev);
                    match vol.reserve_saved(ino) {
                        Ok(_) => {}
                        // The file cannot change any more, so it is replaced by another.
                        Err(e) => {
                            assert_eq!(e, Error::NoSpace);
                            vol.unlink(vol.root(), self.files[k].name.as_bytes()).unwrap();
                            vol.forget(ino, 1);
                            self.make(k);
                        }
                    }
                }
            }
            35 => vol.repack(ino, self.rng.chance(2, 3)).unwrap(),
            36 => self.remount(),
            _ => self.compare(k),
        }
    }

    /// A reported hole reads as zeroes, and `PastEnd` is only returned at the end.
    fn seek(&mut self, k: usize) {
        let Pair { ino, bytes, .. } = &self.files[k];
        let mut at = 0;
        while at < bytes.len() as u64 {
            let data = match self.vol.seek(*ino, at, Seek::Data) {
                Ok(data) => data,
                Err(Error::PastEnd) => bytes.len() as u64,
                Err(e) => panic!("{e}"),
            };
            assert!(bytes[at as usize..data as usize].iter().all(|b| *b == 0), "data in a hole");
            if data == bytes.len() as u64 {
                break;
            }
            at = self.vol.seek(*ino, data, Seek::Hole).unwrap();
            assert!(at > data);
        }
    }

    fn compare(&self, k: usize) {
        let Pair { name, ino, bytes } = &self.files[k];
        let have = read_all(&self.vol, *ino);
        let differs = have.iter().zip(bytes).position(|(a, b)| a != b);
        assert!(have == *bytes, "{name}: {} bytes, want {}, first differing {differs:?}", have.len(), bytes.len());
    }

    fn remount(&mut self) {
        self.vol.audit_segments().unwrap();
        self.vol.unmount().unwrap();
        assert_clean(&*self.dev, "unmounted");
        self.vol = mounted(&self.dev, &self.how);
        for pair in &mut self.files {
            pair.ino = find(&self.vol, &pair.name).unwrap();
        }
        (0..self.files.len()).for_each(|k| self.compare(k));
    }

    fn run(mut self, steps: usize) {
        (0..steps).for_each(|_| self.step());
        self.remount();
        end(&self.dev, &self.vol);
    }
}

fn assert_clean_when_synced(vol: &Volume, dev: &Memory) {
    vol.sync().unwrap();
    assert_clean(dev, "synced");
}

fn all_files() -> MountOptions {
    options(&[("compress_extension", "*")])
}

#[test]
fn whatever_is_done_compressed_files_read_as_plain_bytes_do() {
    for seed in 0..6 {
        Lockstep::new(96, seed, 3_000_000, all_files()).run(900);
    }
}

#[test]
fn with_little_memory_and_urgent_cleaning_too() {
    for seed in 10..13 {
        let how = MountOptions { node_cache: 64, dirty_limit: 64, dir_cache: 16, ..all_files() };
        let all = Lockstep::new(64, seed, 1_500_000, how);
        all.vol.tune("gc_urgent", "1").unwrap();
        all.run(900);
    }
}

#[test]
fn on_a_volume_that_is_full_all_the_time_too() {
    for seed in 20..23 {
        let all = Lockstep::new(56, seed, 5_000_000, all_files());
        let still = new_file(&all.vol, all.vol.root(), "still.db");
        let free = all.vol.statfs().unwrap().blocks_free;
        write(&all.vol, still, 0, &pattern(1, (free as usize - 1500) * 4096));
        all.run(700);
    }
}
