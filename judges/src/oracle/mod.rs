//! What do others say about an image?
//!
//! Judges that share no code with this workspace: the Linux kernel's own F2FS, run as an ordinary
//! process or in an emulator ([`kernel`]; which one: [`judge`], [`linux`]), also where its drivers matter ([`qemu`]), and the programs of
//! f2fs-tools ([`tools`]). [`cleaning`] takes down which segments the kernel chooses. [`tree`] writes down what a
//! mounted tree holds, in one canonical text, whoever mounted it, so that two readers of one image
//! can be compared line by line; [`victims`] is a recording of the kernel's choices of segments.
//!
//! A judge that is not installed fails the test that needs it; a kernel that must be built first is reported as missing
//! (`testlog`).
//!
//! Left out on purpose: what is judged (the tests say), and every number about speed.

pub mod cleaning;
pub mod judge;
pub mod kernel;
pub mod linux;
pub mod qemu;
pub mod recorded;
pub mod tools;
pub mod tree;
pub mod victims;
