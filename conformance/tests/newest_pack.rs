//! The newest checkpoint pack with valid checksums counts, whatever its fields contain: no field makes a mount silently
//! use the older one, and wrong fields are repaired.
//!
//! Every field of the checkpoint gets impossible or wrong values, under valid checksums. Linux and `fsck.f2fs` check
//! what was refused and what was repaired.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use device::{BLOCK, BlockDevice, Lba, Memory, Tag};
use f2fs::{CheckpointChoice, MountError, MountOptions, Volume, mkfs};
use format::checkpoint;
use format::crc;
use format::superblock::{Features, SuperBlock};
use judges::damage::{block, clock};
use judges::fields::{self, Field};
use judges::oracle::kernel::Kernel;
use judges::oracle::tools::assert_fsck_clean;
use vfs::{Caller, FileKind, FileSystem, Flow, NewNode, WriteFlags};

const BEFORE: &[&str] = &["a", "b"];
const ALL: &[&str] = &["a", "b", "c", "d", "e"];

fn write(vol: &Volume, name: &str) {
    let new = NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: Default::default() };
    let ino = vol.mknod(Caller::default(), vol.root(), name.as_bytes(), &new).unwrap().attr.ino;
    for n in 0..40 {
        vol.write(ino, n * BLOCK as u64, &[name.as_bytes()[0]; BLOCK], WriteFlags::empty()).unwrap();
    }
}

/// A volume whose newest checkpoint has five files and whose older one has two.
fn volume(features: Features) -> Memory {
    let mem = Arc::new(Memory::new(16 << 10));
    let options = mkfs::Options { features, ..mkfs::Options::default() };
    mkfs::format(&*mem, &*clock(), &options).unwrap();
    for names in [&["a", "b"][..], &["c", "d", "e"]] {
        let vol = Volume::mount(mem.clone(), clock(), MountOptions::default()).unwrap();
        names.iter().for_each(|name| write(&vol, name));
        vol.unmount().unwrap();
    }
    mem.fork()
}

fn mount(image: &Memory, checkpoint: CheckpointChoice) -> Result<Arc<Volume>, MountError> {
    Volume::mount(Arc::new(image.fork()), clock(), MountOptions { checkpoint, ..MountOptions::default() })
}

fn names(vol: &Volume) -> Vec<String> {
    let mut out = Vec::new();
    vol.readdir(vol.root(), 0, &mut |e| {
        out.push(String::from_utf8_lossy(e.name).into_owned());
        Flow::Continue
    })
    .unwrap();
    out.retain(|name| !name.starts_with('.') && name != "lost+found");
    out.sort();
    out
}

/// Checks that every file exists with its contents.
fn whole(vol: &Volume, name: &str) {
    assert_eq!(names(vol), ALL, "{name}");
    for file in ALL {
        let attr = vol.lookup(vol.root(), file.as_bytes()).unwrap().attr;
        let mut bytes = vec![0; 40 * BLOCK];
        assert_eq!(vol.read(attr.ino, 0, &mut bytes).unwrap(), bytes.len());
        assert!(bytes.iter().all(|b| *b == file.as_bytes()[0]), "{name}: {file}");
        vol.forget(attr.ino, 1);
    }
}

/// First block and number of blocks of the newest pack.
fn newest(image: &Memory) -> (u64, u64) {
    let cp = u64::from(SuperBlock::check(&block(image, 0)).unwrap().cp.0);
    let version = |at: &u64| checkpoint::version(&block(image, *at)).unwrap();
    let at = if version(&(cp + 512)) > version(&cp) { cp + 512 } else { cp };
    (at, checkpoint::pack_blocks(&block(image, at)).unwrap().into())
}

/// The value of a field in a checkpoint's head.
fn said(head: &format::Block, name: &str) -> u64 {
    let field = fields::of("RawCheckpoint").into_iter().find(|field| field.name == name).expect(name);
    fields::get(head, &field)
}

