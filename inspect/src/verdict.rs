//! What would defragmentation cost, what would it save, and after how many reads has it paid off?
//!
//! Defragmenting by copying reads a file as it is laid out, writes it in its fewest extents, rewrites its nodes and
//! flushes. Each whole read of the file then saves energy. A file with nothing to save is never worth it.

use std::ops::Add;

use device::energy::Energy;

use crate::File;
use crate::class::Class;
use crate::inode::Kind;
use crate::price::{Cost, Prices, Work};

/// The costs for one file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Priced {
    /// Reading it as it is laid out.
    pub read: Cost,
    /// Reading it in its fewest extents.
    pub ideal: Cost,
    /// Copying it into its fewest extents.
    pub treatment: Cost,
}

impl Priced {
    /// The costs for a file.
    pub fn for_file(file: &File, prices: &Prices, window: u64) -> Self {
        let l = &file.layout;
        let read = prices.read(&Work::as_it_lies(l));
        if file.excess() == 0 {
            return Priced { read, ideal: read, treatment: Cost::default() };
        }
        let ideal = prices.read(&Work::as_it_could(l));
        // Nodes are written in requests of their own, to another log.
        let nodes = u64::from(l.nodes);
        let requests = l.min_requests + nodes.div_ceil(window.max(1));
        let (places, map_pages) = (u64::from(l.min_extents) + 1, u64::from(l.min_map_pages) + 1);
        let write = prices.write(&Work { blocks: l.blocks + nodes, requests, places, map_pages, map_turns: map_pages });
        Priced { read, ideal, treatment: read + write }
    }
    /// What each read saves after the copy.
    pub fn saved(&self) -> Energy {
        self.read.energy - self.ideal.energy
    }
    /// Number of whole reads after which copying has paid off, by energy; `None`: never.
    pub fn pays_after(&self) -> Option<u64> {
        let saved = self.saved().0;
        (saved > 0).then(|| self.treatment.energy.0.div_ceil(saved))
    }
}

/// Totals of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Files.
    pub files: u64,
    /// Files with more extents than needed.
    pub fragmented: u64,
    /// Files with their contents in the inode.
    pub inline: u64,
    /// Sum of file sizes, in bytes.
    pub bytes: u64,
    /// Blocks with an address.
    pub blocks: u64,
    /// Extents.
    pub extents: u64,
    /// Sum of the fewest possible extents.
    pub min_extents: u64,
    /// Deltas.
    pub deltas: u64,
    /// Free bytes for deltas in inodes.
    pub delta_room: u64,
    /// Sum of the costs.
    pub priced: Priced,
}

impl Add for Priced {
    type Output = Priced;
    fn add(self, o: Priced) -> Priced {
        Priced { read: self.read + o.read, ideal: self.ideal + o.ideal, treatment: self.treatment + o.treatment }
    }
}

impl Add for Sum {
    type Output = Sum;
    fn add(self, o: Sum) -> Sum {
        Sum {
            files: self.files + o.files,
            fragmented: self.fragmented + o.fragmented,
            inline: self.inline + o.inline,
            bytes: self.bytes.saturating_add(o.bytes),
            blocks: self.blocks + o.blocks,
            extents: self.extents + o.extents,
            min_extents: self.min_extents + o.min_extents,
            deltas: self.deltas + o.deltas,
            delta_room: self.delta_room + o.delta_room,
            priced: self.priced + o.priced,
        }
    }
}

impl Sum {
    /// Adds a file.
    pub fn take(&mut self, file: &File, priced: &Priced) {
        let l = &file.layout;
        *self = *self
            + Sum {
                files: 1,
                fragmented: u64::from(file.excess() > 0),
                inline: u64::from(file.inline),
                bytes: file.size,
                blocks: l.blocks,
                extents: l.extents.into(),
                min_extents: l.min_extents.into(),
                deltas: file.deltas.into(),
                delta_room: file.delta_room.into(),
                priced: *priced,
            };
    }
    /// The degree of fragmentation of all files together; `None` without an extent.
    pub fn dof(&self) -> Option<f64> {
        (self.min_extents > 0).then(|| self.extents as f64 / self.min_extents as f64)
    }
    /// Extents beyond the fewest.
    pub fn excess(&self) -> u64 {
        self.extents.saturating_sub(self.min_extents)
    }
}

/// The summary that is printed first.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// All regular files.
    pub all: Sum,
    /// By class, in the order of [`Class::ALL`].
    pub classes: [Sum; 4],
    /// Costs, in the order of the files.
    pub priced: Vec<Priced>,
    /// Regular files with excess extents, by index, the most excess first.
    pub worst: Vec<usize>,
    /// How many of the worst files hold most of the excess (at least [`MOST`]).
    pub few: usize,
    /// The excess of these files.
    pub few_excess: u64,
    /// What copying these files costs and saves.
    pub few_priced: Priced,
}

/// Share of the excess that the worst files of a verdict hold, in percent.
pub const MOST: u64 = 90;

impl Verdict {
    /// The verdict on a volume's files. `window` is that of [`Options`](crate::Options).
    pub fn new(files: &[File], prices: &Prices, window: u64) -> Self {
        let priced: Vec<Priced> = files.iter().map(|f| Priced::for_file(f, prices, window)).collect();
        let (mut all, mut classes) = (Sum::default(), [Sum::default(); 4]);
        let mut worst = Vec::new();
        for (i, (file, price)) in files.iter().zip(&priced).enumerate().filter(|(_, (f, _))| f.kind == Kind::File) {
            all.take(file, price);
            // OK to index: classes are numbered in the order of `ALL`.
            classes[file.class as usize].take(file, price);
            if file.excess() > 0 {
                worst.push(i);
            }
        }
        worst.sort_by_key(|i| std::cmp::Reverse((files[*i].excess(), files[*i].layout.span)));
        let (mut few, mut few_excess, mut few_sum) = (0, 0, Sum::default());
        while few < worst.len() && few_excess * 100 < all.excess() * MOST {
            let i = worst[few];
            few_excess += files[i].excess();
            few_sum.take(&files[i], &priced[i]);
            few += 1;
        }
        debug_assert_eq!(Class::ALL.len(), classes.len());
        Verdict { all, classes, priced, worst, few, few_excess, few_priced: few_sum.priced }
    }
}
