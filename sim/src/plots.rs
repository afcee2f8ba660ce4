//! How is a result drawn? Plots as SVG inside a page: bars, lines, points, histograms.
//!
//! Left out: which plots a page has ([`crate::recording`], the laboratory's report).

use device::energy::Energy;
use maud::{Markup, PreEscaped, html};
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use crate::result::{Histogram, Phase, Sample};

/// A plot that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("plot of {what}: {message}")]
pub struct PlotError {
    /// What the plot shows.
    what: String,
    /// Why it failed.
    message: String,
}

const WIDTH: u32 = 980;
/// Room for the names of bars, in pixels.
const NAMES: u32 = 230;
/// Colours that stay apart for the colour-blind (Okabe and Ito).
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(240, 228, 66),
    RGBColor(120, 120, 120),
];
/// Pixels of a line of a legend.
const LINE: u32 = 22;
const FONT: (&str, u32) = ("sans-serif", 14);

/// A bar of several pieces.
pub struct Bar {
    /// Its label.
    pub name: String,
    /// The kind of each piece, an index of the legend, and its length.
    pub pieces: Vec<(usize, f64)>,
}

/// Kinds of pieces that have a colour of their own.
pub const KINDS: usize = COLORS.len();

/// A plot in a page: it scrolls where there is no room for it, and has the page's colours in the dark.
pub fn drawn(svg: &str) -> Markup {
    html! { @if !svg.is_empty() { div.plot { (PreEscaped(svg)) } } }
}

/// Draws on a sheet of this height and gives back the SVG.
fn sheet<E: std::fmt::Display>(
    what: &str,
    height: u32,
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Result<(), E>,
) -> Result<String, PlotError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let failed = |message: String| PlotError { what: what.into(), message };
        draw(&area).map_err(|e| failed(e.to_string()))?;
        area.present().map_err(|e| failed(e.to_string()))?;
    }
    Ok(svg)
}

/// Bars in millijoules for each megabyte; `kinds` are the names of their pieces.
pub fn stacked(what: &str, bars: &[Bar], kinds: &[&str]) -> Result<String, PlotError> {
    let total = |b: &Bar| b.pieces.iter().map(|(_, e)| e).sum::<f64>();
    let most = bars.iter().map(total).fold(0.0, f64::max).max(f64::MIN_POSITIVE) * 1.04;
    let count = bars.len();
    if count == 0 {
        return Ok(String::new());
    }
    let plot_height = 70 + 34 * count as u32;
    let height = plot_height + legend_height(kinds, NAMES);
    sheet(what, height, |area| {
        let (plot, legend) = area.split_vertically(plot_height);
        let mut chart = ChartBuilder::on(&plot)
            .x_label_area_size(45)
            .y_label_area_size(NAMES)
            .margin_right(20)
            .margin_top(5)
            .build_cartesian_2d(0.0..most, (0..count - 1).into_segmented())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .y_labels(count)
            .label_style(FONT)
            // The first bar stands on top.
            .y_label_formatter(&|y| match y {
                SegmentValue::CenterOf(i) if *i < count => bars[count - 1 - i].name.clone(),
                _ => String::new(),
            })
            .x_desc("energy for each MB read or written (mJ)")
            .draw()?;
        for (i, bar) in bars.iter().rev().enumerate() {
            let mut from = 0.0;
            for (kind, length) in &bar.pieces {
                let corners = [(from, SegmentValue::Exact(i)), (from + length, SegmentValue::Exact(i + 1))];
                let mut piece = Rectangle::new(corners, COLORS[kind % COLORS.len()].filled());
                piece.set_margin(5, 5, 0, 0);
                chart.draw_series([piece])?;
                from += length;
            }
        }
        draw_legend(&legend, kinds, NAMES)
    })
}

