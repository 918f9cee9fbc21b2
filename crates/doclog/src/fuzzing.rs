//! Decoders of this crate for a fuzzer. For tests of the workspace alone.

use std::path::{Path, PathBuf};

use psync::sim::SimDisk;
use psync::{Buffer, Request};
use space::{FileStore, StreamKind};

use crate::format::{HEADER, check_header, encode_header, identity_crc, seal_image};
use crate::pack::{pack, unpack};
use crate::{Compression, DocImage, DocLength, DocLog, DocPointer, Error, SegmentId, SegmentImage};

/// A name, a function that takes bytes, and the encodings to begin with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All decoders of documents for bytes from a disk.
pub const TARGETS: &[Target] = &[
    ("doclog_image", image, images),
    ("doclog_header", header, headers),
    ("doclog_compressed", compressed, all_compressed),
    ("doclog_segment", segment, segments),
];

const TABLE: u32 = 7;
const SEGMENT: SegmentId = SegmentId(3);
/// Longer documents are not decompressed, because a few bytes can stand for many.
const DOCUMENT_BYTES: u64 = 32 << 10;

fn image(bytes: &[u8]) {
    let _ = DocImage::decode(bytes);
    let mut bytes = bytes.to_vec();
    if bytes.len() < HEADER {
        return;
    }
    let length = bytes.len() as u64;
    bytes[16..24].copy_from_slice(&length.to_le_bytes());
    seal_image(&mut bytes);
    if let Ok(image) = DocImage::decode(&bytes) {
        assert_eq!(image.encode(), bytes, "an image has one encoding");
    }
}

fn images() -> Vec<Vec<u8>> {
    let segment = |id, length, live_bytes, sealed| SegmentImage {
        id: SegmentId(id),
        length,
        live_bytes,
        sealed,
        last_commit: 7 * id,
    };
    let image = |next, segments| DocImage { next: SegmentId(next), segments }.encode();
    let many = (1..60).map(|id| segment(id, id * 1000, id * 10, id < 59)).collect();
    vec![image(0, vec![]), image(9, vec![segment(2, 4096, 64, true), segment(8, 32, 32, false)]), image(60, many)]
}

/// A pointer, and the header at its place.
fn header(bytes: &[u8]) {
    let Some((pointer, header)) = bytes.split_first_chunk::<{ DocPointer::BYTES }>() else { return };
    let pointer = DocPointer::decode(pointer);
    assert_eq!(DocPointer::decode(&pointer.encode()), pointer);
    let _ = pointer.stored_bytes();
    let file = || PathBuf::from("doc/7-3.doc");
    check_header(file, TABLE, &pointer, &encode_header(TABLE, &pointer)).expect("its own header");
    let Some(header) = header.first_chunk::<HEADER>() else { return };
    if check_header(file, TABLE, &pointer, header).is_ok() {
        assert_eq!(encode_header(TABLE, &pointer), *header, "a header has one encoding");
    }
}

fn headers() -> Vec<Vec<u8>> {
    let pointer = |offset, length| {
        let length = DocLength::plain(length);
        DocPointer { segment: SEGMENT, offset, length, crc: 0x0102_0304 }
    };
    let both = |pointer: DocPointer| [&pointer.encode()[..], &encode_header(TABLE, &pointer)].concat();
    vec![both(pointer(0, 5)), both(pointer(48, 3000)), both(pointer(1 << 40, 512 << 20))]
}

