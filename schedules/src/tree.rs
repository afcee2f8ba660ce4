//! What should a file system answer? A plain tree in memory, whose steps are calls with their answers.
//!
//! It shares no code with the file system. It learns inode numbers from the answers.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHasher;

use crate::course::{Compressing, Dir, Flavour, Name, Range};
use crate::hand::{Answer, Call, Refusal, Token};

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Object {
    /// Its number; 0 until an answer contains it.
    pub ino: u64,
    /// Names and their objects, for a directory.
    pub names: Option<BTreeMap<Name, usize>>,
    links: u32,
    refs: u32,
    parent: usize,
    /// In cells.
    pub size: u64,
    /// Cells other than zeroes.
    pub cells: BTreeMap<u64, Token>,
    attributes: BTreeMap<u8, Token>,
    /// A file whose blocks are in clusters.
    compressed: bool,
    /// The space saved by packing was released: the file is immutable except for truncation at cluster boundaries.
    released: bool,
    /// The device failed while blocks of it were moved: their places are unknown.
    pub shaken: bool,
}

impl Object {
    fn new(ino: u64, directory: bool, parent: usize) -> Self {
        Object {
            ino,
            names: directory.then(BTreeMap::new),
            links: if directory { 2 } else { 1 },
            refs: 1,
            parent,
            size: 0,
            cells: BTreeMap::new(),
            attributes: BTreeMap::new(),
            compressed: false,
            released: false,
            shaken: false,
        }
    }

    fn set_size(&mut self, size: u64) {
        self.cells.split_off(&size);
        self.size = size;
    }

    fn zero(&mut self, at: u64, end: u64) {
        self.cells.retain(|c, _| !(at..end).contains(c));
    }
}

/// What a call changed; used to check durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// These cells of an object contain this token; the end may be the maximum.
    Cells(usize, u64, u64, Token),
    /// An object has at least this size.
    Reaches(usize, u64),
    /// An object has this size.
    Size(usize, u64),
    /// Cells of an object were shifted.
    Shifted(usize),
    /// A name in a directory refers to this object from now on.
    Bind(usize, Name, Option<usize>),
    /// An object, and a directory's names, are now durable.
    Synced(usize),
    /// Everything is durable.
    SyncedAll,
}

/// The tree. Objects are identified by index; the first are [`Dir`]s.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Every inode that ever existed.
    pub objects: Vec<Arc<Object>>,
    compress: Option<Compressing>,
    /// The device may fail: then a file without contents may have blocks.
    faults: bool,
}

type Told = Result<Answer, Refusal>;

impl Tree {
    /// A new volume: the directories, by their numbers, with one reference each.
    pub fn new(dirs: &[u64]) -> Self {
        let mut tree = Tree { objects: Vec::new(), compress: None, faults: false };
        for (i, ino) in dirs.iter().enumerate() {
            let parent = if i == 0 { 0 } else { usize::from(Dir::PLACES[i - 1].0) };
            tree.objects.push(Arc::new(Object::new(*ino, true, parent)));
            if i > 0 {
                let (_, name) = Dir::PLACES[i - 1];
                tree.at(parent).links += 1;
                tree.names_mut(parent).insert(name, i);
            }
        }
        tree
    }

    /// Sets whether files are compressed and whether the device may fail.
    pub fn mounted(self, compress: Option<Compressing>, faults: bool) -> Self {
        Tree { compress, faults, ..self }
    }

    /// For comparing two trees.
    pub fn digest(&self) -> u64 {
        let mut hash = FxHasher::default();
        self.objects.hash(&mut hash);
        hash.finish()
    }

    fn at(&mut self, object: usize) -> &mut Object {
        Arc::make_mut(&mut self.objects[object])
    }

    fn names_mut(&mut self, dir: usize) -> &mut BTreeMap<Name, usize> {
        self.at(dir).names.get_or_insert_default()
    }

    fn is_dir(&self, object: usize) -> bool {
        self.objects[object].names.is_some()
    }

    /// The object with this number, if it is referenced.
    pub fn of(&self, ino: u64) -> Option<usize> {
        self.objects.iter().rposition(|o| o.ino == ino && (o.links > 0 || o.refs > 0))
    }

    fn file(&self, ino: u64) -> Result<usize, Refusal> {
        self.of(ino).ok_or(Refusal::NotFound)
    }

    /// A directory, and the object of a name in it.
    fn find(&self, dir: u64, name: Name) -> Result<(usize, Option<usize>), Refusal> {
        let dir = self.file(dir)?;
        let names = self.objects[dir].names.as_ref().ok_or(Refusal::NotDirectory)?;
        Ok((dir, names.get(&name).copied()))
    }

    fn live(&self, dir: usize) -> Result<(), Refusal> {
        if self.objects[dir].links == 0 { Err(Refusal::NotFound) } else { Ok(()) }
    }

