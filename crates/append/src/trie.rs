//! The trie of one table.

use std::sync::Arc;

use doclog::{Content, DocImage, DocLog, Retained};
use index::{
    Applied, Batch, History, Horizon, Index, Load, Loaded, Rescue, Result, Room, Seq, TableId, Touches, Versions, View,
    class_of,
};

use crate::apply::{Apply, Done};
use crate::format::record::{Commit, Header, Redo, Root};
use crate::load::TrieLoad;
use crate::salvage;
use crate::shared::Shared;
use crate::version::Version;

/// An append-only HB+-trie.
pub struct Trie {
    shared: Arc<Shared>,
    table: TableId,
    nodes: Arc<DocLog>,
    documents: Arc<DocLog>,
    versions: Versions<Version, Done>,
}

impl Trie {
    /// An empty trie with chunks of `chunk_bytes`, 1 to [`crate::KEY_BYTES_MAX`]: with the longest chunks the trie is a
    /// plain B+-tree. Values that are too large for its nodes go to `documents`. Nothing is written.
    ///
    /// # Errors
    /// When files of node segments cannot be listed.
    pub fn create(shared: Arc<Shared>, table: TableId, documents: Arc<DocLog>, chunk_bytes: usize) -> Result<Self> {
        let commit = Commit { place: None, header: Header::empty(table, chunk_bytes) };
        Self::with(shared, documents, Root { commit, nodes: DocImage::default() })
    }

    /// The trie that [`Index::root`] described.
    ///
    /// # Errors
    /// [`index::Error::Corrupt`] when `root` is not the root record of this table; or when files of node segments
    /// cannot be listed.
    pub fn open(shared: Arc<Shared>, table: TableId, documents: Arc<DocLog>, root: &[u8]) -> Result<Self> {
        let root = Root::decode(root, table).map_err(|damage| damage.in_record("root record", table))?;
        Self::with(shared, documents, root)
    }

    fn with(shared: Arc<Shared>, documents: Arc<DocLog>, root: Root) -> Result<Self> {
        let Root { commit, nodes } = root;
        let table = commit.header.table;
        let live_bytes = nodes.segments.iter().map(|segment| segment.live_bytes).sum();
        let segment_bytes = shared.segment_bytes(live_bytes);
        let nodes = Arc::new(DocLog::open_of(Content::Nodes, shared.store(), table.0, &nodes, segment_bytes)?);
        let live = nodes.live();
        let (shared_with, of) = (Arc::clone(&shared), Arc::clone(&nodes));
        let current = Version { shared: shared_with, nodes: of, commit, live, floor: Seq(0) };
        Ok(Self { shared, table, nodes, documents, versions: Versions::new(current) })
    }

    pub(crate) const fn table(&self) -> TableId {
        self.table
    }

    /// The log of the trie's nodes.
    pub(crate) fn nodes(&self) -> &DocLog {
        &self.nodes
    }

    /// Room of the segments of the trie's nodes.
    #[must_use]
    pub fn room(&self) -> doclog::Stats {
        self.nodes.stats()
    }

    pub(crate) fn current(&self) -> Arc<Version> {
        self.versions.current()
    }

    /// A version behind `base`, to be installed or discarded.
    pub(crate) fn pend(&self, base: &Version, mut done: Done, floor: Seq) -> Applied {
        let redo = done.redo.encode();
        let dropped_documents = std::mem::take(&mut done.dropped_documents);
        let files = std::mem::take(&mut done.files);
        let version = Arc::new(Version { floor, ..base.after(&done.redo) });
        let again = std::mem::take(&mut done.again);
        self.versions.pend(&version, again, done);
        Applied { view: version, redo, dropped_documents, files }
    }

    /// Rewrites the leaves of these keys.
    pub(crate) fn rewrite(&self, keys: &[Vec<u8>], room: Room, through: Seq, horizon: &Horizon) -> Result<Applied> {
        let (base, again) = self.versions.base();
        let (nothing, progress) = (Touches { keys: Vec::new(), through }, |_: usize| {});
        let apply = || {
            let apply = Apply::new(&base, &self.documents, &nothing, horizon, again.clone(), &progress);
            apply.rewriting(keys.to_vec()).run()
        };
        Ok(self.pend(&base, room.make(self.shared.reserve(), apply)?, base.floor))
    }

    /// Counts the nodes that a version has made and those that it no longer refers to.
    fn count(&self, redo: &Redo) -> Result<()> {
        redo.made.iter().try_for_each(|made| self.nodes.retain_in(made))?;
        // The rest of the bytes that were appended for this version is not referred to either.
        self.nodes.abandon_pending();
        redo.dropped.iter().try_for_each(|(segment, bytes)| self.nodes.drop_in(*segment, *bytes))?;
        Ok(())
    }
}

impl Index for Trie {
    fn view(&self) -> Arc<dyn View> {
        self.current()
    }

    fn apply(&self, batch: &dyn Batch, horizon: &Horizon, progress: &dyn Fn(usize)) -> Result<Applied> {
        let (base, again) = self.versions.base();
        let apply = || Apply::new(&base, &self.documents, batch, horizon, again.clone(), progress).run();
        let done = Room::of(class_of(batch, horizon)).make(self.shared.reserve(), apply)?;
        Ok(self.pend(&base, done, base.floor))
    }

    fn install(&self, applied: &Applied) {
        let done = self.versions.install(applied, |_, _, done| {
            if let Err(error) = self.count(&done.redo) {
                events::error!(%error, "nodes of an old version stay until the database is opened again");
            }
            for document in &done.documents {
                if let Err(error) = self.documents.retain(document, 0) {
                    events::error!(%error, "a document is counted only when the database is opened again");
                }
            }
            done
        });
        self.nodes.set_segment_bytes(self.shared.segment_bytes(self.nodes.stats().live_bytes));
        self.shared.renew(self.table, &done.made_nodes, &done.dropped_nodes);
    }

    fn discard(&self, applied: &Applied) {
        let done = self.versions.discard(applied);
        self.nodes.abandon_pending();
        done.documents.iter().for_each(|document| self.documents.abandon(document));
    }

    fn replay(&self, redo: &[u8]) -> Result<()> {
        let redo = Redo::decode(redo, self.table).map_err(|damage| damage.in_record("redo", self.table))?;
        self.count(&redo)?;
        redo.documents.iter().try_for_each(|retained: &Retained| self.documents.retain_in(retained))?;
        self.versions.replay(|current| Version { live: self.nodes.live(), floor: Seq(0), ..current.after(&redo) });
        Ok(())
    }

    fn root(&self) -> Vec<u8> {
        let commit = self.current().commit;
        Root { commit, nodes: self.nodes.image() }.encode()
    }

    fn is_empty(&self) -> bool {
        self.current().commit.place.is_none()
    }

    fn expires(&self) -> bool {
        self.current().header().expires
    }

    fn begin_load(&self, seq: Seq) -> Option<Box<dyn Load>> {
        let base = self.current();
        let is_empty = base.header().root.is_none();
        is_empty.then(|| Box::new(TrieLoad::new(base, Arc::clone(&self.documents), seq)) as Box<dyn Load>)
    }

    fn take_loaded(&self, loaded: Loaded, floor: Seq) -> Applied {
        self.pend(&self.current(), loaded.into_content(), floor)
    }

    fn history(&self) -> Option<&dyn History> {
        Some(self)
    }

    fn salvage(&self, rescue: &mut dyn Rescue) {
        salvage::salvage(&self.current(), rescue);
    }
}
