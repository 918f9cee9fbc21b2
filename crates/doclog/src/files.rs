//! The files of a table's segments: their names, and a bounded number of open ones for reading.
//!
//! A table may have many more segments than a process may have open files. Sealed segments are opened when they are read, directly where
//! the file system allows it, and the one that was not used for longest is closed when there are [`OPEN_MAX`].

use std::collections::HashMap;
use std::path::PathBuf;

use parking_lot::Mutex;
use psync::File;
use space::{FileStore, StreamKind};

use crate::{Error, Result, SegmentId};

/// What the documents of a log are: where their segments are, and what they are counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Values that are too large for an index: `doc/<table>-<segment>.doc`.
    Documents,
    /// Nodes of an index that are appended: `node/<table>-<segment>.node`.
    Nodes,
}

impl Content {
    /// Every content.
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

/// Most segments of a table that are open for reading at a time. Those in use by a read stay open beyond it.
const OPEN_MAX: usize = 64;

/// The files of one table's segments.
#[derive(Debug)]
pub(crate) struct SegmentFiles {
    store: FileStore,
    content: Content,
    table: u32,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    files: HashMap<SegmentId, (File, u64)>,
    /// Counts uses, to tell which file was not used for longest.
    uses: u64,
}

impl SegmentFiles {
    pub(crate) fn new(store: &FileStore, content: Content, table: u32) -> Self {
        Self { store: store.clone(), content, table, open: Mutex::default() }
    }

    pub(crate) const fn store(&self) -> &FileStore {
        &self.store
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

    /// The segment that a file name belongs to, if it is one of this table's.
    fn number(&self, name: &str) -> Option<SegmentId> {
        let (table, number) = name.strip_suffix(self.content.suffix())?.split_once('-')?;
        let segment = SegmentId(number.parse().ok()?);
        // Only names that are written this way: neither "+1" nor "01".
        let same = table == self.table.to_string() && number == segment.to_string();
        (same && segment.0 > 0).then_some(segment)
    }

    /// Makes the file of a new segment, its name durable, for appending.
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

    /// A segment's file, for writing through the page cache.
    pub(crate) fn open_buffered(&self, segment: SegmentId) -> Result<File> {
        self.open_as(segment, false)
    }

    /// A sealed segment's file, for reading.
    pub(crate) fn open(&self, segment: SegmentId) -> Result<File> {
        if let Some(file) = self.open.lock().find(segment) {
            return Ok(file);
        }
        let file = self.open_as(segment, true)?;
        self.open.lock().keep(segment, file.clone());
        Ok(file)
    }

    fn open_as(&self, segment: SegmentId, direct: bool) -> Result<File> {
        self.store.open_existing(self.content.stream(), &self.name(segment), direct).map_err(|error| match error {
            space::Error::Io(cause) if cause.is_not_found() => {
                Error::corrupt(&self.path(segment), 0, "segment", "a file", "none")
            }
            other => other.into(),
        })
    }

    /// Unlinks a segment; it may be gone already.
    pub(crate) fn remove(&self, segment: SegmentId) -> Result<()> {
        self.open.lock().files.remove(&segment);
        Ok(self.store.release(&self.name(segment))?)
    }
}

impl Open {
    fn find(&mut self, segment: SegmentId) -> Option<File> {
        self.uses += 1;
        let (file, used) = self.files.get_mut(&segment)?;
        *used = self.uses;
        Some(file.clone())
    }

    fn keep(&mut self, segment: SegmentId, file: File) {
        self.uses += 1;
        self.files.insert(segment, (file, self.uses));
        if self.files.len() > OPEN_MAX {
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(segment, _)| *segment) {
                self.files.remove(&oldest);
            }
        }
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
    fn open_files_are_bounded() {
        let files = files(1);
        for number in 1..=OPEN_MAX as u64 + 10 {
            files.create(SegmentId(number)).expect("created");
            files.open(SegmentId(number)).expect("opened");
            // The first one is always in use.
            files.open(SegmentId(1)).expect("opened");
        }
        let open = files.open.lock();
        assert_eq!(open.files.len(), OPEN_MAX);
        assert!(open.files.contains_key(&SegmentId(1)));
        assert!(!open.files.contains_key(&SegmentId(2)));
    }

    #[test]
    fn a_missing_segment_is_named() {
        let error = files(1).open(SegmentId(9)).expect_err("missing");
        assert!(error.is_damage() && error.to_string().contains("doc/1-9.doc"), "{error}");
    }
}