    fn is_below(&self, mut place: usize, dir: usize) -> bool {
        while place != 0 && place != dir {
            place = self.objects[place].parent;
        }
        place == dir
    }

    fn bind(&mut self, dir: usize, name: Name, to: Option<usize>, effects: &mut Vec<Effect>) {
        match to {
            Some(object) => self.names_mut(dir).insert(name, object),
            None => self.names_mut(dir).remove(&name),
        };
        effects.push(Effect::Bind(dir, name, to));
    }

    fn drop_link(&mut self, object: usize) {
        if self.is_dir(object) {
            let parent = self.objects[object].parent;
            self.at(parent).links -= 1;
            self.at(object).links = 0;
        } else {
            self.at(object).links -= 1;
        }
    }

    fn settle(&mut self, object: usize, dir: usize) {
        if self.is_dir(object) {
            let old = self.objects[object].parent;
            self.at(object).parent = dir;
            self.at(old).links -= 1;
            self.at(dir).links += 1;
        }
    }

    /// Executes the call. Returns true if the recorded answer is correct; only then is the tree usable.
    /// [`Answer::Failed`] is correct for every call; the call is executed here.
    pub fn step(&mut self, call: &Call, answer: &Answer, effects: &mut Vec<Effect>) -> bool {
        let told = match answer {
            Answer::Ino(ino) => *ino,
            _ => 0,
        };
        if let (Call::List(dir), Answer::Names(names)) = (call, answer) {
            self.learn(*dir, names);
        }
        let contents = match *call {
            Call::Read(ino, ..) | Call::Stat(ino) => self.of(ino),
            Call::Allocate(ino, Range::Collapse | Range::Insert, ..) => {
                let object = self.of(ino);
                if let Some(object) = object.filter(|_| *answer == Answer::Failed) {
                    self.at(object).shaken = true;
                }
                object
            }
            _ => None,
        };
        let unknown = contents.is_some_and(|object| self.objects[object].shaken);
        let ours = match self.compression(call, answer) {
            Some(told) => told,
            None => self.answer(call, told, effects),
        };
        let ours = ours.unwrap_or_else(Answer::Refused);
        match (answer, &ours) {
            (Answer::Failed, _) => true,
            (Answer::Refused(Refusal::Wrong(_)), _) => false,
            _ if unknown => true,
            (Answer::Ino(a), Answer::Ino(b)) => a == b,
            // For an inode without a name: whether it may get one again is undefined.
            (Answer::Refused(Refusal::NotFound), Answer::Ino(b)) if matches!(call, Call::Link(..)) => {
                self.of(*b).is_some_and(|o| self.objects[o].links == 1)
            }
            (a, b) => a == b,
        }
    }

    /// The answer of a call that changes only how a file is stored; `None` for other calls. How many blocks a file has,
    /// and which of its clusters are packed, depends on when writes happened: if several answers are correct, the
    /// recorded one is accepted.
    fn compression(&mut self, call: &Call, recorded: &Answer) -> Option<Told> {
        let (Call::Compress(ino, _) | Call::Release(ino) | Call::Retake(ino) | Call::Repack(ino, _)) = *call else {
            return None;
        };
        let object = match self.file(ino) {
            Ok(object) => object,
            Err(e) => return Some(Err(e)),
        };
        let faults = self.faults;
        let o = self.at(object);
        let refused = |refusal: Refusal| *recorded == Answer::Refused(refusal);
        Some(match *call {
            Call::Compress(_, on) if o.compressed == on => Ok(Answer::Done),
            Call::Compress(..) if o.released => Err(Refusal::NotPermitted),
            Call::Compress(..) if !o.cells.is_empty() => Err(Refusal::Invalid),
            Call::Compress(..) if (o.size > 0 || faults) && refused(Refusal::Invalid) => Err(Refusal::Invalid),
            Call::Compress(_, on) => {
                o.compressed = on;
                Ok(Answer::Done)
            }
            Call::Release(_) if !o.compressed || o.released => Err(Refusal::Invalid),
            Call::Release(_) if refused(Refusal::NotPermitted) => Err(Refusal::NotPermitted),
            Call::Release(_) => {
                o.released = true;
                Ok(Answer::Done)
            }
            Call::Retake(_) if !o.released => Err(Refusal::Invalid),
            Call::Retake(_) => {
                o.released = false;
                Ok(Answer::Done)
            }
            _ if o.released => Err(Refusal::NotPermitted),
            _ if !o.compressed => Err(Refusal::Invalid),
            _ => Ok(Answer::Done),
        })
    }

    /// A file that may be changed.
    fn changeable(&self, ino: u64) -> Result<usize, Refusal> {
        let object = self.file(ino)?;
        if self.objects[object].released { Err(Refusal::NotPermitted) } else { Ok(object) }
    }

