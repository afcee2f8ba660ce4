//! One page of what is in a recording: sizes, order, places, times.

use maud::{Markup, html};
use trace::stat::activity::Activity;
use trace::stat::blocks::BlockStat;
use trace::stat::calls::CallStat;
use trace::stat::distribution::Spread;
use trace::stat::map_cache::{Curve, MapStat};
use trace::stat::power::PowerStat;

use crate::plots::PlotError;
use crate::result::Histogram;
use crate::words::{bytes, percent, time};
use crate::{page, plots};

/// A table: words in the first column, numbers in the others.
fn table(head: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div.scroll {
            table {
                tr { @for (i, h) in head.iter().enumerate() { th.n[i > 0] { (h) } } }
                @for row in rows { tr { @for (i, cell) in row.iter().enumerate() { td.n[i > 0] { (cell) } } } }
            }
        }
    }
}

fn sizes(what: &str, classes: &[(u64, u64)]) -> Result<Markup, PlotError> {
    let bars = classes.iter().map(|(from, n)| (bytes(*from), *n)).collect();
    let histogram = Histogram { name: "sizes".into(), by: "size, from".into(), unit: "count".into(), bars };
    Ok(plots::drawn(&plots::histogram(what, &histogram)?))
}

fn spreads(rows: &[(String, Option<Spread>)]) -> Markup {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .filter_map(|(name, s)| s.map(|s| (name, s)))
        .map(|(name, s)| {
            let all = [s.mean_ns as u64, s.min_ns, s.p50_ns, s.p99_ns, s.p999_ns, s.max_ns];
            std::iter::once(name.clone()).chain(all.map(time)).collect()
        })
        .collect();
    if rows.is_empty() {
        html! {}
    } else {
        table(&["", "mean", "min", "p50", "p99", "p99.9", "max"], &rows)
    }
}

fn activity(a: &Activity) -> Result<Markup, PlotError> {
    Ok(plots::drawn(&plots::rates("read and written", a.step_ns, &[("read", &a.read), ("written", &a.written)])?))
}

fn others<'a>(list: impl IntoIterator<Item = (&'a String, &'a u64)>) -> Markup {
    let rows: Vec<Vec<String>> = list.into_iter().map(|(name, n)| vec![name.clone(), n.to_string()]).collect();
    html! { @if !rows.is_empty() { h2 { "Other events" } (table(&["what", "how often"], &rows)) } }
}

/// What mapping caches of every size moved; `own` is the size of one that is marked.
fn map_caches(s: &MapStat, own: Option<u64>) -> Result<Markup, PlotError> {
    let mut parts = Vec::new();
    for d in &s.devices {
        let curves = [("", Some(&d.before)), (", after blocks had moved", d.after.as_ref())];
        let curves: Vec<(&str, &Curve)> = curves.into_iter().filter_map(|(n, c)| c.map(|c| (n, c))).collect();
        let names: Vec<[String; 2]> =
            curves.iter().map(|(when, _)| [format!("read{when}"), format!("written back{when}")]).collect();
        let mut amounts = Vec::new();
        for ([reads, writes], (_, curve)) in names.iter().zip(&curves) {
            amounts.push((reads.as_str(), curve.steps.iter().map(|s| (s.pages, s.costs.reads)).collect()));
            amounts.push((writes.as_str(), curve.steps.iter().map(|s| (s.pages, s.costs.writes)).collect()));
        }
        let end = curves.iter().map(|(_, c)| c.most_pages).max().unwrap_or(1);
        let plot = plots::drawn(&plots::by_cache_size(&format!("device {}", d.device), &amounts, end, own)?);
        let mut rows: Vec<u64> = curves.iter().flat_map(|(_, c)| c.rows(own)).collect();
        rows.sort_unstable();
        rows.dedup();
        let mut head = vec!["pages", "cache", "covers"];
        names.iter().flatten().for_each(|n| head.push(n));
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .map(|pages| {
                let sizes = [pages * s.geometry.page_bytes, pages.saturating_mul(s.covers_bytes)].map(bytes);
                let counts = curves.iter().flat_map(|(_, c)| [c.costs_at(pages).reads, c.costs_at(pages).writes]);
                std::iter::once(pages.to_string()).chain(sizes).chain(counts.map(|n| n.to_string())).collect()
            })
            .collect();
        parts.push(html! { (plot) (table(&head, &rows)) });
    }
    Ok(html! {
        h2 { "Mapping cache" }
        p.note {
            "Pages of the map that a device would fetch and write back, by the size of its cache: LRU, pages of "
            (bytes(s.geometry.page_bytes)) " for " (bytes(s.covers_bytes)) " of the device each (Ji et al., HotStorage'16)."
            @if let Some(own) = own { " The grey line is a cache of " (own) " pages." }
        }
        @for part in &parts { (part) }
    })
}

