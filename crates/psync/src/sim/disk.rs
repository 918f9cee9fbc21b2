//! The state of a simulated disk: names, lives, faults. One lock covers everything here.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use random::Random;

use super::fault::{Fault, Garble};
use super::names::{NameChange, Tree};
use super::node::SharedNode;
use super::service::Service;
use crate::profile::DeviceProfile;
use crate::{BLOCK, SECTOR};

/// The error of every operation once the power is gone.
pub(super) const DEAD: i32 = libc::ENODEV;

struct Planned {
    kind: Fault,
    left: u64,
    errno: i32,
}

#[derive(Default)]
struct Holders {
    exclusive: bool,
    count: usize,
}

pub(super) struct Disk {
    random: Random,
    /// The unit of direct I/O.
    unit: usize,
    life: u64,
    crashed: bool,
    operations: u64,
    crash_after: Option<u64>,
    faults: Vec<Planned>,
    lost_writes: Vec<(PathBuf, u64)>,
    reads: u64,
    /// Reads before the garbled one, and the kind of garbling.
    garbled: Option<(u64, Garble)>,
    capacity: Option<u64>,
    volatile: Tree,
    durable: Tree,
    pending: Vec<NameChange>,
    locks: BTreeMap<PathBuf, Holders>,
    service: Option<Service>,
}

