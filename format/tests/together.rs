//! The tests of this crate in one program, which is linked once and keeps all cores at work: a file here is a module.

extern crate joulefs_format as format;

mod drivers;
mod image;

mod any_bytes;
mod casefold;
mod directories;
mod images;
mod inode_shapes;
mod layout;
mod linux_bytes;
#[path = "pictures/main.rs"]
mod pictures;
mod refusals;
