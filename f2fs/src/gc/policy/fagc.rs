use super::*;use super::memory::*;
pub fn choose(_v:&dyn View,_m:&Memory,_t:&Tuning,_a:Ask)->(Option<Choice>,Memory){unimplemented!()}
pub fn target(_v:&dyn View,_m:&Memory,_t:&Tuning,_mt:u64)->Option<Candidate>{None}
