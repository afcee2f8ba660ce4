//! How is a run identified across machines?
//!
//! A run has a key: a hash of everything that its result depends on, including the recording's bytes and the program's
//! sources. Equal keys mean equal results, to the picojoule, so a known result need not be computed again, and results
//! from several machines can be merged. The key covers the meaning of the settings, not their words: a default has the
//! key of the same value typed.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use device::{BLOCK, BlockDevice, Lba, Tag};
use serde_json::{Map, Value, json};
use trace::Kind;
use volume::MountOptions;

use super::error::Error;
use super::program::Image;
use super::settings::Settings;
use super::sizes;
use super::variant::Variant;
use crate::aging::Recipe;
use crate::traces::Speed;

/// The identity of a run.
#[derive(Clone)]
pub struct Known {
    /// Its key.
    pub key: String,
    /// The key of its control.
    pub control: Option<String>,
    /// Everything it depends on, by name.
    pub parameters: Map<String, Value>,
    /// The hash of the recording.
    pub recording: String,
}

/// The identity of each run. `ours` for a JouleFS recording; `build` identifies the program.
pub(super) fn known(
    settings: &Settings,
    kind: Kind,
    ours: bool,
    image: Option<&Image>,
    build: &str,
    all: &[Variant],
) -> Result<Vec<Known>, Error> {
    let recording = digest_of_recording(settings)?;
    let shared = Shared::new(settings, ours, image)?;
    let parameters = all.iter().map(|v| parameters(settings, kind, &shared, v)).collect::<Result<Vec<_>, _>>()?;
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

/// The key of the past of each run that has one ([`crate::traces::past`]): of its device and volume before the calls,
/// whatever the policy of cleaning. Each run has the options of the mount that makes it.
pub(super) fn of_pasts(
    settings: &Settings,
    ours: bool,
    build: &str,
    all: &[Option<(&Variant, MountOptions)>],
) -> Result<Vec<Option<String>>, Error> {
    let recording = digest_of_recording(settings)?;
    let shared = Shared::new(settings, ours, None)?;
    let of_run = |run: &Option<(&Variant, MountOptions)>| {
        let Some((v, mount)) = run else { return Ok(None) };
        let mut parameters = parameters(settings, Kind::Calls, &shared, v)?;
        // These matter after the calls have begun, and the options of the mount are there as a whole.
        v.options.keys().map(String::as_str).chain(["repeat", "hurry", "cold"]).for_each(|name| {
            parameters.remove(name);
        });
        let mount = match v.fs {
            volume::Kind::F2fs => format!("{:?}", mount.f2fs),
            volume::Kind::ScherlFs => format!("{:?}", mount.scherlfs),
        };
        parameters.insert("mount".to_owned(), json!(mount));
        Ok(Some(key(build, v, &parameters, &recording)))
    };
    all.iter().map(of_run).collect()
}

/// Shared dependencies of all runs, which take time to compute.
struct Shared {
    image: Option<String>,
    after: Vec<String>,
    page_cache: Option<u64>,
}

impl Shared {
    fn new(settings: &Settings, ours: bool, image: Option<&Image>) -> Result<Self, Error> {
        let after = settings.after.iter().map(|file| digest(&trace::files_of(file))).collect::<Result<_, _>>()?;
        let image = image.map(digest_of_image).transpose()?;
        let page_cache = settings.page_cache(ours)?.map(|blocks| blocks as u64 * BLOCK as u64);
        Ok(Shared { image, after, page_cache })
    }
}

/// What a run depends on. Every setting is named here, so that a new one does not compile until it is classified as
/// relevant or irrelevant.
fn parameters(settings: &Settings, kind: Kind, shared: &Shared, v: &Variant) -> Result<Map<String, Value>, Error> {
    let Settings {
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
        seeds: _,
        fill: _,
        // Computed once.
        recording: _,
        image: _,
        after: _,
        page_cache: _,
        // Does not affect the energy.
        over_time: _,
        part,
        of,
        repeat,
        hurry,
        cold,
        on_time,
        closed_loop,
        speed,
    } = settings;
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
    let size = v.size.as_deref().map(|text| sizes::of("--size", text)).transpose()?;
    put("size_bytes", json!(size));
    put("columns", json!(part.read.columns.as_ref().map(ToString::to_string)));
    let trace::session::Span { from, to, max_gap } = part.span;
    put("from_ns", json!((from > 0).then_some(from)));
    put("to_ns", json!(to));
    put("max_gap_ns", json!(max_gap));
    put(
        "speed",
        json!(match speed {
            Speed::Paced => "paced",
            Speed::BackToBack => "back to back",
            Speed::Virtual => "virtual",
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

/// The hash of all files of the recording.
fn digest_of_recording(settings: &Settings) -> Result<String, Error> {
    let first = digest(&trace::files_of(&settings.recording))?;
    if settings.part.read.further.is_empty() {
        return Ok(first);
    }
    let further = settings.part.read.further.iter().map(|file| digest(&trace::files_of(file)));
    let all: Vec<String> = std::iter::once(Ok(first)).chain(further).collect::<Result<_, _>>()?;
    Ok(format!("blake3:{}", blake3::hash(all.join(" ").as_bytes()).to_hex()))
}

/// The hash of a recording's bytes as stored.
fn digest(files: &[PathBuf]) -> Result<String, Error> {
    let mut all = blake3::Hasher::new();
    for (n, file) in files.iter().enumerate() {
        // A name that stands for several per-CPU files need not exist itself.
        let is_own = !files[..n].contains(file) && (n == 0 || file.exists());
        let mut read = || io::copy(&mut File::open(file)?, &mut all);
        if is_own {
            read().map_err(|e| Error::of_file(file, e))?;
        }
    }
    Ok(format!("blake3:{}", all.finalize().to_hex()))
}

/// The hash of an image's data and their positions; holes cost no time, however large.
fn digest_of_image(image: &Image) -> Result<String, Error> {
    let mut all = blake3::Hasher::new();
    let mut add = |number: u64| {
        all.update(&number.to_le_bytes());
    };
    add(image.device.blocks());
    let mut block = [0; BLOCK];
    for (from, blocks) in &image.held {
        for at in from.0..from.0 + blocks {
            image.device.read(Lba(at), &mut block, Tag::default()).map_err(|e| Error::of_file(&image.path, e))?;
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
fn digest_of_recipe(name: &str) -> Result<Option<String>, Error> {
    if !name.contains(['.', '/']) {
        return Ok(None);
    }
    let chain = Recipe::chain(name).map_err(|e| Error::from(e).named("--age"))?;
    Ok(Some(format!("blake3:{}", blake3::hash(format!("{chain:?}").as_bytes()).to_hex())))
}
