//! The bytes of this crate on storage, all little-endian.
//!
//! A document, at a multiple of 8 in its segment file:
//!
//! ```text
//!  0  4  magic "BDOC"
//!  4  2  version, 1
//!  6  2  type, 1: a whole document
//!  8  8  length: 32 bits, bytes of the payload;
//!        2 bits, the compression (0: none, 1: an LZ4 block, 2: a Zstandard frame);
//!        30 bits, bytes of the document, 0 if uncompressed
//! 16  4  table
//! 20  4  CRC-32C of {table 4, segment 8, offset of the document in its file 8, length 8} and the payload
//! 24     payload, then zeros up to a multiple of 8
//! ```
//!
//! A pointer to a document: segment 8, offset 8, length 8, CRC-32C as above 4.
//!
//! Image of a document log, which is part of a checkpoint:
//!
//! ```text
//!  0  8  magic "BRAIDDOC"
//!  8  4  version, 1
//! 12  4  CRC-32C of the image without these four bytes
//! 16  8  bytes of the image
//! 24  8  number of the next segment
//! 32  8  segments
//! 40     per segment, in number order: number 8, bytes that committed documents reach 8, live bytes 8, 1 if sealed 8,
//!        the last commit that names a document in it 8
//! ```

use std::path::{Path, PathBuf};

use codec::sized::{u16_at, u32_at, u64_at};

use crate::compression::expansion_max;
use crate::limits::DOCUMENT_BYTES_MAX;
use crate::{Compression, Error, Result};

/// Bytes before the payload.
pub(crate) const HEADER: usize = 24;
/// Documents begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

const MAGIC: &[u8; 4] = b"BDOC";
const VERSION: u16 = 1;
const TYPE_DOCUMENT: u16 = 1;

const IMAGE_MAGIC: &[u8; 8] = b"BRAIDDOC";
const IMAGE_VERSION: u32 = 1;
const IMAGE_HEADER: usize = 40;
const IMAGE_SEGMENT: usize = 40;
/// Name of an image in errors; the checkpoint around the image knows the file.
const IMAGE_NAME: &str = "document-log image";
const IMAGE_CRC: std::ops::Range<usize> = 12..16;

/// Number of a segment among those of its table, from 1 on; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl std::fmt::Display for SegmentId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The length of a document: its stored bytes, its compression and its original bytes. The default is that of an empty
/// document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocLength(u64);

/// Bit position of the compression in a length; the original bytes follow.
const COMPRESSION_AT: u32 = 32;
const ORIGINAL_AT: u32 = 34;

const _: () = assert!(DOCUMENT_BYTES_MAX < 1 << (u64::BITS - ORIGINAL_AT) && DOCUMENT_BYTES_MAX < 1 << COMPRESSION_AT);

impl DocLength {
    /// The length of an uncompressed document of `bytes` bytes.
    #[must_use]
    pub const fn plain(bytes: u32) -> Self {
        Self(bytes as u64)
    }

    /// The length of a compressed document; both lengths are within [`DOCUMENT_BYTES_MAX`].
    pub(crate) fn compressed(compression: Compression, stored: usize, original: usize) -> Self {
        let code = match compression {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::Zstd => 2,
        };
        Self(stored as u64 | code << COMPRESSION_AT | (original as u64) << ORIGINAL_AT)
    }

