//! Slots of the log, driven by hand: the steps of several threads in some order, one after the other, on a disk that
//! loses power.

#[path = "../tests/common/seeds.rs"]
mod seeds;

use std::path::Path;
use std::sync::Arc;

use psync::sim::SimDisk;
use space::{FileDamage, FileStore};

use crate::array::Seat;
use crate::format::{GROUP_HEADER, record_space};
use crate::record::NewRecord;
use crate::wal::Log;
use crate::{Alone, Announce, Claim, Error, FlushScheme, Lsn, Options, Position, Result, Verdict, Wal};

const DATABASE: [u8; 16] = *b"sixteen bytes id";
const SEGMENT_BYTES: u64 = 64 << 10;

/// Position, seq and content of a record.
type Shown = (Lsn, u64, Vec<u8>);

fn options(epoch: u64) -> Options {
    let flush_scheme = FlushScheme::ALL[usize::try_from(epoch).expect("small") % FlushScheme::ALL.len()];
    Options { segment_bytes: SEGMENT_BYTES, flush_scheme, ..Options::new(DATABASE, epoch) }
}

fn open(disk: &SimDisk, options: &Options) -> Result<(Wal, Vec<Shown>)> {
    let store = FileStore::open(disk.psync(), Path::new("/db"), false)?;
    disk.psync().sync_directory(Path::new("/"))?;
    let mut shown = Vec::new();
    let (wal, _) = Wal::open(&store, options, Arc::new(Alone), &mut |group| {
        shown.extend(group.records().map(|record| (record.lsn, record.seq, record.payload.to_vec())));
        Ok::<_, Error>(Verdict::Accept)
    })?;
    Ok((wal, shown))
}

fn log(wal: &Wal) -> &Log {
    wal.log.as_ref().expect("it can be written")
}

/// A thread between joining a slot and copying its record.
struct Member {
    seat: Seat,
    payload: Vec<u8>,
}

impl Member {
    fn join(wal: &Wal, payload: Vec<u8>, claim: Claim) -> Option<Self> {
        let seat = log(wal).array.join(record_space(payload.len()), claim)?;
        Some(Self { seat, payload })
    }

    fn copy(&self, wal: &Wal) -> Result<Position> {
        self.copy_announced(wal, &mut |_| {})
    }

    fn copy_announced(&self, wal: &Wal, announce: Announce<'_>) -> Result<Position> {
        let payload_len = u32::try_from(self.payload.len()).expect("small");
        let record = NewRecord { kind: 1, payload: &[&self.payload], payload_len, sequenced: true };
        log(wal).copy_in_slot(self.seat, &record, announce)
    }
}

#[test]
fn a_record_is_announced_before_it_can_be_written() {
    let is_early = |bug| {
        seeded::set(bug);
        let (wal, _) = open(&SimDisk::new(1), &options(1)).expect("it opens");
        let members = [1, 2].map(|fill| Member::join(&wal, vec![fill; 100], Claim::Put).expect("it joins"));
        log(&wal).lead(members[0].seat, Claim::Put);
        members[0].copy(&wal).expect("it copies");
        let mut is_early = false;
        let mut write = |position: &Position| is_early = log(&wal).write().expect("it writes") < position.end;
        members[1].copy_announced(&wal, &mut write).expect("it copies");
        seeded::set(None);
        is_early
    };
    assert!(is_early(None));
    assert!(!is_early(Some(seeded::Bug::AnnouncedLate)), "a late announcement stays hidden");
    let (wal, _) = open(&SimDisk::new(1), &options(1)).expect("it opens");
    let mut is_locked = false;
    let mut look = |_: &Position| is_locked = log(&wal).space.try_lock().is_none();
    wal.append_announced(1, &[b"alone"], true, Claim::Put, &mut look).expect("it is appended");
    assert!(is_locked, "nobody can write it meanwhile");
}

