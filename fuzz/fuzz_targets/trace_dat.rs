//! Any bytes through the driver `trace_dat`.
#![no_main]

#[path = "../../trace/tests/drivers/tracepoints.rs"]
#[allow(dead_code, reason = "two of them are other targets'")]
mod drivers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drivers::trace_dat(include_bytes!("../../trace/fixtures/ftrace/v6.dat.zst"), bytes));