    /// The length that is stored as this number. Only a read tells whether there is such a document.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The length as a number.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    const fn code(self) -> u64 {
        self.0 >> COMPRESSION_AT & 3
    }

    /// Bytes of the stored payload.
    #[must_use]
    pub const fn stored(self) -> u64 {
        if self.code() == 0 { self.0 } else { self.0 & u32::MAX as u64 }
    }

    /// Bytes of the original document.
    #[must_use]
    pub const fn original(self) -> u64 {
        if self.code() == 0 { self.0 } else { self.0 >> ORIGINAL_AT }
    }

    /// Bytes of the document in its segment, with header and padding.
    pub(crate) const fn room(self) -> u64 {
        stored_bytes(self.stored())
    }

    /// The compression; `None` if unknown here.
    pub(crate) const fn compression(self) -> Option<Compression> {
        match self.code() {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Whether a document can have this length; else the wrong value, the expected one and the found one.
    pub(crate) fn check(self) -> std::result::Result<(), (&'static str, String, String)> {
        let (stored, original) = (self.stored(), self.original());
        let Some(compression) = self.compression() else {
            return Err(("compression in the pointer", "0, 1 or 2".to_owned(), self.code().to_string()));
        };
        if original > DOCUMENT_BYTES_MAX {
            let expected = format!("at most {DOCUMENT_BYTES_MAX} bytes");
            return Err(("length in the pointer", expected, format!("{original} bytes")));
        }
        let most = expansion_max(compression, stored);
        if compression != Compression::None && (stored >= original || original > most) {
            let expected = format!("{} to {most} bytes of {stored} that are stored", stored + 1);
            return Err(("length in the pointer", expected, format!("{original} bytes")));
        }
        Ok(())
    }
}

/// The place of a document, and its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocPointer {
    /// The segment of the document.
    pub segment: SegmentId,
    /// Byte offset of the header in the segment.
    pub offset: u64,
    /// Length of the document.
    pub length: DocLength,
    /// CRC-32C of identity and payload.
    pub crc: u32,
}

impl DocPointer {
    /// Bytes of an encoded pointer.
    pub const BYTES: usize = 28;
    /// Bytes of a document before its payload.
    pub const BEFORE_PAYLOAD: u64 = HEADER as u64;

    /// Encodes the pointer.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.segment.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.bits().to_le_bytes());
        bytes[24..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// Decodes the pointer in `bytes`. Only a read tells whether there is a document at its place.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            segment: SegmentId(u64_at(bytes, 0)),
            offset: u64_at(bytes, 8),
            length: DocLength::from_bits(u64_at(bytes, 16)),
            crc: u32_at(bytes, 24),
        }
    }

    /// Bytes that the document takes in its segment.
    #[must_use]
    pub const fn stored_bytes(&self) -> u64 {
        self.length.room()
    }
}

/// Bytes that a document takes in its segment: header, payload, padding. Saturates on a length from a damaged pointer.
pub(crate) const fn stored_bytes(length: u64) -> u64 {
    let alignment = ALIGNMENT as u64;
    let bytes = length.saturating_add(HEADER as u64 + alignment - 1);
    bytes - bytes % alignment
}

/// CRC-32C of the identity of a document; the checksum of its payload continues from this value.
pub(crate) fn identity_crc(table: u32, segment: SegmentId, offset: u64, length: DocLength) -> u32 {
    let crc = checksum::crc32c(&table.to_le_bytes());
    [segment.0, offset, length.bits()].iter().fold(crc, |crc, field| checksum::crc32c_append(crc, &field.to_le_bytes()))
}

/// The header of the document at `pointer`.
pub(crate) fn encode_header(table: u32, pointer: &DocPointer) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[6..8].copy_from_slice(&TYPE_DOCUMENT.to_le_bytes());
    bytes[8..16].copy_from_slice(&pointer.length.bits().to_le_bytes());
    bytes[16..20].copy_from_slice(&table.to_le_bytes());
    bytes[20..].copy_from_slice(&pointer.crc.to_le_bytes());
    bytes
}

/// A pointer to the document at that place, if `header` is the header of a document.
pub(crate) fn pointer_of_header(header: &[u8; HEADER], segment: SegmentId, offset: u64) -> DocPointer {
    DocPointer { segment, offset, length: DocLength::from_bits(u64_at(header, 8)), crc: u32_at(header, 20) }
}

