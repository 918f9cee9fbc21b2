//! Directories above databases, whose names must be as durable as their contents.
//!
//! A process that opens many databases in one place syncs the names that lead there once. A directory is recognized by
//! its identity, so a directory that was removed and made anew is synced anew. A directory that is moved meanwhile is
//! the mover's to sync.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use parking_lot::Mutex;
use psync::{Identity, Psync};

/// Beyond this number all are forgotten, and synced again.
const KNOWN_MAX: usize = 1024;

/// Directories whose name this process has synced. Each directory above one is recorded by itself, because a relative
/// path ends at the working directory.
static KNOWN: LazyLock<Mutex<HashSet<Identity>>> = LazyLock::new(Mutex::default);

/// A directory to sync, for a name in it.
pub(crate) struct Above {
    pub(crate) directory: PathBuf,
    /// Identity of the directory with that name. `None` for the database's own directory, and where the identity is
    /// unknown.
    child: Option<Identity>,
}

/// The directories to sync for the names that lead to a database: from the directory that contains the database
/// upwards.
pub(crate) fn of(psync: &Psync, database: &Path) -> Vec<Above> {
    let named = |path: &&Path| !path.as_os_str().is_empty() && path.parent().is_some();
    let above = database.ancestors().take_while(named).map(|path| {
        let child = if path == database { None } else { psync.identity(path) };
        Above { directory: parent_of(path), child }
    });
    above.filter(|above| above.child.is_none_or(|child| !KNOWN.lock().contains(&child))).collect()
}

/// Records all of these as synced.
pub(crate) fn note_synced(above: impl IntoIterator<Item = Above>) {
    let mut known = KNOWN.lock();
    for child in above.into_iter().filter_map(|above| above.child) {
        if known.len() == KNOWN_MAX {
            known.clear();
        }
        known.insert(child);
    }
}

/// The directory that holds the entry of a path.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_to_a_database_is_synced_once_but_for_its_own_name() {
        let psync = Psync::new(None).expect("a backend");
        let scratch = tempfile::tempdir().expect("a directory");
        let place = scratch.path().join("place");
        let database = place.join("db");
        std::fs::create_dir_all(&database).expect("directories");
        let directories =
            |database: &Path| of(&psync, database).into_iter().map(|above| above.directory).collect::<Vec<_>>();
        let all: Vec<_> = database.ancestors().skip(1).map(Path::to_owned).collect();
        assert_eq!(directories(&database), all);
        assert_eq!(directories(&database), all, "nothing is synced yet");
        note_synced(of(&psync, &database));
        assert_eq!(directories(&database), all[..1]);
        assert_eq!(directories(&place.join("another")), all[..1]);
        std::fs::rename(&place, scratch.path().join("elsewhere")).expect("moved");
        std::fs::create_dir_all(&database).expect("directories");
        assert_eq!(directories(&database), all[..2], "it is another one");
    }
}
