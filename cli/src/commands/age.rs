//! `joulefs age`: which volume is aged, and what is reported afterwards?
//!
//! The image is created, formatted, or used as it is; existing data is never destroyed without --force. The aging
//! itself is done by `sim::aging`.

mod writes;

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use device::energy::Nanos;
use device::{Access, BLOCK, BlockDevice, FileDevice, Fingerprint};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use sim::aging::published::RATIOS;
use sim::aging::recipe::BUILT_IN;
use sim::aging::{self, Ager, Done, Progress, Recipe};
use vfs::{Flow, FreeFragments, Volume};
use volume::{Kind, MountOptions};

use crate::file_system::Type;
use crate::half_made::HalfMade;
use crate::table::{self, Table};
use crate::{Failure, fragments, image, output, progress, size};
use writes::Log;

/// Age a volume: fill it, fragment it, or simulate a year of use.
///
/// Time is virtual and contents are generated; the same recipe, size and seed give the same bytes. Without IMAGE a
/// volume of any size is aged in memory and only the report is printed.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs age disk.img --recipe full-fragmented --size 1G\n  \
    joulefs age --recipe phone-year --size 64G\n  joulefs age large.img --recipe phone-year --size 16G --hollow --writes large.iolog\n  joulefs age disk.img --recipe mine.toml --seed 7\n  \
    joulefs age archive.img --type scherlfs --recipe full --size 1G\n  \
    joulefs age --compare --size 16G\n  joulefs age --list")]
pub struct Args {
    /// Image file (created if missing) or block device. An empty volume is aged without being formatted again.
    image: Option<PathBuf>,
    /// A built-in recipe (see --list) or a TOML file.
    #[arg(long, short, required_unless_present_any = ["compare", "list"])]
    recipe: Option<String>,
    /// Size of a new volume, e.g. 1G; 220G is the size of the phone in the papers.
    #[arg(long, short)]
    size: Option<String>,
    /// File system of a new volume; default: f2fs.
    #[arg(long = "type", short = 't', value_name = "TYPE", value_enum)]
    kind: Option<Type>,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Format the target even if it holds files or other data.
    #[arg(long, short, conflicts_with = "compare")]
    force: bool,
    /// Leave holes in the image in place of file contents, so that the image of a large volume takes little space. The
    /// layout of files and free space does not change.
    #[arg(long, requires = "image", conflicts_with_all = ["force", "compare", "list"])]
    hollow: bool,
    /// Save all writes and discards since the volume was made in this file, as a fio iolog. `joulefs trace replay
    /// --after` applies them to a simulated device.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "list"])]
    writes: Option<PathBuf>,
    /// Age three volumes in memory (pristine, full and full-fragmented) and compare their free-space fragments with
    /// the published ratios.
    #[arg(long, conflicts_with_all = ["image", "recipe"])]
    compare: bool,
    /// List the built-in recipes.
    #[arg(long, conflicts_with_all = ["image", "recipe", "size", "kind", "seed", "force", "compare"])]
    list: bool,
}

/// An aged volume.
struct Aged {
    kind: Kind,
    recipe: String,
    bytes: u64,
    user_bytes: u64,
    free_bytes: u64,
    done: Done,
    free: FreeFragments,
    /// Memory used by the contents of a volume in memory.
    held: Option<u64>,
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    if args.list {
        return list(as_json);
    }
    let kind = args.kind.unwrap_or_default().into();
    let size = args.size.as_deref().map(|text| size::of_volume(kind, text)).transpose()?;
    if args.compare {
        return compare(kind, size.unwrap_or(16 << 30), args.seed, as_json);
    }
    let Some(recipe) = &args.recipe else {
        return Err(Failure::usage("--recipe is missing; --list shows the recipes"));
    };
    if args.force && args.image.is_none() {
        return Err(Failure::usage("--force: no image given; a volume in memory overwrites nothing"));
    }
    let chain = Recipe::chain(recipe)?;
    let aged = match &args.image {
        Some(path) if !args.hollow => on_image(path, size, &chain, args)?,
        hollow => {
            let size = size.ok_or_else(|| Failure::usage("give an image, or --size to age in memory"))?;
            in_memory(kind, size, &chain, args.seed, hollow.as_deref(), args.writes.as_deref())?
        }
    };
    match as_json {
        true => output::print(&aged.json(args)),
        false => aged.print(args),
    }
    Ok(())
}