/// Checks that `bytes` is the header of the document at `pointer`. `file` gives the path for an error.
pub(crate) fn check_header(
    file: impl Fn() -> PathBuf, table: u32, pointer: &DocPointer, bytes: &[u8; HEADER],
) -> Result<()> {
    let at = pointer.offset;
    if &bytes[..4] != MAGIC {
        let found = bytes[..4].escape_ascii();
        return Err(Error::corrupt(&file(), at, "document magic", MAGIC.escape_ascii(), found));
    }
    // A newer version is damage too, because newer software first records its version of the directory in the
    // superblock.
    let [version, kind] = [u16_at(bytes, 4), u16_at(bytes, 6)];
    let fields: [(u64, &'static str, u64, u64); 5] = [
        (4, "document version", VERSION.into(), version.into()),
        (6, "document type", TYPE_DOCUMENT.into(), kind.into()),
        (8, "document length", pointer.length.bits(), u64_at(bytes, 8)),
        (16, "table of the document", table.into(), u32_at(bytes, 16).into()),
        (20, "document checksum", pointer.crc.into(), u32_at(bytes, 20).into()),
    ];
    match fields.iter().find(|(_, _, expected, found)| expected != found) {
        Some((field, what, expected, found)) => {
            Err(Error::corrupt(&file(), at.saturating_add(*field), what, expected, found))
        }
        None => Ok(()),
    }
}

/// Most live bytes of a segment that an image can have: sums of them are far from overflowing.
const LIVE_BYTES_MAX: u64 = 1 << 56;

/// A segment, as a checkpoint stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentImage {
    /// Number of the segment.
    pub id: SegmentId,
    /// Bytes from the beginning to the end of the last document that was ever retained: the file is at least that long.
    pub length: u64,
    /// Bytes of retained documents, of each as often as it is retained.
    pub live_bytes: u64,
    /// Whether nothing more is appended to the segment.
    pub sealed: bool,
    /// Seq of the last commit that names a document of the segment; 0 without one.
    pub last_commit: u64,
}

/// The segments of a table, as a checkpoint stores them. The default is that of a new table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocImage {
    /// Above every segment number ever used.
    pub next: SegmentId,
    /// Segments in number order.
    pub segments: Vec<SegmentImage>,
}

