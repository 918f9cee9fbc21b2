//! The simplest structure that there can be: a sorted array in memory. It shows what a structure has to do, and that
//! nothing above the traits depends on one that is there already.
//!
//! 1. A batch makes a new array: keys of the batch are merged, all others stay.
//! 2. Its redo has the keys of the batch with all their versions. The root record has all keys.
//! 3. There are no files, so there is nothing to flush, to release or to salvage.
//!
//! For tests alone: every batch copies the array, and a checkpoint writes all of it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use doclog::{DocLog, DocPointer};
use parking_lot::Mutex;
use space::Extent;

use crate::merge::{Rules, merge};
use crate::{
    Again, Applied, Batch, Bounds, Compacted, Cursor, Damage, Direction, Error, Expiry, Facts, Figure, Found, Home,
    Horizon, Index, Kind, LeafKeys, Load, Loaded, Moment, Operation, PairAt, PairRef, Pairs, Part, Payload, Ready,
    Rescue, Result, Seen, Seq, Show, ShowVersions, Stats, Stored, TableId, Time, Update, Upkeep, Versions, View, Visit,
};

/// The facts of the kind.
pub const FACTS: Facts = Facts {
    name: "sorted",
    code: 255,
    key_bytes_max: 1024,
    inline_bytes: 2048,
    inline_bytes_max: 2048,
    only_appends: false,
    merges_later: false,
    has_history: false,
    choose: |_| Vec::new(),
    describe: |settings| settings.is_empty().then(Vec::new),
    start: |_: &Home<'_>| Some(Arc::new(Arrays)),
    directory: None,
    root_of_redo: |_, table, _| Err(damage("redo", table, "all keys", "those of a batch")),
};

struct Arrays;

impl Kind for Arrays {
    fn create(&self, table: TableId, _settings: &[u8], _documents: &Arc<DocLog>) -> Result<Box<dyn Index>> {
        Ok(Box::new(Sorted::new(table, Array::default())))
    }

    fn open(&self, table: TableId, root: &[u8], _documents: &Arc<DocLog>) -> Result<Box<dyn Index>> {
        let malformed = || damage("root record", table, "keys with their versions", "something else");
        let array = decode(root).ok_or_else(malformed)?.into_iter().collect();
        Ok(Box::new(Sorted::new(table, Array { keys: array, floor: Seq(0) })))
    }
}

fn damage(record: &str, table: TableId, expected: &str, found: &str) -> Error {
    Damage::new(0, "keys", expected, found).in_record(record, table)
}

/// A version of a key, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    seq: Seq,
    put: Option<(Stored, Option<Expiry>)>,
}

impl Version {
    fn of(update: &Update<'_>) -> Self {
        let put = match &update.operation {
            Operation::Put(payload, expiry) => Some((payload.to_stored(), *expiry)),
            Operation::Delete => None,
        };
        Self { seq: update.seq, put }
    }

    fn update<'a>(&'a self, key: &'a [u8]) -> Update<'a> {
        let operation = match &self.put {
            Some((value, expiry)) => Operation::Put(value.as_payload(), *expiry),
            None => Operation::Delete,
        };
        Update { key, seq: self.seq, operation }
    }
}

/// A key, with its versions in rising order.
type Key = (Arc<[u8]>, Arc<[Version]>);

/// Keys with the versions that they have from now on; a key without versions goes.
type Changes = Vec<Key>;

#[derive(Clone, Default)]
struct Array {
    keys: BTreeMap<Arc<[u8]>, Arc<[Version]>>,
    /// Readers below this see nothing.
    floor: Seq,
}

impl Array {
    fn with(&self, changes: &Changes, floor: Seq) -> Self {
        let mut keys = self.keys.clone();
        for (key, versions) in changes {
            if versions.is_empty() {
                keys.remove(key);
            } else {
                keys.insert(Arc::clone(key), Arc::clone(versions));
            }
        }
        Self { keys, floor }
    }

    /// The newest version of a key at a moment.
    fn newest<'a>(&self, key: &'a [u8], versions: &'a [Version], at: Moment) -> Option<Update<'a>> {
        let seen = versions.iter().rev().find(|version| version.seq <= at.seq && at.seq >= self.floor)?;
        Some(seen.update(key))
    }

    fn look_up<'a>(&'a self, key: &'a [u8], at: Moment) -> Option<Update<'a>> {
        self.newest(key, self.keys.get(key)?, at)
    }

