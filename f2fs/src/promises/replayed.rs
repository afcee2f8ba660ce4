//! After a power cut now, which names would roll-forward leave in a directory?
//!
//! The answer is an account of names, kept without reading the volume, and two rules that follow from it:
//! [`ReplayedNames::allows`] (may an fsync put this inode's name into the chain?) and [`ReplayedNames::next`] (what is
//! missing until roll-forward leaves exactly the names that a directory has now?). An fsync of the directory then needs
//! no checkpoint.
//!
//! # What roll-forward does with names
//! Linux (6.1, 6.12) and JouleFS agree. Roll-forward starts from the names of the checkpoint and follows the chain. It
//! handles the name of each inode once, at the *last* of its inode blocks with the dentry mark: the inode gets the name
//! recorded in this block. The previous owner of the name loses it, and is freed if that was its last name. So:
//!
//! * Roll-forward never removes a name; the name gets another owner or keeps its owner.
//! * Each inode that the chain names (a *named* inode) has one name: that in its last such block, not in earlier ones.
//! * The final owner of a name is the last named inode in the chain with this name; without one, the owner in the
//!   checkpoint. This is [`Name::replayed`].
//! * All earlier owners of the name are gone: the checkpoint's owner, and earlier named inodes in the chain.
//!
//! Only an inode that is not in the checkpoint may have the mark: Linux refuses to mount a volume on which another
//! inode has it.
//!
//! # Names that the chain releases
//! Two changes return a name to an earlier owner. A new inode moves when a later block of it records another name. A
//! *withdrawal* clears the marks of its block in place: roll-forward skips a block without marks. The marks are in the
//! last sector of the block, so a torn write leaves the block either as it was or withdrawn, and no other block of the
//! chain changes.
//!
//! # Why no promise breaks
//! *Claim*: at every time, roll-forward leaves each name with an inode (or none) that it led to at some moment since
//! the last promise about it; and every synced file that always had a name since then has one.
//!
//! The chain is read from its beginning up to the first missing block, so blocks take effect in order, and each must
//! preserve the claim on its own. A new block for inode X under the name `n` changes the result for two names:
//!
//! * `n`: from K to X. X has the name now. K must be *dead*, without any name: then no file is lost.
//! * X's name in the chain so far, `m`, if it differs. X was its final owner, and the name returns to its owner before
//!   X. This is allowed only if there is no such owner in the checkpoint or earlier in the chain ([`Name::buried`]),
//!   and if `m` had no owner at some moment since X left it ([`Name::empty`]): in an exchange it always has one.
//!
//! A withdrawal of X changes only `m`, and is allowed under the same condition if X is dead. Otherwise an older owner
//! would reappear, although a promise may have covered its removal.
//!
//! When a directory's names agree, each leads to [`Name::replayed`], and only a flush of the device is left to do. A
//! later change of a name by the user does not change the result of roll-forward.
//!
//! # What needs a checkpoint
//! A name of the checkpoint that was removed and not created again; names of directories, symlinks and devices, which
//! have no chain; inodes that have several names, exchanged theirs, or have another name in the checkpoint; a directory
//! that is new or moved, or whose own attributes were set; a casefolded directory in which a name reappeared in another
//! spelling. Times of a directory are not restored: roll-forward sets them to the time of recovery, as it does for any
//! new file.

use std::collections::BTreeMap;

use format::{BlockAddr, Ino};
use rustc_hash::{FxHashMap, FxHashSet};

/// One name that changed since the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Name {
    /// Its owner in the checkpoint.
    before: Option<Ino>,
    /// Its owner now.
    now: Option<Ino>,
    /// The last named inode with this name in the chain.
    last: Option<Ino>,
    /// True if earlier inodes in the chain have this name.
    covered: bool,
    /// True if it had no owner at some moment since roll-forward would last have left it as it was.
    empty: bool,
}