impl DocImage {
    /// Encodes the image, with its own length and checksum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let length = IMAGE_HEADER + self.segments.len() * IMAGE_SEGMENT;
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(IMAGE_MAGIC);
        bytes.extend_from_slice(&IMAGE_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for field in [length as u64, self.next.0, self.segments.len() as u64] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for segment in &self.segments {
            let sealed = u64::from(segment.sealed);
            for field in [segment.id.0, segment.length, segment.live_bytes, sealed, segment.last_commit] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
        let crc = image_checksum(&bytes);
        bytes[IMAGE_CRC].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the image in `bytes`, all of which must belong to it.
    ///
    /// # Errors
    /// When the bytes are not a whole image, or are one that no document log can have made.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let file = Path::new(IMAGE_NAME);
        check_image(file, bytes)?;
        let next = u64_at(bytes, 24);
        let mut segments: Vec<SegmentImage> = Vec::with_capacity((bytes.len() - IMAGE_HEADER) / IMAGE_SEGMENT);
        for (index, fields) in bytes[IMAGE_HEADER..].chunks_exact(IMAGE_SEGMENT).enumerate() {
            let segment = SegmentImage {
                id: SegmentId(u64_at(fields, 0)),
                length: u64_at(fields, 8),
                live_bytes: u64_at(fields, 16),
                sealed: u64_at(fields, 24) == 1,
                last_commit: u64_at(fields, 32),
            };
            let after = segments.last().map_or(0, |before| before.id.0);
            let valid = segment.id.0 > after
                && segment.id.0 < next
                && (segment.length > 0 || segment.live_bytes == 0)
                && segment.live_bytes <= LIVE_BYTES_MAX
                && u64_at(fields, 24) <= 1;
            if !valid {
                let at = (IMAGE_HEADER + index * IMAGE_SEGMENT) as u64;
                let expected = format!("a number in {}..{next}, and a length where it has live bytes", after + 1);
                return Err(Error::corrupt(file, at, "segment", expected, format!("{segment:?}")));
            }
            segments.push(segment);
        }
        Ok(Self { next: SegmentId(next), segments })
    }
}

fn check_image(file: &Path, bytes: &[u8]) -> Result<()> {
    if bytes.len() < IMAGE_HEADER {
        return Err(Error::corrupt(file, 0, "header", format!("{IMAGE_HEADER} bytes"), bytes.len()));
    }
    if &bytes[..8] != IMAGE_MAGIC {
        let found = bytes[..8].escape_ascii();
        return Err(Error::corrupt(file, 0, "magic", IMAGE_MAGIC.escape_ascii(), found));
    }
    let version = u32_at(bytes, 8);
    if version > IMAGE_VERSION {
        return Err(Error::NewerVersion { file: file.to_owned(), offset: 8, found: version, known: IMAGE_VERSION });
    }
    let length = bytes.len() as u64;
    let segments = (length - IMAGE_HEADER as u64) / IMAGE_SEGMENT as u64;
    let whole = IMAGE_HEADER as u64 + segments * IMAGE_SEGMENT as u64;
    let fields: [(u64, &'static str, u64, u64); 4] = [
        (8, "version", IMAGE_VERSION.into(), version.into()),
        (12, "checksum", image_checksum(bytes).into(), u32_at(bytes, 12).into()),
        (16, "length", whole, u64_at(bytes, 16)),
        (32, "segments", segments, u64_at(bytes, 32)),
    ];
    match fields.iter().find(|(_, _, expected, found)| expected != found) {
        Some((at, what, expected, found)) => Err(Error::corrupt(file, *at, what, expected, found)),
        None if whole != length => Err(Error::corrupt(file, whole, "end", "no more bytes", length - whole)),
        None => Ok(()),
    }
}

fn image_checksum(bytes: &[u8]) -> u32 {
    checksum::crc32c_around(bytes, IMAGE_CRC.start)
}

/// Puts the right checksum on a changed image.
#[cfg(feature = "fuzzing")]
pub(crate) fn seal_image(bytes: &mut [u8]) {
    let crc = image_checksum(bytes);
    bytes[IMAGE_CRC].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use space::FileDamage;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn pointer() -> DocPointer {
        let (segment, offset, payload, length) = (SegmentId(3), 48, b"braid", DocLength::plain(5));
        let identity = identity_crc(7, segment, offset, length);
        DocPointer { segment, offset, length, crc: checksum::crc32c_append(identity, payload) }
    }

    #[test]
    fn golden_document_and_pointer() {
        let pointer = pointer();
        assert_eq!(
            hex(&encode_header(7, &pointer)),
            concat!("42444f43", "0100", "0100", "0500000000000000", "07000000", "5d554edf")
        );
        let bytes = pointer.encode();
        assert_eq!(hex(&bytes), concat!("0300000000000000", "3000000000000000", "0500000000000000", "5d554edf"));
        assert_eq!(DocPointer::decode(&bytes), pointer);
        assert_eq!(pointer.stored_bytes(), 32);
        assert_eq!([0, 1, 8, 9].map(stored_bytes), [24, 32, 32, 40]);
    }

    #[test]
    fn golden_length() {
        let of = |compression, stored, original| DocLength::compressed(compression, stored, original).bits();
        assert_eq!(DocLength::plain(512 << 20).bits(), 0x2000_0000);
        assert_eq!(of(Compression::Lz4, 0x0102_0304, 0x0506_0708), 0x1418_1c21_0102_0304);
        assert_eq!(of(Compression::Zstd, 0x0102_0304, 512 << 20), 0x8000_0002_0102_0304);
        for bits in [0, 5, 0x2000_0000, 0x1418_1c21_0102_0304, 0x8000_0002_0102_0304] {
            assert_eq!(DocLength::from_bits(bits).check(), Ok(()), "{bits:#x}");
        }
    }

    #[test]
    fn lengths_that_no_document_has_are_refused() {
        let refused = |bits: u64, what: &str| {
            let length = DocLength::from_bits(bits);
            assert_eq!(length.check().expect_err("refused").0, what, "{bits:#x}");
            // Sums with the length at most saturate.
            assert!(length.room() >= length.stored() && length.original() > 0, "{bits:#x}");
        };
        let of = |compression, stored, original| DocLength::compressed(compression, stored, original).bits();
        refused(0x2000_0001, "length in the pointer");
        refused(1 << 34 | 5, "length in the pointer");
        refused(u64::MAX, "compression in the pointer");
        refused(3 << 32 | 100 << 34 | 5, "compression in the pointer");
        for compression in [Compression::Lz4, Compression::Zstd] {
            refused(of(compression, 5, (512 << 20) + 1), "length in the pointer");
            refused(of(compression, 512 << 20, (512 << 20) + 1), "length in the pointer");
            // A compressed document that is no shorter, and one that stands for more than it can.
            refused(of(compression, 100, 100), "length in the pointer");
            refused(of(compression, 0, 100), "length in the pointer");
            refused(of(compression, 20, 512 << 20), "length in the pointer");
        }
    }

    #[test]
    fn every_bit_of_a_header_counts() {
        let pointer = pointer();
        let header = encode_header(7, &pointer);
        let file = || PathBuf::from("doc/7-3.doc");
        check_header(file, 7, &pointer, &header).expect("whole");
        for bit in 0..HEADER * 8 {
            let mut damaged = header;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(check_header(file, 7, &pointer, &damaged).expect_err("damaged").is_damage());
        }
        check_header(file, 8, &pointer, &header).expect_err("of another table");
    }

    fn image() -> DocImage {
        let segment = |id, length, live_bytes, sealed| SegmentImage {
            id: SegmentId(id),
            length,
            live_bytes,
            sealed,
            last_commit: id + 300,
        };
        DocImage { next: SegmentId(9), segments: vec![segment(2, 4096, 64, true), segment(8, 32, 32, false)] }
    }

    #[test]
    fn golden_image() {
        let golden = concat!(
            "4252414944444f43",
            "01000000",
            "1c1a56d1",
            "7800000000000000",
            "0900000000000000",
            "0200000000000000",
            "02000000000000000010000000000000400000000000000001000000000000002e01000000000000",
            "08000000000000002000000000000000200000000000000000000000000000003401000000000000",
        );
        let bytes = image().encode();
        assert_eq!(hex(&bytes), golden);
        assert_eq!(DocImage::decode(&bytes).expect("whole"), image());
        let empty = DocImage::default();
        assert_eq!(DocImage::decode(&empty.encode()).expect("whole"), empty);
    }

    #[test]
    fn damaged_images_are_refused() {
        let bytes = image().encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            DocImage::decode(&damaged).expect_err("damaged");
        }
        for length in 0..bytes.len() {
            DocImage::decode(&bytes[..length]).expect_err("cut");
        }
    }

    #[test]
    fn images_that_no_log_makes_are_refused() {
        let change = |change: fn(&mut DocImage)| {
            let mut image = image();
            change(&mut image);
            let error = DocImage::decode(&image.encode()).expect_err("refused");
            assert!(matches!(error, Error::Corrupt(FileDamage { what: "segment", .. })), "{error}");
        };
        change(|image| image.next = SegmentId(8));
        change(|image| image.segments[0].id = SegmentId(0));
        change(|image| image.segments.swap(0, 1));
        change(|image| image.segments[0].length = 0);
        change(|image| image.segments[0].live_bytes = u64::MAX);
    }
}
