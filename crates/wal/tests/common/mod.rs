//! What the tests of the log share: a log on a simulated disk, and a model of what must be in it.

#![allow(clippy::allow_attributes, dead_code, reason = "each test binary uses a part")]

pub(crate) mod crash;

use std::path::Path;
use std::sync::Arc;

use psync::sim::SimDisk;
use space::FileStore;
use wal::{Alone, Claim, Error, Group, Lsn, Options, Replayed, Verdict, Wal};

pub(crate) const DATABASE: [u8; 16] = *b"sixteen bytes id";
pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;

/// A record, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) lsn: Lsn,
    pub(crate) kind: u8,
    pub(crate) seq: u64,
    pub(crate) payload: Vec<u8>,
}

/// A generator whose numbers follow from its seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a usize")
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

pub(crate) fn options(epoch: u64) -> Options {
    Options { segment_bytes: SEGMENT_BYTES, ..Options::new(DATABASE, epoch) }
}

pub(crate) fn store(disk: &SimDisk) -> FileStore {
    FileStore::open(disk.psync(), Path::new("/db"), false).expect("the store opens")
}

pub(crate) fn owned(group: &Group<'_>) -> impl Iterator<Item = Owned> {
    group.records().map(|record| Owned {
        lsn: record.lsn,
        kind: record.kind,
        seq: record.seq,
        payload: record.payload.to_vec(),
    })
}

/// Opens a log without companions, accepting everything.
pub(crate) fn open(store: &FileStore, options: &Options) -> Result<(Wal, Replayed, Vec<Owned>), Error> {
    let mut records = Vec::new();
    let (wal, replayed) = Wal::open(store, options, Arc::new(Alone), &mut |group| {
        records.extend(owned(group));
        Ok::<_, Error>(Verdict::Accept)
    })?;
    Ok((wal, replayed, records))
}

/// Appends a sequenced record.
pub(crate) fn append(wal: &Wal, kind: u8, payload: &[u8]) -> Owned {
    let position = wal.append(kind, &[payload], true, Claim::Put).expect("it is appended");
    Owned { lsn: position.lsn, kind, seq: position.seq, payload: payload.to_vec() }
}

/// Appends and flushes a sequenced record.
pub(crate) fn commit(wal: &Wal, kind: u8, payload: &[u8]) -> Owned {
    let record = append(wal, kind, payload);
    wal.flush_through(wal.end()).expect("it is flushed");
    record
}
