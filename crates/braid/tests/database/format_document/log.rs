//! Decodes the log behind the checkpoint: segments, groups, records, and what the records say.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use checksum::{crc32c, crc32c_append};

use super::check::{PAGE, Reader, live, part};
use super::document::{Outcome, Values, ensure, number};
use super::made::{EXPIRY_MILLIS, LEAF_PAGES, Made, SEGMENT_BYTES};

/// A record of the log.
struct Record {
    kind: u64,
    seq: Option<u64>,
    payload: Vec<u8>,
}

/// What a commit did to a key: code, and what stands behind the key.
type Operations = BTreeMap<(u64, Vec<u8>), (u64, Vec<u8>)>;

impl Reader<'_> {
    /// Decodes the log from where `image` says.
    pub(crate) fn log(&self, slot: &Values, image: &Values, made: &Made) -> Outcome<()> {
        let records = self.records(slot, image)?;
        let kinds: Vec<(u64, Option<u64>)> = records.iter().map(|record| (record.kind, record.seq)).collect();
        let expected = [
            (3, Some(111)),
            (1, Some(112)),
            (1, Some(113)),
            (2, None),
            (2, None),
            (3, Some(114)),
            (6, Some(115)),
            (2, None),
            (4, Some(116)),
        ];
        ensure!(kinds == expected, "the records are {kinds:?}");
        let create = self.payload("create table", &records[0])?;
        create.expect(&[("id", 4), ("structure", 1), ("structure settings", LEAF_PAGES.into())])?;
        self.settings(&create, 2)?;
        ensure!(create.bytes("name")? == b"late", "a table {:?}", create.bytes("name")?);
        self.payload("load", &records[6])?.expect(&[("table", 5)])?;
        self.payload("drop table", &records[8])?.expect(&[("id", 4)])?;

        let replaced = self.commit(&records[1].payload)?;
        let operations = self.commit(&records[2].payload)?;
        self.operations(&operations, made)?;
        let mut tables = BTreeSet::new();
        for record in &records[3..5] {
            let table = self.flush_end(&record.payload, &operations, &replaced)?;
            tables.insert(table);
        }
        ensure!(tables == BTreeSet::from([1, 2]), "flush-ends of {tables:?}");
        Ok(())
    }

    /// The log is kept from `position` on, where a segment begins with `seq`.
    pub(crate) fn kept(&self, slot: &Values, position: u64, seq: u64) -> Outcome<()> {
        let segments = self.segments(slot)?;
        let (number, at) = (position / SEGMENT_BYTES, (position % SEGMENT_BYTES) as usize);
        ensure!(at == PAGE, "a segment's groups begin at {at}");
        let segment = segments.get(&number).ok_or_else(|| format!("segment {number} is not kept"))?;
        let (group, _) = self.group(part(segment, at..segment.len(), "a group")?, slot, position)?;
        group.expect(&[("first seq", seq)])
    }

    fn payload(&self, layout: &str, record: &Record) -> Outcome<Values> {
        let values = self.decode(layout, &record.payload)?;
        ensure!(values.length == record.payload.len(), "{layout}: {} bytes", record.payload.len());
        Ok(values)
    }

    /// The files of segments, by number.
    fn segments(&self, slot: &Values) -> Outcome<BTreeMap<u64, &[u8]>> {
        let mut segments = BTreeMap::new();
        for (name, bytes) in self.files.iter().filter(|(name, _)| name.starts_with("wal/")) {
            ensure!(bytes.len() as u64 == SEGMENT_BYTES, "{name} has {} bytes", bytes.len());
            if bytes[..PAGE].iter().all(|byte| *byte == 0) {
                continue;
            }
            let header = self.decode("log segment header", &bytes[..PAGE])?;
            ensure!(header.length == PAGE, "a segment header has {} bytes", header.length);
            header.expect_magic(b"BRAIDWAL")?;
            let (number, crc) = (header.number("number")?, crc32c(&bytes[..header.place("crc")?.start]).into());
            header.expect(&[
                ("type", 1),
                ("version", 1),
                ("crc", crc),
                ("epoch", 1),
                ("segment bytes", SEGMENT_BYTES),
            ])?;
            header.expect(&[("base", number.wrapping_mul(SEGMENT_BYTES))])?;
            ensure!(header.bytes("database")? == slot.bytes("database")?, "{name} is of another database");
            ensure!(segments.insert(number, bytes.as_slice()).is_none(), "two segments {number}");
        }
        ensure!(segments.len() > 1, "{} segments", segments.len());
        Ok(segments)
    }

    fn records(&self, slot: &Values, image: &Values) -> Outcome<Vec<Record>> {
        let segments = self.segments(slot)?;
        let start = image.number("log start")?;
        let mut lsn = start / SEGMENT_BYTES * SEGMENT_BYTES + PAGE as u64;
        let (mut records, mut next_seq, mut durable, mut behind) = (Vec::new(), None, 0, 0);
        loop {
            let (segment, at) = (segments.get(&(lsn / SEGMENT_BYTES)), (lsn % SEGMENT_BYTES) as usize);
            let segment = segment.ok_or_else(|| format!("there is no segment for position {lsn}"))?;
            // Behind the last group is what an older use of the file has left.
            let Ok((group, whole)) = self.group(part(segment, at..segment.len(), "a group")?, slot, lsn) else { break };
            let first = group.number("first seq")?;
            ensure!(next_seq.is_none_or(|next| next == first), "a group begins with seq {first}, not {next_seq:?}");
            let stated = group.number("durable")?;
            ensure!(durable <= stated && stated <= lsn, "durable up to {stated} at {lsn}, after {durable}");
            behind += u64::from(stated < lsn);
            durable = stated;
            let (found, sequenced) = self.records_of(&group, whole, lsn, first, image)?;
            records.extend(found);
            next_seq = Some(first + sequenced);
            lsn = match group.number("type")? {
                2 => (lsn / SEGMENT_BYTES + 1) * SEGMENT_BYTES + PAGE as u64,
                _ => lsn + whole.len() as u64,
            };
        }
        ensure!(durable > start && behind > 0, "durable up to {durable}");
        ensure!(next_seq == Some(117), "the next seq is {next_seq:?}");
        Ok(records)
    }

    /// The group at `lsn`, which `rest` begins with.
    fn group<'a>(&self, rest: &'a [u8], slot: &Values, lsn: u64) -> Outcome<(Values, &'a [u8])> {
        let group = self.decode("log group header", rest)?;
        ensure!(group.bytes("magic")? == [0xB7, 0x57, 0x47, 0x52], "a group's magic");
        let uuid = crc32c(slot.bytes("database")?);
        let header_crc = crc32c_append(uuid, part(rest, 0..group.place("crc")?.start, "a header")?).into();
        group.expect(&[("crc", header_crc), ("version", 1), ("lsn", lsn), ("epoch", 1)])?;
        let whole = part(rest, 0..group.size("length")?, "a group")?;
        let seed = crc32c_append(crc32c_append(uuid, &lsn.to_le_bytes()), &1_u64.to_le_bytes());
        let content_crc = crc32c_append(seed, part(whole, group.length..whole.len(), "records")?).into();
        group.expect(&[("content crc", content_crc)])?;
        ensure!((1..=4).contains(&group.number("type")?), "a group's type");
        Ok((group, whole))
    }

    /// The records that `image` lacks, and how many of all have a seq.
    fn records_of(
        &self, group: &Values, whole: &[u8], lsn: u64, first: u64, image: &Values,
    ) -> Outcome<(Vec<Record>, u64)> {
        let (start, below) = (image.number("log start")?, image.number("flush ends below")?);
        let (mut at, mut count, mut sequenced, mut records) = (group.length, 0, 0, Vec::new());
        while at < whole.len() {
            let record = self.decode("log record", &whole[at..])?;
            let has_seq = record.number("sequenced")?;
            record.expect(&[("seq", sequenced * has_seq)])?;
            let kind = record.number("kind")?;
            let position = lsn + at as u64;
            if position >= start && (kind != 2 || position >= below) {
                let payload = record.bytes("payload")?.to_vec();
                records.push(Record { kind, seq: (has_seq == 1).then_some(first + sequenced), payload });
            }
            sequenced += has_seq;
            count += 1;
            at = (at + record.length).next_multiple_of(8);
        }
        ensure!(at == whole.len(), "records end at {at} of {}", whole.len());
        group.expect(&[("records", count)])?;
        Ok((records, sequenced))
    }

    fn commit(&self, payload: &[u8]) -> Outcome<Operations> {
        let (mut at, mut operations) = (0, Operations::new());
        if payload.first() == Some(&7) {
            let time = self.decode("commit time", payload)?;
            ensure!((1..EXPIRY_MILLIS).contains(&time.number("time")?), "a commit at {}", time.number("time")?);
            at = time.length;
        }
        while at < payload.len() {
            let operation = self.decode("commit operation", &payload[at..])?;
            at += operation.length;
            // What expires is as what does not, behind its expiry.
            let code = match operation.number("code")? {
                code @ (5 | 6) => {
                    let expiry = number(part(payload, at..at + 8, "an expiry")?);
                    ensure!(expiry == EXPIRY_MILLIS, "an operation expires at {expiry}");
                    at += 8;
                    code - 4
                }
                code => code,
            };
            let behind = match code {
                1 | 4 => 4 + usize::try_from(number(part(payload, at..at + 4, "a block")?)).expect("four bytes"),
                2 => 28,
                3 => 0,
                _ => return Err(format!("an operation of code {code}")),
            };
            let rest = part(payload, at..at + behind, "a value")?.to_vec();
            at += behind;
            operations.insert((operation.number("table")?, operation.bytes("key")?.to_vec()), (code, rest));
        }
        Ok(operations)
    }

    fn operations(&self, operations: &Operations, made: &Made) -> Outcome<()> {
        let get = |key: &[u8]| operations.get(&(2, key.to_vec()));
        ensure!(
            get(b"short") == Some(&(1, [&6_u32.to_le_bytes()[..], b"inline"].concat())),
            "a put {:?}",
            get(b"short")
        );
        let expiring = get(b"expiring").map(|(code, value)| (*code, &value[4..]));
        ensure!(expiring == Some((1, &b"inline"[..])), "a put {expiring:?}");
        ensure!(get(b"replaced") == Some(&(3, Vec::new())), "a delete {:?}", get(b"replaced"));
        let range = operations.get(&(4, b"a".to_vec()));
        ensure!(range == Some(&(4, [&2_u32.to_le_bytes()[..], b"b\0"].concat())), "a range {range:?}");
        for (key, value) in &made.documents {
            let Some((2, pointer)) = get(key) else { return Err(format!("no document of key {key:?}")) };
            ensure!(self.document(pointer, 2)?.0 == *value, "the document of key {key:?} is another");
        }
        Ok(())
    }

    /// Decodes a flush-end and the tree that it leads to. Returns its table.
    fn flush_end(&self, payload: &[u8], operations: &Operations, replaced: &Operations) -> Outcome<u64> {
        let end = self.decode("flush-end", payload)?;
        end.expect(&[("retained segments", 0)])?;
        ensure!((1..EXPIRY_MILLIS).contains(&end.number("time")?), "a flush-end at {}", end.number("time")?);
        self.applied(end.bytes("applied")?, 113)?;
        let table = end.number("table")?;
        let mut pointers = Vec::new();
        for index in 0..end.size("dropped documents")? {
            let at = end.length + 28 * index;
            pointers.push(part(payload, at..at + 28, "a document pointer")?.to_vec());
        }
        // What no rollback has ends with a zero.
        let length = end.length + 28 * pointers.len() + 1;
        ensure!(payload.len() == length && payload.last() == Some(&0), "a flush-end of {} bytes", payload.len());
        if table == 2 {
            let before = replaced.get(&(2, b"replaced".to_vec())).map(|(_, pointer)| pointer);
            ensure!(
                pointers.iter().collect::<Vec<_>>() == before.into_iter().collect::<Vec<_>>(),
                "dropped {pointers:?}"
            );
        }
        let redo_bytes = end.bytes("redo")?;
        let redo = self.decode("redo", redo_bytes)?;
        redo.expect_magic(b"BtRe")?;
        let crc = crc32c(part(redo_bytes, redo.place("crc")?.end..redo_bytes.len(), "a redo")?).into();
        redo.expect(&[("version", 1), ("crc", crc), ("table", table)])?;
        let tree = self.tree(&self.root(redo.bytes("root")?, table)?, table)?;
        let (allocated, retired) = extents(redo_bytes, &redo)?;
        let uses = |page: usize| tree.extents.iter().any(|extent| extent.contains(&page));
        ensure!(!allocated.is_empty() && allocated.iter().cloned().flatten().all(uses), "allocated pages are not used");
        ensure!(!retired.iter().cloned().flatten().any(uses), "retired pages are used");
        ensure!(retired.is_empty() == (table == 2), "retired {retired:?}");
        let live = live(&tree, 113)?;
        for ((_, key), (code, rest)) in operations.iter().filter(|((of, _), _)| *of == table) {
            let expected = match code {
                1 => Some((1, rest[4..].to_vec())),
                2 => Some((3, rest.clone())),
                _ => None,
            };
            ensure!(
                live.get(key) == expected.as_ref(),
                "key {} of table {table} is not what was written",
                key.escape_ascii()
            );
        }
        Ok(table)
    }
}

type Extents = Vec<Range<usize>>;

fn extents(bytes: &[u8], redo: &Values) -> Outcome<(Extents, Extents)> {
    let list: Vec<_> = bytes[redo.length..]
        .chunks(8)
        .map(|extent| {
            let (page, pages) = extent.split_at(extent.len().min(6));
            let size = |field| usize::try_from(number(field)).expect("at most six bytes");
            size(page)..size(page) + size(pages)
        })
        .collect();
    let (allocated, retired) = (redo.size("allocated")?, redo.size("retired")?);
    ensure!(
        allocated.checked_add(retired) == Some(list.len()),
        "{} extents, not {allocated} and {retired}",
        list.len()
    );
    Ok((list[..allocated].to_vec(), list[allocated..].to_vec()))
}
