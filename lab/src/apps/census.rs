//! How much of a script's traffic rewrites existing pages, and how much do those pages change?
//!
//! Counts the numbers of MedFS FAST'25, Tables 1 and 2 and Figure 1, without any file system: like a kernel, it writes
//! pages when a file is synced, or five seconds after they changed. A page written before is an *update* and is
//! compared with its previous contents. A volume's own counts are checked against this plain model.

use std::collections::BTreeMap;

use device::BLOCK;
use format::{Block, delta};

use super::tape::{Call, Script};

/// Files up to this many bytes lie in their inodes, so none of their pages is written (on a volume made by `joulefs
/// mkfs`).
const INLINE: usize = 3400;
/// Files smaller than this many bytes are small (Table 1).
const SMALL: usize = 3_690_000;
/// Address words of an inode without extra attributes or extended attributes (MedFS FAST'25, section 2.1).
const WORDS: usize = 923;
/// Minimum number of deltas that must fit in a page: the thresholds of Figure 12 (a).
const TO_A_PAGE: [usize; 6] = [2, 3, 4, 5, 6, 8];
/// Changed pages are written after this many seconds.
const WRITEBACK: f64 = 5.0;

/// The counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Census {
    /// Pages written.
    pub pages: u64,
    /// Pages that had been written before.
    pub updates: u64,
    /// Differing bytes of all updates.
    pub differing: u64,
    /// Updates whose LZO-compressed difference takes less than 256 bytes.
    pub below_256: u64,
    /// Updates whose LZO-compressed difference takes less than 819 bytes.
    pub below_819: u64,
    /// Bytes of all compressed differences below 256 bytes.
    pub small_bytes: u64,
    /// Updates whose delta takes at most 255 bytes with our codecs.
    pub ours: u64,
    /// Bytes of the deltas counted in `ours`.
    pub our_bytes: u64,
    /// Bytes of all pages, each compressed separately by LZO.
    pub compressed: u64,
    /// Updates of databases, journals and logs.
    pub sqlite_updates: u64,
    /// Updates of temporary files.
    pub temporary_updates: u64,
    /// Files written.
    pub files: u64,
    /// Small files written.
    pub small_files: u64,
    /// Databases, journals and logs among the files.
    pub sqlite_files: u64,
    /// Temporary files among the files.
    pub temporary_files: u64,
    /// Percent of each inode's address words that are unused, summed over all files.
    pub free_words: f64,
    /// By [`TO_A_PAGE`]: updates whose LZO-compressed difference is small enough for that many to fit in a page, and
    /// the bytes of these differences.
    pub packed: [(u64, u64); TO_A_PAGE.len()],
    /// Distinct pages that were updated.
    pub updated_pages: u64,
    /// Syncs.
    pub syncs: u64,
    /// Whether pages and differences were compressed.
    pub sizes: bool,
}

#[derive(Default)]
struct Page {
    durable: Option<Box<Block>>,
    dirty: bool,
    updates: u64,
}

#[derive(Default)]
struct Watched {
    bytes: Vec<u8>,
    pages: BTreeMap<usize, Page>,
    name: String,
    written: bool,
    /// Has been too large for its inode.
    grown: bool,
    gone: bool,
}

fn compressed(page: &[u8]) -> usize {
    lzokay_native::compress(page).map_or(BLOCK, |c| c.len().min(BLOCK))
}

/// Counts the size of an update's difference.
fn sizes(census: &mut Census, old: &Block, new: &Block) {
    let xor: Vec<u8> = old.iter().zip(new).map(|(a, b)| a ^ b).collect();
    let small = compressed(&xor);
    if small < 256 {
        census.below_256 += 1;
        census.small_bytes += small as u64;
    }
    census.below_819 += u64::from(small < 819);
    for (n, (updates, bytes)) in TO_A_PAGE.iter().zip(&mut census.packed) {
        if small <= BLOCK / n {
            *updates += 1;
            *bytes += small as u64;
        }
    }
    let mut out = Vec::new();
    if delta::codec::encode(old, new, delta::LONGEST, &mut out).is_some() {
        census.ours += 1;
        census.our_bytes += out.len() as u64;
    }
}

impl Watched {
    fn change(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
        for page in at / BLOCK..end.div_ceil(BLOCK) {
            self.pages.entry(page).or_default().dirty = true;
        }
    }

    fn cut(&mut self, size: usize) {
        let from = self.bytes.len();
        self.bytes.resize(size, 0);
        self.pages.retain(|n, _| n * BLOCK < size);
        if size < from && !size.is_multiple_of(BLOCK) {
            self.pages.entry(size / BLOCK).or_default().dirty = true;
        }
    }

    fn page(&self, n: usize) -> Box<Block> {
        let mut page = Box::new([0; BLOCK]);
        let bytes = &self.bytes[n * BLOCK..self.bytes.len().min((n + 1) * BLOCK)];
        page[..bytes.len()].copy_from_slice(bytes);
        page
    }

    fn write(&mut self, census: Option<&mut Census>) {
        self.grown |= self.bytes.len() > INLINE;
        let dirty: Vec<usize> = self.pages.iter().filter(|(_, p)| p.dirty).map(|(n, _)| *n).collect();
        self.written |= !dirty.is_empty() && census.is_some();
        if let Some(census) = census
            && self.grown
        {
            for n in &dirty {
                let (new, page) = (self.page(*n), &self.pages[n]);
                self.count(census, &new, page);
            }
        }
        for n in dirty {
            let new = self.page(n);
            if let Some(page) = self.pages.get_mut(&n) {
                page.updates += u64::from(page.durable.is_some());
                *page = Page { durable: Some(new), dirty: false, updates: page.updates };
            }
        }
    }

