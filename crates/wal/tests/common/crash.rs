//! The crash property: a log on a simulated disk that loses power at random, over several lives, during recovery too.
//!
//! After each crash: everything that a flush acknowledged is there, with the documents it refers to; the records are a
//! prefix, in order, of what was appended; none is there in part; nothing of a dropped tail comes back.

#[path = "seeds.rs"]
pub(crate) mod seeds;

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use psync::sim::{Fault, SimDisk};
use psync::{Buffer, File, OpenOptions, Psync, Request};
use wal::{Claim, Companions, Error, FlushScheme, Group, Lsn, Options, Replayed, Verdict, Wal};

use super::{Owned, Random, SEGMENT_BYTES, options, owned};

const DOCUMENT: u8 = 9;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A file that records refer to.
struct Documents {
    psync: Psync,
    file: File,
    end: Mutex<u64>,
    unflushed: Mutex<Vec<File>>,
}

impl Companions for Documents {
    fn take_unflushed(&self) -> Vec<File> {
        std::mem::take(&mut *self.unflushed.lock())
    }
}

impl Documents {
    fn open(psync: Psync) -> psync::Result<Self> {
        let open = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        let file = psync.open(Path::new("/db/documents"), &open)?;
        psync.sync_directory(Path::new("/db"))?;
        let end = Mutex::new(file.len()?);
        Ok(Self { psync, file, end, unflushed: Mutex::default() })
    }

    /// Writes a document; what a record holds to find it.
    fn append(&self, bytes: &[u8]) -> psync::Result<Vec<u8>> {
        let offset = {
            let mut end = self.end.lock();
            *end += bytes.len() as u64;
            *end - bytes.len() as u64
        };
        self.psync.run_all(vec![Request::write(&self.file, offset, Buffer::from_slice(bytes), 0)])?;
        self.unflushed.lock().push(self.file.clone());
        let length = bytes.len() as u64;
        let crc = checksum::crc32c(bytes);
        Ok([&offset.to_le_bytes()[..], &length.to_le_bytes(), &crc.to_le_bytes()].concat())
    }

    /// Whether a document is there. One that is not known durable is written again: after a flush that failed, the
    /// system
    /// may hold it as clean.
    fn is_whole(&self, pointer: &[u8], durable: bool) -> psync::Result<bool> {
        let number = |at: usize| u64::from_le_bytes(pointer[at..at + 8].try_into().expect("8 bytes"));
        let (offset, length) = (number(0), number(8));
        if offset + length > self.file.len()? {
            return Ok(false);
        }
        let buffer = Buffer::zeroed(usize::try_from(length).expect("small"));
        let read = self.psync.run_all(vec![Request::read(&self.file, offset, buffer, 0)])?;
        let bytes = read.into_iter().flatten().next().expect("a read has a buffer");
        let whole = checksum::crc32c(&bytes).to_le_bytes() == pointer[16..20];
        if whole && !durable {
            self.psync.run_all(vec![Request::write(&self.file, offset, bytes, 0)])?;
            self.unflushed.lock().push(self.file.clone());
        }
        Ok(whole)
    }
}

/// What must be in the log.
struct Model {
    segment_bytes: u64,
    sent: Vec<(Owned, Lsn)>,
    /// Everything that ends at or before this must be there.
    promised: Lsn,
    /// The same, while the power stays on.
    written: Lsn,
    start: Lsn,
    floor: Lsn,
    epoch: u64,
    /// Where the superblock says that the log was closed.
    clean_end: Option<Lsn>,
    /// A fault was asked for in this life of the disk.
    faulty: bool,
}

impl Model {
    fn options(&self) -> Options {
        let before = self.sent.iter().filter(|(record, _)| record.lsn < self.start);
        let next_seq = 1 + before.map(|(record, _)| record.seq).max().unwrap_or(0);
        let flush_scheme = FlushScheme::ALL[usize::try_from(self.epoch).expect("small") % FlushScheme::ALL.len()];
        let (start, durable_floor, segment_bytes) = (self.start, self.floor, self.segment_bytes);
        let clean_end = self.clean_end;
        Options { start, durable_floor, clean_end, next_seq, flush_scheme, segment_bytes, ..options(self.epoch) }
    }

