//! Decodes a database from its superblock down.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use checksum::{crc32c, crc32c_append};

use super::document::{Document, Outcome, Values, ensure, number};
use super::made::{LEAF_PAGES, Made, SEGMENT_BYTES};

pub(crate) const PAGE: usize = 4096;

type Files = BTreeMap<String, Vec<u8>>;

/// Every layout that is checked.
pub(crate) fn layouts() -> Vec<&'static str> {
    vec![
        "allocator image",
        "applied step",
        "backup block",
        "backup change",
        "backup end",
        "backup header",
        "backup pair",
        "checkpoint image",
        "column",
        "commit operation",
        "commit time",
        "create table",
        "data file header",
        "document",
        "document image",
        "document pointer",
        "document segment",
        "drop table",
        "flush-end",
        "internal node",
        "leaf pointer",
        "load",
        "log group header",
        "log record",
        "log segment header",
        "range tombstone",
        "redo",
        "root record",
        "run",
        "run entry",
        "superblock slot",
        "table entry",
        "table settings",
        "uniform run",
        "uniform run entry",
    ]
}

/// Decodes everything, and compares it with what was written.
pub(crate) fn check(document: &Document, made: &Made) -> Outcome<()> {
    let reader = Reader { document, files: &made.checkpoint };
    let slot = reader.superblock()?;
    reader.data_header()?;
    let image = reader.image(&slot)?;
    reader.tables(&image, made)?;
    let later = Reader { document, files: &made.files };
    later.log(&slot, &image, made)?;
    later.backups(&made.backups)
}

pub(crate) fn part<'a>(bytes: &'a [u8], range: Range<usize>, what: &str) -> Outcome<&'a [u8]> {
    bytes.get(range.clone()).ok_or_else(|| format!("{what} at {range:?} is outside of its {} bytes", bytes.len()))
}

/// CRC of `bytes` without the range.
fn crc_without(bytes: &[u8], range: Range<usize>) -> u64 {
    crc32c_append(crc32c(&bytes[..range.start]), &bytes[range.end..]).into()
}

/// Where pages of `data` are, and how many.
fn pages(values: &Values, page: &str, pages: &str) -> Outcome<Range<usize>> {
    let start = values.size(page)?.saturating_mul(PAGE);
    Ok(start..start.saturating_add(values.size(pages)?.saturating_mul(PAGE)))
}

pub(crate) struct Reader<'a> {
    pub(crate) document: &'a Document,
    pub(crate) files: &'a Files,
}

/// What was found under a root.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) entries: Vec<(Vec<u8>, u64, u64, Vec<u8>)>,
    pub(crate) extents: Vec<Range<usize>>,
    pub(crate) levels: BTreeSet<u64>,
    /// Types of runs.
    pub(crate) types: BTreeSet<u64>,
    /// Parts of leaves.
    pub(crate) parts: BTreeSet<usize>,
    /// Leaves with a filter.
    pub(crate) filters: usize,
}