/// Prints the built-in recipes.
fn list(as_json: bool) -> Result<(), Failure> {
    let mut all = Vec::new();
    for (name, _) in BUILT_IN {
        all.extend(Recipe::chain(name)?.pop());
    }
    if as_json {
        let rows = all.iter().map(|r| json!({ "name": r.name, "summary": r.summary, "source": r.source.trim() }));
        output::print(&rows.collect());
        return Ok(());
    }
    for recipe in all {
        let columns = table::columns();
        output::lines(&output::wrapped(
            &format!("{}: {}", recipe.name, recipe.summary),
            0,
            columns.unwrap_or(usize::MAX),
        ));
        source(recipe.source.trim(), columns);
    }
    Ok(())
}

/// Prints the source of a recipe: with its own line breaks, or, on a terminal, in wrapped paragraphs. Its assumptions
/// are one paragraph.
fn source(text: &str, columns: Option<usize>) {
    let Some(columns) = columns else {
        return text.lines().for_each(|l| output::line(&format!("    {l}")));
    };
    for (n, paragraph) in text.split("\nAssumed:").enumerate() {
        let begin = if n > 0 { "Assumed:" } else { "" };
        let paragraph = format!("{begin}{}", paragraph.replace('\n', " "));
        output::lines(&format!("    {}", output::wrapped(&paragraph, 4, columns)));
    }
}

/// Runs the recipes on a mounted volume.
fn carry_out(vol: &dyn Volume, clock: &device::VirtualClock, chain: &[Recipe], seed: u64) -> Result<Done, Failure> {
    let bar = progress::steps(1, "aging");
    let mut shown = String::new();
    let mut report = |p: &Progress| show(&bar, &mut shown, p);
    let done = Ager::new(vol, clock, seed).all(chain, &mut report).map_err(|e| e.to_string());
    bar.finish_and_clear();
    Ok(done?)
}

fn show(bar: &ProgressBar, shown: &mut String, p: &Progress) {
    if *shown != p.what {
        shown.clone_from(&p.what);
        bar.set_message(p.what.clone());
        bar.reset_eta();
    }
    bar.set_length(p.total);
    bar.set_position(p.done);
    progress::show_if_slow(bar);
}

fn measure(kind: Kind, vol: &dyn Volume, chain: &[Recipe], done: Done) -> Result<Aged, Failure> {
    let st = vol.statfs().map_err(|e| e.to_string())?;
    Ok(Aged {
        kind,
        recipe: chain.last().map_or_else(String::new, |r| r.name.clone()),
        bytes: vol.device_blocks() * BLOCK as u64,
        user_bytes: st.blocks * BLOCK as u64,
        free_bytes: st.blocks_free * BLOCK as u64,
        done,
        free: vol.free_fragments(),
        held: None,
    })
}

/// Ages a volume in memory; if requested, everything except file contents is saved as a new image.
fn in_memory(
    kind: Kind,
    bytes: u64,
    chain: &[Recipe],
    seed: u64,
    image: Option<&Path>,
    writes: Option<&Path>,
) -> Result<Aged, Failure> {
    if let Some(there) = image.filter(|path| path.exists()) {
        return Err(Failure::Usage(format!("--hollow: {} exists; give the name of a new image", there.display())));
    }
    let dev = Arc::new(Fingerprint::new(bytes / BLOCK as u64));
    let clock = aging::clock();
    aging::format(kind, dev.clone(), &*clock, seed, true).map_err(|e| e.to_string())?;
    let log = writes::log(writes)?;
    let mounted = volume::mount(kind, logged_device(log.as_ref(), dev.clone()), clock.clone(), MountOptions::default());
    let vol = mounted.map_err(|e| e.to_string())?.volume();
    let done = carry_out(&*vol, &clock, chain, seed)?;
    let aged = measure(kind, &*vol, chain, done)?;
    if let Some(path) = image {
        let named = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        vol.unmount().map_err(|e| named(&e))?;
        let made = HalfMade::watched(path);
        dev.save_hollow(path).map_err(|e| named(&e))?;
        made.keep();
    }
    finish_log(log)?;
    Ok(Aged { held: Some(dev.held().bytes), ..aged })
}

