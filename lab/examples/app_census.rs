//! What do the applications of `lab::apps` write, compared with MedFS FAST'25, Tables 1 and 2? Run this after changing
//! them: `cargo run -p joulefs-lab --example app_census [minutes]`.

use lab::apps::APPS;
use lab::apps::census::Census;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let minutes = std::env::args().nth(1).map_or(Ok(5), |n| n.parse())?;
    println!("app      MB  pages     UR     UD   <256   <819   ours   mean    CCR    DCR sqlite   temp upd/page syncs");
    for app in APPS {
        let c = Census::of(&app.script(minutes, 1, None)?, true);
        println!(
            "{:3} {:7.1} {:6} {:5.1}% {:5.1}% {:5.1}% {:5.1}% {:5.1}% {:5.0}B {:5.1}% {:5.1}% {:5.1}% {:5.1}% {:7.1} {:6}",
            app.name,
            c.pages as f64 / 256.0,
            c.pages,
            c.update_ratio(),
            c.update_difference(),
            c.of_updates(c.below_256),
            c.of_updates(c.below_819),
            c.of_updates(c.ours),
            c.our_bytes as f64 / c.ours.max(1) as f64,
            c.page_compression(),
            c.delta_compression(),
            c.of_updates(c.sqlite_updates),
            c.of_updates(c.temporary_updates),
            c.updates as f64 / c.updated_pages.max(1) as f64,
            c.syncs
        );
    }
    Ok(())
}
