//! A database on a simulated disk, and the map that it must equal.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid::{
    CompactProgress, Compression, Database, ManualClock, Options, Seq, Snapshot, Structure, Table, TableOptions,
    Transaction, WriteBatch,
};
use psync::sim::SimDisk;
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};

use crate::content::{Bounds, Content, Outcome, compare_many, compare_range, difference, read_all, verify};
use crate::steps::{Case, Change, KEYS, Key, Order, Range, Shape, Size, Step};
use crate::values::value;

/// Most keys and bytes of a commit; a step that has more makes several.
const COMMIT_KEYS: usize = 50;
const COMMIT_BYTES: usize = 40 << 10;
/// Bytes of a commit that takes several segments of the log.
const LONG_COMMIT_BYTES: usize = 200 << 10;

/// Most snapshots kept at a time.
const SNAPSHOTS: usize = 6;

/// States that a table retains.
const STATES: u32 = 4;

/// What a commit does.
#[derive(Clone, Debug)]
enum Write {
    /// A put, or a delete; and when the value expires.
    Set(Vec<u8>, Option<Vec<u8>>, Option<u64>),
    DeleteRange(Bounds),
}

impl Write {
    fn bytes(&self) -> usize {
        match self {
            Self::Set(key, value, _) => key.len() + value.as_ref().map_or(0, Vec::len),
            Self::DeleteRange(_) => 0,
        }
    }
}

/// When the clock begins, and what a minute is of it.
const BEGIN: u64 = 1_800_000_000_000;
const MINUTE: u64 = 60_000;

/// What a case went through.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Most levels of the tree.
    pub(crate) height: u64,
    /// Power cuts and kills.
    pub(crate) crashes: usize,
    /// Snapshots taken.
    pub(crate) snapshots: usize,
    /// Rollbacks.
    pub(crate) rollbacks: usize,
    /// Values that expired.
    pub(crate) expired: usize,
    /// How often everything was deleted and the tree seen without a page.
    pub(crate) emptied: usize,
}

struct World {
    structure: Structure,
    table: TableOptions,
    disk: SimDisk,
    options: Options,
    open: Option<(Database, Table)>,
    content: Content,
    clock: ManualClock,
    /// Milliseconds since the begin, and when what expires does so.
    now: u64,
    expiries: BTreeMap<Vec<u8>, u64>,
    /// What is kept, and what it must hold.
    snapshots: Vec<(Snapshot, Content)>,
    /// What each state that the table retains must hold, and when what expires does so.
    states: BTreeMap<Seq, (Content, BTreeMap<Vec<u8>, u64>)>,
    /// States of which only what was interrupted knows.
    unknown: BTreeSet<Seq>,
    /// The state that the table is going back to: after a power cut it is there, or what was before is.
    rolling: Option<(Content, BTreeMap<Vec<u8>, u64>)>,
    /// The commit or load that is being made: after a power cut it is there, or it is not.
    doubtful: Vec<Write>,
    /// Tells values apart.
    values: u8,
    random: StdRng,
    seen: Seen,
}

/// Takes the steps of a case; the error says what is wrong.
pub(crate) fn run(seed: u64, case: &Case) -> Outcome<Seen> {
    let clock = ManualClock::new(UNIX_EPOCH + Duration::from_millis(BEGIN));
    let options = Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(64 << 10)
        .segment_bytes(case.segment_bytes)
        .leaf_pages(case.leaf_pages)
        .clock(clock.clone());
    let kinds = Structure::ALL.len() as u64;
    let structure = Structure::ALL[usize::try_from(seed % kinds).unwrap_or(0)];
    let mut world = World {
        structure,
        table: TableOptions::new()
            .compression(Compression::ALL[usize::try_from(seed / kinds % 3).unwrap_or(0)])
            .history(if structure == Structure::Append { STATES } else { 0 }),
        disk: SimDisk::new(seed),
        options,
        open: None,
        content: Content::new(),
        clock,
        now: BEGIN,
        expiries: BTreeMap::new(),
        snapshots: Vec::new(),
        states: BTreeMap::new(),
        unknown: BTreeSet::new(),
        rolling: None,
        doubtful: Vec::new(),
        values: 0,
        random: StdRng::seed_from_u64(seed),
        seen: Seen::default(),
    };
    world.reopen()?;
    for (number, step) in case.steps.iter().enumerate() {
        let outcome = world.step(step).and_then(|()| world.note_states(None));
        world.after(outcome).map_err(|problem| format!("step {number}: {problem}"))?;
    }
    // A power cut that did not come yet comes now.
    world.crash().map_err(|problem| format!("at the end: {problem}"))?;
    world.clear(&Range::all(), 0, Order::Shuffled).map_err(|problem| format!("deleting all: {problem}"))?;
    verify(&world.open()?.0)?;
    Ok(world.seen)
}

