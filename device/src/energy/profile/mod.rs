//! One file per device: every number with its unit, source and confidence.
//!
//! A profile names what it was calibrated on and what it only predicts. The shipped ones are in
//! `device/profiles/` and built in; others are read from files of the same form.

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

/// What the host and the board spend around a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Processor, for each request.
    pub cpu_request: Quantity<Energy>,
    /// Processor, for each byte read or written.
    pub cpu_byte: Quantity<PerByte>,
    /// Memory, for each byte read or written.
    pub dram_byte: Quantity<PerByte>,
    /// The processor, computing.
    pub cpu_busy: Quantity<Power>,
    /// Comparing a page of 4 KiB with its base and making a delta of it, its check included.
    #[serde(default = "delta_encode")]
    pub delta_encode: Quantity<Nanos>,
    /// Making a page of its base and a delta, likewise.
    #[serde(default = "delta_decode")]
    pub delta_decode: Quantity<Nanos>,
    /// Compressing a block of 4 KiB by LZO or LZ4.
    #[serde(default = "compress")]
    pub compress: Quantity<Nanos>,
    /// Decompressing what becomes such a block.
    #[serde(default = "decompress")]
    pub decompress: Quantity<Nanos>,
    /// The same by Zstandard.
    #[serde(default = "zstd_compress")]
    pub zstd_compress: Quantity<Nanos>,
    /// Likewise.
    #[serde(default = "zstd_decompress")]
    pub zstd_decompress: Quantity<Nanos>,
    /// The rest of the board while a request is waited for.
    pub board: Quantity<Power>,
    /// The rest of the board while nothing is asked.
    pub board_idle: Quantity<Power>,
}

impl HostSpec {
    /// Times of a profile that names none: [`Self::compress`], `decompress`, `zstd_compress`, `zstd_decompress`.
    pub const COMPRESSING: [Nanos; 4] = [Nanos(7_400), Nanos(8_300), Nanos(14_800), Nanos(8_300)];
}

fn of_medfs(value: u64, what: &str) -> Quantity<Nanos> {
    Quantity {
        value: Nanos(value),
        unit: "us".into(),
        confidence: Confidence::Assumed,
        source: format!("not in this file; {what} of LZO on a Snapdragon 865 (MedFS FAST'25, section 6.4)"),
    }
}

/// The time of a profile that names none.
fn delta_encode() -> Quantity<Nanos> {
    of_medfs(7_400, "compressing a delta")
}

/// The time of a profile that names none.
fn delta_decode() -> Quantity<Nanos> {
    of_medfs(8_300, "decompressing a delta")
}

/// The time of a profile that names none.
fn compress() -> Quantity<Nanos> {
    of_medfs(HostSpec::COMPRESSING[0].0, "compressing 4 KiB")
}

/// The time of a profile that names none.
fn decompress() -> Quantity<Nanos> {
    of_medfs(HostSpec::COMPRESSING[1].0, "decompressing 4 KiB")
}

/// The time of a profile that names none.
fn zstd_compress() -> Quantity<Nanos> {
    of_medfs(HostSpec::COMPRESSING[2].0, "taken to be twice compressing 4 KiB")
}

/// The time of a profile that names none.
fn zstd_decompress() -> Quantity<Nanos> {
    of_medfs(HostSpec::COMPRESSING[3].0, "taken to be decompressing 4 KiB")
}

/// [`HostSpec`] as the meter reckons with it.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// Processor, for each request.
    pub cpu_request: Energy,
    /// Processor, for each byte.
    pub cpu_byte: PerByte,
    /// Memory, for each byte.
    pub dram_byte: PerByte,
    /// The processor, computing.
    pub cpu_busy: Power,
    /// The rest of the board during requests.
    pub board: Power,
    /// The rest of the board otherwise.
    pub board_idle: Power,
}

impl HostSpec {
    /// The bare numbers.
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

/// What ties relative times to seconds, where a source gives only ratios of times.
///
/// Choosing another anchor scales every time of the profile by the same factor and every power by its
/// inverse, so that energies stay what they were fitted to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// What takes this long.
    pub what: String,
    /// How long it takes.
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

/// A device's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name it is asked for by.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// What it was fitted to; empty if to nothing.
    #[serde(default)]
    pub calibrated_on: Vec<String>,
    /// What it predicts without having been fitted to it.
    #[serde(default)]
    pub predicts: Vec<String>,
    /// What gives its times their scale, if that is a choice.
    #[serde(default)]
    pub anchor: Option<Anchor>,
    /// Processor, memory and board.
    pub host: HostSpec,
    /// The device.
    pub device: DeviceSpec,
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Neither a shipped profile nor a file.
    #[error("no profile {name:?}: shipped are {known}; or give the path of a profile file")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The file cannot be read.
    #[error("profile {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not a profile.
    #[error("profile {from}: {message}")]
    Malformed {
        /// The file or shipped name.
        from: String,
        /// What and where.
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
    "microdrive",
    "laptop-disk-4200",
    "hitachi-5k320",
    "constellation-es3-4tb",
];

impl Profile {
    /// A shipped profile by name, or any by path (what has a slash or ends in `.toml`).
    pub fn find(name: &str) -> Result<Self, ProfileError> {
        Self::parse(&Self::text(name)?, name)
    }

    /// The text [`find`](Self::find) would read.
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

    /// What kind of device it is, in a word.
    pub fn kind(&self) -> &'static str {
        match self.device {
            DeviceSpec::Flash(_) => "flash",
            DeviceSpec::Disk(_) => "disk",
        }
    }

    /// From its text; `from` is named in errors.
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

    /// The same device if the anchor took `time` (see [`Anchor`]); itself if it has none.
    pub fn anchored(mut self, time: Nanos) -> Self {
        let Some(anchor) = &mut self.anchor else { return self };
        let factor = time.0 as f64 / (anchor.time.value.0.max(1)) as f64;
        anchor.time.value = time;
        let power = |p: &mut Power| p.0 = (p.0 as f64 / factor).round() as u64;
        for q in [&mut self.host.board, &mut self.host.board_idle, &mut self.host.cpu_busy] {
            power(&mut q.value);
        }
        let host = &mut self.host;
        for q in [
            &mut host.delta_encode,
            &mut host.delta_decode,
            &mut host.compress,
            &mut host.decompress,
            &mut host.zstd_compress,
            &mut host.zstd_decompress,
        ] {
            q.value = Nanos((q.value.0 as f64 * factor).round() as u64);
        }
        match &mut self.device {
            DeviceSpec::Flash(f) => f.scale(factor),
            DeviceSpec::Disk(d) => d.scale(factor),
        }
        self
    }
}
