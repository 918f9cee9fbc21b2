//! Documents in the form in which they are stored.
//!
//! 1. [`pack`] compresses a document before room is reserved for it, and gives up if that saves less than an eighth of
//!    the room.
//! 2. [`unpack`] is for documents that were read and checked. The pointer says how long the document is, so the memory
//!    for it is bounded. A valid pointer says no more than its stored bytes can hold
//!    ([`crate::compression::expansion_max`]).
//! 3. The contexts of Zstandard are kept for reuse, because making one takes longer than compressing a small document.
//!    At most as many are kept as threads can run at a time. A context that a large document has made large is not
//!    kept.

use std::borrow::Cow;
use std::sync::LazyLock;

use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};

use crate::format::{ALIGNMENT, HEADER, stored_bytes};
use crate::limits::DOCUMENT_BYTES_MAX;
use crate::{Compression, DocLength, Error, Result};

/// Level of Zstandard: the library's default.
const LEVEL: i32 = 3;
/// Contexts used for a longer document are not kept.
const CONTEXT_DOCUMENT_MAX: usize = 128 << 10;

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
    let packed = match compression {
        Compression::None => None,
        Compression::Lz4 => Some(lz4_flex::block::compress(document)).filter(|packed| packed.len() <= most),
        Compression::Zstd => {
            let mut packed = Vec::with_capacity(most);
            let compress = |context: &mut Compressor<'_>| context.compress_to_buffer(document, &mut packed);
            // Without memory for the compression, and if the result does not fit, the document is stored uncompressed.
            let compressed = COMPRESSORS.with(document.len(), || Compressor::new(LEVEL), compress);
            compressed.is_ok().then_some(packed)
        }
    };
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

/// Decompresses the stored bytes to the document of this `length`, or returns the defect of the bytes.
pub(crate) fn unpack(length: DocLength, stored: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
    let expected = usize::try_from(length.original()).map_err(|error| error.to_string())?;
    let document = match length.compression() {
        Some(Compression::None) => return Ok(stored),
        Some(Compression::Lz4) => lz4_flex::block::decompress(&stored, expected).map_err(|error| error.to_string())?,
        Some(Compression::Zstd) => {
            match zstd::zstd_safe::get_frame_content_size(&stored) {
                Ok(Some(bytes)) if bytes == expected as u64 => {}
                other => return Err(format!("a frame that says of its length {other:?}")),
            }
            let decompress = |context: &mut Decompressor<'_>| context.decompress(&stored, expected);
            DECOMPRESSORS.with(expected, Decompressor::new, decompress).map_err(|error| error.to_string())?
        }
        None => return Err("no known compression".to_owned()),
    };
    if document.len() == expected { Ok(document) } else { Err(format!("{} bytes", document.len())) }
}

static COMPRESSORS: Contexts<Compressor<'static>> = Contexts(Mutex::new(Vec::new()));
static DECOMPRESSORS: Contexts<Decompressor<'static>> = Contexts(Mutex::new(Vec::new()));
/// Number of contexts kept of each kind.
static CONTEXTS_MAX: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));

/// Unused contexts.
struct Contexts<T>(Mutex<Vec<T>>);

impl<T> Contexts<T> {
    /// Uses a context for a document of this size.
    fn with<R>(
        &self, bytes: usize, new: impl FnOnce() -> std::io::Result<T>, run: impl FnOnce(&mut T) -> std::io::Result<R>,
    ) -> std::io::Result<R> {
        let kept = self.0.lock().pop();
        let mut context = kept.map_or_else(new, Ok)?;
        let outcome = run(&mut context);
        if bytes <= CONTEXT_DOCUMENT_MAX {
            let mut kept = self.0.lock();
            if kept.len() < *CONTEXTS_MAX {
                kept.push(context);
            }
        }
        outcome
    }
}

#[cfg(test)]
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
    fn a_context_that_is_kept_and_a_new_one_do_the_same() {
        let documents = [vec![5; 3000], vec![6; CONTEXT_DOCUMENT_MAX + 1], noise(3000), vec![7; 300]];
        let packed = || documents.iter().map(|document| pack(Compression::Zstd, document).expect("short").bytes);
        let (first, second): (Vec<_>, Vec<_>) = (packed().collect(), packed().collect());
        assert_eq!(first, second);
        assert!(COMPRESSORS.0.lock().len() <= *CONTEXTS_MAX);
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
