//! The tables of a database, by name and by id.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use arc_swap::{ArcSwap, Guard};
use doclog::DocLog;
use index::{DocPointer, Index, Moment, RangeTombstones, Seq, TableId, Time, View};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use wal::Lsn;

use crate::{
    error::{Error, Result},
    format::TableSettings,
    opq::{Frozen, Sections, Sorting},
    tables::{gaps::Gaps, history::History, pace::Pace, traffic::Traffic},
    words::{applied::AppliedThrough, key_range::KeyRange, structure::Structure, verifies::VERIFIES},
};

/// The place of every operation of a table at one moment. A reader takes all parts as one unit, so that no operation is
/// missed between a frozen queue and the structure.
pub(crate) struct TableState {
    /// The queues that take operations.
    pub(crate) active: Arc<Sections>,
    /// Queues on their way into the structure, older than the active ones. The next queues are frozen when these are
    /// applied.
    pub(crate) frozen: Option<Arc<Frozen>>,
    /// The structure, with every applied operation.
    pub(crate) view: Arc<dyn View>,
    /// Range tombstones that hide something in the queues or the structure.
    pub(crate) tombstones: Arc<RangeTombstones>,
    /// Shared by all states of the table: its reference count shows whether a reader holds an older state.
    pub(crate) _pin: Arc<()>,
}

impl TableState {
    /// Operations that wait in the queues.
    pub(crate) fn operations(&self) -> u64 {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.sections().operations());
        (self.active.operations() + frozen) as u64
    }

    /// Checks the invariants of tombstones and queues.
    fn check(&self) {
        assert!(self.tombstones.is_sound(), "fragments are in order, and apart");
        let Some(frozen) = &self.frozen else { return };
        for section in frozen.sections().filled() {
            let (low, high) = (frozen.sections().low(section), frozen.sections().high(section));
            for (number, queue) in self.active.queues().iter().enumerate() {
                let overlaps =
                    index::is_below(self.active.low(number), high) && index::is_below(low, self.active.high(number));
                let first = if overlaps { queue.read().first_seq() } else { None };
                assert!(
                    first.is_none_or(|first| first > frozen.through()),
                    "what is active is newer than what is frozen"
                );
            }
        }
    }
}

/// The properties of a table that never change.
pub(crate) struct TableIdentity {
    pub(crate) id: TableId,
    pub(crate) name: String,
    pub(crate) structure: Structure,
    pub(crate) settings: TableSettings,
}

/// One table, as the engine knows it. Only who holds it ([`crate::tables::held`]) replaces the queues and the view;
/// range tombstones are added as they are published.
pub(crate) struct TableCore {
    pub(crate) id: TableId,
    pub(crate) name: String,
    pub(crate) structure: Structure,
    pub(super) settings: TableSettings,
    pub(crate) tree: Box<dyn Index>,
    pub(crate) documents: Arc<DocLog>,
    pub(crate) state: ArcSwap<TableState>,
    /// Key ranges in which walks found nothing. Versions of a state are noted here before that state becomes current.
    gaps: ArcSwap<Gaps>,
    /// The lock of the table ([`crate::tables::held`]).
    pub(super) held: Mutex<()>,
    /// Held while the state is replaced or a gap is noted.
    replacing: Mutex<()>,
    /// Counts the begins and ends of replacements: odd while the state is being replaced.
    replaced: AtomicU64,
    pub(crate) active_bytes: AtomicU64,
    /// Bytes of documents that operations in the queues name, approximately.
    pub(crate) queued_documents: AtomicU64,
    /// The delay of new documents, for cleaning to keep up.
    pub(crate) document_pace: Pace,
    pub(crate) traffic: Traffic,
    /// The retained states.
    pub(crate) history: History,
    /// Upkeep has met damage in this table.
    damaged: AtomicBool,
    /// A load or a rollback is under way: nothing else may change the table.
    loading: AtomicBool,
    /// The seq of the newest load or rollback since opening; 0 without one.
    loaded: AtomicU64,
    /// The seq of the commit that dropped the table; 0 while the table is live.
    dropped: AtomicU64,
    /// Whether a value with an expiry was ever put into the table.
    expiring: AtomicBool,
    applied: Mutex<AppliedThrough>,
    /// The states just before each rollback and the drop of the table, for older snapshots; the oldest first.
    last: ArcSwap<Vec<LastState>>,
    pin: Arc<()>,
}

