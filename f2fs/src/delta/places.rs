//! Which places for deltas does a mount use?

/// Where deltas may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Places {
    /// Into the inode as long as there is room, then into delta nodes.
    #[default]
    Both,
    /// Into the inode only (the paper's DCI alone).
    Inode,
    /// Into delta nodes only (in the place of the paper's DCM alone).
    Nodes,
}
