//! Which written blocks are not on flash yet?
//!
//! Written blocks wait in slots until there are enough for a row, and stay there until the row is programmed. A
//! block that is rewritten while it waits takes no second slot.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

const NONE: u32 = u32::MAX;

/// A written block.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Slot {
    /// Its number.
    pub block: u32,
    /// The write's number.
    pub generation: u64,
    /// The handle of its reclaim unit.
    handle: u8,
    /// True if it was issued to a die.
    issued: bool,
    /// True if it was discarded, or superseded by a newer write that was programmed first.
    dead: bool,
    /// The slot of an older write of the same block that is being programmed, and that write's number.
    older: (u32, u64),
}

/// Blocks being programmed together.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Row {
    /// The first unit.
    pub unit: u32,
    /// Their slots.
    pub slots: Vec<u32>,
}

/// Result of adding a written block to the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It took a new slot.
    Slot,
    /// It replaced an older write that still waited.
    Absorbed,
    /// The buffer is full.
    Full,
}

/// The slots.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Buffer {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The newest slot of a block.
    newest: FxHashMap<u32, u32>,
    /// Slots that are not issued, oldest first, by handle.
    waiting: Vec<Vec<u32>>,
    rows: Vec<Row>,
    free_rows: Vec<u32>,
}

impl Buffer {
    /// A buffer for `room` blocks and `handles` handles.
    pub fn new(room: u32, handles: u32) -> Self {
        let slot = Slot { block: 0, generation: 0, handle: 0, issued: false, dead: false, older: (NONE, 0) };
        Buffer {
            slots: vec![slot; room as usize],
            free: (0..room).rev().collect(),
            newest: FxHashMap::default(),
            waiting: vec![Vec::new(); handles as usize],
            rows: Vec::new(),
            free_rows: Vec::new(),
        }
    }
    /// Capacity in blocks.
    pub fn room(&self) -> u32 {
        self.slots.len() as u32
    }
    /// True if it is empty.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }
    /// True if it is full.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }
    /// True if the buffer answers a read of this block.
    pub fn holds(&self, block: u32) -> bool {
        self.newest.contains_key(&block)
    }
    /// The number of the buffered write of a block.
    pub fn generation(&self, block: u32) -> Option<u64> {
        self.newest.get(&block).map(|s| self.slots[*s as usize].generation)
    }
    /// Buffered blocks in a range, in order.
    pub fn within(&self, from: u64, to: u64) -> Vec<u32> {
        if self.newest.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<u32> = match (to - from) < self.newest.len() as u64 {
            true => (from..to).map(|b| b as u32).filter(|b| self.holds(*b)).collect(),
            false => self.newest.keys().copied().filter(|b| (from..to).contains(&u64::from(*b))).collect(),
        };
        found.sort_unstable();
        found
    }
    /// Number of slots that are not issued.
    pub fn waiting(&self) -> u32 {
        self.waiting.iter().map(|w| w.len() as u32).sum()
    }
    /// Number of such slots of a handle.
    pub fn waiting_of(&self, handle: u8) -> u32 {
        self.waiting[usize::from(handle)].len() as u32
    }
    /// The handle with the most waiting blocks.
    pub fn fullest(&self) -> u8 {
        let all = self.waiting.iter().zip(0_u8..);
        all.max_by_key(|(w, handle)| (w.len(), u8::MAX - handle)).map_or(0, |(_, handle)| handle)
    }

    /// Adds a written block. If an older write of the block still waits, it is replaced in its slot, whatever its
    /// handle.
    pub fn take(&mut self, block: u32, generation: u64, handle: u8) -> Taken {
        let before = self.newest.get(&block).copied();
        if let Some(old) = before {
            let s = &mut self.slots[old as usize];
            if !s.issued {
                s.generation = generation;
                return Taken::Absorbed;
            }
        }
        let Some(slot) = self.free.pop() else { return Taken::Full };
        let older = before.map_or((NONE, 0), |o| (o, self.slots[o as usize].generation));
        self.slots[slot as usize] = Slot { block, generation, handle, issued: false, dead: false, older };
        self.newest.insert(block, slot);
        self.waiting[usize::from(handle)].push(slot);
        Taken::Slot
    }

    /// Issues the oldest waiting blocks of a handle, at most `count`, as a row that is programmed from `unit` on.
    pub fn issue(&mut self, handle: u8, count: u32, unit: u32) -> u32 {
        let row = self.free_rows.pop().unwrap_or_else(|| {
            self.rows.push(Row::default());
            self.rows.len() as u32 - 1
        });
        let r = &mut self.rows[row as usize];
        r.unit = unit;
        r.slots.clear();
        let waiting = &mut self.waiting[usize::from(handle)];
        r.slots.extend(waiting.drain(..(count as usize).min(waiting.len())));
        for s in &r.slots {
            self.slots[*s as usize].issued = true;
        }
        row
    }
    /// A row.
    pub fn row(&self, row: u32) -> &Row {
        &self.rows[row as usize]
    }
    /// A slot.
    pub fn slot(&self, slot: u32) -> Slot {
        self.slots[slot as usize]
    }

    /// Completes a row: calls `counts` with block and unit for each block whose newest version on flash is in this
    /// row.
    pub fn programmed(&mut self, row: u32, mut counts: impl FnMut(u32, u32)) {
        let Row { unit, slots } = std::mem::take(&mut self.rows[row as usize]);
        for (at, &slot) in (unit..).zip(&slots) {
            let s = self.slots[slot as usize];
            if !s.dead {
                counts(s.block, at);
                self.kill_older(s.older);
            }
            if self.newest.get(&s.block) == Some(&slot) {
                self.newest.remove(&s.block);
            }
            self.slots[slot as usize].dead = true;
            self.free.push(slot);
        }
        self.rows[row as usize].slots = slots;
        self.free_rows.push(row);
    }

    /// Marks older writes of a block that are still being programmed as superseded.
    fn kill_older(&mut self, mut older: (u32, u64)) {
        while older.0 != NONE {
            let s = &mut self.slots[older.0 as usize];
            // A slot that was freed and reused holds another write.
            if s.generation != older.1 || s.dead {
                return;
            }
            s.dead = true;
            older = s.older;
        }
    }

    /// Discards a block; true if a write of it still waited, which is then not programmed.
    pub fn discard(&mut self, block: u32) -> bool {
        let Some(slot) = self.newest.remove(&block) else { return false };
        let s = self.slots[slot as usize];
        self.kill_older((slot, s.generation));
        if s.issued {
            return false;
        }
        self.waiting[usize::from(s.handle)].retain(|w| *w != slot);
        self.free.push(slot);
        true
    }

    /// Units that are being programmed.
    pub fn in_flight(&self) -> Vec<u32> {
        let rows = self.rows.iter().zip(0..).filter(|(_, i)| !self.free_rows.contains(i));
        rows.flat_map(|(r, _)| (r.unit..).take(r.slots.len())).collect()
    }

    /// Simulates a power cut: drops everything, and returns the lost blocks in order.
    pub fn lose(&mut self) -> Vec<u32> {
        let mut lost: Vec<u32> = self.newest.drain().map(|(b, _)| b).collect();
        lost.sort_unstable();
        *self = Buffer::new(self.slots.len() as u32, self.waiting.len() as u32);
        lost
    }
}