/// The state of a table at its drop, or just before a rollback.
#[derive(Clone)]
struct LastState {
    /// The seq of the drop or rollback.
    until: Seq,
    state: Arc<TableState>,
}

impl TableCore {
    /// A table with empty queues, whose structure has everything up to `applied`.
    pub(crate) fn new(
        image: TableIdentity, tree: Box<dyn Index>, documents: Arc<DocLog>, applied: AppliedThrough, queues: Sections,
    ) -> Self {
        let TableIdentity { id, name, structure, settings } = image;
        let pin = Arc::new(());
        let state = TableState {
            active: Arc::new(queues),
            frozen: None,
            view: tree.view(),
            tombstones: Arc::default(),
            _pin: Arc::clone(&pin),
        };
        let (state, applied) = (ArcSwap::from_pointee(state), Mutex::new(applied));
        let (active_bytes, traffic, loading) = (AtomicU64::new(0), Traffic::default(), AtomicBool::new(false));
        let (loaded, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        let history = History::new(settings.history);
        let (expiring, queued_documents) = (AtomicBool::new(tree.expires()), AtomicU64::new(0));
        Self {
            id,
            name,
            structure,
            settings,
            tree,
            documents,
            state,
            gaps: ArcSwap::default(),
            held: Mutex::default(),
            replacing: Mutex::default(),
            replaced: AtomicU64::new(0),
            active_bytes,
            queued_documents,
            document_pace: Pace::default(),
            traffic,
            history,
            damaged: AtomicBool::new(false),
            loading,
            loaded,
            dropped,
            expiring,
            applied,
            last: ArcSwap::default(),
            pin,
        }
    }

    /// The settings of the table.
    pub(crate) fn settings(&self) -> TableSettings {
        TableSettings { history: self.history.keep(), ..self.settings }
    }

    /// The commit that dropped the table; 0 while the table is live.
    pub(crate) fn dropped(&self) -> Seq {
        Seq(self.dropped.load(Ordering::SeqCst))
    }

    /// Notes that this commit dropped the table.
    pub(crate) fn set_dropped(&self, seq: Seq) {
        // `SeqCst`, because a reader may borrow the state and then see no drop: a later [`TableCore::is_unobserved`]
        // must see that reader.
        self.dropped.store(seq.0, Ordering::SeqCst);
    }

    /// Whether a commit of this seq does nothing to the table, because an earlier commit dropped the table.
    pub(crate) fn was_dropped_before(&self, seq: Seq) -> bool {
        let dropped = self.dropped();
        dropped > Seq(0) && dropped < seq
    }

    /// Begins a load or rollback. Nothing else can change the table until `end_load`.
    ///
    /// # Errors
    /// When another load or rollback is under way.
    pub(crate) fn begin_load(&self) -> Result<()> {
        if self.loading.swap(true, Ordering::SeqCst) {
            return Err(self.loading());
        }
        // A stretch of a compaction that began before ends first.
        drop(self.hold());
        Ok(())
    }

    /// Ends the load or rollback.
    pub(crate) fn end_load(&self) {
        self.loading.store(false, Ordering::SeqCst);
    }

    /// Fails while a load or rollback is under way.
    pub(crate) fn check_not_loading(&self) -> Result<()> {
        if self.loading.load(Ordering::SeqCst) { Err(self.loading()) } else { Ok(()) }
    }

    /// Notes that upkeep has met damage. Upkeep leaves the table alone until the database is opened again; readers of
    /// the damaged part get the error.
    pub(crate) fn note_damage(&self, error: &Error) {
        if !self.damaged.swap(true, Ordering::Relaxed) {
            events::error!(%error, table = self.name, "a damaged table is not swept any more");
        }
    }

    /// Whether upkeep has met damage in this table.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Notes a load or rollback of `seq`, which changed every key.
    pub(crate) fn note_load(&self, seq: Seq) {
        self.loaded.store(seq.0, Ordering::SeqCst);
        self.history.note_change(seq);
    }

    /// The seq of the newest load or rollback since opening.
    pub(crate) fn loaded(&self) -> Seq {
        Seq(self.loaded.load(Ordering::SeqCst))
    }

    fn loading(&self) -> Error {
        Error::Loading { name: self.name.clone() }
    }

    /// The commits that the structure has.
    pub(crate) fn applied(&self) -> AppliedThrough {
        self.applied.lock().clone()
    }

    /// Sets the commits that the structure has.
    pub(crate) fn set_applied(&self, applied: AppliedThrough) {
        let mut current = self.applied.lock();
        assert!(!VERIFIES || applied.is_no_less_than(&current), "a structure loses no commit");
        *current = applied;
    }

    /// Makes another state current, and changes its range tombstones if there are any.
    pub(super) fn put_changed(
        &self, active: Arc<Sections>, frozen: Option<Arc<Frozen>>, view: Arc<dyn View>,
        change: impl FnOnce(&mut RangeTombstones),
    ) {
        self.put_changed_by(self.replacing.lock(), active, frozen, view, change);
    }

    /// As [`TableCore::put_changed`], under the lock of the caller.
    fn put_changed_by(
        &self, one: MutexGuard<'_, ()>, active: Arc<Sections>, frozen: Option<Arc<Frozen>>, view: Arc<dyn View>,
        change: impl FnOnce(&mut RangeTombstones),
    ) {
        let mut tombstones = Arc::clone(&self.state.load().tombstones);
        if !tombstones.is_empty() {
            change(Arc::make_mut(&mut tombstones));
        }
        self.put_state(one, TableState { active, frozen, view, tombstones, _pin: Arc::clone(&self.pin) });
    }

    /// Makes another state current, with other range tombstones; no operation waits in it.
    pub(super) fn put_whole(&self, active: Arc<Sections>, view: Arc<dyn View>, tombstones: RangeTombstones) {
        let one = self.replacing.lock();
        self.gaps.store(Arc::default());
        let (tombstones, _pin) = (Arc::new(tombstones), Arc::clone(&self.pin));
        self.put_state(one, TableState { active, frozen: None, view, tombstones, _pin });
    }

    /// Makes another state current, under the lock of the caller.
    fn put_state(&self, one: MutexGuard<'_, ()>, state: TableState) {
        if VERIFIES {
            state.check();
        }
        self.replaced.fetch_add(1, Ordering::AcqRel);
        let old = self.state.swap(Arc::new(state));
        self.replaced.fetch_add(1, Ordering::Release);
        drop(one);
        // Outside of the lock, because queues may be freed here, which takes a while.
        drop(old);
    }

    /// The gaps that a walk in `state` may pass over; none if `state` is not the current one. They are borrowed like a
    /// state ([`TableCore::moment`]).
    pub(crate) fn gaps_of(&self, state: &Arc<TableState>) -> Option<Guard<Arc<Gaps>>> {
        Arc::ptr_eq(state, &self.state.load()).then(|| self.gaps.load())
    }

    /// Notes that a walk at `at` found nothing within `range` in `state`.
    pub(crate) fn note_gap(&self, state: &TableState, range: &KeyRange, at: Moment) {
        // Not worth a wait, because another walk will find the same gap.
        let Some(_one) = self.replacing.try_lock() else { return };
        // The walked structure has to be the current one, and must have nothing newer than the walk.
        let is_whole = Arc::ptr_eq(&state.view, &self.state.load().view) && self.applied.lock().newest() <= at.seq;
        if is_whole {
            let mut gaps = Gaps::clone(&self.gaps.load());
            // If nothing ever expires, every missing pair was deleted, and the gap holds at any time.
            let now = if self.is_expiring() { at.now } else { Time(0) };
            gaps.note(range, Moment { now, ..at });
            self.gaps.store(Arc::new(gaps));
        }
    }

    /// Makes another state current, whose structure has the versions `written` now.
    pub(super) fn put_applied<'a, W: Iterator<Item = (&'a [u8], Seq)>>(
        &self, active: Arc<Sections>, frozen: Option<Arc<Frozen>>, view: Arc<dyn View>, written: impl Fn() -> W,
    ) {
        let one = self.replacing.lock();
        let gaps = self.gaps.load();
        if !gaps.is_empty() {
            let mut outgrown = Gaps::clone(&gaps);
            outgrown.outgrow(written());
            self.gaps.store(Arc::new(outgrown));
        }
        let outgrow = |tombstones: &mut RangeTombstones| {
            written().for_each(|(key, seq)| tombstones.outgrow(key, seq));
        };
        self.put_changed_by(one, active, frozen, view, outgrow);
    }