type Sheet<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// Where each kind stands in a legend that begins `from` pixels from the left: lines break at the sheet's end.
fn legend_places(kinds: &[&str], from: u32) -> Vec<(i32, i32)> {
    let (mut x, mut y) = (from as i32, 12);
    let place = |kind: &&str| {
        let width = 36 + 7 * kind.chars().count() as i32;
        if x + width > WIDTH as i32 {
            (x, y) = (from as i32, y + LINE as i32);
        }
        let here = (x, y);
        x += width;
        here
    };
    kinds.iter().map(place).collect()
}

/// Pixels a legend is high.
fn legend_height(kinds: &[&str], from: u32) -> u32 {
    legend_places(kinds, from).last().map_or(0, |(_, y)| *y as u32 + LINE + 6)
}

/// The colours and what they stand for.
fn draw_legend<'a>(area: &Sheet<'a>, kinds: &[&str], from: u32) -> Drawn<'a> {
    for (i, (kind, (x, y))) in kinds.iter().zip(legend_places(kinds, from)).enumerate() {
        area.draw(&Rectangle::new([(x, y), (x + 14, y + 14)], COLORS[i % COLORS.len()].filled()))?;
        area.draw(&Text::new((*kind).to_owned(), (x + 19, y), FONT.into_font()))?;
    }
    Ok(())
}

/// How many there are of each class, on a logarithmic scale.
pub fn histogram(variant: &str, h: &Histogram) -> Result<String, PlotError> {
    let count = h.bars.len();
    let most = h.bars.iter().map(|(_, n)| *n).max().unwrap_or(0).max(1) as f64 * 1.5;
    if count == 0 {
        return Ok(String::new());
    }
    sheet(&h.name, 280, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(format!("{}: {variant}", h.name), ("sans-serif", 16))
            .x_label_area_size(45)
            .y_label_area_size(70)
            .margin_right(20)
            .build_cartesian_2d((0..count - 1).into_segmented(), (0.5..most.max(2.0)).log_scale())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(count)
            .label_style(FONT)
            .x_label_formatter(&|x| match x {
                SegmentValue::CenterOf(i) if *i < count => h.bars[*i].0.clone(),
                _ => String::new(),
            })
            .y_label_formatter(&|y| format!("{y:.0}"))
            .x_desc(&h.by)
            .y_desc(format!("{} (log scale)", h.unit))
            .draw()?;
        for (i, (_, n)) in h.bars.iter().enumerate().filter(|(_, (_, n))| *n > 0) {
            let corners = [(SegmentValue::Exact(i), 0.5), (SegmentValue::Exact(i + 1), *n as f64)];
            let mut bar = Rectangle::new(corners, COLORS[0].filled());
            bar.set_margin(0, 0, 8, 8);
            chart.draw_series([bar])?;
        }
        Ok::<(), DrawingAreaErrorKind<std::io::Error>>(())
    })
}

/// How the energy of several runs added up, a line for each; at most [`KINDS`] runs.
pub fn over_time(name: &str, runs: &[(&str, &Phase)]) -> Result<String, PlotError> {
    let points = |(_, p): &(&str, &Phase)| {
        let so_far = |s: &Sample| s.spent.iter().copied().sum::<Energy>().millijoules();
        let later = p.timeline.iter().map(|s| (s.at.0 as f64 / 1e9, so_far(s)));
        std::iter::once((0.0, 0.0)).chain(later).collect()
    };
    let names: Vec<&str> = runs.iter().map(|(run, _)| *run).collect();
    lines(name, "energy so far (mJ)", &names, &runs.iter().map(points).collect::<Vec<_>>())
}

/// Several amounts over time, a line each: bytes in stretches of so many nanoseconds.
pub fn rates(name: &str, step_ns: u64, amounts: &[(&str, &[u64])]) -> Result<String, PlotError> {
    let step = step_ns as f64 / 1e9;
    let rate = |(n, bytes): (usize, &u64)| ((n as f64 + 0.5) * step, *bytes as f64 / 1_048_576.0 / step);
    let names: Vec<&str> = amounts.iter().map(|(name, _)| *name).collect();
    let points: Vec<Vec<_>> = amounts.iter().map(|(_, list)| list.iter().enumerate().map(rate).collect()).collect();
    lines(name, "rate (MB/s)", &names, &points)
}

