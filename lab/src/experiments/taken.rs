//! Which parameters does a kind of work take, and what do they mean?
//!
//! Derived from the types that plans are parsed into: their fields and doc comments. So nothing is listed twice, and no
//! parameter of `--set` can be missing. Left out: the values in plans.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

use super::given::{OnVolume, READ_IN};
use super::{
    app_cleaning, app_energy, app_replay, app_updates, battery, bound, cleaning, databases, days, delta_eviction,
    delta_reads, differential, disk_modes, dispersal, file_io, fragments, gc_effect, gc_energy, idle, launch,
    phone_day, regret, request_sizes, requests, sqlite, strategies, uncached, worth,
};
use crate::plan::Kind;

/// A parameter of a kind of work, or a field of one that is a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameter {
    /// Its name in plans and `--set`.
    pub name: String,
    /// Its description; a unit is in the name or in this text.
    pub meaning: String,
    /// The type of its values: `number`, `integer`, `text`, `boolean`, `list`, `table` or `tables`.
    #[serde(rename = "type")]
    pub form: &'static str,
    /// The allowed words; empty if not restricted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    /// Whether a plan must set it.
    pub required: bool,
    /// Its value if no plan sets it; none if that is nothing, or not a plain value.
    pub default: Option<Value>,
    /// The source file whose code reads it.
    pub read_in: String,
    /// A table's own fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Parameter>,
}

/// The parameters of a kind of work, in alphabetical order.
pub fn parameters(kind: Kind) -> Vec<Parameter> {
    let schema = match kind {
        Kind::FileIo => of::<OnVolume<file_io::Parameters>>(),
        Kind::Fragments => of::<OnVolume<fragments::Parameters>>(),
        Kind::Sqlite => of::<sqlite::Parameters>(),
        Kind::Bound => of::<OnVolume<bound::Parameters>>(),
        Kind::Cleaning => of::<OnVolume<cleaning::Parameters>>(),
        Kind::DeltaEviction => of::<delta_eviction::Parameters>(),
        Kind::Databases => of::<databases::Parameters>(),
        Kind::Dispersal => of::<dispersal::Parameters>(),
        Kind::Differential => of::<OnVolume<differential::Parameters>>(),
        Kind::Strategies => of::<strategies::Parameters>(),
        Kind::DiskModes => of::<disk_modes::Parameters>(),
        Kind::GcEnergy => of::<OnVolume<gc_energy::Parameters>>(),
        Kind::Battery => of::<battery::Parameters>(),
        Kind::AppReplay => of::<OnVolume<app_replay::Parameters>>(),
        Kind::AppUpdates => of::<app_updates::Parameters>(),
        Kind::AppCleaning => of::<OnVolume<app_cleaning::Parameters>>(),
        Kind::PhoneDay => of::<OnVolume<phone_day::Parameters>>(),
        Kind::DeltaReads => of::<delta_reads::Parameters>(),
        Kind::AppEnergy => of::<app_energy::Parameters>(),
        Kind::GcEffect => of::<gc_effect::Parameters>(),
        Kind::RequestSizes => of::<request_sizes::Parameters>(),
        Kind::Requests => of::<requests::Parameters>(),
        Kind::Launch => of::<OnVolume<launch::Parameters>>(),
        Kind::Uncached => of::<uncached::Parameters>(),
        Kind::Days => of::<days::Parameters>(),
        Kind::Worth => of::<OnVolume<worth::Parameters>>(),
        Kind::Regret => of::<OnVolume<regret::Parameters>>(),
        Kind::Idle => of::<OnVolume<idle::Parameters>>(),
    };
    fields(&schema, &source(kind))
}

/// The source file of a kind of work: its name with underscores.
fn source(kind: Kind) -> String {
    // A kind always serializes to a string.
    let name = serde_json::to_value(kind).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    format!("lab/src/experiments/{}.rs", name.replace('-', "_"))
}

fn of<P: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<P>().to_value()
}

fn object<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema[key].as_object().into_iter().flatten()
}

/// The fields of a table.
fn fields(schema: &Value, read_in: &str) -> Vec<Parameter> {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let field = |(name, schema): (&String, &Value)| {
        let read_in = schema[READ_IN].as_str().unwrap_or(read_in);
        let (form, words, below) = form(schema);
        let told = schema["description"].as_str().or(below.and_then(|b| b["description"].as_str()));
        Parameter {
            name: name.clone(),
            meaning: told.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "),
            form,
            words,
            required: required.contains(&name.as_str()),
            default: Some(&schema["default"]).filter(|d| !d.is_null() && !d.is_object()).cloned(),
            read_in: read_in.to_owned(),
            fields: below.map_or_else(Vec::new, |below| fields(below, read_in)),
        }
    };
    object(schema, "properties").map(field).collect()
}

