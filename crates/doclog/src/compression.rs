//! How documents are compressed.

use std::fmt;
use std::str::FromStr;

/// How the documents of a table are compressed, each by itself. What becomes no smaller worth mentioning is stored as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: costs little time, saves some space.
    Lz4,
    /// Zstandard, level 3: costs more time, saves more space.
    Zstd,
}

impl Compression {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

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
