//! The bytes of saved request times: `device.learned`.
//!
//! All numbers are little-endian. A header of 32 bytes:
//!
//! ```text
//!  0  8  magic "BRDLEARN"
//!  8  4  version, 1
//! 12  4  backend: 1 io_uring, 2 libaio, 3 threads, 4 sync
//! 16  8  device (st_dev)
//! 24  4  histograms
//! 28  4  bytes of the file
//! ```
//!
//! Then follows each histogram that has anything, in the order of their indexes. The last four bytes are a CRC-32C of
//! all bytes before:
//!
//! ```text
//!  0  4  index: by kind, then size, then depth
//!  4  4  buckets that have timings
//!  8  8  requests that were timed
//! 16  4  minutes in which they were
//! 20  4  timings that were left out because the consumer was slower than the device
//! 24     per bucket, in order: its index, 4 bytes, and its timings, 4 bytes
//! ```

use codec::Fields;

use super::times::{BUCKETS, CELLS, Histogram, RequestTimes, TIMINGS_MAX};
use crate::BackendKind;

const MAGIC: [u8; 8] = *b"BRDLEARN";

/// Version of saved request times; any other version is rejected.
pub(crate) const VERSION: u32 = 1;

const HEADER: usize = 32;
const HISTOGRAM_HEADER: usize = 24;
const BUCKET: usize = 8;
const CRC: usize = 4;
const CUT_OFF: &str = "it is cut off";

/// Most bytes of a file.
pub(crate) const BYTES_MAX: usize = HEADER + CELLS * (HISTOGRAM_HEADER + BUCKETS * BUCKET) + CRC;

const _: () = assert!(BYTES_MAX <= 400 << 10);

/// The device and backend of noted request times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) device: u64,
    pub(crate) backend: BackendKind,
}