    /// Notes that the structure may have a version of `key` of this commit.
    pub(crate) fn outgrow_tombstone(&self, key: &[u8], seq: Seq) {
        let state = self.state.load();
        let fragment = state.tombstones.of_key(key);
        if fragment.is_some_and(|fragment| !fragment.is_overgrown && fragment.newest() <= seq) {
            self.change_tombstones(|tombstones| tombstones.outgrow(key, seq));
        }
    }

    /// Changes the range tombstones.
    pub(crate) fn change_tombstones(&self, change: impl FnOnce(&mut RangeTombstones)) {
        let one = self.replacing.lock();
        let state = self.state.load();
        let mut tombstones = Arc::clone(&state.tombstones);
        change(Arc::make_mut(&mut tombstones));
        let (active, frozen, view) = (Arc::clone(&state.active), state.frozen.clone(), Arc::clone(&state.view));
        self.put_state(one, TableState { active, frozen, view, tombstones, _pin: Arc::clone(&self.pin) });
    }

    /// Notes that a value with an expiry is about to become visible in the table.
    pub(crate) fn note_expiring(&self) {
        self.expiring.store(true, Ordering::Release);
    }

    /// Whether a value with an expiry was ever put into the table.
    pub(crate) fn is_expiring(&self) -> bool {
        self.expiring.load(Ordering::Acquire)
    }

