//! Memory is sparse, copies are cheap and independent, and files preserve the contents.

use std::os::unix::fs::MetadataExt;

use device::{BLOCK, BlockDevice, Lba, Memory, Rng, Tag};

const TAG: Tag = Tag { cause: 0, owner: 0 };

#[test]
fn a_tebibyte_costs_nothing_until_written() {
    let memory = Memory::new((1 << 40) / BLOCK as u64);
    assert_eq!(memory.allocated_bytes(), 0);
    memory.write(Lba(memory.blocks() - 1), &[7; BLOCK], TAG).unwrap();
    memory.write(Lba(0), &[7; BLOCK], TAG).unwrap();
    assert_eq!(memory.allocated_bytes(), 2 * 65536);
    memory.discard(Lba(0), memory.blocks(), TAG).unwrap();
    let mut buf = [1; BLOCK];
    memory.read(Lba(memory.blocks() - 1), &mut buf, TAG).unwrap();
    assert_eq!(buf, [0; BLOCK]);
    assert_eq!(memory.allocated_bytes(), 0);
}

#[test]
fn a_fork_and_its_origin_do_not_see_each_others_writes() {
    let a = Memory::new(100);
    a.write(Lba(10), &[1; 20 * BLOCK], TAG).unwrap();
    let b = a.fork();
    assert!(a.same_as(&b));
    a.write(Lba(11), &[2; BLOCK], TAG).unwrap();
    b.write(Lba(16), &[3; 16 * BLOCK], TAG).unwrap();
    b.discard(Lba(10), 1, TAG).unwrap();
    let at = |m: &Memory, block| {
        let mut buf = [0; BLOCK];
        m.read(Lba(block), &mut buf, TAG).unwrap();
        assert!(buf.iter().all(|x| *x == buf[0]));
        buf[0]
    };
    assert_eq!([10, 11, 16, 29, 31].map(|n| at(&a, n)), [1, 2, 1, 1, 0]);
    assert_eq!([10, 11, 16, 29, 31].map(|n| at(&b, n)), [0, 1, 3, 3, 3]);
    assert_eq!(a.first_difference(&b), Some(Lba(10)));
    assert_eq!(a.first_difference(&Memory::new(5)), Some(Lba(5)));
}

#[test]
fn a_saved_image_loads_the_same_and_stays_sparse() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let memory = Memory::new(50_000);
    let mut rng = Rng::new(5);
    for _ in 0..40 {
        let mut block = [0; BLOCK];
        rng.fill(&mut block);
        memory.write(Lba(rng.below(50_000)), &block, TAG).unwrap();
    }
    memory.write(Lba(49_999), &[1; BLOCK], TAG).unwrap();
    memory.save(&path).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), 50_000 * 4096);
    assert!(meta.blocks() * 512 < 4 << 20, "{} bytes on disk", meta.blocks() * 512);
    let loaded = Memory::load(&path).unwrap();
    assert_eq!(loaded.first_difference(&memory), None);
    assert!(loaded.allocated_bytes() <= memory.allocated_bytes());
}
