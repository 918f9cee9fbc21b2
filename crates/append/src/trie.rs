//! The trie of one table.

use std::collections::BTreeMap;
use std::sync::Arc;

use doclog::{Content, DocImage, DocLog, DocPointer, Retained, SegmentId};
use index::{Again, Applied, Batch, Error, Horizon, Index, Result, TableId, View};
use parking_lot::Mutex;

use crate::apply::{Apply, Done};
use crate::format::Damage;
use crate::format::node::Node;
use crate::format::record::{Commit, Header, Redo, Root};
use crate::shared::Shared;
use crate::version::Version;

/// A version that was applied and not published yet.
struct Pending {
    version: Arc<Version>,
    done: Done,
}

impl Pending {
    /// The one that `applied` is about, which must be the last.
    fn take(state: &mut State, applied: &Applied) -> Self {
        let pending = state.pending.take().expect("what is published or discarded was applied, once");
        assert!(applied.is_of(&pending.version), "what is published or discarded is what was applied last");
        pending
    }
}

struct State {
    current: Arc<Version>,
    pending: Option<Pending>,
    /// What batches have left for later ones to look at.
    again: Again,
}

/// An append-only HB+-trie.
pub struct Trie {
    shared: Arc<Shared>,
    table: TableId,
    nodes: Arc<DocLog>,
    documents: Arc<DocLog>,
    state: Mutex<State>,
}

impl Trie {
    /// An empty trie with chunks of `chunk_bytes`, 1 to [`crate::KEY_BYTES_MAX`]: with the longest it is a plain B+-tree. Values that are too
    /// large for its nodes go to `documents`. Nothing is written.
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
    /// [`Error::Corrupt`] when `root` is not the root record of this table; or when files of node segments cannot be listed.
    pub fn open(shared: Arc<Shared>, table: TableId, documents: Arc<DocLog>, root: &[u8]) -> Result<Self> {
        let root = Root::decode(root, table).map_err(|damage| record_error("root record", table, damage))?;
        Self::with(shared, documents, root)
    }

    fn with(shared: Arc<Shared>, documents: Arc<DocLog>, root: Root) -> Result<Self> {
        let Root { commit, nodes } = root;
        let table = commit.header.table;
        let nodes = Arc::new(DocLog::open_of(Content::Nodes, shared.store(), table.0, &nodes, shared.segment_bytes())?);
        let live = nodes.live();
        let current = Version { shared: Arc::clone(&shared), nodes: Arc::clone(&nodes), commit, live };
        let state = State { current: Arc::new(current), pending: None, again: Again::default() };
        Ok(Self { shared, table, nodes, documents, state: Mutex::new(state) })
    }

    /// Room of its node segments.
    #[must_use]
    pub fn node_stats(&self) -> doclog::Stats {
        self.nodes.stats()
    }

    /// Unlinks the node segments that had no live bytes at the last [`Index::root`]. The caller has made the checkpoint with that root durable, and
    /// knows that nobody reads an older view.
    ///
    /// # Errors
    /// When a file cannot be removed; it is tried again by the next call.
    pub fn release_dead(&self) -> Result<()> {
        self.nodes.release_dead(u64::MAX)?;
        Ok(())
    }

    /// Unlinks all node segments: the table is dropped. Nothing may be applied or read afterwards.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn destroy(&self) -> Result<()> {
        Ok(self.nodes.destroy()?)
    }

    fn current(&self) -> Arc<Version> {
        Arc::clone(&self.state.lock().current)
    }

    fn version(&self, commit: Commit, live: BTreeMap<SegmentId, u64>) -> Version {
        Version { shared: Arc::clone(&self.shared), nodes: Arc::clone(&self.nodes), commit, live }
    }

    /// Counts what a version has made and what it does not refer to any more.
    fn count(&self, redo: &Redo) -> Result<()> {
        redo.made.iter().try_for_each(|made| self.nodes.retain_in(made))?;
        // Of what was appended for it the rest is not referred to either.
        self.nodes.abandon_pending();
        redo.dropped.iter().try_for_each(|(segment, bytes)| self.nodes.drop_in(*segment, *bytes))?;
        Ok(())
    }

    fn keep(&self, made: &[(DocPointer, Arc<Node>)], dropped: &[DocPointer]) {
        made.iter().for_each(|(pointer, node)| self.shared.keep(self.table, pointer, node));
        dropped.iter().for_each(|pointer| self.shared.forget(self.table, pointer));
    }
}

/// What is live in each segment after what a redo tells.
fn live_with(before: &BTreeMap<SegmentId, u64>, redo: &Redo) -> BTreeMap<SegmentId, u64> {
    let mut live = before.clone();
    redo.made.iter().for_each(|made| *live.entry(made.segment).or_default() += made.bytes);
    for (segment, bytes) in &redo.dropped {
        live.entry(*segment).and_modify(|live| *live = live.saturating_sub(*bytes));
    }
    live.retain(|_, bytes| *bytes > 0);
    live
}

fn record_error(what: &str, table: TableId, damage: Damage) -> Error {
    Error::Corrupt {
        file: format!("{what} of table {}", table.0),
        offset: damage.offset as u64,
        what: damage.what,
        expected: damage.expected,
        found: damage.found,
    }
}

impl Index for Trie {
    fn view(&self) -> Arc<dyn View> {
        self.current()
    }

    fn apply(&self, batch: &dyn Batch, horizon: &Horizon, progress: &dyn Fn(usize)) -> Result<Applied> {
        let (base, again) = {
            let state = self.state.lock();
            (Arc::clone(&state.current), state.again.clone())
        };
        let mut done = Apply::new(&base, &self.documents, batch, horizon, again, progress).run()?;
        let redo = done.redo.encode();
        let dropped_documents = std::mem::take(&mut done.dropped_documents);
        let files = std::mem::take(&mut done.files);
        let version = Arc::new(self.version(done.redo.commit, live_with(&base.live, &done.redo)));
        self.state.lock().pending = Some(Pending { version: Arc::clone(&version), done });
        Ok(Applied { view: version, redo, dropped_documents, files })
    }

    fn publish(&self, applied: &Applied) {
        let mut state = self.state.lock();
        let Pending { version, done } = Pending::take(&mut state, applied);
        if let Err(error) = self.count(&done.redo) {
            tracing::error!(%error, "nodes of an old version stay until the database is opened again");
        }
        for document in &done.documents {
            if let Err(error) = self.documents.retain(document, 0) {
                tracing::error!(%error, "a document is counted only when the database is opened again");
            }
        }
        state.again = done.again;
        state.current = version;
        drop(state);
        self.keep(&done.made_nodes, &done.dropped_nodes);
    }

    fn discard(&self, applied: &Applied) {
        let Pending { done, .. } = Pending::take(&mut self.state.lock(), applied);
        self.nodes.abandon_pending();
        done.documents.iter().for_each(|document| self.documents.abandon(document));
    }

    fn replay(&self, redo: &[u8]) -> Result<()> {
        let redo = Redo::decode(redo, self.table).map_err(|damage| record_error("redo", self.table, damage))?;
        self.count(&redo)?;
        redo.documents.iter().try_for_each(|retained: &Retained| self.documents.retain_in(retained))?;
        let mut state = self.state.lock();
        state.current = Arc::new(self.version(redo.commit, self.nodes.live()));
        state.pending = None;
        Ok(())
    }

    fn root(&self) -> Vec<u8> {
        let commit = self.current().commit;
        Root { commit, nodes: self.nodes.image() }.encode()
    }
}
