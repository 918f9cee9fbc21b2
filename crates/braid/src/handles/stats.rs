//! What a database holds and has done.

use std::sync::atomic::{AtomicU64, Ordering};

use psync::probe::LearnedProfile;
use serde::Serialize;
use space::StreamKind;

use crate::{
    engine::{Engine, counters::Recovery, learned::DeviceStats, snapshot::SnapshotStats},
    error::Result,
    tables::catalog::{TableCore, TableState},
    words::structure,
};

/// I/O of one kind of stream since opening.
#[derive(Clone, Debug, Serialize)]
pub struct StreamStats {
    /// `wal`, `doc`, `node` or `meta`.
    pub stream: String,
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

/// The buffer pool.
#[derive(Clone, Debug, Serialize)]
pub struct CacheStats {
    /// Most bytes it may hold.
    pub capacity_bytes: u64,
    /// Bytes it holds.
    pub bytes: u64,
    /// Internal nodes found in it.
    pub internal_hits: u64,
    /// Internal nodes read from storage.
    pub internal_reads: u64,
    /// Leaves found in it.
    pub leaf_hits: u64,
    /// Leaves read from storage for lookups and scans.
    pub leaf_reads: u64,
    /// Bytes of these leaf reads.
    pub leaf_read_bytes: u64,
    /// Part of the capacity that nodes of `append` tables may have, by what there is of them: the rest is for pages of `btree` tables.
    pub node_capacity_bytes: u64,
    /// Bytes of such nodes that it holds.
    pub node_bytes: u64,
    /// Such nodes found in it.
    pub node_hits: u64,
    /// Such nodes not found in it.
    pub node_misses: u64,
    /// Part of the capacity that documents may have: what the structures leave, an eighth at least, and no more than all of them need.
    pub document_capacity_bytes: u64,
    /// Bytes of documents that it holds.
    pub document_bytes: u64,
    /// Documents that lookups found in it.
    pub document_hits: u64,
    /// Documents that lookups did not find in it.
    pub document_misses: u64,
    /// Bytes of the write buffer that are lent to it, beside its capacity.
    pub lent_bytes: u64,
    /// What of them is in use: pages, nodes and documents that were read, and for which there was no room.
    pub secondary_bytes: u64,
    /// How often that saved a read.
    pub secondary_hits: u64,
}

/// The write-ahead log.
#[derive(Clone, Debug, Serialize)]
pub struct LogStats {
    /// Bytes that a recovery would have to look at.
    pub retained_bytes: u64,
    /// Bytes of all that there is of it, for recovery and for those who follow changes.
    pub kept_bytes: u64,
    /// The oldest seq that [`Database::changes`](crate::Database::changes) can show.
    pub oldest_seq: u64,
    /// Records appended.
    pub records: u64,
    /// Of them, those whose thread had the end of the log for itself.
    pub direct_records: u64,
    /// Of them, those that took their space together with others, in a slot.
    pub consolidated_records: u64,
    /// Slots that were closed; `consolidated_records` divided by this is the records per slot.
    pub slots: u64,
    /// Groups written.
    pub groups: u64,
    /// Flushes.
    pub flushes: u64,
    /// Calls that these served; divided by `flushes`, the commits per flush.
    pub flush_requests: u64,
    /// How often a call had the sync lock.
    pub sync_lock_acquisitions: u64,
    /// Nanoseconds that these waited for it, in sum.
    pub sync_lock_wait_ns: u64,
    /// Nanoseconds that calls which flushed themselves took for it, in sum.
    pub flush_ns: u64,
    /// Nanoseconds that calls waited for another's flush, without the lock, in sum.
    pub flush_wait_ns: u64,
}

/// Pages of the data file.
#[derive(Clone, Debug, Serialize)]
pub struct SpaceStats {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// All pages.
    pub total_pages: u64,
    /// Free pages.
    pub free_pages: u64,
    /// Those of them whose room the disk has back.
    pub hole_pages: u64,
    /// Pages that wait for readers of older versions.
    pub retired_pages: u64,
}

/// A table.
#[derive(Clone, Debug, Serialize)]
pub struct TableStats {
    /// Its name.
    pub name: String,
    /// Its structure.
    pub structure: String,
    /// Compression of its large values: `none`, `lz4` or `zstd`.
    pub compression: String,
    /// Operations in memory that the structure does not have yet.
    pub waiting_operations: u64,
    /// Bytes of memory that they take.
    pub waiting_bytes: u64,
    /// Levels, leaves included.
    pub height: u32,
    /// Pages of internal nodes.
    pub internal_pages: u64,
    /// Leaves.
    pub leaves: u64,
    /// Leaves that begin where the one before them in key order ends: what a scan reads as one sequence.
    pub adjacent_leaves: u64,
    /// Pages that leaves occupy.
    pub leaf_pages: u64,
    /// Pages of a new leaf, chosen when the table was created or last built anew.
    pub pages_of_new_leaf: u32,
    /// Share of puts and deletes among puts, deletes and keys looked up since opening, if these were enough to say.
    pub insert_share: Option<f64>,
    /// Pages of a leaf that the cost model chooses for that use and what the table holds now.
    pub pages_of_leaf_for_use: Option<u32>,
    /// The same with the profile that was learned from requests ([`Database::learned_profile`](crate::Database::learned_profile)), if anything was learned.
    pub pages_of_leaf_by_learned: Option<u32>,
    /// Bytes of runs in leaves.
    pub run_bytes: u64,
    /// Entries in runs, versions that are no longer visible included.
    pub entries: u64,
    /// Segments of nodes, of a structure that appends them to files of their own.
    pub node_segments: u64,
    /// Bytes of these segments, dead ones included.
    pub node_bytes: u64,
    /// Bytes of nodes in them that are live.
    pub node_live_bytes: u64,
    /// Document segments.
    pub document_segments: u64,
    /// Bytes of documents, dead ones included.
    pub document_bytes: u64,
    /// Bytes of documents that are live.
    pub document_live_bytes: u64,
    /// States that are retained ([`Table::history`](crate::Table::history)).
    pub history_states: u64,
    /// Bytes of segments, of nodes and of documents, that stay for them and are not live.
    pub history_bytes: u64,
}

impl TableStats {
    /// Of `table`, as it is in `state`.
    pub(crate) fn of(engine: &Engine, table: &TableCore, state: &TableState, learned: &LearnedProfile) -> Result<Self> {
        let shape = state.view.stats()?;
        let shares = table.traffic.shares();
        let chosen = |profile| {
            let shares = shares.filter(|_| structure::has_leaf_sizes(table.structure))?;
            Some(engine.tuning.leaf_pages_now(profile, shape.entries, shape.run_bytes, shares))
        };
        let (mut operations, mut bytes) = (state.active.operations() as u64, state.active.bytes());
        if let Some(frozen) = &state.frozen {
            operations += frozen.sections().operations() as u64;
            bytes += frozen.bytes();
        }
        let (nodes, documents) = (table.tree.room(), table.documents.stats());
        Ok(Self {
            name: table.name.clone(),
            structure: table.structure.to_string(),
            compression: table.settings().compression.to_string(),
            waiting_operations: operations,
            waiting_bytes: bytes,
            height: shape.height,
            internal_pages: shape.internal_pages,
            leaves: shape.leaves,
            adjacent_leaves: shape.adjacent_leaves,
            leaf_pages: shape.leaf_pages,
            pages_of_new_leaf: table.tree.leaf_pages(),
            insert_share: shares.map(|shares| shares.insert),
            pages_of_leaf_for_use: chosen(&engine.tuning.profile),
            pages_of_leaf_by_learned: learned.is_any_enough().then(|| chosen(&learned.profile)).flatten(),
            run_bytes: shape.run_bytes,
            entries: shape.entries,
            node_segments: nodes.segments,
            node_bytes: nodes.bytes,
            node_live_bytes: nodes.live_bytes,
            document_segments: documents.segments,
            document_bytes: documents.bytes,
            document_live_bytes: documents.live_bytes,
            history_states: table.history.headers().len() as u64,
            history_bytes: nodes.pinned_bytes + documents.pinned_bytes,
        })
    }
}

/// What a database holds and has done since it was opened.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Directory.
    pub path: String,
    /// I/O backend.
    pub backend: String,
    /// Why a better backend was not taken, if one was not.
    pub backend_fallback: Option<String>,
    /// Whether the data file is read and written past the page cache.
    pub direct_io: bool,
    /// Why the database is read-only, if a write failed.
    pub failure: Option<String>,
    /// Why puts are refused, if the disk is full.
    pub full_disk: Option<String>,
    /// The newest visible commit.
    pub visible_seq: u64,
    /// Commits since opening.
    pub commits: u64,
    /// Documents that cleaning in the background moved since opening.
    pub documents_cleaned: u64,
    /// Bytes that these take in their segments.
    pub document_bytes_cleaned: u64,
    /// Operations of these commits.
    pub operations: u64,
    /// Bytes of their keys and values.
    pub user_bytes: u64,
    /// Keys looked up since opening.
    pub lookups: u64,
    /// Rounds of batch updates since opening.
    pub applies: u64,
    /// Operations that these took to the structures.
    pub applied_operations: u64,
    /// Time they took, in seconds.
    pub apply_seconds: f64,
    /// Checkpoints since opening.
    pub checkpoints: u64,
    /// Bytes of waiting operations.
    pub write_buffer_bytes: u64,
    /// Most bytes of waiting operations.
    pub write_buffer_capacity_bytes: u64,
    /// Bytes written to storage since opening for each byte that users wrote.
    pub write_amplification: f64,
    /// Snapshots and transactions that are open.
    pub snapshots: SnapshotStats,
    /// Bytes of the writes and reads that open transactions hold.
    pub transaction_bytes: u64,
    /// Most bytes that they may hold together.
    pub transaction_capacity_bytes: u64,
    /// Bytes that scans have read ahead, or asked for.
    pub read_ahead_bytes: u64,
    /// About the most that they have together.
    pub read_ahead_capacity_bytes: u64,
    /// What opening replayed.
    pub recovery: Recovery,
    /// The buffer pool.
    pub cache: CacheStats,
    /// The log.
    pub log: LogStats,
    /// Pages of the data file.
    pub space: SpaceStats,
    /// I/O by stream.
    pub streams: Vec<StreamStats>,
    /// The device: what choices follow from, and what was learned of it.
    pub device: DeviceStats,
    /// Tables.
    pub tables: Vec<TableStats>,
}

