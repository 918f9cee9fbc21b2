//! Runs: sorted entries, appended to a leaf in one piece.
//!
//! ```text
//! run                                              entry
//!   0  length  u16  header and all; 0: go to the     0  key length  u16
//!                   next page                        2  kind << 14 | value length  u16
//!   2  crc     u32                                   4  seq - base  in `width` bytes
//!   6  type    u8   1                                .  key
//!   7  width   u8   bytes of a seq, 0 to 8           .  value: its bytes, or a document pointer
//!   8  count   u16  entries, at least 1
//!  10  base    u64  least seq
//!  18  slots   u16 × count: where each entry begins in the run
//!   .  entries, by key, then by seq
//! ```
//!
//! The CRC covers {incarnation u64, table u32, position of the run in the leaf u32, CRC of the run before it u32 (0 for the
//! first), length u16} and then the run from its type on. So the CRC of the last run vouches for the whole leaf: the runs,
//! their order and their places.
//!
//! A run never crosses a page. What is left of a page after its last run is zero, and so is the length that a reader
//! finds there; where not even a header fits, it moves on without looking.

use doclog::DocPointer;
use index::{Operation, Payload, Seq, TableId, Update};
use space::PAGE;

use super::{Damage, INLINE_BYTES_MAX, KEY_BYTES_MAX, u16_at, u32_at, u64_at};

/// Bytes of a run before its slots.
pub(crate) const RUN_HEADER: usize = 18;

/// Bytes of an entry beside seq, key and value; its slot is one of them.
pub(crate) const ENTRY_FIXED: usize = 6;

/// The smallest entry.
pub(crate) const ENTRY_BYTES_MIN: usize = ENTRY_FIXED;

/// Bytes of an encoded document pointer.
const DOCUMENT_BYTES: usize = 28;

const RUN_TYPE: u8 = 1;
const CRC_FROM: usize = 6;

const KIND_INLINE: u16 = 1;
const KIND_TOMBSTONE: u16 = 2;
const KIND_DOCUMENT: u16 = 3;
const VALUE_LENGTH: u16 = (1 << 14) - 1;

const _: () = assert!(INLINE_BYTES_MAX <= VALUE_LENGTH as usize);

/// What a run's CRC is seeded with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) incarnation: u64,
    pub(crate) table: TableId,
}

impl Identity {
    fn crc(&self, position: u32, previous: u32, run: &[u8]) -> u32 {
        let mut seed = [0; 22];
        seed[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        seed[8..12].copy_from_slice(&self.table.0.to_le_bytes());
        seed[12..16].copy_from_slice(&position.to_le_bytes());
        seed[16..20].copy_from_slice(&previous.to_le_bytes());
        seed[20..].copy_from_slice(&run[..2]);
        checksum::crc32c_append(checksum::crc32c(&seed), &run[CRC_FROM..])
    }
}

/// How many bytes hold `span`.
pub(crate) const fn seq_width(span: u64) -> usize {
    (64 - span.leading_zeros() as usize).div_ceil(8)
}

/// Bytes of an update's value in a leaf.
pub(crate) fn value_bytes(update: &Update<'_>) -> usize {
    match update.operation {
        Operation::Put(Payload::Inline(value)) => value.len(),
        Operation::Put(Payload::Document(_)) => DOCUMENT_BYTES,
        Operation::Delete => 0,
    }
}

/// Bytes of an update in a run, its slot included, without its seq.
pub(crate) fn entry_bytes(update: &Update<'_>) -> usize {
    ENTRY_FIXED + update.key.len() + value_bytes(update)
}

/// How long a run of some updates is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunSize {
    /// Header and entries without seqs.
    fixed: usize,
    count: usize,
    base: u64,
    last: u64,
}

impl RunSize {
    /// No update.
    pub(crate) const fn new() -> Self {
        Self { fixed: RUN_HEADER, count: 0, base: u64::MAX, last: 0 }
    }

    /// One more.
    #[inline]
    pub(crate) fn with(&self, update: &Update<'_>) -> Self {
        Self {
            fixed: self.fixed + entry_bytes(update),
            count: self.count + 1,
            base: self.base.min(update.seq.0),
            last: self.last.max(update.seq.0),
        }
    }

    const fn width(&self) -> usize {
        seq_width(self.last.saturating_sub(self.base))
    }

    /// Updates.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the run.
    #[inline]
    pub(crate) const fn bytes(&self) -> usize {
        self.fixed + self.width() * self.count
    }
}

/// A run to be written: which updates fit in `room` bytes from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Updates.
    pub(crate) count: usize,
    /// Bytes of the run.
    pub(crate) bytes: usize,
    base: u64,
    width: usize,
}

