//! Reads the blocks of a backup, and checks each before its use.
//!
//! Invariant: memory is allocated for at most one block at a time, because a length above the maximum is refused first.

use std::{
    io::{ErrorKind, Read},
    path::Path,
};

use super::{
    format::{BLOCK_HEADER_BYTES, HEADER_BYTES, Header, HeaderError, VERSION, decode_block_header, header_crc, kind},
    path_error::path_error,
};
use crate::error::{Error, Result};

/// Reads the backups of a stream, one directly behind the other.
pub(crate) struct Reader<R> {
    stream: R,
    /// Name of the stream in errors.
    name: String,
    /// Bytes read so far.
    offset: u64,
    /// CRC of the block before, or of the header.
    crc: u32,
}

/// The next part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The header of a backup.
    Header(Header),
    /// A block.
    Block(Block),
}

/// A checked block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Type of the block.
    pub(crate) kind: u8,
    /// Payload of the block.
    pub(crate) payload: Vec<u8>,
    /// Offset of the block in its stream.
    pub(crate) offset: u64,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(stream: R, name: &str) -> Self {
        Self { stream, name: name.to_owned(), offset: 0, crc: 0 }
    }

    /// Reads the header of the next backup; none at the end of the stream.
    pub(crate) fn header(&mut self) -> Result<Option<Header>> {
        let (mut bytes, offset) = ([0; HEADER_BYTES], self.offset);
        match self.fill(&mut bytes)? {
            0 => return Ok(None),
            HEADER_BYTES => {}
            got => return Err(self.cut_off("the header of a backup", HEADER_BYTES, got)),
        }
        let header = header(&bytes, &self.name, offset)?;
        self.crc = header_crc(&bytes);
        Ok(Some(header))
    }

    /// Reads the next block of a backup into the memory of `payload`.
    pub(crate) fn block(&mut self, mut payload: Vec<u8>) -> Result<Block> {
        let (mut head, offset) = ([0; BLOCK_HEADER_BYTES], self.offset);
        let got = self.fill(&mut head)?;
        if got < BLOCK_HEADER_BYTES {
            return Err(self.cut_off("a backup that has not ended", BLOCK_HEADER_BYTES, got));
        }
        let Some((stored, length, kind)) = decode_block_header(&head) else {
            let found = format!("{:02x?}", &head[4..]);
            return Err(corrupt(&self.name, offset, "the header of a block", "a known type and length".into(), found));
        };
        payload.resize(length, 0);
        let got = self.fill(&mut payload)?;
        if got < length {
            return Err(self.cut_off("a block of a backup", length, got));
        }
        let computed = checksum::crc32c_append(checksum::crc32c_append(self.crc, &head[4..]), &payload);
        if stored != computed {
            let (expected, found) = (format!("CRC {stored:08x}"), format!("{computed:08x}"));
            return Err(corrupt(&self.name, offset, "a block, or its place in the backup", expected, found));
        }
        self.crc = stored;
        Ok(Block { kind, payload, offset })
    }

    /// Passes each part to `show`, until the stream ends or `show` fails.
    pub(crate) fn all(
        &mut self, mut memory: impl FnMut() -> Vec<u8>, mut show: impl FnMut(Part) -> Result<()>,
    ) -> Result<()> {
        while let Some(header) = self.header()? {
            show(Part::Header(header))?;
            loop {
                let block = self.block(memory())?;
                let ended = block.kind == kind::END;
                show(Part::Block(block))?;
                if ended {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads until `bytes` is full or the stream ends. Returns the number of bytes read.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < bytes.len() {
            match self.stream.read(&mut bytes[got..]) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(path_error("read", Path::new(&self.name))(error)),
            }
        }
        self.offset += got as u64;
        Ok(got)
    }

    fn cut_off(&self, what: &str, wanted: usize, got: usize) -> Error {
        let found = format!("the end of the backup after {got}: it was cut off");
        corrupt(&self.name, self.offset - got as u64, what, format!("{wanted} bytes"), found)
    }
}

/// Decodes the header at `offset` of the file or stream `name`.
pub(super) fn header(bytes: &[u8; HEADER_BYTES], name: &str, offset: u64) -> Result<Header> {
    Header::decode(bytes).map_err(|error| match error {
        HeaderError::Magic if offset == 0 => {
            let reason = "it does not begin like a backup".to_owned();
            Error::ForeignBackup { file: name.to_owned(), reason }
        }
        HeaderError::Magic => {
            let what = "what follows a backup";
            corrupt(name, offset, what, "the next backup, or nothing".into(), format!("{:02x?}", &bytes[..8]))
        }
        HeaderError::Version(found) => Error::NewerVersion { path: name.into(), found, supported: VERSION },
        HeaderError::Checksum(stored, computed) => {
            let (expected, found) = (format!("CRC {stored:08x}"), format!("{computed:08x}"));
            corrupt(name, offset, "the header of a backup", expected, found)
        }
    })
}

/// Error of a damaged backup.
pub(super) fn corrupt(file: &str, offset: u64, what: &str, expected: String, found: String) -> Error {
    Error::Corrupt { file: file.to_owned(), offset, what: what.to_owned(), expected, found }
}