impl Stats {
    pub(crate) fn of(engine: &Engine) -> Result<Self> {
        let (counters, tables) = (&engine.counters, engine.catalog.live());
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let streams: Vec<StreamStats> = StreamKind::ALL.iter().map(|&kind| stream(engine, kind)).collect();
        let written: u64 = streams.iter().map(|stream| stream.written_bytes).sum();
        let user_bytes = load(&counters.user_bytes);
        let pages = engine.pages.stats();
        let psync = engine.store.psync();
        let device = DeviceStats::of(engine);
        #[expect(clippy::cast_precision_loss, reason = "ratios and seconds need no more digits")]
        Ok(Self {
            path: engine.path.display().to_string(),
            backend: psync.backend().to_string(),
            backend_fallback: psync.fallback_reason(),
            direct_io: engine.pages.file().is_direct(),
            failure: engine.health.cause().map(str::to_owned),
            full_disk: engine.pressure.full_disk(),
            visible_seq: engine.publisher.visible().0,
            commits: load(&counters.commits),
            documents_cleaned: engine.cleaning.moved().0,
            document_bytes_cleaned: engine.cleaning.moved().1,
            operations: load(&counters.operations),
            user_bytes,
            lookups: load(&counters.lookups) + tables.iter().map(|table| table.traffic.lookups()).sum::<u64>(),
            applies: load(&counters.applies),
            applied_operations: load(&counters.applied_operations),
            apply_seconds: load(&counters.apply_micros) as f64 / 1e6,
            checkpoints: load(&counters.checkpoints),
            write_buffer_bytes: engine.pressure.used(),
            write_buffer_capacity_bytes: engine.pressure.budget(),
            write_amplification: if user_bytes == 0 { 0.0 } else { written as f64 / user_bytes as f64 },
            snapshots: engine.snapshots.stats(user_bytes),
            transaction_bytes: engine.transactions.held(),
            transaction_capacity_bytes: engine.transactions.limit(),
            read_ahead_bytes: engine.trees.read_ahead().held_bytes(),
            read_ahead_capacity_bytes: engine.trees.read_ahead().capacity_bytes(),
            recovery: counters.recovery.clone(),
            cache: cache(engine),
            log: log(engine),
            space: SpaceStats {
                page_bytes: space::PAGE as u64,
                total_pages: pages.total_pages,
                free_pages: pages.free_pages + pages.hole_pages,
                hole_pages: pages.hole_pages,
                retired_pages: pages.retired_pages,
            },
            streams,
            tables: tables
                .iter()
                .map(|table| TableStats::of(engine, table, &table.state.load_full(), &device.learned))
                .collect::<Result<_>>()?,
            device,
        })
    }
}

