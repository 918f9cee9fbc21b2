//! Disk space that is held back for operations that give space back.
//!
//! Files that only grow cannot hold back space in themselves, as [`crate::PagedFile`] does. So one file of the
//! database, the reserve, does so for all of them.
//!
//! 1. The file has no content but its length, and the disk keeps room for that length. The room is reserved; where the
//!    file system cannot reserve room, or has less, the room is written. Nothing refers to the file, and it is never
//!    flushed: after a crash it may be shorter, and is then made long again.
//! 2. Before an operation makes the database larger, the file is filled ([`Reserve::fill`]). If there is no room for
//!    that, there is none for the operation.
//! 3. An operation that gives space back and finds the disk full has the file made shorter ([`Reserve::give`]), and
//!    tries again.
//! 4. An operation that gives space back in several steps borrows the room for them ([`Reserve::lend`]). Nothing is
//!    filled until the loan ends, so a caller that fills the reserve before it makes the database larger does not take
//!    that room. The log and the data file do not ask: they take a segment or a little growth. Only what
//!    makes log segments ahead asks ([`Reserve::can_spare`]).
//! 5. Surplus room goes back to the disk from time to time ([`Reserve::trim`]).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use psync::{Buffer, File, Request};

use crate::{Error, FileStore, PAGE, Result, StreamKind};

/// Bytes of one write; fewer where there is less room.
const PIECE_BYTES: usize = 256 << 10;

/// Disk space that is held back. By default none.
#[derive(Debug)]
pub struct Reserve {
    store: FileStore,
    wanted: AtomicU64,
    /// Known length of the file: an upper bound.
    held: AtomicU64,
    loans: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The file, once opened.
    file: Option<File>,
    refused: Option<Refused>,
}

/// How the file could last not be filled for want of room.
#[derive(Debug)]
struct Refused {
    error: psync::Error,
    /// Bytes that were free in the file system afterwards.
    free_bytes: u64,
}

/// Room that was lent, until this is dropped.
#[derive(Debug)]
#[must_use = "the loan ends when this is dropped"]
pub struct Loan(Arc<Reserve>);

impl Drop for Loan {
    fn drop(&mut self) {
        let loans = self.0.loans.fetch_sub(1, Ordering::Release);
        assert!(loans > 0, "a loan ends once");
    }
}

impl Reserve {
    /// Name of the file in the directory of the database.
    pub const NAME: &str = "reserve";

