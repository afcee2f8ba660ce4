//! All tests of this crate in one program, which is linked only once and uses all cores: each file is a module.

mod aging;
mod app_updates;
mod bound;
mod cleaning;
mod cleaning_costs;
mod either;
mod experiments;
mod numbers;
mod papers;
mod shares;
mod workloads;
