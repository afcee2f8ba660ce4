//! One file a subcommand (small relatives share one).

pub mod age;
pub mod cat;
pub mod cp;
pub mod ctl;
pub mod device;
pub mod energy;
pub mod fsck;
pub mod info;
pub mod lab;
pub mod ls;
pub mod mkfs;
pub mod mount;
pub mod replay;
pub mod rescue;
pub mod trace;
pub mod tree;
