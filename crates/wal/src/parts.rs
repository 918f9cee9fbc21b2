//! Records that are longer than a segment: cut into parts, and put together from them.
//!
//! Invariant: a record is shown once all of its parts were taken, one right behind the other. Parts without the first
//! one, as where a chain begins amid a record, and parts without the last one, which a crash left, are passed over.

use seeded::Bug;

use crate::Lsn;
use crate::format::{GroupType, RECORD_HEADER, Record, Records, WholeGroup, record_header, record_space};

/// The parts of a record, as far as they were taken.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Position of the first part; none between records.
    lsn: Option<Lsn>,
    /// Header and payload of the record.
    bytes: Vec<u8>,
    /// Bytes of these up to the last part.
    taken: usize,
}

impl Parts {
    /// Takes the next group of a chain. Returns the records that are whole with this group. A group whose records were
    /// refused may be taken once more.
    pub(crate) fn take<'a>(&'a mut self, group: &WholeGroup<'a>) -> Records<'a> {
        let kind = group.header.kind;
        if !kind.is_part() || kind == GroupType::FirstPart {
            *self = Self::default();
        }
        let Some(part) = group.records.clone().next().filter(|_| kind.is_part()) else { return group.records.clone() };
        if kind == GroupType::FirstPart {
            self.lsn = Some(part.lsn);
            self.bytes.resize(RECORD_HEADER, 0);
            self.taken = RECORD_HEADER;
        }
        let Some(lsn) = self.lsn else { return Records::NONE };
        self.bytes.truncate(self.taken);
        self.bytes.reserve_exact(part.payload.len());
        self.bytes.extend_from_slice(part.payload);
        if kind == GroupType::LastPart || seeded::on(Bug::PartsTakenForWhole) {
            return self.whole(lsn, &part);
        }
        self.taken = self.bytes.len();
        Records::NONE
    }

    /// Gives the memory of a record back that ended with a group of this kind, and was shown.
    pub(crate) fn forget_shown(&mut self, kind: GroupType) {
        if kind == GroupType::LastPart {
            *self = Self::default();
        }
    }

    /// The record, whose last part is `last`.
    fn whole(&mut self, lsn: Lsn, last: &Record<'_>) -> Records<'_> {
        // A chain can hold more of a record than any append writes.
        let Ok(length) = u32::try_from(self.bytes.len() - RECORD_HEADER) else { return Records::NONE };
        self.bytes[..RECORD_HEADER].copy_from_slice(&record_header(last.kind, Some(0), length));
        self.bytes.resize(record_space(length as usize), 0);
        Records::of_parts(&self.bytes, lsn, last.seq)
    }
}

/// The bytes of `payload` from `from` to `to`.
pub(crate) fn stretch<'a>(payload: &[&'a [u8]], from: usize, to: usize) -> impl Iterator<Item = &'a [u8]> {
    let begins = payload.iter().scan(0, |end, part| {
        let begin = *end;
        *end += part.len();
        Some((begin, *part))
    });
    begins.filter_map(move |(begin, part)| {
        let (low, high) = (from.max(begin) - begin, to.min(begin + part.len()).saturating_sub(begin));
        part.get(low..high)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn stretches_of_gathered_bytes(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..5), cuts in any::<[u8; 2]>(),
        ) {
            let whole = parts.concat();
            let [one, other] = cuts.map(|cut| usize::from(cut) % (whole.len() + 1));
            let (from, to) = (one.min(other), one.max(other));
            let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
            let found: Vec<_> = stretch(&parts, from, to).collect();
            prop_assert_eq!(found.concat(), &whole[from..to]);
        }
    }
}
