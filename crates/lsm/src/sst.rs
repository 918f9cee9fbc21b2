//! A file that was written, and the search in it.

use std::sync::{Arc, OnceLock};

use index::{Damage, Result, TableId};
use psync::{BLOCK, Buffer, File, Request};
use space::{FileStore, StreamKind};

use crate::blocks::{Kind, Loaded};
use crate::format::Place;
use crate::format::footer::{Footer, Written};
use crate::format::stored::Identity;
use crate::shared::{Shared, Want};

/// The directory of the files of all tables.
const DIRECTORY: &str = "sst";

/// A file that is never changed.
pub struct Sst {
    name: String,
    kind: StreamKind,
    written: Written,
    top: OnceLock<Arc<Loaded>>,
}

impl Sst {
    /// Creates the file with this number, to be written. Its name is durable after
    /// [`FileStore::sync_directories`].
    ///
    /// # Errors
    /// When the file exists, or the system refuses.
    pub fn create(store: &FileStore, kind: StreamKind, table: TableId, number: u64) -> Result<File> {
        Ok(store.create(kind, &name_of(table, number), true)?)
    }

    /// The file that was written.
    #[must_use]
    pub fn new(kind: StreamKind, written: Written) -> Self {
        let Footer { table, number, .. } = written.footer;
        Self { name: name_of(table, number), kind, written, top: OnceLock::new() }
    }

    /// The file with this number, by its own footer: for a reader that knows nothing else of it. Its first and last
    /// keys are not known.
    ///
    /// # Errors
    /// When the file cannot be read, or its footer does not check.
    pub fn find(store: &FileStore, kind: StreamKind, table: TableId, number: u64) -> Result<Self> {
        let name = name_of(table, number);
        let file = store.open_kept(kind, &name, true)?;
        let at = |damage: Damage, offset| damage.at(file.path().display(), offset);
        let bytes = file.len()?;
        if bytes < BLOCK as u64 || !bytes.is_multiple_of(BLOCK as u64) || u32::try_from(bytes).is_err() {
            return Err(at(Damage::new(0, "length of a file", "whole pages, below 4 GiB", bytes), bytes));
        }
        let begin = bytes - BLOCK as u64;
        let read = store.psync().run_all(vec![Request::read(&file, begin, Buffer::for_read(BLOCK), 0)])?;
        let page = read.into_iter().flatten().next().expect("a read has a buffer");
        let footer = page[BLOCK - Footer::BYTES..].try_into().expect("as many bytes");
        let footer = Footer::decode(footer).map_err(|damage| at(damage, bytes - Footer::BYTES as u64))?;
        if (footer.table, footer.number) != (table, number) {
            let [expected, found] = [(table, number), (footer.table, footer.number)]
                .map(|(table, number)| format!("{number} of table {}", table.0));
            return Err(at(Damage::new(0, "number of a file", expected, found), bytes - Footer::BYTES as u64));
        }
        Ok(Self::new(kind, Written { bytes, low: Vec::new(), high: Vec::new(), footer }))
    }

    pub(crate) const fn identity(&self) -> Identity {
        self.written.footer.identity()
    }

    /// What is in the file.
    #[must_use]
    pub const fn written(&self) -> &Written {
        &self.written
    }

    /// Opens the file, if it is not open.
    pub(crate) fn file(&self, store: &FileStore) -> Result<File> {
        Ok(store.open_kept(self.kind, &self.name, true)?)
    }

    /// Fails where a block cannot be at this place, because the file ends before.
    pub(crate) fn check_place(&self, place: Place) -> Result<()> {
        let end = u64::from(place.offset) + u64::from(place.bytes);
        if end <= self.written.bytes && place.bytes > 0 {
            return Ok(());
        }
        let expected = format!("an end at or before {}", self.written.bytes);
        Err(Damage::new(0, "place of a block", expected, end).at(&self.name, place.offset.into()))
    }

    /// The top, which stays in memory with this.
    pub(crate) fn top(&self, shared: &Shared) -> Result<&Arc<Loaded>> {
        if let Some(top) = self.top.get() {
            return Ok(top);
        }
        let want = Want { sst: self, place: self.written.footer.top, kind: Kind::Top };
        let top = shared.block(want)?;
        Ok(self.top.get_or_init(|| top))
    }
}

fn name_of(table: TableId, number: u64) -> String {
    format!("{DIRECTORY}/{}-{number}.sst", table.0)
}
