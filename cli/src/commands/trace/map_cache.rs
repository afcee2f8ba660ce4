//! `joulefs trace stat --map-cache`: reads and writes of mapping caches of every size for a recording.
//! `trace::stat::map_cache` counts.

use std::fmt::Write as _;
use std::path::PathBuf;

use device::energy::profile::{DeviceSpec, Profile};
use serde_json::{Value, json};
use sim::words::percent;
use trace::stat::map_cache::{Costs, Curve, DeviceMaps, Geometry, MapStat, Maps, Migration};

use crate::table::{self, Table};
use crate::{Failure, output, size};

/// The schema's name and version.
const SCHEMA: (&str, u32) = ("joulefs-map-cache", 1);

/// What is asked of the map.
#[derive(clap::Args)]
pub struct MapArgs {
    /// Count fetches and write-backs of mapping caches of every size.
    #[arg(long)]
    map_cache: bool,
    /// Mark the cache size of this device: a shipped profile's name or a profile file.
    #[arg(long, value_name = "NAME", default_value = "kirin9000-ufs31", requires = "map_cache")]
    profile: String,
    /// Size of a map page, the unit of fetching and eviction.
    #[arg(long, value_name = "SIZE", default_value = "4K", requires = "map_cache")]
    map_page: String,
    /// Size of a map entry.
    #[arg(long, value_name = "SIZE", default_value = "4", requires = "map_cache")]
    map_entry: String,
    /// Bytes of the device that one entry maps.
    #[arg(long, value_name = "SIZE", default_value = "4K", requires = "map_cache")]
    map_unit: String,
    /// The device was never written before: no part of its map is on flash.
    #[arg(long, requires = "map_cache")]
    new_device: bool,
    /// Count again as if blocks had been moved before: a log with lines from,to,blocks, in blocks of 4 KiB.
    #[arg(long, value_name = "FILE", requires = "map_cache")]
    moved: Option<PathBuf>,
    /// Start of the volume on the recorded device, for --moved.
    #[arg(long, value_name = "SIZE", default_value = "0", requires = "moved")]
    volume_at: String,
}

/// The counter, and the cache to mark.
pub struct Asked {
    /// The counter.
    pub maps: Maps,
    profile: String,
    own: Option<u64>,
    several: bool,
}

/// The counts.
pub struct Counted {
    /// The counts.
    pub stat: MapStat,
    profile: String,
    /// Pages of the profile's cache.
    pub own: Option<u64>,
}

impl MapArgs {
    /// The requested counter, if any.
    pub fn asked(&self) -> Result<Option<Asked>, Failure> {
        if !self.map_cache {
            return Ok(None);
        }
        let own = match Profile::find(&self.profile)?.device {
            DeviceSpec::Flash(spec) => Some(spec.map.cached_pages.value),
            DeviceSpec::Disk(_) => None,
        };
        let geometry = Geometry {
            page_bytes: size::of("--map-page", &self.map_page)?,
            entry_bytes: size::of("--map-entry", &self.map_entry)?,
            unit_bytes: size::of("--map-unit", &self.map_unit)?,
        };
        geometry.check().map_err(|e| Failure::usage(format!("--map-page, --map-entry, --map-unit: {e}")))?;
        let start = size::of("--volume-at", &self.volume_at)?;
        if !start.is_multiple_of(4096) {
            return Err(Failure::usage(format!("--volume-at {}: not whole blocks of 4 KiB", self.volume_at)));
        }
        let migration = match &self.moved {
            Some(path) => Some(Migration::read(path, start / 4096).map_err(|e| e.to_string())?),
            None => None,
        };
        let several = migration.is_some();
        let maps = Maps::new(geometry, !self.new_device, None, migration);
        Ok(Some(Asked { maps, profile: self.profile.clone(), own, several }))
    }
}

impl Asked {
    /// The final counts.
    pub fn done(self) -> Result<Counted, Failure> {
        let stat = self.maps.done();
        if self.several && stat.devices.len() > 1 {
            let all: Vec<&str> = stat.devices.iter().map(|d| d.device.as_str()).collect();
            return Err(Failure::usage(format!(
                "--moved: there are requests to devices {}; choose one with --of",
                all.join(" and ")
            )));
        }
        Ok(Counted { stat, profile: self.profile, own: self.own })
    }
}

