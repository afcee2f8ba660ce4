//! The tests of this crate in one program, which is linked once and keeps all cores at work: a file here is a module.

extern crate joulefs_f2fs as f2fs;
extern crate joulefs_fsck as fsck;

mod delta_rig;
mod rig;

mod compressed;
mod delta_chain;
mod delta_nodes;
mod delta_pointers;
mod delta_whole;
mod dirs;
mod files;
mod flips;
mod hostile;
mod injected;
mod injected_tables;
mod kept;
mod quota;
mod synced;
mod tables;
mod zones;
