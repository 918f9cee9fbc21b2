//! Reading documents, any number in one psync.
//!
//! 1. The documents are sorted by place. Documents less than a block apart are read together, in windows of up to
//!    [`WINDOW_BYTES`]; a large document is read in several windows. Where the file is read directly, the ends of
//!    windows are boundaries of sectors, not blocks, because a document across two blocks mostly takes no more sectors
//!    than one block has. Where a file system wants whole blocks, a window is read with its surroundings.
//! 2. All windows are one psync. Of a large psync, no more than [`BYTES_IN_FLIGHT`] of windows are in memory at a time.
//!    A file is open only while it is read, because documents may be in more segments than a process may have files
//!    open.
//! 3. A completed window is cut into parts of documents. Every part is checksummed at once, and copied if its bytes are
//!    wanted. When all parts are there, their checksums are combined and compared with that of the pointer.
//! 4. Compressed documents are decompressed when all reads are done, by the thread that hands them over. A caller of
//!    [`crate::fetch::fetch_as_they_come`] gets each document of a single window on arrival, while others are read.
//!
//! Invariant: a document is handed out only when its header, its length and the checksum over identity and payload are
//! those of the pointer.

use std::ops::Range;
use std::sync::Arc;

use psync::{BLOCK, Buffer, Completion, File, Request, SECTOR};

use crate::codec::Flaw;
use crate::files::{SegmentFiles, Source};
use crate::format::{HEADER, check_header, identity_crc};
use crate::pack::unpack;
use crate::{Compression, DocLength, DocPointer, Error, Result, SegmentId};

/// Maximum size of one read, in bytes.
const WINDOW_BYTES: u64 = 1 << 20;
/// Maximum number of bytes in flight: the memory of a read, apart from the documents returned.
pub(crate) const BYTES_IN_FLIGHT: u64 = 8 << 20;

const _: () = assert!(WINDOW_BYTES.is_multiple_of(SECTOR as u64));

/// The content wanted of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Only whether the document checks.
    Check,
    /// Whether the document checks, and decompresses to the right number of bytes.
    Meaning,
    /// The stored bytes.
    Stored,
    /// The document.
    Document,
}

impl Wants {
    /// Whether the bytes of a document of this length are needed.
    fn payload_of(self, length: DocLength) -> bool {
        match self {
            Self::Check => false,
            Self::Meaning => length.compression() != Some(Compression::None),
            Self::Stored | Self::Document => true,
        }
    }
}

/// A document to be read, in place order among those of its call.
pub(crate) struct Wanted {
    table: u32,
    pointer: DocPointer,
    source: Source,
    wants: Wants,
    /// The stored payload, if its content is wanted.
    payload: Vec<u8>,
    header: [u8; HEADER],
    /// Checksum of the whole document, if one window held all of it.
    whole: Option<u32>,
    /// Checksums of parts of the payload: offset in it, bytes, CRC.
    parts: Vec<(u64, usize, u32)>,
    /// The failure that keeps the document from being whole.
    failure: Option<Error>,
    /// Whether one window held all of the document.
    came_at_once: bool,
    is_handed_over: bool,
}

/// A part of a file that is read at once, and the documents with bytes in that part.
pub(crate) struct Window {
    pub(crate) segment: SegmentId,
    pub(crate) source: Source,
    pub(crate) bytes: Range<u64>,
    pub(crate) documents: Range<usize>,
}

/// Bits of a request's tag for the number of bytes by which the request begins before its window. The other bits are
/// the number of the window.
const LEAD_BITS: u32 = 12;

const _: () = assert!(BLOCK <= 1 << LEAD_BITS);

impl Wanted {
    pub(crate) fn new(table: u32, pointer: DocPointer, source: Source, wants: Wants) -> Self {
        Self {
            table,
            pointer,
            source,
            wants,
            payload: Vec::new(),
            header: [0; HEADER],
            whole: None,
            parts: Vec::new(),
            failure: None,
            came_at_once: false,
            is_handed_over: false,
        }
    }

