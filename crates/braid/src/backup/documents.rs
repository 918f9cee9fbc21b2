//! Values that are documents, copied in the order of their places.
//!
//! Documents are not stored in key order, so reading them by key is reading at random. Instead:
//!
//! 1. Keys and places are gathered from stretches, up to the size of the write buffer and [`GATHERED_BYTES_MAX`].
//! 2. They are sorted by place.
//! 3. The documents are read in portions. While one portion is written, the next is being read.
//! 4. The documents are written as changes, because changes need no key order.

use std::sync::Arc;

use index::{DocPointer, Expiry};

use super::{
    encoder::Encoder,
    format::{Change, Pair},
};
use crate::{
    engine::Engine, error::Result, handles::table::Table, tables::catalog::TableState, words::portions::first_portion,
};

/// Most bytes of gathered keys and places, apart from those of a single stretch.
const GATHERED_BYTES_MAX: usize = 32 << 20;
/// Bytes of documents read together.
const PORTION_BYTES: u64 = 8 << 20;
/// Documents read together.
const PORTION_DOCUMENTS: usize = 4096;

struct Document {
    place: DocPointer,
    key: Box<[u8]>,
    expiry: Option<Expiry>,
}

/// Documents of a stretch. The table state in this value keeps them readable.
pub(super) struct Documents {
    list: Vec<Document>,
    bytes: usize,
    state: Arc<TableState>,
}

impl Documents {
    pub(super) const fn new(state: Arc<TableState>) -> Self {
        Self { list: Vec::new(), bytes: 0, state }
    }

    pub(super) fn push(&mut self, key: &[u8], place: DocPointer, expiry: Option<Expiry>) {
        self.bytes += size_of::<Document>() + key.len();
        self.list.push(Document { place, key: key.into(), expiry });
    }
}

/// Documents of several stretches.
pub(super) struct Gathered {
    list: Vec<Document>,
    bytes: usize,
    bytes_max: usize,
    /// The table states that refer to the documents.
    states: Vec<Arc<TableState>>,
}

impl Gathered {
    pub(super) fn new(engine: &Engine) -> Self {
        let buffer = usize::try_from(engine.pressure.budget()).unwrap_or(usize::MAX);
        Self { list: Vec::new(), bytes: 0, bytes_max: buffer.min(GATHERED_BYTES_MAX), states: Vec::new() }
    }

    /// Adds the documents of a stretch if there is room. Returns false when the documents were left out.
    pub(super) fn add(&mut self, documents: Documents) -> bool {
        if !self.list.is_empty() && self.bytes + documents.bytes > self.bytes_max {
            return documents.list.is_empty();
        }
        if !documents.list.is_empty() {
            self.list.extend(documents.list);
            self.bytes += documents.bytes;
            if !self.states.iter().any(|state| Arc::ptr_eq(state, &documents.state)) {
                self.states.push(documents.state);
            }
        }
        true
    }

    /// Writes the documents. Returns their number.
    pub(super) fn write(mut self, table: &Table, encoder: &mut Encoder<'_>) -> Result<u64> {
        self.list.sort_unstable_by_key(|document| document.place);
        let read = |portion: &[Document]| {
            let places: Vec<DocPointer> = portion.iter().map(|document| document.place).collect();
            table.core.documents.read_ahead(&places)
        };
        let mut portions = portions(&self.list);
        let mut next = portions.next().map(|portion| (portion, read(portion)));
        while let Some((portion, reading)) = next {
            next = portions.next().map(|portion| (portion, read(portion)));
            for (Document { key, expiry, .. }, value) in portion.iter().zip(reading.finish()) {
                encoder.change(&Change::Put(table.core.id, Pair::whole(key, &value?).until(*expiry)))?;
            }
        }
        Ok(self.list.len() as u64)
    }
}

/// Cuts the list into portions read together.
fn portions(mut list: &[Document]) -> impl Iterator<Item = &[Document]> {
    std::iter::from_fn(move || {
        let most = &list[..list.len().min(PORTION_DOCUMENTS)];
        let portion = first_portion(most, PORTION_BYTES, |document| document.place.length.original());
        list = &list[portion.len()..];
        (!portion.is_empty()).then_some(portion)
    })
}
