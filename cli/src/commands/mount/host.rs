//! Messages about the file system that holds a mounted image.

use std::path::Path;
use std::sync::Arc;

use device::HostRoom;
use device::host_room::{LEAST, Turn};

use crate::output::bytes;

/// The error for an image without a name.
const NAMELESS: &str = "removed or replaced while it was mounted, and no name leads to its file any more";

/// Refuses a host without enough free space: accepted writes could not be stored.
pub fn check(room: &HostRoom, image: &Path) -> Result<(), String> {
    if !room.is_short() {
        return Ok(());
    }
    let (free, least) = (room.free() + room.held(), bytes(LEAST));
    if free >= 2 * LEAST {
        return Err(format!(
            "{}: the file system that holds this image does not reserve the {least} that a mount needs: it is full, or a quota is used up. \
            Make room there, or mount with -o ro",
            image.display()
        ));
    }
    let free = bytes(free);
    Err(format!(
        "{}: the file system that holds this image has {free} free, but a mount needs {least}. Make room there, or \
         mount with -o ro",
        image.display()
    ))
}

/// Logs when the host runs short of space, and when space is available again. Returns a warning for a host that cannot
/// reserve space.
pub fn attend(room: &Arc<HostRoom>, image: &Path) -> Option<String> {
    let name = image.display().to_string();
    room.report_to(Box::new(move |turn| match turn {
        Turn::Short => log::error!(
            "{name}: the file system that holds this image is full: data written so far is kept, and new writes fail \
             with ENOSPC until there is room again"
        ),
        Turn::Roomy => log::warn!("{name}: the file system that holds this image has room again"),
        Turn::Nameless => log::error!(
            "{name} was {NAMELESS}: the whole volume is gone once it is unmounted, unless it is copied elsewhere (joulefs ctl \
            DIR save NEW_DIR)"
        ),
    }));
    room.is_unheld().then(|| {
        "the file system that holds this image cannot reserve room for it; if it fills up, the last changes may be lost"
            .to_owned()
    })
}

/// Why the volume will be lost when the serving process ends, if so.
pub fn doom(room: &HostRoom, image: &Path) -> Option<String> {
    (!room.has_name()).then(|| format!("{} was {NAMELESS}", image.display()))
}