impl Name {
    /// Its owner after roll-forward.
    fn replayed(&self) -> Option<Ino> {
        self.last.or(self.before)
    }
    fn agrees(&self) -> bool {
        self.now == self.replayed()
    }
    /// True if without the last named inode another inode would have the name after roll-forward.
    fn buried(&self) -> bool {
        self.before.is_some() || self.covered
    }
}

/// When the state that a directory's names depend on is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stamp {
    /// With this write to the chain, or earlier.
    At(u64),
    /// The write has not yet reached the device.
    OnItsWay,
}

/// The names of one directory that changed since the checkpoint.
#[derive(Debug)]
struct Directory {
    /// Names that differ after roll-forward.
    open: BTreeMap<Box<[u8]>, Name>,
    /// Names that are the same after roll-forward.
    agreed: FxHashMap<Box<[u8]>, Name>,
    stamp: Stamp,
}

impl Directory {
    fn new() -> Self {
        Directory { open: BTreeMap::new(), agreed: FxHashMap::default(), stamp: Stamp::At(0) }
    }
    fn get(&self, name: &[u8]) -> Option<&Name> {
        self.open.get(name).or_else(|| self.agreed.get(name))
    }
    fn len(&self) -> usize {
        self.open.len() + self.agreed.len()
    }
    /// Changes a name; forgets it when nothing about it needs to be recorded.
    fn change(&mut self, name: &[u8], first: Name, f: impl FnOnce(&mut Name)) {
        let (key, mut n) = self
            .open
            .remove_entry(name)
            .or_else(|| self.agreed.remove_entry(name))
            .unwrap_or_else(|| (Box::from(name), first));
        f(&mut n);
        n.empty = !n.agrees() && (n.empty || n.now.is_none());
        if !n.agrees() {
            self.open.insert(key, n);
        } else if n.last.is_some() || n.covered {
            self.agreed.insert(key, n);
        }
    }
}

/// The name of an inode in the chain.
#[derive(Debug, Clone)]
struct Place {
    dir: Ino,
    name: Box<[u8]>,
    /// Address of the inode block with the mark; `None` if there are several.
    block: Option<BlockAddr>,
}

/// The next step until roll-forward preserves a directory's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Nothing,
    /// Put this inode's name into the chain.
    Put(Ino),
    /// Withdraw this inode from the chain.
    Withdraw(Ino),
    /// Only a checkpoint helps.
    Checkpoint,
}

/// Most steps in place of a checkpoint. Each writes a block; a checkpoint writes about five blocks and everything
/// dirty.
pub(crate) const MOST_STEPS: usize = 4;
/// Limit of remembered names. Above it, the next fsync that needs the account writes a checkpoint.
const MOST_NAMES: usize = 1 << 15;
/// Limit of dead inodes.
const MOST_DEAD: usize = 1 << 16;

/// A directory and the folded form of a name in it.
type Folded = (Ino, Box<[u8]>);

/// The account of names since the last checkpoint.
#[derive(Debug, Default)]
pub(crate) struct ReplayedNames {
    dirs: FxHashMap<Ino, Directory>,
    /// Named inodes.
    places: FxHashMap<Ino, Place>,
    /// Inodes that lost their last name. Never directories: roll-forward in Linux frees a directory whose name a named
    /// inode takes, even if it is not empty in the checkpoint (docs/decisions/0009).
    dead: FxHashSet<Ino>,
    /// Directories that changed in other ways than by names in them.
    altered: FxHashSet<Ino>,
    /// Inodes that exchanged their names.
    exchanged: FxHashSet<Ino>,
    /// The last spelling of names in casefolded directories, by folded form.
    spellings: FxHashMap<Folded, Box<[u8]>>,
    /// Casefolded directories in which a name reappeared in another spelling.
    respelled: FxHashSet<Ino>,
    names: usize,
    /// The account exceeded a limit.
    overflowed: bool,
    /// Writes to the chain that concern names, and how many of them are durable. The counters continue over
    /// checkpoints: a flush may begin before a checkpoint and end after it.
    written: u64,
    flushed: u64,
    /// Directories concerned by a write to the chain that has not reached the device.
    on_their_way: Vec<Ino>,
}

