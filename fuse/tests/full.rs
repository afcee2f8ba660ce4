//! Does a full file system behave correctly?
//!
//! A separate program: tests that start other programs keep copies of every open file for a moment, and a removed file
//! frees its space only when the last copy is closed.

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use judges::filling;
use vfs::FileSystem;

use crate::support::{mount, options};

#[test]
fn a_full_file_system_reports_it_and_deleting_helps() {
    for round in 0..20 {
        let writeback = round % 2 == 0;
        let Some(m) = mount(1 << 20, &options(writeback)) else {
            return;
        };
        let mut file = File::create(m.path("big")).unwrap();
        let result = file.write_all(&[1; 2 << 20]).and_then(|()| file.sync_all());
        let number = result.unwrap_err().raw_os_error();
        assert_eq!(number, Some(libc::ENOSPC));
        drop(file);
        fs::remove_file(m.path("big")).unwrap();
        // The kernel sends the final forget later.
        let given_back = || rustix::fs::statvfs(m.path(".")).unwrap().f_bfree >= 100;
        assert!((0..1000).any(|_| given_back() || (sleep(Duration::from_millis(10)), false).1), "no space came back");
        fs::write(m.path("small"), [1; 100_000]).unwrap();
        File::open(m.path("small")).unwrap().sync_all().unwrap();
        m.end();
    }
}

#[test]
fn a_program_that_fills_the_volume_gets_an_error_and_loses_nothing() {
    for writeback in [true, false] {
        let Some(m) = mount(100 << 20, &options(writeback)) else {
            return;
        };
        filling::fill_in_every_way(m.dir.path(), true, |files| {
            for (path, size) in files {
                let name = path.file_name().unwrap().as_encoded_bytes();
                let attr = m.fs.lookup(m.fs.root(), name).unwrap().attr;
                m.fs.forget(attr.ino, 1);
                assert_eq!(attr.size, *size, "{} has another size than the kernel shows", path.display());
            }
        });
        filling::change_small_files_while_full(m.dir.path());
        m.end();
    }
}
