//! Standard output: lines for people, or JSON for programs.
//!
//! A write to a closed pipe is [`Error::Output`](crate::exit::Error::Output) with a broken pipe, which ends the command
//! quietly.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;

use crate::exit::Result;

/// Buffered standard output.
pub(crate) struct Output {
    stdout: BufWriter<StdoutLock<'static>>,
    /// Whether standard output is a terminal.
    pub(crate) terminal: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        let stdout = io::stdout().lock();
        let terminal = stdout.is_terminal();
        Self { stdout: BufWriter::with_capacity(64 << 10, stdout), terminal }
    }

    /// A line of text.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<()> {
        self.write(text.as_ref().as_bytes())?;
        self.write(b"\n")
    }

    /// Bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stdout.write_all(bytes)?)
    }

    /// One JSON object on a line of its own.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value).map_err(io::Error::from)?;
        self.line(text)
    }

    /// Writes out the buffer. Callers flush before long work and at the end, because a drop hides errors.
    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(self.stdout.flush()?)
    }
}

/// Rows of text in columns; the first is aligned left, the others right.
pub(crate) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Names and values in two columns, both aligned left.
pub(crate) fn list(rows: &[(impl AsRef<str>, String)]) -> Vec<String> {
    let width = rows.iter().map(|(name, _)| name.as_ref().chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{:<width$}  {value}", name.as_ref())).collect()
}

/// A title, and rows of text in columns below it.
pub(crate) fn section(title: &str, rows: &[Vec<String>], output: &mut Output) -> Result<()> {
    output.line("")?;
    output.line(title)?;
    for line in table(rows) {
        output.line(format!("  {line}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "1,000".into()], vec!["bcd".into(), "µs".into()]];
        assert_eq!(table(&rows), ["a    1,000", "bcd     µs"]);
        assert_eq!(list(&[("a", "1".into()), ("bcd", "x".into())]), ["a    1", "bcd  x"]);
    }
}