    /// The state and the moment of a reader that begins now. The seq of the moment is visible, and the state has every
    /// commit up to that seq whole. The clock is read only if something can have expired.
    ///
    /// 1. The state is held first, because older versions are not kept for readers that have not begun.
    /// 2. The visible seq is read.
    /// 3. The state must still be current. Otherwise the reader begins again, because commits may have entered queues
    ///    that only a later state has. Such a commit becomes visible after the replacement, so a reader that sees the
    ///    commit also sees `replaced` changed. Queues that both states share go on filling, and do no harm.
    ///
    /// The state is borrowed: a borrow writes to no memory that other readers write to.
    pub(crate) fn moment(&self, visible: impl Fn() -> Seq, now: impl Fn() -> Time) -> (Guard<Arc<TableState>>, Moment) {
        loop {
            let replaced = self.replaced.load(Ordering::Acquire);
            let state = self.state.load();
            let seq = visible();
            // The time comes last: a version that a merge found expired, and dropped from this state, has then expired
            // for this reader too.
            let now = if self.is_expiring() { now() } else { Time(0) };
            let at = Moment { seq, now };
            let is_same = replaced.is_multiple_of(2) && self.replaced.load(Ordering::Acquire) == replaced;
            if is_same || Arc::ptr_eq(&state, &self.state.load()) {
                return (state, at);
            }
        }
    }

    /// Keeps the current state for older snapshots: commit `until` drops the table or rolls it back.
    pub(crate) fn keep_last(&self, until: Seq) {
        let state = self.state.load_full();
        self.last.rcu(|last| {
            let mut last = Vec::clone(last);
            last.push(LastState { until, state: Arc::clone(&state) });
            last
        });
    }

