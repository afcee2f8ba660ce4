//! How is a run identified across machines, and which of all runs are done here?
//!
//! A run has a key: a hash of everything that its result depends on, including the recording's bytes and the program's
//! sources. Equal keys mean equal results, to the picojoule, so a known result need not be computed again, and results
//! from several machines can be merged. The key covers the meaning of the command line, not its words: a default has
//! the key of the same value typed.
//!
//! A part of the runs (`--shard I/N`) is every N-th run that is not a control, with its controls. So each part can be
//! read alone, and a control computed in several parts has the same key in all.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use device::{Access, BLOCK, BlockDevice, Lba, Tag};
use serde_json::{Map, Value, json};
use sim::aging::Recipe;
use trace::Kind;

use super::Args;
use super::variant::Variant;
use crate::{Failure, held, output, pieces, program, size};

/// Maximum number of runs at a time: their ledgers and volumes stay in memory until all are printed.
const AT_ONCE: usize = 256;

/// Name and version of the schema of the list of runs.
const SCHEMA: (&str, u32) = ("joulefs-replay-runs", 1);

/// A run and its identity.
pub struct Point {
    /// Its index among all runs of the command line.
    pub number: usize,
    /// Its configuration.
    pub variant: Variant,
    /// Its key; `None` if keys are not needed.
    pub known: Option<Known>,
}

impl Point {
    /// Its distinguishing name; the device's for a single run.
    pub fn name(&self) -> &str {
        if self.variant.name.is_empty() { &self.variant.profile.name } else { &self.variant.name }
    }
}

/// The identity of a run.
#[derive(Clone)]
pub struct Known {
    pub key: String,
    /// The key of its control.
    pub control: Option<String>,
    /// Everything it depends on, by name.
    pub parameters: Map<String, Value>,
    /// The hash of the recording.
    pub recording: String,
}

/// Which runs to make.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct WhichArgs {
    /// Make only every N-th run, starting at the I-th (1 to N), and the controls they are compared with; to share work
    /// among machines or Slurm array tasks.
    #[arg(long, value_name = "I/N", conflicts_with = "only")]
    shard: Option<String>,
    /// Make only the runs with these keys.
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    only: Vec<String>,
    /// List the runs without making them: key, control and name.
    #[arg(long, conflicts_with_all = ["requests", "perfetto", "flame", "sensitivity"])]
    list: bool,
}

impl WhichArgs {
    /// True if runs are listed, not done.
    pub fn lists(&self) -> bool {
        self.list
    }

    /// The requested part: its index from 0, and the number of parts.
    fn part(&self) -> Result<Option<(usize, usize)>, Failure> {
        let Some(text) = &self.shard else { return Ok(None) };
        let read = text.split_once('/').and_then(|(i, n)| Some((i.parse::<usize>().ok()?, n.parse::<usize>().ok()?)));
        match read {
            Some((i, n)) if (1..=n).contains(&i) => Ok(Some((i - 1, n))),
            _ => Err(Failure::Usage(format!("--shard {text}: give I/N, with I from 1 to N"))),
        }
    }

    /// The requested runs of `all`, with their keys if needed.
    pub fn of(&self, args: &Args, kind: Kind, ours: bool, all: Vec<Variant>) -> Result<Vec<Point>, Failure> {
        let keys = self.list || !self.only.is_empty() || args.parquet.is_some();
        let known: Vec<Option<Known>> = match keys {
            true => known(args, kind, ours, &all)?.into_iter().map(Some).collect(),
            false => vec![None; all.len()],
        };
        let wanted: BTreeSet<usize> = match self.part()? {
            Some(part) => shard(&all, part),
            None if self.only.is_empty() => (0..all.len()).collect(),
            None => self.only.iter().map(|key| place(key, &known)).collect::<Result<_, _>>()?,
        };
        if wanted.len() > AT_ONCE && !self.list {
            let (n, parts) = (wanted.len(), wanted.len().div_ceil(AT_ONCE) + 1);
            return Err(Failure::Usage(format!(
                "--compare: {n} runs; at most {AT_ONCE} are possible at once; split them with --shard 1/{parts} and so \
                 on"
            )));
        }
        let all = all.into_iter().zip(known).enumerate().filter(|(number, _)| wanted.contains(number));
        Ok(all.map(|(number, (variant, known))| Point { number, variant, known }).collect())
    }
}