    /// Whether the outcome of this document is known, while others may still be read.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_handed_over && (self.came_at_once || self.failure.is_some())
    }

    pub(crate) const fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    /// The bytes of the file that hold header and payload.
    fn place(&self) -> Range<u64> {
        self.pointer.offset..self.pointer.offset + HEADER as u64 + self.pointer.length.stored()
    }

    /// Takes the bytes of this document from a window.
    fn take(&mut self, start: u64, bytes: &[u8]) {
        let place = self.place();
        let payload = place.start + HEADER as u64;
        self.came_at_once = start <= place.start && place.end <= start + bytes.len() as u64;
        if let Some(header) = common(start, bytes, &(place.start..payload)) {
            let at = offset_in(header.start, place.start);
            self.header[at..at + header.bytes.len()].copy_from_slice(header.bytes);
        }
        let Some(part) = common(start, bytes, &(payload..place.end)) else {
            return;
        };
        let at = offset_in(part.start, payload);
        let wanted = self.wants.payload_of(self.pointer.length);
        if part.bytes.len() as u64 == self.pointer.length.stored() {
            self.whole = Some(checksum::crc32c_append(self.identity(), part.bytes));
            if wanted {
                self.payload = part.bytes.to_vec();
            }
            return;
        }
        self.parts.push((at as u64, part.bytes.len(), checksum::crc32c(part.bytes)));
        if wanted {
            let kept = &mut self.payload;
            if kept.is_empty() {
                kept.resize(usize::try_from(self.pointer.length.stored()).unwrap_or(0), 0);
            }
            kept[at..at + part.bytes.len()].copy_from_slice(part.bytes);
        }
    }

    fn identity(&self) -> u32 {
        let pointer = &self.pointer;
        identity_crc(self.table, pointer.segment, pointer.offset, pointer.length)
    }

    /// The checksum of identity and payload, computed from the parts.
    fn checksum(&mut self) -> u32 {
        if let Some(whole) = self.whole {
            return whole;
        }
        self.parts.sort_unstable();
        let (mut crc, mut end) = (self.identity(), 0);
        for &(at, bytes, part) in &self.parts {
            assert_eq!(at, end, "the windows of a document cover every byte of it once");
            crc = checksum::crc32c_combine(crc, part, bytes);
            end += bytes as u64;
        }
        assert_eq!(end, self.pointer.length.stored(), "the windows of a document cover all of it");
        crc
    }

    /// The wanted content, provided everything about the document is right. Called once.
    pub(crate) fn finish(&mut self, files: &SegmentFiles) -> Result<Vec<u8>> {
        self.is_handed_over = true;
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let payload = std::mem::take(&mut self.payload);
        let segment = self.pointer.segment;
        let file = || files.path(segment);
        check_header(file, self.table, &self.pointer, &self.header)?;
        let (expected, found) = (self.pointer.crc, self.checksum());
        if expected != found {
            let [expected, found] = [expected, found].map(|crc| format!("{crc:#010x}"));
            let at = self.pointer.offset;
            return Err(Error::corrupt(&file(), at, "checksum of the document", expected, found));
        }
        let length = self.pointer.length;
        if matches!(self.wants, Wants::Check | Wants::Stored) || !self.wants.payload_of(length) {
            return Ok(payload);
        }
        let document = unpack(length, payload).map_err(|flaw| {
            let (file, at) = (file(), self.pointer.offset + HEADER as u64);
            match flaw {
                Flaw::Damage(found) => {
                    let expected = format!("{} bytes", length.original());
                    Error::corrupt(&file, at, "what the compressed document stands for", expected, found)
                }
                Flaw::NotBuilt(compression) => Error::NotBuilt { file, offset: at, compression },
            }
        })?;
        Ok(if self.wants == Wants::Meaning { Vec::new() } else { document })
    }
}

struct Part<'a> {
    start: u64,
    bytes: &'a [u8],
}

/// The bytes, beginning at `start` of a file, that lie in `range` of it.
fn common<'a>(start: u64, bytes: &'a [u8], range: &Range<u64>) -> Option<Part<'a>> {
    let from = range.start.max(start);
    let to = range.end.min(start + bytes.len() as u64);
    (from < to).then(|| Part { start: from, bytes: &bytes[offset_in(from, start)..offset_in(to, start)] })
}

/// A distance within a window or document, both of which fit in memory.
fn offset_in(offset: u64, start: u64) -> usize {
    usize::try_from(offset - start).expect("documents and windows are bounded")
}

/// Opens the files of windows, which come segment by segment.
pub(crate) struct Opener {
    files: Arc<SegmentFiles>,
    last: Option<(SegmentId, File)>,
}

impl Opener {
    pub(crate) const fn new(files: Arc<SegmentFiles>) -> Self {
        Self { files, last: None }
    }

