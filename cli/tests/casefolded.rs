//! Names in case-folded directories: Linux 6.12 created and filled `casefold.img.zst`, with an inline directory `small`
//! and a directory `large` of 700 names.

use std::fs;
use std::path::Path;

use crate::program::run;
use crate::room::Room;

fn image(room: &Room) -> String {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/fixtures/casefold.img.zst");
    let mut bytes = vec![0; 64 << 20];
    let n = ruzstd::decoding::FrameDecoder::new().decode_all(&fs::read(packed).unwrap(), &mut bytes).unwrap();
    bytes.truncate(n);
    fs::write(room.path("v.img"), bytes).unwrap();
    room.text("v.img")
}

#[test]
fn a_name_is_found_however_its_letters_are_written() {
    let room = Room::new();
    let image = image(&room);
    let holds = |name: &str| {
        let out = run(&["cat", &format!("{image}:/{name}")]);
        out.status.success().then(|| String::from_utf8(out.stdout).unwrap())
    };
    for name in ["small/Straße", "small/STRASSE", "SMALL/strasse"] {
        let is = if name.starts_with("SMALL") { None } else { Some("contents of Straße".to_owned()) };
        assert_eq!(holds(name), is, "{name}: the root directory does not fold");
    }
    assert_eq!(holds("small/a\u{30a}ngstro\u{308}m").as_deref(), Some("contents of ÅNGSTRÖM"));
    assert_eq!(holds("small/A\u{323}\u{301}").as_deref(), Some("contents of a\u{301}\u{323}"));
    assert_eq!(holds("small/SOFT").as_deref(), Some("contents of so\u{ad}ft"));
    assert_eq!(holds("small/plains"), None);
    for n in (0..700).step_by(23) {
        assert_eq!(holds(&format!("large/EINTRAG-ÄO\u{308}ü-{n:03}")), Some(n.to_string()));
    }
    assert_eq!(holds("large/EINTRAG-ÄÖÜ-700"), None);
}

#[test]
fn a_volume_with_casefolded_directories_is_copied_whole() {
    let room = Room::new();
    let image = image(&room);
    let out = run(&["cp", "-r", &format!("{image}:/"), &room.text("out")]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(fs::read_dir(room.path("out/large")).unwrap().count(), 700);
    assert_eq!(fs::read_dir(room.path("out/small")).unwrap().count(), 6);
    for n in 0..700 {
        assert_eq!(fs::read_to_string(room.path(&format!("out/large/Eintrag-ÄÖÜ-{n:03}"))).unwrap(), n.to_string());
    }
}
