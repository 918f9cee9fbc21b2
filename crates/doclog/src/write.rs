//! Writing documents into the room reserved for them.
//!
//! Documents that lie next to each other are one sequence of bytes, written in pieces of up to [`PIECE_BYTES`]. All pieces of a call
//! are one psync; of a large one, no more than [`PIECES_IN_FLIGHT`] are in memory at a time.

use psync::{Buffer, Completion, File, Psync, Request, Stream};

use crate::format::{ALIGNMENT, encode_header, identity_crc};
use crate::segments::Reservation;
use crate::{DocPointer, Result};

/// Most bytes of one write.
const PIECE_BYTES: usize = 1 << 20;
/// Most writes in flight: what an append needs of memory beside its documents.
const PIECES_IN_FLIGHT: usize = 16;

const _: () = assert!(PIECE_BYTES.is_multiple_of(ALIGNMENT));

/// Where the documents go, and their checksums.
pub(crate) fn pointers(table: u32, reserved: &[Reservation], documents: &[&[u8]]) -> Vec<DocPointer> {
    let mut pointers: Vec<DocPointer> = Vec::with_capacity(documents.len());
    for reservation in reserved {
        let mut offset = reservation.offset;
        let first = pointers.len();
        for document in &documents[first..first + reservation.documents] {
            let length = document.len() as u64;
            let identity = identity_crc(table, reservation.segment, offset, length);
            let pointer = DocPointer {
                segment: reservation.segment,
                offset,
                length,
                crc: checksum::crc32c_append(identity, document),
            };
            offset += pointer.stored_bytes();
            pointers.push(pointer);
        }
        assert_eq!(offset, reservation.end, "a reservation holds exactly its documents");
    }
    pointers
}

/// Writes every document where its pointer says.
pub(crate) fn write(
    psync: &Psync, table: u32, reserved: &[Reservation], pointers: &[DocPointer], documents: &[&[u8]],
) -> Result<()> {
    let mut writer = Writer::new(psync);
    let mut rest = pointers.iter().zip(documents);
    for reservation in reserved {
        let mut sequence = Sequence::new(&mut writer, reservation);
        for (pointer, document) in rest.by_ref().take(reservation.documents) {
            let header = encode_header(table, pointer);
            let used = (header.len() + document.len()) as u64;
            let padding = [0; ALIGNMENT];
            sequence.put(&header);
            sequence.put(document);
            sequence.put(&padding[..usize::try_from(pointer.stored_bytes() - used).unwrap_or(0)]);
        }
        sequence.finish();
    }
    writer.finish()
}

/// Collects the pieces of a call; hands them over together, or one by one where they are too many to be held.
struct Writer<'a> {
    psync: &'a Psync,
    gathered: Vec<Request>,
    stream: Option<Stream>,
    spare: Vec<Buffer>,
    outcome: psync::Result<()>,
}

impl<'a> Writer<'a> {
    fn new(psync: &'a Psync) -> Self {
        Self { psync, gathered: Vec::new(), stream: None, spare: Vec::new(), outcome: Ok(()) }
    }

    fn write(&mut self, file: &File, offset: u64, buffer: Buffer) {
        let request = Request::write(file, offset, buffer, 0);
        if self.stream.is_none() {
            self.gathered.push(request);
            if self.gathered.len() > PIECES_IN_FLIGHT {
                let mut stream = self.psync.stream(PIECES_IN_FLIGHT);
                self.gathered.drain(..).for_each(|request| stream.push(request));
                self.stream = Some(stream);
            }
            return;
        }
        while let Some(stream) = &mut self.stream
            && stream.in_flight() >= PIECES_IN_FLIGHT
            && let Some(completion) = stream.next()
        {
            self.take(completion);
        }
        // After a failure the rest is not written: the room is given back.
        if let Some(stream) = &mut self.stream
            && self.outcome.is_ok()
        {
            stream.push(request);
        }
    }

    fn take(&mut self, completion: Completion) {
        self.spare.extend(completion.buffer);
        if self.outcome.is_ok() {
            self.outcome = completion.result;
        }
    }

    /// A buffer of so many bytes, whatever is in it.
    fn buffer(&mut self, bytes: usize) -> Buffer {
        match self.spare.pop() {
            Some(mut buffer) if buffer.len() >= bytes => {
                buffer.truncate(bytes);
                buffer
            }
            _ => Buffer::zeroed(bytes),
        }
    }

    fn finish(mut self) -> Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        for completion in self.psync.run(gathered) {
            self.take(completion);
        }
        if let Some(stream) = self.stream.take() {
            for completion in stream {
                self.take(completion);
            }
        }
        Ok(self.outcome?)
    }
}

/// A sequence of bytes that becomes pieces.
struct Sequence<'a, 'b> {
    writer: &'a mut Writer<'b>,
    file: &'a File,
    /// Where the piece that is being filled goes.
    offset: u64,
    end: u64,
    piece: Buffer,
    filled: usize,
}

impl<'a, 'b> Sequence<'a, 'b> {
    fn new(writer: &'a mut Writer<'b>, reservation: &'a Reservation) -> Self {
        let (offset, end) = (reservation.offset, reservation.end);
        let piece = writer.buffer(piece_bytes(offset, end));
        Self { writer, file: &reservation.file, offset, end, piece, filled: 0 }
    }

    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.filled == self.piece.len() {
                self.next();
            }
            let room = &mut self.piece[self.filled..];
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
        }
    }

    fn next(&mut self) {
        let after = self.offset + self.piece.len() as u64;
        let fresh = self.writer.buffer(piece_bytes(after, self.end));
        let full = std::mem::replace(&mut self.piece, fresh);
        self.writer.write(self.file, self.offset, full);
        self.offset = after;
        self.filled = 0;
    }

    fn finish(self) {
        assert_eq!(self.offset + self.filled as u64, self.end, "a reservation is written to its end");
        self.writer.write(self.file, self.offset, self.piece);
    }
}

fn piece_bytes(offset: u64, end: u64) -> usize {
    usize::try_from(end - offset).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)
}
