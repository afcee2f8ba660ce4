//! How is Debian's kernel for real hardware started in QEMU, with the host's file tree as its root?
//!
//! An initramfs contains the modules for that; the host's root is shared by 9p, read-only, and so is, writable, the
//! shared directory. After [`Boot::shared`]'s `init` has started, scripts see the same environment as in a User-Mode
//! Linux.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::super::qemu::{Accelerator, KernelPackage, Missing, initramfs};
use super::super::tools::find;
use super::{Boot, Guest};

/// Modules the guest loads before it has its root, with their dependencies: disks, shared directories, F2FS.
const MODULES: [&str; 8] =
    ["virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "crc32_generic", "lz4_compress", "lz4hc_compress", "f2fs"];
/// Guest memory used by the kernel, beyond that of a User-Mode Linux.
const KERNEL_MIB: u32 = 160;
/// Mount options of the host's directories. The root may be cached: files read by guests do not change while they run.
const NINE_P: &str = "trans=virtio,version=9p2000.L,msize=512000";

/// Checks for the programs on the host.
pub fn check() -> Result<(), Missing> {
    let needed = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("modprobe", "kmod"),
        ("modinfo", "kmod"),
    ];
    match needed.into_iter().find(|(program, _)| find(program).is_none()) {
        Some((program, package)) => Err(Missing::Program { program, package }),
        None => Ok(()),
    }
}

/// Parameters for the guest's first script.
pub fn guest(boot: &Boot, package: &KernelPackage) -> Guest {
    let modules = Path::new("/tmp/h").join(package.directory().strip_prefix("/").unwrap_or(package.directory()));
    let mut mounts = format!(
        "mount --bind / /tmp/h\n\
         mount -t 9p -o {NINE_P},cache=none shared /tmp/x\n\
         printf '#!/bin/sh\\nexec /sbin/modprobe -d {modules} \"$@\"\\n' >/tmp/modprobe\n\
         chmod 755 /tmp/modprobe\n\
         echo /tmp/modprobe >/proc/sys/kernel/modprobe",
        modules = modules.display(),
    );
    if boot.directory.is_some() {
        mounts += &format!("\nmount -t 9p -o {NINE_P},cache=none directory /tmp/d");
    }
    Guest { mounts, load: "exec /tmp/modprobe -a \"$@\"".into(), load_f2fs: "true" }
}

/// The QEMU process.
pub fn command(package: &KernelPackage, accelerator: Accelerator, boot: &Boot) -> io::Result<Command> {
    let dir = &boot.shared;
    std::fs::write(dir.join("initrd"), initrd(package)?)?;
    let qemu = find("qemu-system-x86_64").ok_or_else(|| io::Error::other("qemu-system-x86_64 is missing"))?;
    let console = dir.join("console");
    // A comma in an option's value must be doubled.
    let quoted = |path: &Path| path.display().to_string().replace(',', ",,");
    let disk = |name: &str, read_only: bool| {
        // Flushes reach the file, and discarded blocks become holes, as with a User-Mode Linux. The file may be locked.
        let how = "if=virtio,format=raw,cache=writeback,discard=unmap,file.locking=off";
        format!("{how},readonly={},file={}", if read_only { "on" } else { "off" }, quoted(&dir.join(name)))
    };
    let share = |tag: &str, path: &Path, read_only: &str| {
        format!("local,mount_tag={tag},security_model=none,multidevs=remap,readonly={read_only},path={}", quoted(path))
    };
    let mut command = Command::new(qemu);
    command
        .args(["-accel", accelerator.name(), "-cpu", "max", "-m", &(boot.memory_mib + KERNEL_MIB).to_string()])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .arg("-chardev")
        .arg(format!("file,id=console,append=on,path={}", quoted(&console)))
        .args(["-serial", "chardev:console"])
        .arg("-kernel")
        .arg(package.image())
        .args(["-initrd".as_ref(), dir.join("initrd").as_os_str()])
        .arg("-append")
        // On a busy host the emulated timer may not tick while the kernel checks it.
        .arg(format!(
            "console=ttyS0 panic=-1 quiet mitigations=off no_timer_check guest.init={}",
            dir.join("init").display()
        ))
        .args(["-virtfs", &share("host", Path::new("/"), "on"), "-virtfs", &share("shared", dir, "off")])
        .args(["-drive", &disk("image", boot.read_only)]);
    if let Some(path) = &boot.directory {
        command.args(["-virtfs", &share("directory", path, "off")]);
    }
    if boot.second {
        command.args(["-drive", &disk("second", false)]);
    }
    let console = OpenOptions::new().create(true).append(true).open(console)?;
    command.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console);
    Ok(command)
}

/// The initramfs, created once.
fn initrd(package: &KernelPackage) -> io::Result<&'static [u8]> {
    static MADE: OnceLock<(KernelPackage, Vec<u8>)> = OnceLock::new();
    if MADE.get().is_none() {
        // Two threads may create it at the same time, with equal results.
        let _ = MADE.set((package.clone(), made(package)?));
    }
    match MADE.get() {
        Some((of, bytes)) if of == package => Ok(bytes),
        _ => Err(io::Error::other("two packages of kernels in one test program")),
    }
}

fn made(package: &KernelPackage) -> io::Result<Vec<u8>> {
    let mut archive = initramfs::Archive::default();
    for dir in ["bin", "lib", "proc", "root"] {
        archive.directory(dir);
    }
    let busybox = find("busybox").ok_or_else(|| io::Error::other("busybox is missing"))?;
    archive.program("bin/busybox", &std::fs::read(busybox)?);
    let mut insert = String::new();
    for (n, module) in initramfs::modules(package.modules(), &MODULES)?.iter().enumerate() {
        archive.file(&format!("lib/{n}.ko"), &std::fs::read(module)?);
        insert.push_str(&format!("$b insmod /lib/{n}.ko\n"));
    }
    let init = format!(
        "#!/bin/busybox sh\n\
         b=/bin/busybox\n\
         {insert}\
         $b mount -t proc proc /proc\n\
         for word in $($b cat /proc/cmdline); do case $word in guest.init=*) init=${{word#*=}} ;; esac; done\n\
         $b umount /proc\n\
         $b mount -t 9p -o {NINE_P},cache=loose,ro host /root\n\
         $b mount -t devtmpfs dev /root/dev\n\
         exec $b switch_root /root $init\n"
    );
    archive.program("init", init.as_bytes());
    Ok(archive.finish())
}