impl ReplayedNames {
    fn change(&mut self, dir: Ino, name: &[u8], first: Name, f: impl FnOnce(&mut Name)) {
        if self.overflowed {
            return;
        }
        let d = self.dirs.entry(dir).or_insert_with(Directory::new);
        self.names -= d.len();
        d.change(name, first, f);
        self.names += d.len();
        self.overflowed = self.names > MOST_NAMES;
        if d.len() == 0 && d.stamp <= Stamp::At(self.flushed) {
            self.dirs.remove(&dir);
        }
    }

    fn name(&self, dir: Ino, name: &[u8]) -> Option<&Name> {
        self.dirs.get(&dir)?.get(name)
    }

    // ---- called by user operations

    /// Records that a name leads to another inode, or to none. The caller holds the directory's lock.
    pub(crate) fn bound(&mut self, dir: Ino, name: &[u8], was: Option<Ino>, now: Option<Ino>) {
        let first = Name { before: was, now: was, ..Name::default() };
        self.change(dir, name, first, |n| n.now = now);
    }

    /// Records that a name of a casefolded directory will change; it has the spelling `name` and the folded form
    /// `folded`.
    ///
    /// Roll-forward in Linux compares bytes: it leaves a name of the checkpoint next to the same name in another
    /// spelling. So after a name reappears in another spelling, only a checkpoint makes names durable.
    pub(crate) fn spelled(&mut self, dir: Ino, folded: &[u8], name: &[u8]) {
        if self.overflowed {
            return;
        }
        let was = self.spellings.entry((dir, folded.into())).or_insert_with(|| name.into());
        if **was != *name {
            self.respelled.insert(dir);
        }
        self.overflowed = self.spellings.len() > MOST_NAMES;
    }

    /// Records that an inode other than a directory lost its last name. `known`: the checkpoint has it.
    pub(crate) fn died(&mut self, ino: Ino, known: bool) {
        if !known && !self.places.contains_key(&ino) {
            return; // roll-forward does not see it
        }
        self.dead.insert(ino);
        self.overflowed |= self.dead.len() > MOST_DEAD;
    }

    /// Records that an inode without a name gets one.
    pub(crate) fn revived(&mut self, ino: Ino) {
        self.dead.remove(&ino);
    }

    /// Records that a directory's own attributes were set, or that it moved.
    pub(crate) fn altered(&mut self, dir: Ino) {
        self.altered.insert(dir);
    }

    /// Records that two inodes will exchange their names. If an fsync began to write one's name, that name must lead to
    /// one of the two afterwards, and the chain cannot name both at once.
    pub(crate) fn exchanged(&mut self, inodes: [Ino; 2]) {
        self.exchanged.extend(inodes);
        self.overflowed |= self.exchanged.len() > MOST_DEAD;
    }

    /// Clears the account after a checkpoint.
    pub(crate) fn clear(&mut self) {
        *self = ReplayedNames { written: self.written, flushed: self.flushed, ..ReplayedNames::default() };
    }

    // ---- called by fsync

    /// True if an inode has this name in the chain.
    pub(crate) fn is_at(&self, ino: Ino, dir: Ino, name: &[u8]) -> bool {
        self.places.get(&ino).is_some_and(|p| (p.dir, &*p.name) == (dir, name))
    }

    /// True if a name leads to the same inode as in the checkpoint, and the chain does not change it.
    pub(crate) fn is_untouched(&self, dir: Ino, name: &[u8]) -> bool {
        !self.overflowed && self.name(dir, name).is_none()
    }

    /// True if the next block of the chain may give this name to an inode that is not in the checkpoint.
    pub(crate) fn allows(&self, ino: Ino, dir: Ino, name: &[u8]) -> bool {
        if self.overflowed || self.exchanged.contains(&ino) || self.respelled.contains(&dir) {
            return false;
        }
        let Some(n) = self.name(dir, name).filter(|n| n.now == Some(ino)) else { return false };
        let takes = n.replayed().is_none_or(|k| k == ino || self.dead.contains(&k));
        takes && (self.is_at(ino, dir, name) || self.may_leave(ino))
    }

