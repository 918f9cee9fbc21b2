//! The entries of a queue, in little memory: the entry of a small operation should take no more than the operation
//! itself.
//!
//! 1. Entries sit in chunks of [`PER_CHUNK`], so growth moves only the first chunk.
//! 2. Entries of a chunk store seqs and log positions relative to the chunk's first entry: 20 bytes each.
//! 3. If an entry is too far from the first for that, its chunk is stored in full. This happens in queues with few
//!    writes.

use index::Seq;
use mapped::{List, Mapped};
use wal::Lsn;

use super::arena::Place;
use crate::words::structure::{INLINE_BYTES_MAX, KEY_BYTES_MAX};

/// Entries of a chunk.
const PER_CHUNK: usize = 4096;
/// Bit positions within the key's word, above its length less one: whether the value expires, and from where on the
/// kind.
const EXPIRES_BIT: u32 = 13;
const KIND_BIT: u32 = 14;

const _: () = assert!(KEY_BYTES_MAX <= 1 << EXPIRES_BIT && INLINE_BYTES_MAX <= u16::MAX as usize);

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Inline,
    Document,
    Delete,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Inline, Self::Document, Self::Delete];
}

/// One operation.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Place of key and value.
    pub(super) place: Place,
    /// The entry before on the same key.
    pub(super) older: u32,
    pub(super) seq: Seq,
    pub(super) lsn: Lsn,
    pub(super) key_len: u16,
    pub(super) value_len: u16,
    pub(super) kind: Kind,
    /// Whether an expiry is behind the value.
    pub(super) expires: bool,
}

/// An entry relative to the first of its chunk.
struct Narrow {
    place: Place,
    older: u32,
    seq: u32,
    lsn: u32,
    /// Length less one, whether the value expires, and kind. An empty key, which no user has, is stored in full.
    key: u16,
    value_len: u16,
}

const _: () = assert!(size_of::<Narrow>() == 20);

impl Narrow {
    const fn key_len(&self) -> u16 {
        (self.key & ((1 << EXPIRES_BIT) - 1)) + 1
    }
}

struct Base {
    seq: Seq,
    lsn: Lsn,
}

impl Base {
    fn narrow(&self, entry: &Entry) -> Option<Narrow> {
        let from = |base: u64, at: u64| at.checked_sub(base).and_then(|distance| u32::try_from(distance).ok());
        let (seq, lsn) = (from(self.seq.0, entry.seq.0)?, from(self.lsn.0, entry.lsn.0)?);
        let key =
            (entry.kind as u16) << KIND_BIT | u16::from(entry.expires) << EXPIRES_BIT | entry.key_len.checked_sub(1)?;
        Some(Narrow { place: entry.place, older: entry.older, seq, lsn, key, value_len: entry.value_len })
    }

    fn widen(&self, narrow: &Narrow) -> Entry {
        Entry {
            place: narrow.place,
            older: narrow.older,
            seq: Seq(self.seq.0 + u64::from(narrow.seq)),
            lsn: Lsn(self.lsn.0 + u64::from(narrow.lsn)),
            key_len: narrow.key_len(),
            value_len: narrow.value_len,
            kind: Kind::ALL[usize::from(narrow.key >> KIND_BIT)],
            expires: narrow.key >> EXPIRES_BIT & 1 == 1,
        }
    }
}

enum Chunk {
    Narrow(Base, List<Narrow>),
    Wide(List<Entry>),
}

impl Chunk {
    fn new(entry: Entry, capacity: usize) -> Self {
        let base = Base { seq: entry.seq, lsn: entry.lsn };
        match base.narrow(&entry) {
            Some(narrow) => Self::Narrow(base, list(narrow, capacity)),
            None => Self::Wide(list(entry, capacity)),
        }
    }

    fn push(&mut self, entry: Entry) {
        match self {
            Self::Wide(entries) => entries.push(entry),
            Self::Narrow(base, entries) => match base.narrow(&entry) {
                Some(narrow) => entries.push(narrow),
                None => {
                    let mut all = List::with_capacity_in(entries.capacity().max(entries.len() + 1), Mapped);
                    all.extend(entries.iter().map(|narrow| base.widen(narrow)).chain([entry]));
                    *self = Self::Wide(all);
                }
            },
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Narrow(_, entries) => entries.len(),
            Self::Wide(entries) => entries.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Narrow(_, entries) => mapped::taken(entries.capacity() * size_of::<Narrow>()),
            Self::Wide(entries) => mapped::taken(entries.capacity() * size_of::<Entry>()),
        }
    }
}