fn stream(engine: &Engine, kind: StreamKind) -> StreamStats {
    let counted = engine.store.counters(kind).snapshot();
    StreamStats {
        stream: kind.to_string(),
        reads: counted.reads,
        read_bytes: counted.read_bytes,
        writes: counted.writes,
        written_bytes: counted.written_bytes,
        flushes: counted.flushes,
    }
}

fn cache(engine: &Engine) -> CacheStats {
    let (counters, caches) = (engine.trees.counters(), engine.trees.caches());
    let (btree, nodes, documents) = (caches.btree, caches.append, caches.documents);
    let parts = [btree, nodes, documents];
    CacheStats {
        capacity_bytes: engine.tuning.cache_bytes,
        bytes: btree.bytes + nodes.bytes + documents.bytes,
        node_capacity_bytes: nodes.capacity_bytes,
        node_bytes: nodes.bytes,
        node_hits: nodes.hits,
        node_misses: nodes.misses,
        document_capacity_bytes: documents.capacity_bytes,
        document_bytes: documents.bytes,
        document_hits: documents.hits,
        document_misses: documents.misses,
        lent_bytes: engine.loans.lent(),
        secondary_bytes: parts.iter().map(|part| part.secondary_bytes).sum(),
        secondary_hits: parts.iter().map(|part| part.secondary_hits).sum(),
        internal_hits: counters.node_hits,
        internal_reads: counters.node_reads,
        leaf_hits: counters.leaf_hits,
        leaf_reads: counters.leaf_reads,
        leaf_read_bytes: counters.leaf_read_bytes,
    }
}

fn log(engine: &Engine) -> LogStats {
    let stats = engine.wal.stats();
    LogStats {
        retained_bytes: engine.wal.bytes_retained(),
        kept_bytes: engine.wal.bytes_kept(),
        oldest_seq: engine.retention.kept().seq.0,
        records: stats.records,
        direct_records: stats.direct_records,
        consolidated_records: stats.consolidated_records,
        slots: stats.slots,
        groups: stats.groups,
        flushes: stats.flushes,
        flush_requests: stats.flush_requests,
        sync_lock_acquisitions: stats.sync_lock_acquisitions,
        sync_lock_wait_ns: stats.sync_lock_wait_ns,
        flush_ns: stats.flush_ns,
        flush_wait_ns: stats.flush_wait_ns,
    }
}
