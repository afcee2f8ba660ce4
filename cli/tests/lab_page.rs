//! The page of `joulefs lab report` says what `joulefs lab papers --json` says, without a script and without anything from
//! outside, at a phone's width too: in a browser, where there is one.

mod room;
mod typed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use room::Room;
use serde_json::Value;
use typed::{done, misused};

const CHECK: &str = include_str!("lab_page/check.js");

fn browser() -> Option<PathBuf> {
    ["/usr/bin/chromium", "/usr/bin/google-chrome"].map(PathBuf::from).into_iter().find(|p| p.exists())
}

/// What the check says of a page in a window of a width, given what `papers --json` printed; none without a browser.
fn looked_at(room: &Room, html: &str, said: &str, width: u32) -> Option<String> {
    let Some(browser) = browser() else {
        println!("skipped: no Chromium (scripts/install-tools browser): the page was not looked at");
        return None;
    };
    let checked = room.path(&format!("checked-{width}.html"));
    let (before, after) = html.rsplit_once("</body>").unwrap();
    let data = said.replace('<', "\\u003c");
    let given = format!("<script id=\"given\" type=\"application/json\">{data}</script><script>{CHECK}</script>");
    fs::write(&checked, format!("{before}{given}</body>{after}")).unwrap();
    // A window cannot be as narrow as a phone's: a frame can.
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
    let dom = String::from_utf8_lossy(&ran.stdout).into_owned();
    Some(dom.split_once("<body").map_or(dom.clone(), |(_, said)| said.to_owned()))
}

#[track_caller]
fn is_right(room: &Room, html: &str, said: &str, width: u32) {
    if let Some(found) = looked_at(room, html, said, width) {
        assert!(found.contains("right: "), "at {width} pixels:\n{found}");
        println!("looked at in {width} pixels:{}", found.split_once('>').map_or(&*found, |(_, s)| s.trim_end()));
    }
}

#[test]
fn a_page_of_what_is_kept_says_what_json_says_and_stands_alone() {
    let room = Room::new();
    let page = room.text("page.html");
    done(&["lab", "report", "--output", &page]);
    let said = done(&["--json", "lab", "papers"]);
    let value: Value = serde_json::from_str(&said).unwrap();
    let html = fs::read_to_string(&page).unwrap();
    let outside = ["src=", "@import", "url(", "<link", "<script", "http-equiv"];
    let found: Vec<_> = outside.into_iter().filter(|o| html.contains(o)).collect();
    assert!(found.is_empty(), "the page fetches: {found:?}");
    let numbers: usize =
        value["papers"].as_array().unwrap().iter().map(|p| p["numbers"].as_array().unwrap().len()).sum();
    assert_eq!(html.matches("<td class=\"what\">").count(), numbers);
    for width in [1300, 400] {
        is_right(&room, &html, &said, width);
    }
}

#[test]
fn a_page_of_a_result_has_its_plots_and_scrolls_nowhere() {
    let room = Room::new();
    let results = room.text("results");
    done(&["lab", "run", "microdrive-table31", "--results", &results]);
    done(&["lab", "run", "fagc-fig4", "--quick", "--results", &results]);
    done(&["lab", "report", "--results", &results]);
    let html = fs::read_to_string(Path::new(&results).join("report.html")).unwrap();
    assert!(html.matches("<svg").count() >= 6 && html.contains("A quick run"), "no plots");
    // A quick run puts no number in the place of a kept one.
    let said = done(&["--json", "lab", "papers", "--results", &results]);
    assert_eq!(said, done(&["--json", "lab", "papers"]));
    is_right(&room, &html, &said, 400);
}

#[test]
fn a_wrong_number_and_a_wide_page_are_found() {
    let room = Room::new();
    let page = room.text("page.html");
    done(&["lab", "report", "--output", &page]);
    let said = done(&["--json", "lab", "papers"]);
    let html = fs::read_to_string(&page).unwrap();
    let other = said.replacen("\"published\": \"7.64 mJ\"", "\"published\": \"7.65 mJ\"", 1);
    assert!(other != said, "no 7.64 mJ");
    if let Some(found) = looked_at(&room, &html, &other, 1300) {
        assert!(found.contains("WRONG") && found.contains("7.65"), "{found}");
    }
    let wide = html.replacen("<main>", "<main><div style=\"width:900px\">x</div>", 1);
    if let Some(found) = looked_at(&room, &wide, &said, 400) {
        assert!(found.contains("WRONG") && found.contains("scrolls"), "{found}");
    }
}

#[test]
fn papers_are_chosen_by_word_and_verdict() {
    let scherl = done(&["lab", "papers", "--paper", "scherl"]);
    assert!(scherl.contains("7.64 mJ") && !scherl.contains("MedFS"), "{scherl}");
    let contradicting = done(&["lab", "papers", "--verdict", "contradicts"]);
    assert!(contradicting.contains("✗ contradicts") && !contradicting.contains("✓"), "{contradicting}");
    misused(&["lab", "papers", "--paper", "nobody"], &["nobody", "Scherl 2004"]);
    misused(&["lab", "papers", "--verdict", "maybe"], &["maybe", "contradicts"]);
}
