//! Kinds of structures: what holds for each structure of a kind ([`Facts`]), and what a database has once for all
//! tables of the kind ([`Kind`]).

use std::sync::Arc;

use cache::Part;
use doclog::DocLog;
use psync::probe::DeviceProfile;
use space::{FileStore, PagedFile, Reserve};

use crate::{Figure, Index, ReadAhead, Result, TableId};

/// What holds for each structure of a kind. A registry of kinds is a list of these.
#[derive(Clone, Copy)]
pub struct Facts {
    /// Its name for users.
    pub name: &'static str,
    /// Its number in records and backups. Never given to another kind.
    pub code: u8,
    /// Longest key, in bytes.
    pub key_bytes_max: usize,
    /// Longest value that the structure stores itself, in bytes. Longer values are documents.
    pub inline_bytes: usize,
    /// The longest value that may be chosen to be stored beside its key.
    pub inline_bytes_max: usize,
    /// Whether applying operations always makes files longer.
    pub only_appends: bool,
    /// Whether each change makes files of its own, and gives nothing back before these are merged.
    pub merges_later: bool,
    /// Whether older states can be retained ([`Index::history`]).
    pub has_history: bool,
    /// Settings for a table that is used in this way ([`Kind::create`]); empty where there is nothing to choose.
    pub choose: fn(&Use<'_>) -> Vec<u8>,
    /// What settings say, in figures; none for settings that no structure of the kind has.
    pub describe: fn(&[u8]) -> Option<Vec<Figure>>,
    /// Makes the parts that all structures of the kind share. None where a file is missing that they would all be in.
    pub start: fn(&Home<'_>) -> Option<Arc<dyn Kind>>,
    /// The directory of files of the structures' own, each of which begins with the number of its table and `-`; none
    /// where there are no such files.
    pub directory: Option<&'static str>,
    /// The root record after a redo, for [`Kind::open`].
    pub root_of_redo: RootOfRedo,
}

/// Gives the root record after a redo of a table. The last argument is the one before it, if it is known, and empty
/// where the table was empty; a redo that leads to the whole structure does without. An error where the redo is
/// malformed, or of another table or kind.
pub type RootOfRedo = fn(&[u8], TableId, Option<&[u8]>) -> Result<Vec<u8>>;

/// The use of a table, and the memory and the device that its database has.
#[derive(Clone, Copy, Debug)]
pub struct Use<'a> {
    /// The device.
    pub profile: &'a DeviceProfile,
    /// Bytes for nodes, of the whole database.
    pub cache_bytes: u64,
    /// Bytes for waiting operations, of the whole database.
    pub write_buffer_bytes: u64,
    /// Records of the table.
    pub records: u64,
    /// Average bytes of a key and its value.
    pub record_bytes: u64,
    /// Share of puts and deletes among all operations, from 0 to 1.
    pub insert_share: f64,
    /// Share of the lookups that come in batches, from 0 to 1.
    pub batched_share: f64,
    /// Pages of a leaf, if the options of the database say so. A kind without leaves of a chosen size passes over this.
    pub leaf_pages: Option<u32>,
    /// Settings that the table has had elsewhere, as a backup names them. What the options say goes before these, and
    /// these before a choice.
    pub given: Option<&'a [u8]>,
}

/// The parts of a database that structures are built on.
pub struct Home<'a> {
    /// The files.
    pub store: &'a FileStore,
    /// The file of pages that tables share. None where a damaged database has lost it.
    pub pages: Option<&'a Arc<PagedFile>>,
    /// Room on the disk for work that gives space back.
    pub reserve: Arc<Reserve>,
    /// The memory in which scans and batches read ahead.
    pub read_ahead: Arc<ReadAhead>,
    /// Most bytes of all caches together.
    pub cache_bytes: u64,
    /// Most bytes that a cache can be lent.
    pub loans_bytes: u64,
    /// Most bytes of a segment.
    pub segment_bytes: u64,
    /// Larger at each opening of the database.
    pub epoch: u32,
    /// Requests that a batch of lookups keeps in flight.
    pub lookups_in_flight: usize,
    /// The longest gap, in pages, that is read together with the pages on both sides of it. Without this, the
    /// structure's own choice.
    pub gap_pages: Option<usize>,
    /// Whether leaves may become longer than their table asks for.
    pub has_longer_leaves: bool,
}

/// What all structures of a kind share in one database.
pub trait Kind: Send + Sync {
    /// An empty structure with these settings, which [`Facts::choose`] or [`Index::settings`] has given. Values too
    /// large for the structure go to `documents`.
    ///
    /// # Errors
    /// When the kind does not understand the settings, or files of the table cannot be listed.
    fn create(&self, table: TableId, settings: &[u8], documents: &Arc<DocLog>) -> Result<Box<dyn Index>>;

    /// The structure that a root record describes ([`Index::root`]).
    ///
    /// # Errors
    /// When the record is malformed, or files of the table cannot be listed.
    fn open(&self, table: TableId, root: &[u8], documents: &Arc<DocLog>) -> Result<Box<dyn Index>>;

    /// The cache of nodes, if there is one.
    fn cache(&self) -> Option<&dyn Part> {
        None
    }

    /// Bytes of cache that would hold all nodes, of which `node_bytes` are in files of the structures' own.
    fn cached_bytes(&self, _node_bytes: u64) -> u64 {
        0
    }

    /// Room on the disk to be reserved for work that gives space back, where `node_bytes` of nodes are in files of the
    /// structures' own.
    fn room_bytes(&self, _node_bytes: u64) -> u64 {
        0
    }

    /// Nodes that were looked for since the database was opened, by what they are.
    fn lookups(&self) -> Vec<Lookups> {
        Vec::new()
    }

    /// Tables whose structures can be found through files of their own, when no record names them.
    ///
    /// # Errors
    /// When files cannot be listed.
    fn tables_left(&self) -> Result<Vec<TableId>> {
        Ok(Vec::new())
    }

    /// Removes the files of the structures' own of a table that is not open, because the table was dropped before a
    /// crash.
    ///
    /// # Errors
    /// When files cannot be listed or removed.
    fn remove_left(&self, _table: TableId) -> Result<()> {
        Ok(())
    }

    /// The newest root of such a table that passes its checks.
    ///
    /// # Errors
    /// When files cannot be listed or opened.
    fn newest_root(&self, _table: TableId) -> Result<Option<FoundRoot>> {
        Ok(None)
    }
}

/// How many nodes were looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookups {
    /// What they are.
    pub nodes: &'static str,
    /// Found in memory.
    pub hits: u64,
    /// Read from storage.
    pub reads: u64,
    /// Bytes of these reads, if they are counted.
    pub read_bytes: Option<u64>,
}

/// A root record that was found although nothing referred to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRoot {
    /// The record.
    pub root: Vec<u8>,
    /// The place where it was found.
    pub place: String,
}
