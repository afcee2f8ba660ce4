//! How do independent programs judge an image?
//!
//! Judges that share no code with this workspace: the Linux kernel's own F2FS, run as an ordinary process or in an
//! emulator ([`kernel`]; which one: [`judge`], [`linux`]), also with real disk drivers ([`qemu`]), and the programs of
//! f2fs-tools ([`tools`]). [`cleaning`] records which segments the kernel chooses. [`tree`] lists the contents of a
//! mounted tree in a canonical text, independent of the reader, so that two readers of one image can be compared line
//! by line; [`victims`] is a recording of the kernel's choices of segments.
//!
//! A judge that is not installed fails the test that needs it; a kernel that must be built first is reported as missing
//! (`testlog`).
//!
//! Deliberately left out: what is judged (the tests), and all performance numbers.

pub mod cleaning;
pub mod judge;
pub mod kernel;
pub mod linux;
pub mod qemu;
pub mod recorded;
pub mod tools;
pub mod tree;
pub mod victims;
