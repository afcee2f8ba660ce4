//! Converts the output of `uncached_guest` to a recording of `lab::uncached::recorded`, on standard output.
//!
//!     uncached_pack DIRECTORY BLOCKS
//!
//! Keeps the requests of the first disk. A read of the second disk's block 0 marks the next call, of block 1 mounting,
//! of block 2 unmounting, of blocks 3 and above the beginning of a stage.

use std::path::Path;

use device::Lba;
use lab::uncached::recorded::Writer;
use trace::Opened;
use trace::block::{DeviceId, Flags, Op};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const VOLUME: DeviceId = DeviceId { major: 98, minor: 0 };
const MARKS: DeviceId = DeviceId { major: 98, minor: 16 };

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [directory, blocks] = &args[..] else { return Err("usage: uncached_pack DIRECTORY BLOCKS".into()) };
    let directory = Path::new(directory);
    let stages = std::fs::read_to_string(directory.join("stages"))?;
    let stages: Vec<&str> = stages.lines().collect();
    let mut writer = Writer::new(std::io::stdout(), blocks.parse()?, &stages).map_err(|e| e.to_string())?;
    for n in 0..stages.len() {
        let Opened::Blocks(mut events) = trace::open(&directory.join(format!("raw.{n}")))? else {
            return Err("no recording of block devices".into());
        };
        while let Some(event) = events.next()? {
            if event.flags.contains(Flags::FUA) {
                return Err("a durable write: this disk knows none".into());
            }
            let (first, end) = (event.sector / 8, (event.sector + event.sectors).div_ceil(8));
            let done = match (event.device, event.op) {
                (MARKS, _) if first == 0 => {
                    writer.call();
                    Ok(())
                }
                (MARKS, _) => {
                    writer.turn(u8::try_from(first)?);
                    Ok(())
                }
                (VOLUME, Op::Read) => writer.read(Lba(first), end - first),
                (VOLUME, Op::Write) => writer.write(Lba(first), end - first),
                (VOLUME, Op::Flush) => writer.flush(),
                // Disks of that time did not support discard.
                (VOLUME, Op::Discard) => Ok(()),
                (other, op) => return Err(format!("{} of {other}", op.text()).into()),
            };
            done.map_err(|e| e.to_string())?;
        }
    }
    let requests = writer.finish().map_err(|e| e.to_string())?;
    eprintln!("{requests} requests");
    Ok(())
}
