//! Which of the requests since the last flush reach the medium, in what order, and how much of each?
//!
//! The contract leaves a power cut several choices. Each is a value here, with a name that can be printed and
//! parsed, so that a failure under one choice is reproducible.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::{BLOCK, BlockDevice, Lba, Memory, Rng, Tag};

/// The atomic write unit of a medium.
pub const SECTOR: usize = 512;
const SECTORS: usize = BLOCK / SECTOR;

/// The fate of the requests (writes and discards) since the last completed flush.
///
/// Printed and parsed as `all-kept`, `first-kept:3`, `last-torn:5`, `random:42` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// All arrive, in order.
    AllKept,
    /// None arrives; discarded blocks keep their contents.
    AllLost,
    /// Only the last arrives.
    OnlyLastKept,
    /// All but the last.
    AllButLast,
    /// All but the first.
    AllButFirst,
    /// Only the first `n` arrive.
    FirstKept(u64),
    /// All but number `n`, counted from 0.
    AllBut(u64),
    /// All arrive, but of the last, if it is a write, only the first `n` sectors.
    LastTorn(u64),
    /// All arrive in reverse order: if two wrote one block, the older remains.
    Reversed,
    /// Chosen by this seed: each kept, lost, or torn at sectors, in order or shuffled.
    Random(u64),
}

impl Loss {
    /// The choices without a number.
    pub const PLAIN: [Self; 6] =
        [Self::AllKept, Self::AllLost, Self::OnlyLastKept, Self::AllButLast, Self::AllButFirst, Self::Reversed];

    fn name(self) -> (&'static str, Option<u64>) {
        match self {
            Self::AllKept => ("all-kept", None),
            Self::AllLost => ("all-lost", None),
            Self::OnlyLastKept => ("only-last-kept", None),
            Self::AllButLast => ("all-but-last", None),
            Self::AllButFirst => ("all-but-first", None),
            Self::FirstKept(n) => ("first-kept", Some(n)),
            Self::AllBut(n) => ("all-but", Some(n)),
            Self::LastTorn(n) => ("last-torn", Some(n)),
            Self::Reversed => ("reversed", None),
            Self::Random(n) => ("random", Some(n)),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            (name, None) => f.write_str(name),
            (name, Some(n)) => write!(f, "{name}:{n}"),
        }
    }
}

/// A text that is not a [`Loss`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no loss: all-kept, all-lost, first-kept:3, last-torn:5, random:42, ...")]
pub struct UnknownLoss(String);

impl FromStr for Loss {
    type Err = UnknownLoss;

    fn from_str(text: &str) -> Result<Self, UnknownLoss> {
        let unknown = || UnknownLoss(text.to_owned());
        if let Some(plain) = Self::PLAIN.into_iter().find(|l| l.name().0 == text) {
            return Ok(plain);
        }
        let (name, n) = text.split_once(':').ok_or_else(unknown)?;
        let n = n.parse().map_err(|_| unknown())?;
        match name {
            "first-kept" => Ok(Self::FirstKept(n)),
            "all-but" => Ok(Self::AllBut(n)),
            "last-torn" => Ok(Self::LastTorn(n)),
            "random" => Ok(Self::Random(n)),
            _ => Err(unknown()),
        }
    }
}

/// A request that is not durable yet. The device has checked its range.
pub(crate) enum Request {
    Write { at: Lba, data: Box<[u8]> },
    Discard { at: Lba, blocks: u64 },
}

