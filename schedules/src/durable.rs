//! What must exist after a power cut, and what may?
//!
//! Calls overlap, so promises follow from their beginnings and ends: a change that ended before the beginning of a
//! successful sync is durable; a change that ended before another began is overwritten by it. A change may be found
//! unless a durable one overwrote it. This holds for every order that the calls may have had, and callers cannot rely
//! on more.

use std::collections::{BTreeMap, BTreeSet};

use vfs::{FileKind, FileSystem, Ino};

use crate::course::{CELL, Name};
use crate::hand::{Answer, Event, Token, names, tokens};
use crate::order::Order;
use crate::tree::{Effect, Object, Tree};

/// The ranges of a file that are ever written: first cell and number of cells.
pub const WINDOWS: [(u64, u64); 4] = [(0, 800), (873 * 8, 1000), ((923 + 1018) * 8, 400), ((923 + 2 * 1018) * 8, 400)];

/// An inode as found on the volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Thing {
    directory: bool,
    size: u64,
    cells: BTreeMap<u64, Token>,
}

impl Thing {
    /// A file of the model tree, as it would be found.
    fn of(o: &Object) -> Thing {
        let inside = |c: &u64| WINDOWS.iter().any(|(first, n)| (*first..first + n).contains(c));
        let cells = o.cells.iter().filter(|(c, _)| inside(c)).map(|(c, t)| (*c, *t)).collect();
        Thing { directory: false, size: o.size, cells }
    }
}

/// The volume's contents: names by directory, and their inodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    names: BTreeMap<(u64, Name), u64>,
    things: BTreeMap<u64, Thing>,
}

/// Reads everything below the root.
///
/// # Errors
/// The first thing that cannot be read.
pub fn look(fs: &dyn FileSystem) -> Result<Found, String> {
    let mut found = Found::default();
    let mut waiting = vec![fs.root().0];
    while let Some(dir) = waiting.pop() {
        let told = |what: &str, e: vfs::Error| format!("{what} directory {dir}: {e}");
        for (name, ino) in names(fs, dir).map_err(|e| told("listing", e))? {
            let attr = fs.lookup(Ino(dir), &name.bytes()).map_err(|e| told("finding a name in", e))?.attr;
            if attr.ino.0 != ino {
                return Err(format!("directory {dir}: {name:?} is listed as {ino}, found as {}", attr.ino.0));
            }
            found.names.insert((dir, name), ino);
            let directory = attr.kind == FileKind::Directory;
            let mut thing = Thing { directory, size: 0, cells: BTreeMap::new() };
            if directory {
                waiting.push(ino);
            } else {
                if attr.size % CELL != 0 {
                    return Err(format!("inode {ino}: {} bytes", attr.size));
                }
                thing.size = attr.size / CELL;
                for (first, cells) in WINDOWS {
                    let mut bytes = vec![0; (cells * CELL) as usize];
                    let n = fs.read(attr.ino, first * CELL, &mut bytes).map_err(|e| format!("reading {ino}: {e}"))?;
                    thing.cells.extend(tokens(&bytes[..n], first).map_err(|e| format!("inode {ino}: {e}"))?);
                }
            }
            found.things.insert(ino, thing);
            fs.forget(attr.ino, 1);
        }
    }
    Ok(found)
}

/// Checks that a volume holds exactly a tree.
///
/// # Errors
/// The first difference.
pub fn same(tree: &Tree, found: &Found) -> Result<(), String> {
    let mut names = BTreeMap::new();
    let mut waiting = vec![0];
    while let Some(dir) = waiting.pop() {
        let d = &tree.objects[dir];
        for (name, object) in d.names.iter().flatten() {
            let o = &tree.objects[*object];
            names.insert((d.ino, *name), o.ino);
            if o.names.is_some() {
                waiting.push(*object);
            } else if !o.shaken {
                let wanted = Thing::of(o);
                match found.things.get(&o.ino) {
                    Some(thing) if *thing == wanted => {}
                    thing => return Err(format!("inode {}: {thing:?}, not {wanted:?}", o.ino)),
                }
            }
        }
    }
    if names == found.names { Ok(()) } else { Err(format!("names are {:?}, not {names:?}", found.names)) }
}

