//! Where does a mount put deltas, and which bases does it read?

/// Where deltas may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Places {
    /// Into the inode as long as there is room, then into delta nodes.
    #[default]
    Both,
    /// Into the inode only (the paper's DCI alone).
    Inode,
    /// Into delta nodes only (corresponds to the paper's DCM alone).
    Nodes,
}

/// Which bases outside memory are read for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reads {
    /// All.
    All,
    /// Those of an fsync of up to eight pages, which then writes one block; other bases if that takes fewer joules than
    /// writing the pages.
    #[default]
    Few,
    /// Only if that takes fewer joules.
    Joules,
}
