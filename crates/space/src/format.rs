//! The bytes of this crate on storage, all little-endian.
//!
//! Header of a paged file, its page 0:
//!
//! ```text
//!  0  8  magic "BRAIDPAG"
//!  8  4  version, 1
//! 12  4  CRC-32C of the page without these four bytes
//! 16  8  bytes of a page, 4096
//! 24     zero
//! ```
//!
//! Image of an allocator, which is part of a checkpoint:
//!
//! ```text
//!  0  8  magic "BRAIDALC"
//!  8  4  version, 1; 2 where there are holes
//! 12  4  CRC-32C of the image without these four bytes
//! 16  8  bytes of the image
//! 24  8  pages of the file, page 0 included
//! 32  8  free extents
//! 40     per extent, in page order: pages between it and the one before (the first: page 0), pages of it;
//!        both as LEB128
//!        version 2: how many holes there are, as LEB128, and each as a free extent
//! ```

use std::ops::RangeInclusive;
use std::path::Path;

use codec::put_number;
use codec::sized::{u32_at, u64_at};

use crate::stats::reserve_for;
use crate::{Error, Extent, PAGE, PageId, Result, Stats};

const FILE_MAGIC: &[u8; 8] = b"BRAIDPAG";
const FILE_VERSION: u32 = 1;

const IMAGE_MAGIC: &[u8; 8] = b"BRAIDALC";
const IMAGE_VERSION: u32 = 1;
/// Version of an image with holes.
const IMAGE_VERSION_HOLES: u32 = 2;
const IMAGE_HEADER: usize = 40;
/// Name of an image in errors; the checkpoint around the image knows the file.
const IMAGE_NAME: &str = "free-list image";

/// Position of the checksum in both headers.
const CRC: std::ops::Range<usize> = 12..16;

/// The pages of a file that are in use, as a checkpoint stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorImage {
    /// Pages of the file, with the header page.
    pub total_pages: u64,
    /// Free pages, to which nothing refers, in order; neighbours are one extent.
    pub free: Vec<Extent>,
    /// Holes in the same form: free pages for which the disk keeps no room.
    pub holes: Vec<Extent>,
}

impl AllocatorImage {
    /// The image after these pages, which are in use, are given back.
    #[must_use]
    pub fn with_free(mut self, extents: &[Extent]) -> Self {
        self.free.extend_from_slice(extents);
        self.free.sort_unstable_by_key(|extent| extent.page);
        self.free.dedup_by(|next, extent| {
            let neighbours = extent.end() == next.page;
            if neighbours {
                extent.pages += next.pages;
            }
            neighbours
        });
        self
    }

    /// Encodes the image, with its own length and checksum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(IMAGE_HEADER + self.free.len() * 4);
        bytes.extend_from_slice(IMAGE_MAGIC);
        let version = if self.holes.is_empty() { IMAGE_VERSION } else { IMAGE_VERSION_HOLES };
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&self.total_pages.to_le_bytes());
        bytes.extend_from_slice(&(self.free.len() as u64).to_le_bytes());
        put_extents(&mut bytes, &self.free);
        if !self.holes.is_empty() {
            put_number(&mut bytes, self.holes.len() as u64);
            put_extents(&mut bytes, &self.holes);
        }
        let length = bytes.len() as u64;
        bytes[16..24].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(&bytes);
        bytes[CRC].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// The bytes of an image that passed every check. A long free list is checked far faster than it is taken apart.
#[derive(Clone, Debug)]
pub struct CheckedImage {
    bytes: Vec<u8>,
    total_pages: u64,
    free: List,
    holes: List,
}

/// A list of extents in an image.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    /// Position of the first extent.
    begin: usize,
    extents: u64,
    /// Pages of all extents.
    pages: u64,
}

