//! How are recorded requests and calls replayed on JouleFS's devices and file systems?
//!
//! * [`blocks`]: requests on a device; [`host`]: their times; [`extent`]: the device they need.
//! * [`calls`]: calls on a file system; [`needs`]: the files they need at the beginning.
//! * [`place`]: file systems for calls: a JouleFS volume, or a directory of the host.
//!
//! Recordings of other programs have no contents: written data is generated.

pub mod blocks;
pub mod calls;
pub mod extent;
pub mod host;
pub mod needs;
pub mod place;