/// The fate of an operation that may go on.
enum Fate {
    Done,
    /// The power goes during the operation.
    Dying,
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// A range of a file as one of memory.
fn in_memory(range: &Range<u64>) -> io::Result<Range<usize>> {
    let place =
        |at: u64| usize::try_from(at).ok().filter(|at| *at < isize::MAX as usize).ok_or_else(|| errno(libc::EFBIG));
    Ok(place(range.start)?..place(range.end)?)
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::from_seed(seed),
            unit: if seed % 4 == 3 { BLOCK } else { SECTOR },
            life: 0,
            crashed: false,
            operations: 0,
            crash_after: None,
            faults: Vec::new(),
            lost_writes: Vec::new(),
            reads: 0,
            garbled: None,
            capacity: None,
            volatile: Tree::default(),
            durable: Tree::default(),
            pending: Vec::new(),
            locks: BTreeMap::new(),
            service: None,
        }
    }

    /// The unit of direct I/O.
    pub(super) fn unit(&self) -> usize {
        self.unit
    }

    pub(super) fn serve_as(&mut self, profile: DeviceProfile) {
        self.service = Some(Service::new(profile));
    }

    pub(super) fn service(&mut self) -> Option<&mut Service> {
        self.service.as_mut()
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    pub(super) fn is_crashed(&self) -> bool {
        self.crashed
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn crash_after(&mut self, operations: u64) {
        self.crash_after = Some(operations);
    }

    pub(super) fn crash(&mut self) {
        self.crashed = true;
    }

    pub(super) fn fail_operation(&mut self, kind: Fault, left: u64, errno: i32) {
        self.faults.push(Planned { kind, left, errno });
    }

    pub(super) fn faults_left(&self) -> usize {
        self.faults.len()
    }

    pub(super) fn lose_write(&mut self, path: &Path, left: u64) {
        self.lost_writes.push((path.to_owned(), left));
    }

    pub(super) fn garble_read(&mut self, left: u64, how: Garble) {
        self.garbled = Some((left, how));
    }

    pub(super) const fn reads(&self) -> u64 {
        self.reads
    }

    pub(super) fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity = bytes;
    }

    pub(super) fn restart(&mut self) {
        self.kill();
        self.lose_names();
        for node in self.durable.files.values() {
            node.lock().crash(&mut self.random);
        }
        self.volatile = self.durable.clone();
    }

    pub(super) fn kill(&mut self) {
        self.life += 1;
        self.crashed = false;
        self.crash_after = None;
        self.faults.clear();
        self.lost_writes.clear();
        self.garbled = None;
        self.locks.clear();
    }

    fn lose_names(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let policy = self.random.index(4);
        let prefix = self.random.index(pending.len() + 1);
        for (index, change) in pending.into_iter().enumerate() {
            let survives = match policy {
                0 => false,
                1 => true,
                2 => index < prefix,
                _ => self.random.coin(),
            };
            if survives {
                self.durable.apply(change);
            }
        }
        self.durable.drop_orphans();
    }

    pub(super) fn damage(&mut self, path: &Path, range: Range<u64>, change: impl Fn(u8, u8) -> u8) -> bool {
        let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else {
            return false;
        };
        let random = &mut self.random;
        self.volatile
            .files
            .get(path)
            .is_some_and(|node| node.lock().damage(start..end, |byte| change(byte, random.byte())))
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.volatile.files.keys().cloned().collect()
    }

    pub(super) fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let node = self.volatile.files.get(path)?;
        Some(node.lock().content().to_vec())
    }

    /// Whether a user of that life still has power.
    pub(super) fn alive(&self, life: u64) -> io::Result<()> {
        if self.crashed || self.life != life {
            return Err(errno(DEAD));
        }
        Ok(())
    }

    /// Counts an operation and decides its fate.
    fn begin(&mut self, life: u64, kind: Fault, grows: bool) -> io::Result<Fate> {
        self.alive(life)?;
        if kind != Fault::Read {
            self.operations += 1;
            match &mut self.crash_after {
                Some(0) => {
                    self.crashed = true;
                    return Ok(Fate::Dying);
                }
                Some(left) => *left -= 1,
                None => {}
            }
        }
        let failed =
            self.fault(|planned| planned == Fault::Any || planned == kind || (planned == Fault::Growth && grows));
        match failed {
            Some(code) => Err(errno(code)),
            None => Ok(Fate::Done),
        }
    }

    /// Counts down the faults that an operation may have; returns the code of the fault that hits the operation.
    fn fault(&mut self, may_hit: impl Fn(Fault) -> bool) -> Option<i32> {
        let mut failed = None;
        self.faults.retain_mut(|planned| {
            if !may_hit(planned.kind) {
                return true;
            }
            if planned.left > 0 {
                planned.left -= 1;
                return true;
            }
            failed = Some(planned.errno);
            false
        });
        failed
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.volatile.files.values().map(|node| node.lock().room() as u64).sum()
    }

    /// Bytes that can be added; none without a capacity.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity.saturating_sub(self.used_bytes()))
    }

    fn check_room(&self, growth: usize) -> io::Result<()> {
        let is_full = growth > 0 && self.free_bytes().is_some_and(|free| growth as u64 > free);
        if is_full { Err(errno(libc::ENOSPC)) } else { Ok(()) }
    }

    pub(super) fn read(&mut self, life: u64, node: &SharedNode, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.begin(life, Fault::Read, false)?;
        let offset = usize::try_from(offset).map_err(|_| errno(libc::EINVAL))?;
        self.reads += 1;
        let read = node.lock().read(offset, into);
        match &mut self.garbled {
            Some((0, how)) if read > 0 => {
                match *how {
                    Garble::Bit => into[self.random.index(read)] ^= 1 << self.random.index(8),
                    Garble::Elsewhere(distance) => {
                        into[..read].fill(0);
                        let elsewhere = i64::try_from(offset).ok().and_then(|offset| offset.checked_add(distance));
                        if let Some(elsewhere) = elsewhere.and_then(|offset| usize::try_from(offset).ok()) {
                            node.lock().read(elsewhere, &mut into[..read]);
                        }
                    }
                }
                self.garbled = None;
            }
            Some((left, _)) => *left = left.saturating_sub(1),
            None => {}
        }
        Ok(read)
    }

    pub(super) fn write(
        &mut self, life: u64, node: &SharedNode, offset: u64, bytes: &[u8], durable: bool,
    ) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(|_| errno(libc::EFBIG))?;
        let end = offset
            .checked_add(bytes.len())
            .filter(|end| *end < isize::MAX as usize)
            .ok_or_else(|| errno(libc::EFBIG))?;
        let growth = node.lock().growth(&(offset..end));
        match self.begin(life, Fault::Write, growth > 0)? {
            Fate::Dying => {
                // The write is on its way, or was never sent. Restart decides which of its sectors arrive, with all
                // else that is pending.
                if self.random.coin() {
                    node.lock().write(offset, bytes, false);
                }
                Err(errno(DEAD))
            }
            Fate::Done => {
                self.check_room(growth)?;
                let lost = self.write_is_lost(node);
                if !durable {
                    node.lock().write(offset, bytes, lost);
                    return Ok(());
                }
                if let Some(code) = self.fault(|planned| planned == Fault::Flush) {
                    node.lock().write_in_part(offset, bytes, lost, &mut self.random);
                    return Err(errno(code));
                }
                node.lock().write_durably(offset, bytes, lost);
                Ok(())
            }
        }
    }

    fn write_is_lost(&mut self, node: &SharedNode) -> bool {
        let mut lost = false;
        let files = &self.volatile.files;
        self.lost_writes.retain_mut(|(path, left)| {
            if !files.get(path).is_some_and(|file| Arc::ptr_eq(file, node)) {
                return true;
            }
            if *left == 0 {
                lost = true;
                return false;
            }
            *left -= 1;
            true
        });
        lost
    }

    pub(super) fn set_len(&mut self, life: u64, node: &SharedNode, len: u64) -> io::Result<()> {
        let len = in_memory(&(0..len))?.end;
        let growth = len.saturating_sub(node.lock().len());
        match self.begin(life, Fault::Write, growth > 0)? {
            Fate::Dying => {
                if self.random.coin() {
                    node.lock().set_len(len);
                }
                Err(errno(DEAD))
            }
            Fate::Done => {
                self.check_room(growth)?;
                node.lock().set_len(len);
                Ok(())
            }
        }
    }

    /// Reserves room for a range of a file, which becomes at least as long as the range's end.
    pub(super) fn reserve(&mut self, life: u64, node: &SharedNode, range: &Range<u64>) -> io::Result<()> {
        let range = in_memory(range)?;
        let growth = node.lock().growth(&range);
        let fate = self.begin(life, Fault::Write, growth > 0)?;
        let is_done = matches!(fate, Fate::Done);
        if is_done {
            self.check_room(growth)?;
        }
        if is_done || self.random.coin() {
            let mut node = node.lock();
            let len = node.len().max(range.end);
            node.set_len(len);
            node.fill(&range);
        }
        if is_done { Ok(()) } else { Err(errno(DEAD)) }
    }

    /// Gives the room of a range back, as far as the file goes.
    pub(super) fn punch(&mut self, life: u64, node: &SharedNode, range: &Range<u64>) -> io::Result<()> {
        let range = in_memory(range)?;
        let is_done = matches!(self.begin(life, Fault::Write, false)?, Fate::Done);
        if is_done || self.random.coin() {
            let mut node = node.lock();
            let end = range.end.min(node.len());
            if range.start < end {
                node.punch(&(range.start..end));
            }
        }
        if is_done { Ok(()) } else { Err(errno(DEAD)) }
    }

    pub(super) fn flush(&mut self, life: u64, node: &SharedNode) -> io::Result<()> {
        match self.begin(life, Fault::Flush, false) {
            Ok(Fate::Done) => {
                node.lock().flush();
                Ok(())
            }
            // Restart decides which sectors arrive, because all of them are still pending.
            Ok(Fate::Dying) => Err(errno(DEAD)),
            Err(error) => {
                if self.alive(life).is_ok() {
                    node.lock().lose_some(&mut self.random);
                }
                Err(error)
            }
        }
    }

    /// Opens or creates a file, as the options allow.
    pub(super) fn open(&mut self, life: u64, path: &Path, create: bool, create_new: bool) -> io::Result<SharedNode> {
        self.alive(life)?;
        if self.volatile.has_directory(path) {
            return Err(errno(libc::EISDIR));
        }
        if let Some(node) = self.volatile.files.get(path) {
            if create_new {
                return Err(errno(libc::EEXIST));
            }
            return Ok(Arc::clone(node));
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        if !(create || create_new) || !self.volatile.has_directory(parent) {
            return Err(errno(libc::ENOENT));
        }
        let node = SharedNode::default();
        self.change_name(life, NameChange::File(path.to_owned(), Arc::clone(&node)))?;
        Ok(node)
    }

    /// Changes a name in the volatile tree; a later sync makes the change durable.
    fn change_name(&mut self, life: u64, change: NameChange) -> io::Result<()> {
        let fate = self.begin(life, Fault::Name, false)?;
        if matches!(fate, Fate::Done) || self.random.coin() {
            self.volatile.apply(change.clone());
            self.pending.push(change);
        }
        match fate {
            Fate::Done => Ok(()),
            Fate::Dying => Err(errno(DEAD)),
        }
    }

    pub(super) fn create_directory(&mut self, life: u64, path: &Path) -> io::Result<()> {
        self.alive(life)?;
        let mut missing: Vec<PathBuf> =
            path.ancestors().take_while(|above| !self.volatile.has_directory(above)).map(Path::to_owned).collect();
        while let Some(directory) = missing.pop() {
            if self.volatile.files.contains_key(&directory) {
                return Err(errno(libc::EEXIST));
            }
            self.change_name(life, NameChange::Directory(directory))?;
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, life: u64, path: &Path) -> io::Result<()> {
        self.alive(life)?;
        if self.volatile.has_directory(path) {
            return Err(errno(libc::EISDIR));
        }
        if !self.volatile.files.contains_key(path) {
            return Err(errno(libc::ENOENT));
        }
        self.change_name(life, NameChange::Removal(path.to_owned()))
    }

    pub(super) fn rename(&mut self, life: u64, from: &Path, to: &Path) -> io::Result<()> {
        self.alive(life)?;
        if !self.volatile.files.contains_key(from) {
            return Err(errno(libc::ENOENT));
        }
        if from.parent() != to.parent() {
            return Err(errno(libc::EXDEV));
        }
        self.change_name(life, NameChange::Renaming(from.to_owned(), to.to_owned()))
    }

    pub(super) fn list(&self, life: u64, path: &Path) -> io::Result<Vec<String>> {
        self.alive(life)?;
        if !self.volatile.has_directory(path) {
            return Err(errno(libc::ENOENT));
        }
        Ok(self
            .volatile
            .files
            .keys()
            .filter(|file| file.parent() == Some(path))
            .filter_map(|file| file.file_name()?.to_str().map(str::to_owned))
            .collect())
    }

    pub(super) fn exists(&self, life: u64, path: &Path) -> io::Result<bool> {
        self.alive(life)?;
        Ok(self.volatile.files.contains_key(path) || self.volatile.has_directory(path))
    }

    pub(super) fn sync_directory(&mut self, life: u64, path: &Path) -> io::Result<()> {
        self.alive(life)?;
        if !self.volatile.has_directory(path) {
            return Err(errno(libc::ENOENT));
        }
        match self.begin(life, Fault::Name, false)? {
            Fate::Dying => Err(errno(DEAD)),
            Fate::Done => {
                let pending = std::mem::take(&mut self.pending);
                for change in pending {
                    if change.parent() == path {
                        self.durable.apply(change);
                    } else {
                        self.pending.push(change);
                    }
                }
                Ok(())
            }
        }
    }

    /// Takes a lock; `Ok(false)` when somebody else holds the lock.
    pub(super) fn lock(&mut self, life: u64, path: &Path, shared: bool) -> io::Result<bool> {
        self.alive(life)?;
        let holders = self.locks.entry(path.to_owned()).or_default();
        if holders.count > 0 && (holders.exclusive || !shared) {
            return Ok(false);
        }
        holders.exclusive = !shared;
        holders.count += 1;
        Ok(true)
    }

    pub(super) fn unlock(&mut self, life: u64, path: &Path) {
        if self.life != life {
            return;
        }
        if let Some(holders) = self.locks.get_mut(path) {
            holders.count -= 1;
            if holders.count == 0 {
                self.locks.remove(path);
            }
        }
    }
}
