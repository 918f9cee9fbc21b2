//! Writing runs: the length of a run, the updates that fit, and the encoding.
//!
//! 1. [`RunSize`] adds up updates one by one. The run is uniform as long as all updates have one shape. The first one
//!    of another shape makes the run general, and every update then takes more bytes.
//! 2. [`Plan::fit`] takes updates while the run fits. Where an update of another shape makes the run too long, the run
//!    ends before that update and stays uniform.
//! 3. [`Plan::encode`] writes the planned run.
//!
//! Invariant: a run with one update more is longer, and no run is longer than the general run of its updates. So a page
//! takes at least the updates that it would take if there were general runs only.

use index::{Operation, Payload, Update};

use super::{
    ENTRY_FIXED, EXPIRY_BYTES, Identity, RUN_HEADER, SHAPE, SLOT, Shape, TYPE_GENERAL, TYPE_UNIFORM, UNIFORM_HEADER,
    short,
};

/// The number of bytes that hold `span`.
pub(super) const fn seq_width(span: u64) -> usize {
    (64 - span.leading_zeros() as usize).div_ceil(8)
}

/// The length of a run of some updates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunSize {
    /// Bytes of keys and values.
    data: usize,
    count: usize,
    base: u64,
    last: u64,
    /// The shape of all updates, if they make a uniform run.
    pub(super) shape: Option<Shape>,
}

impl RunSize {
    /// The size without updates.
    pub(crate) const fn new() -> Self {
        Self { data: 0, count: 0, base: u64::MAX, last: 0, shape: None }
    }

    /// The size with one more update.
    #[inline]
    pub(crate) fn with(&self, update: &Update<'_>) -> Self {
        let shape = Shape::of(update);
        let uniform = if self.count == 0 { shape.is_long_enough() } else { self.shape == Some(shape) };
        Self {
            data: self.data + shape.bytes(),
            count: self.count + 1,
            base: self.base.min(update.seq.0),
            last: self.last.max(update.seq.0),
            shape: uniform.then_some(shape),
        }
    }

    const fn width(&self) -> usize {
        seq_width(self.last.saturating_sub(self.base))
    }

    /// Number of updates.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the run.
    #[inline]
    pub(crate) const fn bytes(&self) -> usize {
        let fixed = match self.shape {
            Some(_) => UNIFORM_HEADER,
            None => RUN_HEADER + ENTRY_FIXED * self.count,
        };
        fixed + self.data + self.width() * self.count
    }

    /// The plan of the run of these updates.
    pub(super) const fn plan(&self) -> Plan {
        Plan { count: self.count, bytes: self.bytes(), base: self.base, width: self.width(), shape: self.shape }
    }
}

/// A run to be written: the first updates, as many as fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Number of updates.
    pub(crate) count: usize,
    /// Bytes of the run.
    pub(crate) bytes: usize,
    base: u64,
    width: usize,
    /// The shape of all entries, in a uniform run.
    shape: Option<Shape>,
}

impl Plan {
    /// Takes as many of the first updates as fit in `room` bytes, at most a page. None where not one fits.
    pub(crate) fn fit<'a>(updates: impl Iterator<Item = Update<'a>>, room: usize) -> Option<Self> {
        let mut size = RunSize::new();
        for update in updates {
            let next = size.with(&update);
            if next.bytes() > room {
                break;
            }
            size = next;
        }
        (size.count > 0).then_some(size.plan())
    }

    /// Writes the run over `out`, which has exactly the planned length; returns the run's CRC.
    pub(crate) fn encode<'a>(
        &self, updates: impl Iterator<Item = Update<'a>>, identity: &Identity, position: u32, previous: u32,
        out: &mut [u8],
    ) -> u32 {
        self.encode_header(out);
        let mut at = self.entries_at();
        for (index, update) in updates.take(self.count).enumerate() {
            if self.shape.is_none() {
                let slot = RUN_HEADER + SLOT * index;
                out[slot..slot + SLOT].copy_from_slice(&short(at).to_le_bytes());
            }
            at = encode_entry(&update, self.shape, update.seq.0 - self.base, self.width, at, out);
        }
        assert_eq!(at, self.bytes, "the entries are those that were planned");
        let crc = identity.crc(position, previous, out);
        out[2..6].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Where the entries begin.
    pub(super) const fn entries_at(&self) -> usize {
        match self.shape {
            Some(_) => UNIFORM_HEADER,
            None => RUN_HEADER + SLOT * self.count,
        }
    }

    /// Writes everything before slots and entries, except the CRC.
    pub(super) fn encode_header(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.bytes, "a run is written where it was planned");
        out[..2].copy_from_slice(&short(self.bytes).to_le_bytes());
        out[6] = if self.shape.is_some() { TYPE_UNIFORM } else { TYPE_GENERAL };
        out[7] = short(self.width).to_le_bytes()[0];
        out[8..10].copy_from_slice(&short(self.count).to_le_bytes());
        out[10..18].copy_from_slice(&self.base.to_le_bytes());
        if let Some(shape) = self.shape {
            out[RUN_HEADER..UNIFORM_HEADER].copy_from_slice(&shape.encode());
        }
    }
}

/// Writes an entry to `at`, in a uniform run if there is a `shape`; returns the entry's end.
#[inline]
pub(super) fn encode_entry(
    update: &Update<'_>, shape: Option<Shape>, delta: u64, width: usize, at: usize, out: &mut [u8],
) -> usize {
    let seq_at = match shape {
        Some(shape) => {
            debug_assert_eq!(shape, Shape::of(update), "entries of a uniform run have one shape");
            at
        }
        None => {
            out[at..at + SHAPE].copy_from_slice(&Shape::of(update).encode());
            at + SHAPE
        }
    };
    let key_at = seq_at + width;
    out[seq_at..key_at].copy_from_slice(&delta.to_le_bytes()[..width]);
    let value_at = key_at + update.key.len();
    out[key_at..value_at].copy_from_slice(update.key);
    let value_end = match update.operation {
        Operation::Put(Payload::Inline(value), _) => {
            out[value_at..value_at + value.len()].copy_from_slice(value);
            value_at + value.len()
        }
        Operation::Put(Payload::Document(document), _) => {
            let pointer = document.encode();
            out[value_at..value_at + pointer.len()].copy_from_slice(&pointer);
            value_at + pointer.len()
        }
        Operation::Delete => value_at,
    };
    match update.operation.expiry() {
        Some(expiry) => {
            out[value_end..value_end + EXPIRY_BYTES].copy_from_slice(&expiry.encode());
            value_end + EXPIRY_BYTES
        }
        None => value_end,
    }
}