/// Of a block device; with what caches of its map would move, and the size of one to mark.
pub fn of_blocks(title: &str, s: &BlockStat, map: Option<(&MapStat, Option<u64>)>) -> Result<String, PlotError> {
    let operations: Vec<Vec<String>> = s
        .operations
        .iter()
        .map(|o| {
            let n = o.sizes.count;
            vec![
                o.op.to_owned(),
                n.to_string(),
                percent(n, s.requests),
                bytes(o.sizes.bytes),
                bytes(o.sizes.mean() as u64),
                percent(o.continued, n),
                percent(o.sync, n),
                percent(o.fua, n),
                percent(o.meta, n),
            ]
        })
        .collect();
    let order: Vec<Vec<String>> = [("reads", &s.read_order), ("writes", &s.write_order)]
        .into_iter()
        .map(|(name, o)| {
            vec![
                name.to_owned(),
                percent(o.random_runs, o.random_runs + o.sequential_runs),
                percent(o.random_bytes, o.random_bytes + o.sequential_bytes),
                bytes(o.random_bytes),
                bytes(o.sequential_bytes),
            ]
        })
        .collect();
    let of = |name: &str| s.operations.iter().find(|o| o.op == name).map_or(0, |o| o.sizes.bytes);
    let p = &s.places;
    let mut times = vec![("between requests".to_owned(), s.between)];
    times.extend(s.operations.iter().map(|o| (format!("{} took", o.op), o.took)));
    let devices: Vec<Vec<String>> = s
        .devices
        .iter()
        .map(|d| {
            let numbers = [d.requests.to_string(), bytes(d.read), bytes(d.written), d.flushes.to_string()];
            std::iter::once(d.device.clone()).chain(numbers).chain([d.end_sector.to_string()]).collect()
        })
        .collect();
    let processes: Vec<Vec<String>> = s
        .processes
        .iter()
        .map(|p| vec![p.name.clone(), p.requests.to_string(), bytes(p.read), bytes(p.written)])
        .collect();
    let mut histograms = Vec::new();
    for o in s.operations.iter().filter(|o| o.sizes.max > 0) {
        histograms.push(sizes(o.op, &o.classes)?);
    }
    let over_time = activity(&s.activity)?;
    let caches = map.map(|(stat, own)| map_caches(stat, own)).transpose()?;
    let body = html! {
        h1 { (title) }
        p { (s.requests) " requests in " (time(s.span_ns)) ", " (format!("{:.1}", s.per_second(s.requests))) " a second" }
        p.note { (s.format) ". A request is an event " (s.requests_are) "." }
        (table(&["operation", "requests", "share", "bytes", "mean size", "continues", "sync", "FUA", "metadata"], &operations))
        (over_time)
        h2 { "Order" }
        p.note {
            "Contiguous requests between two flushes are merged; those still below 32 KB are random "
            "(Mohan et al., HotStorage'17)."
        }
        (table(&["", "random, of runs", "of bytes", "random", "in order"], &order))
        h2 { "Sizes" }
        @for h in &histograms { (h) }
        h2 { "Places" }
        p {
            "Working set " (bytes(p.touched)) " (" (bytes(p.read)) " read, " (bytes(p.written)) " written) in " (p.regions)
            " places of 1 GiB. Updates are " (percent(p.overwritten, of("write"))) " of the bytes written, "
            (percent(p.reread, of("read"))) " of the bytes read were read or written before."
        }
        @if let Some(caches) = &caches { (caches) }
        h2 { "Times" }
        (spreads(&times))
        h2 { "Devices" }
        (table(&["device", "requests", "read", "written", "flushes", "sector after the last"], &devices))
        @if s.processes.iter().any(|p| !p.name.is_empty()) {
            h2 { "Processes" }
            (table(&["process", "requests", "read", "written"], &processes))
        }
        (others(&s.others))
    };
    Ok(page::standing_alone(title, &body))
}