#[test]
fn an_announcement_that_panics_ends_the_log() {
    let (wal, _) = open(&SimDisk::new(1), &options(1)).expect("it opens");
    let members = [1, 2].map(|fill| Member::join(&wal, vec![fill; 100], Claim::Put).expect("it joins"));
    log(&wal).lead(members[0].seat, Claim::Put);
    let announced = members[0].copy_announced(&wal, &mut |_| panic!("on purpose"));
    assert!(matches!(announced, Err(Error::Failed(_))), "{announced:?}");
    let position = members[1].copy(&wal).expect("it has its place, and leaves it");
    assert!(matches!(wal.commit(&position, &|| {}), Err(Error::Failed(_))));
}

/// A slot of three, committed.
fn group(wal: &Wal, fill: u8) -> Vec<Shown> {
    let members: Vec<_> =
        (0..3).map(|index| Member::join(wal, vec![fill + index; 100], Claim::Put).expect("it joins")).collect();
    log(wal).lead(members[0].seat, Claim::Put);
    let positions = members.iter().map(|member| (member.copy(wal).expect("it copies"), member.payload.clone()));
    let positions: Vec<_> = positions.collect();
    for (position, _) in &positions {
        wal.commit(position, &|| {}).expect("it is flushed");
    }
    positions.into_iter().map(|(position, payload)| (position.lsn, position.seq, payload)).collect()
}

#[test]
fn a_group_being_copied_holds_the_writer_back_and_nothing_else() {
    let disk = SimDisk::new(1);
    let (wal, _) = open(&disk, &options(1)).expect("it opens");
    let first = wal.append(1, &[b"first"], true, Claim::Put).expect("it is appended");
    let members: Vec<_> = (0..2).map(|_| Member::join(&wal, vec![1; 9], Claim::Put).expect("it joins")).collect();
    log(&wal).lead(members[0].seat, Claim::Put);
    let behind = wal.append(1, &[b"behind"], true, Claim::Put).expect("it is appended");
    assert_eq!(behind.seq, first.seq + 3, "members have their seqs");
    // Another slot is open meanwhile, and the groups in front of this one can be made durable.
    assert!(Member::join(&wal, vec![2; 9], Claim::Put).expect("it joins").seat.place.leads());
    wal.flush_through(first.end).expect("it is flushed");
    assert_eq!(wal.durable(), first.end);
    members[1].copy(&wal).expect("it copies");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| wal.flush_through(behind.end));
        members[0].copy(&wal).expect("it copies");
        waits.join().expect("no panic").expect("it is flushed");
    });
    assert!(wal.durable() >= behind.end);
    let stats = wal.stats();
    assert_eq!((stats.direct_records, stats.consolidated_records, stats.slots), (2, 2, 1));
}

#[test]
fn damage_in_a_group_of_a_slot_is_reported_with_its_place() {
    let disk = SimDisk::new(1);
    let (wal, _) = open(&disk, &options(1)).expect("it opens");
    let groups: Vec<_> = (0..3).map(|index| group(&wal, 10 * index)).collect();
    drop(wal);
    let (lsn, ..) = groups[1][0];
    assert!(disk.flip_bit("/db/wal/0.log", groups[1][2].0.0 + 50));
    match open(&disk, &options(2)).map(|_| ()) {
        Err(Error::Corrupt(FileDamage { offset, what, .. })) => {
            assert_eq!((offset, what), (lsn.0 - GROUP_HEADER as u64, "group checksum"));
        }
        other => panic!("damage is not reported: {other:?}"),
    }
}

#[test]
fn a_leader_without_a_segment_tells_everyone_and_deletes_have_their_own() {
    let disk = SimDisk::new(1);
    let (wal, _) = open(&disk, &options(1)).expect("it opens");
    disk.set_capacity(Some(3 * SEGMENT_BYTES));
    while wal.append(1, &[&[7; 1000]], true, Claim::Put).is_ok() {}
    let seq = wal.last_seq();
    let slot = |claim| {
        let members: Vec<_> = (0..3).map(|_| Member::join(&wal, vec![1; 9000], claim).expect("it joins")).collect();
        assert!(
            Member::join(&wal, vec![1; 9], if claim == Claim::Put { Claim::Delete } else { Claim::Put }).is_none(),
            "puts and deletes do not share a slot"
        );
        log(&wal).lead(members[0].seat, claim);
        members.iter().map(|member| member.copy(&wal)).collect::<Vec<_>>()
    };
    // More rounds than there are slots, so each slot is used again.
    for _ in 0..40 {
        assert!(slot(Claim::Put).iter().all(|result| matches!(result, Err(Error::Full { .. }))));
    }
    assert_eq!(wal.last_seq(), seq, "what was refused took no seq");
    assert!(wal.failed().is_none());
    assert!(slot(Claim::Delete).iter().all(Result::is_ok), "deletes have a segment in reserve");
    assert!(slot(Claim::Put).iter().all(|result| matches!(result, Err(Error::Full { .. }))));
    assert_eq!(wal.last_seq(), seq + 3);
    wal.flush_through(wal.end()).expect("the log is well");
}

