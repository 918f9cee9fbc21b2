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
use index::{DocPointer, Moment, RangeTombstones, Seq, TableId, Time, View};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use wal::Lsn;

use crate::{
    error::{Error, Result},
    format::TableSettings,
    opq::{Frozen, Sections, Sorting},
    structures::tree::Tree,
    tables::{gaps::Gaps, history::History, pace::Pace, traffic::Traffic},
    words::{applied::AppliedThrough, key_range::KeyRange, structure::Structure},
};

/// Where a table's operations are at one moment: a reader takes this as one unit, so that an operation is never missed between
/// a frozen queue and its structure.
pub(crate) struct TableState {
    /// The queues that take operations.
    pub(crate) active: Arc<Sections>,
    /// Queues on their way into the structure, older than the active ones. The next are frozen when these are applied.
    pub(crate) frozen: Option<Arc<Frozen>>,
    /// The structure, with everything that was applied.
    pub(crate) view: Arc<dyn View>,
    /// Range deletes that hide something in the queues or the structure.
    pub(crate) tombstones: Arc<RangeTombstones>,
    /// Held by every state of the table: while a reader holds an older state, its count shows.
    pub(crate) _pin: Arc<()>,
}

/// What a table is, from its beginning to its end.
pub(crate) struct TableIdentity {
    pub(crate) id: TableId,
    pub(crate) name: String,
    pub(crate) structure: Structure,
    pub(crate) settings: TableSettings,
}

/// One table, as the engine knows it. Queues and view of its state are replaced by whoever holds [`crate::engine::Engine::maintenance`]; range
/// tombstones come as they are published.
pub(crate) struct TableCore {
    pub(crate) id: TableId,
    pub(crate) name: String,
    pub(crate) structure: Structure,
    settings: TableSettings,
    pub(crate) tree: Tree,
    pub(crate) documents: Arc<DocLog>,
    pub(crate) state: ArcSwap<TableState>,
    /// Where walks have found nothing. What a state has is known here before it is put in place.
    gaps: ArcSwap<Gaps>,
    /// Held by whoever replaces the state, or notes a gap.
    replacing: Mutex<()>,
    /// How often that began or ended: odd while the state is being replaced.
    replaced: AtomicU64,
    pub(crate) active_bytes: AtomicU64,
    /// Bytes of documents that operations in the queues name, about.
    pub(crate) queued_documents: AtomicU64,
    /// How long new documents wait for cleaning.
    pub(crate) document_pace: Pace,
    pub(crate) traffic: Traffic,
    /// States that are retained.
    pub(crate) history: History,
    /// Upkeep has met damage in it.
    damaged: AtomicBool,
    /// A load or a rollback is under way: nothing else may change the table.
    loading: AtomicBool,
    /// The seq of the newest load or rollback since opening; 0 where there was none.
    loaded: AtomicU64,
    /// Seq of the commit that dropped it; 0 while it is live.
    dropped: AtomicU64,
    /// Anything that expires was ever put into it.
    expiring: AtomicBool,
    applied: Mutex<AppliedThrough>,
    /// What there was when the table was rolled back or dropped, for snapshots that are older: the oldest first.
    last: ArcSwap<Vec<LastState>>,
    pin: Arc<()>,
}

/// A table at its drop, or just before it was rolled back.
#[derive(Clone)]
struct LastState {
    /// The seq of that.
    until: Seq,
    state: Arc<TableState>,
}