    fn count(&self, census: &mut Census, new: &Block, page: &Page) {
        census.pages += 1;
        if census.sizes {
            census.compressed += compressed(new) as u64;
        }
        let Some(old) = &page.durable else { return };
        census.updates += 1;
        census.updated_pages += u64::from(page.updates == 0);
        census.differing += old.iter().zip(new).filter(|(a, b)| a != b).count() as u64;
        if census.sizes {
            sizes(census, old, new);
        }
        census.sqlite_updates += u64::from(self.is_of_sqlite());
        census.temporary_updates += u64::from(self.is_temporary());
    }

    fn is_of_sqlite(&self) -> bool {
        self.name.ends_with(".db") || self.name.contains(".db-")
    }

    fn is_temporary(&self) -> bool {
        self.name.starts_with("todelete_")
    }

    /// Percent of the inode's address words that are unused.
    fn free_words(&self) -> f64 {
        let taken = if self.grown { self.bytes.len().div_ceil(BLOCK) } else { self.bytes.len().div_ceil(4) };
        100.0 * WORDS.saturating_sub(taken) as f64 / WORDS as f64
    }
}

impl Census {
    /// Counts a script; of its preparation only the resulting files. Without `sizes`, skips compression, the slowest
    /// part.
    pub fn of(script: &Script, sizes: bool) -> Census {
        let mut census = Census { sizes, ..Census::default() };
        let mut files: Vec<Watched> = Vec::new();
        let (mut now, mut written) = (0.0, 0.0);
        for (n, call) in script.calls.iter().enumerate() {
            if n == script.prepares {
                files.iter_mut().for_each(|f| f.write(None));
            }
            let measured = n >= script.prepares;
            match call {
                Call::Make(_, name) => files.push(Watched { name: name.clone(), ..Watched::default() }),
                Call::Write(file, at, bytes) => files[*file].change(*at as usize, &script.bytes[bytes.clone()]),
                Call::Size(file, size) => files[*file].cut(*size as usize),
                Call::Sync(file) => {
                    census.syncs += u64::from(measured);
                    files[*file].write(measured.then_some(&mut census));
                }
                Call::Delete(file) => files[*file].gone = true,
                Call::Rename(file, name) => {
                    gone(&mut files, name);
                    files[*file].name.clone_from(name);
                }
                Call::Wait(time) => {
                    now += time.as_secs_f64();
                    if now - written >= WRITEBACK {
                        written = now;
                        all(&mut files, measured.then_some(&mut census));
                    }
                }
                Call::Read(..) | Call::SyncDirectory => {}
            }
        }
        all(&mut files, Some(&mut census));
        let seen = files.iter().filter(|f| f.written);
        census.files = seen.clone().count() as u64;
        census.small_files = seen.clone().filter(|f| f.bytes.len() < SMALL).count() as u64;
        census.sqlite_files = seen.clone().filter(|f| f.is_of_sqlite()).count() as u64;
        census.temporary_files = seen.clone().filter(|f| f.is_temporary()).count() as u64;
        census.free_words = seen.map(Watched::free_words).sum();
        census
    }

    /// Percent of the traffic that is updates (Table 1: UR).
    pub fn update_ratio(&self) -> f64 {
        100.0 * self.updates as f64 / self.pages.max(1) as f64
    }
    /// Percent of an updated page that differs, on average (Table 1: UD).
    pub fn update_difference(&self) -> f64 {
        100.0 * self.differing as f64 / (self.updates.max(1) * BLOCK as u64) as f64
    }
    /// Percent that LZO saves on pages (Table 2: CCR).
    pub fn page_compression(&self) -> f64 {
        100.0 - 100.0 * self.compressed as f64 / (self.pages.max(1) * BLOCK as u64) as f64
    }
    /// Percent that LZO saves on updates whose compressed difference is below 256 bytes (Table 2: DCR).
    pub fn delta_compression(&self) -> f64 {
        100.0 - 100.0 * self.small_bytes as f64 / (self.below_256.max(1) * BLOCK as u64) as f64
    }
    /// Percent of an inode's address words that are unused, mean over all files (Figure 1 (b)).
    pub fn free_in_inodes(&self) -> f64 {
        self.free_words / self.files.max(1) as f64
    }
    /// A count as a percentage of the files.
    pub fn of_files(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.files.max(1) as f64
    }
    /// For each number of deltas per page: percent of the pages still written if all smaller differences are packed
    /// without gaps and without metadata (Figure 12 (a)).
    pub fn thresholds(&self) -> impl Iterator<Item = (usize, f64)> {
        let written = |(updates, bytes): (u64, u64)| (self.pages - updates) as f64 + bytes as f64 / BLOCK as f64;
        TO_A_PAGE.into_iter().zip(self.packed).map(move |(n, p)| (n, 100.0 * written(p) / self.pages.max(1) as f64))
    }
    /// A count as a percentage of the updates.
    pub fn of_updates(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.updates.max(1) as f64
    }
}

fn all(files: &mut [Watched], mut census: Option<&mut Census>) {
    files.iter_mut().filter(|f| !f.gone).for_each(|f| f.write(census.as_deref_mut()));
}

/// Removes the file that another file's new name replaces.
fn gone(files: &mut [Watched], name: &str) {
    files.iter_mut().filter(|f: &&mut Watched| f.name == name).for_each(|f| f.gone = true);
}
