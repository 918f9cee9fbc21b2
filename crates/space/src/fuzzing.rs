//! Decoders of this crate for a fuzzer. For tests of the workspace alone.

use std::path::Path;

use crate::allocator::Allocator;
use crate::format::{check_file_header, encode_file_header, seal};
use crate::{AllocatorImage, CheckedImage, Extent, PAGE, PageId, Stats};

/// A name, a function that takes bytes, and the encodings to begin with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All decoders of this crate for bytes from a disk.
pub const TARGETS: &[Target] =
    &[("space_free_list", free_list, free_lists), ("space_file_header", file_header, file_headers)];

/// Where both parts begin to differ from their magic and version.
const LENGTH: std::ops::Range<usize> = 16..24;

fn free_list(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let _ = CheckedImage::new(bytes.clone());
    if bytes.len() < LENGTH.end {
        return;
    }
    let length = bytes.len() as u64;
    bytes[LENGTH].copy_from_slice(&length.to_le_bytes());
    seal(&mut bytes);
    if let Ok(checked) = CheckedImage::new(bytes.clone()) {
        assert_eq!(checked.decode().encode(), bytes, "an image has one encoding");
        let made = Allocator::new(Path::new("data"), &checked).stats();
        // Neighbouring extents are one run.
        assert_eq!(Stats { free_runs: made.free_runs, ..checked.stats() }, made);
        assert!(made.free_runs <= checked.stats().free_runs);
    }
}

fn free_lists() -> Vec<Vec<u8>> {
    let extents =
        |list: &[(u64, u32)]| list.iter().map(|(page, pages)| Extent::new(PageId(*page), *pages)).collect::<Vec<_>>();
    let image = |total_pages, free: &[(u64, u32)]| {
        AllocatorImage { total_pages, free: extents(free), holes: Vec::new() }.encode()
    };
    vec![
        image(1, &[]),
        image(1000, &[(1, 2), (10, 1), (700, 300)]),
        image(u64::MAX, &[(1 << 40, u32::MAX), (1 << 50, 7)]),
        AllocatorImage { total_pages: 900, free: extents(&[(3, 4)]), holes: extents(&[(9, 1), (300, 600)]) }.encode(),
        image(1 << 20, &(0..100).map(|extent| (1 + extent * 300, 200)).collect::<Vec<_>>()),
    ]
}

fn file_header(bytes: &[u8]) {
    let file = Path::new("data");
    let _ = check_file_header(file, bytes);
    let mut page = bytes.to_vec();
    page.resize(PAGE, 0);
    seal(&mut page);
    let _ = check_file_header(file, &page);
}

fn file_headers() -> Vec<Vec<u8>> {
    vec![encode_file_header()[..32].to_vec()]
}
