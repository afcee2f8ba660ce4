//! Code shared with a fuzzer: reads any bytes as a recording in a line-based format.

use std::io::Cursor;
use std::path::Path;

use trace::{At, Input, Opened, TraceError, open_input};

/// Reads any bytes to an end or an error, which must name an existing line; nothing may follow.
pub fn any(bytes: &[u8]) {
    let lines = bytes.iter().filter(|b| **b == b'\n').count() as u64 + 1;
    let opened = Input::new(Path::new("recording"), Cursor::new(bytes.to_vec())).and_then(open_input);
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
        ) if at <= bytes.len() as u64 => {}
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

/// The bytes in a trace of Microsoft Research Cambridge, or of SYSTOR'17.
pub fn server_csv(bytes: &[u8]) {
    after(b"128166372003061629,usr,0,Read,7014609920,24576,41286\n", bytes);
    after(b"Timestamp,Response,IOType,LUN,Offset,Size\n", bytes);
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