    /// The named inode that has this name in the chain but now has another name: its new name must be put into the
    /// chain first.
    pub(crate) fn blocker(&self, ino: Ino, dir: Ino, name: &[u8]) -> Option<Ino> {
        let k = self.name(dir, name)?.last?;
        (k != ino && !self.dead.contains(&k)).then_some(k)
    }

    /// True if an inode's name in the chain may have no owner, and will have none without the inode.
    fn may_leave(&self, ino: Ino) -> bool {
        let Some(p) = self.places.get(&ino) else { return true };
        self.name(p.dir, &p.name).is_some_and(|n| n.last == Some(ino) && !n.buried() && n.empty)
    }

    /// Records that a block at `addr` with this name of an inode has its place in the chain and is being written.
    pub(crate) fn put(&mut self, ino: Ino, dir: Ino, name: &[u8], addr: BlockAddr) {
        let stays = self.is_at(ino, dir, name);
        let block = (!self.places.contains_key(&ino)).then_some(addr);
        if !stays {
            self.leave(ino);
        }
        self.places.insert(ino, Place { dir, name: name.into(), block });
        // If the account does not have the name, it was removed since `allows` was called: it leads to no inode, and
        // its removal is not recorded elsewhere.
        self.change(dir, name, Name::default(), |n| {
            n.covered |= n.last.is_some_and(|k| k != ino);
            n.last = Some(ino);
        });
        self.on_its_way(dir);
    }

    /// Removes an inode's place in the chain.
    fn leave(&mut self, ino: Ino) {
        if let Some(p) = self.places.remove(&ino) {
            self.change(p.dir, &p.name, Name::default(), |n| n.last = n.last.filter(|k| *k != ino));
            self.on_its_way(p.dir);
        }
    }

    fn on_its_way(&mut self, dir: Ino) {
        self.dirs.entry(dir).or_insert_with(Directory::new).stamp = Stamp::OnItsWay;
        self.on_their_way.push(dir);
    }

    /// Records that all writes have reached the device.
    pub(crate) fn landed(&mut self) {
        self.written += 1;
        for dir in std::mem::take(&mut self.on_their_way) {
            if let Some(d) = self.dirs.get_mut(&dir) {
                d.stamp = Stamp::At(self.written);
            }
        }
    }

    /// The address of a dead inode's block that may be withdrawn.
    pub(crate) fn withdrawable(&self, ino: Ino) -> Option<BlockAddr> {
        let p = self.places.get(&ino)?;
        p.block.filter(|_| !self.overflowed && self.dead.contains(&ino) && self.may_leave(ino))
    }

    /// Records that the block of an inode lost its marks.
    pub(crate) fn withdrawn(&mut self, ino: Ino) {
        self.leave(ino);
    }

    /// The next step towards a chain that preserves a directory's names.
    pub(crate) fn next(&self, dir: Ino) -> Step {
        if self.overflowed || self.altered.contains(&dir) || self.respelled.contains(&dir) {
            return Step::Checkpoint;
        }
        let Some(d) = self.dirs.get(&dir).filter(|d| !d.open.is_empty()) else { return Step::Nothing };
        if d.open.len() > MOST_STEPS {
            return Step::Checkpoint;
        }
        let mut found = Step::Checkpoint;
        for (name, n) in &d.open {
            // The new name of a moved inode in this directory is open, too.
            let comes_later = |k: &Ino| d.open.values().any(|o| o.now == Some(*k));
            let step = match (n.now, n.last) {
                (Some(x), _) if self.allows(x, dir, name) => Some(Step::Put(x)),
                (Some(x), _) => self.blocker(x, dir, name).filter(|k| !comes_later(k)).map(Step::Put),
                // A name of the checkpoint was removed: no chain removes it.
                _ if n.buried() => return Step::Checkpoint,
                (None, Some(k)) if self.dead.contains(&k) => match self.withdrawable(k) {
                    Some(_) => Some(Step::Withdraw(k)),
                    None => return Step::Checkpoint,
                },
                (None, Some(k)) => Some(k).filter(|k| !comes_later(k)).map(Step::Put),
                (None, None) => None,
            };
            if let (Step::Checkpoint, Some(step)) = (found, step) {
                found = step;
            }
        }
        found
    }