impl Counted {
    /// For machines.
    pub fn json(&self) -> Result<Value, Failure> {
        let mut value = serde_json::to_value(&self.stat).map_err(|e| e.to_string())?;
        value["schema"] = json!(SCHEMA.0);
        value["schema_version"] = json!(SCHEMA.1);
        value["profile"] = json!(self.profile);
        value["profile_pages"] = json!(self.own);
        if let Some(own) = self.own {
            for (row, device) in value["devices"].as_array_mut().into_iter().flatten().zip(&self.stat.devices) {
                row["at_profile"] = json!({
                    "before": device.before.costs_at(own),
                    "after": device.after.as_ref().map(|c| c.costs_at(own)),
                });
            }
        }
        Ok(value)
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let s = &self.stat;
        for d in &s.devices {
            let _ = writeln!(
                out,
                "\nmap of device {}: {} lookups in {} pages of {}, each for {} of the device",
                d.device,
                d.before.touches,
                d.before.most_pages,
                output::bytes(s.geometry.page_bytes),
                output::bytes(s.covers_bytes)
            );
            match &d.after {
                Some(after) => self.two(&mut out, d, after),
                None => self.one(&mut out, &d.before),
            }
        }
        if self.own.is_some() {
            let _ = writeln!(out, "* the cache of {}", self.profile);
        }
        if s.too_long > 0 {
            let _ = writeln!(out, "{} requests of more than 4 GiB skipped", s.too_long);
        }
        out
    }

    fn size(&self, pages: u64) -> [String; 3] {
        let star = if self.own == Some(pages) { "*" } else { " " };
        let bytes = [self.stat.geometry.page_bytes, self.stat.covers_bytes];
        let [memory, covers] = bytes.map(|each| output::bytes(pages.saturating_mul(each)));
        [format!("{pages}{star}"), memory, covers]
    }

    fn one(&self, out: &mut String, curve: &Curve) {
        let heads = [("reads", 11), ("of looks", 9), ("write-backs", 12), ("left changed", 12)];
        let mut table = sizes(&heads);
        for pages in curve.rows(self.own) {
            let Costs { reads, writes, changed } = curve.costs_at(pages);
            let share = percent(reads, curve.touches);
            let numbers = [reads.to_string(), share, writes.to_string(), changed.to_string()];
            table.cells(self.size(pages).into_iter().chain(numbers));
        }
        let _ = writeln!(out, "{}", table.text());
    }

    fn two(&self, out: &mut String, d: &DeviceMaps, after: &Curve) {
        let moved = output::bytes(self.stat.moved_blocks.unwrap_or(0).saturating_mul(4096));
        let _ = writeln!(out, "as recorded, and after {moved} were moved: {} pages", after.most_pages);
        let heads = [("reads", 11), ("after", 11), ("ratio", 7), ("write-backs", 12), ("after", 11), ("ratio", 7)];
        let mut table = sizes(&heads);
        let ratio = |a: u64, b: u64| if b == 0 { "-".to_owned() } else { format!("{:.2}", a as f64 / b as f64) };
        let longer = if d.before.most_pages > after.most_pages { &d.before } else { after };
        for pages in longer.rows(self.own) {
            let (a, b) = (d.before.costs_at(pages), after.costs_at(pages));
            let reads = [a.reads.to_string(), b.reads.to_string(), ratio(a.reads, b.reads)];
            let writes = [a.writes.to_string(), b.writes.to_string(), ratio(a.writes, b.writes)];
            table.cells(self.size(pages).into_iter().chain(reads).chain(writes));
        }
        let _ = writeln!(out, "{}", table.text());
    }
}

/// A table whose first columns show cache sizes; the last character of the pages column is for a star.
fn sizes(heads: &[(&str, usize)]) -> Table {
    let sizes = [("pages ", 10), ("cache", 11), ("covers", 11)];
    Table::new(sizes.iter().chain(heads).map(|(head, least)| table::number(*head).least(*least))).between(1)
}