/// The image that `loss` leaves of `durable` and the requests `since`; `dropped` blocks of `durable` were discarded
/// earlier.
pub(crate) fn compose(durable: &Memory, dropped: &BTreeSet<u64>, since: &[Request], loss: Loss) -> Memory {
    let image = Image(durable.fork());
    if let Loss::Random(seed) = loss {
        image.at_random(dropped, since, &mut Rng::new(seed));
        return image.0;
    }
    if loss == Loss::AllLost {
        return image.0;
    }
    for block in dropped {
        image.zero(*block, 1);
    }
    let last = since.len().wrapping_sub(1);
    let keeps = |i: usize| match loss {
        Loss::AllKept | Loss::Reversed | Loss::LastTorn(_) | Loss::Random(_) => true,
        Loss::AllLost => false,
        Loss::OnlyLastKept => i == last,
        Loss::AllButLast => i != last,
        Loss::AllButFirst => i != 0,
        Loss::FirstKept(n) => (i as u64) < n,
        Loss::AllBut(n) => i as u64 != n,
    };
    let mut kept: Vec<usize> = (0..since.len()).filter(|i| keeps(*i)).collect();
    if loss == Loss::Reversed {
        kept.reverse();
    }
    for i in kept {
        match (&since[i], loss) {
            (Request::Write { at, data }, Loss::LastTorn(n)) if i == last => {
                image.tear(*at, data, |sector| (sector as u64) < n);
            }
            (request, _) => image.apply(request),
        }
    }
    image.0
}

struct Image(Memory);

impl Image {
    // Requests were checked against a device of this size when they arrived, so none can fail here.

    fn zero(&self, block: u64, blocks: u64) {
        let _ = self.0.discard(Lba(block), blocks, Tag::default());
    }

    fn apply(&self, request: &Request) {
        match request {
            Request::Write { at, data } => {
                let _ = self.0.write(*at, data, Tag::default());
            }
            Request::Discard { at, blocks } => self.zero(at.0, *blocks),
        }
    }

    /// Writes the sectors (numbered from the write's start) that `arrives` accepts.
    fn tear(&self, at: Lba, data: &[u8], mut arrives: impl FnMut(usize) -> bool) {
        let mut now = vec![0; data.len()];
        let _ = self.0.read(at, &mut now, Tag::default());
        let sectors = now.chunks_exact_mut(SECTOR).zip(data.chunks_exact(SECTOR));
        for (i, (old, new)) in sectors.enumerate() {
            if arrives(i) {
                old.copy_from_slice(new);
            }
        }
        let _ = self.0.write(at, &now, Tag::default());
    }

    /// The odds are drawn first, so that some seeds lose nearly all requests and some almost none: most faults need
    /// one special write among many.
    fn at_random(&self, dropped: &BTreeSet<u64>, since: &[Request], rng: &mut Rng) {
        let zeroed = [0, 4, 8][rng.index(3)];
        for block in dropped {
            if rng.chance(zeroed, 8) {
                self.zero(*block, 1);
            }
        }
        let kept = [1, 4, 7][rng.index(3)];
        let torn = [0, 1, 4][rng.index(3)];
        let mut order: Vec<&Request> = since.iter().collect();
        if rng.chance(1, 2) {
            rng.shuffle(&mut order);
        }
        for request in order {
            match request {
                Request::Write { at, data } if rng.chance(torn, 8) => self.tear_at_random(*at, data, rng),
                Request::Discard { at, blocks } if rng.chance(torn, 8) => {
                    for (start, len) in self.0.allocated_runs(*at, *blocks) {
                        for block in (start..start + len).filter(|_| rng.chance(1, 2)) {
                            self.zero(block, 1);
                        }
                    }
                }
                whole if rng.chance(kept, 8) => self.apply(whole),
                _ => {}
            }
        }
    }

    fn tear_at_random(&self, at: Lba, data: &[u8], rng: &mut Rng) {
        let sectors = data.len() / SECTOR;
        let border = rng.index(sectors);
        match rng.below(4) {
            0 => self.tear(at, data, |i| i < border),
            1 => self.tear(at, data, |i| i >= border),
            2 => self.tear(at, data, |_| rng.chance(1, 2)),
            _ => {
                let blocks: Vec<bool> = (0..data.len() / BLOCK).map(|_| rng.chance(1, 2)).collect();
                self.tear(at, data, |i| blocks.get(i / SECTORS).copied().unwrap_or(false));
            }
        }
    }
}
