//! What does each subcommand do with its arguments? One file per subcommand; small related ones share one.
//!
//! A subcommand reads options, calls the crate that does the work, and prints. It has no file system logic.

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
