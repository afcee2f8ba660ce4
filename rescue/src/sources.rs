//! Inputs for the recovery of a file.

use format::Nid;

use crate::index::{Index, Version};
use crate::place;
use crate::window::Window;

/// The image and the known data of its volume.
#[derive(Clone, Copy)]
pub struct Sources<'r> {
    /// The image.
    pub window: &'r Window<'r>,
    /// The volume.
    pub place: &'r place::Place,
    /// The nodes.
    pub index: &'r Index,
}

/// A node of a file, found or missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Found.
    Node(Version, Nid),
    /// Referenced by its parent, but not found.
    Missing,
}
