//! A file that was written, and the search in it.

use std::sync::{Arc, OnceLock};

use index::{Damage, Result, TableId};
use psync::{BLOCK, Buffer, File, Request};
use space::{FileStore, StreamKind};

use crate::blocks::{Kind, Loaded};
use crate::format::Place;
use crate::format::footer::Footer;
use crate::format::stored::Identity;
use crate::shared::{Shared, Want};

/// The directory of the files of all tables.
pub(crate) const DIRECTORY: &str = "sst";
const SUFFIX: &str = ".sst";

/// A file that is never changed.
pub(crate) struct Sst {
    name: String,
    kind: StreamKind,
    bytes: u64,
    footer: Footer,
    top: OnceLock<Arc<Loaded>>,
}

impl Sst {
    /// Creates the file with this number, to be written. Its name is durable after
    /// [`FileStore::sync_directories`].
    ///
    /// # Errors
    /// When the file exists, or the system refuses.
    pub(crate) fn create(store: &FileStore, kind: StreamKind, table: TableId, number: u64) -> Result<File> {
        Ok(store.create(kind, &name_of(table, number), true)?)
    }

    /// A file of so many bytes with this footer. Nothing is read.
    pub(crate) fn new(kind: StreamKind, bytes: u64, footer: Footer) -> Self {
        Self { name: name_of(footer.table, footer.number), kind, bytes, footer, top: OnceLock::new() }
    }

    /// The file with this number, by its own footer: for a reader that knows nothing else of it.
    ///
    /// # Errors
    /// When the file cannot be read, or its footer does not check.
    pub(crate) fn find(store: &FileStore, kind: StreamKind, table: TableId, number: u64) -> Result<Self> {
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
        Ok(Self::new(kind, bytes, footer))
    }

    pub(crate) const fn identity(&self) -> Identity {
        self.footer.identity()
    }

    pub(crate) const fn kind(&self) -> StreamKind {
        self.kind
    }

    /// Its path, for errors.
    pub(crate) fn path(&self, store: &FileStore) -> String {
        store.path_of(&self.name).map_or_else(|_| self.name.clone(), |path| path.display().to_string())
    }

    pub(crate) const fn footer(&self) -> &Footer {
        &self.footer
    }

    pub(crate) const fn number(&self) -> u64 {
        self.footer.number
    }

    /// Bytes of the file.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Opens the file, if it is not open.
    pub(crate) fn file(&self, store: &FileStore) -> Result<File> {
        Ok(store.open_kept(self.kind, &self.name, true)?)
    }

    /// Fails where a block cannot be at this place, because the file ends before.
    pub(crate) fn check_place(&self, place: Place) -> Result<()> {
        let end = u64::from(place.offset) + u64::from(place.bytes);
        if end <= self.bytes && place.bytes > 0 {
            return Ok(());
        }
        let expected = format!("an end at or before {}", self.bytes);
        Err(Damage::new(0, "place of a block", expected, end).at(&self.name, place.offset.into()))
    }

    /// The fences of a partition.
    pub(crate) fn partition(&self, shared: &Shared, index: usize) -> Result<Arc<Loaded>> {
        let place = self.top(shared)?.fences().place(index, 0);
        shared.block(Want { sst: self, place, kind: Kind::Partition })
    }

    /// The top, which stays in memory with this.
    pub(crate) fn top(&self, shared: &Shared) -> Result<&Arc<Loaded>> {
        if let Some(top) = self.top.get() {
            return Ok(top);
        }
        let want = Want { sst: self, place: self.footer.top, kind: Kind::Top };
        let top = shared.block(want)?;
        Ok(self.top.get_or_init(|| top))
    }
}

/// The tables and numbers of all files in `store`.
///
/// # Errors
/// When files cannot be listed.
pub(crate) fn list(store: &FileStore) -> Result<Vec<(TableId, u64)>> {
    let parse = |name: String| {
        let (table, number) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let (table, number) = (TableId(table.parse().ok()?), number.parse().ok()?);
        (name_of(table, number).strip_prefix(DIRECTORY)?.strip_prefix('/')? == name).then_some((table, number))
    };
    Ok(store.list(DIRECTORY)?.into_iter().filter_map(parse).collect())
}

/// Removes all files of a table.
///
/// # Errors
/// When files cannot be listed or removed.
pub(crate) fn remove_all(store: &FileStore, table: TableId) -> Result<()> {
    for (_, number) in list(store)?.into_iter().filter(|(of, _)| *of == table) {
        store.release(&name_of(table, number))?;
    }
    Ok(())
}

pub(crate) fn name_of(table: TableId, number: u64) -> String {
    format!("{DIRECTORY}/{}-{number}{SUFFIX}", table.0)
}