fn list<T>(first: T, capacity: usize) -> List<T> {
    let mut list = List::with_capacity_in(capacity, Mapped);
    list.push(first);
    list
}

/// The entries of a queue.
#[derive(Default)]
pub(super) struct Entries {
    chunks: Vec<Chunk>,
    len: usize,
    /// Bytes of all chunks but the last.
    full_bytes: usize,
}

/// The chunk of an entry, and its number there.
const fn chunk_of(index: u32) -> (usize, usize) {
    (index as usize / PER_CHUNK, index as usize % PER_CHUNK)
}

impl Entries {
    pub(super) fn push(&mut self, entry: Entry) {
        self.len += 1;
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < PER_CHUNK => chunk.push(entry),
            full => {
                self.full_bytes += full.map_or(0, |chunk| chunk.bytes());
                let capacity = if self.chunks.is_empty() { 1 } else { PER_CHUNK };
                self.chunks.push(Chunk::new(entry, capacity));
            }
        }
    }

    /// Sets the entry before on the same key.
    pub(super) fn set_older(&mut self, index: u32, older: u32) {
        let (chunk, index) = chunk_of(index);
        match &mut self.chunks[chunk] {
            Chunk::Narrow(_, entries) => entries[index].older = older,
            Chunk::Wide(entries) => entries[index].older = older,
        }
    }

    pub(super) fn get(&self, index: u32) -> Entry {
        let (chunk, index) = chunk_of(index);
        match &self.chunks[chunk] {
            Chunk::Narrow(base, entries) => base.widen(&entries[index]),
            Chunk::Wide(entries) => entries[index],
        }
    }

    /// Place and length of the key of an entry.
    pub(super) fn key(&self, index: u32) -> (Place, u16) {
        let (chunk, index) = chunk_of(index);
        match &self.chunks[chunk] {
            Chunk::Narrow(_, entries) => (entries[index].place, entries[index].key_len()),
            Chunk::Wide(entries) => (entries[index].place, entries[index].key_len),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.full_bytes + self.chunks.last().map_or(0, Chunk::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, kind: Kind) -> Entry {
        let place = super::super::arena::Arena::default().append(b"", b"", b"");
        let expires = number.is_multiple_of(2);
        Entry { place, older: 7, seq: Seq(number), lsn: Lsn(3 * number), key_len: 1024, value_len: 2048, kind, expires }
    }

    #[test]
    fn what_is_far_from_the_first_is_kept_as_well() {
        let far = u64::from(u32::MAX) / 3;
        let numbers: Vec<u64> =
            (0..3 * PER_CHUNK as u64).map(|index| if index % 8192 < 8000 { index } else { index * far }).collect();
        let mut entries = Entries::default();
        for (number, kind) in numbers.iter().zip(Kind::ALL.into_iter().cycle()) {
            entries.push(entry(*number, kind));
        }
        assert_eq!(entries.len(), numbers.len());
        for ((index, number), kind) in (0..).zip(&numbers).zip(Kind::ALL.into_iter().cycle()) {
            let found = entries.get(index);
            assert_eq!((found.seq, found.lsn, found.older), (Seq(*number), Lsn(3 * number), 7));
            assert_eq!((found.key_len, found.value_len), (1024, 2048));
            assert!(found.kind == kind && found.expires == number.is_multiple_of(2));
        }
    }

    #[test]
    fn an_older_seq_after_a_newer_one_is_kept_as_well() {
        let mut entries = Entries::default();
        [9, 4, 12].into_iter().for_each(|number| entries.push(entry(number, Kind::Inline)));
        assert_eq!((0..3).map(|index| entries.get(index).seq.0).collect::<Vec<_>>(), [9, 4, 12]);
    }

    #[test]
    fn small_operations_take_little() {
        let mut entries = Entries::default();
        (0..100 * PER_CHUNK as u64).for_each(|number| entries.push(entry(number, Kind::Inline)));
        assert_eq!(entries.bytes(), 20 * entries.len());
    }
}
