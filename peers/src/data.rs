//! Records as functions of their number.
//!
//! 1. The keys are those of `bench::keys`: they sort as their indexes do, and tell whether they are whole. Record `n`
//!    has the index `4n`, so between any two records there are indexes that are never loaded: those of [`absent`] keys,
//!    and those that a workload [`inserted`].
//! 2. The values are those of `bench::values`: a value alone tells whether it is a whole value of its record.
//!
//! Invariant: every byte that a store shows is checked; a wrong byte is an error, never a rate.

use bench::{keys, values};

use crate::error::{Error, Result};

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;
/// Indexes from one record to the next.
const STEP: u64 = 4;

/// A key.
pub(crate) type Key = [u8; KEY_BYTES];

/// A key and its value, as given to a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) value: Vec<u8>,
}

impl Record {
    /// Makes this the record of the index, with the value that `nonce` names.
    pub(crate) fn become_index(&mut self, index: u64, nonce: u64, value_bytes: usize) {
        keys::write(index, &mut self.key);
        self.value.resize(value_bytes, 0);
        values::write(index, nonce, &mut self.value);
    }
}

/// The index of a loaded record.
pub(crate) const fn loaded(record: u64) -> u64 {
    record * STEP
}

/// An index behind a record at which nothing is ever put.
pub(crate) const fn absent(record: u64) -> u64 {
    record * STEP + 2
}

/// The index at which a workload inserts a record behind a loaded one.
pub(crate) const fn inserted(record: u64) -> u64 {
    record * STEP + 1
}

/// The key of an index.
pub(crate) fn key(index: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    keys::write(index, &mut key);
    key
}

/// Whether a value is a whole value of the index.
pub(crate) fn is_right(index: u64, value: &[u8], value_bytes: usize) -> bool {
    value.len() == value_bytes && values::is_right(index, value)
}

/// An error where a value is missing or not one of its record.
pub(crate) fn check(index: u64, value: Option<&[u8]>, value_bytes: usize) -> Result<()> {
    match value {
        Some(value) if is_right(index, value, value_bytes) => Ok(()),
        Some(value) => Err(Error::Wrong(format!("index {index} has {} bytes that nobody wrote", value.len()))),
        None => Err(Error::Wrong(format!("index {index} is not there"))),
    }
}

/// Checks the pairs of a scan: keys rise, no loaded record is left out, values are right.
#[derive(Debug)]
pub(crate) struct ScanCheck {
    value_bytes: usize,
    /// The index of the next loaded record.
    next: u64,
    last: Option<u64>,
    records: u64,
    wrong: Option<String>,
}

impl ScanCheck {
    /// A check of a scan that begins at loaded record `first`.
    pub(crate) const fn new(first: u64, value_bytes: usize) -> Self {
        Self { value_bytes, next: loaded(first), last: None, records: 0, wrong: None }
    }

    /// Checks the next pair of the scan.
    pub(crate) fn see(&mut self, key: &[u8], value: &[u8]) {
        if self.wrong.is_none()
            && let Err(wrong) = self.look(key, value)
        {
            self.wrong = Some(wrong);
        }
    }

    fn look(&mut self, key: &[u8], value: &[u8]) -> std::result::Result<(), String> {
        let index = keys::index(key).ok_or_else(|| "a scan shows a key that nobody put".to_owned())?;
        if self.last.is_some_and(|last| last >= index) {
            return Err(format!("a scan shows index {index} behind a key that is not smaller"));
        }
        self.last = Some(index);
        if index > self.next || index.is_multiple_of(STEP) && index != self.next {
            return Err(format!("a scan shows index {index} where {} was due", self.next));
        }
        if index == self.next {
            self.next += STEP;
            self.records += 1;
        }
        if is_right(index, value, self.value_bytes) {
            return Ok(());
        }
        Err(format!("a scan shows {} bytes for index {index} that nobody wrote", value.len()))
    }

    /// Loaded records that the scan has shown. An error where anything was wrong.
    pub(crate) fn records(self) -> Result<u64> {
        match self.wrong {
            Some(wrong) => Err(Error::Wrong(wrong)),
            None => Ok(self.records),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE_BYTES: usize = 100;

    fn scan(indexes: &[u64]) -> Result<u64> {
        let mut check = ScanCheck::new(2, VALUE_BYTES);
        let mut record = Record::default();
        for index in indexes {
            record.become_index(*index, 7, VALUE_BYTES);
            check.see(&record.key, &record.value);
        }
        check.records()
    }

    #[test]
    fn a_scan_may_show_what_was_inserted_between() {
        assert_eq!(scan(&[8, 9, 12, 16, 17]).expect("right"), 3);
    }

    #[test]
    fn a_scan_that_leaves_out_or_turns_round_is_wrong() {
        for wrong in [&[8, 16][..], &[12], &[8, 9, 9], &[8, 12, 8], &[13]] {
            assert!(matches!(scan(wrong), Err(Error::Wrong(_))), "{wrong:?}");
        }
    }

    #[test]
    fn a_foreign_value_or_key_is_wrong() {
        let mut record = Record::default();
        record.become_index(8, 7, VALUE_BYTES);
        record.value[40] ^= 1;
        let mut check = ScanCheck::new(2, VALUE_BYTES);
        check.see(&record.key, &record.value);
        assert!(check.records().is_err());
        let mut check = ScanCheck::new(2, VALUE_BYTES);
        check.see(b"somebody else's!", &record.value);
        assert!(check.records().is_err());
    }

    #[test]
    fn values_are_those_of_their_index_and_size() {
        let mut record = Record::default();
        record.become_index(loaded(5), 1, VALUE_BYTES);
        assert!(check(loaded(5), Some(&record.value), VALUE_BYTES).is_ok());
        assert!(check(loaded(6), Some(&record.value), VALUE_BYTES).is_err());
        assert!(check(loaded(5), Some(&record.value), VALUE_BYTES + 1).is_err());
        assert!(check(loaded(5), None, VALUE_BYTES).is_err());
    }
}
