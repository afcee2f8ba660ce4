//! Recorded requests and calls, made again on our device and our file system.
//!
//! * [`blocks`]: requests on a device, [`host`]: when. * [`extent`]: which device those need.
//! * [`calls`]: calls on a file system. * [`needs`]: what must be there before the first of them.
//! * [`place`]: the file systems calls are made on: one of ours, or a directory of the host.
//!
//! Contents are not in anybody's recording: what is written is generated.

pub mod blocks;
pub mod calls;
pub mod extent;
pub mod host;
pub mod needs;
pub mod place;
