//! The ways to compress documents.

use std::fmt;
use std::str::FromStr;

/// The compression of the documents of a table, each by itself. A document that becomes hardly smaller is stored
/// uncompressed.
///
/// A build without a codec ([`Compression::is_built`]) cannot read the documents that were compressed with it. Where a
/// table asks for the codec, such a build stores documents uncompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4: costs little time, saves some space.
    Lz4,
    /// Zstandard, level 3: costs more time, saves more space.
    Zstd,
}

impl Compression {
    /// Every compression.
    pub const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    /// Whether this build has it. `lz4` and `zstd` are features of the same name.
    #[must_use]
    pub const fn is_built(self) -> bool {
        match self {
            Self::None => true,
            Self::Lz4 => cfg!(feature = "lz4"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || format!("{text:?} is none of {}", Self::ALL.map(Self::name).join(", "));
        Self::ALL.into_iter().find(|compression| compression.name() == text).ok_or_else(problem)
    }
}

/// Maximum number of original bytes for `stored` bytes. A byte of LZ4 makes a match at most 255 longer. A block of
/// Zstandard has 3 bytes of header and at least one byte of content, and stands for at most 128 KiB.
pub(crate) const fn expansion_max(compression: Compression, stored: u64) -> u64 {
    match compression {
        Compression::None => stored,
        Compression::Lz4 => stored.saturating_mul(255),
        Compression::Zstd => stored.saturating_mul((128 << 10) / 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for compression in Compression::ALL {
            assert_eq!(compression.to_string().parse(), Ok(compression));
        }
        assert!("LZ4".parse::<Compression>().expect_err("another name").contains("none, lz4, zstd"));
    }
}
