//! The document log of a table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use psync::{File, Psync};
use space::FileStore;

use crate::ahead::{Asked, ReadAhead};
use crate::files::{Content, SegmentFiles, Source};
use crate::read::{BYTES_IN_FLIGHT, Wanted, Wants};
use crate::segments::{Lane, Reservation, Retained, Segments, Stats, Usage};
use crate::{Compression, DocImage, DocLength, DocPointer, Error, Result, SegmentId, fetch, rewrite};

/// Default size of a segment, in bytes.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;

/// Documents that [`DocLog::verify`] checks in one psync.
const VERIFY_BATCH: usize = 1024;

/// The way of reading documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Maximum number of requests in flight.
    pub in_flight: usize,
    /// Whether reads bypass the page cache, where the file system allows that.
    pub direct: bool,
}

/// The documents of a table. All methods may be called from any thread; none holds a lock during I/O.
#[derive(Debug)]
pub struct DocLog {
    files: Arc<SegmentFiles>,
    segments: Mutex<Segments>,
    damage: Vec<Error>,
    compression: Compression,
}

impl DocLog {
    /// Opens the documents of `table` as `image` and the files describe them, all segments sealed. Segments that the
    /// image does not know were made after the checkpoint; they have no live bytes until the replay of the log retains
    /// their documents. A file shorter than the image says is damage ([`DocLog::damage`]); a shorter tail beyond that
    /// is left by a crash.
    ///
    /// A segment gets about `segment_bytes`; each larger document gets a segment of its own.
    ///
    /// # Errors
    /// When the files cannot be listed or opened.
    pub fn open(store: &FileStore, table: u32, image: &DocImage, segment_bytes: u64) -> Result<Self> {
        Self::open_of(Content::Documents, store, table, image, segment_bytes)
    }

    /// As [`DocLog::open`], for documents of kind `content`.
    ///
    /// # Errors
    /// When the files cannot be listed or opened.
    pub fn open_of(
        content: Content, store: &FileStore, table: u32, image: &DocImage, segment_bytes: u64,
    ) -> Result<Self> {
        let files = Arc::new(SegmentFiles::new(store, content, table));
        let mut found = Vec::new();
        for segment in files.list()? {
            found.push((segment, files.length(segment)?));
        }
        let (segments, damage) = Segments::new(Arc::clone(&files), segment_bytes, image, &found);
        Ok(Self { files, segments: Mutex::new(segments), damage, compression: Compression::None })
    }

    /// The same log, which compresses documents appended from here on. Documents already stored stay readable, whatever
    /// their compression.
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    pub(crate) const fn compression(&self) -> Compression {
        self.compression
    }

    /// Damage of the segments found at open. Documents in undamaged parts are readable all the same.
    #[must_use]
    pub fn damage(&self) -> &[Error] {
        &self.damage
    }

    /// Sets the approximate size of a segment from here on.
    pub fn set_segment_bytes(&self, bytes: u64) {
        self.segments.lock().set_segment_bytes(bytes);
    }