impl Plan {
    /// Takes as many of the first updates as fit in `room` bytes, at most a page. None where not one fits.
    pub(crate) fn fit<'a>(updates: impl Iterator<Item = Update<'a>>, room: usize) -> Option<Self> {
        let mut size = RunSize::new();
        for update in updates {
            let next = size.with(&update);
            if next.bytes() > room {
                break;
            }
            size = next;
        }
        let plan = Self { count: size.count, bytes: size.bytes(), base: size.base, width: size.width() };
        (plan.count > 0).then_some(plan)
    }

    /// Writes the run over `out`, which is exactly as long as planned; gives its CRC.
    pub(crate) fn encode<'a>(
        &self, updates: impl Iterator<Item = Update<'a>>, identity: &Identity, position: u32, previous: u32,
        out: &mut [u8],
    ) -> u32 {
        self.encode_header(out);
        let mut at = RUN_HEADER + 2 * self.count;
        for (index, update) in updates.take(self.count).enumerate() {
            let slot = RUN_HEADER + 2 * index;
            out[slot..slot + 2].copy_from_slice(&short(at).to_le_bytes());
            at = self.encode_entry(&update, at, out);
        }
        assert_eq!(at, self.bytes, "the entries are those that were planned");
        let crc = identity.crc(position, previous, out);
        out[2..6].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    fn encode_header(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.bytes, "a run is written where it was planned");
        out[..2].copy_from_slice(&short(self.bytes).to_le_bytes());
        out[6] = RUN_TYPE;
        out[7] = short(self.width).to_le_bytes()[0];
        out[8..10].copy_from_slice(&short(self.count).to_le_bytes());
        out[10..18].copy_from_slice(&self.base.to_le_bytes());
    }

    #[inline]
    fn encode_entry(&self, update: &Update<'_>, at: usize, out: &mut [u8]) -> usize {
        let kind = match update.operation {
            Operation::Put(Payload::Inline(_)) => KIND_INLINE,
            Operation::Put(Payload::Document(_)) => KIND_DOCUMENT,
            Operation::Delete => KIND_TOMBSTONE,
        };
        out[at..at + 2].copy_from_slice(&short(update.key.len()).to_le_bytes());
        let word = kind << 14 | short(value_bytes(update));
        out[at + 2..at + 4].copy_from_slice(&word.to_le_bytes());
        let delta = (update.seq.0 - self.base).to_le_bytes();
        let key_at = at + 4 + self.width;
        out[at + 4..key_at].copy_from_slice(&delta[..self.width]);
        let value_at = key_at + update.key.len();
        out[key_at..value_at].copy_from_slice(update.key);
        match update.operation {
            Operation::Put(Payload::Inline(value)) => {
                out[value_at..value_at + value.len()].copy_from_slice(value);
                value_at + value.len()
            }
            Operation::Put(Payload::Document(document)) => {
                out[value_at..value_at + DOCUMENT_BYTES].copy_from_slice(&document_bytes(&document));
                value_at + DOCUMENT_BYTES
            }
            Operation::Delete => value_at,
        }
    }
}

/// A run of updates that come one by one and all have one seq.
pub(crate) struct OneSeqRun {
    plan: Plan,
    /// The entries, encoded, one behind the other.
    entries: Box<[u8; PAGE]>,
    used: usize,
    /// Where each begins among them.
    starts: Vec<u16>,
}