impl CheckedImage {
    /// Checks an image; all bytes must belong to it.
    ///
    /// # Errors
    /// When the bytes are not a whole image, or are one that no allocator can have made.
    pub fn new(bytes: Vec<u8>) -> Result<Self> {
        let file = Path::new(IMAGE_NAME);
        let version = check_header(file, &bytes, IMAGE_HEADER, IMAGE_MAGIC, IMAGE_VERSION..=IMAGE_VERSION_HOLES)?;
        let length = u64_at(&bytes, 16);
        if length != bytes.len() as u64 {
            return Err(Error::corrupt(file, 16, "length", bytes.len(), length));
        }
        check_crc(file, &bytes)?;
        let (total_pages, count) = (u64_at(&bytes, 24), u64_at(&bytes, 32));
        if total_pages == 0 {
            return Err(Error::corrupt(file, 24, "total pages", "one at least", total_pages));
        }
        let mut image = Self { bytes, total_pages, free: List::default(), holes: List::default() };
        let mut at = IMAGE_HEADER;
        image.free = image.check_list(&mut at, count, None)?;
        if version == IMAGE_VERSION_HOLES {
            let mut rest = &image.bytes[at..];
            let count = next_number(&mut rest).filter(|count| *count > 0);
            let count = count.ok_or_else(|| Error::corrupt(file, at as u64, "holes", "one at least", "none"))?;
            at = image.bytes.len() - rest.len();
            image.holes = image.check_list(&mut at, count, Some(image.free))?;
        }
        if at < image.bytes.len() {
            return Err(Error::corrupt(file, at as u64, "end", "no more bytes", image.bytes.len() - at));
        }
        Ok(image)
    }

    /// Checks the list at `at`, and moves `at` behind the list. No page of the list may be in `other`.
    fn check_list(&self, at: &mut usize, extents: u64, other: Option<List>) -> Result<List> {
        let file = Path::new(IMAGE_NAME);
        // An extent has at least two bytes.
        if extents > (self.bytes.len() - *at) as u64 / 2 {
            let found = format!("{extents} extents");
            return Err(Error::corrupt(file, *at as u64, "counts", "counts that fit the image", found));
        }
        let mut list = List { begin: *at, extents, pages: 0 };
        let (mut rest, mut end) = (&self.bytes[*at..], 0);
        let mut others = other.into_iter().flat_map(|other| self.extents(other)).peekable();
        for _ in 0..extents {
            let extent = get_extent(&mut rest, end, self.total_pages).filter(|extent| {
                while others.next_if(|other| other.end() <= extent.page).is_some() {}
                others.peek().is_none_or(|other| extent.end() <= other.page)
            });
            let extent = extent.ok_or_else(|| {
                Error::corrupt(file, *at as u64, "free extent", "pages after the one before, in the file", "none")
            })?;
            end = extent.end().0;
            list.pages += u64::from(extent.pages);
            *at = self.bytes.len() - rest.len();
        }
        Ok(list)
    }

    /// The extents of a checked list.
    fn extents(&self, list: List) -> impl Iterator<Item = Extent> + '_ {
        let (mut rest, mut end) = (&self.bytes[list.begin..], 0);
        (0..list.extents).map_while(move |_| {
            let extent = get_extent(&mut rest, end, self.total_pages)?;
            end = extent.end().0;
            Some(extent)
        })
    }

    /// The image.
    #[must_use]
    pub fn decode(&self) -> AllocatorImage {
        let [free, holes] = [self.free, self.holes].map(|list| {
            let mut extents = Vec::with_capacity(usize::try_from(list.extents).unwrap_or(0));
            extents.extend(self.extents(list));
            extents
        });
        AllocatorImage { total_pages: self.total_pages, free, holes }
    }

    /// Pages by state in a file that is opened with this image.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (free_pages, hole_pages) = (self.free.pages, self.holes.pages);
        Stats {
            total_pages: self.total_pages,
            free_pages,
            hole_pages,
            reserve_pages: reserve_for(self.total_pages - hole_pages),
            free_runs: self.free.extents,
            ..Stats::default()
        }
    }
}

impl From<&AllocatorImage> for CheckedImage {
    /// The bytes of an image that was made by an allocator.
    ///
    /// # Panics
    /// When the extents of the image are not in order, or overlap.
    fn from(image: &AllocatorImage) -> Self {
        Self::new(image.encode()).expect("an image of an allocator")
    }
}

fn put_extents(bytes: &mut Vec<u8>, extents: &[Extent]) {
    let mut end = 0;
    for extent in extents {
        put_number(bytes, extent.page.0 - end);
        put_number(bytes, u64::from(extent.pages));
        end = extent.end().0;
    }
}

