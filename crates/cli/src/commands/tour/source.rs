//! The file trees that the tour loads.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exit::{Error, Result};

/// If the sources of crates have fewer files than this, the toolchain's documentation is loaded as well.
const FILES_MIN: u64 = 20_000;
/// Counting stops here.
const COUNT_MAX: u64 = FILES_MIN;

/// The directory asked for, or the best ones that this machine has.
pub(super) fn find(asked: Option<&Path>) -> Result<Vec<PathBuf>> {
    if let Some(directory) = asked {
        let metadata = std::fs::metadata(directory).map_err(Error::io("reading", directory))?;
        if !metadata.is_dir() {
            return Err(Error::Usage(format!("--source takes a directory, and {} is none", directory.display())));
        }
        return Ok(vec![directory.to_owned()]);
    }
    let mut sources = Vec::new();
    let mut files = 0;
    for candidate in [registry(), documentation()].into_iter().flatten() {
        if files < FILES_MIN && candidate.is_dir() {
            files += count(&candidate);
            sources.push(candidate);
        }
    }
    if sources.is_empty() {
        return Err(Error::NotFound("no sources of crates to load: name a directory with --source".into()));
    }
    Ok(sources)
}

/// The directory where Cargo unpacks downloaded crates.
fn registry() -> Option<PathBuf> {
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    Some(cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")))?.join("registry/src"))
}

/// The documentation of Rust's core library, which comes with the toolchain: some forty thousand files.
fn documentation() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    Some(Path::new(String::from_utf8(output.stdout).ok()?.trim()).join("share/doc/rust/html/core"))
}

/// Regular files below a directory, counted up to `COUNT_MAX`.
fn count(directory: &Path) -> u64 {
    let mut files = 0;
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() => files += 1,
                _ => {}
            }
            if files >= COUNT_MAX {
                return files;
            }
        }
    }
    files
}
