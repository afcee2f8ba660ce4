//! The tests of this crate in one program, which is linked once and keeps all cores at work: a file here is a module.
//! Tests that cannot run in parallel with others are separate programs; Cargo.toml gives the reasons.

extern crate joulefs_device as device;

mod contract;
mod disk;
mod disk_idle;
mod drives;
mod energy;
mod energy_range;
mod fault;
mod flash_ahead;
mod flash_drain;
mod flash_energy;
mod flash_ftl;
mod flash_handles;
mod flash_time;
mod flash_wear;
mod host_room;
mod memory;
mod nvme;
mod opening;
mod power_cut;
mod power_cycle;
mod profiles;
mod queue;
mod retained;
mod sparse_image;