    /// The state that a snapshot of seq `at` sees of a table that was dropped or rolled back later; none without a
    /// later drop or rollback.
    pub(crate) fn last_at(&self, at: Seq) -> Option<Arc<TableState>> {
        self.last.load().iter().find(|last| at < last.until).map(|last| Arc::clone(&last.state))
    }

    /// Forgets the kept states that no snapshot can see. `oldest` is the seq of the oldest snapshot. The caller read
    /// `oldest` after `visible`, so no snapshot below `visible` can come later.
    pub(crate) fn forget_last(&self, visible: Seq, oldest: Option<Seq>) {
        let is_seen = |last: &&LastState| last.until > visible || oldest.is_some_and(|oldest| oldest < last.until);
        if self.last.load().iter().any(|last| !is_seen(&last)) {
            self.last.rcu(|last| last.iter().filter(is_seen).cloned().collect::<Vec<_>>());
        }
    }

    /// A retained state: an older view without queues of its own.
    pub(crate) fn retained_state(&self, view: Arc<dyn View>, tombstones: RangeTombstones) -> Arc<TableState> {
        let (active, tombstones) = (Arc::new(Sections::new(Sorting::Always)), Arc::new(tombstones));
        Arc::new(TableState { active, frozen: None, view, tombstones, _pin: Arc::clone(&self.pin) })
    }

    /// The documents of operations that the structure lacks.
    pub(crate) fn waiting_documents(&self) -> Vec<DocPointer> {
        let (mut waiting, applied, state) = (Vec::new(), self.applied(), self.state.load());
        let frozen = state.frozen.as_ref().map(|frozen| frozen.sections());
        for queue in frozen.into_iter().chain([&state.active]).flat_map(|sections| sections.queues()) {
            let queue = queue.read();
            let lacking = queue.updates().filter(|(update, _)| applied.lacks(update.key, update.seq));
            waiting.extend(lacking.filter_map(|(update, _)| update.operation.document()));
        }
        waiting
    }

    /// Whether only the name of a dropped table is left, and documents that no version refers to.
    pub(crate) fn is_husk(&self) -> bool {
        self.dropped() > Seq(0) && self.tree.is_empty() && self.documents.stats().live_bytes == 0
    }

    /// Whether no reader holds a state older than the current one.
    pub(crate) fn is_read_as_it_is(&self) -> bool {
        Arc::strong_count(&self.pin) == 2
    }

    /// Whether no reader holds any state, the current one included.
    pub(crate) fn is_unobserved(&self) -> bool {
        let _one = self.replacing.lock();
        // A borrow of the state is counted only when the state is replaced, even by itself.
        let state = self.state.swap(self.state.load_full());
        self.is_read_as_it_is() && Arc::strong_count(&state) == 2
    }

    /// The log position of the oldest operation that the structure lacks.
    pub(crate) fn oldest_unapplied(&self) -> Option<Lsn> {
        self.oldest(Sections::first_lsn, Frozen::first_lsn)
    }

    /// As `oldest_unapplied`, or somewhat before that. Takes no time, whatever waits.
    pub(crate) fn oldest_queued(&self) -> Option<Lsn> {
        self.oldest(Sections::first_lsn, |frozen| frozen.sections().first_lsn())
    }

    /// The seq of the oldest operation that the structure lacks.
    pub(crate) fn oldest_unapplied_seq(&self) -> Option<Seq> {
        self.oldest(Sections::first_seq, Frozen::first_seq)
    }

    /// The lesser of what the queues say: those that take operations, and the frozen ones.
    fn oldest<T: Ord>(
        &self, of_active: impl Fn(&Sections) -> Option<T>, of_frozen: impl Fn(&Frozen) -> Option<T>,
    ) -> Option<T> {
        let state = self.state.load();
        let frozen = state.frozen.as_ref().and_then(|frozen| of_frozen(frozen));
        of_active(&state.active).into_iter().chain(frozen).min()
    }
}

