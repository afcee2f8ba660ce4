//! What happens if the host has no room for everything that the volume has accepted?
//!
//! A checkpoint makes everything accepted before durable, and changes that may need room are refused. Left out: how
//! much room that needs ([`crate::host_room`]).

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use device::HostRoom;
use device::host_room::Change as Room;

use super::Volume;
use crate::error::{Error, Result};
use crate::host_room::BROUGHT;
use crate::pack::Reason;

impl Volume {
    /// Makes sure that the host has room for a change. The caller holds no lock except those of
    /// [`crate::inode::Steps`].
    pub(crate) fn check_host_room(&self, change: Room) -> Result<()> {
        let Some(room) = &self.ctx.options.host_room else { return Ok(()) };
        let covered = || room.covers(self.files.debt(self.files.writers.brought()) + BROUGHT, change);
        if room.shortage().is_none() && covered() {
            return Ok(());
        }
        self.relieve(room, !covered())?;
        let refused = (change == Room::Takes && room.is_short()) || !covered();
        if refused { Err(Error::no_space()) } else { Ok(()) }
    }

    /// Makes everything accepted durable: at the start of each shortage, and whenever the ballast does not cover more.
    fn relieve(&self, room: &HostRoom, is_uncovered: bool) -> Result<()> {
        let shortage = room.shortage().unwrap_or(0);
        let is_new = shortage > self.relieved.load(Acquire);
        if is_new || is_uncovered {
            self.cleaning.checkpoint(Reason::Running)?;
        }
        if is_new {
            self.relieved.fetch_max(shortage, AcqRel);
        }
        Ok(())
    }