/// Of calls to a file system.
pub fn of_calls(title: &str, s: &CallStat) -> Result<String, PlotError> {
    let moved: Vec<Vec<String>> = [("read", &s.read), ("written", &s.written)]
        .into_iter()
        .map(|(name, m)| {
            vec![
                name.to_owned(),
                m.sizes.count.to_string(),
                bytes(m.sizes.bytes),
                bytes(m.sizes.mean() as u64),
                bytes(m.sizes.max),
                percent(m.continued, m.sizes.count),
            ]
        })
        .collect();
    let calls: Vec<Vec<String>> =
        s.operations.iter().map(|(name, n)| vec![(*name).to_owned(), n.to_string()]).collect();
    let files: Vec<Vec<String>> =
        s.busiest.iter().map(|f| vec![f.path.clone(), bytes(f.read), bytes(f.written), f.syncs.to_string()]).collect();
    let times = [("between calls".to_owned(), s.between), ("calls took".to_owned(), s.took)];
    let (read, written) = (sizes("read", &s.read.classes)?, sizes("write", &s.written.classes)?);
    let over_time = activity(&s.activity)?;
    let body = html! {
        h1 { (title) }
        p {
            (s.calls) " calls by " (s.threads) " threads in " (time(s.span_ns)) ", " (s.failed) " failed; "
            (s.fsyncs) " syncs, " (format!("{:.2}", s.per_second(s.fsyncs))) " a second"
        }
        p.note { (s.format) }
        (table(&["", "calls", "bytes", "mean size", "largest", "continues"], &moved))
        p {
            (s.files) " files, working set " (bytes(s.touched)) "; updates are "
            (percent(s.overwritten, s.written.sizes.bytes)) " of the bytes written."
        }
        (over_time)
        h2 { "Sizes" }
        (read) (written)
        h2 { "Times" }
        (spreads(&times))
        h2 { "Calls" }
        (table(&["call", "how often"], &calls))
        h2 { "Files" }
        (table(&["file", "read", "written", "made durable"], &files))
        (others(&s.others))
    };
    Ok(page::standing_alone(title, &body))
}

/// Of a meter.
pub fn of_power(title: &str, s: &PowerStat) -> Result<String, PlotError> {
    let channels: Vec<Vec<String>> = s
        .channels
        .iter()
        .map(|c| {
            vec![
                c.name.clone(),
                c.readings.to_string(),
                time(c.span_ns),
                format!("{:.3} J", c.joules),
                format!("{:.4} W", c.mean_watts),
                format!("{:.4} W", c.max_watts),
            ]
        })
        .collect();
    let body = html! {
        h1 { (title) }
        p { (s.readings) " readings" }
        p.note { (s.format) }
        (table(&["channel", "readings", "time", "energy", "mean power", "highest"], &channels))
        (others(&s.others))
    };
    Ok(page::standing_alone(title, &body))
}
