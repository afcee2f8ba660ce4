//! Code shared with a fuzzer: reads any bytes as a recording in a line-based format.

use std::io::Cursor;
use std::path::Path;

use trace::{At, Columns, Input, Opened, TraceError, open_columns, open_input};

/// Reads any bytes to an end or an error, which must name an existing line; nothing may follow. Invalid lines are skipped,
/// and then refused.
pub fn any(bytes: &[u8]) {
    for strict in [false, true] {
        let input = Input::new(Path::new("recording"), Cursor::new(bytes.to_vec()));
        end_of(bytes, input.and_then(|input| open_input(input.strict(strict))));
    }
}

fn end_of(bytes: &[u8], opened: Result<Opened, TraceError>) {
    let lines = bytes.iter().filter(|b| **b == b'\n').count() as u64 + 1;
    let end = match opened {
        Err(e) => Err(e),
        Ok(Opened::Blocks(mut r)) => {
            let end = loop {
                match r.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => break Ok(()),
                    Err(e) => break Err(e),
                }
            };
            assert!(matches!(r.next(), Ok(None)), "something after the end");
            end
        }
        Ok(Opened::Calls(mut r)) => {
            let end = loop {
                match r.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => break Ok(()),
                    Err(e) => break Err(e),
                }
            };
            assert!(matches!(r.next(), Ok(None)), "something after the end");
            end
        }
        // A changed byte can turn it into another format.
        Ok(Opened::Power(_)) => Ok(()),
    };
    match end {
        Ok(()) | Err(TraceError::Unknown { .. } | TraceError::Io { .. }) => {}
        Err(
            TraceError::Damaged { at: At::Line(line), .. }
            | TraceError::CutShort { at: At::Line(line), .. }
            | TraceError::Unsupported { at: At::Line(line), .. },
        ) if (1..=lines).contains(&line) => {}
        // It may be recognised as a binary format.
        Err(
            TraceError::Damaged { at: At::Byte(at), .. }
            | TraceError::CutShort { at: At::Byte(at), .. }
            | TraceError::Unsupported { at: At::Byte(at), .. },
            // UTF-16 becomes longer.
        ) if at <= 2 * bytes.len() as u64 => {}
        Err(other) => panic!("{lines} lines, but {other}"),
    }
}

fn after(good: &[u8], bytes: &[u8]) {
    any(&[good, bytes].concat());
}

/// The bytes in a mobile block trace.
pub fn mobile_csv(bytes: &[u8]) {
    after(b"proces,device,rw_flag,sector,size,timestamp\n", bytes);
}

/// The bytes as a table of every known format, and of columns that they give themselves in the first line.
pub fn request_tables(bytes: &[u8]) {
    any(bytes);
    for first in [
        &b"128166372003061629,usr,0,Read,7014609920,24576,41286\n"[..],
        b"Timestamp,Response,IOType,LUN,Offset,Size\n",
        b"419,W,8792731648,16384,1577808144360767\n",
        b"1538323200,12910952,128,0,1063\n",
        b"0,20941264,8192,W,0.551706\n",
        b"89966777158147 4892 syslogd 904265560 8 W 6 0 531e779e\n",
        b"0.000000 0 123456 8 1\n",
        b"4851300 1 524288 16 0\n",
        b"3, 38900, 1, 8192, 40960, 0\n",
        b"TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n",
        b"ENDs COMM PID TYPE DEV BLOCK BYTES LATms\n",
    ] {
        after(first, bytes);
    }
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let given = std::str::from_utf8(&bytes[..end]).ok().and_then(|text| text.parse::<Columns>().ok());
    let plain: Columns = "time=1:datetime,op=2,offset=3:block,bytes=4,process=5".parse().expect("columns");
    for columns in given.into_iter().chain([plain]) {
        let input = Input::new(Path::new("recording"), Cursor::new(bytes.to_vec()));
        end_of(bytes, input.map(|input| open_columns(input, columns)));
    }
}

/// The bytes as records of a cache's simulator: as they are, and after valid ones.
pub fn cache_traces(bytes: &[u8]) {
    any(bytes);
    let mut record = vec![0x28, 0, 0, 2];
    record.resize(40, 0);
    after(&[&record[..], &record].concat(), bytes);
    let mut record = vec![0; 24];
    record[12] = 1;
    record[16..].fill(0xff);
    after(&[&record[..], &record].concat(), bytes);
}

/// The bytes in an iolog of either version.
pub fn fio_iolog(bytes: &[u8]) {
    after(b"fio version 2 iolog\nf add\nf open\n", bytes);
    after(b"fio version 3 iolog\n1 f add\n2 f open\n", bytes);
}

/// The bytes in a recording of MobiBench.
pub fn mobibench(bytes: &[u8]) {
    after(b"1 0 open \"/a\" O_RDWR|O_CREAT 3\n", bytes);
}

/// The bytes in strace's output.
pub fn strace(bytes: &[u8]) {
    after(b"7 1.0 openat(AT_FDCWD</x>, \"a\", O_RDWR) = 3</x/a> <0.1>\n", bytes);
}
