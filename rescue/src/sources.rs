//! What is a file put together from?

use format::Nid;

use crate::index::{Index, Version};
use crate::place;
use crate::window::Window;

/// The image, and what is known of the volume in it.
#[derive(Clone, Copy)]
pub struct Sources<'r> {
    /// The image.
    pub window: &'r Window<'r>,
    /// The volume.
    pub place: &'r place::Place,
    /// The nodes.
    pub index: &'r Index,
}

/// A node that a file is made of, or that it lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Found.
    Node(Version, Nid),
    /// Named by its parent, and not there.
    Missing,
}
