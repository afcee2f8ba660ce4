//! All tests of this crate in one program, which is linked only once and uses all cores: each file is a module.
//! Tests that cannot run concurrently with others are separate programs; Cargo.toml explains why.

mod endure;
mod rig;

mod aged;
mod agreement;
mod atomic;
mod bad_input;
mod databases_cut;
mod device_errors;
mod exported;
mod flags;
mod forged;
mod forged_deltas;
mod kernel_packing;
#[path = "kernel_patched/main.rs"]
mod kernel_patched;
#[path = "kernel_victims/main.rs"]
mod kernel_victims;
mod liveness;
#[path = "lockstep/main.rs"]
mod lockstep;
mod metered_disk;
mod newest_pack;
mod one_file;
mod oracle_smoke;
mod our_writer;
#[path = "phone/main.rs"]
mod phone;
mod ping_pong;
mod power_cut;
mod power_cut_random;
mod promises;
mod recorded_programs;
mod reserved_numbers;
mod scheduled;
mod scherlfs_cut;
mod scherlfs_flips;
mod second_judge;
mod settled_points;
mod shapes;
mod suites;
mod their_faults;
mod their_writer;
mod unsettled;
mod wiped;
