//! A volume on a zoned device: every write to the main area is at the write pointer of its zone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{BlockDevice, Lba, Loss, Memory, PowerCut, Zoned, Zones};
use joulefs_f2fs::gc::settings::Settings;
use joulefs_f2fs::mkfs::{self, Geometry, MkfsError, Options};
use joulefs_f2fs::{Mode, MountError, MountOptions, RollForward, Volume};
use judges::oracle::kernel::Kernel;
use judges::oracle::linux::Linux;
use vfs::{FileSystem, Ino};
use victim::Policy;

use crate::log_rig::*;

fn options(segments: u32) -> Options {
    Options { checkpoint_version: Some(7), uuid: Some([9; 16]), ..Options::modern() }.zoned(segments)
}

/// The number of zones for the tables.
fn conventional(mib: u64, options: &Options) -> u64 {
    let geometry = Geometry::plan(mib * 256, options).unwrap();
    u64::from(geometry.main) / (u64::from(options.segs_per_sec) * 512)
}

fn zoned<D: BlockDevice>(below: D, options: &Options) -> Zoned<D> {
    let conventional = conventional(below.blocks() / 256, options);
    Zoned::new(below, u64::from(options.segs_per_sec) * 512, conventional)
}

fn made(mib: u64, segments: u32) -> Arc<Zoned<Memory>> {
    let options = options(segments);
    let dev = Arc::new(zoned(Memory::new(mib * 256), &options));
    mkfs::format(&*dev, &*clock(), &options).unwrap();
    dev
}

fn appends_for_ever(mib: u64, segments: u32, percent: u64, times: u64) {
    let dev = made(mib, segments);
    let vol = mount(dev.clone());
    let files = fill(&vol, percent);
    overwrite(&vol, &files, files.len() as u64 * 256 * times, 1000);
    assert!(vol.counters.foreground_gc.load(Relaxed) > 0);
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
    let vol = mount(dev.clone());
    overwrite(&vol, &files, 2000, 7_000_000);
    for (k, file) in files.iter().enumerate() {
        vol.unlink(vol.root(), format!("f{k}").as_bytes()).unwrap();
        vol.forget(*file, 1);
    }
    let files = fill(&vol, percent);
    overwrite(&vol, &files, 2000, 9_000_000);
    vol.unmount().unwrap();
    assert_clean(&*dev, "after the second unmount");
    assert_tools_clean(dev.inner());
}

#[test]
fn a_mount_that_prefers_joule_cleans_zones_by_cost_benefit_unless_joule_is_set() {
    let preferring =
        MountOptions { gc: Settings { preferred: Some(Policy::Joule), ..<_>::default() }, ..<_>::default() };
    let mut asked = preferring.clone();
    asked.gc.set("gc", "joule").unwrap();
    let plain = Arc::new(Memory::new(128 * 256));
    mkfs::format(&*plain, &*clock(), &Options::modern()).unwrap();
    let policy = |dev, options| Volume::mount(dev, clock(), options).unwrap().cleaning().policy;
    assert_eq!(policy(made(128, 1), preferring.clone()), Policy::CostBenefit);
    assert_eq!(policy(made(128, 1), asked), Policy::Joule);
    assert_eq!(policy(plain.clone(), preferring.clone()), Policy::Joule);
    assert_eq!(policy(plain, MountOptions { mode: Mode::Lfs, ..preferring }), Policy::CostBenefit);
}

#[test]
fn random_overwrites_of_zones_of_a_segment_never_end() {
    appends_for_ever(192, 1, 95, 2);
}

#[test]
fn random_overwrites_of_zones_of_four_segments_never_end() {
    appends_for_ever(768, 4, 90, 1);
}

