//! Writing long runs of bytes in few large requests.
//!
//! 1. Adjacent bytes become pieces of up to [`PIECE_BYTES`].
//! 2. Few pieces are handed over together when all are there, as one psync. Of many pieces, no more than
//!    [`PIECES_IN_FLIGHT`] are in memory at a time; full pieces are written while the next ones are filled.

use crate::{Buffer, Completion, File, Psync, Request, Result, Spares, Stream};

/// Maximum size of one write, in bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Size of the first write of an append of unknown length; each next write is twice as long. Most such appends are
/// short, and zeroing the memory takes time.
const FIRST_PIECE_BYTES: usize = 64 << 10;
/// Maximum number of writes in flight: the memory of an append, apart from its documents.
const PIECES_IN_FLIGHT: usize = 4;

/// Bytes that will be written at a place.
struct Piece {
    file: File,
    offset: u64,
    buffer: Buffer,
    filled: usize,
}

/// Writes the bytes that it is given, in pieces: see the example of [`Writer::put`]. Nothing is flushed.
pub struct Writer {
    psync: Psync,
    /// Number of bytes still to come, if known, which decides the size of pieces.
    expected: Option<u64>,
    /// Size of the next piece if the total is unknown.
    next_bytes: usize,
    piece: Option<Piece>,
    gathered: Vec<Request>,
    stream: Option<Stream>,
    spares: Spares,
    outcome: Result<()>,
}

impl Writer {
    /// A writer of `expected` bytes, or of an unknown number of them.
    #[must_use]
    pub fn new(psync: &Psync, expected: Option<u64>) -> Self {
        Self {
            psync: psync.clone(),
            expected,
            next_bytes: FIRST_PIECE_BYTES,
            piece: None,
            gathered: Vec::new(),
            stream: None,
            spares: Spares::new(PIECES_IN_FLIGHT * PIECE_BYTES),
            outcome: Ok(()),
        }
    }

    /// Takes the bytes that go to `offset` of a file. If the file is direct, bytes that come one after the other have
    /// to begin and end at multiples of its unit ([`File::unit`]).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// use psync::{OpenOptions, Psync, Writer};
    ///
    /// let psync = Psync::new(None)?;
    /// let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    /// let file = psync.open(&directory.path().join("file"), &options)?;
    /// let mut writer = Writer::new(&psync, None);
    /// writer.put(&file, 0, b"one after ");
    /// writer.put(&file, 10, b"the other");
    /// writer.finish()?; // one request
    /// assert_eq!(file.len()?, 19);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(&mut self, file: &File, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut piece = self.piece_at(file, offset);
            let room = &mut piece.buffer[piece.filled..];
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            piece.filled += now.len();
            offset += now.len() as u64;
            self.expected = self.expected.map(|expected| expected.saturating_sub(now.len() as u64));
            bytes = later;
            self.piece = Some(piece);
        }
    }

    /// The piece that has room for bytes at `offset`.
    fn piece_at(&mut self, file: &File, offset: u64) -> Piece {
        if let Some(piece) = self.piece.take() {
            let is_next = piece.file == *file && piece.offset + piece.filled as u64 == offset;
            if is_next && piece.filled < piece.buffer.len() {
                return piece;
            }
            self.close(piece);
        }
        let bytes = match self.expected {
            Some(expected) => usize::try_from(expected).unwrap_or(PIECE_BYTES).clamp(1, PIECE_BYTES),
            None => {
                let longer = (2 * self.next_bytes).min(PIECE_BYTES);
                std::mem::replace(&mut self.next_bytes, longer)
            }
        };
        // What is not filled is not written, whatever it holds.
        Piece { file: file.clone(), offset, buffer: self.spares.take(bytes), filled: 0 }
    }

    fn close(&mut self, mut piece: Piece) {
        piece.buffer.truncate(piece.filled);
        self.write(Request::write(&piece.file, piece.offset, piece.buffer, 0));
    }

    fn write(&mut self, request: Request) {
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
        // After a failure the remaining pieces are not written, because the room is given back.
        if let Some(stream) = &mut self.stream
            && self.outcome.is_ok()
        {
            stream.push(request);
        }
    }

    fn take(&mut self, completion: Completion) {
        completion.buffer.into_iter().for_each(|buffer| self.spares.keep(buffer));
        if self.outcome.is_ok() {
            self.outcome = completion.result;
        }
    }

    /// Waits until all bytes that were put are written.
    ///
    /// # Errors
    /// When a write failed. Then any of the bytes may be there.
    pub fn finish(mut self) -> Result<()> {
        if let Some(piece) = self.piece.take() {
            self.close(piece);
        }
        let gathered = std::mem::take(&mut self.gathered);
        for completion in self.psync.run(gathered) {
            self.take(completion);
        }
        if let Some(stream) = self.stream.take() {
            for completion in stream {
                self.take(completion);
            }
        }
        self.outcome
    }
}
