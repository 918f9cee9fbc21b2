//! Documents in the form in which they are stored.
//!
//! 1. [`pack`] compresses a document before room is reserved for it, and gives up if that saves less than an eighth of
//!    the room. A build without the codec stores the document uncompressed.
//! 2. [`unpack`] is for documents that were read and checked. The pointer says how long the document is, so the memory
//!    for it is bounded. A valid pointer says no more than its stored bytes can hold
//!    ([`crate::compression::expansion_max`]).

use std::borrow::Cow;

use crate::codec::Flaw;
use crate::format::{ALIGNMENT, HEADER, stored_bytes};
use crate::limits::DOCUMENT_BYTES_MAX;
use crate::{Compression, DocLength, Error, Result};

/// The bytes to be stored, and their length.
pub(crate) struct Packed<'a> {
    pub(crate) bytes: Cow<'a, [u8]>,
    pub(crate) length: DocLength,
}

/// A document in its stored form.
///
/// # Errors
/// [`Error::TooLarge`] when the document is larger than the maximum.
pub(crate) fn pack(compression: Compression, document: &[u8]) -> Result<Packed<'_>> {
    let bytes = document.len() as u64;
    let plain = u32::try_from(bytes).ok().filter(|_| bytes <= DOCUMENT_BYTES_MAX).map(DocLength::plain);
    let length = plain.ok_or(Error::TooLarge { length: bytes })?;
    let as_it_is = || Packed { bytes: Cow::Borrowed(document), length };
    let Some(most) = worth_storing(document.len()) else { return Ok(as_it_is()) };
    let packed = compression.compress(document, most);
    let Some(packed) = packed.filter(|packed| !packed.is_empty()) else { return Ok(as_it_is()) };
    let length = DocLength::compressed(compression, packed.len(), document.len());
    Ok(Packed { bytes: Cow::Owned(packed), length })
}

/// Maximum size of a compressed document of this original size that is worth storing: an eighth of the room in the
/// segment is saved.
fn worth_storing(document: usize) -> Option<usize> {
    let room = stored_bytes(document as u64) / 8 * 7;
    let most = room - room % ALIGNMENT as u64;
    usize::try_from(most).ok()?.checked_sub(HEADER).filter(|most| *most > 0)
}

/// Decompresses the stored bytes to the document of this `length`.
pub(crate) fn unpack(length: DocLength, stored: Vec<u8>) -> std::result::Result<Vec<u8>, Flaw> {
    let expected = usize::try_from(length.original()).map_err(|error| Flaw::Damage(error.to_string()))?;
    let compression = length.compression().ok_or_else(|| Flaw::Damage("no known compression".to_owned()))?;
    compression.decompress(stored, expected)
}

#[cfg(all(test, feature = "lz4", feature = "zstd"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compression::expansion_max;

    const BOTH: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

    /// Incompressible bytes.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33).to_le_bytes()[0]
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn what_saves_less_than_an_eighth_of_the_room_is_stored_as_it_is() {
        for compression in BOTH {
            for bytes in [0, 1, 7, 40, 300, 4096, 70_000] {
                let document = noise(bytes);
                let packed = pack(compression, &document).expect("short enough");
                assert_eq!(packed.length, DocLength::plain(u32::try_from(bytes).expect("few")));
                assert_eq!(packed.bytes, document);
            }
            // The least number of zeros behind noise that is worth compression, and one step before.
            let is_packed = |zeros: usize| {
                let document = [noise(4096), vec![0; zeros]].concat();
                let packed = pack(compression, &document).expect("short enough");
                let room = (packed.length.room(), stored_bytes(document.len() as u64));
                assert_eq!(packed.bytes.len() < document.len(), packed.length.compression() == Some(compression));
                assert!(packed.bytes.len() == document.len() || room.0 * 8 <= room.1 * 7, "{room:?}");
                packed.bytes.len() < document.len()
            };
            assert!(!is_packed(500) && is_packed(700));
        }
        assert_eq!(pack(Compression::None, &[0; 4096]).expect("short enough").bytes.len(), 4096);
    }

    #[test]
    fn another_length_than_that_of_the_document_is_refused() {
        for compression in BOTH {
            let document = vec![3; 5000];
            let packed = pack(compression, &document).expect("short enough").bytes.into_owned();
            for original in [4999, 5001, 2500, 5255] {
                let length = DocLength::compressed(compression, packed.len(), original);
                unpack(length, packed.clone()).expect_err("another length");
            }
            let cut = DocLength::compressed(compression, packed.len() - 1, document.len());
            unpack(cut, packed[..packed.len() - 1].to_vec()).expect_err("cut");
        }
    }

    #[test]
    fn nothing_stands_for_more_than_is_thought_possible() {
        for bytes in [100, 4096, 128 << 10, (128 << 10) + 1, 5 << 20] {
            for compression in BOTH {
                let zeros = vec![0; bytes];
                let packed = pack(compression, &zeros).expect("short enough");
                let most = expansion_max(compression, packed.bytes.len() as u64);
                assert!(bytes as u64 <= most, "{compression}: {bytes} of {}", packed.bytes.len());
            }
        }
    }

    proptest! {
        #[test]
        fn a_document_comes_back(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..40), 1_usize..200), 0..12),
            compression in prop::sample::select(Compression::ALL.to_vec()),
        ) {
            let document: Vec<u8> = pieces.iter().flat_map(|(piece, times)| piece.repeat(*times)).collect();
            let packed = pack(compression, &document).expect("short enough");
            prop_assert_eq!(packed.length.original(), document.len() as u64);
            prop_assert_eq!(packed.length.stored(), packed.bytes.len() as u64);
            prop_assert_eq!(packed.length.check(), Ok(()));
            prop_assert_eq!(unpack(packed.length, packed.bytes.into_owned()), Ok(document));
        }

        #[test]
        fn garbage_never_panics(
            bytes in prop::collection::vec(any::<u8>(), 1..300), original in 1_usize..100_000, zstd: bool,
        ) {
            let length = DocLength::compressed(BOTH[usize::from(zstd)], bytes.len(), original);
            if let Ok(document) = unpack(length, bytes) {
                prop_assert_eq!(document.len(), original);
            }
        }
    }
}