/// Whether a volume holds a tree, like [`same`], but an inode whose creation failed may have any number.
pub fn is(tree: &Tree, found: &Found) -> bool {
    let mut waiting = vec![(0, tree.objects[0].ino)];
    while let Some((dir, at)) = waiting.pop() {
        let names = tree.objects[dir].names.iter().flatten();
        if found.names.range((at, Name(0))..(at + 1, Name(0))).count() != names.clone().count() {
            return false;
        }
        for (name, object) in names {
            let (o, led) = (&tree.objects[*object], found.names.get(&(at, *name)));
            let Some((led, thing)) = led.and_then(|led| Some((*led, found.things.get(led)?))) else { return false };
            let number = o.ino == led || o.ino == 0;
            if !number || o.names.is_some() != thing.directory {
                return false;
            }
            if thing.directory {
                waiting.push((*object, led));
            } else if !o.shaken && *thing != Thing::of(o) {
                return false;
            }
        }
    }
    true
}

/// A change with its beginning and end; a failed call never ends.
#[derive(Debug, Clone, Copy)]
struct Change {
    event: usize,
    from: u64,
    to: u64,
    effect: Effect,
}

struct Promises {
    changes: Vec<Change>,
    /// Beginnings of successful syncs: of an object, or of everything.
    syncs: Vec<(u64, Option<usize>)>,
}

impl Promises {
    /// Whether a successful sync of one of these began after the change ended.
    fn durable(&self, c: &Change, of: &[usize]) -> bool {
        self.syncs.iter().any(|(from, what)| c.to < *from && what.is_none_or(|o| of.contains(&o)))
    }

    /// The changes to one thing that may be found: those not overwritten by a durable one. The first is the state
    /// before all changes.
    fn possible<'c>(&self, changes: &'c [Change], of: impl Fn(&Change) -> Vec<usize>) -> Vec<&'c Change> {
        let durable: Vec<&Change> = changes.iter().filter(|c| self.durable(c, &of(c))).collect();
        changes.iter().filter(|w| !durable.iter().any(|d| w.to < d.from)).collect()
    }

    fn names(&self, dir: usize, name: Name, before: Option<usize>) -> Vec<Option<usize>> {
        let first = Change { event: usize::MAX, from: 0, to: 0, effect: Effect::Bind(dir, name, before) };
        let of_it = |c: &&Change| matches!(c.effect, Effect::Bind(d, n, _) if (d, n) == (dir, name));
        let all: Vec<Change> = [first].into_iter().chain(self.changes.iter().filter(of_it).copied()).collect();
        let led = |c: &Change| match c.effect {
            Effect::Bind(_, _, to) => to,
            _ => None,
        };
        self.possible(&all, |c| [dir].into_iter().chain(led(c)).collect()).into_iter().map(led).collect()
    }

    fn judge_file(&self, object: usize, thing: &Thing) -> Result<(), String> {
        let first = |effect| Change { event: usize::MAX, from: 0, to: 0, effect };
        let mine = |c: &&Change| matches!(c.effect, Effect::Cells(o, ..) | Effect::Reaches(o, _) | Effect::Size(o, _) | Effect::Shifted(o) if o == object);
        let mine: Vec<Change> = self.changes.iter().filter(mine).copied().collect();
        if mine.iter().any(|c| matches!(c.effect, Effect::Shifted(_))) {
            let written =
                |t: &Token| mine.iter().any(|c| matches!(c.effect, Effect::Cells(_, _, _, token) if token == *t));
            return match thing.cells.iter().find(|(_, t)| !written(t)) {
                Some((cell, token)) => Err(format!("cell {cell} holds {token}, which nobody wrote here")),
                None => Ok(()),
            };
        }
        self.judge_size(object, &mine, thing.size)?;
        let covered = mine.iter().filter_map(|c| match c.effect {
            Effect::Cells(_, at, end, _) if end < u64::MAX => Some(at..end.min(thing.size)),
            _ => None,
        });
        let inside = |c: &u64| WINDOWS.iter().any(|(first, n)| (*first..first + n).contains(c));
        let cells: BTreeSet<u64> = covered.flatten().filter(inside).chain(thing.cells.keys().copied()).collect();
        for cell in cells {
            let over = |c: &&Change| matches!(c.effect, Effect::Cells(_, at, end, _) if (at..end).contains(&cell));
            let all: Vec<Change> = [first(Effect::Cells(object, 0, u64::MAX, 0))]
                .into_iter()
                .chain(mine.iter().filter(over).copied())
                .collect();
            let may: Vec<Token> = self
                .possible(&all, |_| vec![object])
                .into_iter()
                .filter_map(|c| match c.effect {
                    Effect::Cells(_, _, _, token) => Some(token),
                    _ => None,
                })
                .collect();
            let holds = thing.cells.get(&cell).copied().unwrap_or(0);
            if !may.contains(&holds) {
                return Err(format!("cell {cell} of {} holds {holds}, may hold {may:?}", thing.size));
            }
        }
        Ok(())
    }

    fn judge_size(&self, object: usize, mine: &[Change], size: u64) -> Result<(), String> {
        let durable = |c: &Change| self.durable(c, &[object]);
        let mut all = vec![Change { event: usize::MAX, from: 0, to: 0, effect: Effect::Size(object, 0) }];
        all.extend(mine.iter().filter(|c| matches!(c.effect, Effect::Reaches(..) | Effect::Size(..))));
        let cuts: Vec<Change> = all.iter().filter(|c| matches!(c.effect, Effect::Size(..))).copied().collect();
        let least = all.iter().filter_map(|r| match r.effect {
            Effect::Reaches(_, end) if durable(r) && cuts.iter().all(|c| c.to < r.from) => Some(end),
            _ => None,
        });
        let least = least.max().unwrap_or(0);
        let overwritten = |w: &Change| cuts.iter().any(|c| w.to < c.from && durable(c));
        let may: Vec<u64> = all
            .iter()
            .filter(|w| !overwritten(w))
            .filter_map(|w| match w.effect {
                Effect::Reaches(_, n) | Effect::Size(_, n) => Some(n),
                _ => None,
            })
            .filter(|n| *n >= least)
            .collect();
        if may.contains(&size) { Ok(()) } else { Err(format!("{size} cells, may have {may:?}")) }
    }

    /// Whether a file was synced while it had a name, and its names were only replaced, not removed.
    fn must_have_a_name(&self, object: usize) -> bool {
        let binds = |c: &Change| match c.effect {
            Effect::Bind(dir, name, to) => Some((dir, name, to)),
            _ => None,
        };
        let given: Vec<&Change> =
            self.changes.iter().filter(|c| binds(c).is_some_and(|b| b.2 == Some(object))).collect();
        let keys: BTreeSet<(usize, Name)> =
            given.iter().filter_map(|c| binds(c)).map(|(dir, name, _)| (dir, name)).collect();
        let taken = self.changes.iter().any(|c| {
            binds(c).is_some_and(|(dir, name, to)| to != Some(object) && keys.contains(&(dir, name)))
                && !given.iter().any(|g| g.event == c.event)
        });
        !taken && given.iter().any(|c| self.durable(c, &[object]))
    }
}

