//! Names on a simulated disk, and how they change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::node::SharedNode;

/// Names of files, and directories.
#[derive(Clone, Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<PathBuf, SharedNode>,
    pub(super) directories: BTreeSet<PathBuf>,
}

/// A change of names that may be lost until its directory is synced.
#[derive(Clone)]
pub(super) enum NameChange {
    File(PathBuf, SharedNode),
    Directory(PathBuf),
    Removal(PathBuf),
    /// To another name in the same directory, in one step.
    Renaming(PathBuf, PathBuf),
}

impl NameChange {
    pub(super) fn parent(&self) -> &Path {
        let (Self::File(path, _) | Self::Directory(path) | Self::Removal(path) | Self::Renaming(path, _)) = self;
        path.parent().unwrap_or(Path::new(""))
    }
}

impl Tree {
    pub(super) fn apply(&mut self, change: NameChange) {
        match change {
            NameChange::File(path, node) => {
                self.files.insert(path, node);
            }
            NameChange::Directory(path) => {
                self.directories.insert(path);
            }
            NameChange::Removal(path) => {
                self.files.remove(&path);
            }
            NameChange::Renaming(from, to) => {
                if let Some(node) = self.files.remove(&from) {
                    self.files.insert(to, node);
                }
            }
        }
    }

    pub(super) fn has_directory(&self, path: &Path) -> bool {
        path.parent().is_none() || self.directories.contains(path)
    }

    /// Drops the names in directories that do not exist.
    pub(super) fn drop_orphans(&mut self) {
        let reachable = |directories: &BTreeSet<PathBuf>, path: &Path| {
            path.ancestors().skip(1).all(|above| above.parent().is_none() || directories.contains(above))
        };
        let directories = std::mem::take(&mut self.directories);
        self.directories = directories.iter().filter(|path| reachable(&directories, path)).cloned().collect();
        self.files.retain(|path, _| reachable(&self.directories, path));
    }
}
