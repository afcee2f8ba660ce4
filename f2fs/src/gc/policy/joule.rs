use super::*;use super::memory::*;
#[derive(Debug,Clone,Copy,Default)]pub struct Prices{}
pub fn choose(_v:&dyn View,_m:&Memory,_t:&Tuning,_a:Ask,_p:&Prices,_w:Power,_f:u32)->(Option<Choice>,Memory){(None, *_m)}
