//! Decodes a chain of backups: headers, blocks, and what the blocks say.

use checksum::{crc32c, crc32c_append};

use super::check::{PAGE, Reader, part};
use super::document::{Outcome, ensure};
use super::made::{LEAF_PAGES, LONG_BYTES, value};

/// A backup, taken apart.
struct Backup {
    id: Vec<u8>,
    seq: u64,
    continued: Vec<u8>,
    continued_seq: u64,
    /// Types and payloads.
    blocks: Vec<(u64, Vec<u8>)>,
}

impl Reader<'_> {
    /// Decodes the backups of a database with that superblock.
    pub(crate) fn backups(&self, (stream, superblock): &(Vec<u8>, Vec<u8>)) -> Outcome<()> {
        let slot = self.decode("superblock slot", part(superblock, 0..PAGE, "a slot")?)?;
        let database = slot.bytes("database")?;
        let (full, second) = self.backup(stream, database)?;
        let (incremental, end) = self.backup(&stream[second..], database)?;
        ensure!(second + end == stream.len(), "something is behind the second backup");
        ensure!(full.continued == [0; 16] && full.continued_seq == 0, "the full one continues another");
        // Two tables and four puts; then two commits and a drop.
        ensure!((full.seq, incremental.seq) == (6, 9), "seqs are {} and {}", full.seq, incremental.seq);
        ensure!(incremental.continued == full.id && incremental.continued_seq == 6, "the chain is broken");
        ensure!(full.id != incremental.id && full.id != [0; 16], "the ids are no ids");
        let kinds = |backup: &Backup| backup.blocks.iter().map(|(kind, _)| *kind).collect::<Vec<_>>();
        ensure!(kinds(&full) == [1, 2, 4, 3, 3, 1, 6], "the blocks are {:?}", kinds(&full));
        ensure!(kinds(&incremental) == [4, 5, 6], "the blocks are {:?}", kinds(&incremental));

        for (block, id, name) in [(0, 1, "one"), (5, 2, "two")] {
            let payload = &full.blocks[block].1;
            let table = self.decode("create table", payload)?;
            table.expect(&[("id", id), ("structure", 1), ("structure settings", LEAF_PAGES.into())])?;
            self.settings(&table, if name == "two" { 3 } else { 1 })?;
            ensure!(table.bytes("name")? == name.as_bytes() && table.length == payload.len(), "not table {name}");
        }
        let pairs = &full.blocks[1].1;
        let mut at = self.pair(pairs, 0, b"key", 5)?;
        ensure!(pairs[at..].starts_with(b"value"), "another value");
        at += 5;
        at += self.pair(&pairs[at..], 0, b"like", 0)?;
        at += self.pair(&pairs[at..], 0, b"short", 1)?;
        ensure!(&pairs[at..] == b"s", "another value, or something behind the pairs");
        // The value was a document.
        let documents = &full.blocks[2].1;
        let put = self.decode("backup change", documents)?;
        put.expect(&[("code", 1), ("table", 1)])?;
        let value_at = put.length + self.pair(&documents[put.length..], 1, b"long", LONG_BYTES as u64)?;
        ensure!(value_at == documents.len(), "something is behind a long pair");
        let long = [&full.blocks[3].1[..], &full.blocks[4].1].concat();
        ensure!(full.blocks[3].1.len() == 256 << 10 && long == value(3, LONG_BYTES), "another long value");
        self.end(&full.blocks[6].1, [2, 3, 1])?;

        let changes = &incremental.blocks[0].1;
        let put = self.decode("backup change", changes)?;
        put.expect(&[("code", 1), ("table", 1)])?;
        let value = put.length + self.pair(&changes[put.length..], 0, b"another", 1)?;
        ensure!(changes[value] == b'x', "another value");
        let delete = self.decode("backup change", &changes[value + 1..])?;
        delete.expect(&[("code", 2), ("table", 1)])?;
        let pair = value + 1 + delete.length;
        ensure!(pair + self.pair(&changes[pair..], 0, b"key", 0)? == changes.len(), "more than two changes");
        self.decode("drop table", &incremental.blocks[1].1)?.expect(&[("id", 2)])?;
        self.end(&incremental.blocks[2].1, [0, 0, 3])
    }

    /// Takes a backup apart; where it ends.
    fn backup(&self, bytes: &[u8], database: &[u8]) -> Outcome<(Backup, usize)> {
        let header = self.decode("backup header", bytes)?;
        header.expect_magic(b"BRAIDBAK")?;
        let mut blank = bytes[..header.length].to_vec();
        blank[header.place("crc")?].fill(0);
        let mut crc = crc32c(&blank);
        header.expect(&[("version", 1), ("crc", crc.into())])?;
        ensure!(header.bytes("database")? == database, "it is of another database");
        let (mut at, mut blocks, mut ended) = (header.length, Vec::new(), false);
        while !ended {
            let rest = bytes.get(at..).unwrap_or_default();
            let block = self.decode("backup block", rest)?;
            crc = crc32c_append(crc, part(rest, block.place("crc")?.end..block.length, "a block")?);
            block.expect(&[("crc", crc.into())])?;
            ensure!(block.size("length")? <= 256 << 10, "a block is too long");
            ended = block.number("type")? == 6;
            blocks.push((block.number("type")?, block.bytes("payload")?.to_vec()));
            at += block.length;
        }
        let (id, continued) = (header.bytes("id")?.to_vec(), header.bytes("continued")?.to_vec());
        let (seq, continued_seq) = (header.number("seq")?, header.number("continued seq")?);
        Ok((Backup { id, seq, continued, continued_seq, blocks }, at))
    }

    /// Checks a pair; where its value begins.
    fn pair(&self, bytes: &[u8], flags: u64, key: &[u8], value_bytes: u64) -> Outcome<usize> {
        let pair = self.decode("backup pair", bytes)?;
        pair.expect(&[("flags", flags), ("value bytes", value_bytes)])?;
        ensure!(pair.bytes("key")? == key, "key {:?}", pair.bytes("key")?.escape_ascii());
        Ok(pair.length)
    }

    fn end(&self, payload: &[u8], counts: [u64; 3]) -> Outcome<()> {
        let end = self.decode("backup end", payload)?;
        ensure!(end.length == payload.len(), "an end of {} bytes", payload.len());
        end.expect(&[("tables", counts[0]), ("pairs", counts[1]), ("changes", counts[2])])
    }
}