    /// The power goes and comes back.
    fn restart(&mut self, disk: &SimDisk) {
        disk.restart();
        self.written = Lsn(0);
        self.faulty = false;
    }

    /// Compares what replay showed with what was sent, and forgets what is lost.
    fn check(&mut self, shown: &[Owned]) -> Result<(), String> {
        let from = self.sent.partition_point(|(record, _)| record.lsn < self.start);
        let expected = &self.sent[from..];
        let must = expected.partition_point(|(_, end)| *end <= self.promised.max(self.written));
        if shown.len() < must {
            return Err(format!("{must} records were promised, {} are there", shown.len()));
        }
        for (index, record) in shown.iter().enumerate() {
            match expected.get(index) {
                Some((sent, _)) if sent == record => {}
                other => {
                    return Err(format!(
                        "record {index} at {} is not what was sent ({:?})",
                        record.lsn,
                        other.map(|(sent, _)| sent.lsn)
                    ));
                }
            }
        }
        self.sent.truncate(from + shown.len());
        Ok(())
    }
}

struct Opened {
    wal: Wal,
    documents: Arc<Documents>,
    replayed: Replayed,
    shown: Vec<Owned>,
}

fn open(disk: &SimDisk, model: &Model) -> Result<Opened, Error> {
    let store = store_of(disk)?;
    let documents = Arc::new(Documents::open(disk.psync())?);
    let mut shown = Vec::new();
    let companions = Arc::clone(&documents) as Arc<dyn Companions>;
    let (wal, replayed) = Wal::open(&store, &model.options(), companions, &mut |group: &Group<'_>| {
        for record in group.records().filter(|record| record.kind == DOCUMENT) {
            let Some(durable) = group.durable else { return Ok(Verdict::Wait) };
            if !documents.is_whole(record.payload, durable)? {
                return Ok::<_, Error>(Verdict::Tail);
            }
        }
        shown.extend(owned(group));
        Ok(Verdict::Accept)
    })?;
    Ok(Opened { wal, documents, replayed, shown })
}

fn store_of(disk: &SimDisk) -> Result<space::FileStore, Error> {
    let store = space::FileStore::open(disk.psync(), Path::new("/db"), false)?;
    disk.psync().sync_directory(Path::new("/"))?;
    Ok(store)
}

/// One random step. Says whether the disk still has power.
fn step(disk: &SimDisk, random: &mut Random, opened: &Opened, model: &mut Model) -> Result<(), Error> {
    let wal = &opened.wal;
    match random.below(100) {
        0..55 => {
            let length = match random.below(20) {
                0 => {
                    let most = usize::try_from(wal.record_bytes_max()).expect("small") >> random.below(5);
                    random.index(most + 1)
                }
                1..4 => random.index(8000),
                _ => random.index(300),
            };
            let (document, sequenced) = (random.chance(20), random.chance(70));
            // In parts, one of which may be as long as a segment.
            let parts = if sequenced && random.chance(4) { 1 + random.index(3) } else { 0 };
            let most = usize::try_from(wal.record_bytes_max()).expect("small");
            let mut payload = random.bytes(parts * most + length.min(most));
            let mut kind = 1 + u8::try_from(random.below(5)).expect("small");
            if document {
                payload = opened.documents.append(&payload)?;
                kind = DOCUMENT;
            }
            let cut = random.index(payload.len() + 1);
            let parts = [&payload[..cut], &payload[cut..]];
            let claim = if random.chance(10) { Claim::Upkeep } else { Claim::Put };
            let position = wal.append(kind, &parts, sequenced, claim)?;
            let record = Owned { lsn: position.lsn, kind, seq: position.seq, payload };
            model.sent.push((record, position.end));
        }
        55..65 => wal.write_through(some_end(random, wal, model))?,
        65..90 => {
            let end = some_end(random, wal, model);
            wal.flush_through(end)?;
            model.promised = model.promised.max(end).max(wal.durable());
        }
        90..94 => {
            // Else it is rare that what is made ahead of time fails while others go on.
            if random.chance(25) {
                disk.fail_operation([Fault::Flush, Fault::Growth][random.index(2)], 0, EIO);
                model.faulty = true;
            }
            match wal.prepare() {
                // The log goes on with what it has.
                Err(Error::Io(_)) if model.faulty => {}
                prepared => prepared?,
            }
        }
        _ => {
            // A checkpoint: its position is durable before the log is trimmed.
            let durable = wal.durable();
            let candidates: Vec<Lsn> =
                model.sent.iter().filter(|(_, end)| *end <= durable).map(|(_, end)| *end).collect();
            if !candidates.is_empty() {
                model.start = model.start.max(candidates[random.index(candidates.len())]);
                model.floor = durable;
                wal.trim(model.start)?;
            }
        }
    }
    Ok(())
}