/// Sets a field of the newest pack, in head and tail, under valid checksums. False if these cannot be valid.
fn forge(image: &Memory, field: &Field, value: u64) -> bool {
    let (at, blocks) = newest(image);
    let mut head = block(image, at);
    fields::put(&mut head[..], field, value);
    let sum_at = said(&head, "checksum_offset") as usize;
    if !(checkpoint::BITMAPS..=checkpoint::CHECKSUM_OFFSET as usize).contains(&sum_at) {
        return false;
    }
    let mut sum = crc::crc32(crc::SEED, &head[..sum_at]);
    if sum_at + 4 < BLOCK {
        sum = crc::crc32(sum, &head[sum_at + 4..]);
    }
    head[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
    for at in [at, at + blocks - 1] {
        image.write(Lba(at), &*head, Tag::default()).unwrap();
    }
    true
}

/// Fields that decide whether a pack is complete, and which of two is newer, as Linux does.
fn decides_wholeness(field: &Field, value: u64) -> bool {
    match field.name.as_str() {
        "checkpoint_ver" => true,
        // The tail is expected elsewhere.
        "cp_pack_total_block_count" => (3..=512).contains(&value),
        _ => false,
    }
}

/// Every value to try, with its name.
fn cases(image: &Memory) -> Vec<(Field, u64)> {
    let (at, _) = newest(image);
    let sb = SuperBlock::check(&block(image, 0)).unwrap();
    let head = block(image, at);
    let main = u64::from(sb.main_segs);
    let near = [main - 1, main, main * 512 - 1, main * 512, 512, 511, said(&head, "valid_block_count") - 1];
    let logs = [said(&head, "cur_node_segno[0]"), said(&head, "cur_data_segno[1]")];
    let mut out = Vec::new();
    for field in fields::of("RawCheckpoint") {
        let now = fields::get(&head[..], &field);
        let mut values = fields::values(field.width, now);
        let most = u64::MAX >> (64 - 8 * field.width as u32);
        values.extend(near.iter().chain(&logs).copied().filter(|v| *v <= most && *v != now));
        values.sort_unstable();
        values.dedup();
        out.extend(values.into_iter().map(|value| (field.clone(), value)));
    }
    out
}

/// The result of a case.
struct Refused {
    name: String,
    forged: Memory,
    repaired: Memory,
}

fn judge(base: &Memory, field: &Field, value: u64, dir: &Path) -> Option<Refused> {
    let image = base.fork();
    if !forge(&image, field, value) {
        return None;
    }
    let name = format!("{}={value:#x}", field.name);
    let checked = fsck::check(&image, &fsck::Options::default()).unwrap();
    let why = match mount(&image, CheckpointChoice::Newest) {
        Ok(vol) => {
            let seen = names(&vol);
            // The flags define how the rest of the pack is read: other flags change its meaning.
            let read_otherwise = field.name == "ckpt_flags" && seen != BEFORE && !checked.is_clean();
            let torn = decides_wholeness(field, value) && seen == BEFORE;
            assert!(seen == ALL || read_otherwise || torn, "{name}: {seen:?}");
            return None;
        }
        Err(why) => why,
    };
    assert!(!checked.is_clean(), "{name}: refused ({why}), and clean for fsck");
    if field.name == "ckpt_flags" {
        return None;
    }
    if let MountError::Checkpoint { .. } = why {
        let text = why.to_string();
        let words = ["joulefs fsck --repair", "joulefs rescue", "--checkpoint older"];
        assert!(words.iter().all(|word| text.contains(word)), "{name}: {text}");
        let older = mount(&image, CheckpointChoice::Older).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(names(&older), BEFORE, "{name}");
        assert!(older.read_only(), "{name}");
    }
    let forged = image.fork();
    match fsck::repair(&image, &fsck::Options::default()) {
        // The checksum itself has overwritten the bitmaps of the valid table copies.
        Err(fsck::RepairError::NotRepairable { .. }) if field.name == "checksum_offset" => return None,
        Err(e) => panic!("{name}: {e}\n{checked}"),
        Ok(_) => {}
    }
    let after = fsck::check(&image, &fsck::Options::default()).unwrap();
    assert!(after.is_clean(), "{name}: {after}");
    whole(&mount(&image, CheckpointChoice::Newest).unwrap_or_else(|e| panic!("{name}: after repair: {e}")), &name);
    let path = dir.join("image");
    image.save(&path).unwrap();
    assert_fsck_clean(&path);
    Some(Refused { name, forged, repaired: image })
}

/// Checks many images with Linux: `None` if it refuses one, otherwise the names in it.
fn asked_of_linux(images: &[(String, &Memory)]) -> Vec<Option<String>> {
    let dir = tempfile::tempdir().unwrap();
    let mut script = String::from("load loop\nmkdir -p /tmp/n\n");
    for (n, (_, image)) in images.iter().enumerate() {
        let path = dir.path().join(n.to_string());
        image.save(&path).unwrap();
        let path = path.canonicalize().unwrap();
        writeln!(
            script,
            "losetup -r /dev/loop0 /tmp/h{}; if mount -t f2fs -o ro /dev/loop0 /tmp/n; then ls -I lost+found /tmp/n >$OUT/{n}; \
             umount /tmp/n; fi; losetup -d /dev/loop0",
            path.display()
        )
        .unwrap();
    }
    let none = dir.path().join("none");
    std::fs::File::create(&none).unwrap().set_len(1 << 20).unwrap();
    let run = Kernel::new().without_mount().run(&none, &script).expect_ok();
    let answer = |n: usize| std::fs::read_to_string(run.out().join(n.to_string())).ok();
    (0..images.len()).map(|n| answer(n).map(|names| names.split_whitespace().collect::<Vec<_>>().join(" "))).collect()
}

fn no_field_hides_the_newest_checkpoint(features: Features) {
    let base = volume(features);
    whole(&mount(&base, CheckpointChoice::Newest).unwrap(), "undamaged");
    assert_eq!(names(&mount(&base, CheckpointChoice::Older).unwrap()), BEFORE);
    let dir = tempfile::tempdir().unwrap();
    let cases = cases(&base);
    let refused: Vec<Refused> =
        cases.iter().filter_map(|(field, value)| judge(&base, field, *value, dir.path())).collect();
    println!("{} of {} values were refused and repaired", refused.len(), cases.len());
    assert!(refused.len() > 60, "{}", refused.len());
    // One value of each field, or all of them.
    let deep = std::env::var_os("JOULEFS_DEEP").is_some();
    let field = |name: &str| name.split(['=', '[']).next().unwrap_or_default().to_owned();
    let mut asked: Vec<&Refused> = Vec::new();
    for case in &refused {
        if deep || asked.iter().all(|known| field(&known.name) != field(&case.name)) {
            asked.push(case);
        }
    }
    let images: Vec<(String, &Memory)> = asked
        .iter()
        .flat_map(|case| [(format!("{} forged", case.name), &case.forged), (case.name.clone(), &case.repaired)])
        .collect();
    for ((name, _), answer) in images.iter().zip(asked_of_linux(&images)) {
        match name.ends_with("forged") {
            // Linux ignores some errors; it never uses the older checkpoint, except for an impossible number of blocks,
            // which it considers torn.
            true if name.starts_with("cp_pack_total_block_count") => {}
            true => assert!(answer.as_deref().is_none_or(|seen| seen == ALL.join(" ")), "{name}: {answer:?}"),
            false => assert_eq!(answer, Some(ALL.join(" ")), "{name}"),
        }
    }
}

#[test]
fn no_field_of_the_newest_checkpoint_hides_it_on_a_plain_volume() {
    no_field_hides_the_newest_checkpoint(mkfs::Options::default().features);
}

#[test]
fn no_field_of_the_newest_checkpoint_hides_it_on_a_volume_with_modern_features() {
    no_field_hides_the_newest_checkpoint(mkfs::Options::modern().features);
}

#[test]
fn the_older_checkpoint_counts_again_once_a_repair_has_given_the_newest_one_up() {
    let image = volume(mkfs::Options::default().features);
    let options = fsck::Options { older_checkpoint: true, ..fsck::Options::default() };
    let report = fsck::check(&image, &options).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(names(&mount(&image, CheckpointChoice::Newest).unwrap()), ALL, "a check gives nothing up");
    let done = fsck::repair(&image, &options).unwrap();
    assert!(done.actions.iter().any(|a| matches!(a, fsck::Action::NewestGivenUp { .. })), "{:?}", done.actions);
    assert_eq!(names(&mount(&image, CheckpointChoice::Newest).unwrap()), BEFORE);
    assert!(matches!(fsck::check(&image, &fsck::Options::default()), Ok(after) if after.is_clean()));
    let dir = tempfile::tempdir().unwrap();
    image.save(dir.path().join("image")).unwrap();
    assert_fsck_clean(&dir.path().join("image"));
}

#[test]
fn without_an_older_checkpoint_there_is_none_to_ask_for() {
    let image = volume(mkfs::Options::default().features);
    let (at, _) = newest(&image);
    let cp = u64::from(SuperBlock::check(&block(&image, 0)).unwrap().cp.0);
    image.write(Lba(if at == cp { cp + 512 } else { cp }), &[0; BLOCK], Tag::default()).unwrap();
    let why = mount(&image, CheckpointChoice::Older).err().expect("no older one");
    assert!(matches!(why, MountError::NoOlder(_)), "{why}");
    let options = fsck::Options { older_checkpoint: true, ..fsck::Options::default() };
    assert!(fsck::repair(&image, &options).is_err());
    assert_eq!(names(&mount(&image, CheckpointChoice::Newest).unwrap()), ALL);
}