    /// True if the state that a directory's names depend on is durable, according to completed flushes.
    pub(crate) fn is_durable(&self, dir: Ino) -> bool {
        self.dirs.get(&dir).is_none_or(|d| d.stamp <= Stamp::At(self.flushed))
    }

    /// The number of writes that a flush beginning now makes durable.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Records that a flush that began after `written` writes has succeeded.
    pub(crate) fn flushed(&mut self, written: u64) {
        self.flushed = self.flushed.max(written);
    }
}

#[cfg(test)]
mod tests {
    use device::Rng;

    use super::*;

    type Key = (Ino, Vec<u8>);
    type Names = BTreeMap<Key, Ino>;

    /// A block written by an fsync, or its withdrawal.
    #[derive(Debug, Clone)]
    enum Write {
        Put,
        Withdraw(usize),
    }

    /// The result of roll-forward from the checkpoint's names. Withdrawn blocks of the chain have no marks.
    fn replay(checkpoint: &Names, chain: &[(Ino, Key)], withdrawn: &[usize]) -> Names {
        let mut names = checkpoint.clone();
        let marked: Vec<_> = (0..chain.len()).filter(|i| !withdrawn.contains(i)).map(|i| &chain[i]).collect();
        for (i, (ino, key)) in marked.iter().enumerate() {
            if !marked[i + 1..].iter().any(|(later, _)| later == ino) {
                names.insert(key.clone(), *ino);
            }
        }
        names
    }

    /// An fsync checks whether it may put a name, then puts it; a thread may remove the name in between.
    #[test]
    fn a_name_that_is_taken_away_while_it_is_put_does_not_agree() {
        let (dir, ino, addr) = (Ino(3), Ino(10), BlockAddr(7));
        let mut rule = ReplayedNames::default();
        rule.bound(dir, b"n", None, Some(ino));
        assert!(rule.allows(ino, dir, b"n"));
        rule.bound(dir, b"n", Some(ino), None);
        rule.died(ino, false);
        rule.put(ino, dir, b"n", addr);
        assert_ne!(rule.next(dir), Step::Nothing, "the chain has a name that is gone");
        // Another file takes the name: the chain's owner differs from the present owner.
        rule.bound(dir, b"n", None, Some(Ino(11)));
        assert!(!rule.allows(Ino(11), dir, b"n") && rule.next(dir) != Step::Nothing);
    }

    /// Users, a volume and the rule under test.
    struct World {
        rule: ReplayedNames,
        checkpoint: Names,
        now: Names,
        chain: Vec<(Ino, Key)>,
        withdrawn: Vec<usize>,
        /// Writes since the last flush.
        unflushed: Vec<Write>,
        /// The owners of each name since the last promise about it.
        since: BTreeMap<Key, Vec<Option<Ino>>>,
        /// Synced inodes that have always had a name since.
        durable: Vec<Ino>,
        next: u32,
        steps: [usize; 4],
    }

    const DIRS: [Ino; 2] = [Ino(3), Ino(4)];

    fn keys() -> Vec<Key> {
        DIRS.iter().flat_map(|d| [b"a", b"b", b"c"].map(|n| (*d, n.to_vec()))).collect()
    }

    impl World {
        fn new(checkpoint: Names, next: u32) -> Self {
            let since = keys().into_iter().map(|k| (k.clone(), vec![checkpoint.get(&k).copied()])).collect();
            World {
                rule: ReplayedNames::default(),
                now: checkpoint.clone(),
                durable: checkpoint.values().copied().collect(),
                checkpoint,
                chain: Vec::new(),
                withdrawn: Vec::new(),
                unflushed: Vec::new(),
                since,
                next,
                steps: [0; 4],
            }
        }

