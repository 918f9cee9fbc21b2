//! The file `superblock`: two slots, of which the older is overwritten.
//!
//! During the creation of a database the file has another name ([`UNFINISHED`]). The file gets its own name once both
//! slots have an image. So a creation that was cut off, at any point, is told apart from a damaged database.

use std::path::Path;

use psync::{Buffer, File, Psync, Request};
use seeded::Bug;
use space::{FileStore, StreamKind};
use wal::Lsn;

use crate::{
    error::{Error, Result},
    format::{ImagePlace, SLOT_BYTES, SlotError, Superblock, VERSION},
};

/// Name of the file.
pub(crate) const NAME: &str = "superblock";
/// Name of the file during the creation of the database.
pub(crate) const UNFINISHED: &str = "superblock.new";

/// The superblock and its file.
pub(crate) struct SuperblockFile {
    psync: Psync,
    file: File,
    current: Superblock,
}

impl SuperblockFile {
    /// Creates the file of a database that is being created, in the first epoch. The file is empty until the first
    /// image.
    pub(crate) fn create(store: &FileStore, database: [u8; 16], segment_bytes: u64) -> Result<Self> {
        let file = store.create(StreamKind::Meta, UNFINISHED, false)?;
        let current = Superblock { database, generation: 0, epoch: 1, segment_bytes, image: None, clean_end: None };
        Ok(Self { psync: store.psync().clone(), file, current })
    }

    /// Ends the creation of the database: the file gets its final name, durably.
    pub(crate) fn finish(&mut self, store: &FileStore) -> Result<()> {
        store.rename(UNFINISHED, NAME)?;
        store.sync_directories()?;
        // Opened again, so that messages show the final name.
        self.file = store.open_existing(StreamKind::Meta, NAME, false)?;
        Ok(())
    }

    /// Opens the file and takes the newest valid slot.
    pub(crate) fn open(store: &FileStore) -> Result<Self> {
        let file = store.open_existing(StreamKind::Meta, NAME, false)?;
        let psync = store.psync().clone();
        let path = file.path().to_owned();
        let length = file.len()?;
        if length < 2 * SLOT_BYTES as u64 {
            let reason = format!("its superblock has {length} bytes instead of {}", 2 * SLOT_BYTES);
            return Err(Error::ForeignFile { path, reason });
        }
        let mut slots = read_slots(&psync, &file)?;
        if slots.iter().any(std::result::Result::is_err) {
            // Read again past the page cache, because a wrong read of the newer slot would take the database back to an
            // older checkpoint.
            let again = read_slots(&psync, &store.open_existing(StreamKind::Meta, NAME, true)?)?;
            slots = slots.into_iter().zip(again).map(|(slot, again)| slot.or(again)).collect();
        }
        let current = newest(&slots, &path)?;
        Ok(Self { psync, file, current })
    }

    /// The damage of the slots on storage.
    pub(crate) fn bad_slots(&self) -> Result<Vec<Error>> {
        let problem = |(slot, decoded): (u64, SlotRead)| {
            let found = decoded.err()?;
            Some(Error::Corrupt {
                file: self.file.path().display().to_string(),
                offset: slot * SLOT_BYTES as u64,
                what: format!("slot {slot} of the superblock"),
                expected: "a whole slot".into(),
                found: format!("{found:?}"),
            })
        };
        Ok((0..).zip(read_slots(&self.psync, &self.file)?).filter_map(problem).collect())
    }

    /// The remains of the file, for salvage: the slots that check, newest first, and the damage of the others.
    pub(crate) fn left(store: &FileStore) -> Result<(Vec<Superblock>, Vec<String>)> {
        let path = store.path_of(NAME)?;
        if !store.exists(NAME)? {
            return Ok((Vec::new(), vec![format!("{}: there is no such file", path.display())]));
        }
        let file = store.open_existing(StreamKind::Meta, NAME, false)?;
        let (mut whole, mut findings) = (Vec::new(), Vec::new());
        for slot in 0..2 {
            let offset = slot * SLOT_BYTES as u64;
            let read = store.psync().run_all(vec![read_of(&file, slot)]);
            let decoded = read.map(|mut buffers| decode(slot, buffers.pop().flatten()));
            let problem = match decoded {
                Ok(Ok(slot)) => {
                    whole.push(slot);
                    continue;
                }
                Ok(Err(SlotError::Version(found, true))) if found > VERSION => {
                    return Err(Error::NewerVersion { path, found, supported: VERSION });
                }
                Ok(Err(problem)) => format!("{problem:?}"),
                Err(error) => error.to_string(),
            };
            findings.push(format!("{} at byte {offset}: slot {slot} is damaged ({problem})", path.display()));
        }
        whole.sort_by_key(|slot| std::cmp::Reverse(slot.generation));
        Ok((whole, findings))
    }