    pub(crate) fn files(&self) -> &SegmentFiles {
        &self.files
    }

    /// The file of the window.
    pub(crate) fn open(&mut self, window: &Window) -> Result<File> {
        if let Some((segment, file)) = &self.last
            && *segment == window.segment
        {
            return Ok(file.clone());
        }
        let file = self.files.open(window.segment, &window.source)?;
        self.last = Some((window.segment, file.clone()));
        Ok(file)
    }
}

impl Window {
    /// Maximum size of the buffer for the window: the blocks that contain it.
    pub(crate) const fn buffer_bytes(&self) -> u64 {
        let block = BLOCK as u64;
        self.bytes.end.next_multiple_of(block) - self.bytes.start / block * block
    }

    /// The read of this window, the window `number`, in whole units of the file. The read reuses the buffer of another
    /// read if that has the right length.
    pub(crate) fn request(&self, file: &File, number: usize, spare: Option<Buffer>) -> Request {
        let unit = file.unit() as u64;
        let lead = self.bytes.start % unit;
        let start = self.bytes.start - lead;
        let length = offset_in(self.bytes.end.next_multiple_of(unit), start);
        let buffer = spare.filter(|buffer| buffer.len() == length).unwrap_or_else(|| Buffer::for_read(length));
        Request::read(file, start, buffer, (number as u64) << LEAD_BITS | lead)
    }

    /// Fails all documents of the window, because nothing of it can be read.
    pub(crate) fn fail(&self, documents: &mut [Wanted], why: &Error) {
        for document in &mut documents[self.documents.clone()] {
            document.failure.get_or_insert_with(|| why.clone());
        }
    }
}

/// Gives a completed window to its documents, and returns it.
pub(crate) fn deliver<'a>(
    files: &SegmentFiles, windows: &'a [Window], documents: &mut [Wanted], completion: &Completion,
) -> &'a Window {
    let number = usize::try_from(completion.tag >> LEAD_BITS).expect("there is a window for each tag");
    let (window, lead) = (&windows[number], offset_in(completion.tag % (1 << LEAD_BITS), 0));
    let buffer = completion.buffer.as_deref().unwrap_or_default();
    let (read, failure) = match &completion.result {
        Ok(()) => (buffer.len(), None),
        // The last block of a file may be short; missing bytes of a document are found below.
        Err(error @ psync::Error::ShortRead { got, .. }) => {
            (usize::try_from(*got).unwrap_or(0).min(buffer.len()), Some(error))
        }
        Err(error) => (0, Some(error)),
    };
    let bytes = &buffer[lead.min(read)..read.min(lead + offset_in(window.bytes.end, window.bytes.start))];
    for document in &mut documents[window.documents.clone()] {
        let wanted = document.place().end.min(window.bytes.end);
        let have = window.bytes.start + bytes.len() as u64;
        if wanted <= have {
            document.take(window.bytes.start, bytes);
        } else if document.failure.is_none() {
            document.failure = Some(match failure {
                Some(error) if !matches!(error, psync::Error::ShortRead { .. }) => error.clone().into(),
                _ => missing(files, &document.pointer, document.place().end, have),
            });
        }
    }
    window
}

fn missing(files: &SegmentFiles, pointer: &DocPointer, end: u64, have: u64) -> Error {
    let [expected, found] = [end, have].map(|bytes| format!("at least {bytes} bytes"));
    Error::corrupt(&files.path(pointer.segment), pointer.offset, "length of the file", expected, found)
}

