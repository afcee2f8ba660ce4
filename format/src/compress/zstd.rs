//! Zstandard decoder that bounds the memory a frame header can request.
//!
//! The decoder keeps a frame's window in memory. As in Linux, the window must not exceed the cluster, which is
//! checked first. Header fields follow RFC 8878, section 3.1.1.1.

use std::io::Read;

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// Decodes the only frame in `stream` and returns the number of bytes written to `out`.
pub(super) fn decompress(stream: &[u8], out: &mut [u8]) -> Result<usize, String> {
    let window = window(stream).ok_or("not a frame of Zstandard")?;
    let room = out.len();
    if window > room as u64 {
        return Err(format!("window of {window} bytes for a cluster of {room}"));
    }
    let (mut decoder, mut input, mut filled) = (FrameDecoder::new(), stream, 0);
    decoder.init(&mut input).map_err(|e| e.to_string())?;
    while !decoder.is_finished() {
        // One step decodes at most this plus one block before the buffer is drained down to the window.
        let step = BlockDecodingStrategy::UptoBytes(room);
        decoder.decode_blocks(&mut input, step).map_err(|e| e.to_string())?;
        filled += decoder.read(&mut out[filled..]).map_err(|e| e.to_string())?;
        if decoder.can_collect() > 0 {
            return Err("holds more than a cluster".into());
        }
    }
    if input.is_empty() { Ok(filled) } else { Err("has bytes after its end".into()) }
}

/// Window size in a frame header, in bytes.
fn window(frame: &[u8]) -> Option<u64> {
    let (&descriptor, rest) = frame.strip_prefix(&MAGIC)?.split_first()?;
    let single_segment = descriptor & 0x20 != 0;
    if !single_segment {
        let byte = *rest.first()?;
        let base = 1u64 << (10 + (byte >> 3));
        return Some(base + base / 8 * u64::from(byte & 7));
    }
    // The window equals the content size, which follows the dictionary id.
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let bytes = 1usize << (descriptor >> 6);
    let field = rest.get(dictionary..dictionary + bytes)?;
    let size = field.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    Some(if bytes == 2 { size + 256 } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_what_the_header_says() {
        let frame = |rest: &[u8]| [&MAGIC[..], rest].concat();
        // Exponent 4, mantissa 3: 16 KiB plus three eighths.
        assert_eq!(window(&frame(&[0, 4 << 3 | 3])), Some(16_384 + 3 * 2048));
        // One segment, content size in 1, 2 and 4 bytes, the last behind a dictionary id.
        assert_eq!(window(&frame(&[0x20, 9])), Some(9));
        assert_eq!(window(&frame(&[0x60, 1, 2])), Some(0x201 + 256));
        assert_eq!(window(&frame(&[0xA2, 7, 7, 1, 0, 0, 1])), Some(0x0100_0001));
        assert_eq!(window(&frame(&[0x60, 1])), None);
        assert_eq!(window(b"(\xB5/"), None);
    }

    #[test]
    fn a_window_larger_than_the_cluster_is_refused_before_it_is_reserved() {
        // The largest possible window, then run-length blocks of 128 KiB each.
        let mut bomb = [&MAGIC[..], &[0, 0xFF]].concat();
        bomb.extend((0..1000).flat_map(|_| [0x02, 0x00, 0x10, b'x']));
        let error = decompress(&bomb, &mut [0; 16_384]).unwrap_err();
        assert!(error.starts_with("window of "), "{error}");
    }
}
