//! Device profiles: one file per device, every number with its unit, source and confidence.
//!
//! A profile records the measurements it was calibrated on and those it only predicts. The shipped ones are in
//! `device/profiles/` and built in; others are read from files in the same format.

pub mod disk;
pub mod flash;
mod idle;
mod numbers;
mod quantity;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::units::{Energy, Nanos, Power};
pub use disk::DiskSpec;
pub use flash::FlashSpec;
pub use idle::IdleSpec;
pub use numbers::Number;
pub use quantity::{Confidence, PerByte, Quantity, TimePerByte, Unit};

/// Costs of host and board around a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Processor, per request.
    pub cpu_request: Quantity<Energy>,
    /// Processor, per byte read or written.
    pub cpu_byte: Quantity<PerByte>,
    /// Memory, per byte read or written.
    pub dram_byte: Quantity<PerByte>,
    /// The computing processor.
    pub cpu_busy: Quantity<Power>,
    /// Encoding a delta of a page of 4 KiB by LZO. JouleFS's own codecs are charged a third of it.
    #[serde(default = "delta_encode")]
    pub delta_encode: Quantity<Nanos>,
    /// Decoding a delta of a page by LZO. JouleFS's own codecs are charged a twelfth of it.
    #[serde(default = "delta_decode")]
    pub delta_decode: Quantity<Nanos>,
    /// Compressing a block of 4 KiB with LZO or LZ4.
    #[serde(default = "compress")]
    pub compress: Quantity<Nanos>,
    /// Decompressing to a block of 4 KiB with LZO or LZ4.
    #[serde(default = "decompress")]
    pub decompress: Quantity<Nanos>,
    /// Compressing with Zstandard.
    #[serde(default = "zstd_compress")]
    pub zstd_compress: Quantity<Nanos>,
    /// Decompressing with Zstandard.
    #[serde(default = "zstd_decompress")]
    pub zstd_decompress: Quantity<Nanos>,
    /// The rest of the board while a request is pending.
    pub board: Quantity<Power>,
    /// The rest of the board without requests.
    pub board_idle: Quantity<Power>,
}

impl HostSpec {
    /// Default times: [`Self::compress`], `decompress`, `zstd_compress`, `zstd_decompress`.
    pub const COMPRESSING: [Nanos; 4] = [Nanos(7_400), Nanos(8_300), Nanos(14_800), Nanos(8_300)];
}

fn of_medfs(value: u64, what: &str) -> Quantity<Nanos> {
    Quantity {
        value: Nanos(value),
        unit: "us".into(),
        confidence: Confidence::Assumed,
        range: None,
        source: format!("not in this file; {what} of LZO on a Snapdragon 865 (MedFS FAST'25, section 6.4)"),
    }
}

/// Default of a profile without this time.
fn delta_encode() -> Quantity<Nanos> {
    of_medfs(7_400, "compressing a delta")
}

/// Default of a profile without this time.
fn delta_decode() -> Quantity<Nanos> {
    of_medfs(8_300, "decompressing a delta")
}

/// Default of a profile without this time.
fn compress() -> Quantity<Nanos> {
    of_medfs(HostSpec::COMPRESSING[0].0, "compressing 4 KiB")
}

/// Default of a profile without this time.
fn decompress() -> Quantity<Nanos> {
    of_medfs(HostSpec::COMPRESSING[1].0, "decompressing 4 KiB")
}

/// Default of a profile without this time.
fn zstd_compress() -> Quantity<Nanos> {
    of_medfs(HostSpec::COMPRESSING[2].0, "taken to be twice compressing 4 KiB")
}

/// Default of a profile without this time.
fn zstd_decompress() -> Quantity<Nanos> {
    of_medfs(HostSpec::COMPRESSING[3].0, "taken to be decompressing 4 KiB")
}

/// [`HostSpec`] as plain numbers for the meter.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// Processor, per request.
    pub cpu_request: Energy,
    /// Processor, per byte.
    pub cpu_byte: PerByte,
    /// Memory, per byte.
    pub dram_byte: PerByte,
    /// The computing processor.
    pub cpu_busy: Power,
    /// The rest of the board during requests.
    pub board: Power,
    /// The rest of the board otherwise.
    pub board_idle: Power,
}

impl HostSpec {
    /// The plain numbers.
    pub fn prices(&self) -> Host {
        Host {
            cpu_request: self.cpu_request.value,
            cpu_byte: self.cpu_byte.value,
            dram_byte: self.dram_byte.value,
            cpu_busy: self.cpu_busy.value,
            board: self.board.value,
            board_idle: self.board_idle.value,
        }
    }
}

