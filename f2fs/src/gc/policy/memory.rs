use super::*;
#[derive(Debug,Clone)]pub struct Memory{pub max_mtime:u64,pub elapsed:u64}
impl Memory{pub fn at_mount(elapsed:u64,_o:u64)->Self{Memory{max_mtime:0,elapsed}}}
#[derive(Debug,Clone,Default)]pub struct Tuning{pub age_threshold:u64,pub max_victim_search:u32}
pub struct Ask{pub foreground:bool,pub urgent:bool,pub end:SegNo,pub unit:u32}
pub struct Choice{pub victim:Candidate,pub cost:u64}
