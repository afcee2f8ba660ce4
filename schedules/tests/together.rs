//! All tests of this crate in one program, which is linked only once and uses all cores: each file is a module.

mod judges;
mod schedules;
mod scherlfs;
mod steps;
mod steps_cut;
