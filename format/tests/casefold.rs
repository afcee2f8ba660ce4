//! Names fold as Linux folds them.
//!
//! `casefold_linux.txt.zst` holds the hash and the bytes (in hexadecimal) of names that Linux 6.12 created in a casefolded
//! directory: single characters of every script, changed and unchanged by folding, assigned before and after Unicode
//! 12.1, and random sequences of letters, marks and ignorable characters. The hash is that of the folded name.

use std::io::Read;

use joulefs_format::casefold::Sought;

#[test]
fn thousands_of_names_have_the_hash_that_linux_gave_them() {
    let packed: &[u8] = include_bytes!("casefold_linux.txt.zst");
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(packed).unwrap().read_to_string(&mut text).unwrap();
    let mut names = 0;
    for line in text.lines() {
        let (hash, hex) = line.split_once(' ').unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let name: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let ours = Sought::new(&name).hash;
        assert_eq!(format!("{ours:08x}"), hash, "{hex} {:?}", String::from_utf8_lossy(&name));
        names += 1;
    }
    assert!(names > 3000, "{names}");
}
