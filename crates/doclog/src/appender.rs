//! Appending documents: several in one psync, or one after the other, each with its pointer at once.
//!
//! 1. [`Appender::push`] reserves room for a document and computes its pointer before anything is written, so that
//!    later documents may refer to it.
//! 2. Pushed documents gather and are written in few large pieces ([`crate::write`]), the first ones while later
//!    documents come.
//! 3. [`Appender::write`] waits for all writes, and [`Appender::finish`] makes the documents stay. Documents that must
//!    stay together with documents of another log are written before either append is finished.
//!
//! Invariant: an unfinished or failed append leaves nothing behind but room that is given out again.

use psync::{File, Writer};

use crate::format::{ALIGNMENT, encode_header, identity_crc};
use crate::pack::{Packed, pack};
use crate::segments::{Lane, Reservation};
use crate::{DocLength, DocLog, DocPointer, Result};

/// Appends documents to a log. Made by [`DocLog::appender`] and [`DocLog::mover`].
pub struct Appender<'a> {
    log: &'a DocLog,
    lane: Lane,
    flusher: Flusher,
    /// `None` once everything was written.
    writer: Option<Writer>,
    reserved: Vec<Reservation>,
}

/// The party that makes appended documents durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flusher {
    /// The log, with the commits that refer to the documents: [`DocLog::take_unflushed`] has the files.
    Log,
    /// Only the caller of the append.
    Caller,
}

/// Documents in their stored form, not stored anywhere yet. Made by [`DocLog::pack`].
pub struct PackedDocuments<'a>(Vec<Packed<'a>>);

impl PackedDocuments<'_> {
    /// Bytes that the documents will take, with headers and padding.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.0.iter().map(|packed| packed.length.room()).sum()
    }
}

impl DocLog {
    /// Appends documents, all in one psync. They are written, not flushed: [`DocLog::take_unflushed`] has their files.
    /// Every pointer must be retained or abandoned once the outcome of its commit is known.
    ///
    /// # Errors
    /// When a document is larger than [`DOCUMENT_BYTES_MAX`](crate::DOCUMENT_BYTES_MAX), the store is read-only, the
    /// disk is full or a write fails. No document is appended then.
    pub fn append(&self, documents: &[&[u8]]) -> Result<Vec<DocPointer>> {
        self.append_packed(&self.pack(documents)?)
    }

    /// Compresses documents, if this log is compressed. No room is reserved for them before, so no other operation
    /// waits for the compression.
    ///
    /// # Errors
    /// When a document is larger than [`DOCUMENT_BYTES_MAX`](crate::DOCUMENT_BYTES_MAX).
    pub fn pack<'a>(&self, documents: &[&'a [u8]]) -> Result<PackedDocuments<'a>> {
        let packed = documents.iter().map(|document| pack(self.compression(), document));
        Ok(PackedDocuments(packed.collect::<Result<_>>()?))
    }

    /// As [`DocLog::append`], for packed documents.
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

    /// Appends documents one after the other, any number of them, whose pointers are known before they are written.
    /// Only the caller flushes them.
    #[must_use]
    pub fn appender(&self) -> Appender<'_> {
        Appender::new(self, Lane::New, Flusher::Caller, None)
    }

    /// As [`DocLog::appender`], for documents that are relocated from other segments: they go to segments of their own.
    #[must_use]
    pub fn mover(&self) -> Appender<'_> {
        Appender::new(self, Lane::Moved, Flusher::Caller, None)
    }
}

impl<'a> Appender<'a> {
    fn new(log: &'a DocLog, lane: Lane, flusher: Flusher, expected: Option<u64>) -> Self {
        Self { log, lane, flusher, writer: Some(Writer::new(log.psync(), expected)), reserved: Vec::new() }
    }

    /// Appends a document, with the compression of the log. The document is not written yet.
    ///
    /// # Errors
    /// When the document is larger than [`DOCUMENT_BYTES_MAX`](crate::DOCUMENT_BYTES_MAX), the store is read-only, or
    /// no file can be made for it.
    pub fn push(&mut self, document: &[u8]) -> Result<DocPointer> {
        let Packed { bytes, length } = pack(self.log.compression(), document)?;
        self.push_stored(&bytes, length)
    }

    /// Appends a document of this `length` in the stored form that another segment holds ([`DocLog::read_stored`]).
    ///
    /// # Errors
    /// As [`Appender::push`].
    pub fn push_stored(&mut self, document: &[u8], length: DocLength) -> Result<DocPointer> {
        assert_eq!(document.len() as u64, length.stored(), "a document is stored in as many bytes as its length says");
        self.log.reserve(length, self.lane, &mut self.reserved)?;
        let Reservation { segment, ref file, end, .. } = *self.reserved.last().expect("room was reserved");
        let (table, unplaced) = (self.log.table(), DocPointer { segment, offset: 0, length, crc: 0 });
        let offset = end - unplaced.stored_bytes();
        let crc = checksum::crc32c_append(identity_crc(table, segment, offset, length), document);
        let pointer = DocPointer { offset, crc, ..unplaced };
        let writer = self.writer.as_mut().expect("nothing is pushed behind what was written");
        put(writer, file, table, &pointer, document);
        Ok(pointer)
    }

    /// Writes all documents not written yet. Nothing may be pushed afterwards.
    ///
    /// # Errors
    /// When the disk is full or a write fails. The documents are then gone with the appender.
    pub fn write(&mut self) -> Result<()> {
        Ok(self.writer.take().map_or(Ok(()), Writer::finish)?)
    }

    /// The files of the documents.
    #[must_use]
    pub fn files(&self) -> Vec<File> {
        let mut files: Vec<File> = Vec::new();
        for reservation in &self.reserved {
            if files.last() != Some(&reservation.file) && !files.contains(&reservation.file) {
                files.push(reservation.file.clone());
            }
        }
        files
    }

    /// Writes all documents not written yet, and returns the files to which documents were written. The files are not
    /// flushed; only the caller flushes them. Every pointer must be retained or abandoned once the outcome of its
    /// references is known.
    ///
    /// # Errors
    /// When the disk is full or a write fails. No document is appended then.
    pub fn finish(mut self) -> Result<Vec<File>> {
        self.write()?;
        let files = self.files();
        let reserved = std::mem::take(&mut self.reserved);
        if self.flusher == Flusher::Log {
            self.log.written(reserved);
        }
        Ok(files)
    }
}

fn put(writer: &mut Writer, file: &File, table: u32, pointer: &DocPointer, document: &[u8]) {
    let header = encode_header(table, pointer);
    let used = (header.len() + document.len()) as u64;
    let padding = [0; ALIGNMENT];
    let padding = &padding[..usize::try_from(pointer.stored_bytes() - used).unwrap_or(0)];
    let mut at = pointer.offset;
    for bytes in [&header[..], document, padding] {
        writer.put(file, at, bytes);
        at += bytes.len() as u64;
    }
}

impl Drop for Appender<'_> {
    fn drop(&mut self) {
        if self.reserved.is_empty() {
            return;
        }
        // Writes in progress end before their room is given out again, whether they fail or not.
        drop(self.writer.take());
        // The space that a large document has taken of a full disk goes back at once; if that fails, the next document
        // reuses the place.
        let alone = self.reserved.iter().filter(|reservation| reservation.alone);
        alone.for_each(|reservation| drop(reservation.file.set_len(0)));
        self.log.give_back(std::mem::take(&mut self.reserved));
    }
}
