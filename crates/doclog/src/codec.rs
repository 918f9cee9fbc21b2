//! The codecs of this build.
//!
//! 1. [`Compression::compress`] and [`Compression::decompress`] hand bytes to the codec.
//! 2. The contexts of Zstandard are kept for reuse, because making one takes longer than compressing a small document.
//!    At most as many are kept as threads can run at a time. A context that a large document has made large is not
//!    kept.
//! 3. A codec whose feature is off compresses nothing, and refuses to decompress ([`Flaw::NotBuilt`]).

use crate::Compression;

/// The reason that stored bytes are not what was compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The defect of the bytes.
    Damage(String),
    /// This build does not have the codec.
    NotBuilt(Compression),
}

impl Compression {
    /// The bytes, compressed to at most `most` bytes. None if they do not fit, without memory for the compression, and
    /// where the compression is none or not built.
    #[must_use]
    pub fn compress(self, bytes: &[u8], most: usize) -> Option<Vec<u8>> {
        let _used_by_codecs = (bytes, most);
        match self {
            Self::None => None,
            #[cfg(feature = "lz4")]
            Self::Lz4 => lz4::compress(bytes, most),
            #[cfg(feature = "zstd")]
            Self::Zstd => zstandard::compress(bytes, most),
            #[cfg(not(all(feature = "lz4", feature = "zstd")))]
            _ => None,
        }
    }

    /// The `expected` bytes that [`Compression::compress`] was given.
    ///
    /// # Errors
    /// [`Flaw`].
    pub fn decompress(self, stored: Vec<u8>, expected: usize) -> Result<Vec<u8>, Flaw> {
        let bytes = match self {
            Self::None => stored,
            #[cfg(feature = "lz4")]
            Self::Lz4 => lz4::decompress(&stored, expected)?,
            #[cfg(feature = "zstd")]
            Self::Zstd => zstandard::decompress(&stored, expected)?,
            #[cfg(not(all(feature = "lz4", feature = "zstd")))]
            missing => return Err(Flaw::NotBuilt(missing)),
        };
        if bytes.len() == expected { Ok(bytes) } else { Err(Flaw::Damage(format!("{} bytes", bytes.len()))) }
    }
}

#[cfg(feature = "lz4")]
mod lz4 {
    use lz4_flex::block;

    use super::Flaw;

    pub(super) fn compress(document: &[u8], most: usize) -> Option<Vec<u8>> {
        Some(block::compress(document)).filter(|packed| packed.len() <= most)
    }

    pub(super) fn decompress(stored: &[u8], expected: usize) -> Result<Vec<u8>, Flaw> {
        block::decompress(stored, expected).map_err(|error| Flaw::Damage(error.to_string()))
    }
}

#[cfg(feature = "zstd")]
mod zstandard {
    use std::sync::LazyLock;

    use parking_lot::Mutex;
    use zstd::bulk::{Compressor, Decompressor};
    use zstd::zstd_safe::get_frame_content_size;

    use super::Flaw;

    /// Level of Zstandard: the library's default.
    const LEVEL: i32 = 3;
    /// Contexts used for a longer document are not kept.
    const CONTEXT_DOCUMENT_MAX: usize = 128 << 10;

    static COMPRESSORS: Contexts<Compressor<'static>> = Contexts(Mutex::new(Vec::new()));
    static DECOMPRESSORS: Contexts<Decompressor<'static>> = Contexts(Mutex::new(Vec::new()));
    /// Number of contexts kept of each kind.
    static CONTEXTS_MAX: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));

    pub(super) fn compress(document: &[u8], most: usize) -> Option<Vec<u8>> {
        let mut packed = Vec::with_capacity(most);
        let compress = |context: &mut Compressor<'_>| context.compress_to_buffer(document, &mut packed);
        let compressed = COMPRESSORS.with(document.len(), || Compressor::new(LEVEL), compress);
        compressed.is_ok().then_some(packed)
    }

    pub(super) fn decompress(stored: &[u8], expected: usize) -> Result<Vec<u8>, Flaw> {
        match get_frame_content_size(stored) {
            Ok(Some(bytes)) if bytes == expected as u64 => {}
            other => return Err(Flaw::Damage(format!("a frame that says of its length {other:?}"))),
        }
        let decompress = |context: &mut Decompressor<'_>| context.decompress(stored, expected);
        let document = DECOMPRESSORS.with(expected, Decompressor::new, decompress);
        document.map_err(|error| Flaw::Damage(error.to_string()))
    }

    /// Unused contexts.
    struct Contexts<T>(Mutex<Vec<T>>);

    impl<T> Contexts<T> {
        /// Uses a context for a document of this size.
        fn with<R>(
            &self, bytes: usize, new: impl FnOnce() -> std::io::Result<T>,
            run: impl FnOnce(&mut T) -> std::io::Result<R>,
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
        use super::*;

        #[test]
        fn a_context_that_is_kept_and_a_new_one_do_the_same() {
            let noise: Vec<u8> = (0..3000_u32).map(|number| ((number * number) >> 7).to_le_bytes()[0]).collect();
            let documents = [vec![5; 3000], vec![6; CONTEXT_DOCUMENT_MAX + 1], noise, vec![7; 300]];
            let packed = || documents.iter().map(|document| compress(document, document.len() + 100).expect("fits"));
            let (first, second): (Vec<_>, Vec<_>) = (packed().collect(), packed().collect());
            assert_eq!(first, second);
            assert!(COMPRESSORS.0.lock().len() <= *CONTEXTS_MAX);
        }
    }
}