/// Windows that cover all documents, and up to `gap` bytes between two of them. Every byte of a document is in exactly
/// one of the windows that name the document.
pub(crate) fn plan(documents: &[Wanted], gap: u64) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        let (unit, segment) = (document.source.unit(), document.pointer.segment);
        let place = document.place();
        let end = place.end.next_multiple_of(unit);
        let mut start = place.start - place.start % unit;
        if let Some(last) = windows.last_mut()
            && last.segment == segment
            && (last.bytes.start..last.bytes.start + WINDOW_BYTES).contains(&place.start)
            && start <= last.bytes.end + gap
        {
            let until = end.min(last.bytes.start + WINDOW_BYTES);
            last.bytes.end = last.bytes.end.max(until);
            last.documents.end = index + 1;
            start = last.bytes.end;
        }
        while start < end {
            let until = end.min(start + WINDOW_BYTES);
            let source = document.source.clone();
            windows.push(Window { segment, source, bytes: start..until, documents: index..index + 1 });
            start = until;
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::ALIGNMENT;
    use crate::{DocLength, SegmentId};

    /// Documents at these gaps and of these lengths, some of them overlapping, as with damaged pointers.
    fn documents(direct: bool, places: &[(u64, u64, bool)]) -> Vec<Wanted> {
        let mut offset = 0;
        let wanted = places.iter().map(|&(gap, length, overlap)| {
            let pointer = DocPointer {
                segment: SegmentId(1),
                offset: offset + gap * 8,
                length: DocLength::from_bits(length),
                crc: 0,
            };
            offset = pointer.offset + if overlap { 8 } else { pointer.stored_bytes() };
            Wanted::new(1, pointer, Source::Sealed { direct }, Wants::Check)
        });
        wanted.collect()
    }

    proptest! {
        #[test]
        fn windows_cover_every_byte_of_a_document_once(
            direct: bool,
            gap in prop_oneof![Just(ALIGNMENT as u64 - 1), Just(BLOCK as u64)],
            places in prop::collection::vec(
                (
                    prop_oneof![Just(0_u64), 0_u64..2_000, 0_u64..200_000],
                    prop_oneof![0_u64..5_000, 0_u64..3_000_000],
                    prop::bool::weighted(0.1),
                ),
                1..40,
            ),
        ) {
            let documents = documents(direct, &places);
            let windows = plan(&documents, gap);
            for window in &windows {
                let length = window.bytes.end - window.bytes.start;
                prop_assert!((1..=WINDOW_BYTES).contains(&length));
                if direct {
                    prop_assert!(window.bytes.start.is_multiple_of(SECTOR as u64) && length.is_multiple_of(SECTOR as u64));
                }
            }
            for (index, document) in documents.iter().enumerate() {
                let place = document.place();
                let mut parts: Vec<_> = windows
                    .iter()
                    .filter(|window| window.documents.contains(&index))
                    .map(|window| window.bytes.start.max(place.start)..window.bytes.end.min(place.end))
                    .filter(|part| !part.is_empty())
                    .collect();
                parts.sort_unstable_by_key(|part| part.start);
                let mut end = place.start;
                for part in parts {
                    prop_assert_eq!(part.start, end);
                    end = part.end;
                }
                prop_assert_eq!(end, place.end);
            }
        }
    }

    #[test]
    fn what_is_around_a_window_in_whole_units_is_left_out() {
        let psync = psync::sim::SimDisk::new(1).psync();
        let store = space::FileStore::open(psync.clone(), "/db".as_ref(), false).expect("opens");
        let files = SegmentFiles::new(&store, crate::Content::Documents, 1);
        let file = files.create(SegmentId(1)).expect("created");
        let payload: Vec<u8> = (0..6000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let length = DocLength::from_bits(payload.len() as u64);
        let mut bytes = vec![1; 4096];
        let pointers = [1000, 7032].map(|offset| {
            let crc = checksum::crc32c_append(identity_crc(1, SegmentId(1), offset, length), &payload);
            let pointer = DocPointer { segment: SegmentId(1), offset, length, crc };
            bytes.resize(14_000, 2);
            let at = offset_in(offset, 0);
            bytes[at..at + HEADER].copy_from_slice(&crate::format::encode_header(1, &pointer));
            bytes[at + HEADER..at + HEADER + payload.len()].copy_from_slice(&payload);
            pointer
        });
        let written = Request::write(&file, 0, Buffer::from_slice(&bytes), 0);
        psync.run_all(vec![written]).expect("written");
        let direct = files.open(SegmentId(1), &Source::Sealed { direct: true }).expect("opens");
        assert!(direct.unit() > 1);
        // Windows without regard to units; the second is the end of one document and all of another.
        let mut documents =
            pointers.map(|pointer| Wanted::new(1, pointer, Source::Open(file.clone()), Wants::Document));
        let window =
            |bytes, documents| Window { segment: SegmentId(1), source: Source::Open(file.clone()), bytes, documents };
        let windows = [window(1000..5001, 0..1), window(5001..13_056, 0..2)];
        let requests =
            windows.iter().enumerate().map(|(number, window)| window.request(&direct, number, None)).collect();
        for completion in psync.run(requests) {
            deliver(&files, &windows, &mut documents, &completion);
        }
        for mut document in documents {
            assert_eq!(document.finish(&files).expect("whole"), payload);
        }
    }
}
