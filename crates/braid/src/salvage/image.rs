//! The checkpoint image of a damaged database.
//!
//! 1. The newest image that a whole slot of the superblock names, with the checksum in the slot, is as good as in
//!    recovery.
//! 2. Without one, an image that merely decodes is taken: first one named by a slot, then the newest at the beginning
//!    of any page. Its roots have checksums of their own, but its list of the commits in them cannot be trusted.

use psync::{Buffer, Request};
use space::{FileStore, PAGE, StreamKind};

use crate::{
    error::Result,
    format::{IMAGE_MAGIC, Image, Superblock},
    root::{
        DATA,
        image::{check_image, image_bytes},
        superblock::SuperblockFile,
    },
};

/// Bytes of the data file searched at a time.
const SEARCH_BYTES: usize = 1 << 20;
/// Longest image taken without a superblock that names the image.
const IMAGE_BYTES_MAX: usize = 64 << 20;

/// Facts about the whole database.
pub(super) struct Beginning {
    /// The newest whole slot.
    pub(super) superblock: Option<Superblock>,
    /// An image, and whether it checks.
    pub(super) image: Option<(Image, bool)>,
    /// Damage found.
    pub(super) findings: Vec<String>,
}

impl Beginning {
    pub(super) fn find(store: &FileStore) -> Result<Self> {
        let (slots, mut findings) = SuperblockFile::left(store)?;
        let superblock = slots.first().copied();
        let mut image: Option<(Image, bool)> = None;
        for place in slots.iter().filter_map(|slot| slot.image) {
            let bytes = match image_bytes(store, &place) {
                Ok(bytes) => bytes,
                Err(error) => {
                    findings.push(error.to_string());
                    continue;
                }
            };
            let checked = check_image(store, &place, &bytes);
            if let (Ok(()), Some(whole)) = (&checked, Image::decode(&bytes)) {
                image = Some((whole, true));
                break;
            }
            findings.extend(checked.err().map(|error| error.to_string()));
            image = image.or_else(|| Some((Image::decode_unchecked(&bytes)?, false)));
        }
        if image.is_none() {
            image = search(store)?.map(|image| (image, false));
        }
        findings.sort();
        findings.dedup();
        Ok(Self { superblock, image, findings })
    }
}

/// The newest image anywhere in the data file.
fn search(store: &FileStore) -> Result<Option<Image>> {
    if !store.exists(DATA)? {
        return Ok(None);
    }
    let file = store.open_existing(StreamKind::Node, DATA, true)?;
    let length = file.len()? / PAGE as u64 * PAGE as u64;
    let read = |offset: u64, most: usize| {
        let bytes = most.min(usize::try_from(length - offset).unwrap_or(usize::MAX));
        let request = Request::read(&file, offset, Buffer::for_read(bytes), 0);
        // An unreadable page holds no image.
        store.psync().run_all(vec![request]).ok()?.pop().flatten()
    };
    let mut newest: Option<Image> = None;
    for offset in (0..length).step_by(SEARCH_BYTES) {
        let Some(bytes) = read(offset, SEARCH_BYTES) else { continue };
        for (page, at) in bytes.chunks(PAGE).zip((offset..).step_by(PAGE)) {
            if !page.starts_with(&IMAGE_MAGIC) {
                continue;
            }
            let found = read(at, IMAGE_BYTES_MAX).and_then(|bytes| Image::decode_unchecked(&bytes));
            newest = found.into_iter().chain(newest).max_by_key(|image| image.visible);
        }
    }
    Ok(newest)
}