    /// The reserve of a database.
    #[must_use]
    pub fn new(store: &FileStore) -> Self {
        Self {
            store: store.clone(),
            wanted: AtomicU64::new(0),
            held: AtomicU64::new(0),
            loans: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Sets the number of bytes to hold back from now on.
    pub fn want(&self, bytes: u64) {
        self.wanted.store(bytes, Ordering::Relaxed);
    }

    /// Fills the file to the wanted length, or as far as there is room.
    ///
    /// # Errors
    /// When there is not enough room, some of the room is lent, or the file cannot be made or written.
    pub fn fill(&self) -> Result<()> {
        self.check_not_lent()?;
        let wanted = self.wanted.load(Ordering::Relaxed);
        if self.held.load(Ordering::Relaxed) >= wanted {
            return Ok(());
        }
        let State { file: open, refused } = &mut *self.state.lock();
        // Checked again because a lender registers its loan before it takes the lock.
        self.check_not_lent()?;
        let file = match self.open(open)? {
            Some(file) => file,
            None => open.insert(self.store.create(StreamKind::Meta, Self::NAME, false)?).clone(),
        };
        let mut held = file.len()?;
        if held < wanted {
            check_not_in_vain(refused.as_ref(), &file)?;
            match file.reserve(held..wanted) {
                Ok(true) => held = wanted,
                Ok(false) => {}
                // There is less room; the writes below find out how much.
                Err(_) => file.set_len(held)?,
            }
        }
        let mut piece = PIECE_BYTES;
        while held < wanted {
            let bytes = usize::try_from(wanted - held).unwrap_or(piece).min(piece);
            match self.store.psync().run_all(vec![Request::write(&file, held, Buffer::zeroed(bytes), 0)]) {
                Ok(_) => held += bytes as u64,
                Err(error) if error.is_disk_full() && piece > PAGE => piece /= 2,
                Err(error) => {
                    let free_bytes = file.free_bytes().filter(|_| error.is_disk_full());
                    *refused = free_bytes.map(|free_bytes| Refused { error: error.clone(), free_bytes });
                    return Err(error.into());
                }
            }
        }
        self.held.store(held, Ordering::Relaxed);
        Ok(())
    }

    /// Whether some of the room is lent.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.loans.load(Ordering::Acquire) > 0
    }

    /// Whether others, who can wait, may take `bytes` of free room. They may where the reserve has all that it should
    /// have. Where the disk has plenty of room, the file is filled for that.
    #[must_use]
    pub fn can_spare(&self, bytes: u64) -> bool {
        if self.is_lent() {
            return false;
        }
        let wanted = self.wanted.load(Ordering::Relaxed);
        if self.held.load(Ordering::Relaxed) >= wanted {
            return true;
        }
        let file = self.open(&mut self.state.lock().file);
        match file {
            // It was never filled.
            Ok(None) => true,
            Ok(Some(file)) => file.free_bytes().is_none_or(|free| free >= wanted + bytes) && self.fill().is_ok(),
            Err(_) => false,
        }
    }

    fn check_not_lent(&self) -> Result<()> {
        if self.is_lent() { Err(Error::Lent { file: self.store.path_of(Self::NAME)? }) } else { Ok(()) }
    }

    /// Gives the surplus over the wanted length to the disk, if the file is more than twice as long as wanted.
    ///
    /// # Errors
    /// When the file cannot be opened or cut.
    pub fn trim(&self) -> Result<()> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if !self.store.is_read_only() {
            self.cut(|held| Some(wanted).filter(|wanted| held / 2 > *wanted))?;
        }
        Ok(())
    }

    /// Gives held room to the disk, until the wanted length less so many quarters of it is left. Whether there was any.
    ///
    /// # Errors
    /// When the file cannot be opened or cut.
    pub fn give(&self, quarters: u64) -> Result<bool> {
        let keep = self.wanted.load(Ordering::Relaxed) / 4 * 4_u64.saturating_sub(quarters);
        if quarters == 0 {
            return Ok(false);
        }
        self.cut(|held| Some(keep).filter(|keep| *keep < held))
    }

    /// Gives `bytes` bytes to the disk, provided `keep` bytes remain, for an operation that gives more than that back
    /// in the end.
    ///
    /// # Errors
    /// When the file cannot be opened or cut.
    pub fn lend(self: &Arc<Self>, bytes: u64, keep: u64) -> Result<Option<Loan>> {
        self.loans.fetch_add(1, Ordering::Release);
        let loan = Loan(Arc::clone(self));
        Ok(self.cut(|held| held.checked_sub(bytes).filter(|left| *left >= keep))?.then_some(loan))
    }

    /// Cuts the file to the length that `left` computes from the held length, if that is not `None`.
    fn cut(&self, left: impl FnOnce(u64) -> Option<u64>) -> Result<bool> {
        let mut state = self.state.lock();
        let Some(file) = self.open(&mut state.file)? else { return Ok(false) };
        let held = file.len()?;
        let Some(left) = left(held) else { return Ok(false) };
        assert!(left <= held, "no more is given than is held");
        file.set_len(left)?;
        self.held.store(left, Ordering::Relaxed);
        Ok(true)
    }

    /// The file, if there is one.
    fn open(&self, open: &mut Option<File>) -> Result<Option<File>> {
        if open.is_none() && self.store.exists(Self::NAME)? {
            *open = Some(self.store.open_existing(StreamKind::Meta, Self::NAME, false)?);
        }
        Ok(open.clone())
    }
}

