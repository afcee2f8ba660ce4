//! Extended attributes and access control lists as Linux 6.1 wrote them: inodes after `setfattr` and `setfacl`, and
//! what new inodes inherited.

use format::acl::{self, Acl};
use format::xattr::{self, index};

/// Bytes of the inline area of a plain inode.
const INLINE: usize = 200;

/// An inline xattr area that begins with the given hexadecimal bytes.
fn area(hex: &str) -> Vec<u8> {
    let mut out: Vec<u8> = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
    out.resize(INLINE, 0);
    out
}

const HEADER: &str = "1120f5f2010000000000000000000000000000000000000000";

fn file() -> Vec<u8> {
    area(
        &[
            &HEADER[..48],
            "01030300666f6f62617200",
            "0004020e00743161206c6f6e6765722076616c7565",
            "01050000656d707479000000",
            "02002c000100000001000600020001000700000002000600e8030000040004000800040032000000100007002000",
            "04",
        ]
        .concat(),
    )
}

const DEFAULT_ACL: &str = "010000000100070002000700e80300000400050008000500320000001000070020000500";
const FILE_ACL: &str = "010000000100060002000700e80300000400050008000500320000001000060020000400";

#[test]
fn a_list_of_linux_is_read_and_encoded_again_bit_for_bit() {
    let area = file();
    let read = xattr::entries(&area).unwrap();
    let full: Vec<_> = read.iter().map(|e| xattr::full_name(e.index, e.name).unwrap()).collect();
    assert_eq!(full, [&b"user.foo"[..], b"trusted.t1", b"user.empty", b"system.posix_acl_access"].map(<[u8]>::to_vec));
    assert_eq!(read[1].value, b"a longer value");
    assert_eq!(read[2].value, b"");
    let again: Vec<_> = read.iter().map(|e| (e.index, e.name, e.value)).collect();
    assert!(xattr::encode(&again, INLINE).unwrap() == area);
}

#[test]
fn the_same_calls_give_the_same_bytes() {
    let acl = "u::rw-,u:7:--x,u:1000:rw-,g::r--,g:50:r--,m::rwx,o::r--";
    let stored = xattr::get(&file(), index::ACL_ACCESS, b"").unwrap().unwrap().to_vec();
    assert_eq!(Acl::from_disk(&stored).unwrap().to_string(), acl);
    let mut ours = Vec::new();
    for (name, value) in [
        (&b"user.foo"[..], &b"bar"[..]),
        (b"trusted.t1", b"a longer value"),
        (b"user.empty", b""),
        (b"system.posix_acl_access", &stored),
    ] {
        let (index, rest) = xattr::split_name(name).unwrap();
        ours = xattr::set(&ours, index, rest, Some(value), INLINE).unwrap().unwrap();
    }
    assert!(ours == file());
}

#[test]
fn access_control_lists_of_linux_are_valid_and_encoded_again_bit_for_bit() {
    let file = file();
    let file = xattr::get(&file, index::ACL_ACCESS, b"").unwrap().unwrap();
    let [default, child] = [DEFAULT_ACL, FILE_ACL].map(|hex| area(hex)[..36].to_vec());
    for disk in [file, &default, &child] {
        let acl = Acl::from_disk(disk).unwrap();
        acl.valid().unwrap();
        let wire = acl::from_disk(disk).unwrap();
        assert_eq!(wire.len(), 4 + 8 * acl.entries.len());
        assert_eq!(acl::to_disk(&wire).unwrap(), disk);
    }
    assert_eq!(Acl::from_disk(file).unwrap().equivalent_mode(), (0o674, false));
}

#[test]
fn new_inodes_inherit_what_linux_let_them_inherit() {
    let default = Acl::from_disk(&area(DEFAULT_ACL)[..36]).unwrap();
    // `touch` under a umask of 022, which the default list overrides.
    let file = acl::inherit(Some(&default), 0o100_666, 0o022);
    assert_eq!(file.mode, 0o100_664);
    assert_eq!(file.access.unwrap().to_disk(), area(FILE_ACL)[..36]);
    assert_eq!(file.default, None);
    let dir = acl::inherit(Some(&default), 0o040_777, 0o022);
    assert_eq!(dir.mode, 0o040_775);
    assert_eq!((dir.access.unwrap(), dir.default.unwrap()), (default.clone(), default));
}

#[test]
fn a_list_may_fill_its_area_to_the_last_byte_as_in_linux() {
    // The longest values that Linux accepted for user.x: inside the inode, and with the xattr node.
    for (most, capacity) in [(171, INLINE), (4243, xattr::capacity(INLINE, true))] {
        let fit = |len: usize| xattr::encode(&[(index::USER, b"x", &vec![1; len])], capacity);
        let full = fit(most).unwrap();
        assert_eq!(xattr::get(&full, index::USER, b"x").unwrap().map(<[u8]>::len), Some(most));
        assert_eq!(xattr::get(&full, index::USER, b"y").unwrap(), None);
        assert_eq!(fit(most + 1), None);
    }
    assert_eq!(xattr::max_value(INLINE), 4244);
}
