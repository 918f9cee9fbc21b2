//! Counts of the operating system for block devices and for files.
//!
//! The kernel's count for a process (`/proc/self/io`) says little about writes, because a buffered write is charged
//! with the whole folio that became dirty: up to 1 MiB, although 4 KiB of the folio reach the device.

use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Bytes of a sector in the kernel's counts, independent of the device's own sector size.
const SECTOR_BYTES: u64 = 512;
/// Bytes of a block in a file's count.
const BLOCK_BYTES: u64 = 512;
/// Position of the count of written sectors in a device's `stat`.
const SECTORS_WRITTEN: usize = 6;

/// Bytes that all processes ever wrote to the block device under a directory. The file system's dirty pages are written
/// first, so they are counted too. None when the directory has no block device of its own, or when the device counts
/// nothing.
#[must_use]
pub fn written_bytes(path: &Path) -> Option<u64> {
    rustix::fs::syncfs(fs::File::open(path).ok()?).ok()?;
    let device = fs::metadata(path).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    sectors_written(&text).filter(|sectors| *sectors > 0).map(|sectors| sectors * SECTOR_BYTES)
}

/// The difference since `earlier`.
#[must_use]
pub fn written_since(path: &Path, earlier: Option<u64>) -> Option<u64> {
    let (now, earlier) = (written_bytes(path)?, earlier?);
    Some(now.saturating_sub(earlier))
}

fn sectors_written(text: &str) -> Option<u64> {
    text.split_whitespace().nth(SECTORS_WRITTEN)?.parse().ok()
}

/// Bytes of the blocks that the files below a directory take; none when the directory cannot be listed.
#[must_use]
pub fn allocated_bytes(directory: &Path) -> Option<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).ok()? {
        let path = entry.ok()?.path();
        // A file may be removed between the listing and this look.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        bytes += if metadata.is_dir() { allocated_bytes(&path)? } else { metadata.blocks() * BLOCK_BYTES };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_sectors_are_the_seventh_figure() {
        let text = "  105  0  4200  11  77  3  9600  42  0  60  53  0  0  0  0";
        assert_eq!(sectors_written(text), Some(9600));
        assert_eq!(sectors_written("1 2 3"), None);
    }

    #[test]
    fn a_hole_takes_no_blocks() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let inner = directory.path().join("inner");
        fs::create_dir(&inner).expect("made");
        fs::write(inner.join("full"), vec![1; 1 << 16]).expect("written");
        let hole = fs::File::create(directory.path().join("hole")).expect("made");
        hole.set_len(1 << 30).expect("grown");
        hole.sync_all().expect("synced");
        let bytes = allocated_bytes(directory.path()).expect("listed");
        assert!(bytes < 1 << 20, "{bytes}");
    }
}
