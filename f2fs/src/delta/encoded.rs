//! What is a delta between its page and its storage?

use format::delta::{Codec, Entry};
use format::node::delta::Entry as NodeEntry;

/// A page's delta, not yet stored.
pub(crate) struct Encoded {
    pub(crate) codec: Codec,
    check: u32,
    pub(crate) payload: Vec<u8>,
}

impl Encoded {
    pub(crate) fn new(codec: Codec, check: u32, payload: Vec<u8>) -> Self {
        Encoded { codec, check, payload }
    }
    /// As an entry of a zone.
    pub(crate) fn entry(&self, slot: u32) -> Entry<'_> {
        Entry { slot, codec: self.codec, check: self.check, payload: &self.payload }
    }
    /// As an entry of a delta node.
    pub(super) fn node_entry(&self, block: u32) -> NodeEntry<'_> {
        NodeEntry { block, codec: self.codec, check: self.check, payload: &self.payload }
    }
}

/// A delta read from storage.
pub(crate) struct Delta {
    pub(crate) block: u32,
    pub(crate) codec: Codec,
    pub(crate) check: u32,
    pub(crate) payload: Vec<u8>,
}

impl Delta {
    /// Encodes the delta again for another place.
    pub(crate) fn again(self) -> Encoded {
        Encoded::new(self.codec, self.check, self.payload)
    }
}
