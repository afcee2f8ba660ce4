//! Code shared with a fuzzer: treats any bytes as a client's.

use std::io::Cursor;
use std::sync::{Arc, LazyLock};

use device::energy::profile::Profile;
use device::energy::{Bill, Energy, Nanos, Part};
use device::gauge::{Gauge, Setup, Speed};
use device::model::{Ask, Model};
use device::{Lba, Memory, Tag};
use nbd::session::{Next, handshake, transmission};
use nbd::{Export, word};

/// Costs a nanojoule per block and a microjoule per flush.
pub struct Plain {
    pub blocks: u64,
}

impl Model for Plain {
    fn blocks(&self) -> u64 {
        self.blocks
    }
    fn serve(&mut self, now: Nanos, ask: Ask, _: Tag, bill: &mut Bill) -> Nanos {
        match ask {
            Ask::Read { blocks, .. } | Ask::Write { blocks, .. } | Ask::Discard { blocks, .. } => {
                bill.add(Part::Link, Energy(1000).times(blocks));
            }
            Ask::Flush | Ask::Remap { .. } => bill.add(Part::Flush, Energy(1_000_000)),
        }
        now
    }
    fn wait(&mut self, _: Nanos, _: &mut Bill) {}
    fn power_cycle(&mut self, now: Nanos, _: &mut Bill) -> Nanos {
        now
    }
    fn cut(&mut self, _: Nanos) -> Vec<Lba> {
        Vec::new()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A small disk.
pub fn export(blocks: u64) -> Export {
    static PROFILE: LazyLock<Profile> = LazyLock::new(|| Profile::find("kirin9000-ufs31").expect("shipped"));
    let gauge = Gauge::new(Setup {
        contents: Arc::new(Memory::new(blocks)),
        discards_read_zero: true,
        model: Box::new(Plain { blocks }),
        profile: PROFILE.clone(),
        speed: Speed::Unpaced,
    });
    Export { gauge: Arc::new(gauge), description: "sixteen blocks".to_owned() }
}

/// Runs a session with a client that sends these bytes and disconnects: first as a whole session, then as if
/// negotiation were done. The server must send whole messages, one per possible request.
pub fn session(bytes: &[u8]) {
    let export = export(16);
    let (mut input, mut output) = (Cursor::new(bytes), Vec::new());
    let settled = handshake(&mut input, &mut output, &export, || Ok(()));
    // An option has at least 16 bytes; its answer has at most four messages.
    assert!(output.len() <= 18 + bytes.len() / 16 * 160, "{} bytes for {}", output.len(), bytes.len());
    if let Ok(Next::Transmission) = settled {
        requests(&bytes[usize::try_from(input.position()).expect("a length").min(bytes.len())..], &export);
    }
    requests(bytes, &export);
}

fn requests(bytes: &[u8], export: &Export) {
    let mut output = Vec::new();
    // Broken messages and early ends are errors; the driver does not distinguish them.
    let _ = transmission(&mut Cursor::new(bytes), &mut output, export, || false);
    let (mut asked, mut answers) = (bytes, &output[..]);
    while let Some((head, rest)) = answers.split_first_chunk::<16>() {
        let (request, after) = asked.split_first_chunk::<{ word::Request::SIZE }>().expect("nobody asked");
        let request = word::Request::decode(*request).expect("an answer to no request");
        assert_eq!((&head[..4], &head[8..]), (&[0x67, 0x44, 0x66, 0x98][..], &request.cookie[..]));
        let fine = head[4..8] == [0; 4];
        answers = rest;
        asked = after;
        let length = request.length as usize;
        match request.command {
            word::Command::Read if fine => answers = &answers[length..],
            word::Command::Write => asked = &asked[length..],
            _ => {}
        }
    }
    assert!(answers.is_empty(), "half an answer");
}