/// Lines over seconds.
fn lines(name: &str, unit: &str, names: &[&str], points: &[Vec<(f64, f64)>]) -> Result<String, PlotError> {
    let most = |of: fn(&(f64, f64)) -> f64| points.iter().flatten().map(of).fold(0.0, f64::max).max(1e-9);
    let (end, top) = (most(|p| p.0), most(|p| p.1) * 1.05);
    sheet(name, 262 + legend_height(names, 80), |area| {
        let (plot, legend) = area.split_vertically(262);
        let mut chart = ChartBuilder::on(&plot)
            .caption(name, ("sans-serif", 16))
            .x_label_area_size(45)
            .y_label_area_size(80)
            .margin_right(20)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .label_style(FONT)
            .x_desc("time (s)")
            .y_desc(unit)
            .draw()?;
        for (i, line) in points.iter().enumerate() {
            chart.draw_series(LineSeries::new(line.iter().copied(), COLORS[i].stroke_width(2)))?;
        }
        draw_legend(&legend, names, 80)
    })
}

/// Amounts by the size of a cache, in steps: the size on an axis in powers of two, `mark` a size of its own.
pub fn by_cache_size(
    name: &str,
    amounts: &[(&str, Vec<(u64, u64)>)],
    end: u64,
    mark: Option<u64>,
) -> Result<String, PlotError> {
    let names: Vec<&str> = amounts.iter().map(|(name, _)| *name).collect();
    let end = mark.map_or(end, |m| m.max(end)).max(2) as f64;
    let top = amounts.iter().flat_map(|(_, list)| list.iter().map(|p| p.1)).max().unwrap_or(0).max(1) as f64 * 1.05;
    sheet(name, 262 + legend_height(&names, 80), |area| {
        let (plot, legend) = area.split_vertically(262);
        let mut chart = ChartBuilder::on(&plot)
            .caption(name, ("sans-serif", 16))
            .x_label_area_size(45)
            .y_label_area_size(80)
            .margin_right(20)
            .build_cartesian_2d((1.0..end).log_scale().base(2.0), 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT)
            .label_style(FONT)
            .x_desc("pages in the cache (log scale)")
            .y_desc("pages moved")
            .draw()?;
        for (i, (_, list)) in amounts.iter().enumerate() {
            let mut points = Vec::new();
            for (n, &(from, value)) in list.iter().enumerate() {
                let till = list.get(n + 1).map_or(end, |next| next.0 as f64);
                points.extend([(from as f64, value as f64), (till, value as f64)]);
            }
            chart.draw_series(LineSeries::new(points, COLORS[i].stroke_width(2)))?;
        }
        if let Some(mark) = mark.map(|m| m as f64) {
            chart.draw_series(LineSeries::new([(mark, 0.0), (mark, top)], COLORS[7].stroke_width(1)))?;
        }
        draw_legend(&legend, &names, 80)
    })
}

/// Writes by their order and address, a point each.
pub fn scatter(name: &str, points: &[(u64, u64)]) -> Result<String, PlotError> {
    let end = points.iter().map(|p| p.0).max().unwrap_or(0).max(1) as f64;
    let gib = |block: u64| block as f64 / f64::from(1 << 18);
    let top = points.iter().map(|p| gib(p.1)).fold(0.001, f64::max) * 1.05;
    sheet(name, 300, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(name, ("sans-serif", 16))
            .x_label_area_size(45)
            .y_label_area_size(80)
            .margin_right(20)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT)
            .label_style(FONT)
            .x_desc("number of the write")
            .y_desc("address (GiB)")
            .draw()?;
        chart.draw_series(points.iter().map(|(n, at)| Circle::new((*n as f64, gib(*at)), 1, COLORS[0].filled())))?;
        Ok::<(), DrawingAreaErrorKind<std::io::Error>>(())
    })
}
