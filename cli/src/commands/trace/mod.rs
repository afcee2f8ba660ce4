//! `joulefs trace`: what is in recordings by other programs? One file per subcommand.

mod convert;
mod map_cache;
mod replay;
mod stat;

use std::process::ExitCode;

use crate::Failure;

/// Count, convert and replay recordings of other programs and devices.
///
/// The format is detected from the content, gzip and zstd are unpacked, `-` is standard input (for stat and convert).
/// Block devices: blktrace (binary, version 7 and 8, one file or one per CPU), blkparse text, ftrace text, trace.dat,
/// Perfetto, biosnoop, iosnoop, fio iolog (version 2 and 3), fio logs with offsets, MSR Cambridge CSV, SYSTOR'17 CSV,
/// the CSV of mobile block traces, Alibaba, Tencent CBS, SPC, FIU, DiskSim, MQSim, vscsi, oracleGeneral, and JouleFS
/// recordings; any other table by --columns. File systems: `strace -f -ttt`, MobiBench, and JouleFS recordings. Meters:
/// Monsoon CSV, Perfetto power rails.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    blktrace -d /dev/sda -o - -w 60 | joulefs trace stat -\n  \
    joulefs trace stat phone.perfetto-trace --html phone.html\n  \
    joulefs trace convert sda.blktrace.0 --to iolog --output sda.log\n  \
    joulefs trace replay app.strace --profile kirin9000-ufs31 --compare gc=greedy,atgc,fagc,joule")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Stat(stat::Args),
    Convert(convert::Args),
    Replay(Box<replay::Args>),
}

/// Fails if a command line names an option, a profile or a recipe that does not exist. Reads no recording.
#[cfg(test)]
pub fn is_there(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Replay(a) => replay::is_there(a),
        _ => Ok(()),
    }
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Stat(a) => stat::run(a, as_json),
        Command::Convert(a) => convert::run(a, as_json),
        Command::Replay(a) => replay::run(a, as_json),
    }
}
