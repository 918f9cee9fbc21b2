//! What a data block and fences have in common: a head, and a column of keys that rise.
//!
//! ```text
//!  0  entries      u16  n, at least 1
//!  2  shared       u16  bytes that all keys begin with
//!  4  marks        u8 × 2
//!  6  base         u64  the lowest seq
//! 14  shared bytes of the keys
//!  .  ends of keys      u16 × n  of what is behind the shared bytes, from the first one on
//!  .  other columns
//!  .  keys, without the shared bytes
//! ```

use std::cmp::Ordering;
use std::ops::Range;

use codec::sized;
use index::Damage;

use super::{BLOCK_BYTES_MAX, Checked};

/// Bytes of a head.
pub(super) const HEAD: usize = 14;
/// Bytes of an end.
pub(super) const END: usize = size_of::<u16>();
/// Most entries. Each has two ends, or an end and a place.
pub(super) const ENTRIES_MAX: usize = BLOCK_BYTES_MAX / (2 * END);

/// The bytes that seqs up to `span` above the base take, each.
pub(super) const fn width_of(span: u64) -> u8 {
    let mut width = 0;
    while width < 8 && span >> (8 * width) != 0 {
        width += 1;
    }
    width
}

/// Writes a number that is at most [`BLOCK_BYTES_MAX`].
pub(super) fn put_end(out: &mut Vec<u8>, number: usize) {
    let number = u16::try_from(number).expect("a block is not that long");
    out.extend_from_slice(&number.to_le_bytes());
}

/// The head of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) entries: usize,
    pub(super) shared: usize,
    pub(super) marks: [u8; 2],
    pub(super) base: u64,
}

impl Head {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_end(out, self.entries);
        put_end(out, self.shared);
        out.extend_from_slice(&self.marks);
        out.extend_from_slice(&self.base.to_le_bytes());
    }

    /// The head of a block of these bytes, whose ends of keys are within them.
    pub(super) fn read(bytes: &[u8]) -> Checked<Self> {
        let damage = |at, what, expected: String, found: usize| Err(Damage::new(at, what, expected, found));
        if !(HEAD..=BLOCK_BYTES_MAX).contains(&bytes.len()) {
            return damage(0, "bytes of a block", format!("{HEAD} to {BLOCK_BYTES_MAX}"), bytes.len());
        }
        let head = Self {
            entries: sized::u16_at(bytes, 0).into(),
            shared: sized::u16_at(bytes, 2).into(),
            marks: [bytes[4], bytes[5]],
            base: sized::u64_at(bytes, 6),
        };
        if !(1..=ENTRIES_MAX).contains(&head.entries) {
            return damage(0, "entries of a block", format!("1 to {ENTRIES_MAX}"), head.entries);
        }
        if head.ends_of_keys() + head.entries * END > bytes.len() {
            return damage(2, "shared bytes of the keys of a block", "fewer".into(), head.shared);
        }
        Ok(head)
    }

    /// Where the column of the ends of keys begins.
    pub(super) const fn ends_of_keys(&self) -> usize {
        HEAD + self.shared
    }
}

/// An end of a column of them.
pub(super) fn end_of(bytes: &[u8], ends: usize, index: usize) -> usize {
    sized::u16_at(bytes, ends + index * END).into()
}

/// The place of an entry among those whose ends are in this column.
pub(super) fn place(bytes: &[u8], ends: usize, index: usize) -> Range<usize> {
    let start = index.checked_sub(1).map_or(0, |before| end_of(bytes, ends, before));
    start..end_of(bytes, ends, index)
}

/// The last end of a column, in which ends rise.
pub(super) fn rising(bytes: &[u8], ends: usize, count: usize) -> Checked<usize> {
    let mut last = 0;
    for index in 0..count {
        let end = end_of(bytes, ends, index);
        if end < last {
            return Err(Damage::new(ends + index * END, "end of an entry", format!("at least {last}"), end));
        }
        last = end;
    }
    Ok(last)
}

/// A number of so many bytes, at most eight.
pub(super) fn narrow(bytes: &[u8], at: usize, width: usize) -> u64 {
    let mut number = [0; size_of::<u64>()];
    number[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(number)
}

/// The number of those of `count` rising keys that are before `key`, and with `with_it` also of those that are alike;
/// `rest` gives what is behind the shared bytes of each.
fn before<'a>(shared: &[u8], count: usize, rest: impl Fn(usize) -> &'a [u8], key: &[u8], with_it: bool) -> usize {
    let part = &key[..key.len().min(shared.len())];
    match shared.cmp(part) {
        Ordering::Less => return count,
        Ordering::Greater => return 0,
        Ordering::Equal => {}
    }
    let wanted = &key[part.len()..];
    let (mut start, mut end) = (0, count);
    while start < end {
        let middle = start.midpoint(end);
        let is_before = match rest(middle).cmp(wanted) {
            Ordering::Less => true,
            Ordering::Equal => with_it,
            Ordering::Greater => false,
        };
        if is_before { start = middle + 1 } else { end = middle }
    }
    start
}

/// The first of `count` rising keys at or behind `key`; `count` where all come before.
pub(super) fn seek<'a>(shared: &[u8], count: usize, rest: impl Fn(usize) -> &'a [u8], key: &[u8]) -> usize {
    before(shared, count, rest, key, false)
}

/// The first of `count` rising keys behind `key`; `count` where none is.
pub(super) fn seek_behind<'a>(shared: &[u8], count: usize, rest: impl Fn(usize) -> &'a [u8], key: &[u8]) -> usize {
    before(shared, count, rest, key, true)
}

/// A column of keys that is being made.
#[derive(Clone, Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    shared: usize,
}

impl Keys {
    pub(super) const fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) const fn shared(&self) -> usize {
        self.shared
    }

    pub(super) fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    /// The last key; none before the first.
    pub(super) fn last(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|last| self.get(last))
    }

    /// Bytes that all keys begin with, `key` too.
    fn shared_with(&self, key: &[u8]) -> usize {
        if self.ends.is_empty() { key.len() } else { index::common_prefix(&self.bytes[..self.shared], key) }
    }

    /// Bytes of keys and ends, with this key too if one is given.
    pub(super) fn column_bytes(&self, key: Option<&[u8]>) -> usize {
        let shared = key.map_or(self.shared, |key| self.shared_with(key));
        let (count, bytes) = (self.len() + usize::from(key.is_some()), self.bytes.len() + key.map_or(0, <[u8]>::len));
        shared + count * END + (bytes - count * shared)
    }

    pub(super) fn push(&mut self, key: &[u8]) {
        self.shared = self.shared_with(key);
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Writes the shared bytes and the ends.
    pub(super) fn put_ends(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[..self.shared]);
        self.ends.iter().enumerate().for_each(|(index, end)| put_end(out, end - (index + 1) * self.shared));
    }

    /// Writes what is behind the shared bytes of each key.
    pub(super) fn put_rests(&self, out: &mut Vec<u8>) {
        (0..self.len()).for_each(|index| out.extend_from_slice(&self.get(index)[self.shared..]));
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.shared = 0;
    }
}
