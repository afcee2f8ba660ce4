//! Small updates stored in inodes and delta nodes are recovered with their files.

use std::sync::Arc;

use f2fs::mkfs;
use format::superblock::Features;
use format::{BLOCK, Ino};
use joulefs_rescue::Options;
use vfs::{FileSystem, WriteFlags};

use crate::rig::{self, change, file, mount_to_read, search, superblock, volume, wipe};

const FILES: usize = 20;

fn bytes(seed: usize) -> Vec<u8> {
    let mut out = vec![0; (4 + seed) * BLOCK];
    device::Rng::new(seed as u64).fill(&mut out);
    out
}

/// A volume with files whose pages had small changes after a checkpoint; the files' numbers and contents.
fn with_deltas() -> (device::Memory, Vec<(Ino, Vec<u8>)>) {
    let options =
        mkfs::Options { features: mkfs::Options::modern().features | Features::DELTA, ..mkfs::Options::default() };
    let mut files = Vec::new();
    let dev = volume(64, &options, |vol| {
        for n in 0..FILES {
            let contents = bytes(n);
            let ino = file(vol, vol.root(), &format!("f{n}"), &contents);
            files.push((Ino(ino.0 as u32), contents));
        }
    });
    let dev = change(Arc::new(dev), |vol| {
        for (n, (ino, contents)) in files.iter_mut().enumerate() {
            for page in 0..4 {
                let at = page * BLOCK + 10 * n;
                contents[at] ^= 0xFF;
                vol.write(vfs::Ino(ino.0.into()), at as u64, &contents[at..=at], WriteFlags::empty()).unwrap();
            }
            vol.fsync(vfs::Ino(ino.0.into()), false).unwrap();
        }
        assert_eq!(vol.count_deltas().unwrap().deltas, 4 * FILES as u64);
    });
    (dev, files)
}

/// One file as read by rescue; an error for each block that it cannot recover.
fn rescued(dev: &device::Memory, ino: Ino, blocks: usize) -> Vec<Result<Vec<u8>, String>> {
    let rescue = search(dev, &Options::default());
    let mut file = rescue.file(ino).unwrap().unwrap();
    let mut block = [0; BLOCK];
    (0..blocks as u64)
        .map(|at| file.read_block(at, &mut block).map(|()| block.to_vec()).map_err(|e| e.to_string()))
        .collect()
}

#[test]
fn files_with_deltas_come_back_without_superblock_checkpoint_and_nat() {
    let (dev, files) = with_deltas();
    wipe(&dev);
    for (ino, contents) in &files {
        let found: Vec<u8> = rescued(&dev, *ino, contents.len() / BLOCK).into_iter().flat_map(Result::unwrap).collect();
        assert!(found == *contents, "inode {ino}");
    }
}

#[test]
fn a_block_whose_delta_does_not_fit_is_reported_and_not_read_as_older_contents() {
    let (dev, files) = with_deltas();
    let (ino, contents) = &files[3];
    let base = {
        let vol = mount_to_read(Arc::new(dev.fork()));
        let at = vol.inode_address(*ino).unwrap();
        let block = rig::read(&dev, at.0.into());
        let raw = format::inode::RawInode::of(&block);
        u64::from(raw.addr(raw.divide(superblock(&dev).features).unwrap(), 1).0)
    };
    let mut block = rig::read(&dev, base);
    block[99] ^= 1;
    rig::write(&dev, base, &block);
    wipe(&dev);
    for (at, found) in rescued(&dev, *ino, contents.len() / BLOCK).into_iter().enumerate() {
        match at {
            1 => assert!(found.unwrap_err().contains("does not fit")),
            _ => assert!(found.unwrap() == contents[at * BLOCK..(at + 1) * BLOCK], "block {at}"),
        }
    }
}

/// A long file that was fsynced often, each time with some bytes of some pages changed, and that finally grew; its
/// number and contents. The power failed after the last fsync.
fn with_delta_nodes() -> (device::Memory, Ino, Vec<u8>) {
    let options =
        mkfs::Options { features: mkfs::Options::modern().features | Features::DELTA, ..mkfs::Options::default() };
    let mut contents = bytes(2000);
    let dev = Arc::new(volume(64, &options, |vol| {
        // A sample of inodes gives the seed of their checksums.
        for n in 0..FILES {
            file(vol, vol.root(), &format!("f{n}"), &bytes(n));
        }
        file(vol, vol.root(), "long", &contents);
    }));
    let vol = rig::mount(dev.clone());
    let ino = vol.lookup(vol.root(), b"long").unwrap().attr.ino;
    for turn in 1..7_u8 {
        for page in [2, 5, 900, 1800] {
            for at in (page * BLOCK..(page + 1) * BLOCK).step_by(31) {
                contents[at] ^= turn;
                vol.write(ino, at as u64, &contents[at..=at], WriteFlags::empty()).unwrap();
            }
        }
        let end = contents.len();
        contents.extend(bytes(0));
        vol.write(ino, end as u64, &contents[end..], WriteFlags::empty()).unwrap();
        vol.fsync(ino, false).unwrap();
        if turn == 3 {
            vol.sync().unwrap();
        }
    }
    assert!(vol.count_deltas().unwrap().deltas >= 4);
    (dev.fork(), Ino(ino.0 as u32), contents)
}

