//! The frame of an HTML page that stands alone: plots are SVG inside it, nothing is fetched, and it needs no script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::flame::icicle;

const STYLE: &str = include_str!("style.css");

/// A page around a body.
pub fn standing_alone(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(icicle::STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}
