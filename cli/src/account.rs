//! What has a mount spent, for a client that polls: in total and since an earlier answer, by cause and by file?
//!
//! An answer is a line of JSON that fits into an extended attribute ([`fuse::control::ACCOUNT`]). The mount keeps the
//! ledgers of its last answers, so that the client gets exact differences for every file, even for files not listed
//! before.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use device::energy::{Component, Energy, Ledger};
use serde_json::{Map, Value, json};

use sim::labels::{Cause, Words};

/// Ledgers of earlier answers that are kept: the number of clients at a time.
const KEPT: usize = 8;
/// Maximum length of an answer: an extended attribute has 64 KiB.
const LONGEST: usize = 60 << 10;

/// Everything spent up to a given time.
#[derive(Clone)]
pub struct Moment {
    /// Device time in nanoseconds.
    pub took: u64,
    /// The accounts.
    pub ledger: Ledger,
}

/// Reported moments by token; tokens begin with 1.
#[derive(Default)]
pub struct Moments(Mutex<(u64, VecDeque<(u64, Moment)>)>);

impl Moments {
    /// Keeps a moment and returns its token, with the moment that has the token `since`, if that is still kept. That
    /// moment is removed: its client now has the successor.
    pub fn keep(&self, moment: Moment, since: u64) -> (u64, Option<Moment>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.1.iter().position(|(token, _)| *token == since);
        let before = at.and_then(|at| kept.1.remove(at)).map(|(_, moment)| moment);
        if kept.1.len() >= KEPT {
            kept.1.pop_front();
        }
        kept.0 += 1;
        let token = kept.0;
        kept.1.push_back((token, moment));
        (token, before)
    }
}

type Amounts = [Energy; Component::ALL.len()];

/// Amounts in total, and since the earlier moment.
#[derive(Clone, Copy, Default)]
struct Both {
    all: Amounts,
    since: Amounts,
}

fn sum(amounts: &Amounts) -> Energy {
    amounts.iter().copied().sum()
}

impl Both {
    fn of(all: Amounts, before: Amounts) -> Both {
        let mut since = all;
        since.iter_mut().zip(before).for_each(|(s, b)| *s = *s - b);
        Both { all, since }
    }
    fn add(&mut self, other: &Both) {
        self.all.iter_mut().zip(other.all).for_each(|(a, b)| *a += b);
        self.since.iter_mut().zip(other.since).for_each(|(a, b)| *a += b);
    }
    fn less(&self, other: &Both) -> Both {
        let mut out = *self;
        out.all.iter_mut().zip(other.all).for_each(|(a, b)| *a = *a - b);
        out.since.iter_mut().zip(other.since).for_each(|(a, b)| *a = *a - b);
        out
    }
    fn covers(&self, other: &Both) -> bool {
        self.all.iter().zip(other.all).all(|(a, b)| *a >= b) && self.since.iter().zip(other.since).all(|(a, b)| *a >= b)
    }
    fn is_nothing(&self) -> bool {
        sum(&self.all) == Energy::ZERO
    }
    fn json(&self) -> Map<String, Value> {
        let of = |amounts: &Amounts| -> Map<String, Value> {
            Component::ALL.iter().zip(amounts).map(|(c, e)| (c.text().to_lowercase(), json!(e.0))).collect()
        };
        let mut out = Map::new();
        out.insert("pj".into(), json!(sum(&self.all).0));
        out.insert("since_pj".into(), json!(sum(&self.since).0));
        out.insert("components_pj".into(), of(&self.all).into());
        out.insert("since_components_pj".into(), of(&self.since).into());
        out
    }
}

/// A file, or several files with one name.
struct File {
    inodes: Vec<u64>,
    both: Both,
    name: Option<String>,
}

/// An answer. Lists by name the `files` files that cost most in total, and the `files` files that cost most since
/// `since`.
#[allow(clippy::too_many_arguments, reason = "two closures tell names, which only some answers need")]
pub fn answer(
    profile: &str,
    words: &Words,
    token: u64,
    now: &Moment,
    before: Option<&Moment>,
    files: usize,
    together: impl Fn(u64) -> Option<String>,
    name: impl Fn(u64) -> String,
) -> String {
    let cause = |ledger: &Ledger, cause| Component::ALL.map(|c| ledger.component_of(c, cause));
    let of_cause = |n| Both::of(cause(&now.ledger, n), before.map_or_else(Amounts::default, |b| cause(&b.ledger, n)));
    let row_of_cause = |n| {
        let Cause { key, text } = words.named(n);
        let mut out = row("cause", key, None, &of_cause(n));
        out["name"] = json!(text);
        out
    };
    let causes: Vec<Value> = now.ledger.causes().map(row_of_cause).collect();
    let mut owners: BTreeMap<u64, Both> = now
        .ledger
        .owners()
        .into_iter()
        .map(|(owner, all)| {
            let had = before.map_or_else(Amounts::default, |b| b.ledger.owner(owner));
            (owner, Both::of(all, had))
        })
        .collect();
    let nobody = owners.remove(&0).unwrap_or_default();
    let mut all = Both::of(
        Component::ALL.map(|c| now.ledger.component(c)),
        Component::ALL.map(|c| before.map_or(Energy::ZERO, |b| b.ledger.component(c))),
    )
    .json();
    all.insert("token".into(), json!(token));
    all.insert("profile".into(), json!(profile));
    all.insert("time_ns".into(), json!(now.took));
    all.insert("since_ns".into(), json!(before.map(|b| now.took.saturating_sub(b.took))));
    all.insert("causes".into(), causes.into());
    let grouped = group(owners, together);
    let mut most = files;
    loop {
        all.insert("files".into(), rows(&grouped, &words.rest, nobody, of_cause(0), most, &name).into());
        let text = Value::Object(all.clone()).to_string();
        if text.len() <= LONGEST || most == 0 {
            return text;
        }
        most /= 2;
    }
}