    /// Checks the host again; at the start of a shortage makes everything durable.
    pub(crate) fn watch_host_room(&self) -> Result<()> {
        let Some(room) = &self.ctx.options.host_room else { return Ok(()) };
        room.renew();
        if room.is_short() { self.relieve(room, false) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::host_room::Limited;
    use device::{BlockDevice, Memory, Retained, Rng, Time, VirtualClock};
    use vfs::{FileSystem, Ino, WriteFlags};

    use super::*;
    use crate::MountOptions;
    use crate::rig::{blocks, file, read, try_file};

    type Host = Arc<Limited<Arc<Memory>>>;

    const MIB: u64 = 256;

    /// A volume on a sparse image of 512 MiB, on a host with this many free bytes after mkfs.
    fn mounted(free: u64) -> (Arc<Memory>, Host, Arc<HostRoom>, Arc<Volume>) {
        let memory = Arc::new(Memory::new(512 * MIB));
        let host = Arc::new(Limited::new(memory.clone(), 512 * MIB));
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        crate::mkfs::format(&*host, &*clock, &crate::mkfs::Options::default()).unwrap();
        host.leave_free(free);
        let room = Arc::new(HostRoom::new(host.host()));
        let dev = Arc::new(Retained::new(host.clone(), 64 << 20).with_room(room.clone()));
        let options = MountOptions { host_room: Some(room.clone()), ..MountOptions::default() };
        let vol = Volume::mount(dev, clock, options).unwrap();
        (memory, host, room, vol)
    }

    /// Unmounts and checks that the medium is a valid volume with exactly these files of this kind.
    fn judge(memory: &Arc<Memory>, vol: &Volume, files: &[(String, Vec<u8>)]) {
        vol.unmount().unwrap();
        let report = fsck::check(&**memory, &fsck::Options::default()).unwrap();
        assert!(report.is_clean(), "{:?}", report.errors().take(4).collect::<Vec<_>>());
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        let vol = Volume::mount(memory.clone(), clock, MountOptions::default()).unwrap();
        for (name, contents) in files {
            let ino = vol.lookup(vol.root(), name.as_bytes()).unwrap().attr.ino;
            assert!(read(&vol, ino) == *contents, "{name}");
        }
        vol.unmount().unwrap();
    }

    /// Writes a file as far as it is accepted; returns the accepted part.
    fn put(vol: &Volume, name: &str, contents: &[u8]) -> Option<Vec<u8>> {
        let ino = try_file(vol, vol.root(), name).ok()?;
        let mut done = 0;
        while done < contents.len() {
            match vol.write(ino, done as u64, &contents[done..], WriteFlags::empty()) {
                Ok(n) => done += n,
                Err(e) => {
                    assert_eq!(e, vfs::Error::NoSpace);
                    break;
                }
            }
        }
        vol.forget(ino, 1);
        Some(contents[..done].to_vec())
    }

    #[test]
    fn what_was_accepted_before_the_host_filled_is_there_after_an_unmount_and_more_is_refused() {
        let (memory, host, room, vol) = mounted(100 * MIB);
        let mut files = Vec::new();
        for n in 0..40 {
            let name = format!("before{n}");
            files.push((name.clone(), put(&vol, &name, &blocks(50)).unwrap()));
        }
        host.leave_free(0);
        // The shortage is still unnoticed; the first write detects it, and later ones are refused.
        let mut refused = 0;
        for n in 0..400 {
            let name = format!("after{n}");
            match put(&vol, &name, &blocks(50)) {
                Some(accepted) => files.push((name, accepted)),
                None => refused += 1,
            }
        }
        assert!(refused > 100 && room.is_short());
        assert_eq!(vol.statfs().unwrap().blocks_available, 0);
        // Existing files can be removed and truncated.
        vol.unlink(vol.root(), b"before0").unwrap();
        vol.setattr(
            vol.lookup(vol.root(), b"before1").unwrap().attr.ino,
            &vfs::SetAttr { size: Some(5), ..Default::default() },
        )
        .unwrap();
        files[1].1.truncate(5);
        judge(&memory, &vol, &files[1..]);
    }

    #[test]
    fn a_volume_takes_changes_again_when_the_host_has_room_again() {
        let (memory, host, room, vol) = mounted(100 * MIB);
        let mut files = vec![("a".to_owned(), put(&vol, "a", &blocks(300)).unwrap())];
        host.leave_free(0);
        vol.sync().unwrap();
        assert!(room.is_short());
        assert_eq!(try_file(&vol, vol.root(), "b"), Err(vfs::Error::NoSpace));
        vol.tick().unwrap();
        assert_eq!(try_file(&vol, vol.root(), "b"), Err(vfs::Error::NoSpace));
        host.leave_free(100 * MIB);
        vol.tick().unwrap();
        files.push(("b".to_owned(), put(&vol, "b", &blocks(300)).unwrap()));
        assert_eq!(files[1].1.len(), 300 * 4096);
        judge(&memory, &vol, &files);
    }

    #[test]
    fn removing_files_makes_room_on_the_host() {
        let (memory, host, room, vol) = mounted(64 * MIB);
        let big = put(&vol, "big", &blocks(30 * 256)).unwrap();
        let small = put(&vol, "small", &blocks(10)).unwrap();
        vol.sync().unwrap();
        host.leave_free(0);
        while put(&vol, "other", &blocks(1)).is_some() && !room.is_short() {
            vol.unlink(vol.root(), b"other").unwrap();
            vol.sync().unwrap();
        }
        assert_eq!(big.len(), 30 << 20);
        vol.unlink(vol.root(), b"big").unwrap();
        // A checkpoint frees its segments and discards them.
        vol.sync().unwrap();
        vol.tick().unwrap();
        assert!(!room.is_short(), "{room:?}, {} blocks free", host.free());
        assert_eq!(put(&vol, "more", &blocks(1000)).unwrap().len(), 1000 * 4096);
        judge(&memory, &vol, &[("small".to_owned(), small)]);
    }

    #[test]
    fn whatever_is_done_while_the_host_fills_and_empties_nothing_accepted_is_lost() {
        for seed in 0..12 {
            let mut rng = Rng::new(seed);
            let (memory, host, _, vol) = mounted(5 * MIB + rng.below(60 * MIB));
            let mut files: Vec<(String, Vec<u8>)> = Vec::new();
            for n in 0..300 {
                match rng.below(10) {
                    0..6 => {
                        let name = format!("f{n}");
                        let most = if rng.chance(1, 8) { 2000 } else { 40 };
                        let size = 1 + rng.index(most);
                        files.extend(put(&vol, &name, &blocks(size)).map(|accepted| (name, accepted)));
                    }
                    6 if !files.is_empty() => {
                        let (name, _) = &files[rng.index(files.len())];
                        if vol.unlink(vol.root(), name.as_bytes()).is_ok() {
                            let name = name.clone();
                            files.retain(|(n, _)| *n != name);
                        }
                    }
                    7 if !files.is_empty() => {
                        let n = rng.index(files.len());
                        let ino: Ino = vol.lookup(vol.root(), files[n].0.as_bytes()).unwrap().attr.ino;
                        let at = rng.index(files[n].1.len() / 4096 + 1) * 4096;
                        if let Ok(done) = vol.write(ino, at as u64, &[9; 4096], WriteFlags::empty()) {
                            let end = (at + done).max(files[n].1.len());
                            files[n].1.resize(end, 0);
                            files[n].1[at..at + done].fill(9);
                        }
                    }
                    8 => host.leave_free(if rng.chance(1, 2) { 0 } else { rng.below(40 * MIB) }),
                    _ => _ = vol.tick().unwrap(),
                }
            }
            host.leave_free(0);
            judge(&memory, &vol, &files);
        }
    }

    #[test]
    fn many_writers_at_once_share_what_the_host_has() {
        let (memory, host, _, vol) = mounted(40 * MIB);
        let files: Vec<(String, Vec<u8>)> = std::thread::scope(|s| {
            let writers: Vec<_> = (0..8)
                .map(|n| {
                    let vol = &vol;
                    s.spawn(move || {
                        let name = format!("f{n}");
                        let accepted = put(vol, &name, &blocks(8 * 256));
                        accepted.map(|accepted| (name, accepted))
                    })
                })
                .collect();
            writers.into_iter().filter_map(|writer| writer.join().unwrap()).collect()
        });
        let bytes: usize = files.iter().map(|(_, contents)| contents.len()).sum();
        assert!((20 << 20..=40 << 20).contains(&bytes), "{bytes} bytes on a host with 40 MiB");
        host.leave_free(0);
        judge(&memory, &vol, &files);
    }

    #[test]
    fn without_ballast_accepted_files_would_be_lost() {
        // The assumption of the other tests.
        let (memory, host, _, vol) = mounted(100 * MIB);
        vol.unmount().unwrap();
        drop(vol);
        let clock = Arc::new(VirtualClock::new(Time::new(1_700_000_000, 0)));
        let vol = Volume::mount(host.clone() as Arc<dyn BlockDevice>, clock, MountOptions::default()).unwrap();
        let f = file(&vol, "f");
        vol.write(f, 0, &blocks(50), WriteFlags::empty()).unwrap();
        host.leave_free(0);
        assert!(vol.unmount().is_err());
        drop(memory);
    }
}
