//! The page of `--flame FILE.html` shows the embedded data and reacts to input, in a browser if there is one.

use std::fs;

use crate::browser;
use crate::room::Room;
use crate::typed::{done, refused};

const CHECK: &str = include_str!("flame_page/check.js");
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../recordings/browser.rec");

#[test]
fn a_page_draws_what_it_carries_and_comes_closer() {
    let room = Room::new();
    let page = room.path("flame.html");
    done(&["trace", "replay", RECORDING, "--flame", page.to_str().unwrap(), "--flame-parts"]);
    let html = fs::read_to_string(&page).unwrap();
    // There is a picture without a script, too.
    let (_, still) = html.split_once("<svg class=\"icicle\"").unwrap();
    assert!(still.split("</svg></div>").next().unwrap().matches("<title>").count() > 30);
    assert!(!html.contains("http:") && !html.contains("https:"), "something is fetched");
    browser::looked_at(&room, &page, 1300, CHECK);
    browser::looked_at(&room, &page, 400, CHECK);
}

#[test]
fn a_comparison_draws_each_run_and_colours_what_differs_from_the_control() {
    let room = Room::new();
    let page = room.path("compared.html");
    let settings = concat!(env!("CARGO_MANIFEST_DIR"), "/../recordings/settings.rec");
    done(&["trace", "replay", settings, "--compare", "delta=off,on", "--flame", page.to_str().unwrap()]);
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<svg class=\"icicle\"").count(), 1, "the control has its own colours");
    let (_, compared) = html.split_once("<svg class=\"icicle compared\"").unwrap();
    assert!(
        compared.contains("fill:rgb(255,") && compared.contains(",255)\"") && compared.contains("against the control")
    );
    browser::looked_at(&room, &page, 1300, CHECK);
}

#[test]
fn a_command_that_fails_leaves_no_page() {
    let room = Room::new();
    let (page, trace) = (room.path("flame.html"), room.text("none.csv"));
    fs::write(&trace, "").unwrap();
    refused(&["trace", "replay", &trace, "--flame", page.to_str().unwrap()], &["none.csv"]);
    assert!(!page.exists());
}

#[test]
fn a_wrong_width_is_found() {
    let Some(_) = browser::browser() else { return testlog::missing(browser::MISSING) };
    let room = Room::new();
    let page = room.path("flame.html");
    done(&["trace", "replay", RECORDING, "--flame", page.to_str().unwrap()]);
    let html = fs::read_to_string(&page).unwrap();
    for (right, wrong) in [
        ("width * child.value / frame.value", "width * child.value / all"),
        ("if (!up) sum += frame.value", "sum += frame.value"),
        ("share(frame.value, all)", "share(frame.value, 2 * all)"),
    ] {
        assert!(html.contains(right), "{right}");
        fs::write(&page, html.replace(right, wrong)).unwrap();
        let seen = std::panic::catch_unwind(|| browser::looked_at(&room, &page, 900, CHECK));
        assert!(seen.is_err(), "{wrong} was not seen");
    }
}
