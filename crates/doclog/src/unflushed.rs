//! Files that are written long before anything refers to their content, as those of a load, whose number is unknown in
//! advance.
//!
//! Invariant: a file that is no longer among them, and was not taken, was flushed after the write for which the file
//! was added.

use psync::{File, Psync, Request};

use crate::Result;

/// If there are more files than this, all are flushed in one psync and closed.
const FILES_MAX: usize = 32;

/// Files to be flushed, a bounded number of them.
#[derive(Debug, Default)]
pub struct Unflushed(Vec<File>);

impl Unflushed {
    /// Adds written files. The caller of `take` flushes them; if there are too many, they are flushed now, together
    /// with all others.
    ///
    /// # Errors
    /// When a flush fails: then the content of the files may be lost for good.
    pub fn add(&mut self, psync: &Psync, written: impl IntoIterator<Item = File>) -> Result<()> {
        for file in written {
            if !self.0.contains(&file) {
                self.0.push(file);
            }
        }
        if self.0.len() > FILES_MAX {
            let flushes = self.0.iter().map(|file| Request::flush(file, 0)).collect();
            psync.run_all(flushes)?;
            self.0.clear();
        }
        Ok(())
    }

    /// Takes the files that still have to be flushed.
    #[must_use]
    pub fn take(&mut self) -> Vec<File> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::{Fault, SimDisk};
    use psync::{Buffer, OpenOptions};

    use super::*;

    #[test]
    fn they_are_few_and_what_is_none_of_them_is_durable() {
        let disk = SimDisk::new(1);
        let psync = disk.psync();
        let path = |number: usize| format!("/{number}");
        let (mut unflushed, count) = (Unflushed::default(), 10 * FILES_MAX + 5);
        for number in 0..count {
            let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
            let file = psync.open(Path::new(&path(number)), &options).expect("made");
            psync.sync_directory(Path::new("/")).expect("a disk that works");
            let write = || psync.run_all(vec![Request::write(&file, 0, Buffer::from_slice(&[7; 9000]), 0)]);
            write().expect("written");
            unflushed.add(&psync, [file.clone(), file.clone()]).expect("a disk that works");
            assert!(unflushed.0.len() <= FILES_MAX);
        }
        let left = unflushed.take();
        assert!(unflushed.take().is_empty() && !left.is_empty());
        psync.run_all(left.iter().map(|file| Request::flush(file, 0)).collect()).expect("a disk that works");
        disk.restart();
        for number in 0..count {
            assert_eq!(disk.read_file(path(number)).as_deref(), Some(&[7; 9000][..]), "{number}");
        }
    }

    #[test]
    fn a_flush_that_fails_is_told() {
        let disk = SimDisk::new(1);
        let (psync, mut unflushed) = (disk.psync(), Unflushed::default());
        disk.fail_operation(Fault::Flush, 3, 5);
        let outcome = (0..FILES_MAX + 1).try_for_each(|number| {
            let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
            unflushed.add(&psync, psync.open(Path::new(&format!("/{number}")), &options))
        });
        assert!(outcome.is_err());
    }
}