/// Pointers, their number first, and a segment with their places. The checksums of possibly valid documents are made
/// right.
fn segment(bytes: &[u8]) {
    let Some((count, bytes)) = bytes.split_first() else { return };
    let count = usize::from(count % 8).min(bytes.len() / DocPointer::BYTES);
    let (pointers, content) = bytes.split_at(count * DocPointer::BYTES);
    let mut content = content.to_vec();
    let (pointers, _) = pointers.as_chunks::<{ DocPointer::BYTES }>();
    let mut pointers: Vec<_> = pointers.iter().map(DocPointer::decode).collect();
    for pointer in &mut pointers {
        sign(pointer, &mut content);
    }
    let disk = SimDisk::new(1);
    let store = FileStore::open(disk.psync(), Path::new("/db"), false).expect("a new directory");
    let file = store.create(StreamKind::Doc, "doc/7-3.doc", false).expect("a new file");
    if !content.is_empty() {
        let write = Request::write(&file, 0, Buffer::from_slice(&content), 0);
        store.psync().run_all(vec![write]).expect("it is written");
    }
    let log = DocLog::open(&store, TABLE, &DocImage::default(), 1 << 20).expect("opens");
    let whole = log.check_many(&pointers).expect("the disk has no fault");
    for (pointer, whole) in pointers.iter().zip(whole) {
        let read = log.read_many(&[*pointer]);
        match &read {
            Ok(documents) => assert!(whole && documents[0].len() as u64 == pointer.length.original()),
            Err(Error::Corrupt { .. }) if pointer.length.compression() != Some(Compression::None) => {}
            Err(_) => assert!(!whole, "{read:?}"),
        }
        // Commits name documents that do not overlap.
        if whole && log.stats().live_bytes == 0 {
            log.retain(pointer, 5).expect("a whole document can be counted");
        }
    }
    let image = log.image();
    assert_eq!(DocImage::decode(&image.encode()).expect("its own image"), image);
}

/// Puts the header and checksum of a document in place, if the place is in the segment.
fn sign(pointer: &mut DocPointer, content: &mut [u8]) {
    let Ok(at) = usize::try_from(pointer.offset) else { return };
    let Ok(length) = usize::try_from(pointer.length.stored()) else { return };
    if pointer.length.original() > DOCUMENT_BYTES {
        return;
    }
    let Some(start) = at.checked_add(HEADER) else { return };
    let Some(payload) = start.checked_add(length).and_then(|end| content.get(start..end)) else { return };
    pointer.segment = SEGMENT;
    let identity = identity_crc(TABLE, SEGMENT, pointer.offset, pointer.length);
    pointer.crc = checksum::crc32c_append(identity, payload);
    content[at..start].copy_from_slice(&encode_header(TABLE, pointer));
}

fn segments() -> Vec<Vec<u8>> {
    let pointer = |offset, length| DocPointer { segment: SEGMENT, offset, length, crc: 0 }.encode();
    let with = |places: &[(u64, u32)], bytes: usize| {
        let pointers = places.iter().map(|&(offset, length)| pointer(offset, DocLength::plain(length)));
        let count = u8::try_from(places.len()).expect("few");
        [&[count][..], &pointers.collect::<Vec<_>>().concat(), &vec![9; bytes]].concat()
    };
    let mut segments =
        vec![with(&[(0, 5)], 32), with(&[(0, 5), (32, 0), (56, 3000)], 4000), with(&[(0, 8000), (0, 100)], 9000)];
    for compression in [Compression::Lz4, Compression::Zstd] {
        let text = text();
        let packed = pack(compression, &text).expect("short enough");
        segments.push([&[1][..], &pointer(0, packed.length), &[0; HEADER], &packed.bytes].concat());
    }
    segments
}

/// A compressible text.
fn text() -> Vec<u8> {
    (0..300_u32).flat_map(|number| format!("{} bytes, ", number * number).into_bytes()).collect()
}

/// The compression, the original length, and the stored bytes.
fn compressed(bytes: &[u8]) {
    let Some((&[code, low, high], stored)) = bytes.split_first_chunk::<3>() else { return };
    let original = u64::from(u16::from_le_bytes([low, high])) % (DOCUMENT_BYTES + 1);
    let bits = stored.len() as u64 | u64::from(code % 4) << 32 | original << 34;
    let length = DocLength::from_bits(bits);
    if length.check().is_ok()
        && let Ok(document) = unpack(length, stored.to_vec())
    {
        assert_eq!(document.len() as u64, length.original());
    }
}

fn all_compressed() -> Vec<Vec<u8>> {
    let of = |(code, compression): (u8, Compression)| {
        [vec![7; 3000], text()].map(|document| {
            let packed = pack(compression, &document).expect("short enough");
            let original = u16::try_from(document.len()).expect("short");
            [&[code][..], &original.to_le_bytes(), &packed.bytes].concat()
        })
    };
    [(1, Compression::Lz4), (2, Compression::Zstd)].into_iter().flat_map(of).collect()
}