#[test]
fn a_full_device_says_so_and_takes_files_again_after_some_went() {
    let dev = made(128, 1);
    let vol = mount(dev.clone());
    let mut n = 0;
    for _ in 0..4 {
        let full = loop {
            let new = vfs::NewNode {
                kind: vfs::FileKind::Regular,
                perm: 0o644,
                umask: 0,
                rdev: vfs::DeviceNumber::default(),
            };
            n += 1;
            let made = vol.mknod(ROOT, vol.root(), format!("f{n}").as_bytes(), &new).and_then(|e| {
                let out = vol.write(e.attr.ino, 0, &pattern(n, CHUNK), vfs::WriteFlags::empty());
                vol.forget(e.attr.ino, 1);
                out
            });
            match made {
                Ok(_) => {}
                Err(e) => break e,
            }
        };
        assert!(matches!(full, vfs::Error::NoSpace), "{full}");
        vol.sync().unwrap();
        assert_clean(&*dev, "full");
        for k in (1..=n).step_by(2) {
            match vol.unlink(vol.root(), format!("f{k}").as_bytes()) {
                Ok(()) | Err(vfs::Error::NotFound) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
}

#[test]
fn threads_that_write_at_once_keep_to_the_pointers() {
    let dev = made(256, 2);
    let vol = mount(dev.clone());
    let files: Vec<Ino> = (0..8).map(|k| new_file(&vol, vol.root(), &format!("t{k}"))).collect();
    std::thread::scope(|s| {
        for (k, ino) in files.iter().enumerate() {
            let vol = &vol;
            s.spawn(move || {
                let mut rng = device::Rng::new(k as u64);
                for round in 0..150u64 {
                    let at = rng.below(1000) * 4096;
                    // Hot, warm and large writes, synced or not.
                    let blocks = [1, 3, 40, 300][rng.index(4)];
                    write(vol, *ino, at, &pattern(round, blocks * 4096));
                    if rng.chance(1, 3) {
                        vol.fsync(*ino, rng.chance(1, 2)).unwrap();
                    }
                }
                write(vol, *ino, 0, &pattern(k as u64, CHUNK));
            });
        }
    });
    for (k, ino) in files.iter().enumerate() {
        assert!(read_all(&vol, *ino)[..CHUNK] == pattern(k as u64, CHUNK));
    }
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
    assert_tools_clean(dev.inner());
}

/// The promise for each file: its contents when last made durable, unless changed since.
type Promises = BTreeMap<String, Option<Vec<u8>>>;

/// Files are created, written, synced and removed, until the power cut.
fn course(vol: &Volume, seed: u64, steps: usize, promised: &mut Promises) -> vfs::Result<()> {
    let mut rng = device::Rng::new(seed);
    let mut have: BTreeMap<String, (Ino, Vec<u8>)> = BTreeMap::new();
    for step in 0..steps {
        let name = format!("f{}", rng.below(6));
        if !have.contains_key(&name) {
            let new = vfs::NewNode {
                kind: vfs::FileKind::Regular,
                perm: 0o644,
                umask: 0,
                rdev: vfs::DeviceNumber::default(),
            };
            promised.insert(name.clone(), None);
            let ino = vol.mknod(ROOT, vol.root(), name.as_bytes(), &new)?.attr.ino;
            have.insert(name.clone(), (ino, Vec::new()));
        }
        let Some((ino, bytes)) = have.get_mut(&name) else { continue };
        match rng.below(12) {
            0 => {
                promised.insert(name.clone(), None);
                let ino = *ino;
                have.remove(&name);
                vol.unlink(vol.root(), name.as_bytes())?;
                vol.forget(ino, 1);
            }
            1 => {
                vol.sync()?;
                for (name, (_, bytes)) in &have {
                    promised.insert(name.clone(), Some(bytes.clone()));
                }
            }
            2..=5 => {
                vol.fsync(*ino, false)?;
                promised.insert(name.clone(), Some(bytes.clone()));
            }
            _ => {
                promised.insert(name.clone(), None);
                let at = rng.below(300) as usize * 4096;
                let data = pattern(seed + step as u64, rng.range(1..200) as usize * 4096);
                bytes.resize(bytes.len().max(at + data.len()), 0);
                bytes[at..at + data.len()].copy_from_slice(&data);
                vol.write(*ino, at as u64, &data, vfs::WriteFlags::empty())?;
            }
        }
    }
    vol.sync()
}

/// Number of logs in the checkpoint that are not at the write pointers of their zones.
fn astray(left: &Arc<Zoned<Memory>>) -> usize {
    let sb = joulefs_f2fs::mount::read_superblock(&**left).unwrap();
    let as_is = MountOptions { roll_forward: RollForward::Leave, ..MountOptions::default() };
    let vol = Volume::mount(left.clone(), clock(), as_is).unwrap();
    let stray = |seg: u32, next: u16| {
        let begin = u64::from(sb.main.0) + u64::from(seg) * 512;
        left.pointer(begin / left.zone_blocks()) != Some(Lba(begin + u64::from(next)))
    };
    vol.state().logs.iter().filter(|(_, seg, next, _)| stray(*seg, *next)).count()
}

/// Mounts what a cut left, checks the promises, and continues: the device refuses nothing.
fn survives(left: Arc<Zoned<Memory>>, promised: &Promises, when: &str) {
    let vol = Volume::mount(left.clone(), clock(), MountOptions::default()).unwrap_or_else(|e| panic!("{when}: {e}"));
    for (name, bytes) in promised.iter().filter_map(|(name, bytes)| Some((name, bytes.as_ref()?))) {
        let ino = find(&vol, name).unwrap_or_else(|| panic!("{when}: {name} is gone"));
        assert!(read_all(&vol, ino) == *bytes, "{when}: {name}");
    }
    let f = new_file(&vol, vol.root(), "after");
    for n in 0..6 {
        write(&vol, f, n * 40 * 4096, &pattern(n, 40 * 4096));
        vol.fsync(f, false).unwrap_or_else(|e| panic!("{when}: {e}"));
    }
    vol.unmount().unwrap_or_else(|e| panic!("{when}: {e}"));
    assert_clean(&*left, when);
}

fn cut_everywhere(segments: u32, mib: u64, seed: u64, step: u64) {
    let options = options(segments);
    let empty = zoned(Memory::new(mib * 256), &options);
    mkfs::format(&empty, &*clock(), &options).unwrap();
    let run = |cut: Option<u64>| {
        let below = Arc::new(PowerCut::new(empty.inner().fork()));
        let dev = Arc::new(empty.after_cut(below.clone(), |_, most| most));
        let vol = mount(dev.clone());
        if let Some(n) = cut {
            below.cut_after(n);
        }
        let mut promised = Promises::new();
        let out = course(&vol, seed, 160, &mut promised);
        assert!(cut.is_some() || out.is_ok(), "{out:?}");
        (below, dev, promised)
    };
    let writes = run(None).0.write_count();
    let (mut cuts, mut strays) = (0, 0);
    for n in (1..writes).step_by(step as usize) {
        let (below, dev, promised) = run(Some(n));
        let mut rng = device::Rng::new(n);
        for loss in [Loss::AllKept, Loss::AllLost, Loss::OnlyLastKept, Loss::AllButFirst, Loss::Random(n)] {
            for how in 0..3 {
                let left = dev.after_cut(below.image(loss), |least, most| match how {
                    0 => least,
                    1 => most,
                    _ => least + rng.below(most.saturating_sub(least) + 1),
                });
                let left = Arc::new(left);
                strays += usize::from(astray(&left) > 0);
                survives(left, &promised, &format!("write {n}, {loss:?}, pointers {how}"));
                cuts += 1;
            }
        }
        let left = dev.after_cut(below.survivors(n), |_, most| most);
        survives(Arc::new(left), &promised, &format!("write {n}, some survive"));
        cuts += 1;
    }
    println!("{writes} writes, {cuts} cuts, {strays} of them left a log astray");
    assert!(cuts > 100 && strays > cuts / 4, "{strays} of {cuts}");
}

#[test]
fn a_power_cut_leaves_what_was_promised_whatever_it_leaves_of_the_pointers() {
    cut_everywhere(1, 96, 3, 9);
}

#[test]
fn a_power_cut_in_zones_of_two_segments_leaves_what_was_promised() {
    cut_everywhere(2, 192, 4, 13);
}

#[test]
fn what_does_not_fit_a_device_is_refused() {
    let plain = Memory::new(64 * 256);
    mkfs::format(&plain, &*clock(), &Options::default()).unwrap();
    // All zones are conventional: nothing of this volume is out of order, but the device still has zones.
    let dev: Arc<dyn BlockDevice> = Arc::new(Zoned::new(plain, 512, 32));
    let refused = Volume::mount(dev.clone(), clock(), MountOptions::default());
    assert!(matches!(refused, Err(MountError::Zones(_))), "{:?}", refused.err());
    Volume::mount(dev, clock(), MountOptions { read_only: true, ..MountOptions::default() }).unwrap();
    let options = options(2);
    let few = Zoned::new(Memory::new(192 * 256), 1024, conventional(192, &options) - 1);
    assert!(matches!(mkfs::format(&few, &*clock(), &options), Err(MkfsError::Zones(_))));
    let other = Zoned::new(Memory::new(192 * 256), 2048, 20);
    assert!(matches!(mkfs::format(&other, &*clock(), &options), Err(MkfsError::Zones(_))));
}

#[test]
fn linux_reads_a_zoned_volume_and_goes_on_with_it() {
    let linux = match Linux::complete() {
        Ok(linux) => linux,
        Err(why) => return testlog::missing(why),
    };
    let (mib, segments) = (256, 2);
    let dev = made(mib, segments);
    let vol = mount(dev.clone());
    let files = fill(&vol, 60);
    overwrite(&vol, &files, 4000, 1000);
    vol.unmount().unwrap();
    let zone = dev.zone_blocks();
    let conventional = dev.conventional();
    // Each zone is written up to the same point: the write pointers are the same there.
    let mut copies = format!("copy 0 {}\n", conventional * zone);
    for n in conventional..dev.blocks() / zone {
        let Lba(end) = dev.pointer(n).unwrap();
        if end > n * zone {
            copies += &format!("copy {} {}\n", n * zone, end - n * zone);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    dev.inner().save(&image).unwrap();
    let script = format!(
        "load null_blk; mount -t configfs config /sys/kernel/config
        N=/sys/kernel/config/nullb/zone; mkdir $N; echo {conventional} >$N/zone_nr_conv
        echo {mib} >$N/size; echo 1 >$N/memory_backed; echo 1 >$N/zoned; echo {} >$N/zone_size; echo 4096 >$N/blocksize
        echo 1 >$N/power; cat /sys/block/zone/queue/zoned
        copy() {{ dd if=/dev/$DISK of=/dev/zone bs=4k skip=$1 seek=$1 count=$2 oflag=direct conv=notrunc 2>/dev/null; }}
        {copies}
        fsck.f2fs --dry-run /dev/zone >/tmp/fsck || {{ cat /tmp/fsck; exit 1; }}
        mount -t f2fs /dev/zone $MNT; cd $MNT
        for n in 1 2 3; do for f in f1 f2 f3 f4 f5 f6; do
            dd if=/dev/urandom of=$f bs=4k count=200 conv=notrunc,fsync 2>/dev/null
        done; done
        cat f0 | cksum; cat f7 | cksum
        cd /; umount $MNT
        fsck.f2fs --dry-run /dev/zone >/tmp/fsck || {{ cat /tmp/fsck; exit 1; }}
        grep -E 'Fail|ASSERT' /tmp/fsck || echo sound",
        segments * 2
    );
    let kernel = Kernel::of(linux).without_mount().memory_mib(768).timeout(std::time::Duration::from_secs(300));
    let run = kernel.run(&image, &script).expect_ok();
    run.assert_no_f2fs_complaints();
    println!("{}", run.stdout);
    assert!(run.stdout.contains("host-managed") && run.stdout.contains("sound"), "{}", run.stdout);
    let vol = vol_again(&dev);
    for file in [0, 7] {
        let host = dir.path().join("host");
        std::fs::write(&host, read_all(&vol, files[file])).unwrap();
        let sum = std::process::Command::new("cksum").stdin(std::fs::File::open(&host).unwrap()).output().unwrap();
        let sum = String::from_utf8(sum.stdout).unwrap();
        assert!(run.stdout.contains(sum.trim()), "f{file}: {sum}");
    }
}

fn vol_again(dev: &Arc<Zoned<Memory>>) -> Arc<Volume> {
    Volume::mount(dev.clone(), clock(), MountOptions { read_only: true, ..MountOptions::default() }).unwrap()
}
