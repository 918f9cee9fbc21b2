//! Fuzz targets for backups: see [`crate::fuzzing`].

use std::{ops::ControlFlow, path::Path};

use codec::Fields;
use psync::sim::SimDisk;

use super::format::{
    BLOCK_HEADER_BYTES, Change, Counts, HEADER_BYTES, Header, Pair, decode_block_header, header_crc, kind, seal_block,
};
use crate::{
    format::{CreateTable, decode_table, encode_table},
    handles::database::Database,
    options::Options,
    words::structure::Structure,
};

/// Copies a stream with correct checksums in its header, and in its blocks as far as their lengths are valid.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut stream = bytes.to_vec();
    let Some((header, mut rest)) = stream.split_first_chunk_mut::<HEADER_BYTES>() else { return stream };
    let mut crc = header_crc(header);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    while let Some((_, length, kind)) = rest.first_chunk().and_then(decode_block_header)
        && rest.len() >= BLOCK_HEADER_BYTES + length
    {
        let (block, behind) = rest.split_at_mut(BLOCK_HEADER_BYTES + length);
        crc = seal_block(block, kind, crc);
        rest = behind;
    }
    stream
}

/// Checks that each part has exactly one encoding.
pub(crate) fn parts(bytes: &[u8]) {
    let stream = sealed(bytes);
    let Some((header, mut rest)) = stream.split_first_chunk::<HEADER_BYTES>() else { return };
    if let Ok(decoded) = Header::decode(header) {
        // The bytes may differ from the encoding, because a full backup ignores the seq of a continued one. So decoded
        // headers are compared.
        let again = Header::decode(&decoded.encode());
        assert_eq!(again, Ok(decoded));
    }
    while let Some((_, length, kind)) = rest.first_chunk().and_then(decode_block_header)
        && let Some((payload, behind)) = rest[BLOCK_HEADER_BYTES..].split_at_checked(length)
    {
        if let Some(again) = again(kind, payload) {
            assert_eq!(again, payload, "a block of type {kind} has one encoding");
        }
        rest = behind;
    }
}

/// Decodes and encodes a payload; none when the payload does not decode.
fn again(kind: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let (mut fields, mut again) = (Fields(payload), Vec::new());
    match kind {
        kind::TABLE => return CreateTable::decode(payload).map(|table| table.encode()),
        kind::DROPPED => return decode_table(payload).map(|table| encode_table(table).to_vec()),
        kind::END => Counts::decode(payload)?.encode(&mut again),
        kind::PAIRS => {
            while !fields.end() {
                Pair::decode(&mut fields)?.encode(&mut again);
            }
        }
        kind::CHANGES => {
            while !fields.end() {
                Change::decode(&mut fields)?.encode(&mut again);
            }
        }
        _ => return None,
    }
    Some(again)
}

/// Restores the bytes: either a database results, which opens, or an error with a message.
pub(crate) fn restore(bytes: &[u8]) {
    let options = || Options::new().background(false).cache_bytes(64 << 10).write_buffer_bytes(16 << 10).leaf_pages(1);
    let (disk, stream) = (SimDisk::new(1), sealed(bytes));
    match options().segment_bytes(64 << 10).restore_on(disk.psync(), &stream[..], Path::new("/db")) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(_) => drop(options().open_on(disk.psync(), Path::new("/db")).expect("what was restored opens")),
    }
}

/// Chains with every type of block.
pub(crate) fn chains() -> Vec<Vec<u8>> {
    let disk = SimDisk::new(1);
    let options = Options::new().background(false).cache_bytes(64 << 10).write_buffer_bytes(16 << 10).leaf_pages(1);
    let db: Database = options.retain_log_bytes(1 << 20).open_on(disk.psync(), Path::new("/db")).expect("a new one");
    let table = |name: &str| db.table(name, Structure::BTree).expect("a new one");
    let (one, _two) = (table("one"), table("two"));
    one.put("key", "value").expect("a commit");
    one.put("other", [7; 300]).expect("a commit");
    let on = &mut |_| ControlFlow::Continue(());
    let (mut full, mut chain) = (Vec::new(), Vec::new());
    let backup = db.begin_backup().expect("it begins");
    backup.stream(&mut full, on).expect("a vector takes it");
    let point = backup.stream(&mut chain, on).expect("a vector takes it").point;
    one.delete("key").expect("a commit");
    one.put("key", "again").expect("a commit");
    db.drop_table("two").expect("it is there");
    table("three").load([("x", "y")]).expect("it is empty");
    db.begin_backup().and_then(|backup| backup.stream_since(&point, &mut chain, on)).expect("a vector takes it");
    vec![full, chain]
}