/// An extent after page `end` and inside `total_pages`; page 0 is never free.
fn get_extent(bytes: &mut &[u8], end: u64, total_pages: u64) -> Option<Extent> {
    let page = end.checked_add(next_number(bytes)?)?;
    let pages = u32::try_from(next_number(bytes)?).ok()?;
    let inside = page.checked_add(u64::from(pages))? <= total_pages;
    (page > 0 && pages > 0 && inside).then_some(Extent::new(PageId(page), pages))
}

/// Page 0 of a paged file.
pub(crate) fn encode_file_header() -> [u8; PAGE] {
    let mut page = [0; PAGE];
    page[..8].copy_from_slice(FILE_MAGIC);
    page[8..12].copy_from_slice(&FILE_VERSION.to_le_bytes());
    page[16..24].copy_from_slice(&(PAGE as u64).to_le_bytes());
    let crc = checksum(&page);
    page[CRC].copy_from_slice(&crc.to_le_bytes());
    page
}

/// Checks page 0 of `file`.
pub(crate) fn check_file_header(file: &Path, page: &[u8]) -> Result<()> {
    check_header(file, page, PAGE, FILE_MAGIC, FILE_VERSION..=FILE_VERSION)?;
    check_crc(file, page)?;
    match u64_at(page, 16) {
        found if found == PAGE as u64 => Ok(()),
        found => Err(Error::corrupt(file, 16, "page size", PAGE, found)),
    }
}

/// Returns the version.
fn check_header(
    file: &Path, bytes: &[u8], header: usize, magic: &[u8; 8], versions: RangeInclusive<u32>,
) -> Result<u32> {
    if bytes.len() < header {
        return Err(Error::corrupt(file, 0, "header", format!("{header} bytes"), bytes.len()));
    }
    if &bytes[..8] != magic {
        let found = bytes[..8].escape_ascii();
        return Err(Error::corrupt(file, 0, "magic", magic.escape_ascii(), found));
    }
    match u32_at(bytes, 8) {
        found if versions.contains(&found) => Ok(found),
        found if found > *versions.end() => {
            Err(Error::NewerVersion { file: file.to_owned(), found, known: *versions.end() })
        }
        found => Err(Error::corrupt(file, 8, "version", versions.start(), found)),
    }
}

fn check_crc(file: &Path, bytes: &[u8]) -> Result<()> {
    let expected = u32_at(bytes, CRC.start);
    let found = checksum(bytes);
    if expected == found {
        return Ok(());
    }
    let [expected, found] = [expected, found].map(|crc| format!("{crc:#010x}"));
    Err(Error::corrupt(file, CRC.start as u64, "checksum", expected, found))
}

/// CRC-32C of everything but the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    checksum::crc32c_around(bytes, CRC.start)
}