        fn is_known(&self, ino: Ino) -> bool {
            self.checkpoint.values().any(|i| *i == ino)
        }

        fn bind(&mut self, changes: &[(Key, Option<Ino>)]) {
            let before: Vec<Ino> = self.now.values().copied().collect();
            for (key, to) in changes {
                let was = self.now.get(key).copied();
                match to {
                    Some(ino) => self.now.insert(key.clone(), *ino),
                    None => self.now.remove(key),
                };
                self.rule.bound(key.0, &key.1, was, *to);
                self.since.get_mut(key).unwrap().push(*to);
            }
            for ino in before {
                if !self.now.values().any(|i| *i == ino) {
                    self.durable.retain(|d| *d != ino);
                    self.rule.died(ino, self.is_known(ino));
                }
            }
        }

        fn place(&self, ino: Ino) -> Option<Key> {
            self.now.iter().find(|(_, i)| **i == ino).map(|(k, _)| k.clone())
        }

        fn put(&mut self, ino: Ino) -> bool {
            let Some(key) = self.place(ino).filter(|_| !self.is_known(ino)) else { return false };
            if self.rule.is_at(ino, key.0, &key.1) {
                return true;
            }
            if !self.rule.allows(ino, key.0, &key.1) {
                return false;
            }
            self.rule.put(ino, key.0, &key.1, BlockAddr(self.chain.len() as u32));
            self.rule.landed();
            self.chain.push((ino, key.clone()));
            self.unflushed.push(Write::Put);
            true
        }

        fn flush(&mut self) {
            let written = self.rule.written();
            self.rule.flushed(written);
            self.unflushed.clear();
        }

        fn promised(&mut self, keys: &[Key]) {
            for key in keys {
                let history = self.since.get_mut(key).unwrap();
                history.drain(..history.len() - 1);
            }
        }

        fn sync_file(&mut self, ino: Ino) {
            let place = self.place(ino);
            let stays = place.as_ref().is_some_and(|k| self.checkpoint.get(k) == Some(&ino));
            if stays || self.put(ino) {
                self.flush();
                let key = self.place(ino).unwrap();
                self.promised(&[key]);
                self.durable.push(ino);
            } else {
                self.checkpoint();
            }
        }

        fn sync_dir(&mut self, dir: Ino) {
            for _ in 0..=MOST_STEPS {
                let done = match self.rule.next(dir) {
                    Step::Nothing => break,
                    Step::Put(ino) => {
                        self.steps[1] += 1;
                        self.put(ino)
                    }
                    Step::Withdraw(ino) => {
                        self.steps[2] += 1;
                        let block = self.rule.withdrawable(ino).unwrap().0 as usize;
                        assert_eq!(self.chain[block].0, ino);
                        self.rule.withdrawn(ino);
                        self.rule.landed();
                        self.withdrawn.push(block);
                        self.unflushed.push(Write::Withdraw(block));
                        true
                    }
                    Step::Checkpoint => false,
                };
                if !done {
                    self.steps[3] += 1;
                    return self.checkpoint();
                }
                self.judge();
            }
            assert_eq!(self.rule.next(dir), Step::Nothing);
            if !self.rule.is_durable(dir) {
                self.flush();
            }
            self.steps[0] += 1;
            let left = replay(&self.checkpoint, &self.chain, &self.withdrawn);
            for key in keys().iter().filter(|k| k.0 == dir) {
                assert_eq!(left.get(key), self.now.get(key), "{key:?}: promised");
            }
            self.promised(&keys().into_iter().filter(|k| k.0 == dir).collect::<Vec<_>>());
        }

        fn checkpoint(&mut self) {
            self.rule.clear();
            let steps = self.steps;
            *self = World { steps, ..World::new(self.now.clone(), self.next) };
        }