    /// Learns, from a listing, the numbers of existing inodes whose creation failed.
    fn learn(&mut self, dir: u64, names: &[(Name, u64)]) {
        let Some(dir) = self.of(dir) else { return };
        for (name, ino) in names {
            let object = self.objects[dir].names.as_ref().and_then(|names| names.get(name).copied());
            if let Some(object) = object.filter(|o| self.objects[*o].ino == 0 && self.of(*ino).is_none()) {
                self.at(object).ino = *ino;
            }
        }
    }

    fn answer(&mut self, call: &Call, told: u64, effects: &mut Vec<Effect>) -> Told {
        match *call {
            Call::Lookup(dir, name) => {
                let object = self.find(dir, name)?.1.ok_or(Refusal::NotFound)?;
                if self.objects[object].ino == 0 {
                    self.at(object).ino = told;
                }
                // A failed lookup takes no reference.
                if told != 0 {
                    self.at(object).refs += 1;
                }
                Ok(Answer::Ino(self.objects[object].ino))
            }
            Call::Create(dir, name, directory) => self.create(dir, name, directory, told, effects),
            Call::Link(ino, dir, name) => {
                let object = self.file(ino)?;
                if self.is_dir(object) {
                    return Err(Refusal::NotPermitted);
                }
                let (dir, there) = self.find(dir, name)?;
                self.live(dir)?;
                if there.is_some() {
                    return Err(Refusal::Exists);
                }
                let o = self.at(object);
                o.links += 1;
                o.refs += u32::from(told != 0);
                self.bind(dir, name, Some(object), effects);
                Ok(Answer::Ino(ino))
            }
            Call::Unlink(dir, name, directory) => self.remove(dir, name, directory, effects),
            Call::Rename(from, to, flavour) => self.rename(from, to, flavour, effects),
            Call::Forget(ino) => {
                let object = self.file(ino)?;
                // In a wrong order there may be no reference to drop.
                let left = self.objects[object].refs.checked_sub(1);
                self.at(object).refs = left.ok_or(Refusal::NotFound)?;
                Ok(Answer::Done)
            }
            Call::List(dir) => {
                let dir = self.file(dir)?;
                let names = self.objects[dir].names.as_ref().ok_or(Refusal::NotDirectory)?;
                Ok(Answer::Names(names.iter().map(|(n, o)| (*n, self.objects[*o].ino)).collect()))
            }
            Call::Stat(ino) => {
                let o = &self.objects[self.file(ino)?];
                Ok(Answer::Stat { size: o.size, links: o.links })
            }
            Call::Read(ino, at, cells) => {
                let o = &self.objects[self.file(ino)?];
                let end = (at + cells).min(o.size).max(at);
                Ok(Answer::Cells(end - at, o.cells.range(at..end).map(|(c, t)| (*c, *t)).collect()))
            }
            Call::Write(ino, at, cells, token) => {
                let object = self.changeable(ino)?;
                let o = self.at(object);
                o.cells.extend((at..at + cells).map(|c| (c, token)));
                o.size = o.size.max(at + cells);
                effects.extend([Effect::Cells(object, at, at + cells, token), Effect::Reaches(object, at + cells)]);
                Ok(Answer::Done)
            }
            Call::Resize(ino, size) => {
                let between = self.compress.is_some_and(|how| size.is_multiple_of(how.cells()));
                let object = if between { self.file(ino)? } else { self.changeable(ino)? };
                self.at(object).set_size(size);
                effects.extend([Effect::Cells(object, size, u64::MAX, 0), Effect::Size(object, size)]);
                Ok(Answer::Done)
            }
            Call::Allocate(ino, range, at, cells) => {
                let object = self.changeable(ino)?;
                self.allocate(object, range, at, cells, effects)
            }
            Call::SetAttribute(ino, which, token) => {
                let object = self.file(ino)?;
                self.at(object).attributes.insert(which, token);
                Ok(Answer::Done)
            }
            Call::GetAttribute(ino, which) => {
                let o = &self.objects[self.file(ino)?];
                o.attributes.get(&which).map(|t| Answer::Value(*t)).ok_or(Refusal::NoAttribute)
            }
            Call::Fsync(ino) | Call::FsyncDir(ino) => {
                effects.push(Effect::Synced(self.file(ino)?));
                Ok(Answer::Done)
            }
            Call::Sync => {
                effects.push(Effect::SyncedAll);
                Ok(Answer::Done)
            }
            // See `compression`.
            Call::Compress(..) | Call::Release(_) | Call::Retake(_) | Call::Repack(..) | Call::Background => {
                Ok(Answer::Done)
            }
        }
    }