impl OneSeqRun {
    pub(crate) fn new(seq: Seq) -> Self {
        let plan = Plan { count: 0, bytes: 0, base: seq.0, width: 0 };
        Self { plan, entries: Box::new([0; PAGE]), used: 0, starts: Vec::with_capacity(PAGE / ENTRY_BYTES_MIN) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Updates.
    pub(crate) fn count(&self) -> usize {
        self.starts.len()
    }

    /// Bytes of the run with one more update.
    #[inline]
    pub(crate) fn bytes_with(&self, update: &Update<'_>) -> usize {
        RUN_HEADER + 2 * self.starts.len() + self.used + entry_bytes(update)
    }

    /// Adds an update with which the run is at most a page.
    #[inline]
    pub(crate) fn push(&mut self, update: &Update<'_>) {
        self.starts.push(short(self.used));
        self.used = self.plan.encode_entry(update, self.used, &mut self.entries[..]);
    }

    /// Writes the run to the beginning of `out`, which is a page, and zeros behind it; gives its bytes and its CRC. It is empty then.
    pub(crate) fn finish(&mut self, identity: &Identity, position: u32, previous: u32, out: &mut [u8]) -> (usize, u32) {
        let first = RUN_HEADER + 2 * self.starts.len();
        let bytes = first + self.used;
        let (run, rest) = out.split_at_mut(bytes);
        Plan { count: self.starts.len(), bytes, ..self.plan }.encode_header(run);
        for (slot, start) in run[RUN_HEADER..first].chunks_exact_mut(2).zip(&self.starts) {
            slot.copy_from_slice(&(short(first) + start).to_le_bytes());
        }
        run[first..].copy_from_slice(&self.entries[..self.used]);
        rest.fill(0);
        let crc = identity.crc(position, previous, run);
        run[2..6].copy_from_slice(&crc.to_le_bytes());
        self.used = 0;
        self.starts.clear();
        (bytes, crc)
    }
}

/// A length within a page.
fn short(length: usize) -> u16 {
    u16::try_from(length).expect("nothing in a run is longer than a page")
}

fn document_bytes(document: &DocPointer) -> [u8; DOCUMENT_BYTES] {
    document.encode()
}

/// What a run's header says; its CRC was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunHeader {
    pub(crate) length: u16,
    pub(crate) crc: u32,
    pub(crate) width: u8,
    pub(crate) count: u16,
    pub(crate) base: u64,
}

impl RunHeader {
    /// Decodes the header at the start of `bytes`, which is what may belong to the run: none where there is no run.
    /// Its shape is checked, its CRC is not.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, Damage> {
        let missing = || Damage::new(0, "run header", "a whole header", "the end of the page");
        let length = u16_at(bytes, 0).ok_or_else(missing)?;
        if length == 0 {
            return Ok(None);
        }
        let header = Self {
            length,
            crc: u32_at(bytes, 2).ok_or_else(missing)?,
            width: *bytes.get(7).ok_or_else(missing)?,
            count: u16_at(bytes, 8).ok_or_else(missing)?,
            base: u64_at(bytes, 10).ok_or_else(missing)?,
        };
        if bytes[6] != RUN_TYPE {
            return Err(Damage::new(6, "type of a run", RUN_TYPE, bytes[6]));
        }
        if usize::from(length) > bytes.len() {
            return Err(Damage::new(0, "length of a run", format!("at most {}", bytes.len()), length));
        }
        if header.width > 8 {
            return Err(Damage::new(7, "seq width of a run", "at most 8", header.width));
        }
        let least = RUN_HEADER + usize::from(header.count) * ENTRY_BYTES_MIN;
        if header.count == 0 || least > usize::from(length) {
            let expected = format!("1 to {}", usize::from(length) / ENTRY_BYTES_MIN);
            return Err(Damage::new(8, "entries of a run", expected, header.count));
        }
        Ok(Some(header))
    }

    /// Checks the CRC of `run`, which is exactly the run.
    pub(crate) fn check(&self, run: &[u8], identity: &Identity, position: u32, previous: u32) -> Result<(), Damage> {
        let crc = identity.crc(position, previous, run);
        if crc == self.crc || seeded::on(seeded::Bug::RunChecksumSkipped) {
            return Ok(());
        }
        let (expected, found) = (format!("{:08x}", self.crc), format!("{crc:08x}"));
        Err(Damage::new(2, "CRC of a run", expected, found))
    }
}

/// Where an entry is in its run. Key and value lie within the run, and the word is one of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    pub(crate) seq: u64,
    pub(crate) key_at: u16,
    pub(crate) key_length: u16,
    /// Kind and length of the value, which follows the key.
    pub(crate) word: EntryWord,
}

/// Kind and length of a value, as the run has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryWord(u16);

impl EntryWord {
    /// Bytes of the value.
    #[inline]
    pub(crate) const fn value_length(self) -> usize {
        (self.0 & VALUE_LENGTH) as usize
    }

    #[inline]
    pub(crate) const fn is_tombstone(self) -> bool {
        self.0 >> 14 == KIND_TOMBSTONE
    }

    #[inline]
    const fn is_plausible(self) -> bool {
        match self.0 >> 14 {
            KIND_INLINE => self.value_length() <= INLINE_BYTES_MAX,
            KIND_TOMBSTONE => self.value_length() == 0,
            KIND_DOCUMENT => self.value_length() == DOCUMENT_BYTES,
            _ => false,
        }
    }

    /// What the entry does; `value` is as long as this says.
    #[inline]
    pub(crate) fn operation(self, value: &[u8]) -> Operation<'_> {
        match self.0 >> 14 {
            KIND_INLINE => Operation::Put(Payload::Inline(value)),
            KIND_DOCUMENT => {
                let pointer = value.try_into().expect("a plausible word of a document has its length");
                Operation::Put(Payload::Document(DocPointer::decode(pointer)))
            }
            _ => Operation::Delete,
        }
    }
}