    /// The usage of each segment, in number order.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        self.segments.lock().usage()
    }

    /// Seals the active segments: later appends go to new segments, so that every present segment can be emptied.
    pub fn seal(&self) {
        self.segments.lock().seal();
    }

    /// Reserves room for a document of this length.
    pub(crate) fn reserve(&self, length: DocLength, lane: Lane, reserved: &mut Vec<Reservation>) -> Result<()> {
        loop {
            let number = {
                let mut segments = self.segments.lock();
                if segments.reserve(length, lane, reserved) {
                    return Ok(());
                }
                segments.number()?
            };
            // Another thread may use this file before the lock is held again; then another file is made.
            let file = self.files.create(number)?;
            self.segments.lock().offer(number, file);
        }
    }

    /// Notes everything reserved as written.
    pub(crate) fn written(&self, reserved: Vec<Reservation>) {
        self.segments.lock().written(reserved);
    }

    /// Gives back room that will not be used.
    pub(crate) fn give_back(&self, reserved: Vec<Reservation>) {
        self.segments.lock().give_back(reserved);
    }

    pub(crate) fn psync(&self) -> &Psync {
        self.files.psync()
    }

    /// The file of a segment, sealed or not, for reading through the page cache.
    pub(crate) fn file_of(&self, segment: SegmentId) -> Result<File> {
        self.files.open(segment, &Source::Sealed { direct: false })
    }

    /// Numbers of the present segments, ascending.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentId> {
        self.usage().into_iter().map(|segment| segment.segment).collect()
    }

    pub(crate) fn table(&self) -> u32 {
        self.files.table()
    }

    /// Takes the files to which documents were written since the last call. The documents are durable when these files
    /// are flushed.
    #[must_use]
    pub fn take_unflushed(&self) -> Vec<File> {
        self.segments.lock().take_unflushed()
    }

    /// Reads documents, all in one psync, and checks them; in the order of the pointers. A document that is named twice
    /// is read once.
    ///
    /// # Errors
    /// The error of the first pointer, in their order, whose document cannot be read or does not check.
    pub fn read_many(&self, pointers: &[DocPointer]) -> Result<Vec<Vec<u8>>> {
        self.read_each(pointers).into_iter().collect()
    }

    /// As [`DocLog::read_many`], but each document for itself: a document that cannot be read or does not check does
    /// not affect the others.
    #[must_use]
    pub fn read_each(&self, pointers: &[DocPointer]) -> Vec<Result<Vec<u8>>> {
        self.fetch(pointers, Wants::Document)
    }

    /// As [`DocLog::read_each`], for a caller that processes documents while others are read. Each document is handed
    /// over on arrival, with its index among the pointers. At most `in_flight` reads are in flight.
    pub fn read_as_they_come(
        &self, pointers: &[DocPointer], in_flight: usize, take: &mut dyn FnMut(usize, Result<Vec<u8>>),
    ) {
        let mut asked = self.ask(pointers, Wants::Document, true);
        fetch::fetch_as_they_come(&self.files, &mut asked, in_flight, take);
        asked.hand_over_rest(take);
    }

    /// Whether each document is whole. In recovery, a document that is not whole was never durable, and neither was its
    /// commit. A document that does not check is therefore read again, in case only the read was wrong.
    ///
    /// # Errors
    /// When a file cannot be opened or read: then nothing is known.
    pub fn check_many(&self, pointers: &[DocPointer]) -> Result<Vec<bool>> {
        let check = |pointers: &[DocPointer]| -> Result<Vec<bool>> {
            let outcomes = self.fetch(pointers, Wants::Check).into_iter();
            let whole = outcomes.map(|outcome| match outcome {
                Ok(_) => Ok(true),
                Err(Error::Corrupt { .. }) => Ok(false),
                Err(error) => Err(error),
            });
            whole.collect()
        };
        let mut whole = check(pointers)?;
        let bad: Vec<_> = (0..whole.len()).filter(|&index| !whole[index]).collect();
        if !bad.is_empty() {
            let again = check(&bad.iter().map(|&index| pointers[index]).collect::<Vec<_>>())?;
            bad.into_iter().zip(again).for_each(|(index, again)| whole[index] = again);
        }
        Ok(whole)
    }

    /// Checks live documents in batches of one psync each. Reports:
    ///
    /// - the damage found at open ([`DocLog::damage`]), with every call again;
    /// - every document that cannot be read, does not check, or does not decompress as its pointer says.
    ///
    /// `progress` gets the documents and payload bytes of each batch.
    pub fn verify(&self, live: &[DocPointer], report: &mut dyn FnMut(Error), progress: &mut dyn FnMut(u64, u64)) {
        self.damage.iter().for_each(|error| report(error.clone()));
        let mut left = live;
        while !left.is_empty() {
            let batch;
            (batch, left) = left.split_at(verify_batch(left));
            let outcomes = self.fetch(batch, Wants::Meaning);
            outcomes.into_iter().filter_map(Result::err).for_each(&mut *report);
            progress(batch.len() as u64, batch.iter().map(|pointer| pointer.length.stored()).sum());
        }
    }

    /// Writes these documents again, unchanged and in place, and adds their files to the unflushed ones. Then the next
    /// flush makes the documents durable, even if an earlier flush failed, in any process, and the system has taken
    /// their pages for clean since. Recovery calls this before it makes durable any reference to the documents.
    ///
    /// # Errors
    /// When a document is not whole ([`Error::Corrupt`]), the store is read-only, or a file cannot be opened, read or
    /// written.
    pub fn rewrite(&self, pointers: &[DocPointer]) -> Result<()> {
        let mut pointers = pointers.to_vec();
        pointers.sort_unstable();
        pointers.dedup();
        let mut files: BTreeMap<SegmentId, File> = BTreeMap::new();
        let mut documents = Vec::with_capacity(pointers.len());
        for pointer in &pointers {
            self.segments.lock().check(pointer)?;
            let file = match files.get(&pointer.segment) {
                Some(file) => file.clone(),
                None => self.writable_file(pointer.segment)?,
            };
            let source = Source::Open(file.clone());
            documents.push(Wanted::new(self.files.table(), *pointer, source, Wants::Check));
            files.insert(pointer.segment, file);
        }
        rewrite::rewrite(&self.files, documents)?;
        let mut segments = self.segments.lock();
        files.into_iter().for_each(|(segment, file)| segments.note_unflushed(segment, file));
        Ok(())
    }

    fn writable_file(&self, segment: SegmentId) -> Result<File> {
        if self.files.store().is_read_only() {
            return Err(space::Error::ReadOnly { operation: "write", path: self.files.path(segment) }.into());
        }
        let file = self.segments.lock().writable_file(segment);
        file.map_or_else(|| self.file_of(segment), Ok)
    }

    /// Reads each document once and checks it; a result without wanted content is empty.
    fn fetch(&self, pointers: &[DocPointer], wants: Wants) -> Vec<Result<Vec<u8>>> {
        let mut asked = self.ask(pointers, wants, true);
        fetch::fetch(&self.files, asked.documents());
        asked.finish()
    }

    /// Begins to read documents as [`DocLog::read_many`] does. The reads go on while the caller does other work, until
    /// the caller asks for the result.
    #[must_use]
    pub fn read_ahead(&self, pointers: &[DocPointer]) -> ReadAhead {
        ReadAhead::begin(self.ask(pointers, Wants::Document, true), self.psync().pio_max())
    }

    /// As [`DocLog::read_ahead`], with the reads of `how`, and each document in its stored form: for a
    /// [`DocLog::mover`].
    #[must_use]
    pub fn read_stored(&self, pointers: &[DocPointer], how: Reads) -> ReadAhead {
        ReadAhead::begin(self.ask(pointers, Wants::Stored, how.direct), how.in_flight)
    }

    fn ask(&self, pointers: &[DocPointer], wants: Wants, direct: bool) -> Asked {
        let mut order: Vec<usize> = (0..pointers.len()).collect();
        order.sort_unstable_by_key(|index| pointers[*index]);
        let same: Vec<&[usize]> = order.chunk_by(|a, b| pointers[*a] == pointers[*b]).collect();
        let mut asked = Asked::new(pointers.len(), Arc::clone(&self.files));
        let segments = self.segments.lock();
        for equal in same {
            let pointer = pointers[equal[0]];
            let wanted = segments.check(&pointer).map(|()| {
                // A document that was just appended is in the page cache.
                let source = segments.active_file(pointer.segment).map_or(Source::Sealed { direct }, Source::Open);
                Wanted::new(self.files.table(), pointer, source, wants)
            });
            asked.push(wanted, equal);
        }
        drop(segments);
        asked
    }

    /// Counts the bytes of this document as live, because a committed version refers to it. Called once per version, in
    /// recovery too, with the seq of the `commit` that names the document.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when there can be no document at that place; nothing is counted then.
    pub fn retain(&self, pointer: &DocPointer, commit: u64) -> Result<()> {
        self.segments.lock().retain(pointer, commit)
    }

    /// Checks that a segment can have these documents: the segment exists and is long enough.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it cannot.
    pub fn check_in(&self, retained: &Retained) -> Result<()> {
        self.segments.lock().check_in(retained)
    }

    /// As [`DocLog::retain`] for many documents of a segment, which are all of its pending documents.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the documents cannot be there; nothing is counted then.
    pub fn retain_in(&self, retained: &Retained) -> Result<()> {
        self.segments.lock().retain_in(retained)
    }

    /// Abandons all pending documents: all of them were appended for operations that failed, so no version will ever
    /// refer to them.
    pub fn abandon_pending(&self) {
        self.segments.lock().abandon_pending();
    }

    /// Counts the bytes of this document as dead, because no version refers to it any more. Called once per version
    /// that was retained.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the segment has fewer live bytes than that; nothing is counted then.
    pub fn drop_document(&self, pointer: &DocPointer) -> Result<()> {
        self.segments.lock().drop_document(pointer)
    }

    /// Counts `bytes` of a segment as dead, with headers and padding, because nothing refers to their documents any
    /// more.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the segment has fewer live bytes than that; nothing is counted then.
    pub fn drop_in(&self, segment: SegmentId, bytes: u64) -> Result<()> {
        self.segments.lock().drop_in(segment, 0, bytes)
    }

    /// Abandons an appended document: its commit failed, so no version will ever refer to it.
    pub fn abandon(&self, pointer: &DocPointer) {
        self.segments.lock().abandon(pointer);
    }

    /// Bytes of live documents of each segment that has any, with headers and padding.
    #[must_use]
    pub fn live(&self) -> BTreeMap<SegmentId, u64> {
        self.segments.lock().live()
    }

    /// Pins these segments and no others: they stay even if dead, because older states of the table refer to them. The
    /// pins last until the next call, or until the table is opened again.
    pub fn pin(&self, segments: &BTreeSet<SegmentId>) {
        self.segments.lock().pin(segments);
    }

    /// The path of the file of a segment.
    #[must_use]
    pub fn path_of(&self, segment: SegmentId) -> PathBuf {
        self.files.path(segment)
    }

    /// Last commit and size in bytes of each dead segment: no document in it is live, nothing more is appended to it,
    /// and it is not pinned.
    #[must_use]
    pub fn dead(&self) -> Vec<(u64, u64)> {
        self.segments.lock().dead()
    }

    /// Files of segments that nothing was kept of. They are used again, or go with the next release.
    pub fn spares(&self) -> usize {
        self.segments.lock().spares()
    }

    /// Unlinks segments and returns their numbers. A segment is unlinked if it was dead in the last image, is not
    /// pinned, and is named by no commit with a seq of `oldest` or later. The caller has made the checkpoint with that
    /// image durable. The caller also knows that no reader needs a document that was dropped before the image.
    ///
    /// # Errors
    /// When a file cannot be removed; the next call tries again.
    pub fn release_dead(&self, oldest: u64) -> Result<Vec<SegmentId>> {
        let mut dead = self.segments.lock().take_dead(oldest);
        dead.sort_unstable();
        for (index, segment) in dead.iter().enumerate() {
            if let Err(error) = self.files.remove(*segment) {
                let mut segments = self.segments.lock();
                dead[index..].iter().for_each(|segment| segments.put_back(*segment));
                return Err(error);
            }
        }
        Ok(dead)
    }

    /// Unlinks every segment, because the table is dropped. Nothing may be appended or read afterwards.
    ///
    /// # Errors
    /// When a file cannot be removed. [`DocLog::remove_table`] removes the remaining files.
    pub fn destroy(&self) -> Result<()> {
        let all = self.segments.lock().take_all();
        all.into_iter().try_for_each(|segment| self.files.remove(segment))
    }

    /// Unlinks all files of a table that is not open, because the table was dropped before a crash.
    ///
    /// # Errors
    /// When the files cannot be listed or removed.
    pub fn remove_table(content: Content, store: &FileStore, table: u32) -> Result<()> {
        let files = SegmentFiles::new(store, content, table);
        files.list()?.into_iter().try_for_each(|segment| files.remove(segment))
    }

    /// The current segments, for a checkpoint. Retained documents must be flushed before the checkpoint is durable.
    #[must_use]
    pub fn image(&self) -> DocImage {
        self.segments.lock().image()
    }

    /// Space by state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.segments.lock().stats()
    }
}

/// Number of documents, from the first on, that are verified at once. Compressed documents stay in memory until all of
/// the batch are read, so their bytes bound the number.
fn verify_batch(live: &[DocPointer]) -> usize {
    let most = live.iter().take(VERIFY_BATCH).scan(0, |bytes: &mut u64, pointer| {
        *bytes = bytes.saturating_add(pointer.length.stored());
        Some(*bytes)
    });
    most.take_while(|&bytes| bytes <= BYTES_IN_FLIGHT).count().max(1)
}
