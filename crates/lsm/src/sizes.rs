//! How long files are: a part of all bytes of their tree, within bounds. A file goes as a whole, so files are short
//! while there are few bytes.

/// Bounds for the bytes of a file below level 0, and the part of all bytes that one is.
const FILE_BYTES_MIN: u64 = 256 << 10;
const FILE_BYTES_MAX: u64 = 8 << 20;
const FILE_PART: u64 = 64;

/// The lengths of the files of a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    most: u64,
}

impl Sizes {
    /// Those where a file has at most `most` bytes.
    pub(crate) fn new(most: u64) -> Self {
        Self { most: most.clamp(1, FILE_BYTES_MAX) }
    }

    /// Bytes of a file of a tree that has so many.
    pub(crate) fn file_bytes(self, live_bytes: u64) -> usize {
        let bytes = (live_bytes / FILE_PART).clamp(FILE_BYTES_MIN.min(self.most), self.most);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Most bytes of a file.
    pub(crate) fn file_bytes_max(self) -> usize {
        self.file_bytes(u64::MAX)
    }
}
