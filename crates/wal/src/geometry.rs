//! The mapping of log positions to segments.

use crate::format::{GROUP_HEADER, RECORD_HEADER, SEGMENT_HEADER};
use crate::{Error, Lsn, Result};

/// The largest position; a log that writes 1 GB/s reaches this position after a hundred years.
pub(crate) const LSN_MAX: u64 = 1 << 62;

const SEGMENT_BYTES_MIN: u64 = 16 << 10;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// The size of segments, and the quantities that follow from the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    segment_bytes: u64,
}

impl Geometry {
    pub(crate) fn new(segment_bytes: u64) -> Result<Self> {
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes)
            || !segment_bytes.is_multiple_of(SEGMENT_HEADER as u64)
        {
            return Err(Error::InvalidOptions(format!(
                "segments of {segment_bytes} bytes: the size must be a multiple of {SEGMENT_HEADER} from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            )));
        }
        Ok(Self { segment_bytes })
    }

    pub(crate) fn segment_bytes(self) -> u64 {
        self.segment_bytes
    }

    /// The size of a segment as a length in memory.
    pub(crate) fn segment_len(self) -> usize {
        usize::try_from(self.segment_bytes).expect("segments are at most 1 GiB")
    }

    /// Number of the segment that holds a position.
    pub(crate) fn number(self, lsn: Lsn) -> u64 {
        lsn.0 / self.segment_bytes
    }

    /// Offset of a position in its segment's file.
    pub(crate) fn offset(self, lsn: Lsn) -> usize {
        usize::try_from(lsn.0 % self.segment_bytes).expect("below the segment size, which is at most 1 GiB")
    }

    /// The position of the first byte of a segment.
    pub(crate) fn base(self, number: u64) -> Lsn {
        Lsn(number.saturating_mul(self.segment_bytes))
    }

    /// The position of the first group of a segment.
    pub(crate) fn first(self, number: u64) -> Lsn {
        Lsn(self.base(number).0.saturating_add(SEGMENT_HEADER as u64))
    }

    /// Bytes from a position to the end of its segment.
    pub(crate) fn rest(self, lsn: Lsn) -> usize {
        self.segment_len() - self.offset(lsn)
    }

    /// The first position from `lsn` on where a group can begin. Such a position is behind the segment's header, and
    /// leaves room for at least a pad in the rest of the segment.
    pub(crate) fn normal(self, lsn: Lsn) -> Lsn {
        let offset = self.offset(lsn);
        if offset < SEGMENT_HEADER {
            self.first(self.number(lsn))
        } else if self.segment_len() - offset < GROUP_HEADER {
            self.first(self.number(lsn) + 1)
        } else {
            lsn
        }
    }

    /// The largest number of a segment.
    pub(crate) fn number_max(self) -> u64 {
        LSN_MAX / self.segment_bytes
    }

    /// Segments that the parts of a record with so many bytes of payload fill, the last one perhaps not whole.
    pub(crate) fn parts(self, payload: usize) -> usize {
        payload.div_ceil(self.record_bytes_max())
    }

    /// Largest payload of a record, bytes: the record must fit into an empty segment.
    pub(crate) fn record_bytes_max(self) -> usize {
        self.segment_len() - SEGMENT_HEADER - GROUP_HEADER - RECORD_HEADER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_moved_to_where_a_group_can_begin() {
        let geometry = Geometry::new(16384).expect("valid");
        assert_eq!(geometry.normal(Lsn(0)), Lsn(4096));
        assert_eq!(geometry.normal(Lsn(16384)), Lsn(16384 + 4096));
        assert_eq!(geometry.normal(Lsn(5000)), Lsn(5000));
        assert_eq!(geometry.normal(Lsn(16384 - 8)), Lsn(16384 + 4096));
        assert_eq!(geometry.normal(Lsn(16384 - GROUP_HEADER as u64)), Lsn(16384 - GROUP_HEADER as u64));
    }

    #[test]
    fn odd_sizes_are_refused() {
        for size in [0, 4096, 16385, 2 << 30] {
            assert!(matches!(Geometry::new(size), Err(Error::InvalidOptions(_))), "{size}");
        }
    }
}