pub(crate) fn encode(origin: Origin, times: &RequestTimes) -> Vec<u8> {
    let histograms = times.all();
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(backend_number(origin.backend).to_le_bytes());
    bytes.extend(origin.device.to_le_bytes());
    bytes.extend(small(histograms.len()).to_le_bytes());
    let length_at = bytes.len();
    bytes.extend([0; 4]);
    for (index, histogram) in histograms {
        let used = || histogram.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        bytes.extend(small(index).to_le_bytes());
        bytes.extend(small(used().count()).to_le_bytes());
        bytes.extend(histogram.requests.to_le_bytes());
        bytes.extend(histogram.minutes.to_le_bytes());
        bytes.extend(histogram.left_out.to_le_bytes());
        for (bucket, count) in used() {
            bytes.extend(small(bucket).to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
    }
    let length = small(bytes.len() + CRC);
    bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    let crc = checksum::crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

/// The saved request times, or their defect.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Origin, Vec<(usize, Histogram)>), String> {
    let mut header = Fields(bytes);
    if header.array().ok_or(CUT_OFF)? != MAGIC {
        return Err("it does not begin as request times do".to_owned());
    }
    let version = header.u32().ok_or(CUT_OFF)?;
    if version != VERSION {
        return Err(format!("it has version {version}, this library writes {VERSION}"));
    }
    let (content, crc) = bytes.split_at(bytes.len() - CRC);
    let (expected, found) = (Fields(crc).u32().ok_or(CUT_OFF)?, checksum::crc32c(content));
    if expected != found {
        return Err(format!("its checksum is {found:#010x} instead of {expected:#010x}"));
    }
    let number = header.u32().ok_or(CUT_OFF)?;
    let backend = BackendKind::ALL.into_iter().find(|kind| backend_number(*kind) == number);
    let backend = backend.ok_or_else(|| format!("there is no backend {number}"))?;
    let device = header.u64().ok_or(CUT_OFF)?;
    let (count, length) = (header.u32().ok_or(CUT_OFF)?, header.u32().ok_or(CUT_OFF)?);
    if length as usize != bytes.len() {
        return Err(format!("it has {} bytes instead of {length}", bytes.len()));
    }
    let mut body = Fields(&content[HEADER.min(content.len())..]);
    let mut histograms: Vec<(usize, Histogram)> = Vec::new();
    for _ in 0..count {
        let (index, histogram) = histogram(&mut body)?;
        if index >= CELLS || histograms.last().is_some_and(|(last, _)| *last >= index) {
            return Err(format!("a histogram {index} has no place in it"));
        }
        histograms.push((index, histogram));
    }
    if !body.0.is_empty() {
        return Err(format!("{} bytes of it belong to nothing", body.0.len()));
    }
    Ok((Origin { device, backend }, histograms))
}

fn histogram(bytes: &mut Fields<'_>) -> Result<(usize, Histogram), String> {
    let (index, used) = (bytes.u32().ok_or(CUT_OFF)? as usize, bytes.u32().ok_or(CUT_OFF)?);
    let mut histogram = Histogram::default();
    (histogram.requests, histogram.minutes, histogram.left_out) =
        (bytes.u64().ok_or(CUT_OFF)?, bytes.u32().ok_or(CUT_OFF)?, bytes.u32().ok_or(CUT_OFF)?);
    let (mut next, mut timings) = (0, 0_u64);
    for _ in 0..used {
        let (bucket, count) = (bytes.u32().ok_or(CUT_OFF)? as usize, bytes.u32().ok_or(CUT_OFF)?);
        if !(next..BUCKETS).contains(&bucket) || count == 0 {
            return Err(format!("a bucket {bucket} of histogram {index} has no place in it"));
        }
        (histogram.buckets[bucket], next) = (count, bucket + 1);
        timings += u64::from(count);
    }
    let most = timings.max(u64::from(histogram.left_out));
    let minutes = u64::from(histogram.minutes);
    if !(1..=u64::from(TIMINGS_MAX)).contains(&most) || timings > histogram.requests || minutes > timings {
        return Err(format!(
            "histogram {index} has {timings} timings of {} requests in {minutes} minutes, and {} left out",
            histogram.requests, histogram.left_out
        ));
    }
    Ok((index, histogram))
}

fn backend_number(kind: BackendKind) -> u32 {
    1 + BackendKind::ALL.iter().position(|each| *each == kind).map_or(0, small)
}

fn small(number: usize) -> u32 {
    u32::try_from(number).expect("all request times take less than a MiB")
}

#[cfg(test)]
mod tests {
    use super::super::RequestKind;
    use super::super::times::{Shape, Timing};
    use super::*;

    const ORIGIN: Origin = Origin { device: 0x0123_4567_89AB_CDEF, backend: BackendKind::Threads };

    fn some() -> RequestTimes {
        let times = RequestTimes::default();
        times.note(3, RequestKind::Read, 1, 1, 80.0, 1);
        times.note(4, RequestKind::Read, 1, 1, 95.0, 1);
        times.note(4, RequestKind::Write, 64, 256, 100.0, 700);
        times.note_shape(Shape { kind: RequestKind::Write, size: 6 }, 8, 4, Timing::LeftOut);
        times
    }

    fn with_crc(mut content: Vec<u8>) -> Vec<u8> {
        let crc = checksum::crc32c(&content);
        content.extend(crc.to_le_bytes());
        content
    }

    #[test]
    fn what_was_saved_comes_back() {
        for times in [RequestTimes::default(), some()] {
            let bytes = encode(ORIGIN, &times);
            assert_eq!(decode(&bytes), Ok((ORIGIN, times.all())));
        }
    }

    #[test]
    fn the_bytes_of_version_1_stay() {
        let mut expected = b"BRDLEARN".to_vec();
        expected.extend([1, 0, 0, 0, 3, 0, 0, 0]);
        expected.extend([0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01, 2, 0, 0, 0, 108, 0, 0, 0]);
        expected.extend([0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([163, 0, 0, 0, 1, 0, 0, 0, 167, 0, 0, 0, 1, 0, 0, 0]);
        expected.extend([125, 0, 0, 0, 1, 0, 0, 0, 188, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        expected.extend([168, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(encode(ORIGIN, &some()), with_crc(expected));
        let backends = [BackendKind::IoUring, BackendKind::Libaio, BackendKind::Threads, BackendKind::Sync];
        assert_eq!(backends.map(backend_number), [1, 2, 3, 4]);
    }

    #[test]
    fn every_changed_or_missing_byte_is_found() {
        let bytes = encode(ORIGIN, &some());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert!(decode(&changed).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "{at} bytes");
        }
        assert!(decode(&[bytes, vec![0]].concat()).is_err());
    }

    #[test]
    fn another_version_is_told() {
        let mut bytes = encode(ORIGIN, &some());
        bytes[8] = 2;
        let problem = decode(&bytes).expect_err("another version");
        assert!(problem.contains("version 2"), "{problem}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_although_its_checksum_is_right() {
        let bytes = encode(ORIGIN, &some());
        let content = &bytes[..bytes.len() - CRC];
        // Offsets of the backend, the histograms and the length; then the index, buckets, requests, minutes and
        // left-out timings of the first histogram; then the index and timings of its first bucket.
        for at in [12, 24, 28, 32, 36, 40, 48, 52, 56, 60] {
            for value in [0, u32::MAX] {
                let mut changed = content.to_vec();
                changed[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
                // So many requests or so few minutes are possible, and the first bucket can have timings.
                let is_sound = (at == 40 && value > 0) || ((at == 48 || at == 56) && value == 0);
                if changed != content {
                    assert_eq!(decode(&with_crc(changed)).is_ok(), is_sound, "{value} at {at}");
                }
            }
        }
    }

    #[test]
    fn the_largest_file_is_as_long_as_stated() {
        let full = Histogram { requests: 1000, minutes: 1, left_out: 1, buckets: [2; BUCKETS] };
        let times = RequestTimes::default();
        times.replace((0..CELLS).map(|index| (index, full.clone())).collect());
        let bytes = encode(ORIGIN, &times);
        assert_eq!(bytes.len(), BYTES_MAX);
        assert!(decode(&bytes).is_ok());
    }
}