impl TableCore {
    /// A table whose structure has everything up to `applied` and whose queues are empty.
    pub(crate) fn new(
        image: TableIdentity, tree: Tree, documents: Arc<DocLog>, applied: AppliedThrough, queues: Sections,
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

    /// What was chosen for it.
    pub(crate) fn settings(&self) -> TableSettings {
        TableSettings { history: self.history.keep(), ..self.settings }
    }

    /// The commit that dropped it; 0 while it is live.
    pub(crate) fn dropped(&self) -> Seq {
        Seq(self.dropped.load(Ordering::SeqCst))
    }

    /// It was dropped by this commit.
    pub(crate) fn set_dropped(&self, seq: Seq) {
        // A reader that borrows the state and sees no drop then is seen by [`TableCore::is_unobserved`] behind this.
        self.dropped.store(seq.0, Ordering::SeqCst);
    }

    /// A commit of this seq does nothing to it: it had been dropped before.
    pub(crate) fn was_dropped_before(&self, seq: Seq) -> bool {
        let dropped = self.dropped();
        dropped > Seq(0) && dropped < seq
    }

    /// Lets nobody change the table any more but the load or rollback that asks.
    ///
    /// # Errors
    /// When another one is under way.
    pub(crate) fn begin_load(&self) -> Result<()> {
        if self.loading.swap(true, Ordering::SeqCst) { Err(self.loading()) } else { Ok(()) }
    }

    /// The load or rollback has ended.
    pub(crate) fn end_load(&self) {
        self.loading.store(false, Ordering::SeqCst);
    }

    /// Fails while a load or rollback is under way.
    pub(crate) fn check_not_loading(&self) -> Result<()> {
        if self.loading.load(Ordering::SeqCst) { Err(self.loading()) } else { Ok(()) }
    }

    /// Upkeep has met damage in it: it is left alone until the database is opened again. Whoever reads there is told.
    pub(crate) fn note_damage(&self, error: &Error) {
        if !self.damaged.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, table = self.name, "a damaged table is not swept any more");
        }
    }

    /// Whether upkeep has met damage in it.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// A load or rollback of `seq` changed every key.
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

    /// Which commits are in the structure.
    pub(crate) fn applied(&self) -> AppliedThrough {
        self.applied.lock().clone()
    }

    /// The structure has other commits now.
    pub(crate) fn set_applied(&self, applied: AppliedThrough) {
        *self.applied.lock() = applied;
    }

    /// Puts another state in place.
    pub(crate) fn replace_state(&self, active: Arc<Sections>, frozen: Option<Arc<Frozen>>, view: Arc<dyn View>) {
        self.replace_state_and(active, frozen, view, |_| {});
    }

    /// Puts another state in place, in which the range tombstones, if there are any, are changed too.
    pub(crate) fn replace_state_and(
        &self, active: Arc<Sections>, frozen: Option<Arc<Frozen>>, view: Arc<dyn View>,
        change: impl FnOnce(&mut RangeTombstones),
    ) {
        self.put_changed(self.replacing.lock(), active, frozen, view, change);
    }

    /// As [`TableCore::replace_state_and`], by the only one who does.
    fn put_changed(
        &self, one: MutexGuard<'_, ()>, active: Arc<Sections>, frozen: Option<Arc<Frozen>>, view: Arc<dyn View>,
        change: impl FnOnce(&mut RangeTombstones),
    ) {
        let mut tombstones = Arc::clone(&self.state.load().tombstones);
        if !tombstones.is_empty() {
            change(Arc::make_mut(&mut tombstones));
        }
        self.put_state(one, TableState { active, frozen, view, tombstones, _pin: Arc::clone(&self.pin) });
    }

    /// Puts another state in place, with other range tombstones; nothing waits in it.
    pub(crate) fn replace_whole(&self, active: Arc<Sections>, view: Arc<dyn View>, tombstones: RangeTombstones) {
        let one = self.replacing.lock();
        self.gaps.store(Arc::default());
        let (tombstones, _pin) = (Arc::new(tombstones), Arc::clone(&self.pin));
        self.put_state(one, TableState { active, frozen: None, view, tombstones, _pin });
    }

    /// Puts another state in place; the caller is the only one who does.
    fn put_state(&self, one: MutexGuard<'_, ()>, state: TableState) {
        self.replaced.fetch_add(1, Ordering::AcqRel);
        let old = self.state.swap(Arc::new(state));
        self.replaced.fetch_add(1, Ordering::Release);
        drop(one);
        // Queues may go with it, which takes a while.
        drop(old);
    }

    /// The gaps that a walk in `state` may pass over: all, if it is the current one. They are borrowed, as a state is ([`TableCore::moment`]).
    pub(crate) fn gaps_of(&self, state: &Arc<TableState>) -> Option<Guard<Arc<Gaps>>> {
        Arc::ptr_eq(state, &self.state.load()).then(|| self.gaps.load())
    }

    /// A walk at `at` found nothing within `range` in `state`.
    pub(crate) fn note_gap(&self, state: &TableState, range: &KeyRange, at: Moment) {
        // Whoever holds it has other things to do than to wait for this; another walk will find the same.
        let Some(_one) = self.replacing.try_lock() else { return };
        // The structure that was walked is all there is, and it has nothing that is newer than the walk.
        let is_whole = Arc::ptr_eq(&state.view, &self.state.load().view) && self.applied.lock().newest() <= at.seq;
        if is_whole {
            let mut gaps = Gaps::clone(&self.gaps.load());
            // Where nothing expires, what there is no pair of was deleted, whatever time it is.
            let now = if self.is_expiring() { at.now } else { Time(0) };
            gaps.note(range, Moment { now, ..at });
            self.gaps.store(Arc::new(gaps));
        }
    }

    /// Puts another state in place, whose structure has these versions now.
    pub(crate) fn replace_applied<'a, W: Iterator<Item = (&'a [u8], Seq)>>(
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
        self.put_changed(one, active, frozen, view, outgrow);
    }

    /// The structure may have a version of `key` of this commit.
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

    /// Something that expires is about to become visible in it.
    pub(crate) fn note_expiring(&self) {
        self.expiring.store(true, Ordering::Release);
    }

    /// Whether anything that expires was ever put into it.
    pub(crate) fn is_expiring(&self) -> bool {
        self.expiring.load(Ordering::Acquire)
    }

    /// What a reader that begins now reads: a state, and a moment whose seq is visible and of which the state has every commit whole. What time it
    /// is, is asked only where anything can have expired.
    ///
    /// The state is held before it is asked what is visible, because older versions are not kept for readers that are not there yet.
    /// It has to be current still when that is known: queues that a later state shares with it go on filling, others do not. A commit in
    /// such others became visible behind the replacement, so whoever sees it sees `replaced` changed.
    ///
    /// The state is borrowed: that writes to no memory that other readers write to.
    pub(crate) fn moment(&self, visible: impl Fn() -> Seq, now: impl Fn() -> Time) -> (Guard<Arc<TableState>>, Moment) {
        loop {
            let replaced = self.replaced.load(Ordering::Acquire);
            let state = self.state.load();
            let seq = visible();
            // The time comes last: what a merge found expired by its own time, and dropped from this state, has expired by this one too.
            let now = if self.is_expiring() { now() } else { Time(0) };
            let at = Moment { seq, now };
            let is_same = replaced.is_multiple_of(2) && self.replaced.load(Ordering::Acquire) == replaced;
            if is_same || Arc::ptr_eq(&state, &self.state.load()) {
                return (state, at);
            }
        }
    }

    /// The table is being dropped or rolled back, by `until`: what there is, is what older snapshots see.
    pub(crate) fn keep_last(&self, until: Seq) {
        let state = self.state.load_full();
        self.last.rcu(|last| {
            let mut last = Vec::clone(last);
            last.push(LastState { until, state: Arc::clone(&state) });
            last
        });
    }

    /// What a snapshot of seq `at` sees of a table that was dropped or rolled back since: none where nothing of the kind came behind it.
    pub(crate) fn last_at(&self, at: Seq) -> Option<Arc<TableState>> {
        self.last.load().iter().find(|last| at < last.until).map(|last| Arc::clone(&last.state))
    }

    /// Forgets what only snapshots see that are not there: the oldest there is, is of seq `oldest`, which was asked for when everything up to `visible` was
    /// visible, so none that is older than that comes any more.
    pub(crate) fn forget_last(&self, visible: Seq, oldest: Option<Seq>) {
        let is_seen = |last: &&LastState| last.until > visible || oldest.is_some_and(|oldest| oldest < last.until);
        if self.last.load().iter().any(|last| !is_seen(&last)) {
            self.last.rcu(|last| last.iter().filter(is_seen).cloned().collect::<Vec<_>>());
        }
    }

    /// A state without queues of its own: an older one, as it was retained.
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
            let lacking = queue.updates().filter(|(update, _)| update.seq > applied.at(update.key));
            waiting.extend(lacking.filter_map(|(update, _)| update.operation.document()));
        }
        waiting
    }

    /// Nothing is left of it but its name and documents that no version refers to.
    pub(crate) fn is_husk(&self) -> bool {
        self.dropped() > Seq(0) && self.tree.is_empty() && self.documents.stats().live_bytes == 0
    }

    /// Whether nobody reads in a state older than the current one.
    pub(crate) fn is_read_as_it_is(&self) -> bool {
        Arc::strong_count(&self.pin) == 2
    }

    /// Whether nobody reads in any state but the current one, nor in that.
    pub(crate) fn is_unobserved(&self) -> bool {
        let _one = self.replacing.lock();
        // A borrow of the state does not count before the state is replaced, be it by itself.
        let state = self.state.swap(self.state.load_full());
        self.is_read_as_it_is() && Arc::strong_count(&state) == 2
    }

    /// Where the log holds the oldest operation that the structure lacks.
    pub(crate) fn oldest_unapplied(&self) -> Option<Lsn> {
        let state = self.state.load();
        let active = state.active.first_lsn();
        state.frozen.iter().filter_map(|frozen| frozen.first_lsn()).chain(active).min()
    }

    /// The seq of the oldest operation that the structure lacks.
    pub(crate) fn oldest_unapplied_seq(&self) -> Option<Seq> {
        let state = self.state.load();
        let active = state.active.first_seq();
        state.frozen.iter().filter_map(|frozen| frozen.first_seq()).chain(active).min()
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

/// The catalog, held still.
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

    /// Holds the catalog still for several look-ups by id.
    pub(crate) fn read(&self) -> CatalogGuard<'_> {
        CatalogGuard(self.tables.read())
    }

    /// The live table of that name.
    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<TableCore>> {
        self.tables.read().by_name.get(name).cloned()
    }

    /// Live tables by name.
    pub(crate) fn live(&self) -> Vec<Arc<TableCore>> {
        self.tables.read().by_name.values().cloned().collect()
    }

    /// Dropped tables whose pages are not free yet, and what is left of others as long as the log is kept that names them.
    pub(crate) fn dropped(&self) -> Vec<Arc<TableCore>> {
        self.tables.read().dropped.clone()
    }

    /// Any table of that id, dropped ones included.
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

    /// The id that the next table gets.
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

    /// Adds a table that was dropped before.
    pub(crate) fn insert_dropped(&self, table: Arc<TableCore>) {
        let mut tables = self.tables.write();
        tables.next = tables.next.max(table.id.0 + 1);
        tables.dropped.push(table);
    }

    /// Moves a live table to the dropped ones, because of this commit.
    pub(crate) fn drop_table(&self, id: TableId, seq: Seq) -> Option<Arc<TableCore>> {
        let mut tables = self.tables.write();
        let table = tables.by_id.remove(&id)?;
        table.set_dropped(seq);
        tables.by_name.remove(&table.name);
        tables.dropped.push(Arc::clone(&table));
        Some(table)
    }

    /// Puts what is left of a dropped table in its place.
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
