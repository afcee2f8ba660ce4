use crate::gc::policy::*;use format::SegNo;
pub struct Index;
impl Index{pub fn new(_n:u32)->Self{Index} pub fn set(&mut self,_s:SegNo,_c:Option<Candidate>){}}
impl View for Index{
fn count(&self)->u32{0}
fn scan(&self,_:SegNo,_:SegNo,_:&mut dyn FnMut(Candidate)->bool){}
fn emptiest(&self,_:SegNo,_:SegNo)->Option<Candidate>{None}
fn count_up_to(&self,_:u64)->u32{0}
fn nth_oldest(&self,_:u32)->Option<AgeCut>{None}
fn range_of_f(&self,_:AgeCut)->Option<(u32,u32)>{None}
fn best(&self,_:AgeCut,_:&dyn Fn(&Candidate)->Rank)->Option<Candidate>{None}
fn near(&self,_:u64,_:u32,_:u32,_:&mut dyn FnMut(Candidate)){}
}