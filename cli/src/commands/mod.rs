//! What does each subcommand do with what was typed? One file a subcommand; small relatives share one.
//!
//! A subcommand reads options, calls the crate that does the work, and prints. It decides nothing about file systems.

pub mod age;
pub mod cat;
pub mod clean;
pub mod cp;
pub mod ctl;
pub mod device;
pub mod df;
pub mod du;
pub mod energy;
pub mod fsck;
pub mod generate;
pub mod info;
pub mod inspect;
pub mod lab;
pub mod ls;
pub mod mkfs;
pub mod mount;
pub mod names;
pub mod replay;
pub mod rescue;
pub mod settle;
pub mod stat;
pub mod top;
pub mod trace;
pub mod tree;
pub mod undo;
pub mod unmount;
