//! A directory of backups.
//!
//! 1. Files are numbered in the order of their making: `000001.full`, `000002.incremental`, … Each incremental file
//!    continues the file before. So a chain is a full file and all files up to the next full one.
//! 2. A file is written as `….unfinished` and gets its name once durable. The next backup removes leftovers of such
//!    names.
//! 3. A writer holds the lock of the file `LOCK`.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use psync::{BackendKind, Lock, Psync};

use super::{
    BackupPoint,
    file::ToFile,
    format::{HEADER_BYTES, Header},
    path_error::path_error,
    reader,
};
use crate::{
    error::{Error, Result},
    root::superblock,
};

const FULL: &str = "full";
const INCREMENTAL: &str = "incremental";
const UNFINISHED: &str = ".unfinished";
const LOCK: &str = "LOCK";

/// A directory opened for writing backups.
pub(super) struct Directory {
    path: PathBuf,
    psync: Psync,
    _lock: Lock,
}

/// A file being written. Dropped before its finish, the file is removed.
pub(super) struct Unfinished<'a> {
    directory: &'a Directory,
    written: PathBuf,
    name: PathBuf,
}

impl Directory {
    pub(super) fn open(path: &Path, backend: BackendKind) -> Result<Self> {
        let psync = Psync::new(Some(backend))?;
        if psync.exists(&path.join(superblock::NAME))? {
            return Err(Error::Occupied { path: path.to_owned(), found: "a database".into() });
        }
        if !psync.exists(path)? {
            psync.create_directory(path)?;
            sync_parent(path)?;
        }
        let lock = psync.lock(&path.join(LOCK), false)?;
        for name in psync.list(path)?.iter().filter(|name| name.ends_with(UNFINISHED)) {
            psync.remove(&path.join(name))?;
        }
        Ok(Self { path: path.to_owned(), psync, _lock: lock })
    }

    /// The newest backup, which the next one can continue.
    pub(super) fn newest(&self) -> Result<BackupPoint> {
        let (_, newest) = files(&self.path)?.pop().ok_or_else(|| no_backup(&self.path))?;
        let mut bytes = [0; HEADER_BYTES];
        let mut file = fs::File::open(&newest).map_err(path_error("open", &newest))?;
        file.read_exact(&mut bytes).map_err(path_error("read", &newest))?;
        let Header { database, id, seq, .. } = reader::header(&bytes, &newest.display().to_string(), 0)?;
        Ok(BackupPoint { database, id, seq })
    }

    /// Begins the next file.
    pub(super) fn begin(&self, incremental: bool) -> Result<Unfinished<'_>> {
        let number = files(&self.path)?.last().map_or(1, |(number, _)| number + 1);
        let name = format!("{number:06}.{}", if incremental { INCREMENTAL } else { FULL });
        let written = self.path.join(format!("{name}{UNFINISHED}"));
        Ok(Unfinished { directory: self, written, name: self.path.join(name) })
    }
}

impl Unfinished<'_> {
    /// Opens the file for writing.
    pub(super) fn sink(&mut self) -> Result<ToFile> {
        ToFile::create(&self.directory.psync, &self.written)
    }

    /// Gives the file its name. The file must be durable already.
    pub(super) fn finish(self) -> Result<PathBuf> {
        fs::rename(&self.written, &self.name).map_err(path_error("rename", &self.written))?;
        self.directory.psync.sync_directory(&self.directory.path)?;
        Ok(self.name.clone())
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // Three cases of failure are harmless: the file has its name, the file was never created, or the next backup
        // removes the file.
        let _ = fs::remove_file(&self.written);
    }
}

/// The files of the newest chain in `path`, or `path` itself if a file.
pub(super) fn chain(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let files = files(path)?;
    let is_full = |(_, file): &(u64, PathBuf)| file.extension().is_some_and(|extension| extension == FULL);
    let begin = files.iter().rposition(is_full).ok_or_else(|| no_backup(path))?;
    Ok(files.into_iter().skip(begin).map(|(_, file)| file).collect())
}

/// The backups in a directory with their numbers, oldest first.
fn files(path: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(path_error("list", path))? {
        let file = entry.map_err(path_error("list", path))?.path();
        let known = file.extension().is_some_and(|extension| extension == FULL || extension == INCREMENTAL);
        let number = file.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        if let Some(number) = number.filter(|_| known) {
            files.push((number, file));
        }
    }
    files.sort();
    Ok(files)
}

/// Makes the name of `path` durable.
pub(super) fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(parent).and_then(|directory| directory.sync_all()).map_err(path_error("flush directory", parent))
}

fn no_backup(path: &Path) -> Error {
    Error::NoBackup { path: path.to_owned() }
}