/// The device, with writes logged if requested.
fn logged_device(log: Option<&Log>, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    match log {
        Some(log) => log.of(device),
        None => device,
    }
}

/// Completes the log and gives it its name.
fn finish_log(log: Option<Log>) -> Result<(), Failure> {
    log.map_or(Ok(()), Log::finish).map_err(|e| format!("--writes: {e}").into())
}

fn on_image(path: &Path, size: Option<u64>, chain: &[Recipe], args: &Args) -> Result<Aged, Failure> {
    let name = path.display();
    let clock = aging::clock();
    let mut made = None;
    let kind = args.kind.unwrap_or_default().into();
    let (dev, kind) = match (std::fs::metadata(path), size) {
        (Err(_), None) => return Err(Failure::usage(format!("{name}: no such file; give --size to make one"))),
        (Err(_), Some(size)) => {
            let (dev, half) = image::create(path, size, HalfMade::watched(path))?;
            made = Some(half);
            let dev = Arc::new(dev);
            aging::format(kind, dev.clone(), &*clock, args.seed, true).map_err(|e| format!("{name}: {e}"))?;
            (dev, kind)
        }
        (Ok(there), size) => existing(path, &there, size, &clock, args)?,
    };
    let log = writes::log(args.writes.as_deref())?;
    let vol = volume::mount(kind, logged_device(log.as_ref(), dev), clock.clone(), MountOptions::default());
    let vol = vol.map_err(|e| format!("{name}: {e}"))?.volume();
    let done = carry_out(&*vol, &clock, chain, args.seed).map_err(|e| format!("{name}: {e}"))?;
    let aged = measure(kind, &*vol, chain, done)?;
    vol.unmount().map_err(|e| format!("{name}: {e}"))?;
    finish_log(log)?;
    if let Some(made) = made {
        made.keep();
    }
    Ok(aged)
}

/// The contents of an existing file or device, which decide whether it may be aged or formatted.
enum There {
    EmptyVolume(Kind),
    Files,
    Blank,
    Data,
}

fn look(dev: Arc<FileDevice>) -> There {
    let Some(kind) = volume::probe(&*dev) else {
        let mut bytes = vec![0; 1 << 20];
        let step = (bytes.len() / BLOCK) as u64;
        let blank = (0..dev.blocks()).step_by(step as usize).all(|at| {
            let part = &mut bytes[..step.min(dev.blocks() - at) as usize * BLOCK];
            dev.read(device::Lba(at), part, device::Tag::default()).is_ok() && part.iter().all(|b| *b == 0)
        });
        return if blank { There::Blank } else { There::Data };
    };
    let Ok(mounted) = volume::mount(kind, dev, aging::clock(), MountOptions::default().read_only(true)) else {
        return There::Data;
    };
    let (vol, mut empty) = (mounted.volume(), true);
    let listed = vol.readdir(vol.root(), 0, &mut |e| {
        empty &= matches!(e.name, b"." | b".." | b"lost+found" | b".ifile");
        Flow::Continue
    });
    if empty && listed.is_ok() { There::EmptyVolume(kind) } else { There::Files }
}

/// Opens an existing file or device; formats it if it is blank or --force was given.
fn existing(
    path: &Path,
    meta: &std::fs::Metadata,
    size: Option<u64>,
    clock: &device::VirtualClock,
    args: &Args,
) -> Result<(Arc<FileDevice>, Kind), Failure> {
    let kind = args.kind.unwrap_or_default().into();
    let name = path.display();
    let open = |access| FileDevice::open(path, access).map_err(|e| Failure::from(e.to_string()));
    let empty_file = meta.is_file() && meta.len() == 0;
    let there = match args.force || empty_file {
        true => There::Blank,
        false => look(Arc::new(open(Access::ReadOnly)?)),
    };
    let other_size = size.filter(|&s| s / BLOCK as u64 != meta.len() / BLOCK as u64);
    match there {
        There::Files => Err(format!("{name}: the volume holds files; give --force to format it").into()),
        There::Data => Err(format!("{name}: holds data; give --force to format it").into()),
        There::EmptyVolume(there) if args.kind.is_some() && there != kind => {
            Err(format!("{name}: holds a {there} volume; give --force to format it").into())
        }
        There::EmptyVolume(_) if meta.is_file() && other_size.is_some() => {
            Err(format!("{name}: holds a volume of another size; give --force to format it").into())
        }
        There::EmptyVolume(there) => Ok((Arc::new(open(Access::ReadWrite)?), there)),
        There::Blank => {
            let dev = match size {
                Some(size) if meta.is_file() => FileDevice::create(path, size).map_err(|e| e.to_string())?,
                Some(_) => {
                    return Err(Failure::usage(format!(
                        "{name}: --size is for files; a block device has a fixed \
                    size"
                    )));
                }
                None => open(Access::ReadWrite)?,
            };
            let (dev, zeroed) = (Arc::new(dev), meta.is_file() && size.is_some());
            aging::format(kind, dev.clone(), clock, args.seed, zeroed).map_err(|e| format!("{name}: {e}"))?;
            Ok((dev, kind))
        }
    }
}