/// Fails as the last try did, if there is no page of room more than then.
fn check_not_in_vain(last: Option<&Refused>, file: &File) -> Result<()> {
    match (last, file.free_bytes()) {
        (Some(last), Some(free)) if free < last.free_bytes + PAGE as u64 => Err(last.error.clone().into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::{Fault, SimDisk};

    use super::*;

    fn store(disk: &SimDisk) -> FileStore {
        FileStore::open(disk.psync(), Path::new("/db"), false).expect("opens")
    }

    fn held(disk: &SimDisk) -> Option<usize> {
        disk.read_file("/db/reserve").map(|file| file.len())
    }

    #[test]
    #[should_panic(expected = "no more is given than is held")]
    fn a_cut_that_would_make_it_longer() {
        let reserve = Reserve::new(&store(&SimDisk::new(1)));
        reserve.want(10);
        reserve.fill().expect("there is room");
        drop(reserve.cut(|held| Some(held + 1)));
    }

    #[test]
    #[should_panic(expected = "a loan ends once")]
    fn a_loan_that_ends_twice() {
        drop(Loan(Arc::new(Reserve::new(&store(&SimDisk::new(1))))));
    }

    #[test]
    fn it_is_filled_first_and_given_when_there_is_no_room() {
        let disk = SimDisk::new(1);
        let reserve = Arc::new(Reserve::new(&store(&disk)));
        reserve.fill().expect("nothing is wanted");
        assert!(!reserve.give(4).expect("there is none"));
        assert_eq!(held(&disk), None);
        reserve.want(1_000_000);
        reserve.fill().expect("there is room");
        assert_eq!(held(&disk), Some(1_000_000));
        assert!(!reserve.give(0).expect("it is not for that"));
        assert!(reserve.give(2).expect("cuts"));
        assert!(!reserve.give(2).expect("the rest stays"));
        assert_eq!(held(&disk), Some(500_000));
        assert!(reserve.lend(500_001, 0).expect("all or nothing").is_none());
        assert!(reserve.lend(100_000, 400_001).expect("the rest is kept").is_none());
        let loan = reserve.lend(100_000, 400_000).expect("cuts").expect("there is as much");
        assert!(reserve.is_lent() && !reserve.can_spare(1));
        disk.set_capacity(Some(400_000));
        assert_eq!(held(&disk), Some(400_000));
        assert!(reserve.fill().expect_err("nobody takes it back while it is used").is_disk_full());
        assert_eq!(held(&disk), Some(400_000));
        drop(loan);
        assert!(!reserve.is_lent() && !reserve.can_spare(1), "the loan has not come back yet");
        disk.set_capacity(Some(600_000));
        assert!(reserve.fill().expect_err("there is no room").is_disk_full());
        let kept = held(&disk).expect("it is there");
        assert!((592_000..=600_000).contains(&kept), "{kept}");
        disk.fail_operation(Fault::Growth, 0, 5);
        assert!(reserve.fill().expect_err("there is as much room as before").is_disk_full());
        assert_eq!(disk.faults_left(), 1, "nothing was tried");
        disk.set_capacity(Some(600_000 + PAGE as u64));
        assert!(reserve.fill().expect_err("there is a page more").is_disk_full());
        assert_eq!((disk.faults_left(), held(&disk)), (0, Some(kept + PAGE)));

        // Another instance finds the file.
        disk.kill();
        let reserve = Arc::new(Reserve::new(&store(&disk)));
        reserve.want(1_000_000);
        assert!(reserve.give(4).expect("cuts"));
        assert!(!reserve.give(4).expect("nothing is left"));
        disk.set_capacity(Some(1_499_999));
        assert!(!reserve.can_spare(500_000));
        assert_eq!(held(&disk), Some(0));
        disk.set_capacity(Some(1_500_000));
        assert!(reserve.can_spare(500_000), "there is plenty");
        assert_eq!(held(&disk), Some(1_000_000));
        assert!(reserve.can_spare(1_000_000), "it has all that it should have");

        reserve.want(500_000);
        reserve.trim().expect("there is not so much of it");
        assert_eq!(held(&disk), Some(1_000_000));
        reserve.want(499_999);
        reserve.trim().expect("cuts");
        assert_eq!(held(&disk), Some(499_999));
        reserve.want(0);
        reserve.trim().expect("cuts");
        assert_eq!(held(&disk), Some(0));
    }
}
