//! The operating system's counts for this process, and its page cache.
//!
//! All counts are read from `/proc/self`. Where that is missing (another operating system, a restricted container) the
//! answer is none, and reports leave the field empty rather than print zero.

use std::fs;
use std::path::Path;

use rustix::fs::Advice;

use crate::{Error, Result};

/// Bytes that this process made the storage device read since its start: `read_bytes` of `/proc/self/io`. Reads served
/// by the page cache are not counted.
///
/// Writes have no such count: see [`block`](crate::block).
#[must_use]
pub fn read_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/self/io").ok()?, "read_bytes")
}

/// Memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes resident now.
    pub resident_bytes: u64,
    /// Most bytes that were ever resident.
    pub peak_bytes: u64,
    /// The resident bytes that are pages of mapped files: above all the program.
    pub file_bytes: u64,
}

impl Memory {
    /// As of now.
    #[must_use]
    pub fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/status").ok()?;
        let bytes = |name| Some(field(&text, name)? * 1024);
        Some(Self { resident_bytes: bytes("VmRSS")?, peak_bytes: bytes("VmHWM")?, file_bytes: bytes("RssFile")? })
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Total length of the files below `directory`, not following symbolic links.
///
/// # Errors
/// When a directory cannot be listed.
pub fn bytes_below(directory: &Path) -> Result<u64> {
    let mut total = 0;
    each_file(directory, &mut |_, bytes| {
        total += bytes;
        Ok(())
    })?;
    Ok(total)
}

/// Asks the operating system to forget the pages of every file below `directory`. Dirty pages are written first,
/// because they cannot be forgotten.
///
/// # Errors
/// When a file cannot be opened, flushed or advised on.
pub fn evict_page_cache(directory: &Path) -> Result<()> {
    each_file(directory, &mut |path, _| {
        let file = match fs::File::open(path) {
            // The file may be released between the listing and the open.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(Error::io("opening", path))?,
        };
        file.sync_data().map_err(Error::io("flushing", path))?;
        let advised = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        advised.map_err(|errno| Error::io("evicting from the page cache", path)(errno.into()))
    })
}

fn each_file(directory: &Path, visit: &mut dyn FnMut(&Path, u64) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(Error::io("listing", directory))? {
        let entry = entry.map_err(Error::io("listing", directory))?;
        let path = entry.path();
        // A file may be released between the listing and this look.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            each_file(&path, visit)?;
        } else if metadata.is_file() {
            visit(&path, metadata.len())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_whole_name() {
        let text = "rchar: 5\ncancelled_write_bytes: 7\nread_bytes: 4096\nVmRSS:\t    12 kB\n";
        assert_eq!(field(text, "read_bytes"), Some(4096));
        assert_eq!(field(text, "VmRSS"), Some(12));
        assert_eq!(field(text, "write_bytes"), None);
    }

    #[test]
    fn bytes_of_subdirectories_count() {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(directory.path().join("wal")).expect("subdirectory");
        fs::write(directory.path().join("data"), [0; 100]).expect("file");
        fs::write(directory.path().join("wal/1.log"), [0; 23]).expect("file");
        assert_eq!(bytes_below(directory.path()).expect("listed"), 123);
        evict_page_cache(directory.path()).expect("evicted");
    }
}
