//! Loading: a trie from entries that come in key order.
//!
//! 1. Entries gather until there are [`BATCH_BYTES`] of them. Each such batch makes a version of its own at the right
//!    edge of the trie, as any batch does ([`crate::apply`]). No reader sees this version.
//! 2. The redos of all batches are joined into one at the end. A node that one batch made and a later one made anew is
//!    in neither list.
//! 3. The caller that ends the load flushes the written files at the end; if they become many, they are flushed
//!    meanwhile.
//!
//! Invariant: a load that is dropped leaves nothing behind but space that nothing refers to.

use std::collections::BTreeMap;
use std::sync::Arc;

use doclog::{DocLog, DocPointer, Retained, SegmentId, Unflushed};
use index::{Again, Batch, Error, Expiry, Horizon, Load, Loaded, Operation, Payload, Ready, Result, Seq, Update};

use crate::apply::{Apply, Done};
use crate::format::record::Redo;
use crate::version::Version;

/// Bytes of keys and values that are applied together.
const BATCH_BYTES: usize = 1 << 20;

/// Entries of one batch.
#[derive(Default)]
struct Entries {
    seq: Seq,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

struct Entry {
    /// The place where the entry begins, and the place of its value, if the value is in the bytes.
    start: usize,
    value: usize,
    document: Option<DocPointer>,
    expiry: Option<Expiry>,
}

impl Entries {
    fn push(&mut self, key: &[u8], payload: Payload<'_>, expiry: Option<Expiry>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let (value, document) = (self.bytes.len(), payload.document());
        if let Payload::Inline(bytes) = payload {
            self.bytes.extend_from_slice(bytes);
        }
        self.entries.push(Entry { start, value, document, expiry });
    }
}

impl Batch for Entries {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn get(&self, index: usize) -> Update<'_> {
        let entry = &self.entries[index];
        let end = self.entries.get(index + 1).map_or(self.bytes.len(), |next| next.start);
        let payload = match entry.document {
            Some(document) => Payload::Document(document),
            None => Payload::Inline(&self.bytes[entry.value..end]),
        };
        let operation = Operation::Put(payload, entry.expiry);
        Update { key: &self.bytes[entry.start..entry.value], seq: self.seq, operation }
    }

    fn through(&self) -> Seq {
        self.seq
    }
}

/// A trie under construction.
pub(crate) struct TrieLoad {
    parts: Parts,
    base: Arc<Version>,
    horizon: Horizon,
    entries: Entries,
    last_key: Vec<u8>,
    redo: Option<Redo>,
    documents: Vec<DocPointer>,
    files: Unflushed,
    is_done: bool,
}

/// The parts of its trie that a load needs.
struct Parts {
    nodes: Arc<DocLog>,
    documents: Arc<DocLog>,
}

impl Load for TrieLoad {
    fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    fn push(&mut self, key: &[u8], payload: Payload<'_>, expiry: Option<Expiry>, ready: &Ready<'_>) -> Result<()> {
        debug_assert!(key > self.last_key.as_slice(), "keys rise");
        self.entries.push(key, payload, expiry);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        if self.entries.bytes.len() >= BATCH_BYTES {
            ready()?;
            self.write()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, ready: &Ready<'_>) -> Result<Loaded> {
        ready()?;
        self.write()?;
        self.is_done = true;
        let done = Done {
            redo: self.redo.take().expect("something was written, if only a header"),
            dropped_documents: Vec::new(),
            documents: std::mem::take(&mut self.documents),
            again: Again::default(),
            made_nodes: Vec::new(),
            dropped_nodes: Vec::new(),
            files: self.files.take(),
        };
        Ok(Loaded::new(done.files.clone(), done))
    }
}

impl TrieLoad {
    pub(crate) fn new(base: Arc<Version>, documents: Arc<DocLog>, seq: Seq) -> Self {
        Self {
            parts: Parts { nodes: Arc::clone(&base.nodes), documents },
            base,
            horizon: Horizon::default(),
            entries: Entries { seq, ..Entries::default() },
            last_key: Vec::new(),
            redo: None,
            documents: Vec::new(),
            files: Unflushed::default(),
            is_done: false,
        }
    }

    /// Makes a version with the gathered entries.
    fn write(&mut self) -> Result<()> {
        self.base.shared.reserve().fill().map_err(Error::Space)?;
        let seq = self.entries.seq;
        let progress = |_: usize| {};
        let apply =
            Apply::new(&self.base, &self.parts.documents, &self.entries, &self.horizon, Again::default(), &progress);
        let done = apply.run()?;
        let version = self.base.after(&done.redo);
        version.shared.renew(version.header().table, &done.made_nodes, &done.dropped_nodes);
        let before = self.redo.take();
        self.redo = Some(before.map_or_else(|| done.redo.clone(), |before| joined(before, &done.redo)));
        self.documents.extend(done.documents);
        self.files.add(version.shared.psync(), done.files)?;
        self.base = Arc::new(version);
        self.entries = Entries { seq, ..Entries::default() };
        Ok(())
    }
}

/// Joins two redos into one; `after` comes behind `before`.
fn joined(before: Redo, after: &Redo) -> Redo {
    let sum = |lists: [&[Retained]; 2]| {
        let mut segments: BTreeMap<SegmentId, Retained> = BTreeMap::new();
        for made in lists.into_iter().flatten() {
            let segment = segments.entry(made.segment).or_insert(Retained { bytes: 0, end: 0, ..*made });
            segment.bytes += made.bytes;
            segment.end = segment.end.max(made.end);
        }
        segments
    };
    let mut made = sum([&before.made, &after.made]);
    let mut dropped: BTreeMap<SegmentId, u64> = before.dropped.into_iter().collect();
    for (segment, bytes) in &after.dropped {
        // Bytes dropped by the later redo are first those that the earlier one made, then those that were there before
        // both.
        let of_made = made.get_mut(segment).map_or(0, |made| {
            let of_made = made.bytes.min(*bytes);
            made.bytes -= of_made;
            of_made
        });
        *dropped.entry(*segment).or_default() += bytes - of_made;
    }
    dropped.retain(|_, bytes| *bytes > 0);
    Redo {
        commit: after.commit,
        made: made.into_values().filter(|made| made.bytes > 0).collect(),
        dropped: dropped.into_iter().collect(),
        documents: sum([&before.documents, &after.documents]).into_values().collect(),
    }
}

impl Drop for TrieLoad {
    fn drop(&mut self) {
        if !self.is_done {
            // Nothing else may change the trie meanwhile, so all pending bytes are of this load.
            self.parts.nodes.abandon_pending();
            self.documents.iter().for_each(|document| self.parts.documents.abandon(document));
        }
    }
}
