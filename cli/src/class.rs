//! What pays on which class of device?
//!
//! Deltas and cleaning by price are measured on phones and on cards of phones (docs/deltas.md, docs/cleaning.md); on a
//! laptop's SSD they make no difference beyond its idle energy, so its volumes stay as Linux mounts them. A disk gets
//! the log that was made for disks. Left out: the device's own numbers, which are in its profile (`device/profiles`).

use device::energy::profile::Profile;
use f2fs::delta::Costs;
use f2fs::gc::prices;
use f2fs::{Holes, InPlace};

use crate::Failure;
use crate::file_system::Type;

/// What the wear of a programmed block is worth on a phone, in pJ: a tenth of what it is by the price of flash, for that is
/// an assumption (docs/phone-day.md).
const WEAR: u64 = 20_000_000;

/// A class of storage devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Class {
    /// UFS: F2FS with deltas.
    Phone,
    /// An SSD: F2FS as Linux mounts it.
    Laptop,
    /// An SD card or eMMC: F2FS with deltas.
    Card,
    /// A disk that turns: ScherlFS.
    Disk,
}

impl Class {
    /// The file system that is made.
    pub fn file_system(self) -> Type {
        if self == Class::Disk { Type::Scherlfs } else { Type::F2fs }
    }

    /// The features of an F2FS volume.
    pub fn features(self) -> &'static [&'static str] {
        if self.has_deltas() { &["modern", "delta"] } else { &["modern"] }
    }

    /// Whether deltas pay.
    pub fn has_deltas(self) -> bool {
        matches!(self, Class::Phone | Class::Card)
    }

    /// The shipped profile whose prices stand for the class.
    fn profile(self) -> &'static str {
        match self {
            Class::Phone => "kirin9000-ufs31",
            Class::Laptop => "samsung-970evoplus",
            Class::Card => "galaxy-nexus-emmc",
            Class::Disk => "laptop-disk-4200",
        }
    }

    /// Takes the class's prices for decisions about cleaning, deltas, discards and compression, except for what the user
    /// `gave`.
    pub fn price(self, options: &mut f2fs::MountOptions, gave: impl Fn(&str) -> bool) -> Result<(), Failure> {
        set_prices(options, &Profile::find(self.profile())?);
        if self.has_deltas() && !["discard", "nodiscard", "discard_unit"].into_iter().any(&gave) {
            options.discard_holes = Holes::Worth;
        }
        if self.has_deltas() && !gave("in_place") {
            options.in_place = InPlace::Price;
        }
        if self.has_deltas() && !gave("wear") {
            options.wear = WEAR;
        }
        Ok(())
    }
}

/// Takes a device's prices for decisions about cleaning, deltas and compression.
pub fn set_prices(options: &mut f2fs::MountOptions, profile: &Profile) {
    options.prices = prices::of(profile);
    options.delta_costs = Costs::of(profile);
    options.compress_costs = f2fs::compress::costs::Costs::of(profile);
}
