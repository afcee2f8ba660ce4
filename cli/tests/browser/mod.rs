//! Renders a page in a browser, if one is installed, and checks it with a script of the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::room::Room;

/// What a test without [`browser`] lacks.
pub const MISSING: &str = "Chromium: scripts/install-tools browser";

/// The browser.
pub fn browser() -> Option<PathBuf> {
    ["/usr/bin/chromium", "/usr/bin/google-chrome"].map(PathBuf::from).into_iter().find(|p| p.exists())
}

/// Opens a page in a browser window of the given width, and runs a check in it that stores its result as the text of
/// `#checked`; fails if that does not begin with "right: ".
pub fn looked_at(room: &Room, page: &Path, width: u32, check: &str) {
    let Some(browser) = browser() else {
        return testlog::missing(MISSING);
    };
    let checked = room.path(&format!("checked-{width}.html"));
    let text = fs::read_to_string(page).unwrap();
    let (before, after) = text.rsplit_once("</body>").unwrap();
    fs::write(&checked, format!("{before}<script>{check}</script></body>{after}")).unwrap();
    // A frame can be as narrow as a phone; a window cannot.
    let frame = room.path(&format!("frame-{width}.html"));
    let name = checked.file_name().unwrap().to_str().unwrap();
    fs::write(
        &frame,
        format!(
            "<!doctype html><body style='margin:0'><iframe id=f src='{name}' style='border:0;width:{width}px;height:2000px'></iframe>
            <script>const wait = setInterval(() => {{
                const at = document.getElementById('f').contentDocument.getElementById('checked');
                if (at) {{ clearInterval(wait); document.title = 'done'; document.body.textContent = at.textContent; }}
            }}, 50);</script>"
        ),
    )
    .unwrap();
    let ran = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--allow-file-access-from-files"])
        .args(["--virtual-time-budget=60000", "--window-size=1300,2000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", room.text(&format!("profile-{width}"))))
        .arg(format!("file://{}", frame.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&ran.stdout);
    let said = dom.split("<body").nth(1).unwrap_or(&dom);
    assert!(said.contains("right: "), "at {width} pixels:\n{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    println!("looked at in {width} pixels:{}", said.split_once('>').map_or(said, |(_, s)| s.trim_end()));
}
