//! Runs the program `joulefs-lab` like a user.

#[path = "../../../cli/tests/browser/mod.rs"]
mod browser;
#[path = "../../../cli/tests/parquet_rows/mod.rs"]
mod parquet_rows;
#[path = "../../../cli/tests/room/mod.rs"]
mod room;
#[path = "../../../cli/tests/typed/mod.rs"]
mod typed;

const PROGRAM: &str = env!("CARGO_BIN_EXE_joulefs-lab");

mod commands;
mod misuse;
mod page;
mod rows_of_runs;