fn some_end(random: &mut Random, wal: &Wal, model: &Model) -> Lsn {
    if model.sent.is_empty() || random.chance(70) {
        return wal.end();
    }
    model.sent[random.index(model.sent.len())].1
}

/// Closes the log, with a mark in the log or in the superblock.
fn close(random: &mut Random, opened: &Opened, model: &mut Model) -> Result<(), Error> {
    let end = opened.wal.end();
    opened.wal.flush_through(end)?;
    model.promised = model.promised.max(end);
    if random.chance(50) {
        return opened.wal.close();
    }
    (model.start, model.floor, model.clean_end) = (end, end, Some(end));
    Ok(())
}

/// Several lives of one log. An error says what was broken.
pub(crate) fn run(seed: u64) -> Result<(), String> {
    let disk = SimDisk::new(seed);
    let mut random = Random::new(seed);
    let mut model = Model {
        // The first file of a log is short where segments are longer, and grows.
        segment_bytes: SEGMENT_BYTES << [0, 2, 4][random.index(3)],
        sent: Vec::new(),
        promised: Lsn(0),
        written: Lsn(0),
        start: Lsn(0),
        floor: Lsn(0),
        // The lives of a log have all flush schemes in turn, a different one first.
        epoch: seed % 4,
        clean_end: None,
        faulty: false,
    };
    for _ in 0..8 {
        model.epoch += 1;
        if random.chance(80) {
            disk.crash_after(random.below(120));
        }
        if random.chance(25) {
            let kind = [Fault::Flush, Fault::Write, Fault::Growth, Fault::Name, Fault::Any];
            let errno = if random.chance(50) { ENOSPC } else { EIO };
            disk.fail_operation(kind[random.index(kind.len())], random.below(40), errno);
            model.faulty = true;
        }
        live(&disk, &mut random, &mut model)?;
    }
    model.restart(&disk);
    model.epoch += 1;
    let last = open(&disk, &model).map_err(|error| format!("the last opening failed: {error}"))?;
    model.check(&last.shown)
}

/// One life: opens, works, and dies by power or by kill.
fn live(disk: &SimDisk, random: &mut Random, model: &mut Model) -> Result<(), String> {
    let opening = open(disk, model);
    // The opening has taken the mark from the superblock first.
    model.clean_end = None;
    let opened = match opening {
        Ok(opened) => opened,
        Err(_) if disk.is_crashed() => {
            model.restart(disk);
            return Ok(());
        }
        Err(_) if model.faulty => return Ok(()),
        Err(error) => return Err(format!("a crash left a log that does not open: {error}")),
    };
    model.check(&opened.shown)?;
    model.promised = opened.replayed.end;
    let last = model.sent.iter().map(|(record, _)| record.seq).max().unwrap_or(0);
    if opened.wal.last_seq() != last {
        return Err(format!("seq goes on after {} instead of {last}", opened.wal.last_seq()));
    }
    for _ in 0..random.below(150) {
        match step(disk, random, &opened, model) {
            Ok(()) => {}
            Err(_) if disk.is_crashed() => break,
            Err(Error::Full { .. }) if model.faulty => {}
            Err(_) if model.faulty => break,
            Err(error) => return Err(format!("a step failed: {error}")),
        }
    }
    if !disk.is_crashed() && random.chance(40) {
        match close(random, &opened, model) {
            Ok(()) => {}
            Err(_) if disk.is_crashed() || model.faulty => {}
            Err(error) => return Err(format!("a close failed: {error}")),
        }
    }
    if disk.is_crashed() || random.chance(60) {
        model.restart(disk);
    } else {
        // Only the process is gone: what was written is still there.
        model.written = opened.wal.written();
    }
    Ok(())
}
