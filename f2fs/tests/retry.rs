//! A checkpoint fails at any of its requests, then a power cut at any write of the next attempt.

use std::sync::Arc;

use device::{Fault, Faulty, Loss, Memory, Op, PowerCut};
use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use vfs::{FileSystem, WriteFlags};

use crate::log_rig::*;

/// More than fits in the journals of NAT and SIT: their blocks are written, too.
const FILES: usize = 1000;

type Device = Arc<Faulty<Arc<PowerCut>>>;

/// A volume with files made durable and all changed since; and its device.
fn changed(base: &Memory) -> (Device, Arc<Volume>) {
    let dev: Device = Arc::new(Faulty::new(Arc::new(PowerCut::new(base.fork()))));
    let vol = mount(dev.clone());
    for n in 0..FILES {
        let ino = vol.lookup(vol.root(), format!("f{n}").as_bytes()).unwrap().attr.ino;
        write(&vol, ino, 0, format!("second {n}").as_bytes());
    }
    (dev, vol)
}

/// True if all files have their second contents, false if all have their first.
fn second(vol: &Volume) -> Result<bool, String> {
    let mut all = Vec::new();
    for n in 0..FILES {
        let ino = vol.lookup(vol.root(), format!("f{n}").as_bytes()).map_err(|e| e.to_string())?.attr.ino;
        let mut data = [0; 32];
        let len = vol.read(ino, 0, &mut data).map_err(|e| e.to_string())?;
        match std::str::from_utf8(&data[..len]).ok().and_then(|text| text.split_once(' ')) {
            Some((word, number)) if number == n.to_string() => all.push(word == "second"),
            _ => return Err(format!("f{n} holds {:?}", &data[..len])),
        }
    }
    if all.iter().all(|one| *one == all[0]) { Ok(all[0]) } else { Err("some are old and some new".into()) }
}

fn holds_second(image: &Memory) -> Result<bool, String> {
    let report = fsck::check(image, &fsck::Options::default()).map_err(|e| e.to_string())?;
    if !report.is_clean() {
        return Err(format!("{:?}", report.errors().take(3).collect::<Vec<_>>()));
    }
    second(&mount_copy(image))
}

#[test]
fn a_failed_checkpoint_leaves_the_last_one_whole_until_another_attempt_is_durable() {
    let base = Arc::new(formatted(64, &Options::modern()));
    let vol = mount(base.clone());
    for n in 0..FILES {
        let ino = new_file(&vol, vol.root(), &format!("f{n}"));
        write(&vol, ino, 0, format!("first {n}").as_bytes());
    }
    vol.unmount().unwrap();

    // Number of requests in a successful checkpoint.
    let (dev, vol) = changed(&base);
    let before = [Op::Write, Op::Flush].map(|op| dev.requests(op));
    vol.sync().unwrap();
    let needed = [Op::Write, Op::Flush].map(|op| dev.requests(op) - before[usize::from(op == Op::Flush)]);
    assert!(needed[0] > 6 && needed[1] == 2, "{needed:?}");

    let (mut cuts, mut succeeded) = (0, 0);
    for (op, n) in (0..needed[0]).map(|n| (Op::Write, n)).chain((0..needed[1]).map(|n| (Op::Flush, n))) {
        for cut in 0.. {
            let (dev, vol) = changed(&base);
            let first = dev.requests(op) + 1 + n;
            dev.add(Fault::Nth { op, requests: first..first + 1 });
            vol.sync().expect_err("a request failed");
            assert_eq!(second(&vol), Ok(true), "{op:?} {n}: readers go on");
            let refused = vol.write(vol.root(), 0, b"x", WriteFlags::empty());
            assert!(refused.is_err(), "{op:?} {n}: changes are taken");
            let power = dev.inner();
            assert_eq!(holds_second(&power.image(Loss::AllLost)), Ok(false), "{op:?} {n}: the last checkpoint");
            power.cut_after(power.write_count() + 1 + cut);
            let done = vol.sync();
            for loss in [Loss::AllKept, Loss::AllLost, Loss::LastTorn(3), Loss::Reversed, Loss::OnlyLastKept] {
                let found = holds_second(&power.image(loss));
                let found =
                    found.unwrap_or_else(|e| panic!("{op:?} {n}, cut at write {cut} of the retry, {loss}: {e}"));
                assert!(found || done.is_err(), "{op:?} {n}, cut {cut}, {loss}: what was synced is lost");
            }
            cuts += 1;
            if done.is_ok() {
                power.cut_after(u64::MAX);
                let ino = new_file(&vol, vol.root(), "once more");
                write(&vol, ino, 0, b"x");
                vol.unmount().unwrap();
                assert_eq!(holds_second(&power.image(Loss::AllLost)), Ok(true));
                succeeded += 1;
                break;
            }
        }
    }
    assert_eq!(succeeded, needed[0] + needed[1]);
    assert!(cuts > 50, "{cuts} cuts");
}