    /// The pair of a key, if it is live.
    fn pair<'a>(&self, key: &'a [u8], versions: &'a [Version], at: Moment) -> Option<PairRef<'a>> {
        let update = self.newest(key, versions, at)?;
        let value = update.operation.shown(at.now)?;
        Some(PairRef { key, seq: update.seq, value, expiry: update.operation.expiry() })
    }
}

/// A sorted array.
struct Sorted {
    table: TableId,
    versions: Versions<Array, ()>,
    /// A rewrite has passed over what had expired by then.
    rewritten_at: Mutex<Time>,
}

impl Sorted {
    fn new(table: TableId, array: Array) -> Self {
        Self { table, versions: Versions::new(array), rewritten_at: Mutex::new(Time(0)) }
    }

    fn current(&self) -> Arc<Array> {
        self.versions.current()
    }

    fn pend(&self, changes: &Changes, floor: Seq, dropped_documents: Vec<DocPointer>) -> Applied {
        let view = Arc::new(self.current().with(changes, floor));
        self.versions.pend(&view, Again::default(), ());
        Applied { view, redo: encode(changes), dropped_documents, files: Vec::new() }
    }
}

/// Merges the versions that a key has with others, which arrived later.
fn merged(key: &[u8], has: &[Version], more: &[Update<'_>], rules: Rules<'_>, dropped: &mut Vec<DocPointer>) -> Key {
    let entries = has.iter().map(|version| version.update(key)).chain(more.iter().copied()).collect();
    let versions = merge(entries, rules, dropped).iter().map(Version::of).collect();
    (key.into(), versions)
}

impl Index for Sorted {
    fn view(&self) -> Arc<dyn View> {
        self.current()
    }

    fn apply(&self, batch: &dyn Batch, horizon: &Horizon, progress: &dyn Fn(usize)) -> Result<Applied> {
        let base = self.current();
        let rules = Rules { horizon, through: batch.through(), is_all: true };
        let updates: Vec<Update<'_>> = (0..batch.len()).map(|index| batch.get(index)).collect();
        let mut dropped = Vec::new();
        let of_key = |updates: &[Update<'_>]| {
            let key = updates[0].key;
            merged(key, base.keys.get(key).map_or(&[], |versions| &versions[..]), updates, rules, &mut dropped)
        };
        let changes: Changes = updates.chunk_by(|one, next| one.key == next.key).map(of_key).collect();
        progress(batch.len());
        Ok(self.pend(&changes, base.floor, dropped))
    }

    fn install(&self, applied: &Applied) {
        self.versions.install(applied, |_, _, ()| ());
    }

    fn discard(&self, applied: &Applied) {
        self.versions.discard(applied);
    }

    fn replay(&self, redo: &[u8]) -> Result<()> {
        let malformed = || damage("redo", self.table, "keys with their versions", "something else");
        let changes = decode(redo).ok_or_else(malformed)?;
        self.versions.replay(|current| current.with(&changes, Seq(0)));
        Ok(())
    }

    fn root(&self) -> Vec<u8> {
        let array = self.current();
        encode(&array.keys.iter().map(|(key, versions)| (Arc::clone(key), Arc::clone(versions))).collect())
    }

    fn is_empty(&self) -> bool {
        self.current().keys.is_empty()
    }

    fn expires(&self) -> bool {
        let expires = |version: &Version| version.put.as_ref().is_some_and(|(_, expiry)| expiry.is_some());
        self.current().keys.values().any(|versions| versions.iter().any(expires))
    }

    fn begin_load(&self, seq: Seq) -> Option<Box<dyn Load>> {
        self.is_empty().then(|| Box::new(Entries { seq, changes: Vec::new() }) as Box<dyn Load>)
    }

    fn take_loaded(&self, loaded: Loaded, floor: Seq) -> Applied {
        self.pend(&loaded.into_content(), floor, Vec::new())
    }

    fn salvage(&self, rescue: &mut dyn Rescue) {
        let (array, at) = (self.current(), Moment::from(Seq::MAX));
        for (key, versions) in &array.keys {
            if let Some(pair) = array.pair(key, versions, at)
                && rescue.pairs(&[pair]).is_break()
            {
                return;
            }
        }
    }
}

impl Upkeep for Sorted {
    fn compact(&self, part: Part<'_>, through: Seq, horizon: &Horizon) -> Result<Option<Compacted>> {
        let base = self.current();
        let (rules, mut dropped) = (Rules { horizon, through, is_all: true }, Vec::new());
        let (mut changes, mut bytes, mut next) = (Changes::new(), 0, None);
        for (key, versions) in base.keys.iter().filter(|(key, _)| &***key >= part.from) {
            if bytes >= part.bytes || !part.has(key) {
                next = Some(key.to_vec());
                break;
            }
            let change = merged(key, versions, &[], rules, &mut dropped);
            bytes += key.len() + size_of::<Version>() * versions.len();
            changes.push(change);
        }
        if changes.is_empty() && next.is_none() {
            return Ok(None);
        }
        let applied = self.pend(&changes, base.floor, dropped);
        if next.is_none() {
            *self.rewritten_at.lock() = horizon.now;
        }
        Ok(Some(Compacted { applied, next, leaves: 1, bytes: bytes as u64 }))
    }

    fn due(&self, now: Time, most: usize) -> Result<Vec<LeafKeys>> {
        let (array, before) = (self.current(), *self.rewritten_at.lock());
        let is_due = |version: &Version| {
            let expiry = version.put.as_ref().and_then(|(_, expiry)| *expiry);
            expiry.is_some_and(|expiry| expiry.is_over(now) && !expiry.is_over(before))
        };
        let is_any_due = array.keys.values().any(|versions| versions.iter().any(is_due));
        let all = LeafKeys { low: Vec::new(), high: None };
        Ok(if is_any_due && most > 0 { vec![all] } else { Vec::new() })
    }

    fn extents(&self, _visit: &mut dyn FnMut(Extent)) -> Result<()> {
        Ok(())
    }
}

/// An array under construction.
struct Entries {
    seq: Seq,
    changes: Changes,
}

impl Load for Entries {
    fn last_key(&self) -> &[u8] {
        self.changes.last().map_or(&[], |(key, _)| key)
    }

    fn push(&mut self, key: &[u8], payload: Payload<'_>, expiry: Option<Expiry>, _ready: &Ready<'_>) -> Result<()> {
        let version = Version { seq: self.seq, put: Some((payload.to_stored(), expiry)) };
        self.changes.push((key.into(), [version].into()));
        Ok(())
    }

    fn finish(self: Box<Self>, ready: &Ready<'_>) -> Result<Loaded> {
        ready()?;
        Ok(Loaded::new(Vec::new(), self.changes))
    }
}

impl View for Array {
    fn get_many(&self, keys: &[&[u8]], at: Moment, out: &mut [Option<Found>]) -> Result<()> {
        for (key, out) in keys.iter().zip(out) {
            if let Some(update) = self.look_up(key, at) {
                *out = Some(Found::of(&update, at.now));
            }
        }
        Ok(())
    }

    fn look(&self, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<()> {
        if let Some(update) = self.look_up(key, at) {
            show(&Seen::of(&update, at.now));
        }
        Ok(())
    }

    fn cursor(self: Arc<Self>, bounds: &Bounds, at: Moment, direction: Direction) -> Result<Box<dyn Cursor>> {
        let within = self.keys.iter().filter(|(key, _)| bounds.contains(key));
        let mut keys: Vec<Key> = within
            .filter(|(key, versions)| self.pair(key, versions, at).is_some())
            .map(|(key, versions)| (Arc::clone(key), Arc::clone(versions)))
            .collect();
        if direction == Direction::Backward {
            keys.reverse();
        }
        Ok(Box::new(ArrayCursor { array: self, keys, at, direction, met: 0, is_ended: false }))
    }

    fn verify(&self, visit: &mut dyn Visit) -> Result<()> {
        let mut live = 0;
        for (key, versions) in &self.keys {
            versions.iter().filter_map(|version| version.update(key).operation.document()).for_each(|document| {
                visit.document(&document);
            });
            let newest = versions.last().expect("a key has a version");
            live += u64::from(newest.put.is_some() && !visit.is_hidden(key, newest.seq));
        }
        visit.keys(live);
        Ok(())
    }

    fn documents(&self, from: &[u8], show: &mut ShowVersions<'_>) -> Result<()> {
        for (key, versions) in self.keys.iter().filter(|(key, _)| &***key >= from) {
            let versions: Vec<Update<'_>> = versions.iter().map(|version| version.update(key)).collect();
            let has_document = versions.iter().any(|version| version.operation.document().is_some());
            let shown = if has_document { &versions[..] } else { &[] };
            if (has_document || &**key > from) && show(key, shown).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn fences(&self, wanted: usize) -> Result<Vec<Vec<u8>>> {
        let every = self.keys.len().div_ceil(wanted.max(1) + 1).max(1);
        Ok(self.keys.keys().step_by(every).skip(1).map(|key| key.to_vec()).collect())
    }

    fn stats(&self) -> Result<Stats> {
        let entries = self.keys.values().map(|versions| versions.len() as u64).sum();
        let levels = u64::from(entries > 0);
        Ok(Stats { entries, figures: vec![Figure::count("levels", levels)], ..Stats::default() })
    }
}

/// A walk over the keys that are live at a moment, in the order in which it meets them.
struct ArrayCursor {
    array: Arc<Array>,
    keys: Vec<Key>,
    at: Moment,
    direction: Direction,
    /// How many keys the cursor has met; it stands on the last of them.
    met: usize,
    is_ended: bool,
}

impl ArrayCursor {
    fn pair(&self, index: usize) -> PairRef<'_> {
        let (key, versions) = &self.keys[index];
        self.array.pair(key, versions, self.at).expect("only live keys are met")
    }
}

impl Cursor for ArrayCursor {
    fn advance(&mut self) -> Result<bool> {
        self.is_ended = self.met == self.keys.len();
        self.met += usize::from(!self.is_ended);
        Ok(!self.is_ended)
    }

    fn current(&self) -> Option<PairRef<'_>> {
        (self.met > 0 && !self.is_ended).then(|| self.pair(self.met - 1))
    }

    fn run(&mut self, until: Option<&[u8]>, show: &mut Show<'_>) -> Result<ControlFlow<()>> {
        while self.met < self.keys.len() {
            let pair = self.pair(self.met);
            if until.is_some_and(|until| self.direction.order(pair.key, until).is_ge()) {
                break;
            }
            let (bytes, place) = in_one_piece(&pair);
            let shown = show(Pairs::new(&[place], &bytes, self.direction));
            self.met += match shown {
                ControlFlow::Continue(()) => 1,
                ControlFlow::Break(looked_at) => looked_at,
            };
            if shown.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn in_one_piece(pair: &PairRef<'_>) -> (Vec<u8>, PairAt) {
    let mut bytes = pair.key.to_vec();
    let place = PairAt::put(&mut bytes, 0, pair.seq, pair.value, pair.expiry);
    (bytes, place)
}

/// Encodes keys: each with its length, the number of its versions, and these.
fn encode(keys: &Changes) -> Vec<u8> {
    let mut bytes = Vec::new();
    let put_block = |bytes: &mut Vec<u8>, block: &[u8]| {
        bytes.extend_from_slice(&(block.len() as u64).to_le_bytes());
        bytes.extend_from_slice(block);
    };
    for (key, versions) in keys {
        put_block(&mut bytes, key);
        bytes.extend_from_slice(&(versions.len() as u64).to_le_bytes());
        for version in versions.iter() {
            bytes.extend_from_slice(&version.seq.0.to_le_bytes());
            let (kind, block, expiry) = match &version.put {
                None => (0, Vec::new(), None),
                Some((Stored::Inline(value), expiry)) => (1, value.clone(), *expiry),
                Some((Stored::Document(document), expiry)) => (2, document.encode().to_vec(), *expiry),
            };
            bytes.push(kind);
            put_block(&mut bytes, &block);
            bytes.extend_from_slice(&expiry.map_or(0, Expiry::millis).to_le_bytes());
        }
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Option<Changes> {
    let mut keys = Changes::new();
    while !bytes.is_empty() {
        let key = block(&mut bytes)?.into();
        let mut versions = Vec::new();
        for _ in 0..number(&mut bytes)? {
            let seq = Seq(number(&mut bytes)?);
            let (kind, rest) = bytes.split_first()?;
            bytes = rest;
            let (value, expiry) = (block(&mut bytes)?, Expiry::at(number(&mut bytes)?));
            let put = match kind {
                0 => None,
                1 => Some((Stored::Inline(value.to_vec()), expiry)),
                2 => Some((Stored::Document(DocPointer::decode(value.try_into().ok()?)), expiry)),
                _ => return None,
            };
            versions.push(Version { seq, put });
        }
        keys.push((key, versions.into()));
    }
    Some(keys)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

fn block<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(bytes)?).ok()?;
    let (block, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(block)
}
