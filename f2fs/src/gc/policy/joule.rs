use super::memory::*;
use super::*;
#[derive(Debug, Clone, Copy, Default)]
pub struct Prices {}
pub fn choose(_v: &dyn View, m: &Memory, _t: &Tuning, _a: Ask, _p: &Prices, _w: Power, _f: u32) -> (Option<Choice>, Memory) { (None, *m) }