fn text(error: braid::Error) -> String {
    error.to_string()
}

impl World {
    fn open(&self) -> Outcome<&(Database, Table)> {
        self.open.as_ref().ok_or_else(|| "the database is not open".into())
    }

    /// Opens what a power cut left, if that is why a step failed.
    fn after(&mut self, outcome: Outcome<()>) -> Outcome<()> {
        if self.disk.is_crashed() { self.crash() } else { outcome }
    }

    fn step(&mut self, step: &Step) -> Outcome<()> {
        match step {
            Step::Write(changes) => {
                let writes = changes.iter().map(|(key, change)| self.change(*key, *change)).collect();
                self.commit_all(writes)
            }
            Step::Fill { shape, from, count, size, expire, at_once } => {
                let change = expire.map_or(Change::Put(*size), |minutes| Change::PutFor(*size, minutes));
                let writes = self.puts(*shape, *from, *count, change);
                if *at_once { self.commit_in(writes, usize::MAX, LONG_COMMIT_BYTES) } else { self.commit_all(writes) }
            }
            Step::Renew { from, count, minutes } => self.renew(*from, *count, self.now + minutes * MINUTE),
            Step::Pass { minutes } => {
                self.pass(*minutes);
                Ok(())
            }
            Step::Load { shape, from, count, size } if self.content.is_empty() => {
                self.load(*shape, *from, *count, *size)
            }
            Step::Load { .. } => Ok(()),
            Step::Clear { range, keep, order } => self.clear(range, *keep, *order),
            Step::Get(key) => {
                let key = key.bytes();
                let found = self.open()?.1.get(&key).map_err(text)?;
                if found.as_ref() == self.content.get(&key) { Ok(()) } else { Err(format!("key {key:?} is wrong")) }
            }
            Step::GetMany(keys) => {
                let keys: Vec<_> = keys.iter().map(|key| key.bytes()).collect();
                compare_many(&self.open()?.1, &keys, &self.content)
            }
            Step::Scan { range, backward, limit } => {
                compare_range(&self.open()?.1, &range.bounds(), *backward, *limit, &self.content)
            }
            Step::ScanAll => self.compare_all(),
            Step::Drain => {
                self.open()?.0.drain().map_err(text)?;
                self.look()
            }
            Step::Checkpoint => self.open()?.0.checkpoint().map_err(text),
            Step::Compact { stretches } => {
                let mut left = *stretches;
                let report = &mut |_: CompactProgress| {
                    left = left.saturating_sub(1);
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                self.open()?.1.compact_with(&braid::CompactOptions::new(), report).map(drop).map_err(text)
            }
            Step::Snapshot => {
                let snapshot = self.open()?.0.snapshot();
                self.snapshots.push((snapshot, self.content.clone()));
                let many = self.snapshots.len().saturating_sub(SNAPSHOTS);
                self.snapshots.drain(..many);
                self.seen.snapshots += 1;
                Ok(())
            }
            Step::LookBack { range, backward } => self.look_back(&range.bounds(), *backward),
            Step::Forget => {
                let some = self.snapshots.len().min(1);
                self.snapshots.drain(..some);
                Ok(())
            }
            Step::RollBack { which } => self.roll_back(*which),
            Step::Transact { first, undone, range, backward, commit } => {
                let writes = |world: &mut Self, of: &[(Key, Change)]| -> Vec<Write> {
                    of.iter().map(|(key, change)| world.change(*key, *change)).collect()
                };
                let (first, undone) = (writes(self, first), writes(self, undone));
                self.transact(first, &undone, &range.bounds(), *backward, *commit)
            }
            Step::Verify => {
                self.check_states()?;
                verify(&self.open()?.0)
            }
            Step::DropCaches => {
                self.open()?.0.drop_caches();
                Ok(())
            }
            Step::Reopen => {
                let (db, table) = self.open.take().ok_or("the database is not open")?;
                self.snapshots.clear();
                drop(table);
                db.close().map_err(text)?;
                self.reopen()
            }
            Step::Crash { after } => {
                self.disk.crash_after(*after);
                Ok(())
            }
            Step::Kill => {
                self.disk.kill();
                self.recover()
            }
        }
    }

    fn change(&mut self, key: Key, change: Change) -> Write {
        use std::ops::Bound::{Excluded, Included};
        match change {
            Change::Put(size) => Write::Set(key.bytes(), Some(self.value(size)), None),
            Change::PutFor(size, minutes) => {
                Write::Set(key.bytes(), Some(self.value(size)), Some(self.now + minutes * MINUTE))
            }
            Change::Delete => Write::Set(key.bytes(), None, None),
            Change::DeleteRange(count) => {
                let last = Key { number: key.number + count, ..key };
                let (one, other) = (key.bytes(), last.bytes());
                Write::DeleteRange((Included(one.clone().min(other.clone())), Excluded(one.max(other))))
            }
        }
    }

    fn renew(&mut self, from: usize, count: usize, expiry: u64) -> Outcome<()> {
        let skipped = from % self.content.len().max(1);
        let some = self.content.iter().skip(skipped).take(count);
        let pairs: Vec<_> = some.map(|(key, value)| (key.clone(), value.clone())).collect();
        let (db, table) = self.open()?;
        let mut transaction = db.begin().map_err(text)?;
        for (key, _) in &pairs {
            if !transaction.renew(table, key, time(expiry)).map_err(text)? {
                return Err(format!("key {key:?} is not there to be renewed"));
            }
        }
        let done = transaction.commit();
        self.doubtful = pairs.into_iter().map(|(key, value)| Write::Set(key, Some(value), Some(expiry))).collect();
        done.map_err(text)?;
        self.acknowledged()
    }

    fn pass(&mut self, minutes: u64) {
        self.clock.advance(Duration::from_millis(minutes * MINUTE));
        self.now += minutes * MINUTE;
        let over: Vec<_> =
            self.expiries.iter().filter(|(_, at)| **at <= self.now).map(|(key, _)| key.clone()).collect();
        for key in &over {
            self.expiries.remove(key);
            self.content.remove(key);
        }
        self.seen.expired += over.len();
    }

    fn value(&mut self, size: Size) -> Vec<u8> {
        self.values = self.values.wrapping_add(1);
        value(self.values, size.bytes())
    }

    fn commit_all(&mut self, writes: Vec<Write>) -> Outcome<()> {
        self.commit_in(writes, COMMIT_KEYS, COMMIT_BYTES)
    }

    /// Commits of at most so many keys and bytes.
    fn commit_in(&mut self, writes: Vec<Write>, keys: usize, most: usize) -> Outcome<()> {
        let (mut commit, mut bytes) = (Vec::new(), 0);
        for write in writes {
            let more = write.bytes();
            if commit.len() == keys || !commit.is_empty() && bytes + more > most {
                self.commit(std::mem::take(&mut commit))?;
                bytes = 0;
            }
            bytes += more;
            commit.push(write);
        }
        self.commit(commit)
    }

    fn commit(&mut self, writes: Vec<Write>) -> Outcome<()> {
        let (db, table) = self.open()?;
        let mut batch = WriteBatch::new();
        for write in &writes {
            match write {
                Write::Set(key, Some(value), Some(expiry)) => batch.put_expiring(table, key, value, time(*expiry)),
                Write::Set(key, Some(value), None) => batch.put(table, key, value),
                Write::Set(key, None, _) => batch.delete(table, key),
                Write::DeleteRange(bounds) => batch.delete_range::<Vec<u8>>(table, bounds.clone()),
            }
        }
        let done = db.write(&batch);
        self.doubtful = writes;
        done.map_err(text)?;
        self.acknowledged()
    }

    /// What was doubtful is there. States that were retained meanwhile have it, or not.
    fn acknowledged(&mut self) -> Outcome<()> {
        let seq = self.open()?.0.snapshot().seq();
        self.note_states(Some(seq))?;
        self.settle();
        self.note_states(None)
    }

    /// Notes what states have that are new, as it is now; where a seq is said only those before.
    fn note_states(&mut self, before: Option<Seq>) -> Outcome<()> {
        let history = self.open()?.1.history();
        self.states.retain(|seq, _| history.iter().any(|header| header.seq == *seq));
        for header in history {
            let is_new = !self.states.contains_key(&header.seq) && !self.unknown.contains(&header.seq);
            if is_new && before.is_none_or(|before| header.seq < before) {
                self.states.insert(header.seq, (self.content.clone(), self.expiries.clone()));
            }
        }
        Ok(())
    }

    fn roll_back(&mut self, which: usize) -> Outcome<()> {
        let Some((&to, _)) = self.states.iter().nth(which % self.states.len().max(1)) else { return Ok(()) };
        let (mut content, mut expiries) = self.states[&to].clone();
        let before = content.len();
        content.retain(|key, _| expiries.get(key).is_none_or(|at| *at > self.now));
        self.seen.expired += before - content.len();
        expiries.retain(|_, at| *at > self.now);
        self.rolling = Some((content, expiries));
        let seq = self.open()?.1.roll_back(to).map_err(text)?;
        self.note_states(Some(seq))?;
        self.take_back();
        self.seen.rollbacks += 1;
        self.compare_all()
    }

    /// The rollback under way is there.
    fn take_back(&mut self) {
        if let Some(rolling) = self.rolling.take() {
            (self.content, self.expiries) = rolling;
        }
    }

    /// Holds every state against what it must hold.
    fn check_states(&self) -> Outcome<()> {
        for (seq, (content, _)) in &self.states {
            let then = self.open()?.1.at(*seq).map_err(text)?;
            let found = then.iter().collect::<braid::Result<Content>>().map_err(text)?;
            if let Some(problem) = difference(content, &found) {
                return Err(format!("the state of seq {}: {problem}", seq.0));
            }
        }
        Ok(())
    }

    /// The doubtful commit is there.
    fn settle(&mut self) {
        for write in self.doubtful.drain(..) {
            put_in(&mut self.content, &write);
            match write {
                Write::Set(key, _, Some(expiry)) => drop(self.expiries.insert(key, expiry)),
                Write::Set(key, _, None) => drop(self.expiries.remove(&key)),
                // What it took is not there to expire.
                Write::DeleteRange(_) => {}
            }
        }
    }

    /// Whether an interrupted commit, of the values that were there before, is seen by an expiry.
    fn is_renewed(&self) -> Outcome<bool> {
        for write in &self.doubtful {
            let Write::Set(key, Some(_), Some(expiry)) = write else { continue };
            if self.content.contains_key(key) && self.expiries.get(key) != Some(expiry) {
                return Ok(self.open()?.1.expiry(key).map_err(text)? == Some(time(*expiry)));
            }
        }
        Ok(false)
    }

    fn puts(&mut self, shape: Shape, from: u32, count: u32, change: Change) -> Vec<Write> {
        let numbers = from..KEYS.min(from + count);
        numbers.map(|number| self.change(Key { shape, number }, change)).collect()
    }

    fn load(&mut self, shape: Shape, from: u32, count: u32, size: Size) -> Outcome<()> {
        // What they see of the table may be something, and then it is not empty.
        self.snapshots.clear();
        if self.seen.expired > 0 {
            // What has expired may still be there, and a table that has something is not loaded.
            self.compact()?;
        }
        let mut pairs = Content::new();
        self.puts(shape, from, count, Change::Put(size)).iter().for_each(|write| put_in(&mut pairs, write));
        let done = self.open()?.1.load(&pairs);
        self.doubtful = pairs.into_iter().map(|(key, value)| Write::Set(key, Some(value), None)).collect();
        done.map_err(text)?;
        self.acknowledged()
    }

    fn clear(&mut self, range: &Range, keep: usize, order: Order) -> Outcome<()> {
        let mut keys: Vec<_> = within(&self.content, range);
        if keep > 0 {
            keys = keys.into_iter().enumerate().filter(|(index, _)| index % keep != 0).map(|(_, key)| key).collect();
        }
        match order {
            Order::Rising => {}
            Order::Falling => keys.reverse(),
            Order::Shuffled => keys.shuffle(&mut self.random),
            Order::AtOnce => {
                let bounds = range.bounds();
                keys.clear();
                self.commit(vec![Write::DeleteRange(bounds)])?;
            }
        }
        self.commit_all(keys.into_iter().map(|key| Write::Set(key, None, None)).collect())?;
        if self.content.is_empty() {
            self.open()?.0.drain().map_err(text)?;
        }
        self.look()
    }

    /// Sees how high the tree is, and that an empty one with nothing waiting has no pages.
    fn look(&mut self) -> Outcome<()> {
        if self.content.is_empty() && self.seen.snapshots + self.seen.expired > 0 {
            // Versions that were kept, and what has expired, go when their leaves are written next.
            self.snapshots.clear();
            self.compact()?;
        }
        let stats = self.open()?.1.stats().map_err(text)?;
        self.seen.height = self.seen.height.max(stats.figure("levels").expect("a structure has levels"));
        if self.content.is_empty() && stats.waiting_operations == 0 {
            self.seen.emptied += 1;
            if stats.stored_bytes > 0 || stats.shape.iter().any(|figure| figure.value > 0) {
                return Err(format!("an empty tree has pages: {stats:?}"));
            }
        }
        Ok(())
    }

    fn compact(&self) -> Outcome<()> {
        self.open()?.1.compact().map(drop).map_err(text)
    }

    /// Holds everything that is kept against what it must hold.
    fn look_back(&self, bounds: &Bounds, backward: bool) -> Outcome<()> {
        let (_, table) = self.open()?;
        self.check_states()?;
        for (number, (snapshot, content)) in self.snapshots.iter().enumerate() {
            let wrong = |problem| format!("snapshot {number} of {}: {problem}", snapshot.seq().0);
            let source = (snapshot, table);
            compare_range(&source, bounds, backward, 300, content).map_err(wrong)?;
            let keys: Vec<Vec<u8>> = self.content.keys().chain(content.keys()).step_by(5).cloned().collect();
            compare_many(&source, &keys, content).map_err(wrong)?;
        }
        Ok(())
    }

    /// Writes in a transaction, of which `undone` is taken back, and looks at it before it commits or is given up.
    fn transact(
        &mut self, first: Vec<Write>, undone: &[Write], bounds: &Bounds, backward: bool, commit: bool,
    ) -> Outcome<()> {
        let (db, table) = self.open.clone().ok_or("the database is not open")?;
        let mut transaction = db.begin().map_err(text)?;
        let mut content = self.content.clone();
        set_all(&mut transaction, &table, &first)?;
        let savepoint = transaction.savepoint();
        set_all(&mut transaction, &table, undone)?;
        let mut with_undone = content.clone();
        first.iter().chain(undone).for_each(|write| put_in(&mut with_undone, write));
        compare_transaction(&transaction, &table, bounds, backward, &with_undone)?;
        transaction.roll_back_to(&savepoint).map_err(text)?;
        first.iter().for_each(|write| put_in(&mut content, write));
        compare_transaction(&transaction, &table, bounds, backward, &content)?;
        if !commit {
            transaction.rollback();
            return Ok(());
        }
        let done = transaction.commit();
        self.doubtful = first;
        done.map_err(text)?;
        self.acknowledged()
    }

    fn compare_all(&self) -> Outcome<()> {
        difference(&self.content, &read_all(&self.open()?.1)?).map_or(Ok(()), Err)
    }

    /// The power goes now, if it has not gone.
    fn crash(&mut self) -> Outcome<()> {
        self.disk.restart();
        self.recover()
    }

    /// Opens what is left after the storage of the open database went away.
    fn recover(&mut self) -> Outcome<()> {
        self.seen.crashes += 1;
        // Its storage is gone, so closing gets nothing more done.
        self.snapshots.clear();
        self.open = None;
        self.reopen()?;
        let history = self.open()?.1.history().into_iter();
        self.unknown.extend(history.map(|header| header.seq).filter(|seq| !self.states.contains_key(seq)));
        self.note_states(None)?;
        self.check_states()
    }

    /// Opens the database, again if the power goes meanwhile, and holds it against the map.
    fn reopen(&mut self) -> Outcome<()> {
        loop {
            let opened = self.options.clone().open_on(self.disk.psync(), Path::new("/db")).and_then(|db| {
                let table = db.table_with("table", self.structure, &self.table)?;
                Ok((db, table))
            });
            match opened {
                Ok(open) => self.open = Some(open),
                Err(_) if self.disk.is_crashed() => {
                    self.disk.restart();
                    continue;
                }
                Err(error) => return Err(format!("open failed: {error}")),
            }
            break;
        }
        let found = read_all(&self.open()?.1)?;
        if difference(&self.content, &found).is_some() || self.is_renewed()? {
            self.settle();
            self.take_back();
        }
        self.doubtful.clear();
        self.rolling = None;
        difference(&self.content, &found).map_or(Ok(()), Err)?;
        verify(&self.open()?.0)
    }
}

fn time(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

fn within(content: &Content, range: &Range) -> Vec<Vec<u8>> {
    use std::ops::RangeBounds;
    let bounds = range.bounds();
    content.keys().filter(|key| bounds.contains(*key)).cloned().collect()
}

fn put_in(content: &mut Content, write: &Write) {
    use std::ops::RangeBounds;
    match write {
        Write::Set(key, Some(value), _) => drop(content.insert(key.clone(), value.clone())),
        Write::Set(key, None, _) => drop(content.remove(key)),
        Write::DeleteRange(bounds) => content.retain(|key, _| !bounds.contains(key)),
    }
}

fn set_all(transaction: &mut Transaction, table: &Table, writes: &[Write]) -> Outcome<()> {
    for write in writes {
        let set = match write {
            Write::Set(key, Some(value), Some(expiry)) => transaction.put_expiring(table, key, value, time(*expiry)),
            Write::Set(key, Some(value), None) => transaction.put(table, key, value),
            Write::Set(key, None, _) => transaction.delete(table, key),
            Write::DeleteRange(bounds) => transaction.delete_range::<Vec<u8>>(table, bounds.clone()),
        };
        set.map_err(text)?;
    }
    Ok(())
}

/// Holds what a transaction sees against what it must see.
fn compare_transaction(
    transaction: &Transaction, table: &Table, bounds: &Bounds, backward: bool, content: &Content,
) -> Outcome<()> {
    let range = transaction.range::<Vec<u8>>(table, bounds.clone());
    let range = if backward { range.rev() } else { range };
    let found: Vec<_> = range.take(300).collect::<Result<_, _>>().map_err(text)?;
    let within = crate::content::within(content, bounds).map(|(key, value)| (key.clone(), value.clone()));
    let expected: Vec<_> = if backward { within.rev().take(300).collect() } else { within.take(300).collect() };
    if found != expected {
        return Err(format!(
            "a transaction's range of {} pairs differs from the expected {}",
            found.len(),
            expected.len()
        ));
    }
    let keys: Vec<&Vec<u8>> = content.keys().step_by(7).collect();
    let found = transaction.get_many(table, &keys).map_err(text)?;
    let wrong = keys.iter().zip(found).find(|(key, found)| content.get(**key) != found.as_ref());
    wrong.map_or(Ok(()), |(key, found)| Err(format!("a transaction reads {found:?} for key {key:?}")))
}
