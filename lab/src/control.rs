//! Which variant is each variant compared with?
//!
//! With one that does the same work. A plan says which parameters it compares (`compares`): a variant's control is the
//! first one that is equal in all others. What follows is about plans that compare cleaning policies. Left out: whether
//! both really did the same work; a test checks that for the shipped experiments.
//!
//! On a volume with enough free space, not cleaning is cheapest, and a table of policies alone cannot show that. So a
//! plan whose variants differ in cleaning must name its controls: variants with the same work and no background
//! cleaning (only foreground cleaning, when space is short). Each variant must also define the work that follows
//! ([`crate::cost`]); without it, a policy that frees no space looks as good as one that does.

use sim::NOBODY;
use toml::Table;

use crate::plan::{Experiment, Job, Kind, Plan, PlanError};

/// Parameters that only affect cleaning.
const OF_CLEANING: [&str; 9] = ["policy", "power", "pace", "mode", "gcs", "cleaning", "looks", "version", "urgent_ms"];

/// All parameters that select how a variant cleans; none if the kind does not clean.
fn cleaner(kind: Kind, parameters: &Table) -> Option<Vec<String>> {
    let of = match parameters.get("cleaning") {
        Some(cleaning) => cleaning.as_table()?,
        None if matches!(kind, Kind::Bound | Kind::Cleaning | Kind::GcEffect | Kind::Idle) => parameters,
        None => return None,
    };
    let word = |name: &str| of.get(name).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    Some(["policy", "power", "pace", "mode", "looks", "version"].map(word).into())
}

fn is_nobody(cleaner: &[String]) -> bool {
    cleaner.first().is_some_and(|policy| policy == NOBODY)
}

/// A variant's work, without its cleaning.
fn work(parameters: &Table) -> Table {
    let mut work = parameters.clone();
    work.retain(|name, _| !OF_CLEANING.contains(&name));
    work
}

/// Refuses a comparison of policies without controls or without the work after.
pub(crate) fn check(experiment: &Experiment) -> Result<(), PlanError> {
    of_plan(&experiment.plan).map_err(|message| PlanError::Malformed {
        experiment: experiment.name.clone(),
        file: "plan.toml",
        message,
    })
}

/// The index of each job's control: the job with the same work, device and seed, and no background cleaning if policies
/// are compared.
pub fn of_jobs(plan: &Plan, jobs: &[Job]) -> Vec<Option<usize>> {
    if let Some(compares) = &plan.compares {
        return of_compared(compares, jobs);
    }
    let named = |job: &Job| plan.control.contains(&job.variant);
    let same = |a: &Job, b: &Job| {
        (&a.profile, a.seed, &a.assume) == (&b.profile, b.seed, &b.assume) && work(&a.parameters) == work(&b.parameters)
    };
    let of = |job: &Job| jobs.iter().position(|other| named(other) && same(job, other)).filter(|_| !named(job));
    jobs.iter().map(of).collect()
}

/// The index of the first job that differs from each job only in the compared parameters; none for that one itself.
fn of_compared(compares: &[String], jobs: &[Job]) -> Vec<Option<usize>> {
    let others = |job: &Job| {
        let mut others = job.parameters.clone();
        others.retain(|name, _| !compares.iter().any(|c| c == name));
        others
    };
    let same = |a: &Job, b: &Job| (&a.profile, a.seed) == (&b.profile, b.seed) && others(a) == others(b);
    let first = |(n, job): (usize, &Job)| jobs.iter().position(|other| same(job, other)).filter(|first| *first != n);
    jobs.iter().enumerate().map(first).collect()
}

