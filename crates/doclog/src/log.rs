//! The document log of a table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use psync::{File, Psync};
use space::FileStore;

use crate::ahead::{Asked, ReadAhead};
use crate::appender::{Appender, Flusher};
use crate::compression::{Packed, pack};
use crate::files::{Content, SegmentFiles, Source};
use crate::read::{self, Wanted, Wants};
use crate::rewrite;
use crate::segments::{Lane, Reservation, Retained, Segments, Stats, Usage};
use crate::{Compression, DocImage, DocLength, DocPointer, Error, Result, SegmentId};

/// Bytes that a segment has unless said otherwise.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;

/// Documents that [`DocLog::verify`] checks in one psync.
const VERIFY_BATCH: usize = 1024;

/// How documents are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Requests in flight at most.
    pub in_flight: usize,
    /// Past the page cache, where the file system allows that.
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

/// Documents as they are to be stored, and nowhere yet. Made by [`DocLog::pack`].
pub struct PackedDocuments<'a>(Vec<Packed<'a>>);

impl PackedDocuments<'_> {
    /// Bytes that they will take, with headers and padding.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.0.iter().map(|packed| packed.length.room()).sum()
    }
}

impl DocLog {
    /// Opens the documents of `table` as `image` and the files tell of them, all segments sealed. Segments that the image does not know
    /// were made after the checkpoint: they have no live bytes until the log's replay retains their documents. A file
    /// that is shorter than the image says is damage ([`DocLog::damage`]); a shorter tail beyond that is what a crash leaves.
    ///
    /// A segment gets about `segment_bytes`; larger documents get one of their own.
    ///
    /// # Errors
    /// When the files cannot be listed or opened.
    pub fn open(store: &FileStore, table: u32, image: &DocImage, segment_bytes: u64) -> Result<Self> {
        Self::open_of(Content::Documents, store, table, image, segment_bytes)
    }

    /// As [`DocLog::open`], for documents that are `content`.
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

    /// The same, which compresses what is appended from here on. What is there can be read whatever it is.
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    pub(crate) const fn compression(&self) -> Compression {
        self.compression
    }

    /// What was wrong with the segments at open. Documents in undamaged parts are readable all the same.
    #[must_use]
    pub fn damage(&self) -> &[Error] {
        &self.damage
    }

    /// Appends documents, all in one psync. They are written, not flushed: [`DocLog::take_unflushed`] has their files. Every pointer
    /// has to be retained or abandoned once it is known whether its commit is.
    ///
    /// # Errors
    /// When a document is larger than [`DOCUMENT_BYTES_MAX`](crate::DOCUMENT_BYTES_MAX), the store is read-only, the disk is full or a write fails. No
    /// document is appended then.
    pub fn append(&self, documents: &[&[u8]]) -> Result<Vec<DocPointer>> {
        self.append_packed(&self.pack(documents)?)
    }

