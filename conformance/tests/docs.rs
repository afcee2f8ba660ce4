//! The documents speak of files that exist.

use std::path::Path;

#[test]
fn every_path_named_in_the_documents_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let rooms = ["cli/", "conformance/", "device/", "docs/", "f2fs/", "format/", "fuse/", "scripts/", "vfs/"];
    let mut missing = Vec::new();
    let mut seen = 0;
    for document in ["README.md", "ARCHITECTURE.md"] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        for word in text.split(|c: char| c.is_whitespace() || "`()[],|".contains(c)) {
            let word = word.trim_end_matches(['.', ':']);
            if rooms.iter().any(|r| word.starts_with(r)) {
                seen += 1;
                if !root.join(word).exists() {
                    missing.push(format!("{document}: {word}"));
                }
            }
        }
    }
    assert!(seen > 20, "the search for paths finds only {seen}");
    assert!(missing.is_empty(), "{missing:#?}");
}