/// The delta nodes among the blocks of an image, the newest version of each last.
fn delta_nodes(dev: &device::Memory, ino: Ino) -> Vec<u64> {
    let of = |at: &u64| format::node::delta::owner(&rig::read(dev, *at)).is_some_and(|(owner, _)| owner == ino);
    (u64::from(superblock(dev).main.0)..device::BlockDevice::blocks(dev)).filter(of).collect()
}

#[test]
fn files_with_delta_nodes_come_back_as_their_last_fsync_left_them() {
    let (dev, ino, contents) = with_delta_nodes();
    assert!(delta_nodes(&dev, ino).len() > 3);
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    let file = rescue.file(ino).unwrap().unwrap();
    assert_eq!(file.raw().i_size.get(), contents.len() as u64);
    let verdict = rescue.verdict(&file).unwrap();
    assert!(verdict.is_proved(), "{verdict:?}");
    let found: Vec<u8> =
        rescued(&dev, ino, contents.len() / BLOCK).into_iter().flat_map(|page| page.unwrap()).collect();
    assert!(found == contents);
}

#[test]
fn a_file_whose_newest_delta_nodes_are_damaged_is_not_proved() {
    let (dev, ino, contents) = with_delta_nodes();
    for at in delta_nodes(&dev, ino) {
        let mut block = rig::read(&dev, at);
        block[3000] ^= 1;
        rig::write(&dev, at, &block);
    }
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    let file = rescue.file(ino).unwrap().unwrap();
    let verdict = rescue.verdict(&file).unwrap();
    assert!(!verdict.is_proved(), "{verdict:?}");
    // Pages without a delta are recovered.
    let found = rescued(&dev, ino, 2);
    assert!(found.into_iter().flat_map(Result::unwrap).eq(contents[..2 * BLOCK].iter().copied()));
}

#[test]
fn a_file_of_whose_delta_nodes_the_newest_version_alone_is_damaged_is_not_proved() {
    let (dev, ino, _) = with_delta_nodes();
    let newest = *delta_nodes(&dev, ino).last().unwrap();
    let mut block = rig::read(&dev, newest);
    block[3000] ^= 1;
    rig::write(&dev, newest, &block);
    wipe(&dev);
    let rescue = search(&dev, &Options::default());
    let verdict = rescue.verdict(&rescue.file(ino).unwrap().unwrap()).unwrap();
    assert!(verdict.doubts.iter().any(|d| d.contains("delta node")), "{verdict:?}");
}

#[test]
fn a_block_that_a_delta_node_holds_whole_comes_back_though_the_node_with_its_address_is_gone() {
    use f2fs::delta::{Places, Study};
    let options =
        mkfs::Options { features: mkfs::Options::modern().features | Features::DELTA, ..mkfs::Options::default() };
    let mut contents = bytes(1000);
    let dev = Arc::new(volume(64, &options, |vol| {
        for n in 0..FILES {
            file(vol, vol.root(), &format!("f{n}"), &bytes(n));
        }
        file(vol, vol.root(), "long", &contents);
    }));
    // Writes entries that hold whole blocks.
    let delta_study = Study { alone: true, longest: 3000, ..Study::default() };
    let how = f2fs::MountOptions { delta_study, delta_places: Places::Nodes, ..f2fs::MountOptions::default() };
    let clock = Arc::new(device::VirtualClock::new(device::Time::new(1_700_000_000, 0)));
    let vol = f2fs::Volume::mount(dev.clone(), clock, how).unwrap();
    let long = vol.lookup(vol.root(), b"long").unwrap().attr.ino;
    let packed = [950, 951, 960, 970];
    for page in packed {
        let text: Vec<u8> = (0..BLOCK).map(|i| (i / 40 * page) as u8).collect();
        contents[page * BLOCK..(page + 1) * BLOCK].copy_from_slice(&text);
        vol.write(long, (page * BLOCK) as u64, &text, WriteFlags::empty()).unwrap();
    }
    vol.fsync(long, false).unwrap();
    assert_eq!(vol.count_deltas().unwrap().deltas, packed.len() as u64);
    vol.unmount().unwrap();
    let (dev, ino) = (dev.fork(), Ino(long.0 as u32));
    let mut gone = 0;
    for at in u64::from(superblock(&dev).main.0)..device::BlockDevice::blocks(&dev) {
        let f = format::node::footer(&rig::read(&dev, at));
        if f.ino == ino && matches!(format::node::kind_of(f.offset), format::node::NodeKind::Direct { .. }) {
            rig::write(&dev, at, &[0; BLOCK]);
            gone += 1;
        }
    }
    assert!(gone > 0);
    wipe(&dev);
    let found = rescued(&dev, ino, contents.len() / BLOCK);
    let right = |at: usize| found[at].as_deref() == Ok(&contents[at * BLOCK..(at + 1) * BLOCK]);
    assert!((0..800).chain(packed).all(right));
    assert!(found[955].as_ref().is_err_and(|e| e.contains("is missing")), "{:?}", found[955]);
    // A reader that skips missing blocks finds the packed ones behind them.
    let rescue = search(&dev, &Options::default());
    let mut file = rescue.file(ino).unwrap().unwrap();
    file.lenient = true;
    let next = |file: &mut joulefs_rescue::RescuedFile<'_>, at: u64| file.next_data(at, 1004).unwrap();
    assert_eq!([next(&mut file, 940), next(&mut file, 951), next(&mut file, 971)], [Some(950), Some(951), None]);
}