/// Ties relative times to seconds if a source gives only ratios of times.
///
/// Changing the anchor multiplies every time of the profile by the same factor and divides every power by it, so
/// that energies stay as fitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// The operation.
    pub what: String,
    /// Its time.
    pub time: Quantity<Nanos>,
}

/// The device of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum DeviceSpec {
    /// Flash behind a translation layer.
    Flash(Box<FlashSpec>),
    /// A disk.
    Disk(Box<DiskSpec>),
}

/// The profile file of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name for lookups.
    pub name: String,
    /// One line for users.
    pub title: String,
    /// Measurements it was fitted to; empty if none.
    #[serde(default)]
    pub calibrated_on: Vec<String>,
    /// Measurements it predicts without having been fitted to them.
    #[serde(default)]
    pub predicts: Vec<String>,
    /// The operation that defines the scale of times, if it can be chosen.
    #[serde(default)]
    pub anchor: Option<Anchor>,
    /// Processor, memory and board.
    pub host: HostSpec,
    /// The device.
    pub device: DeviceSpec,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Neither a shipped profile nor a file.
    #[error("no profile {name:?}: choose {known}, or give the path of a profile file")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The file cannot be read.
    #[error("profile {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// It is not a profile.
    #[error("profile {from}: {message}")]
    Malformed {
        /// The file or shipped name.
        from: String,
        /// The error and its place.
        message: String,
    },
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../profiles/", $name, ".toml")))),*]
    };
}

/// Names and texts of the shipped profiles.
pub const SHIPPED: &[(&str, &str)] = shipped![
    "kirin9000-ufs31",
    "oneplus8t-ufs31",
    "galaxy-nexus-emmc",
    "samsung-850evo",
    "intel-s4500",
    "samsung-970evoplus",
    "micron-2550",
    "samsung-980pro",
    "samsung-pm9a3",
    "intel-p5510",
    "intel-s4510",
    "microdrive",
    "laptop-disk-4200",
    "hitachi-5k320",
    "constellation-es3-4tb",
];

impl Profile {
    /// Finds a shipped profile by name, or any by path (with a slash or the extension `.toml`).
    pub fn find(name: &str) -> Result<Self, ProfileError> {
        Self::parse(&Self::text(name)?, name)
    }

    /// The text that [`find`](Self::find) would parse.
    pub fn text(name: &str) -> Result<String, ProfileError> {
        if let Some((_, text)) = SHIPPED.iter().find(|(n, _)| *n == name) {
            return Ok((*text).into());
        }
        let path = Path::new(name);
        if !name.contains('/') && path.extension().is_none_or(|e| e != "toml") {
            let known: Vec<_> = SHIPPED.iter().map(|(n, _)| *n).collect();
            return Err(ProfileError::Unknown { name: name.into(), known: known.join(", ") });
        }
        let unreadable = |source| ProfileError::Unreadable { path: path.into(), source };
        std::fs::read_to_string(path).map_err(unreadable)
    }

    /// The kind of device, in one word.
    pub fn kind(&self) -> &'static str {
        match self.device {
            DeviceSpec::Flash(_) => "flash",
            DeviceSpec::Disk(_) => "disk",
        }
    }

    /// Parses the text of a profile; `from` is its name for errors.
    pub fn parse(text: &str, from: &str) -> Result<Self, ProfileError> {
        let malformed = |message: String| ProfileError::Malformed { from: from.into(), message };
        let profile: Profile = toml::from_str(text).map_err(|e| malformed(e.to_string()))?;
        match &profile.device {
            DeviceSpec::Flash(f) => f.check(),
            DeviceSpec::Disk(d) => d.check(),
        }
        .map_err(malformed)?;
        Ok(profile)
    }

    /// The same device with `time` as the anchor's time (see [`Anchor`]); unchanged without an anchor.
    pub fn anchored(mut self, time: Nanos) -> Self {
        let Some(anchor) = &mut self.anchor else { return self };
        let factor = time.0 as f64 / (anchor.time.value.0.max(1)) as f64;
        (anchor.time.value, anchor.time.range) = (time, None);
        let host = &mut self.host;
        [&mut host.board, &mut host.board_idle, &mut host.cpu_busy].into_iter().for_each(|q| q.scale(1.0 / factor));
        let times = [&mut host.delta_encode, &mut host.delta_decode, &mut host.compress, &mut host.decompress];
        times.into_iter().chain([&mut host.zstd_compress, &mut host.zstd_decompress]).for_each(|q| q.scale(factor));
        match &mut self.device {
            DeviceSpec::Flash(f) => f.scale(factor),
            DeviceSpec::Disk(d) => d.scale(factor),
        }
        self
    }
}
