//! What do others say about an image?
//!
//! Judges that share no code with this workspace: the Linux kernel's own F2FS, run as an ordinary
//! process ([`kernel`]), and the programs of f2fs-tools ([`tools`]). [`tree`] writes down what a
//! mounted tree holds, in one canonical text, whoever mounted it, so that two readers of one image
//! can be compared line by line.
//!
//! A judge that is not installed fails the test that needs it; no test passes by skipping.
//!
//! Left out on purpose: what is judged (the tests say), and every number about speed.

pub mod kernel;
pub mod tools;
pub mod tree;