/// The values a schema allows: the type's name, the allowed words, and the schema of a table if values are or contain
/// tables.
fn form(schema: &Value) -> (&'static str, Vec<String>, Option<&Value>) {
    let of_lists = ["anyOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
    let among: Vec<&Value> = of_lists.filter(|s| s["type"] != "null").collect();
    if let [one] = among.as_slice() {
        return form(one);
    }
    if !among.is_empty() {
        let words = among.iter().flat_map(|s| form(s).1).collect();
        // Alternatives are words, or tables that are one alternative each.
        let form = if among.iter().all(|s| s["type"] == "object") { "table" } else { "text" };
        return (form, words, None);
    }
    let plain = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    let named = schema["enum"].as_array().into_iter().flatten().filter(|v| !v.is_null());
    let words: Vec<String> = named.chain(schema.get("const")).map(plain).collect();
    let types = &schema["type"];
    let word = types.as_str().or_else(|| types.as_array()?.iter().filter_map(Value::as_str).find(|t| *t != "null"));
    match word {
        Some("integer") => ("integer", words, None),
        Some("number") => ("number", words, None),
        Some("boolean") => ("boolean", words, None),
        Some("array") => match form(&schema["items"]) {
            ("table", words, below) => ("tables", words, below),
            (_, words, _) => ("list", words, None),
        },
        Some("object") if schema.get("properties").is_some() => ("table", words, Some(schema)),
        Some("object") => match schema.get("additionalProperties").filter(|more| more.is_object()) {
            Some(more) if form(more).0 == "table" => ("tables", form(more).1, form(more).2),
            _ => ("table", words, None),
        },
        _ => ("text", words, None),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sim::error::SimError;

    use super::*;
    use crate::error::LabError;
    use crate::experiments;
    use crate::plan::{Changes, Experiment, SHIPPED};

    /// The parameters that the parser of plans accepts: the names in its error for an unknown one.
    fn accepted(experiment: &Experiment) -> Vec<String> {
        let mut job = experiment.jobs(&Changes::default()).unwrap().remove(0);
        job.parameters.insert("nobody_takes_this".into(), 1.into());
        let Err(LabError::Sim(SimError::Parameters(said))) = experiments::check(experiment.plan.kind, &job) else {
            panic!()
        };
        let said = said.lines().find(|l| l.contains("unknown field")).unwrap();
        let mut names: Vec<String> = said.split('`').skip(3).step_by(2).map(str::to_owned).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_told_is_what_plans_may_set_with_a_meaning_and_a_file() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (name, _) in SHIPPED {
            let experiment = Experiment::find(name).unwrap();
            let told = parameters(experiment.plan.kind);
            assert_eq!(told.iter().map(|p| p.name.clone()).collect::<Vec<_>>(), accepted(&experiment), "{name}");
            for p in &told {
                let text = std::fs::read_to_string(root.join(&p.read_in)).unwrap();
                assert!(text.contains(&format!(" {}: ", p.name)), "{name}: {} is not in {}", p.name, p.read_in);
            }
            for p in told.iter().flat_map(|p| std::iter::once(p).chain(&p.fields)) {
                assert!(p.meaning.ends_with(['.', ')']), "{name}: {}: {:?}", p.name, p.meaning);
            }
        }
    }

    #[test]
    fn forms_words_and_defaults_are_those_of_the_types() {
        let of = |kind, name: &str| parameters(kind).into_iter().find(|p| p.name == name).unwrap();
        let rows = of(Kind::Sqlite, "rows");
        assert_eq!((rows.form, rows.required, rows.default), ("integer", true, None));
        let directory = of(Kind::Sqlite, "directory");
        assert_eq!((directory.form, directory.required), ("text", false));
        assert_eq!(
            (directory.words.join(" "), directory.default),
            ("never checkpoint fsync".into(), Some("never".into()))
        );
        assert!(of(Kind::Sqlite, "keeping").words.contains(&"dci-in-place".to_owned()));
        let after = of(Kind::Bound, "after");
        assert_eq!((after.form, after.fields.len(), after.required), ("table", 2, false));
        assert_eq!(of(Kind::Bound, "volume_mib").read_in, "lab/src/experiments/given.rs");
        assert_eq!(of(Kind::Bound, "policy").read_in, "lab/src/experiments/bound.rs");
        assert_eq!(of(Kind::Databases, "apps").form, "tables");
        assert_eq!(of(Kind::Databases, "cached_pages").form, "list");
    }
}
