//! Lines of a file or of standard input, counted.
//!
//! A thread of its own reads standard input, so that an interrupt is noticed while no input comes.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::exit::{Error, Result};
use crate::interrupt;

/// Longest line: key and value with every byte written as six characters (`\u00ff`), and some JSON around them.
const LINE_BYTES_MAX: u64 = (braid::VALUE_BYTES_MAX + braid::Structure::BTree.key_bytes_max() as u64) * 6 + 1024;
/// Bytes of one read.
const CHUNK_BYTES: usize = 256 << 10;
/// How often the wait for input checks for an interrupt.
const TICK: Duration = Duration::from_millis(100);

/// Lines of a file or of standard input.
pub(in crate::commands) struct Lines {
    /// The file, for messages.
    pub(in crate::commands) name: String,
    /// Length of the file; `None` for other inputs.
    pub(in crate::commands) bytes: Option<u64>,
    /// Number of the last line handed out, from 1.
    pub(in crate::commands) number: u64,
    reader: Box<dyn BufRead + Send>,
    line: Vec<u8>,
}

impl Lines {
    /// Opens a file, or standard input for `-`.
    pub(in crate::commands) fn open(path: &Path) -> Result<Self> {
        if path.as_os_str() == "-" {
            let reader = BufReader::with_capacity(CHUNK_BYTES, Stdin::start());
            return Ok(Self::new("standard input".into(), Box::new(reader), None));
        }
        let file = std::fs::File::open(path).map_err(Error::io("opening", path))?;
        let metadata = file.metadata().map_err(Error::io("reading", path))?;
        let bytes = metadata.is_file().then_some(metadata.len());
        Ok(Self::new(path.display().to_string(), Box::new(BufReader::with_capacity(CHUNK_BYTES, file)), bytes))
    }

    fn new(name: String, reader: Box<dyn BufRead + Send>, bytes: Option<u64>) -> Self {
        Self { name, bytes, number: 0, reader, line: Vec::new() }
    }

    /// The error for a last line that cannot be loaded, after `loaded` records that are kept.
    pub(in crate::commands) fn wrong(self, problem: String, loaded: u64) -> Error {
        Error::Line { source_name: self.name, line: self.number, problem, loaded }
    }

    /// The next byte; `None` at the end.
    pub(in crate::commands) fn first_byte(&mut self) -> Result<Option<u8>> {
        Ok(self.reader.fill_buf().map_err(Error::io("reading", &self.name))?.first().copied())
    }

    /// The rest of the input, unchanged.
    pub(in crate::commands) fn into_reader(self) -> Box<dyn BufRead + Send> {
        self.reader
    }

    /// The next line without its line break; `None` at the end, or after an interrupt, because the last line may then
    /// be cut.
    pub(in crate::commands) fn next_line(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        self.number += 1;
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        let read = read.map_err(Error::io("reading", &self.name))?;
        if read == 0 || interrupt::came() {
            return Ok(None);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if read as u64 == LINE_BYTES_MAX {
            return Err(Error::Usage(format!(
                "{}:{}: the line is longer than any record can be",
                self.name, self.number
            )));
        }
        Ok(Some(&self.line))
    }
}

/// Standard input, which ends at its own end or at an interrupt.
struct Stdin {
    chunks: Receiver<io::Result<Vec<u8>>>,
    current: Cursor<Vec<u8>>,
}

impl Stdin {
    fn start() -> Self {
        let (sender, chunks) = sync_channel(4);
        // The thread ends with its input, with the reader of its chunks, or with the process.
        thread::spawn(move || {
            let mut stdin = io::stdin().lock();
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let read = stdin.read(&mut chunk);
                let ended = !matches!(&read, Ok(1..));
                let interrupted = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted);
                let sent = sender.send(read.map(|read| {
                    chunk.truncate(read);
                    chunk
                }));
                if (ended && !interrupted) || sent.is_err() {
                    return;
                }
            }
        });
        Self { chunks, current: Cursor::new(Vec::new()) }
    }
}

impl Read for Stdin {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.current.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            match self.chunks.recv_timeout(TICK) {
                Ok(chunk) => self.current = Cursor::new(chunk?),
                Err(RecvTimeoutError::Timeout) if !interrupt::came() => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_and_the_last_needs_no_break() {
        let mut lines = Lines::new("x".into(), Box::new(Cursor::new(b"a\n\nlast".to_vec())), None);
        for expected in [b"a".as_slice(), b"", b"last"] {
            assert_eq!(lines.next_line().expect("read"), Some(expected));
        }
        assert_eq!(lines.number, 3);
        assert_eq!(lines.next_line().expect("read"), None);
    }
}