/// The index of the run with a key.
fn place(key: &str, known: &[Option<Known>]) -> Result<usize, Failure> {
    let is = |known: &Option<Known>| known.as_ref().is_some_and(|k| k.key == key);
    known.iter().position(is).ok_or_else(|| {
        Failure::Usage(format!("--only {key}: none of the {} runs has this key; --list shows the keys", known.len()))
    })
}

/// Every `n`-th run that is not a control, from the `i`-th, with its control and that control's control.
fn shard(all: &[Variant], (i, n): (usize, usize)) -> BTreeSet<usize> {
    let controls: BTreeSet<usize> = all.iter().filter_map(|v| v.control).collect();
    let mut wanted = BTreeSet::new();
    for own in (0..all.len()).filter(|place| !controls.contains(place)).skip(i).step_by(n) {
        let mut next = Some(own);
        while let Some(place) = next.filter(|place| wanted.insert(*place)) {
            next = all[place].control;
        }
    }
    wanted
}

/// The identity of each run.
fn known(args: &Args, kind: Kind, ours: bool, all: &[Variant]) -> Result<Vec<Known>, Failure> {
    let recording = digest(&trace::files_of(&args.file))?;
    let shared = Shared::of(args, ours)?;
    let parameters = all.iter().map(|v| parameters(args, kind, &shared, v)).collect::<Result<Vec<_>, _>>()?;
    let build = program::build();
    let of_run = |(v, parameters): (&Variant, &Map<String, Value>)| key(build, v, parameters, &recording);
    let keys: Vec<String> = all.iter().zip(&parameters).map(of_run).collect();
    let control = |v: &Variant| v.control.map(|place| keys[place].clone());
    let of = |((v, parameters), key): ((&Variant, _), &String)| Known {
        key: key.clone(),
        control: control(v),
        parameters,
        recording: recording.clone(),
    };
    Ok(all.iter().zip(parameters).zip(&keys).map(of).collect())
}

/// A run's key. It includes the numbers of the device, since its name may be that of a changeable file.
fn key(build: &str, variant: &Variant, parameters: &Map<String, Value>, recording: &str) -> String {
    let all = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "build": build,
        "recording": recording,
        "device": variant.profile,
        "parameters": parameters,
    });
    blake3::hash(all.to_string().as_bytes()).to_hex()[..32].to_owned()
}

/// Shared dependencies of all runs, which take time to compute.
struct Shared {
    image: Option<String>,
    after: Vec<String>,
    page_cache: Option<u64>,
    span: trace::session::Span,
    columns: Option<String>,
}

impl Shared {
    fn of(args: &Args, ours: bool) -> Result<Self, Failure> {
        let after = args.after.iter().map(|file| digest(&trace::files_of(file))).collect::<Result<_, _>>()?;
        let image = args.image.as_ref().map(|path| digest_of_image(path)).transpose()?;
        let page_cache = args.cache(ours)?.map(|blocks| blocks as u64 * BLOCK as u64);
        Ok(Shared { image, after, page_cache, span: args.session.span()?, columns: args.session.columns() })
    }
}

