//! All tests of this crate in one program, which links once and keeps all cores busy; each file is a module.

mod drivers;

mod clients;
mod damage;
