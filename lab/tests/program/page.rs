//! The page of `joulefs lab report` has the same contents as `joulefs lab papers --json`, without scripts or external
//! resources, also at a phone's width. Checked in a browser if one is installed.

use std::fs;
use std::path::{Path, PathBuf};

use device::energy::Energy;
use serde_json::Value;

use crate::browser;
use crate::room::Room;
use crate::typed::{done, misused};

const CHECK: &str = include_str!("lab_page/check.js");

/// Checks a page in a browser window of this width against the output of `papers --json`.
fn looked_at(room: &Room, page: &Path, said: &str, width: u32) {
    let given = said.replace('<', "\\u003c");
    browser::looked_at(room, page, width, &format!("const GIVEN = {given};\n{CHECK}"));
}

/// What the check finds wrong with a page; nothing without a browser.
fn found(room: &Room, html: &str, said: &str, width: u32) -> Option<String> {
    browser::browser()?;
    let page = room.path("wrong.html");
    fs::write(&page, html).unwrap();
    let seen = std::panic::catch_unwind(|| looked_at(room, &page, said, width)).expect_err("nothing is found");
    Some(seen.downcast_ref::<String>().unwrap().clone())
}

#[test]
fn a_page_of_what_is_kept_says_what_json_says_and_stands_alone() {
    let room = Room::new();
    let page = room.path("page.html");
    done(&["report", "--output", page.to_str().unwrap()]);
    let said = done(&["--json", "papers"]);
    let value: Value = serde_json::from_str(&said).unwrap();
    let html = fs::read_to_string(&page).unwrap();
    let outside = ["src=", "@import", "url(", "<link", "<script", "http-equiv"];
    let found: Vec<_> = outside.into_iter().filter(|o| html.contains(o)).collect();
    assert!(found.is_empty(), "the page fetches: {found:?}");
    let numbers: usize =
        value["papers"].as_array().unwrap().iter().map(|p| p["numbers"].as_array().unwrap().len()).sum();
    assert_eq!(html.matches("<td class=\"what\">").count(), numbers);
    for width in [1300, 400] {
        looked_at(&room, &page, &said, width);
    }
}

#[test]
fn a_page_of_a_result_has_its_plots_and_scrolls_nowhere() {
    let room = Room::new();
    let results = room.text("results");
    done(&["run", "microdrive-table31", "--results", &results]);
    done(&["run", "fagc-fig4", "--quick", "--results", &results]);
    done(&["report", "--results", &results]);
    let page = PathBuf::from(&results).join("report.html");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.matches("<svg").count() >= 6 && html.contains("A quick run"), "no plots");
    // Each phase that spent energy has a flame graph by file, and shows the cost of each file.
    let result: Value = {
        let dir = PathBuf::from(&results).join("fagc-fig4");
        let file = fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    };
    let sum = |rows: &Value, of: &dyn Fn(&Value) -> bool| -> u64 {
        rows.as_array().unwrap().iter().filter(|r| of(r)).map(|r| r["pj"].as_u64().unwrap()).sum()
    };
    let mut files = 0;
    for phase in result["variants"].as_array().unwrap().iter().flat_map(|v| v["phases"].as_array().unwrap()) {
        let all = sum(&phase["spent"], &|_| true);
        let name = phase["name"].as_str().unwrap();
        assert!(html.contains(&format!(", {name}: {}, 100.0 % of all</title>", Energy(all))), "{name}");
        for (owner, path) in phase["files"].as_object().unwrap() {
            let file = Energy(sum(&phase["owned"], &|r| r["owner"].as_u64() == owner.parse().ok()));
            let last = path.as_str().unwrap().rsplit('/').next().unwrap();
            if file.0 * 20 > all && last != "deleted" && !last.is_empty() {
                assert!(html.contains(&format!("<title>{last}: {file}, ")), "{name}: {path} {file}");
                files += 1;
            }
        }
    }
    assert!(files >= 4, "{files} files are drawn");
    // A quick run does not replace a stored number.
    let said = done(&["--json", "papers", "--results", &results]);
    assert_eq!(said, done(&["--json", "papers"]));
    looked_at(&room, &page, &said, 400);
}