    /// The contents of the newest slot.
    pub(crate) const fn current(&self) -> &Superblock {
        &self.current
    }

    /// Begins a new epoch. Writes are allowed from here on.
    pub(crate) fn begin_epoch(&mut self) -> Result<()> {
        let clean_end = self.current.clean_end.filter(|_| seeded::on(Bug::CleanMarkKept));
        self.write(Superblock { epoch: self.current.epoch + 1, clean_end, ..self.current.newer() })
    }

    /// Marks the database as closed. The newest image then has the whole contents. The log ends at `end`, is on stable
    /// storage, and gets no more writes.
    pub(crate) fn mark_clean(&mut self, end: Lsn) -> Result<()> {
        self.write(Superblock { clean_end: Some(end), ..self.current.newer() })
    }

    /// Makes an image the newest checkpoint. The image is on stable storage already.
    pub(crate) fn set_image(&mut self, image: ImagePlace) -> Result<()> {
        self.write(Superblock { image: Some(image), ..self.current.newer() })
    }

    /// Makes an image the first checkpoint of a database that is being created. The image goes into both slots, so that
    /// each slot names one. The same flush covers the earlier writes to `written` and the names of all files, because
    /// the superblock file does not have its final name yet.
    pub(crate) fn set_first_image(&mut self, store: &FileStore, image: ImagePlace, written: &File) -> Result<()> {
        let next = Superblock { image: Some(image), ..self.current.newer() };
        let again = next.newer();
        self.psync.run_all(vec![self.slot(&next), self.slot(&again)])?;
        store.flush_with_names(&[written, &self.file])?;
        self.current = again;
        Ok(())
    }

    fn write(&mut self, next: Superblock) -> Result<()> {
        self.psync.run_all(vec![self.slot(&next), Request::flush(&self.file, 0)])?;
        self.current = next;
        Ok(())
    }

    fn slot(&self, of: &Superblock) -> Request {
        let offset = (of.generation % 2) * SLOT_BYTES as u64;
        Request::write(&self.file, offset, Buffer::from_slice(&of.encode()), of.generation)
    }
}

/// The contents of a slot, if the slot checks.
type SlotRead = std::result::Result<Superblock, SlotError>;

fn read_of(file: &File, slot: u64) -> Request {
    Request::read(file, slot * SLOT_BYTES as u64, Buffer::zeroed(SLOT_BYTES), slot)
}

/// Reads both slots.
fn read_slots(psync: &Psync, file: &File) -> Result<Vec<SlotRead>> {
    let buffers = psync.run_all(vec![read_of(file, 0), read_of(file, 1)])?;
    Ok((0..).zip(buffers).map(|(slot, buffer)| decode(slot, buffer)).collect())
}

/// The contents of slot `slot`. Contents that belong in the other slot are refused.
fn decode(slot: u64, bytes: Option<Buffer>) -> SlotRead {
    let bytes = bytes.as_deref().unwrap_or_default();
    let found = bytes.try_into().map_err(|_| SlotError::Field).and_then(Superblock::decode)?;
    if found.generation % 2 == slot { Ok(found) } else { Err(SlotError::Field) }
}

/// The valid slot of the highest generation. An invalid slot is one that a crash tore.
fn newest(slots: &[SlotRead], path: &Path) -> Result<Superblock> {
    let newer = |whole_only: bool| {
        let newer = slots.iter().find_map(|slot| match slot {
            Err(SlotError::Version(found, whole)) if *found > VERSION && (*whole || !whole_only) => Some(*found),
            _ => None,
        });
        newer.map_or(Ok(()), |found| Err(Error::NewerVersion { path: path.to_owned(), found, supported: VERSION }))
    };
    // A whole slot of a newer version decides. A slot that only looks like a newer version may be damaged; then the
    // other slot is as good.
    newer(true)?;
    if let Some(newest) = slots.iter().filter_map(|slot| slot.as_ref().ok()).max_by_key(|slot| slot.generation) {
        return Ok(*newest);
    }
    newer(false)?;
    if slots.iter().all(|slot| matches!(slot, Err(SlotError::Magic))) {
        let reason = "its superblock does not begin like one".into();
        return Err(Error::ForeignFile { path: path.to_owned(), reason });
    }
    let found = slots.iter().map(|slot| format!("{slot:?}")).collect::<Vec<_>>().join(" and ");
    Err(Error::Corrupt {
        file: path.display().to_string(),
        offset: 0,
        what: "both slots of the superblock".into(),
        expected: "one whole slot".into(),
        found,
    })
}