/// A run of a leaf in memory.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    bytes: &'a [u8],
    count: usize,
    width: usize,
    base: u64,
}

impl<'a> Run<'a> {
    /// `bytes` is exactly the run, `header` its header.
    pub(crate) fn new(bytes: &'a [u8], header: &RunHeader) -> Self {
        Self { bytes, count: usize::from(header.count), width: usize::from(header.width), base: header.base }
    }

    /// Entries.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// The run.
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Key and seq of the entry at `index`; none where the run is malformed.
    #[inline]
    pub(crate) fn key(&self, index: usize) -> Option<(&'a [u8], Seq)> {
        let at = self.slot(index)?;
        let key_length = usize::from(u16_at(self.bytes, at)?);
        let key_at = at + 4 + self.width;
        let key = self.bytes.get(key_at..key_at + key_length)?;
        Some((key, self.seq(at)?))
    }

    /// The entry at `index`; none where the run is malformed.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Option<Update<'a>> {
        let EntryPlace { seq, key_at, key_length, word } = self.place(index)?;
        let (key_at, value_at) = (usize::from(key_at), usize::from(key_at) + usize::from(key_length));
        let key = self.bytes.get(key_at..value_at)?;
        let value = self.bytes.get(value_at..value_at + word.value_length())?;
        Some(Update { key, seq: Seq(seq), operation: word.operation(value) })
    }

    /// Where the entry at `index` is; none where the run is malformed.
    #[inline]
    pub(crate) fn place(&self, index: usize) -> Option<EntryPlace> {
        let at = self.slot(index)?;
        let fixed = self.bytes.get(at..at + 4)?;
        let key_length = u16::from_le_bytes([fixed[0], fixed[1]]);
        let word = EntryWord(u16::from_le_bytes([fixed[2], fixed[3]]));
        let key_at = at + 4 + self.width;
        let end = key_at + usize::from(key_length) + word.value_length();
        let whole = end <= self.bytes.len() && usize::from(key_length) <= KEY_BYTES_MAX && word.is_plausible();
        if !whole {
            return None;
        }
        Some(EntryPlace { seq: self.seq(at)?.0, key_at: u16::try_from(key_at).ok()?, key_length, word })
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<usize> {
        debug_assert!(index < self.count, "the caller stays within the run");
        u16_at(self.bytes, RUN_HEADER + 2 * index).map(usize::from)
    }

    #[inline]
    fn seq(&self, at: usize) -> Option<Seq> {
        let delta = match u64_at(self.bytes, at + 4) {
            // Eight bytes at once, of which the first `width` count.
            Some(eight) if self.width < 8 => eight & ((1 << (8 * self.width)) - 1),
            Some(eight) => eight,
            None => {
                let mut delta = [0; 8];
                delta[..self.width].copy_from_slice(self.bytes.get(at + 4..at + 4 + self.width)?);
                u64::from_le_bytes(delta)
            }
        };
        Some(Seq(self.base.checked_add(delta)?))
    }
}

/// Makes the CRC of a changed run right again.
#[cfg(test)]
pub(crate) fn sign(run: &mut [u8], identity: &Identity, position: u32, previous: u32) -> u32 {
    let crc = identity.crc(position, previous, run);
    run[2..6].copy_from_slice(&crc.to_le_bytes());
    crc
}

#[cfg(test)]
mod tests {
    use doclog::SegmentId;
    use proptest::prelude::*;

    use super::super::tests::hex;
    use super::*;

    const IDENTITY: Identity = Identity { incarnation: 0x0102, table: TableId(3) };

    fn put<'a>(key: &'a [u8], seq: u64, value: &'a [u8]) -> Update<'a> {
        Update { key, seq: Seq(seq), operation: Operation::Put(Payload::Inline(value)) }
    }