/// Small requests, dispersed less and more; the names of variants are not HTML.
const PLAN: &str = "title = \"t\"\nkind = \"dispersal\"\nprofile = \"galaxy-nexus-emmc\"\n\
    [parameters]\nvolume_mib = 256\nfile_mib = 64\nregions_mib = [16]\nrequests = 100\non = \"f2fs\"\n\
    [[variant]]\nname = \"first\"\n[[variant]]\nname = \"same\"\n[[variant]]\nname = \"<i>twice</i>\"\nrequests = 200\n";

#[test]
fn a_page_of_a_result_has_each_difference_to_the_control_with_interval_and_verdict() {
    let room = Room::new();
    let (dir, results) = (room.path("mine"), room.text("results"));
    fs::create_dir(&dir).unwrap();
    for (file, text) in [("README.md", "# mine\n\nA claim.\n"), ("plan.toml", PLAN), ("paper.csv", "")] {
        fs::write(dir.join(file), text).unwrap();
    }
    let said = done(&["--json", "run", dir.to_str().unwrap(), "--seeds", "3", "--results", &results]);
    let said: Value = serde_json::from_str(&said).unwrap();
    done(&["report", "--results", &results]);
    let page = PathBuf::from(&results).join("report.html");
    let html = fs::read_to_string(&page).unwrap();
    let compared = said[0]["outcome"]["comparison"].as_array().unwrap();
    let words = |n: usize| compared[n]["verdict"].as_str().unwrap();
    assert_eq!([words(0), words(1)], ["control", "did nothing"]);
    let percent = |of: &Value| format!("{:+.1}%", of.as_f64().unwrap());
    let limits = |of: &Value| format!("{} to {}", percent(&of[0]), percent(&of[1]));
    let twice = &compared[2];
    let row = format!(
        "<td>&lt;i&gt;twice&lt;/i&gt;</td><td>first</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td>{}</td>",
        Energy(twice["mean_pj"].as_u64().unwrap()),
        percent(&twice["difference_percent"]),
        limits(&twice["interval_percent"]),
        limits(&twice["price_range_percent"]),
        words(2),
    );
    assert!(html.contains(&row), "no {row}");
    assert!(html.contains("equal seeds: 1, 2, 3.") && !html.contains("<i>twice"), "seeds or names");
    assert!(html.contains("did nothing<br><span class=\"note\">the results are equal to the last picojoule</span>"));
    looked_at(&room, &page, &done(&["--json", "papers"]), 400);
}

#[test]
fn a_wrong_number_and_a_wide_page_are_found() {
    let room = Room::new();
    let page = room.text("page.html");
    done(&["report", "--output", &page]);
    let said = done(&["--json", "papers"]);
    let html = fs::read_to_string(&page).unwrap();
    let other = said.replacen("\"published\": \"7.64 mJ\"", "\"published\": \"7.65 mJ\"", 1);
    assert!(other != said, "no 7.64 mJ");
    if let Some(found) = found(&room, &html, &other, 1300) {
        assert!(found.contains("WRONG") && found.contains("7.65"), "{found}");
    }
    let wide = html.replacen("<main>", "<main><div style=\"width:900px\">x</div>", 1);
    if let Some(found) = found(&room, &wide, &said, 400) {
        assert!(found.contains("WRONG") && found.contains("scrolls"), "{found}");
    }
}

#[test]
fn papers_are_chosen_by_word_and_class() {
    let scherl = done(&["papers", "--paper", "scherl"]);
    assert!(scherl.contains("7.64 mJ") && !scherl.contains("MedFS"), "{scherl}");
    let contradicting = done(&["papers", "--class", "contradicts"]);
    assert!(contradicting.contains("✗ contradicts") && !contradicting.contains("✓"), "{contradicting}");
    misused(&["papers", "--paper", "nobody"], &["nobody", "Scherl 2004"]);
    misused(&["papers", "--class", "maybe"], &["maybe", "contradicts"]);
}