    /// Compresses documents, if this log does that. Their room is not reserved before, so nobody waits for that meanwhile.
    ///
    /// # Errors
    /// When a document is larger than [`DOCUMENT_BYTES_MAX`](crate::DOCUMENT_BYTES_MAX).
    pub fn pack<'a>(&self, documents: &[&'a [u8]]) -> Result<PackedDocuments<'a>> {
        let packed = documents.iter().map(|document| pack(self.compression, document));
        Ok(PackedDocuments(packed.collect::<Result<_>>()?))
    }

    /// As [`DocLog::append`], for documents that are packed.
    ///
    /// # Errors
    /// As [`DocLog::append`].
    pub fn append_packed(&self, documents: &PackedDocuments<'_>) -> Result<Vec<DocPointer>> {
        let mut appender = Appender::new(self, Lane::New, Flusher::Log, Some(documents.stored_bytes()));
        let push = |packed: &Packed<'_>| appender.push_stored(&packed.bytes, packed.length);
        let pointers = documents.0.iter().map(push).collect::<Result<Vec<_>>>()?;
        appender.finish()?;
        Ok(pointers)
    }

    /// Appends documents one after the other, any number of them, whose pointers are known before they are written. Nobody but the caller flushes them.
    #[must_use]
    pub fn appender(&self) -> Appender<'_> {
        Appender::new(self, Lane::New, Flusher::Caller, None)
    }

    /// As [`DocLog::appender`], for documents that are moved out of other segments: they go to segments of their own.
    #[must_use]
    pub fn mover(&self) -> Appender<'_> {
        Appender::new(self, Lane::Moved, Flusher::Caller, None)
    }

    /// From here on a segment gets about so many bytes.
    pub fn set_segment_bytes(&self, bytes: u64) {
        self.segments.lock().set_segment_bytes(bytes);
    }

    /// How full each segment is, in number order.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        self.segments.lock().usage()
    }

    /// What is appended from here on goes to new segments, so that each that there is can be emptied.
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
            // Somebody else may use this file before the lock is held again: then it is made anew.
            let file = self.files.create(number)?;
            self.segments.lock().offer(number, file);
        }
    }

    /// Everything reserved is written.
    pub(crate) fn written(&self, reserved: Vec<Reservation>) {
        self.segments.lock().written(reserved);
    }

    /// What was reserved will not be used.
    pub(crate) fn give_back(&self, reserved: Vec<Reservation>) {
        self.segments.lock().give_back(reserved);
    }

    pub(crate) fn psync(&self) -> &Psync {
        self.files.psync()
    }

    /// The file of a segment, whether it is sealed or not, for reading through the page cache.
    pub(crate) fn file_of(&self, segment: SegmentId) -> Result<File> {
        self.files.open(segment, &Source::Sealed { direct: false })
    }

    /// Numbers of the segments that there are, rising.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentId> {
        self.usage().into_iter().map(|segment| segment.segment).collect()
    }

    pub(crate) fn table(&self) -> u32 {
        self.files.table()
    }

    /// The files that documents were written to since the last call. Documents are durable when these are flushed.
    #[must_use]
    pub fn take_unflushed(&self) -> Vec<File> {
        self.segments.lock().take_unflushed()
    }

    /// Reads documents, all in one psync, and checks them; in the order of the pointers. One that is asked for twice is read once.
    ///
    /// # Errors
    /// The first pointer's, in their order, whose document cannot be read or does not check.
    pub fn read_many(&self, pointers: &[DocPointer]) -> Result<Vec<Vec<u8>>> {
        self.read_each(pointers).into_iter().collect()
    }

    /// As [`DocLog::read_many`], but each document for itself: what cannot be read or does not check is no obstacle to the others.
    #[must_use]
    pub fn read_each(&self, pointers: &[DocPointer]) -> Vec<Result<Vec<u8>>> {
        self.fetch(pointers, Wants::Document)
    }

    /// As [`DocLog::read_each`], for who does something with each document while others are read: it is handed over when it has come, with its place among the
    /// pointers. At most so many reads are in flight.
    pub fn read_as_they_come(
        &self, pointers: &[DocPointer], in_flight: usize, take: &mut dyn FnMut(usize, Result<Vec<u8>>),
    ) {
        let mut asked = self.ask(pointers, Wants::Document, true);
        read::fetch_as_they_come(&self.files, &mut asked, in_flight, take);
        asked.hand_over_rest(take);
    }

    /// Whether each document is whole. In recovery, one that is not was never durable, and neither was its commit; so one that does not
    /// check is read again, in case only the read was wrong.
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

    /// Checks live documents in batches of one psync each. Reports what was wrong at open ([`DocLog::damage`]), with every call again, and
    /// every document that cannot be read or does not check, or does not decompress to what its pointer says. `progress` gets the documents and payload
    /// bytes of each batch.
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

    /// Writes these documents again, as they are and where they are, and puts their files on the list of the unflushed ones: then
    /// the next flush makes them durable, also when an earlier one failed, in whatever process, and the system took their pages for clean
    /// since. For recovery, before it makes durable what refers to them.
    ///
    /// # Errors
    /// When a document is not whole ([`Error::Corrupt`]), the store is read-only, or a file cannot be opened, read or written.
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

    /// Reads each document once and checks it; what is not wanted is empty.
    fn fetch(&self, pointers: &[DocPointer], wants: Wants) -> Vec<Result<Vec<u8>>> {
        let mut asked = self.ask(pointers, wants, true);
        read::fetch(&self.files, asked.documents());
        asked.finish()
    }

    /// Begins to read documents, as [`DocLog::read_many`] does. What it reads goes on while the caller does something else, until it asks for it.
    #[must_use]
    pub fn read_ahead(&self, pointers: &[DocPointer]) -> ReadAhead {
        ReadAhead::begin(self.ask(pointers, Wants::Document, true), self.psync().pio_max())
    }

    /// As [`DocLog::read_ahead`], reading as it is said, and each document as it is stored: for a [`DocLog::mover`].
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
                // What was just appended is in the page cache.
                let source = segments.active_file(pointer.segment).map_or(Source::Sealed { direct }, Source::Open);
                Wanted::new(self.files.table(), pointer, source, wants)
            });
            asked.push(wanted, equal);
        }
        drop(segments);
        asked
    }

    /// A committed version refers to this document: its bytes are live. Called once per version, in recovery too, with the seq of the
    /// `commit` that names it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when there can be no document at that place; nothing is counted then.
    pub fn retain(&self, pointer: &DocPointer, commit: u64) -> Result<()> {
        self.segments.lock().retain(pointer, commit)
    }

    /// Whether a segment can have these documents: it is there, and long enough.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it cannot.
    pub fn check_in(&self, retained: &Retained) -> Result<()> {
        self.segments.lock().check_in(retained)
    }

    /// As [`DocLog::retain`] for many documents of a segment, which are all that is pending there.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when they cannot be there; nothing is counted then.
    pub fn retain_in(&self, retained: &Retained) -> Result<()> {
        self.segments.lock().retain_in(retained)
    }

    /// No version will ever refer to any document that is pending: all of them were appended for what failed.
    pub fn abandon_pending(&self) {
        self.segments.lock().abandon_pending();
    }

    /// No version refers to this document any more: its bytes are dead. Called once per version that was retained.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when its segment has fewer live bytes than that; nothing is counted then.
    pub fn drop_document(&self, pointer: &DocPointer) -> Result<()> {
        self.segments.lock().drop_document(pointer)
    }

    /// Nothing refers any more to documents of a segment that take `bytes` there, with headers and padding: all of them are dead.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the segment has fewer live bytes than that; nothing is counted then.
    pub fn drop_in(&self, segment: SegmentId, bytes: u64) -> Result<()> {
        self.segments.lock().drop_in(segment, 0, bytes)
    }

    /// No version will ever refer to this document, which was appended: its commit failed.
    pub fn abandon(&self, pointer: &DocPointer) {
        self.segments.lock().abandon(pointer);
    }

    /// Bytes of live documents of each segment that has any, with headers and padding.
    #[must_use]
    pub fn live(&self) -> BTreeMap<SegmentId, u64> {
        self.segments.lock().live()
    }

    /// These segments stay, whatever is dead in them, and no others: older states of the table refer to them. So it is until this is called again, or the
    /// table opened.
    pub fn pin(&self, segments: &BTreeSet<SegmentId>) {
        self.segments.lock().pin(segments);
    }

    /// Where a segment's file is.
    #[must_use]
    pub fn path_of(&self, segment: SegmentId) -> PathBuf {
        self.files.path(segment)
    }

    /// Last commit and bytes of each segment in which no document is live, and that is neither appended to any more nor pinned.
    #[must_use]
    pub fn dead(&self) -> Vec<(u64, u64)> {
        self.segments.lock().dead()
    }

    /// Unlinks the segments that were dead in the image made last, are not pinned, and that no commit from the seq `oldest` on names. The caller has made the
    /// checkpoint with that image durable, and knows that no reader needs a document that was dropped before it. Returns their numbers.
    ///
    /// # Errors
    /// When a file cannot be removed; it is tried again by the next call.
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

    /// Unlinks every segment: the table is dropped. Nothing may be appended or read afterwards.
    ///
    /// # Errors
    /// When a file cannot be removed. [`DocLog::remove_table`] removes what is left.
    pub fn destroy(&self) -> Result<()> {
        let all = self.segments.lock().take_all();
        all.into_iter().try_for_each(|segment| self.files.remove(segment))
    }

    /// Unlinks whatever files a table that is not open has: it was dropped before a crash.
    ///
    /// # Errors
    /// When the files cannot be listed or removed.
    pub fn remove_table(content: Content, store: &FileStore, table: u32) -> Result<()> {
        let files = SegmentFiles::new(store, content, table);
        files.list()?.into_iter().try_for_each(|segment| files.remove(segment))
    }

    /// The segments as of now, for a checkpoint. What is retained must be flushed before the checkpoint is durable.
    #[must_use]
    pub fn image(&self) -> DocImage {
        self.segments.lock().image()
    }

    /// Room, by state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.segments.lock().stats()
    }
}

/// How many documents, from the first on, are verified at once: those that are compressed are in memory until they are all read.
fn verify_batch(live: &[DocPointer]) -> usize {
    let most = live.iter().take(VERIFY_BATCH).scan(0, |bytes: &mut u64, pointer| {
        *bytes = bytes.saturating_add(pointer.length.stored());
        Some(*bytes)
    });
    most.take_while(|&bytes| bytes <= read::BYTES_IN_FLIGHT).count().max(1)
}