    fn create(&mut self, dir: u64, name: Name, directory: bool, told: u64, effects: &mut Vec<Effect>) -> Told {
        let (dir, there) = self.find(dir, name)?;
        self.live(dir)?;
        if there.is_some() {
            return Err(Refusal::Exists);
        }
        if told != 0 && self.of(told).is_some() {
            return Err(Refusal::Wrong("the number of an inode that is in use".into()));
        }
        let object = self.objects.len();
        let mut new = Object::new(told, directory, dir);
        new.refs = u32::from(told != 0);
        new.compressed = !directory && self.compress.is_some_and(|how| how.all);
        self.objects.push(Arc::new(new));
        if directory {
            self.at(dir).links += 1;
        }
        self.bind(dir, name, Some(object), effects);
        Ok(Answer::Ino(told))
    }

    fn remove(&mut self, dir: u64, name: Name, directory: bool, effects: &mut Vec<Effect>) -> Told {
        let (dir, there) = self.find(dir, name)?;
        self.live(dir)?;
        let object = there.ok_or(Refusal::NotFound)?;
        match (&self.objects[object].names, directory) {
            (Some(_), false) => return Err(Refusal::IsDirectory),
            (None, true) => return Err(Refusal::NotDirectory),
            (Some(names), true) if !names.is_empty() => return Err(Refusal::NotEmpty),
            _ => {}
        }
        self.drop_link(object);
        self.bind(dir, name, None, effects);
        Ok(Answer::Done)
    }

    fn rename(&mut self, from: (u64, Name), to: (u64, Name), flavour: Flavour, effects: &mut Vec<Effect>) -> Told {
        let (dir, moving) = self.find(from.0, from.1)?;
        let (into, target) = self.find(to.0, to.1)?;
        self.live(dir)?;
        self.live(into)?;
        let moving = moving.ok_or(Refusal::NotFound)?;
        match (flavour, target) {
            (Flavour::NoReplace, Some(_)) => return Err(Refusal::Exists),
            (Flavour::Exchange, None) => return Err(Refusal::NotFound),
            _ => {}
        }
        if target == Some(moving) {
            return Ok(Answer::Done);
        }
        if self.is_dir(moving) && self.is_below(into, moving) {
            return Err(Refusal::Invalid);
        }
        if let Some(target) = target {
            let exchange = flavour == Flavour::Exchange;
            match (exchange, self.is_dir(moving), self.is_dir(target)) {
                (true, _, true) if self.is_below(dir, target) => return Err(Refusal::Invalid),
                (false, ..) if self.is_below(dir, target) => return Err(Refusal::NotEmpty),
                (false, true, false) => return Err(Refusal::NotDirectory),
                (false, false, true) => return Err(Refusal::IsDirectory),
                (false, true, true) if self.objects[target].names.as_ref().is_some_and(|n| !n.is_empty()) => {
                    return Err(Refusal::NotEmpty);
                }
                _ => {}
            }
            if exchange {
                self.settle(target, dir);
            } else {
                self.drop_link(target);
            }
            self.settle(moving, into);
            self.bind(dir, from.1, exchange.then_some(target), effects);
        } else {
            self.settle(moving, into);
            self.bind(dir, from.1, None, effects);
        }
        self.bind(into, to.1, Some(moving), effects);
        Ok(Answer::Done)
    }

    fn allocate(&mut self, object: usize, range: Range, at: u64, cells: u64, effects: &mut Vec<Effect>) -> Told {
        let (end, size) = (at + cells, self.objects[object].size);
        let o = self.at(object);
        match range {
            Range::Punch => o.zero(at, end),
            Range::Reserve => o.size = size.max(end),
            Range::Zero => {
                o.zero(at, end);
                o.size = size.max(end);
            }
            Range::Collapse | Range::Insert if o.compressed => return Err(Refusal::Unsupported),
            Range::Collapse if end >= size => return Err(Refusal::Invalid),
            Range::Insert if at >= size => return Err(Refusal::Invalid),
            Range::Collapse => {
                o.zero(at, end);
                let down = |c| if c >= end { c - cells } else { c };
                o.cells = std::mem::take(&mut o.cells).into_iter().map(|(c, t)| (down(c), t)).collect();
                o.size -= cells;
            }
            Range::Insert => {
                let up = |c| if c >= at { c + cells } else { c };
                o.cells = std::mem::take(&mut o.cells).into_iter().map(|(c, t)| (up(c), t)).collect();
                o.size += cells;
            }
        }
        match range {
            Range::Punch => effects.push(Effect::Cells(object, at, end, 0)),
            Range::Reserve => effects.push(Effect::Reaches(object, end)),
            Range::Zero => effects.extend([Effect::Cells(object, at, end, 0), Effect::Reaches(object, end)]),
            Range::Collapse | Range::Insert => effects.push(Effect::Shifted(object)),
        }
        Ok(Answer::Done)
    }
}
