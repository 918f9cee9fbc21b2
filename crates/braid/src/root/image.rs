//! The checkpoint image: found through the superblock, and checked.

use psync::{Buffer, Request};
use space::{FileStore, PAGE, StreamKind};

use crate::{
    error::{Error, Result},
    format::{Image, ImagePlace, VERSION},
    root::{DATA, superblock::SuperblockFile},
};

pub(crate) fn read_image(store: &FileStore, superblock: &SuperblockFile) -> Result<Image> {
    let place = superblock.current().image.expect("an open database has an image");
    let bytes = image_bytes(store, &place)?;
    check_image(store, &place, &bytes)?;
    let version = || format!("an image of format version {VERSION}");
    let made = |found: &str| image_error(store, &place, "the checkpoint image", version(), found.into());
    Image::decode(&bytes).ok_or_else(|| made("fields that make no sense"))
}

/// The bytes at the place of the image in the superblock, unchecked.
pub(crate) fn image_bytes(store: &FileStore, place: &ImagePlace) -> Result<Vec<u8>> {
    if !store.exists(DATA)? {
        let expected = "the file with the checkpoint image".into();
        return Err(image_error(store, place, "the data file", expected, "no such file".into()));
    }
    let offset = place.extent.page.0.saturating_mul(PAGE as u64);
    let file = store.open_existing(StreamKind::Node, DATA, true)?;
    let end = offset.saturating_add(u64::from(place.extent.pages) * PAGE as u64);
    let length = file.len()?;
    if length < end {
        let [expected, found] = [format!("at least {end} bytes"), format!("{length} bytes")];
        return Err(image_error(store, place, "length of the file", expected, found));
    }
    let buffer = Buffer::zeroed((place.length as usize).next_multiple_of(PAGE));
    let mut buffers = store.psync().run_all(vec![Request::read(&file, offset, buffer, 0)])?;
    let buffer = buffers.pop().flatten().unwrap_or_else(|| Buffer::zeroed(0));
    Ok(buffer.get(..place.length as usize).unwrap_or_default().to_vec())
}

/// Checks that `bytes` are the image that the superblock was written for.
pub(crate) fn check_image(store: &FileStore, place: &ImagePlace, bytes: &[u8]) -> Result<()> {
    let crc = checksum::crc32c(bytes);
    if crc == place.crc {
        return Ok(());
    }
    let (expected, found) = (format!("CRC-32C {:#010x}", place.crc), format!("{crc:#010x}"));
    Err(image_error(store, place, "the checkpoint image", expected, found))
}

fn image_error(store: &FileStore, place: &ImagePlace, what: &str, expected: String, found: String) -> Error {
    Error::Corrupt {
        file: store.directory().join(DATA).display().to_string(),
        offset: place.extent.page.0.saturating_mul(PAGE as u64),
        what: what.into(),
        expected,
        found,
    }
}