fn row(what: &str, name: String, inode: Option<u64>, both: &Both) -> Value {
    let mut out = both.json();
    out.insert(what.into(), json!(name));
    if inode.is_some() {
        out.insert("inode".into(), json!(inode));
    }
    out.into()
}

/// Files with amounts; files with the same `together` name are merged.
fn group(owners: BTreeMap<u64, Both>, together: impl Fn(u64) -> Option<String>) -> Vec<File> {
    let mut groups: BTreeMap<String, File> = BTreeMap::new();
    let mut files = Vec::new();
    for (owner, both) in owners.into_iter().filter(|(_, both)| !both.is_nothing()) {
        match together(owner) {
            None => files.push(File { inodes: vec![owner], both, name: None }),
            Some(name) => {
                let file = File { inodes: Vec::new(), both: Both::default(), name: Some(name.clone()) };
                let group = groups.entry(name).or_insert(file);
                group.inodes.push(owner);
                group.both.add(&both);
            }
        }
    }
    files.extend(groups.into_values());
    files
}

fn rows(
    files: &[File],
    rest: &str,
    nobody: Both,
    waiting: Both,
    most: usize,
    name: &impl Fn(u64) -> String,
) -> Vec<Value> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    let mut named = vec![false; files.len()];
    order.sort_by_key(|n| Reverse(sum(&files[*n].both.since)));
    order.iter().take(most).filter(|n| sum(&files[**n].both.since) > Energy::ZERO).for_each(|n| named[*n] = true);
    order.sort_by_key(|n| (Reverse(sum(&files[*n].both.all)), files[*n].inodes[0]));
    order.iter().take(most).for_each(|n| named[*n] = true);
    let (mut out, mut others, mut left) = (Vec::new(), Both::default(), 0);
    for n in order {
        let file = &files[n];
        if !named[n] {
            others.add(&file.both);
            left += file.inodes.len();
            continue;
        }
        let (text, inode) = match (&file.name, file.inodes.as_slice()) {
            (Some(name), [_, _, ..]) => (format!("{name} ({} inodes)", file.inodes.len()), None),
            (Some(name), inodes) => (name.clone(), Some(inodes[0])),
            (None, inodes) => (name(inodes[0]), Some(inodes[0])),
        };
        out.push(row("file", text, inode, &file.both));
    }
    let mut add = |name: String, both: &Both| {
        if !both.is_nothing() {
            out.push(row("file", name, None, both));
        }
    };
    add(format!("<{left} others>"), &others);
    // The ledger books only idle time and work of unspecified cause without cause and owner.
    if nobody.covers(&waiting) {
        add(rest.to_owned(), &nobody.less(&waiting));
        add("<waiting>".to_owned(), &waiting);
    } else {
        add(rest.to_owned(), &nobody);
    }
    out
}

#[cfg(test)]
mod tests {
    use device::Tag;
    use device::energy::profile::Profile;
    use device::energy::{Bill, Meter, Nanos, Operation};

    use super::*;

    fn field(rows: &Value, name: &str) -> u64 {
        rows.as_array().unwrap().iter().map(|r| r[name].as_u64().unwrap()).sum()
    }

    #[test]
    fn every_answer_adds_up_in_all_and_since_the_one_before_and_fits() {
        let meter = Meter::new(Profile::find("kirin9000-ufs31").unwrap().host.prices());
        let moments = Moments::default();
        let words = Words { reasons: Vec::new(), rest: "<its own>".into() };
        let mut token = 0;
        for round in 0..4 {
            for owner in 0..900 {
                let tag = Tag { cause: (owner % 5) as u8, owner: owner * (round + 1) };
                meter.request(Operation::Write, tag, 1 + owner, Nanos(owner), &mut Bill::default());
            }
            let now = Moment { took: round, ledger: meter.ledger() };
            let (next, before) = moments.keep(now.clone(), token);
            assert_eq!(before.is_some(), round > 0);
            for files in [0, 3, 500, usize::MAX] {
                let together = |owner| (owner % 7 == 0).then(|| "seven".to_owned());
                let long = |owner| format!("/{owner}/{}", "x".repeat(255));
                let text = answer("p", &words, next, &now, before.as_ref(), files, together, long);
                assert!(text.len() < 64 << 10, "{}", text.len());
                let said: Value = serde_json::from_str(&text).unwrap();
                let since = before.as_ref().map_or(now.ledger.total().0, |b| (now.ledger.total() - b.ledger.total()).0);
                for (name, expected) in [("pj", now.ledger.total().0), ("since_pj", since)] {
                    assert_eq!(said[name], expected);
                    assert_eq!(field(&said["files"], name), expected, "{name}, {files} files");
                    assert_eq!(field(&said["causes"], name), expected, "{name}");
                }
                assert_eq!(said["since_ns"].as_u64(), before.as_ref().map(|_| 1));
                token = said["token"].as_u64().unwrap();
            }
        }
        // Each client has its own earlier moment; one that is too old is unknown.
        let now = Moment { took: 9, ledger: meter.ledger() };
        assert!(moments.keep(now.clone(), 1).1.is_none());
        (0..KEPT).for_each(|_| drop(moments.keep(now.clone(), 0)));
        assert!(moments.keep(now, token).1.is_none());
    }
}
