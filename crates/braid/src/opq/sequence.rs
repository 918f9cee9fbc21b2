//! Operations in the order of their arrival: the bytes and entries of a queue, without an order for lookups.

use index::{DocPointer, Expiry, Operation, Payload, Seq, Update};
use wal::Lsn;

use super::{
    arena::{Arena, Place},
    entries::{Entries, Entry, Kind},
};

/// Stands for no entry.
pub(super) const NO_ENTRY: u32 = u32::MAX;

/// Operations in the order of their arrival.
#[derive(Default)]
pub(crate) struct Sequence {
    arena: Arena,
    entries: Entries,
}

impl Sequence {
    /// Appends one operation of the commit at `lsn`.
    pub(crate) fn append(&mut self, update: &Update<'_>, lsn: Lsn) {
        self.push(update, lsn, NO_ENTRY);
    }

    /// Appends one operation of the commit at `lsn`; `older` is the entry before on the same key.
    pub(super) fn push(&mut self, update: &Update<'_>, lsn: Lsn, older: u32) {
        let key_len = u16::try_from(update.key.len()).expect("keys are checked when a commit is admitted");
        let (kind, place, value_len, expires) = self.store(update);
        self.entries.push(Entry { place, value_len, older, seq: update.seq, lsn, key_len, kind, expires });
    }

    /// Sets the entry before on the key of entry `index`.
    pub(super) fn set_older(&mut self, index: u32, older: u32) {
        self.entries.set_older(index, older);
    }

    fn store(&mut self, update: &Update<'_>) -> (Kind, Place, u16, bool) {
        let expiry = update.operation.expiry().map(Expiry::encode);
        let behind = expiry.as_ref().map_or(&[][..], |expiry| expiry);
        let (kind, place, length) = match update.operation {
            Operation::Put(Payload::Inline(value), _) => {
                (Kind::Inline, self.arena.append(update.key, value, behind), value.len())
            }
            Operation::Put(Payload::Document(document), _) => {
                let pointer = document.encode();
                (Kind::Document, self.arena.append(update.key, &pointer, behind), pointer.len())
            }
            Operation::Delete => (Kind::Delete, self.arena.append(update.key, &[], behind), 0),
        };
        (kind, place, u16::try_from(length).expect("values in a queue are short"), expiry.is_some())
    }

    /// The number of operations.
    pub(crate) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.capacity() + self.entries.bytes()
    }

    /// Every operation with the log position of its commit.
    pub(crate) fn updates(&self) -> impl Iterator<Item = (Update<'_>, Lsn)> {
        (0..self.end()).map(|index| (self.update(index), self.lsn(index)))
    }

    /// The index of the next entry.
    pub(crate) fn end(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("the write buffer bounds a queue far below 2^32 operations")
    }

    /// The first entry of the commit `seq` or a later one. Requires that no entry is older than one before it.
    pub(super) fn first_since(&self, seq: Seq) -> u32 {
        let (mut low, mut high) = (0, self.end());
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle).seq < seq { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub(super) fn entry(&self, index: u32) -> Entry {
        self.entries.get(index)
    }

    /// The update that entry `index` holds.
    pub(crate) fn update(&self, index: u32) -> Update<'_> {
        let entry = self.entries.get(index);
        Update { key: self.key_of(&entry), seq: entry.seq, operation: self.operation(&entry) }
    }

    /// Log position of the commit of entry `index`.
    pub(super) fn lsn(&self, index: u32) -> Lsn {
        self.entries.get(index).lsn
    }

    pub(super) fn key(&self, index: u32) -> &[u8] {
        let (place, length) = self.entries.key(index);
        self.arena.bytes(place, 0, length.into())
    }

    fn key_of(&self, entry: &Entry) -> &[u8] {
        self.arena.bytes(entry.place, 0, entry.key_len.into())
    }

    fn value(&self, entry: &Entry) -> &[u8] {
        self.arena.bytes(entry.place, entry.key_len.into(), entry.value_len.into())
    }

    fn document(&self, entry: &Entry) -> DocPointer {
        DocPointer::decode(self.value(entry).try_into().expect("the queue encoded this pointer itself"))
    }

    fn operation(&self, entry: &Entry) -> Operation<'_> {
        match entry.kind {
            Kind::Inline => Operation::Put(Payload::Inline(self.value(entry)), self.expiry(entry)),
            Kind::Document => Operation::Put(Payload::Document(self.document(entry)), self.expiry(entry)),
            Kind::Delete => Operation::Delete,
        }
    }

    fn expiry(&self, entry: &Entry) -> Option<Expiry> {
        let behind = usize::from(entry.key_len) + usize::from(entry.value_len);
        if entry.expires { Expiry::decode(self.arena.bytes(entry.place, behind, Expiry::BYTES)) } else { None }
    }
}