#[derive(Default)]
struct Tables {
    by_name: BTreeMap<String, Arc<TableCore>>,
    by_id: HashMap<TableId, Arc<TableCore>>,
    dropped: Vec<Arc<TableCore>>,
    next: u32,
}

/// The tables of a database.
#[derive(Default)]
pub(crate) struct Catalog {
    tables: RwLock<Tables>,
}

/// The catalog, locked for reading.
pub(crate) struct CatalogGuard<'a>(RwLockReadGuard<'a, Tables>);

impl CatalogGuard<'_> {
    /// The live table of that id.
    pub(crate) fn by_id(&self, id: TableId) -> Option<&Arc<TableCore>> {
        self.0.by_id.get(&id)
    }
}

impl Catalog {
    /// An empty catalog that gives out ids from `next`.
    pub(crate) fn new(next: u32) -> Self {
        Self { tables: RwLock::new(Tables { next, ..Tables::default() }) }
    }

    /// Locks the catalog for several lookups by id.
    pub(crate) fn read(&self) -> CatalogGuard<'_> {
        CatalogGuard(self.tables.read())
    }

    /// The live table of that name.
    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<TableCore>> {
        self.tables.read().by_name.get(name).cloned()
    }

    /// The live tables, by name.
    pub(crate) fn live(&self) -> Vec<Arc<TableCore>> {
        self.tables.read().by_name.values().cloned().collect()
    }

    /// Dropped tables whose pages are not free yet, and the husks of others, as long as the kept log names them.
    pub(crate) fn dropped(&self) -> Vec<Arc<TableCore>> {
        self.tables.read().dropped.clone()
    }

    /// The live tables and the dropped ones, each once.
    pub(crate) fn all(&self) -> Vec<Arc<TableCore>> {
        let tables = self.tables.read();
        tables.by_name.values().chain(&tables.dropped).cloned().collect()
    }

    /// The table of that id, live or dropped.
    pub(crate) fn any_by_id(&self, id: TableId) -> Option<Arc<TableCore>> {
        let tables = self.tables.read();
        tables.by_id.get(&id).or_else(|| tables.dropped.iter().find(|table| table.id == id)).cloned()
    }

    /// A new id.
    pub(crate) fn take_id(&self) -> TableId {
        let mut tables = self.tables.write();
        let id = TableId(tables.next);
        tables.next += 1;
        id
    }

    /// The id of the next table.
    pub(crate) fn next_id(&self) -> u32 {
        self.tables.read().next
    }

    /// Adds a live table.
    pub(crate) fn insert(&self, table: Arc<TableCore>) {
        let mut tables = self.tables.write();
        tables.next = tables.next.max(table.id.0 + 1);
        tables.by_name.insert(table.name.clone(), Arc::clone(&table));
        tables.by_id.insert(table.id, table);
    }

    /// Adds a dropped table.
    pub(crate) fn insert_dropped(&self, table: Arc<TableCore>) {
        let mut tables = self.tables.write();
        tables.next = tables.next.max(table.id.0 + 1);
        tables.dropped.push(table);
    }

    /// Moves a live table to the dropped ones, on behalf of commit `seq`.
    pub(crate) fn drop_table(&self, id: TableId, seq: Seq) -> Option<Arc<TableCore>> {
        let mut tables = self.tables.write();
        let table = tables.by_id.remove(&id)?;
        table.set_dropped(seq);
        tables.by_name.remove(&table.name);
        tables.dropped.push(Arc::clone(&table));
        Some(table)
    }

    /// Puts the husk of a dropped table in place of that table.
    pub(crate) fn replace_dropped(&self, husk: Arc<TableCore>) {
        let mut tables = self.tables.write();
        if let Some(table) = tables.dropped.iter_mut().find(|table| table.id == husk.id) {
            *table = husk;
        }
    }

    /// Forgets a dropped table of which nothing is left.
    pub(crate) fn forget(&self, id: TableId) {
        self.tables.write().dropped.retain(|table| table.id != id);
    }
}
