//! Search for documents of a segment by their headers, when all references to them are lost.
//!
//! A document begins at a multiple of [`ALIGNMENT`] with a header that identifies it, and its checksum covers its
//! place. A document that is found and checks was therefore written there. The document may have died since.

use psync::{Buffer, Request};

use crate::format::{ALIGNMENT, HEADER, check_header, identity_crc, pointer_of_header, stored_bytes};
use crate::{Content, DocLength, DocLog, DocPointer, Result, SegmentId};
use space::FileStore;

/// Bytes that are searched at a time; consecutive windows overlap by the length of a document.
const WINDOW: u64 = 4 << 20;

impl DocLog {
    /// Finds the documents in the file of a segment that have `length` bytes, are not compressed, and check. They are
    /// in the order of their places, whether anything refers to them or not. Unreadable parts are passed over.
    ///
    /// # Errors
    /// When there is no such file, or the file cannot be opened.
    pub fn find_by_length(&self, segment: SegmentId, length: u64) -> Result<Vec<(DocPointer, Vec<u8>)>> {
        let file = self.file_of(segment)?;
        let (end, stored, plain) = (file.len()?, stored_bytes(length), DocLength::from_bits(length));
        let (mut found, mut start) = (Vec::new(), 0);
        while start + stored <= end {
            let bytes = usize::try_from((end - start).min(WINDOW.max(2 * stored))).unwrap_or(usize::MAX);
            let read = Request::read(&file, start, Buffer::for_read(bytes), 0);
            let Some(window) = self.psync().run_all(vec![read]).ok().and_then(|mut read| read.pop().flatten()) else {
                start += stored.max(WINDOW / 2) / ALIGNMENT as u64 * ALIGNMENT as u64;
                continue;
            };
            for at in (0..bytes).step_by(ALIGNMENT) {
                let Some((header, rest)) = window[at..].split_first_chunk::<HEADER>() else { break };
                let pointer = pointer_of_header(header, segment, start + at as u64);
                let Some(payload) = rest.get(..usize::try_from(length).unwrap_or(usize::MAX)) else { break };
                if pointer.length != plain
                    || check_header(|| file.path().to_owned(), self.table(), &pointer, header).is_err()
                {
                    continue;
                }
                let identity = identity_crc(self.table(), segment, pointer.offset, plain);
                if checksum::crc32c_append(identity, payload) == pointer.crc {
                    found.push((pointer, payload.to_vec()));
                }
            }
            start += (bytes as u64).saturating_sub(stored) / ALIGNMENT as u64 * ALIGNMENT as u64 + ALIGNMENT as u64;
        }
        Ok(found)
    }
}

/// The tables with segments of that content, ascending.
///
/// # Errors
/// When files cannot be listed.
pub fn tables_with(store: &FileStore, content: Content) -> Result<Vec<u32>> {
    let names = store.list(content.directory())?;
    let mut tables: Vec<u32> = names.iter().filter_map(|name| name.split_once('-')?.0.parse().ok()).collect();
    tables.sort_unstable();
    tables.dedup();
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use super::*;
    use crate::DocImage;

    #[test]
    fn documents_of_a_length_are_found_wherever_they_are() {
        let store = FileStore::open(SimDisk::new(1).psync(), Path::new("/db"), false).expect("opens");
        let log = DocLog::open(&store, 7, &DocImage::default(), 32 << 20).expect("opens");
        // More than two windows. The searched documents lie at any distance, also across the ends of windows.
        let values: Vec<Vec<u8>> = (0..4000_usize)
            .map(|number| {
                vec![
                    b'a' + u8::try_from(number % 7).unwrap_or(0);
                    if number % 3 == 0 { 160 } else { 4000 + number % 97 }
                ]
            })
            .collect();
        let appended = log.append(&values.iter().map(Vec::as_slice).collect::<Vec<_>>()).expect("appended");
        let expected: Vec<_> =
            appended.iter().copied().zip(values).filter(|(pointer, _)| pointer.length.stored() == 160).collect();
        assert!(expected.last().is_some_and(|(pointer, _)| pointer.offset > 2 * WINDOW));
        assert_eq!(log.find_by_length(SegmentId(1), 160).expect("searched"), expected);
        assert_eq!(log.find_by_length(SegmentId(1), 161).expect("searched"), []);
        log.find_by_length(SegmentId(2), 160).expect_err("there is none");
        assert_eq!(tables_with(&store, Content::Documents).expect("listed"), [7]);
        assert_eq!(tables_with(&store, Content::Nodes).expect("listed"), [0; 0]);
    }
}