fn of_plan(plan: &Plan) -> Result<(), String> {
    if plan.compares.is_some() && !plan.control.is_empty() {
        return Err("control and compares: only one of them, since both select the controls".into());
    }
    let is_set = |name: &String| plan.variant.iter().any(|v| v.parameters.contains_key(name));
    if let Some(name) = plan.compares.iter().flatten().find(|name| !is_set(name)) {
        return Err(format!("compares {name:?}: no variant sets it"));
    }
    let merged = plan.variant.iter().map(|v| {
        let mut parameters = plan.parameters.clone();
        parameters.extend(v.parameters.clone());
        (v.name.as_str(), parameters)
    });
    let merged: Vec<(&str, Table)> = merged.collect();
    let cleaned: Vec<(&str, &Table, Vec<String>)> =
        merged.iter().filter_map(|(name, p)| Some((*name, p, cleaner(plan.kind, p)?))).collect();
    for name in &plan.control {
        match cleaned.iter().find(|(n, ..)| n == name) {
            None => return Err(format!("control {name:?}: no variant of that name sets a cleaning policy")),
            Some((.., who)) if !is_nobody(who) => {
                return Err(format!("control {name:?}: a control's policy is {NOBODY:?}, not {:?}", who[0]));
            }
            Some(_) => {}
        }
    }
    let compares = cleaned.windows(2).any(|pair| pair[0].2 != pair[1].2);
    if !compares {
        return Ok(());
    }
    if plan.control.is_empty() {
        return Err(format!(
            "no control: its variants compare cleaning policies, so one of them must have the policy {NOBODY:?} and be \
             named (control = [{NOBODY:?}])"
        ));
    }
    for (name, parameters, who) in &cleaned {
        if !parameters.contains_key("after") {
            return Err(format!(
                "variant {name:?} does not define the work afterwards (after = {{ mib = 64, file_kib = 16 }})"
            ));
        }
        let mut controls = cleaned.iter().filter(|(n, ..)| plan.control.iter().any(|c| c == n));
        if !is_nobody(who) && !controls.any(|(_, p, _)| work(p) == work(parameters)) {
            return Err(format!("variant {name:?} has no control: none of {:?} does the same work", plan.control));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::plan::{Changes, Experiment};

    fn refused(plan: &str) -> String {
        let head = "title = \"t\"\nprofile = \"p\"\n";
        let experiment = Experiment::parse("x", "", &format!("{head}{plan}"), "").unwrap();
        super::check(&experiment).map_or_else(|e| e.to_string(), |()| String::new())
    }

    const AFTER: &str = "[parameters]\nfill = 80\nafter = { mib = 1, file_kib = 4 }\n";
    const NONE: &str = "[[variant]]\nname = \"none\"\npolicy = \"none\"\n";
    const TWO: &str = "[[variant]]\nname = \"a\"\npolicy = \"atgc\"\n[[variant]]\nname = \"f\"\npolicy = \"fagc\"\n";

    #[test]
    fn a_comparison_of_policies_without_a_control_is_refused() {
        for kind in ["bound", "cleaning", "gc-effect", "idle"] {
            let e = refused(&format!("kind = \"{kind}\"\n{AFTER}{TWO}"));
            assert!(e.starts_with("experiment x: plan.toml: no control"), "{e}");
            // A single variant is not a control unless it is named as one.
            assert!(refused(&format!("kind = \"{kind}\"\n{AFTER}{TWO}{NONE}")).contains("no control"));
            assert_eq!(refused(&format!("kind = \"{kind}\"\ncontrol = [\"none\"]\n{AFTER}{TWO}{NONE}")), "");
        }
        let of = |policy: &str| format!("[[variant]]\nname = {policy:?}\ncleaning = {{ policy = {policy:?} }}\n");
        for kind in ["file-io", "app-replay"] {
            let two = format!("{}{}", of("atgc"), of("fagc"));
            assert!(refused(&format!("kind = \"{kind}\"\n{AFTER}{two}")).contains("no control"));
            let three = format!("{two}{}", of("none"));
            assert_eq!(refused(&format!("kind = \"{kind}\"\ncontrol = [\"none\"]\n{AFTER}{three}")), "");
        }
    }

    #[test]
    fn a_comparison_that_does_not_say_what_work_comes_after_is_refused() {
        let e = refused(&format!("kind = \"bound\"\ncontrol = [\"none\"]\n[parameters]\nfill = 80\n{TWO}{NONE}"));
        assert!(e.contains("variant \"a\" does not define the work afterwards"), "{e}");
    }

    #[test]
    fn a_control_is_there_cleans_nothing_and_does_the_same_work() {
        let with = |control: &str, variants: &str| {
            refused(&format!("kind = \"bound\"\ncontrol = [{control:?}]\n{AFTER}{variants}"))
        };
        assert!(with("nobody", &format!("{TWO}{NONE}")).contains("control \"nobody\": no variant"));
        assert!(
            with("a", &format!("{TWO}{NONE}")).contains("control \"a\": a control's policy is \"none\", not \"atgc\"")
        );
        let e = with("none", &format!("{TWO}{NONE}fill = 70\n"));
        assert!(e.contains("variant \"a\" has no control: none of [\"none\"] does the same work"), "{e}");
    }

    #[test]
    fn a_job_is_compared_with_the_same_work_of_the_same_seed() {
        let plan = format!(
            "title = \"t\"\nprofile = \"p\"\nkind = \"bound\"\nseeds = [1, 2]\ncontrol = [\"none\", \"less\"]\n{AFTER}{TWO}{NONE}\
             [[variant]]\nname = \"less\"\npolicy = \"none\"\nfill = 70\n\
             [[variant]]\nname = \"l\"\npolicy = \"fagc\"\nfill = 70\n"
        );
        let experiment = Experiment::parse("x", "", &plan, "").unwrap();
        let jobs = experiment.jobs(&Changes::default()).unwrap();
        let called = |place: usize| format!("{}{}", jobs[place].variant, jobs[place].seed);
        let controls: Vec<String> = super::of_jobs(&experiment.plan, &jobs)
            .iter()
            .enumerate()
            .filter_map(|(place, control)| Some(format!("{}-{}", called(place), called((*control)?))))
            .collect();
        let mut sorted = controls.clone();
        sorted.sort();
        assert_eq!(sorted, ["a1-none1", "a2-none2", "f1-none1", "f2-none2", "l1-less1", "l2-less2"], "{controls:?}");
    }

    #[test]
    fn a_variant_is_compared_with_the_first_that_differs_only_in_what_the_plan_compares() {
        let variants = [("log", "log", 1), ("more", "log", 2), ("deltas", "deltas", 1), ("more-deltas", "deltas", 2)];
        let each =
            |(name, keeping, apps)| format!("[[variant]]\nname = {name:?}\nkeeping = {keeping:?}\napps = {apps}\n");
        let variants = variants.map(each).concat();
        let plan = |head: &str| format!("kind = \"app-updates\"\nseeds = [1, 2]\n{head}\n{variants}");
        let text = format!("title = \"t\"\nprofile = \"p\"\n{}", plan("compares = [\"keeping\"]"));
        let experiment = Experiment::parse("x", "", &text, "").unwrap();
        super::check(&experiment).unwrap();
        let jobs = experiment.jobs(&Changes::default()).unwrap();
        let controls = super::of_jobs(&experiment.plan, &jobs);
        assert_eq!(controls, [None, None, None, None, Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(refused(&plan("compares = []")), "");
        let e = refused(&plan("compares = [\"keeps\"]"));
        assert!(e.contains("compares \"keeps\": no variant sets it"), "{e}");
        let e = refused(&plan("compares = [\"keeping\"]\ncontrol = [\"log\"]"));
        assert!(e.contains("control and compares: only one of them"), "{e}");
    }

    #[test]
    fn a_plan_that_compares_something_else_needs_none() {
        assert_eq!(refused("kind = \"bound\"\n[[variant]]\nname = \"a\"\npolicy = \"atgc\"\n"), "");
        let same = "[[variant]]\nname = \"a\"\nfill = 1\n[[variant]]\nname = \"b\"\nfill = 2\n";
        assert_eq!(refused(&format!("kind = \"bound\"\n[parameters]\npolicy = \"atgc\"\n{same}")), "");
        assert_eq!(refused(&format!("kind = \"file-io\"\n{same}")), "");
    }
}
