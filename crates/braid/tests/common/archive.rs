//! Databases that an earlier build has made, each in a file of `tests/golden`.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn archive(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.zst"))
}

/// Packs the files of a database: for each its name, its length and its bytes.
pub(crate) fn pack(directory: &Path, name: &str) {
    let to = archive(name);
    let mut bytes = Vec::new();
    for file in files_in(directory) {
        let name = file.strip_prefix(directory).expect("below it").to_str().expect("a name").as_bytes();
        let content = fs::read(&file).expect("read");
        for part in [name, &content] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
    }
    fs::create_dir_all(to.parent().expect("a folder")).expect("made");
    fs::write(to, zstd::encode_all(&bytes[..], 19).expect("compressed")).expect("written");
}

/// Unpacks them into a directory.
pub(crate) fn unpack(name: &str, directory: &Path) {
    let bytes = zstd::decode_all(&fs::read(archive(name)).expect("the archive")[..]).expect("compressed");
    let mut rest = &bytes[..];
    let mut part = || {
        let (length, behind) = rest.split_first_chunk::<8>()?;
        let (part, behind) = behind.split_at(usize::try_from(u64::from_le_bytes(*length)).expect("it fits"));
        rest = behind;
        Some(part)
    };
    while let (Some(name), Some(content)) = (part(), part()) {
        let file = directory.join(std::str::from_utf8(name).expect("a name"));
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, content).expect("written");
    }
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let (folders, mut files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| files_in(folder)));
    files.sort();
    files
}
