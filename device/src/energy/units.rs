//! Units of energy, power and time, and the components that spend energy.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Energy in picojoules; 64 bits hold 18 megajoules. Sums saturate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Energy(pub u64);

impl Energy {
    /// No energy.
    pub const ZERO: Energy = Energy(0);
    /// From joules, to the nearest picojoule; a negative amount or NaN gives 0.
    pub fn from_joules(joules: f64) -> Self {
        Energy((joules * 1e12).round() as u64)
    }
    /// In joules.
    pub fn joules(self) -> f64 {
        self.0 as f64 / 1e12
    }
    /// In millijoules.
    pub fn millijoules(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// `n` times this.
    pub fn times(self, n: u64) -> Self {
        Energy(self.0.saturating_mul(n))
    }
}

impl Add for Energy {
    type Output = Energy;
    fn add(self, o: Energy) -> Energy {
        Energy(self.0.saturating_add(o.0))
    }
}
impl AddAssign for Energy {
    fn add_assign(&mut self, o: Energy) {
        *self = *self + o;
    }
}
impl Sub for Energy {
    type Output = Energy;
    fn sub(self, o: Energy) -> Energy {
        Energy(self.0.saturating_sub(o.0))
    }
}
impl Sum for Energy {
    fn sum<I: Iterator<Item = Energy>>(all: I) -> Energy {
        all.fold(Energy::ZERO, Add::add)
    }
}
impl fmt::Display for Energy {
    /// Printed with the unit that gives one to three digits before the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0 => return f.pad("0 J"),
            1..1_000 => (1.0, "pJ"),
            1_000..1_000_000 => (1e3, "nJ"),
            1_000_000..1_000_000_000 => (1e6, "uJ"),
            1_000_000_000..1_000_000_000_000 => (1e9, "mJ"),
            _ => (1e12, "J"),
        };
        f.pad(&format!("{:.2} {unit}", self.0 as f64 / scale))
    }
}

/// Power in microwatts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Power(pub u64);

impl Power {
    /// Energy of this power over a time, rounded down to a picojoule. A microwatt for a nanosecond is a femtojoule.
    pub fn over(self, time: Nanos) -> Energy {
        let femto = u128::from(self.0) * u128::from(time.0);
        Energy(u64::try_from(femto / 1000).unwrap_or(u64::MAX))
    }
    /// From watts, to the nearest microwatt; a negative power or NaN gives 0.
    pub fn from_watts(watts: f64) -> Self {
        Power((watts * 1e6).round() as u64)
    }
    /// In watts.
    pub fn watts(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// Nanoseconds: a moment counted from the start of a simulation, or a time between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// From a standard duration; saturates at 584 years.
    pub fn from_duration(d: Duration) -> Self {
        Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
    /// From seconds, to the nearest nanosecond; a negative time or NaN gives 0.
    pub fn from_seconds(seconds: f64) -> Self {
        Nanos((seconds * 1e9).round() as u64)
    }
    /// As a standard duration.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
    /// Time from `earlier` to this moment, zero if that is not earlier.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
    /// `n` times this.
    pub fn times(self, n: u64) -> Self {
        Nanos(self.0.saturating_mul(n))
    }
}
impl Add for Nanos {
    type Output = Nanos;
    fn add(self, o: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(o.0))
    }
}
impl AddAssign for Nanos {
    fn add_assign(&mut self, o: Nanos) {
        *self = *self + o;
    }
}

macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident => $component:ident, $text:literal;)*) => {
        /// The part of a component that spent energy.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[repr(u8)]
        pub enum Part { $($(#[$doc])* $name,)* }
        impl Part {
            /// All, in order.
            pub const ALL: &[Part] = &[$(Part::$name,)*];
            /// Its component.
            pub fn component(self) -> Component {
                match self { $(Part::$name => Component::$component,)* }
            }
            /// Text for reports.
            pub fn text(self) -> &'static str {
                match self { $(Part::$name => $text,)* }
            }
        }
    };
}

/// Components that spend energy: the columns of every energy table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Component {
    /// The host's processor, working for the storage stack.
    Cpu,
    /// The host's memory.
    Dram,
    /// The storage device, including its controller.
    Storage,
    /// The rest of the board while it waits for storage.
    Board,
}

impl Component {
    /// All, in order.
    pub const ALL: [Component; 4] = [Component::Cpu, Component::Dram, Component::Storage, Component::Board];
    /// Text for reports.
    pub fn text(self) -> &'static str {
        match self {
            Component::Cpu => "CPU",
            Component::Dram => "DRAM",
            Component::Storage => "storage",
            Component::Board => "board",
        }
    }
}

parts! {
    /// Creating, submitting and completing a request.
    CpuRequest => Cpu, "CPU, requests";
    /// Handling its bytes.
    CpuBytes => Cpu, "CPU, bytes";
    /// Computation other than I/O.
    CpuWork => Cpu, "CPU, computation";
    /// Moving bytes through memory.
    Dram => Dram, "DRAM";
    /// Transferring bytes over the link, including the controller's work per byte.
    Link => Storage, "link";
    /// The controller's work per request.
    Controller => Storage, "controller";
    /// Reading pages of flash for the host.
    FlashRead => Storage, "flash reads";
    /// Programming pages of flash for the host.
    FlashProgram => Storage, "flash programs";
    /// Reading and writing the map from logical to physical pages.
    FlashMap => Storage, "flash map";
    /// Copying by the device's own cleaning.
    FlashClean => Storage, "flash cleaning";
    /// Erasing blocks of flash.
    FlashErase => Storage, "flash erases";
    /// Making buffered data durable.
    Flush => Storage, "flushes";
    /// Moving the arm.
    Seek => Storage, "seeks";
    /// Waiting for the platter's rotation.
    Rotate => Storage, "rotation";
    /// Reading from the platter.
    PlatterRead => Storage, "platter reads";
    /// Writing to the platter.
    PlatterWrite => Storage, "platter writes";
    /// Spinning up.
    SpinUp => Storage, "spin-up";
    /// Waiting while ready.
    Idle => Storage, "idle";
    /// Waiting while asleep, and entering and leaving sleep.
    Sleep => Storage, "sleep";
    /// The rest of the board over time.
    Board => Board, "board";
}