/// Checks that the contents after a cut keep every promise.
///
/// # Errors
/// The first broken promise.
pub fn judge(start: &Tree, events: &[Event], order: &Order, found: &Found) -> Result<(), String> {
    let mut promises = Promises { changes: Vec::new(), syncs: Vec::new() };
    for (event, effect) in &order.changes {
        let e = &events[*event];
        let returned = e.answer != Answer::Failed;
        match effect {
            Effect::Synced(object) if returned => promises.syncs.push((e.from, Some(*object))),
            Effect::SyncedAll if returned => promises.syncs.push((e.from, None)),
            Effect::Synced(_) | Effect::SyncedAll => {}
            effect => {
                let to = if returned { e.to } else { u64::MAX };
                promises.changes.push(Change { event: *event, from: e.from, to, effect: *effect });
            }
        }
    }
    let tree = &order.tree;
    let root = tree.objects[0].ino;
    let mut waiting = vec![(0, root)];
    let mut reached = BTreeSet::from([0]);
    while let Some((dir, ino)) = waiting.pop() {
        for name in (0..Name::COUNT).map(Name) {
            let before = start.objects.get(dir).and_then(|d| d.names.as_ref()?.get(&name).copied());
            let may = promises.names(dir, name, before);
            let what = format!("directory {ino}, {name:?}");
            let Some(led) = found.names.get(&(ino, name)).copied() else {
                if may.contains(&None) {
                    continue;
                }
                return Err(format!("{what}: its name was durable and is gone; it leads to one of objects {may:?}"));
            };
            // The number of an object whose creation failed is unknown.
            let is_it = |o: &&usize| tree.objects.get(**o).is_none_or(|x| x.ino == led || x.ino == 0);
            let Some(object) = may.iter().flatten().find(is_it).copied() else {
                return Err(format!("{what}: leads to inode {led}; it may lead to objects {may:?}"));
            };
            let thing = &found.things[&led];
            let Some(known) = tree.objects.get(object) else { continue };
            if known.names.is_some() != thing.directory {
                return Err(format!("{what}: inode {led} is a directory or none"));
            }
            if reached.insert(object) {
                if thing.directory {
                    waiting.push((object, led));
                } else {
                    promises.judge_file(object, thing).map_err(|e| format!("{what}, inode {led}: {e}"))?;
                }
            }
        }
    }
    for object in 0..tree.objects.len() {
        if !reached.contains(&object) && promises.must_have_a_name(object) {
            return Err(format!("inode {} was durable and has no name any more", tree.objects[object].ino));
        }
    }
    Ok(())
}
