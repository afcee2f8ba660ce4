//! What would an application's requests cost by a table of what file operations cost?
//!
//! The method is that of Mohan et al. (HotStorage'17, slide 24). It merges requests that continue each other between
//! two flushes; a merged request below 32 KB is random, any other sequential. It prices each kind by what a kilobyte
//! of reading and writing files cost when it was measured (slides 13 to 15).
//!
//! Such a price of a file operation includes what the file system adds to it. A block trace holds the added requests
//! already, so they are counted twice; the difference to a simulation of the requests themselves shows by how much.

use std::path::Path;

use device::Rng;
use device::energy::profile::Profile;
use serde::Deserialize;
use trace::TraceError;
use trace::block::DeviceId;
use trace::requests::{Requests, Seen};
use trace::stat::randomness::{Randomness, Share};

use crate::bench::{Bench, blocks_of_mib};
use crate::error::SimError;
use crate::file_calls::Calls;
use crate::progress::Progress;

/// Of what is random when prices are simulated.
const SEED: u64 = 1;
/// Bytes of the file whose reads and writes are priced.
const FILE_BYTES: u64 = 64 << 20;

/// Microjoules for each kilobyte (1,024 bytes) of files read or written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Reading in order.
    pub read_sequential: f64,
    /// Reading at random, 4 KB at a time.
    pub read_random: f64,
    /// Writing in order.
    pub write_sequential: f64,
    /// Writing at random, 4 KB at a time, an fsync after each.
    pub write_random: f64,
    /// Where they come from.
    pub source: String,
}

impl Prices {
    /// Those of our F2FS on the device of a profile: what the laboratory's experiment `nexus-fileops` does, on a smaller volume.
    pub fn simulated(profile: &Profile) -> Result<Self, SimError> {
        let mut bench = Bench::new(profile, blocks_of_mib(1024))?;
        bench.format(SEED, f2fs::MountOptions::default())?;
        let mut rng = Rng::new(SEED);
        let mut price = |name, writes, random, io, bytes| {
            bench.restart(false)?;
            let calls = Calls { name, writes, random, io, count: bytes / io, fsync_each: writes, holes: false };
            let phase = calls.measure(&bench, FILE_BYTES, SEED, &mut rng.split(), &Progress::new(&|_| ()))?;
            Ok::<f64, SimError>(phase.total().joules() * 1e6 * 1024.0 / phase.bytes.max(1) as f64)
        };
        // The first phase writes the file. An fsync follows each random write: a quarter of the file shows its price.
        let write_sequential = price("sequential-write", true, false, 512 << 10, FILE_BYTES)?;
        let write_random = price("random-write", true, true, 4 << 10, FILE_BYTES / 4)?;
        let read_sequential = price("sequential-read", false, false, 512 << 10, FILE_BYTES)?;
        let read_random = price("random-read", false, true, 4 << 10, FILE_BYTES / 4)?;
        let source = format!("our F2FS on {}: files read and written as in nexus-fileops", profile.name);
        Ok(Prices { read_sequential, read_random, write_sequential, write_random, source })
    }

    /// Those of a TOML file: the names of the fields above, `source` in words.
    pub fn read(file: &Path) -> Result<Self, String> {
        let named = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
        let text = std::fs::read_to_string(file).map_err(|e| named(&e))?;
        let prices: Prices = toml::from_str(&text).map_err(|e| {
            let line = e.span().map_or(1, |s| 1 + text[..s.start.min(text.len())].matches('\n').count());
            named(&format!("line {line}: {}", e.message()))
        })?;
        let all = [prices.read_sequential, prices.read_random, prices.write_sequential, prices.write_random];
        if all.iter().all(|p| p.is_finite() && *p >= 0.0) {
            Ok(prices)
        } else {
            Err(named(&"a price is a number of microjoules for each kilobyte, 0 or more"))
        }
    }
}

/// One kind of request and its price.
#[derive(Debug, Clone, PartialEq)]
pub struct Priced {
    /// Which.
    pub kind: &'static str,
    /// Requests, after merging.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Microjoules for a kilobyte.
    pub uj_per_kb: f64,
    /// Joules.
    pub joules: f64,
}

/// All kinds: reads in order and at random, writes in order and at random.
pub fn estimate(read: &Share, written: &Share, prices: &Prices) -> [Priced; 4] {
    let priced = |kind, runs, bytes: u64, price: f64| {
        let joules = bytes as f64 / 1024.0 * price / 1e6;
        Priced { kind, runs, bytes, uj_per_kb: price, joules }
    };
    [
        priced("read in order", read.sequential_runs, read.sequential_bytes, prices.read_sequential),
        priced("read at random", read.random_runs, read.random_bytes, prices.read_random),
        priced("written in order", written.sequential_runs, written.sequential_bytes, prices.write_sequential),
        priced("written at random", written.random_runs, written.random_bytes, prices.write_random),
    ]
}

/// What is read and written of one device of a recording, by order; the error comes beside what was there before.
/// `progress` is told now and then how many bytes of the file were read.
pub fn shares(
    requests: &mut Requests,
    of: DeviceId,
    mut progress: impl FnMut(u64),
) -> ((Share, Share), Result<(), TraceError>) {
    let mut order = Randomness::default();
    let mut n = 0_u64;
    let whole = loop {
        match requests.seen() {
            Ok(Some(Seen::Asked(request))) if request.device == of => order.add(&request),
            Ok(Some(_)) => {}
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
        n += 1;
        if n.is_multiple_of(1 << 14) {
            progress(requests.events().consumed());
        }
    };
    (order.shares(), whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_priced_by_its_own() {
        let share = |runs: u64, bytes: u64, random: u64, random_bytes: u64| Share {
            sequential_runs: runs,
            sequential_bytes: bytes,
            random_runs: random,
            random_bytes,
        };
        let prices = Prices {
            read_sequential: 1.0,
            read_random: 10.0,
            write_sequential: 100.0,
            write_random: 1000.0,
            source: String::new(),
        };
        let all = estimate(&share(1, 1 << 20, 2, 2 << 20), &share(3, 3 << 20, 4, 4 << 20), &prices);
        let joules = all.map(|p| p.joules);
        assert_eq!(joules, [0.001024, 0.02048, 0.3072, 4.096]);
    }

    #[test]
    fn random_writes_with_their_fsyncs_cost_most_on_the_phone_that_was_measured() {
        let profile = Profile::find("galaxy-nexus-emmc").unwrap();
        let prices = Prices::simulated(&profile).unwrap();
        assert!(prices.write_random > 8.0 * prices.write_sequential, "{prices:?}");
        assert!(prices.read_random > 2.0 * prices.read_sequential, "{prices:?}");
    }
}
