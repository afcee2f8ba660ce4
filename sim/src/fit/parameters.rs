//! Eight numbers that convert bytes and requests to energy and time.
//!
//! CPU: `cpu_byte` MB + `cpu_request` N. Storage: `storage_byte` MB + `storage_request` (N + M), with M the number
//! of map pages that had to be fetched. The rest: `board` T + `dram_byte` MB. The unit of time is that of reading a
//! megabyte: T = MB read + `write_time` MB written + `request_time` N.

use super::rows::Row;

/// One of the eight parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
}

const fn parameter(name: &'static str, unit: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, unit, meaning }
}

/// Number of parameters.
pub(super) const N: usize = 8;

/// Values, in the order of [`Parameters::ALL`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters(pub [f64; N]);

const CPU_BYTE: usize = 0;
const CPU_REQUEST: usize = 1;
const STORAGE_BYTE: usize = 2;
const STORAGE_REQUEST: usize = 3;
const BOARD: usize = 4;
const WRITE_TIME: usize = 5;
const REQUEST_TIME: usize = 6;
const DRAM_BYTE: usize = 7;

/// A prediction and its derivative by each parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guess {
    pub value: f64,
    pub slope: [f64; N],
}

impl Guess {
    fn plus(mut self, other: Guess) -> Guess {
        self.value += other.value;
        self.slope.iter_mut().zip(other.slope).for_each(|(a, b)| *a += b);
        self
    }
}

impl Parameters {
    /// Names, units and meanings.
    pub const ALL: [Parameter; N] = [
        parameter("cpu_byte", "mJ/MB", "processor, for a megabyte"),
        parameter("cpu_request", "mJ", "processor, for a request"),
        parameter("storage_byte", "mJ/MB", "device, for a megabyte"),
        parameter("storage_request", "mJ", "device, for a request or a page of its map"),
        parameter("board", "mJ/MB", "board, in the time in which a megabyte read passes"),
        parameter("write_time", "", "time of a megabyte written, in those times"),
        parameter("request_time", "", "time of a request, in those times"),
        parameter("dram_byte", "mJ/MB", "memory, for a megabyte"),
    ];

    /// Start values: the orders of magnitude of a phone.
    pub(super) const START: Parameters = Parameters([0.44, 0.05, 1.3, 0.024, 0.75, 1.4, 0.06, 0.3]);

    /// Multiplies every energy by `factor`.
    pub(super) fn dearer(mut self, factor: f64) -> Self {
        for (i, v) in self.0.iter_mut().enumerate() {
            if i != WRITE_TIME && i != REQUEST_TIME {
                *v *= factor;
            }
        }
        self
    }

    fn guess(&self, terms: &[(usize, f64)]) -> Guess {
        let mut out = Guess { value: 0.0, slope: [0.0; N] };
        for &(parameter, times) in terms {
            out.value += self.0[parameter] * times;
            out.slope[parameter] += times;
        }
        out
    }

    pub(super) fn cpu_of(&self, r: &Row) -> Guess {
        self.guess(&[(CPU_BYTE, r.mb_read + r.mb_written), (CPU_REQUEST, r.requests)])
    }
    pub(super) fn storage_of(&self, r: &Row) -> Guess {
        let fetched = r.requests + r.map_accesses;
        self.guess(&[(STORAGE_BYTE, r.mb_read + r.mb_written), (STORAGE_REQUEST, fetched)])
    }
    pub(super) fn time_of(&self, r: &Row) -> Guess {
        let mut out = self.guess(&[(WRITE_TIME, r.mb_written), (REQUEST_TIME, r.requests)]);
        out.value += r.mb_read;
        out
    }
    pub(super) fn rest_of(&self, r: &Row) -> Guess {
        let (time, board) = (self.time_of(r), self.0[BOARD]);
        let mut out = self.guess(&[(BOARD, time.value), (DRAM_BYTE, r.mb_read + r.mb_written)]);
        for (slope, of_time) in out.slope.iter_mut().zip(time.slope) {
            *slope += board * of_time;
        }
        out
    }
    pub(super) fn total_of(&self, r: &Row) -> Guess {
        self.cpu_of(r).plus(self.storage_of(r)).plus(self.rest_of(r))
    }

    /// Processor, mJ per megabyte.
    pub fn cpu_byte(&self) -> f64 {
        self.0[CPU_BYTE]
    }
    /// Processor, mJ per request.
    pub fn cpu_request(&self) -> f64 {
        self.0[CPU_REQUEST]
    }
    /// Device, mJ per megabyte.
    pub fn storage_byte(&self) -> f64 {
        self.0[STORAGE_BYTE]
    }
    /// Device, mJ per request.
    pub fn storage_request(&self) -> f64 {
        self.0[STORAGE_REQUEST]
    }
    /// Board, mJ during the read of a megabyte.
    pub fn board(&self) -> f64 {
        self.0[BOARD]
    }
    /// Time per megabyte written, in units of a megabyte read.
    pub fn write_time(&self) -> f64 {
        self.0[WRITE_TIME]
    }
    /// Time per request, in the same unit.
    pub fn request_time(&self) -> f64 {
        self.0[REQUEST_TIME]
    }
    /// Memory, mJ per megabyte.
    pub fn dram_byte(&self) -> f64 {
        self.0[DRAM_BYTE]
    }
}