impl Aged {
    fn json(&self, args: &Args) -> Value {
        json!({
            "image": args.image.as_ref().map(|p| p.display().to_string()),
            "file_system": self.kind.name(),
            "recipe": self.recipe,
            "seed": args.seed,
            "bytes": self.bytes,
            "user_bytes": self.user_bytes,
            "free_bytes": self.free_bytes,
            "files_made": self.done.files_made,
            "files_deleted": self.done.files_deleted,
            "bytes_written": self.done.bytes_written,
            "virtual_ns": Nanos::from_duration(self.done.took),
            "memory_bytes": self.held,
            "free_fragments": fragments::json(&self.free),
        })
    }

    fn print(&self, args: &Args) {
        let place = args.image.as_ref().map_or("in memory".to_owned(), |p| p.display().to_string());
        let d = &self.done;
        let of = if self.kind == Kind::F2fs { String::new() } else { format!(" on {}", self.kind) };
        output::line(&format!(
            "{place}: {}{of} of {}, seed {}: {} of {} free for files",
            self.recipe,
            output::bytes(self.bytes),
            args.seed,
            output::bytes(self.free_bytes),
            output::bytes(self.user_bytes)
        ));
        output::line(&format!(
            "{} files created, {} deleted, {} written in {} of virtual time",
            d.files_made,
            d.files_deleted,
            output::bytes(d.bytes_written),
            indicatif::HumanDuration(d.took)
        ));
        if let Some(held) = self.held {
            output::line(&format!("contents took {} of memory", output::bytes(held)));
        }
        output::line(&format!("free space in {} pieces:", self.free.total()));
        output::lines(&fragments::table(&self.free));
    }
}

fn compare(kind: Kind, bytes: u64, seed: u64, as_json: bool) -> Result<(), Failure> {
    let mut all = Vec::new();
    for name in ["pristine", "full", "full-fragmented"] {
        let chain = Recipe::chain(name)?;
        all.push(in_memory(kind, bytes, &chain, seed, None, None)?);
    }
    let of = |name: &str| all.iter().find(|a| a.recipe == name).map(|a| a.free).unwrap_or_default();
    let ratios = RATIOS.map(|r| (r, r.ours(&of(r.of), &of(r.to))));
    if as_json {
        let states = all.iter().map(|a| (a.recipe.clone(), fragments::json(&a.free)));
        let ratios = ratios.iter().map(|(r, ours)| {
            json!({ "of": r.of, "to": r.to, "level": r.level_name(), "published": r.published, "ours": ours })
        });
        output::print(&json!({
            "bytes": bytes,
            "seed": seed,
            "states": states.collect::<serde_json::Map<_, _>>(),
            "ratios": ratios.collect::<Vec<_>>(),
        }));
        return Ok(());
    }
    output::line(&format!("pieces of free space on {}, seed {seed}:", output::bytes(bytes)));
    output::lines(&fragments::side_by_side(&all.iter().map(|a| (&*a.recipe, a.free)).collect::<Vec<_>>()));
    let columns =
        [table::text("ratios").least(38), table::number("published").least(10), table::number("ours").least(10)];
    let mut table = Table::new(columns).between(1);
    for (r, ours) in ratios {
        let ours = ours.map_or("none".to_owned(), |x| format!("{x:.2}"));
        let what = format!("  {} : {}, {}", r.of, r.to, r.level_name());
        table.row(&[&what, &format!("{:.2}", r.published), &ours]);
    }
    output::lines(&table.text());
    Ok(())
}
