//! All tests of this crate in one program, which links once and keeps all cores busy; each file is a module.

extern crate joulefs_record as record;

mod drivers;
mod old_tree;
mod sink;

mod blocks;
mod calls;
mod damage;
mod damaged_contents;
mod with_contents;