        /// Whichever unflushed writes are lost, roll-forward preserves the claim.
        fn judge(&self) {
            let puts = self.unflushed.iter().filter(|w| matches!(w, Write::Put)).count();
            let gone: Vec<usize> = self
                .unflushed
                .iter()
                .filter_map(|w| if let Write::Withdraw(i) = w { Some(*i) } else { None })
                .collect();
            for lost in 0..=puts {
                for kept in 0..1u32 << gone.len() {
                    let chain = &self.chain[..self.chain.len() - lost];
                    let stays = |i: &usize| gone.iter().position(|g| g == i).is_some_and(|b| kept >> b & 1 == 0);
                    let withdrawn: Vec<usize> = self.withdrawn.iter().filter(|i| !stays(i)).copied().collect();
                    let left = replay(&self.checkpoint, chain, &withdrawn);
                    for (key, history) in &self.since {
                        let found = left.get(key).copied();
                        assert!(history.contains(&found), "{key:?}: {found:?}, may be {history:?}\n{chain:?}");
                    }
                    for ino in &self.durable {
                        assert!(left.values().any(|i| i == ino), "{ino:?} is lost\n{chain:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn roll_forward_leaves_what_was_promised_whatever_is_made_removed_moved_and_synced() {
        let mut steps = [0; 4];
        for seed in 0..8000 {
            let mut rng = Rng::new(seed);
            let mut w = World::new(Names::from([((DIRS[0], b"a".to_vec()), Ino(10))]), 11);
            for _ in 0..60 {
                let key = keys()[rng.index(6)].clone();
                let there = w.now.get(&key).copied();
                match (rng.below(12), there) {
                    (0..4, None) => {
                        let ino = Ino(w.next);
                        w.next += 1;
                        w.bind(&[(key, Some(ino))]);
                        if rng.chance(2, 3) {
                            w.sync_file(ino);
                        }
                    }
                    (0..2, Some(_)) => w.bind(&[(key, None)]),
                    (2..6, Some(ino)) => {
                        let to = keys()[rng.index(6)].clone();
                        if to != key {
                            w.bind(&[(to, Some(ino)), (key, None)]);
                        }
                    }
                    (6, Some(ino)) => {
                        let other = keys()[rng.index(6)].clone();
                        if let Some(second) = w.now.get(&other).copied().filter(|_| other != key) {
                            w.bind(&[(key, Some(second)), (other, Some(ino))]);
                        }
                    }
                    (7..9, Some(ino)) => w.sync_file(ino),
                    _ => w.sync_dir(DIRS[rng.index(2)]),
                }
                w.judge();
            }
            (0..4).for_each(|i| steps[i] += w.steps[i]);
        }
        assert!(steps.iter().all(|n| *n > 1000), "cheap, put, withdrawn, checkpoints: {steps:?}");
    }

    #[test]
    fn a_name_that_comes_and_goes_leaves_nothing_behind() {
        let mut names = ReplayedNames::default();
        for i in 0..100_000u32 {
            let name = i.to_le_bytes();
            names.bound(Ino(3), &name, None, Some(Ino(100 + i)));
            names.bound(Ino(3), &name, Some(Ino(100 + i)), None);
            names.died(Ino(100 + i), false);
        }
        assert_eq!((names.names, names.dirs.len(), names.dead.len()), (0, 0, 0));
        assert_eq!(names.next(Ino(3)), Step::Nothing);
    }

    #[test]
    fn with_more_names_than_are_remembered_everything_needs_a_checkpoint_until_the_next() {
        let mut names = ReplayedNames::default();
        for i in 0..=MOST_NAMES as u32 {
            names.bound(Ino(3), &i.to_le_bytes(), None, Some(Ino(100 + i)));
        }
        assert_eq!(names.next(Ino(4)), Step::Checkpoint);
        assert!(!names.allows(Ino(100), Ino(3), &0u32.to_le_bytes()));
        names.clear();
        assert_eq!(names.next(Ino(3)), Step::Nothing);
        names.bound(Ino(3), b"x", None, Some(Ino(7)));
        assert!(names.allows(Ino(7), Ino(3), b"x"));
    }
}
