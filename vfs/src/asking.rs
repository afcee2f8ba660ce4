//! The process for which this thread serves a call: used only in reports, never for permissions.

use std::cell::Cell;

thread_local! {
    static WHO: Cell<Option<u32>> = const { Cell::new(None) };
}

/// While it exists, this thread serves a call of one process.
#[derive(Debug)]
pub struct Asking(Option<u32>);

/// Marks this thread as serving a call of process `pid`; 0 is unknown, such as a kernel's writeback.
#[must_use = "it is forgotten when this value goes"]
pub fn asks(pid: u32) -> Asking {
    Asking(WHO.replace(Some(pid).filter(|pid| *pid != 0)))
}

impl Drop for Asking {
    fn drop(&mut self) {
        WHO.set(self.0);
    }
}

/// The process for which this thread serves a call.
pub fn who() -> Option<u32> {
    WHO.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_known_only_while_its_call_is_served() {
        assert_eq!(who(), None);
        let outer = asks(7);
        {
            let _kernel = asks(0);
            assert_eq!(who(), None);
        }
        assert_eq!(who(), Some(7));
        drop(outer);
        assert_eq!(who(), None);
    }
}