/// Puts the right checksum on changed bytes.
#[cfg(feature = "fuzzing")]
pub(crate) fn seal(bytes: &mut [u8]) {
    let crc = checksum(bytes);
    bytes[CRC].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the number that `bytes` begin with.
fn next_number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, length) = codec::number(bytes)?;
    *bytes = &bytes[length..];
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileDamage;

    fn decode(bytes: &[u8]) -> Result<AllocatorImage> {
        Ok(CheckedImage::new(bytes.to_vec())?.decode())
    }

    fn image() -> AllocatorImage {
        AllocatorImage {
            total_pages: 1000,
            free: vec![Extent::new(PageId(1), 2), Extent::new(PageId(10), 1), Extent::new(PageId(700), 300)],
            holes: Vec::new(),
        }
    }

    fn image_with_holes() -> AllocatorImage {
        AllocatorImage { holes: vec![Extent::new(PageId(20), 80), Extent::new(PageId(400), 300)], ..image() }
    }

    /// Puts a right checksum on bytes that a test has changed.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let length = bytes.len() as u64;
        bytes[16..24].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(&bytes);
        bytes[CRC].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_image() {
        let golden = concat!(
            "425241494441 4c43",
            "01000000",
            "1ec1a3cd",
            "3000000000000000",
            "e803000000000000",
            "0300000000000000",
            "0102",
            "0701",
            "b105ac02",
        );
        let bytes = image().encode();
        assert_eq!(hex(&bytes), golden.replace(' ', ""));
        assert_eq!(decode(&bytes).expect("whole"), image());
    }

    #[test]
    fn golden_image_with_holes() {
        let bytes = image_with_holes().encode();
        assert_eq!((&bytes[8..12], &bytes[40..48]), (&[2, 0, 0, 0][..], &image().encode()[40..48]));
        assert_eq!(hex(&bytes[48..]), concat!("02", "1450", "ac02ac02"));
        assert_eq!(decode(&bytes).expect("whole"), image_with_holes());
    }

    #[test]
    fn golden_file_header() {
        let page = encode_file_header();
        assert_eq!(
            hex(&page[..32]),
            concat!("4252414944504147", "01000000", "7e7bdc4c", "0010000000000000", "0000000000000000")
        );
        assert!(page[24..].iter().all(|byte| *byte == 0));
        check_file_header(Path::new("data"), &page).expect("whole");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = image_with_holes().encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            decode(&damaged).expect_err("damaged");
        }
        for length in 0..bytes.len() {
            decode(&bytes[..length]).expect_err("cut");
        }
        let page = encode_file_header();
        for bit in 0..page.len() * 8 {
            let mut damaged = page;
            damaged[bit / 8] ^= 1 << (bit % 8);
            check_file_header(Path::new("data"), &damaged).expect_err("damaged");
        }
    }

    #[test]
    fn images_that_no_allocator_makes_are_refused() {
        let bad: [&[u8]; 6] = [
            &[0, 1, 7, 1],          // page 0
            &[1, 0, 7, 1],          // empty
            &[1, 1, 7, 1, 0],       // trailing bytes
            &[1, 1, 0xe7, 7, 1],    // past the end
            &[1, 1, 0x81, 0x00, 1], // not the shortest form
            &[1, 1, 7, 0x80],       // cut
        ];
        for extents in bad {
            let mut bytes = image().encode()[..IMAGE_HEADER].to_vec();
            bytes[32] = 2;
            bytes.extend_from_slice(extents);
            let error = decode(&sealed(bytes)).expect_err("refused");
            assert!(matches!(error, Error::Corrupt(FileDamage { what: "free extent" | "end", .. })), "{error}");
        }
        // The version with holes, without a hole.
        let mut bytes = image().encode();
        bytes[8] = 2;
        decode(&sealed(bytes.clone())).expect_err("refused");
        bytes.push(0);
        let error = decode(&sealed(bytes)).expect_err("refused");
        assert!(matches!(error, Error::Corrupt(FileDamage { what: "holes", .. })), "{error}");
        // A count that would ask for more memory than the bytes can describe.
        let mut bytes = image().encode();
        bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        let error = decode(&sealed(bytes)).expect_err("refused");
        assert!(matches!(error, Error::Corrupt(FileDamage { what: "counts", .. })), "{error}");
    }

    #[test]
    fn holes_among_the_free_pages_are_refused() {
        let free = [(4, 4), (20, 1)];
        for (holes, fits) in [
            (vec![(1, 3)], true),
            (vec![(8, 12), (21, 9)], true),
            (vec![(1, 4)], false),
            (vec![(7, 1)], false),
            (vec![(5, 1)], false),
            (vec![(2, 8)], false),
            (vec![(8, 2), (15, 10)], false),
        ] {
            let extents = |list: &[(u64, u32)]| list.iter().map(|list| Extent::new(PageId(list.0), list.1)).collect();
            let image = AllocatorImage { total_pages: 100, free: extents(&free), holes: extents(&holes) };
            let checked = CheckedImage::new(image.encode());
            assert_eq!(checked.as_ref().is_ok(), fits, "{holes:?}");
            if let Ok(checked) = checked {
                assert_eq!(checked.decode(), image);
                assert_eq!(
                    checked.stats().used_pages(),
                    95 - image.holes.iter().map(|hole| u64::from(hole.pages)).sum::<u64>()
                );
            }
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = image().encode();
        bytes[8] = 3;
        let error = decode(&sealed(bytes)).expect_err("newer");
        assert!(matches!(error, Error::NewerVersion { found: 3, known: 2, .. }), "{error}");
    }
}
