//! How fast is a tree made into an image, and the image checked, compared with other tools?
//!
//! A tree of small files in memory, with its images in memory, too. Each tool makes its image and exits; the result is
//! the median of the passes' ratios. A missing tool has no row.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use device::Rng;

use super::in_process::Measured;
use super::{Outcome, median};

/// Files, in directories of a hundred.
const FILES: u64 = 70_000;
/// Files are smaller than this many bytes.
const BYTES: u64 = 12_000;
/// Image size for tools that do not choose one.
const SIZE: u64 = 2 << 30;

fn tree(root: &Path) -> Outcome<u64> {
    let (mut rng, mut all) = (Rng::new(1), 0);
    let mut bytes = vec![0; BYTES as usize];
    device::generate(1, 0, &mut bytes);
    for n in 0..FILES {
        let dir = root.join(format!("d{}/e{}", n / 10_000, n / 100));
        if n % 100 == 0 {
            fs::create_dir_all(&dir)?;
        }
        let size = rng.below(BYTES);
        all += size;
        fs::write(dir.join(format!("file-{n}")), &bytes[..size as usize])?;
    }
    Ok(all)
}

/// A command's run time in seconds; `None` if it is missing.
#[allow(clippy::disallowed_methods, reason = "the machine's time is what is measured")]
fn seconds(program: &str, args: &[&str]) -> Outcome<Option<f64>> {
    let begun = Instant::now();
    let done = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    match done {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
        Ok(out) if out.status.success() => Ok(Some(begun.elapsed().as_secs_f64())),
        Ok(out) => Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr)).into()),
    }
}

/// All rows. The binary `joulefs` must be next to this one.
///
/// # Errors
/// If it is missing, or a tool fails.
pub fn all(dir: &Path, passes: usize) -> Outcome<Vec<Measured>> {
    let joulefs = std::env::current_exe()?.with_file_name("joulefs");
    if !joulefs.exists() {
        return Err(format!("{}: build it first (cargo build --release -p joulefs-cli)", joulefs.display()).into());
    }
    let joulefs = joulefs.to_str().ok_or("a strange path")?;
    let root = dir.join("tree");
    let bytes = tree(&root)?;
    let text = |path: &Path| path.to_str().map(str::to_owned).ok_or("a strange path");
    let image = |name: &str| text(&dir.join(name));
    let (from, ours, f2fs, ext4) = (text(&root)?, image("ours.img")?, image("f2fs.img")?, image("ext4.img")?);
    let fstool = image("fstool.img")?;
    let sized = |path: &str| fs::File::create(path).and_then(|f| f.set_len(SIZE));
    let mut took: [Vec<f64>; 6] = Default::default();
    for _ in 0..passes {
        let mut note = |n: usize, seconds: Option<f64>| took[n].extend(seconds);
        note(0, seconds(joulefs, &["mkfs", &ours, "--from", &from, "--force", "--timestamp", "1700000000"])?);
        sized(&f2fs)?;
        let format = seconds("mkfs.f2fs", &["-f", &f2fs])?;
        let fill = if format.is_some() { seconds("sload.f2fs", &["-f", &from, &f2fs])? } else { None };
        note(1, format.zip(fill).map(|(a, b)| a + b));
        sized(&ext4)?;
        note(2, seconds("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &from, &ext4])?);
        // Above one GiB, version 0.5.0 writes a superblock without space for its summaries.
        note(5, seconds("fstool", &["create", "-t", "f2fs", "--size", "1000M", &from, "-o", &fstool])?);
        // Both check the image of sload.f2fs or, without it, ours.
        let checked = if fill.is_some() { &f2fs } else { &ours };
        note(3, seconds(joulefs, &["fsck", checked])?);
        note(4, seconds("fsck.f2fs", &["--dry-run", checked])?);
    }
    for made in [&ours, &f2fs, &ext4, &fstool].into_iter().filter(|made| Path::new(made).exists()) {
        fs::remove_file(made)?;
    }
    fs::remove_dir_all(&root)?;
    let mut rows = Vec::new();
    let mut row = |name: String, values: Vec<f64>, unit, aim| {
        if !values.is_empty() {
            rows.push(Measured { name, value: median(&values), unit, aim });
        }
    };
    let ratio = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>();
    let mb = bytes / 1_000_000;
    row(format!("`joulefs mkfs --from` of {FILES} files, {mb} MB"), took[0].clone(), "s", "");
    row("`mkfs.f2fs` and `sload.f2fs` take so many times as long".into(), ratio(&took[1], &took[0]), "x", "> 1");
    row("`mke2fs -d` takes so many times as long".into(), ratio(&took[2], &took[0]), "x", "> 1");
    // No goal: it writes no summaries, and every checker rejects its images (docs/images.md).
    row("`fstool create -t f2fs` takes so many times as long".into(), ratio(&took[5], &took[0]), "x", "");
    row("`joulefs fsck` of the image that `sload.f2fs` filled".into(), took[3].clone(), "s", "");
    row("`fsck.f2fs` takes so many times as long".into(), ratio(&took[4], &took[3]), "x", "> 1");
    Ok(rows)
}