/// What a run depends on. Every option is named here, so that a new option does not compile until it is classified as
/// relevant or irrelevant.
fn parameters(args: &Args, kind: Kind, shared: &Shared, v: &Variant) -> Result<Map<String, Value>, Failure> {
    let Args {
        // Covered by the variant, per run.
        profile: _,
        fs: _,
        options: _,
        compare: _,
        size: _,
        full: _,
        queue: _,
        assume: _,
        age: _,
        seed: _,
        fill: _,
        // Computed once.
        file: _,
        image: _,
        after: _,
        page_cache: _,
        session: _,
        // Affects only the output.
        requests: _,
        perfetto: _,
        sensitivity: _,
        by_file: _,
        flame: _,
        parquet: _,
        which: _,
        // Calls in a directory of the host have no key.
        into: _,
        of,
        repeat,
        hurry,
        cold,
        on_time,
        closed_loop,
        paced,
        back_to_back,
    } = args;
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            out.insert(name.to_owned(), value);
        }
    };
    put("profile", json!(v.chosen));
    // In the profile's units, however typed.
    for number in v.profile.numbers().into_iter().filter(|number| v.given.has(&number.name)) {
        put(&number.name, json!(number.value));
    }
    let size = v.size.as_deref().map(|text| size::of("--size", text)).transpose()?;
    put("size_bytes", json!(size));
    let trace::session::Span { from, to, max_gap } = shared.span;
    put("columns", json!(shared.columns));
    put("from_ns", json!((from > 0).then_some(from)));
    put("to_ns", json!(to));
    put("max_gap_ns", json!(max_gap));
    put(
        "speed",
        json!(match (paced, back_to_back) {
            (true, _) => "paced",
            (_, true) => "back to back",
            _ => "virtual",
        }),
    );
    if kind == Kind::Blocks {
        put("full", json!(v.full));
        put("after", json!((!shared.after.is_empty()).then_some(&shared.after)));
        put("queue", json!(v.queue));
        put("of", json!(of));
        put("flush_ns", json!(v.flush_every.map(|every| every.0)));
        return Ok(out);
    }
    put("fs", json!(v.fs.type_name()));
    for (name, value) in &v.options {
        put(name, json!(value));
    }
    put("holds_deltas", json!(v.deltas));
    put("holds_compressed", json!(v.compressed));
    put("image", json!(shared.image));
    put("age", json!(v.age));
    put("age_digest", json!(v.age.as_deref().map(digest_of_recipe).transpose()?.flatten()));
    put("seed", json!(v.seed));
    put("fill", json!(v.fill));
    put("after", json!((!shared.after.is_empty()).then_some(&shared.after)));
    put("repeat", json!(repeat.map_or(1, u32::from)));
    put("hurry", json!(hurry));
    put("page_cache_bytes", json!(shared.page_cache));
    put("cold", json!(cold));
    put("on_time", json!(on_time));
    put("closed_loop", json!(closed_loop));
    Ok(out)
}

/// The hash of a recording's bytes as stored.
fn digest(files: &[PathBuf]) -> Result<String, Failure> {
    let mut all = blake3::Hasher::new();
    for (n, file) in files.iter().enumerate() {
        // A name that stands for several per-CPU files need not exist itself.
        let is_own = !files[..n].contains(file) && (n == 0 || file.exists());
        let mut read = || io::copy(&mut File::open(file)?, &mut all);
        if is_own {
            read().map_err(|e| format!("{}: {e}", file.display()))?;
        }
    }
    Ok(format!("blake3:{}", all.finalize().to_hex()))
}

/// The hash of an image's data and their positions; holes cost no time, however large.
fn digest_of_image(path: &Path) -> Result<String, Failure> {
    let image = pieces::open(path, Access::ReadOnly)?;
    let mut all = blake3::Hasher::new();
    let mut add = |number: u64| {
        all.update(&number.to_le_bytes());
    };
    add(image.blocks());
    let mut block = [0; BLOCK];
    for (from, blocks) in held::runs(&image, path)? {
        for at in from.0..from.0 + blocks {
            image.read(Lba(at), &mut block, Tag::default()).map_err(|e| format!("{}: {e}", path.display()))?;
            // Zeros and holes read the same.
            if block.iter().any(|byte| *byte != 0) {
                all.update(&at.to_le_bytes());
                all.update(&block);
            }
        }
    }
    Ok(format!("blake3:{}", all.finalize().to_hex()))
}

/// The hash of a recipe file; built-in recipes belong to the program's version.
fn digest_of_recipe(name: &str) -> Result<Option<String>, Failure> {
    if !name.contains(['.', '/']) {
        return Ok(None);
    }
    let chain = Recipe::chain(name).map_err(|e| Failure::from(e).named("--age"))?;
    Ok(Some(format!("blake3:{}", blake3::hash(format!("{chain:?}").as_bytes()).to_hex())))
}