impl Reader<'_> {
    pub(crate) fn decode(&self, layout: &str, bytes: &[u8]) -> Outcome<Values> {
        self.document.decode(layout, bytes, &[])
    }

    pub(crate) fn file(&self, name: &str) -> Outcome<&[u8]> {
        self.files.get(name).map(Vec::as_slice).ok_or_else(|| format!("there is no file {name}"))
    }

    fn superblock(&self) -> Outcome<Values> {
        let file = self.file("superblock")?;
        ensure!(file.len() == 2 * PAGE, "the superblock has {} bytes", file.len());
        let mut slots = Vec::new();
        for (index, bytes) in file.chunks(PAGE).enumerate() {
            let slot = self.decode("superblock slot", bytes)?;
            ensure!(slot.length == PAGE, "a slot has {} bytes", slot.length);
            slot.expect_magic(b"BRAIDSUP")?;
            let mut blank = bytes.to_vec();
            blank[slot.place("crc")?].fill(0);
            slot.expect(&[
                ("version", 1),
                ("crc", crc32c(&blank).into()),
                ("epoch", 1),
                ("segment bytes", SEGMENT_BYTES),
            ])?;
            ensure!(slot.size("generation")? % 2 == index, "a slot is in the wrong place");
            slots.push(slot);
        }
        let generations = (slots[0].number("generation")?, slots[1].number("generation")?);
        ensure!(generations.0.abs_diff(generations.1) == 1, "generations {generations:?}");
        ensure!(slots[0].bytes("database")? == slots[1].bytes("database")?, "two databases");
        ensure!(slots[0].bytes("database")?.iter().any(|byte| *byte != 0), "no uuid");
        Ok(slots.swap_remove(usize::from(generations.1 > generations.0)))
    }

    fn data_header(&self) -> Outcome<()> {
        let page = part(self.file("data")?, 0..PAGE, "the header page")?;
        let header = self.decode("data file header", page)?;
        header.expect_magic(b"BRAIDPAG")?;
        let crc = crc_without(page, header.place("crc")?);
        header.expect(&[("version", 1), ("crc", crc), ("page bytes", PAGE as u64)])?;
        ensure!(header.length == PAGE, "the header page has {} bytes", header.length);
        Ok(())
    }

    fn image(&self, slot: &Values) -> Outcome<Values> {
        let bytes = part(self.file("data")?, pages(slot, "image page", "image pages")?, "the image")?;
        let length = slot.size("image bytes")?;
        let whole = part(bytes, 0..length, "the image")?;
        ensure!(length > bytes.len().saturating_sub(3 * PAGE), "an image of {length} bytes in {} bytes", bytes.len());
        slot.expect(&[("image crc", crc32c(whole).into())])?;
        let image = self.decode("checkpoint image", whole)?;
        image.expect_magic(b"BRAIDIMG")?;
        ensure!(image.length == length, "the image ends at {} of {length}", image.length);
        image.expect(&[("next table", 4), ("tables", 2), ("dropped tables", 1)])?;
        // Three tables, a hundred batches, three puts, one batch more, two ranges, a drop.
        image.expect(&[("visible", 110)])?;
        let [start, durable, below] =
            [image.number("log start")?, image.number("log durable")?, image.number("flush ends below")?];
        ensure!(start > 0 && start <= durable && durable <= below, "log positions {start}, {durable}, {below}");
        let (kept, seq) = (image.number("kept from")?, image.number("kept seq")?);
        ensure!(kept < start, "the log is kept from {kept}, and replayed from {start}");
        self.kept(slot, kept, seq)?;
        Ok(image)
    }

    fn free(&self, image: &Values) -> Outcome<Vec<Range<usize>>> {
        let bytes = image.bytes("allocator image")?;
        let allocator = self.decode("allocator image", bytes)?;
        allocator.expect_magic(b"BRAIDALC")?;
        let crc = crc_without(bytes, allocator.place("crc")?);
        allocator.expect(&[("crc", crc), ("length", bytes.len() as u64)])?;
        let version = allocator.number("version")?;
        ensure!(version == 1 || version == 2, "version {version}");
        let total = allocator.size("total pages")?;
        ensure!(total * PAGE <= self.file("data")?.len(), "{total} pages");
        let (mut at, mut free) = (allocator.length, Vec::new());
        let mut varint = || {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = usize::from(*bytes.get(at).ok_or("the free list is cut")?);
                at += 1;
                value |= (byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    return Ok::<usize, String>(value);
                }
                ensure!(shift < 57, "a number of the free list is too long");
            }
        };
        for list in 0..version {
            let count = if list == 0 { allocator.size("free extents")? } else { varint()? };
            ensure!(count > 0, "list {list} of free extents is empty");
            let mut end = 0;
            for _ in 0..count {
                let start = end + varint()?;
                ensure!(start > end || end == 0, "neighbours are one extent");
                end = start + varint()?;
                ensure!(start > 0 && end > start && end <= total, "pages {start}..{end} are free of {total}");
                free.push(start..end);
            }
        }
        free.sort_by_key(|range: &Range<usize>| range.start);
        ensure!(at == bytes.len(), "the free list ends at {at} of {}", bytes.len());
        Ok(free)
    }

    /// Everything up to `seq` is applied, whatever the key.
    pub(crate) fn applied(&self, steps: &[u8], seq: u64) -> Outcome<()> {
        let step = self.decode("applied step", steps)?;
        step.expect(&[("seq", seq), ("key bytes", 0)])?;
        ensure!(step.length == steps.len(), "steps of {} bytes", steps.len());
        Ok(())
    }

    fn tables(&self, image: &Values, made: &Made) -> Outcome<()> {
        let free = self.free(image)?;
        let mut rest = [image.bytes("list of table entry")?, image.bytes(&second_list(image)?)?].concat();
        for (id, name, applied, dropped, count) in
            [(1, "first", 110, 0, made.first.len()), (2, "second", 0, 0, 0), (3, "gone", 106, 110, 1)]
        {
            let table = self.decode("table entry", &rest)?;
            rest.drain(..table.length);
            table.expect(&[("id", id), ("structure", 1), ("dropped", dropped)])?;
            self.settings(&table, [2, 3, 1][usize::try_from(id).unwrap_or(0) - 1])?;
            self.applied(table.bytes("applied")?, applied)?;
            ensure!(table.bytes("name")? == name.as_bytes(), "{name} is called {:?}", table.bytes("name")?);
            let root = self.root(table.bytes("root")?, id)?;
            let found = self.tree(&root, id)?;
            ensure!(
                found.extents.iter().all(|used| free.iter().all(|free| apart(used, free))),
                "{name} uses free pages"
            );
            let live = live(&found, applied)?;
            ensure!(live.len() == count, "{name} has {} keys instead of {count}", live.len());
            let documents = self.documents(table.bytes("documents")?, name)?;
            self.tombstones(table.bytes("tombstones")?, id == 2)?;
            ensure!(table.bytes("headers")?.is_empty(), "a B-tree that retains states");
            if id == 1 {
                ensure!(found.levels == BTreeSet::from([1, 2]), "levels {:?}", found.levels);
                ensure!(found.parts == BTreeSet::from([1, 2]), "leaves of {:?} parts", found.parts);
                ensure!(found.filters > 1, "{} leaves with a filter", found.filters);
                ensure!(found.types == BTreeSet::from([1, 2]), "runs of types {:?}", found.types);
                let mut live_bytes = 0;
                for (key, (kind, stored)) in &live {
                    let value = match kind {
                        3 => {
                            let (value, bytes) = self.document(stored, id)?;
                            live_bytes += bytes;
                            value
                        }
                        _ => stored.clone(),
                    };
                    ensure!(made.first.get(key) == Some(&value), "key {} has another value", key.escape_ascii());
                }
                // A document of a deleted key is live until its leaf is rewritten.
                let [reach, counted] = documents.first().copied().ok_or("no document segment")?;
                ensure!(
                    counted >= live_bytes && counted < reach,
                    "{counted} live bytes of {reach}, found {live_bytes}"
                );
            }
        }
        ensure!(rest.is_empty(), "{} bytes behind the last table", rest.len());
        Ok(())
    }

    /// The settings of a table that is compressed like that.
    pub(crate) fn settings(&self, table: &Values, compression: u64) -> Outcome<()> {
        let bytes = table.bytes("settings")?;
        let settings = self.decode("table settings", bytes)?;
        ensure!(settings.length == bytes.len(), "settings of {} bytes", bytes.len());
        settings.expect(&[("compression", compression), ("history", 0)])
    }

    /// The ranges that were deleted of the second table, and of no other.
    fn tombstones(&self, bytes: &[u8], is_second: bool) -> Outcome<()> {
        let (mut at, mut found) = (0, Vec::new());
        while at < bytes.len() {
            let fragment = self.decode("range tombstone", &bytes[at..])?;
            at += fragment.length;
            fragment.expect(&[("overgrown", 0)])?;
            let seqs: Vec<u64> = fragment.bytes("seqs")?.chunks(8).map(number).collect();
            let key = |field| fragment.bytes(field).map(|key| key.escape_ascii().to_string());
            found.push((key("first")?, key("end")?, seqs));
        }
        let of = |first: &str, end: &str, seqs: &[u64]| (first.to_owned(), end.to_owned(), seqs.to_vec());
        let expected = [of("c", "d", &[108]), of("d", "dd", &[109, 108]), of("dd", "", &[109])];
        ensure!(found == if is_second { &expected[..] } else { &[] }, "range tombstones {found:?}");
        Ok(())
    }

    /// Reach and live bytes of each segment.
    fn documents(&self, bytes: &[u8], table: &str) -> Outcome<Vec<[u64; 2]>> {
        let image = self.decode("document image", bytes)?;
        image.expect_magic(b"BRAIDDOC")?;
        let crc = crc_without(bytes, image.place("crc")?);
        image.expect(&[("version", 1), ("crc", crc), ("length", bytes.len() as u64)])?;
        let mut at = image.length;
        let mut segments = Vec::new();
        for expected in 1..=image.number("segments")? {
            let segment = self.decode("document segment", part(bytes, at..bytes.len(), "a segment")?)?;
            at += segment.length;
            // It is the one that is appended to.
            segment.expect(&[("number", expected), ("sealed", 0), ("last commit", 105)])?;
            let reach = segment.number("reach")?;
            ensure!(reach == self.file("doc/1-1.doc")?.len() as u64, "reach is {reach}");
            segments.push([reach, segment.number("live bytes")?]);
        }
        ensure!(at == bytes.len(), "the document image ends at {at} of {}", bytes.len());
        let next = image.number("next segment")?;
        ensure!(segments.len() as u64 + 1 == next, "{table}: next segment {next} after {segments:?}");
        ensure!(segments.len() == usize::from(table == "first"), "{} segments of {table}", segments.len());
        Ok(segments)
    }

    /// The payload of the document that a pointer leads to, and the bytes that it takes in its file.
    pub(crate) fn document(&self, pointer: &[u8], table: u64) -> Outcome<(Vec<u8>, u64)> {
        let pointer = self.decode("document pointer", pointer)?;
        ensure!(pointer.length == 28, "a document pointer has {} bytes", pointer.length);
        let fields = ["segment", "offset", "length", "coding"].map(|field| pointer.number(field));
        let [segment, offset, length, coding] = fields;
        let (segment, offset, length, coding) = (segment?, offset?, length?, coding?);
        let file = self.file(&format!("doc/{table}-{segment}.doc"))?;
        let at = usize::try_from(offset).map_err(|error| error.to_string())?;
        let document = self.decode("document", part(file, at..file.len(), "a document")?)?;
        document.expect_magic(b"BDOC")?;
        let identity = [
            &u32::try_from(table).unwrap_or(0).to_le_bytes()[..],
            &segment.to_le_bytes(),
            &offset.to_le_bytes(),
            pointer.bytes("length")?,
            pointer.bytes("coding")?,
        ];
        let payload = document.bytes("payload")?;
        let crc = crc32c_append(crc32c(&identity.concat()), payload).into();
        document.expect(&[("version", 1), ("type", 1), ("table", table), ("length", length), ("crc", crc)])?;
        document.expect(&[("coding", coding)])?;
        pointer.expect(&[("crc", crc)])?;
        let content = match (coding & 3, usize::try_from(coding >> 2).expect("four bytes")) {
            (0, 0) => payload.to_vec(),
            (1, bytes) => lz4_flex::block::decompress(payload, bytes).map_err(|error| error.to_string())?,
            (2, bytes) => zstd::bulk::decompress(payload, bytes).map_err(|error| error.to_string())?,
            _ => return Err(format!("a document of coding {coding:#x}")),
        };
        ensure!(coding == 0 || content.len() as u64 == coding >> 2, "{} bytes of coding {coding:#x}", content.len());
        Ok((content, document.length.next_multiple_of(8) as u64))
    }

    pub(crate) fn root(&self, bytes: &[u8], table: u64) -> Outcome<Values> {
        let root = self.decode("root record", bytes)?;
        ensure!(root.length == bytes.len(), "a root record of {} bytes", bytes.len());
        root.expect_magic(b"BtRt")?;
        let crc = crc32c(part(bytes, root.place("crc")?.end..bytes.len(), "a root record")?).into();
        root.expect(&[("version", 1), ("crc", crc), ("table", table), ("leaf pages", LEAF_PAGES.into())])?;
        Ok(root)
    }
}

fn apart(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.end <= other.start || other.end <= one.start
}

/// The second list of an image has the same link.
fn second_list(image: &Values) -> Outcome<String> {
    let name = image.fields().keys().find(|name| name.starts_with("list of table entry "));
    name.cloned().ok_or_else(|| "the image has one list of tables".to_owned())
}

/// Seq and value of each live key.
pub(crate) type Live = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// The newest version of each key, where it is no tombstone: kind and value.
pub(crate) fn live(found: &Found, applied: u64) -> Outcome<Live> {
    let mut newest: BTreeMap<Vec<u8>, (u64, u64, Vec<u8>)> = BTreeMap::new();
    for (key, seq, kind, value) in &found.entries {
        ensure!((1..=applied).contains(seq), "seq {seq}");
        if newest.get(key).is_none_or(|(known, ..)| known <= seq) {
            newest.insert(key.clone(), (*seq, *kind, value.clone()));
        }
    }
    let newest = newest.into_iter().filter(|(_, (_, kind, _))| *kind != 2);
    Ok(newest.map(|(key, (_, kind, value))| (key, (kind, value))).collect())
}