    fn encode(updates: &[Update<'_>]) -> Vec<u8> {
        let plan = Plan::fit(updates.iter().copied(), 4096).expect("they fit");
        assert_eq!(plan.count, updates.len());
        let mut out = vec![0; plan.bytes];
        plan.encode(updates.iter().copied(), &IDENTITY, 40, 7, &mut out);
        out
    }

    #[test]
    fn a_run_is_golden() {
        let document = DocPointer { segment: SegmentId(0x21), offset: 0x31, length: 0x41, crc: 0x5152_5354 };
        let updates = [
            put(b"a", 1000, b"xy"),
            Update { key: b"bb", seq: Seq(1300), operation: Operation::Delete },
            Update { key: b"c", seq: Seq(1001), operation: Operation::Put(Payload::Document(document)) },
        ];
        let run = encode(&updates);
        assert_eq!(
            hex(&run),
            concat!(
                "4c00dde826ff01020300e803000000000000", // header
                "180021002900",                         // slots
                "010002400000617879",                   // a
                "020000802c016262",                     // bb
                "01001cc0010063",                       // c, then its document
                "21000000000000003100000000000000410000000000000054535251",
            )
        );
        let header = RunHeader::decode(&run).expect("whole").expect("a run");
        header.check(&run, &IDENTITY, 40, 7).expect("signed");
        let read = Run::new(&run, &header);
        for (index, update) in updates.iter().enumerate() {
            assert_eq!(read.entry(index), Some(*update));
            assert_eq!(read.key(index), Some((update.key, update.seq)));
        }
    }

    #[test]
    fn a_run_that_grew_update_by_update_is_the_same_run() {
        let document = DocPointer { segment: SegmentId(0x21), offset: 0x31, length: 0x41, crc: 0x5152_5354 };
        let long = Update { key: b"c", seq: Seq(9), operation: Operation::Put(Payload::Document(document)) };
        let updates = [put(b"a", 9, b"xy"), put(b"bb", 9, b""), long];
        let mut run = OneSeqRun::new(Seq(9));
        for _ in 0..2 {
            let mut page = vec![7; PAGE];
            for (index, update) in updates.iter().enumerate() {
                assert_eq!(
                    run.bytes_with(update),
                    Plan::fit(updates[..=index].iter().copied(), PAGE).expect("fits").bytes
                );
                run.push(update);
            }
            let (bytes, crc) = run.finish(&IDENTITY, 40, 7, &mut page);
            let expected = encode(&updates);
            assert_eq!(page[..bytes], expected);
            assert_eq!(crc.to_le_bytes(), expected[2..6]);
            assert!(page[bytes..].iter().all(|byte| *byte == 0) && run.is_empty());
        }
    }

    #[test]
    fn a_run_does_not_check_anywhere_else() {
        let run = encode(&[put(b"k", 1, b"v")]);
        let header = RunHeader::decode(&run).expect("whole").expect("a run");
        header.check(&run, &IDENTITY, 40, 7).expect("at home");
        header.check(&run, &IDENTITY, 41, 7).expect_err("another position");
        header.check(&run, &IDENTITY, 40, 8).expect_err("another run before it");
        let other = Identity { incarnation: 0x0103, ..IDENTITY };
        header.check(&run, &other, 40, 7).expect_err("another incarnation");
        let other = Identity { table: TableId(4), ..IDENTITY };
        header.check(&run, &other, 40, 7).expect_err("another table");
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let run = encode(&[put(b"key", 9, b"value"), put(b"key2", 300, b"")]);
        for bit in 0..run.len() * 8 {
            let mut bad = run.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let seen = match RunHeader::decode(&bad) {
                Err(_) => true,
                Ok(None) => false,
                Ok(Some(header)) => {
                    let length = usize::from(header.length);
                    length != run.len() || header.check(&bad, &IDENTITY, 40, 7).is_err()
                }
            };
            assert!(seen, "bit {bit}");
        }
    }

    #[test]
    fn a_plan_takes_what_fits() {
        let updates: Vec<_> = (0..100).map(|seq| put(b"0123456789", seq, b"0123456789")).collect();
        let plan = Plan::fit(updates.iter().copied(), 200).expect("some fit");
        assert_eq!(plan.count, (200 - RUN_HEADER) / 27);
        assert!(Plan::fit(updates.iter().copied(), RUN_HEADER + 25).is_none());
        assert_eq!(Plan::fit(updates.iter().copied(), RUN_HEADER + 26).map(|plan| plan.count), Some(1));
        assert_eq!([0, 1, 255, 256, u64::MAX].map(seq_width), [0, 1, 1, 2, 8]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            if bytes.len() > 20 {
                bytes[6] = RUN_TYPE;
                bytes[7] &= 15;
                bytes[0] = bytes[0].min(200);
                bytes[1] = 0;
            }
            if let Ok(Some(header)) = RunHeader::decode(&bytes) {
                let run = &bytes[..usize::from(header.length)];
                let _ = header.check(run, &IDENTITY, 0, 0);
                let run = Run::new(run, &header);
                for index in 0..run.count() {
                    let _ = (run.key(index), run.entry(index));
                }
            }
        }
    }
}