#[test]
fn a_failed_log_tells_every_member() {
    let disk = SimDisk::new(1);
    let (wal, _) = open(&disk, &options(1)).expect("it opens");
    let members: Vec<_> = (0..3).map(|_| Member::join(&wal, vec![1; 9], Claim::Put).expect("it joins")).collect();
    disk.fail_operation(psync::sim::Fault::Write, 0, 5);
    wal.append(1, &[b"lost"], true, Claim::Put).expect("it is appended");
    assert!(wal.flush_through(wal.end()).is_err());
    log(&wal).lead(members[0].seat, Claim::Put);
    assert!(members.iter().all(|member| matches!(member.copy(&wal), Err(Error::Failed(_)))));
}

#[test]
fn with_all_slots_in_use_a_thread_goes_alone() {
    let disk = SimDisk::new(1);
    let (wal, _) = open(&disk, &options(1)).expect("it opens");
    let mut slots = Vec::new();
    while let Some(member) = Member::join(&wal, vec![1; 9], Claim::Put) {
        log(&wal).lead(member.seat, Claim::Put);
        slots.push(member);
    }
    assert_eq!(slots.len(), 16);
    wal.append(1, &[b"alone"], true, Claim::Put).expect("it is appended");
    slots.pop().expect("some").copy(&wal).expect("it copies");
    assert!(Member::join(&wal, vec![1; 9], Claim::Put).is_none(), "who comes next with the lock opens it");
    wal.append(1, &[b"alone"], true, Claim::Put).expect("it is appended");
    assert!(Member::join(&wal, vec![1; 9], Claim::Put).is_some());
}

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).expect("below a usize")
    }
}

/// The slots of several threads over several lives of a log.
#[derive(Default)]
struct Run {
    /// Members of the open slot.
    joining: Vec<Member>,
    /// Members that have space and have not copied, and the positions of their groups.
    copying: Vec<(Member, Lsn)>,
    /// Records that have space, by position, with their ends.
    sent: Vec<(Shown, Lsn)>,
    promised: Lsn,
    start: Lsn,
    next_seq: u64,
}

impl Run {
    fn step(&mut self, wal: &Wal, random: &mut Random) -> Result<()> {
        match random.below(100) {
            0..40 => {
                let length = if random.below(8) == 0 { random.below(14_000) } else { random.below(300) };
                let payload = (0..length).map(|_| u8::try_from(random.below(256)).expect("a byte")).collect::<Vec<_>>();
                match Member::join(wal, payload.clone(), Claim::Put) {
                    Some(member) => self.joining.push(member),
                    None => {
                        let position = wal.append(1, &[&payload], true, Claim::Put)?;
                        self.sent.push(((position.lsn, position.seq, payload), position.end));
                    }
                }
            }
            40..55 => self.lead(wal)?,
            55..80 if !self.copying.is_empty() => {
                let (member, _) = self.copying.swap_remove(random.below(self.copying.len()));
                let position = member.copy(wal)?;
                assert!(self.sent.iter().any(|((lsn, seq, payload), end)| {
                    (*lsn, *seq, payload, *end) == (position.lsn, position.seq, &member.payload, position.end)
                }));
            }
            80..84 => wal.write_through(self.reachable(wal, random))?,
            84..95 => {
                let end = self.reachable(wal, random);
                wal.flush_through(end)?;
                self.promised = self.promised.max(end).max(wal.durable());
            }
            95..97 => wal.prepare()?,
            97.. => self.checkpoint(wal, random)?,
            _ => {}
        }
        Ok(())
    }