/// Lists runs without doing them.
pub fn list(args: &Args, points: &[Point], as_json: bool) {
    let known = || points.iter().filter_map(|p| Some((p, p.known.as_ref()?)));
    if as_json {
        let run = |(p, k): (&Point, &Known)| json!({ "run": p.number, "key": k.key, "control": k.control, "name": p.name(), "parameters": k.parameters });
        output::print(&json!({
            "schema": SCHEMA.0,
            "schema_version": SCHEMA.1,
            "recording": args.file.display().to_string(),
            "recording_digest": points.first().and_then(|p| Some(&p.known.as_ref()?.recording)),
            "version": env!("CARGO_PKG_VERSION"),
            "runs": known().map(run).collect::<Value>(),
        }));
        return;
    }
    output::line(&format!("{:<32}  {:<32}  run", "key", "compared with"));
    for (p, k) in known() {
        output::line(&format!("{:<32}  {:<32}  {}", k.key, k.control.as_deref().unwrap_or(""), p.name()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::trace::replay::variants;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    fn all(words: &str) -> Vec<Variant> {
        let typed = Typed::try_parse_from(std::iter::once("x").chain(words.split(' '))).unwrap();
        variants::all(&typed.args, None).unwrap()
    }

    fn names(all: &[Variant], of: &BTreeSet<usize>) -> Vec<String> {
        of.iter().map(|n| all[*n].name.clone()).collect()
    }

    #[test]
    fn parts_are_the_whole_and_each_has_the_controls_of_its_runs() {
        for words in [
            "r --compare gc=atgc,fagc,joule --compare seed=1,2,3 --compare delta=on",
            "r --compare delta=on --compare seed=1,2",
            "r --compare seed=1,2,3,4,5,6,7",
            "r --compare power=battery,powered --compare fs=f2fs,scherlfs",
            "r",
        ] {
            let all = all(words);
            for n in 1..=8 {
                let parts: Vec<_> = (0..n).map(|i| shard(&all, (i, n))).collect();
                let whole: BTreeSet<usize> = parts.iter().flatten().copied().collect();
                assert_eq!(whole, (0..all.len()).collect(), "{words}: {n} parts");
                for part in &parts {
                    let controls = part.iter().filter_map(|place| all[*place].control);
                    assert!(controls.into_iter().all(|control| part.contains(&control)), "{words}: {part:?}");
                }
                // Only controls appear in several parts.
                let controls: BTreeSet<usize> = all.iter().filter_map(|v| v.control).collect();
                let own = |part: &BTreeSet<usize>| part.iter().filter(|p| !controls.contains(p)).count();
                assert_eq!(parts.iter().map(own).sum::<usize>(), all.len() - controls.len(), "{words}: {n} parts");
            }
        }
    }

    #[test]
    fn a_run_is_compared_with_the_one_in_which_nobody_cleans_and_else_all_is_the_same() {
        let all = all("r --compare gc=atgc,fagc --compare seed=1,2");
        let with = |n: usize| all[n].control.map(|c| all[c].name.clone());
        let told: Vec<(String, Option<String>)> = (0..all.len()).map(|n| (all[n].name.clone(), with(n))).collect();
        let of = |name: &str, control: Option<&str>| (name.to_owned(), control.map(str::to_owned));
        assert_eq!(
            told,
            [
                of("none seed=1", None),
                of("none seed=2", None),
                of("atgc seed=1", Some("none seed=1")),
                of("atgc seed=2", Some("none seed=2")),
                of("fagc seed=1", Some("none seed=1")),
                of("fagc seed=2", Some("none seed=2")),
            ]
        );
        assert_eq!(names(&all, &shard(&all, (0, 4))), ["none seed=1", "atgc seed=1"]);
    }

    #[test]
    fn a_run_with_deltas_is_compared_with_the_same_without_them() {
        let all = all("r --compare seed=1,2 --compare delta=on");
        let controls: Vec<Option<&str>> = all.iter().map(|v| v.control.map(|c| all[c].name.as_str())).collect();
        assert_eq!(controls, [None, Some("seed=1 delta=off"), None, Some("seed=2 delta=off")]);
    }
}
