//! The files of a table's segments, and their names.

use std::path::PathBuf;

use psync::{File, Psync, SECTOR};
use space::{FileStore, StreamKind};

use crate::{Error, Result, SegmentId};

/// The kind of documents in a log. It decides the place of the segments and the counters of their I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Values that are too large for an index: `doc/<table>-<segment>.doc`.
    Documents,
    /// Nodes of an append-only index: `node/<table>-<segment>.node`.
    Nodes,
}

impl Content {
    /// Every kind of content.
    pub const ALL: [Self; 2] = [Self::Documents, Self::Nodes];

    /// The subdirectory of all segments.
    #[must_use]
    pub const fn directory(self) -> &'static str {
        match self {
            Self::Documents => "doc",
            Self::Nodes => "node",
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Documents => ".doc",
            Self::Nodes => ".node",
        }
    }

    const fn stream(self) -> StreamKind {
        match self {
            Self::Documents => StreamKind::Doc,
            Self::Nodes => StreamKind::Node,
        }
    }
}

/// The source of the bytes of a segment.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// An open file.
    Open(File),
    /// The file of a sealed segment, open only during the read: directly, if wanted and the file system allows that.
    Sealed { direct: bool },
}

impl Source {
    /// Minimum unit of reads, which begin and end at multiples of it. The file may want more ([`File::unit`]), which is
    /// known once the file is open.
    pub(crate) const fn unit(&self) -> u64 {
        match self {
            Self::Open(_) | Self::Sealed { direct: false } => 1,
            Self::Sealed { direct: true } => SECTOR as u64,
        }
    }
}

/// The files of one table's segments.
#[derive(Debug)]
pub(crate) struct SegmentFiles {
    store: FileStore,
    content: Content,
    table: u32,
}

impl SegmentFiles {
    pub(crate) fn new(store: &FileStore, content: Content, table: u32) -> Self {
        Self { store: store.clone(), content, table }
    }

    pub(crate) const fn store(&self) -> &FileStore {
        &self.store
    }

    pub(crate) fn psync(&self) -> &Psync {
        self.store.psync()
    }

    pub(crate) const fn table(&self) -> u32 {
        self.table
    }

    fn name(&self, segment: SegmentId) -> String {
        format!("{}/{}-{segment}{}", self.content.directory(), self.table, self.content.suffix())
    }

    pub(crate) fn path(&self, segment: SegmentId) -> PathBuf {
        self.store.directory().join(self.name(segment))
    }

    /// Numbers of the segments that have a file, in order.
    pub(crate) fn list(&self) -> Result<Vec<SegmentId>> {
        let names = self.store.list(self.content.directory())?;
        let mut segments: Vec<_> = names.iter().filter_map(|name| self.number(name)).collect();
        segments.sort_unstable();
        Ok(segments)
    }

    /// The segment of a file name, if the name is one of this table's.
    fn number(&self, name: &str) -> Option<SegmentId> {
        let (table, number) = name.strip_suffix(self.content.suffix())?.split_once('-')?;
        let segment = SegmentId(number.parse().ok()?);
        // Only names in this form: neither "+1" nor "01".
        let same = table == self.table.to_string() && number == segment.to_string();
        (same && segment.0 > 0).then_some(segment)
    }

    /// Makes the file of a new segment for appending; its name is durable.
    pub(crate) fn create(&self, segment: SegmentId) -> Result<File> {
        let file = self.store.create(self.content.stream(), &self.name(segment), false)?;
        self.store.sync_directories()?;
        Ok(file)
    }

    /// Bytes of a segment's file.
    pub(crate) fn length(&self, segment: SegmentId) -> Result<u64> {
        let file = self.store.open_existing(self.content.stream(), &self.name(segment), false)?;
        Ok(file.len()?)
    }

    /// Opens the file of a segment, for reading from this source.
    pub(crate) fn open(&self, segment: SegmentId, source: &Source) -> Result<File> {
        let direct = match source {
            Source::Open(file) => return Ok(file.clone()),
            Source::Sealed { direct } => *direct,
        };
        let file = self.store.open_kept(self.content.stream(), &self.name(segment), direct);
        file.map_err(|error| match error {
            space::Error::Io(cause) if cause.is_not_found() => {
                Error::corrupt(&self.path(segment), 0, "segment", "a file", "none")
            }
            other => other.into(),
        })
    }

    /// Unlinks a segment, which may be gone already.
    pub(crate) fn remove(&self, segment: SegmentId) -> Result<()> {
        Ok(self.store.release(&self.name(segment))?)
    }
}

#[cfg(test)]
mod tests {
    use psync::sim::SimDisk;

    use super::*;

    fn files(table: u32) -> SegmentFiles {
        let store = FileStore::open(SimDisk::new(1).psync(), "/db".as_ref(), false).expect("opens");
        SegmentFiles::new(&store, Content::Documents, table)
    }

    #[test]
    fn names_belong_to_one_table() {
        let files = files(12);
        assert_eq!(files.name(SegmentId(3)), "doc/12-3.doc");
        assert_eq!(files.number("12-3.doc"), Some(SegmentId(3)));
        for other in ["2-3.doc", "12-03.doc", "12-+3.doc", "12-0.doc", "12-3", "12-.doc", "112-3.doc", "12-3.doc.doc"] {
            assert_eq!(files.number(other), None, "{other}");
        }
    }

    #[test]
    fn a_missing_segment_is_named() {
        let error = files(1).open(SegmentId(9), &Source::Sealed { direct: true }).expect_err("missing");
        assert!(error.is_damage() && error.to_string().contains("doc/1-9.doc"), "{error}");
    }
}
