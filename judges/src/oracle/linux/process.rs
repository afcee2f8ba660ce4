//! How is a User-Mode Linux started, a kernel that is an ordinary process?

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Boot, Guest};

/// Loads modules of Debian's package, in the order given. (`find` would take longer than the kernel takes to boot.)
pub const MODULES: &str = "cd /usr/lib/uml/modules/$(uname -r) || exit
for m; do insmod \"$(sed -n \"s|^\\(.*/$m\\.ko\\):.*|\\1|p\" modules.dep)\" || exit; done";

/// Parameters for Debian's package that shorten its boot by two thirds: no measurement of RAID 6 algorithms.
pub const PACKAGED: &[&str] = &["initcall_blacklist=raid6_select_algo"];

/// Parameters for the guest's first script.
pub fn guest(boot: &Boot, load: &str, load_f2fs: &'static str) -> Guest {
    let mount = |path: &Path, at: &str| format!("\nmount -t hostfs -o {} none {at}", path.display());
    let mut mounts = String::from("mount -t hostfs -o / -r none /tmp/h");
    mounts += &mount(&boot.shared, "/tmp/x");
    mounts.extend(boot.directory.iter().map(|path| mount(path, "/tmp/d")));
    Guest { mounts, load: load.into(), load_f2fs }
}

/// The kernel's process; `parameters` are those of this kernel alone.
pub fn command(linux: &Path, parameters: &[&str], boot: &Boot) -> io::Result<Command> {
    let dir = &boot.shared;
    let own = dir.join("uml");
    std::fs::create_dir(&own)?;
    let console = File::create(dir.join("console"))?;
    let readonly = if boot.read_only { "r" } else { "" };
    let mut command = Command::new(linux);
    command
        .arg(format!("mem={}M", boot.memory_mib))
        .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "noreboot"])
        .args(["con=null", "con0=null,fd:1", "panic=1"])
        // Otherwise it makes 512 devices that no guest uses, which takes a second.
        .arg("pty.legacy_count=0")
        .args(parameters)
        .arg(format!("uml_dir={}/", own.display()))
        .arg(format!("init={}", dir.join("init").display()))
        .arg(format!("ubdb{readonly}={}", dir.join("image").display()));
    if boot.second {
        command.arg(format!("ubdc={}", dir.join("second").display()));
    }
    command
        .env("TMPDIR", memory_directory(boot.memory_mib)?)
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(console);
    Ok(command)
}

/// A directory for the file with the kernel's memory: executable, and with enough space.
fn memory_directory(mib: u32) -> io::Result<PathBuf> {
    let need = (u64::from(mib) + 16) << 20;
    let fits = |dir: &PathBuf| {
        rustix::fs::statvfs(dir).is_ok_and(|fs| {
            !fs.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC)
                && fs.f_bavail.saturating_mul(fs.f_frsize) >= need
        })
    };
    [PathBuf::from("/dev/shm"), std::env::temp_dir(), PathBuf::from("/var/tmp")].into_iter().find(fits).ok_or_else(
        || io::Error::other(format!("none of /dev/shm, $TMPDIR and /var/tmp is mounted exec with {mib} MiB free")),
    )
}