    /// The leader of the open slot takes space at the end of the log.
    fn lead(&mut self, wal: &Wal) -> Result<()> {
        let Some(leader) = self.joining.first() else { return Ok(()) };
        log(wal).lead(leader.seat, Claim::Put);
        let members = std::mem::take(&mut self.joining);
        let reserved = log(wal).array.outcome(members[0].seat)?;
        for member in members {
            let position = reserved.position(member.seat.place, record_space(member.payload.len()));
            self.sent.push(((position.lsn, position.seq, member.payload.clone()), position.end));
            self.copying.push((member, reserved.lsn));
        }
        Ok(())
    }

    /// The end of a record that the writer can reach without waiting for a copy.
    fn reachable(&self, wal: &Wal, random: &mut Random) -> Lsn {
        let hole = self.copying.iter().map(|(_, lsn)| *lsn).min().unwrap_or(Lsn(u64::MAX));
        let ends: Vec<Lsn> = self.sent.iter().map(|(_, end)| *end).filter(|end| *end <= hole).collect();
        if ends.is_empty() { wal.written() } else { ends[random.below(ends.len())] }
    }

    /// Trims the log before some durable record.
    fn checkpoint(&mut self, wal: &Wal, random: &mut Random) -> Result<()> {
        let durable = wal.durable();
        let ends: Vec<Lsn> = self.sent.iter().map(|(_, end)| *end).filter(|end| *end <= durable).collect();
        if !ends.is_empty() {
            self.start = self.start.max(ends[random.below(ends.len())]);
            wal.trim(self.start)?;
        }
        Ok(())
    }

    /// Compares the replayed records with those sent, and forgets the lost ones.
    fn check(&mut self, shown: &[Shown]) {
        let before = self.sent.iter().filter(|((lsn, ..), _)| *lsn < self.start);
        self.next_seq = before.map(|((_, seq, _), _)| seq + 1).max().unwrap_or(0).max(self.next_seq);
        self.sent.retain(|((lsn, ..), _)| *lsn >= self.start);
        self.sent.sort_by_key(|((lsn, ..), _)| *lsn);
        let must = self.sent.iter().filter(|(_, end)| *end <= self.promised).count();
        assert!(shown.len() >= must, "{must} records were promised, {} are there", shown.len());
        self.sent.truncate(shown.len());
        assert!(self.sent.iter().map(|(record, _)| record).eq(shown), "what is there is a prefix of what was sent");
        assert!(shown.windows(2).all(|pair| pair[0].1 + 1 == pair[1].1), "seqs follow positions");
        (self.joining, self.copying) = (Vec::new(), Vec::new());
    }

    /// Runs eight lives of a log. Returns how many records of slots were appended.
    fn lives(seed: u64) -> u64 {
        let mut consolidated = 0;
        let disk = SimDisk::new(seed);
        let mut random = Random(seed);
        let mut run = Self::default();
        for epoch in 1..=8 {
            // The last life does not lose power.
            if epoch < 8 {
                disk.crash_after(random.below(80) as u64);
            }
            let options = Options { start: run.start, next_seq: run.next_seq.max(1), ..options(epoch + seed % 4) };
            let (wal, shown) = match open(&disk, &options) {
                Ok(opened) => opened,
                Err(error) => {
                    assert!(disk.is_crashed(), "a crash left a log that does not open: {error}");
                    disk.restart();
                    continue;
                }
            };
            run.check(&shown);
            run.promised = run.sent.last().map_or(run.promised, |(_, end)| *end);
            for _ in 0..random.below(200) {
                if let Err(error) = run.step(&wal, &mut random) {
                    assert!(disk.is_crashed(), "a step failed: {error}");
                    break;
                }
            }
            consolidated += wal.stats().consolidated_records;
            disk.restart();
        }
        consolidated
    }
}

#[test]
fn slots_survive_every_crash_whole_or_not_at_all() {
    let lives = |seed| {
        std::panic::catch_unwind(|| Run::lives(seed)).unwrap_or_else(|panic| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        })
    };
    let seeds = seeds::seeds(300);
    let few = seeds.end - seeds.start < 300;
    let consolidated: u64 = seeds.map(lives).sum();
    assert!(few || consolidated > 10_000, "{consolidated} records of slots are too few to tell");
}
