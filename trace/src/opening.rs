//! How is a recording opened by its path: one file, or several?

use std::path::Path;

use crate::formats::Kind;
use crate::opened::Opened;
use crate::recognise::{Options, open_input_as, open_one, wanted};
use crate::{Input, TraceError, joined};

/// Opens a recording; `-` is standard input. For blktrace's files, one per CPU (`sda.blktrace.0`), any of them or their
/// common name (`sda`) opens all.
pub fn open(path: &Path) -> Result<Opened, TraceError> {
    open_with(path, &Options::default())
}

/// Opens a recording with options.
pub fn open_with(path: &Path, options: &Options) -> Result<Opened, TraceError> {
    if options.further.is_empty() { open_one(path, options) } else { joined::open(path, options) }
}

/// Opens a recording as one kind: a Perfetto trace has both block devices and a meter.
pub fn open_as(path: &Path, kind: Kind) -> Result<Opened, TraceError> {
    if kind == Kind::Power { open_input_as(Input::open(path)?, kind) } else { wanted(path, open(path)?, kind) }
}
