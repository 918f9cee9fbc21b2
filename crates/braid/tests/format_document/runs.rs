//! Decodes the entries of runs of both types.

use crate::check::{Reader, part};
use crate::document::{Outcome, Values, ensure, number};

impl Reader<'_> {
    /// The entries of a run, each with its kind.
    pub(crate) fn entries(&self, whole: &[u8], run: &Values) -> Outcome<Vec<(Values, u64)>> {
        let count = run.size("count")?;
        match run.number("type")? {
            1 => (0..count)
                .map(|index| {
                    let slot = run.length + 2 * index;
                    let from = usize::try_from(number(part(whole, slot..slot + 2, "a slot")?)).expect("two bytes");
                    self.entry(part(whole, from..whole.len(), "an entry")?, run)
                })
                .collect(),
            2 => self.uniform(whole, run),
            other => Err(format!("a run of type {other}")),
        }
    }

    fn entry(&self, bytes: &[u8], run: &Values) -> Outcome<(Values, u64)> {
        let width = run.size("width")?;
        // The value's length is part of a word, so it is taken from there first.
        let head = self.document.decode("run entry", bytes, &[("width", width), ("value bytes", 0)])?;
        let (kind, value) = kind_and_bytes(head.number("word")?)?;
        let entry = self.document.decode("run entry", bytes, &[("width", width), ("value bytes", value)])?;
        ensure!(entry.size("key bytes")? > 0, "an entry without a key");
        Ok((entry, kind))
    }

    fn uniform(&self, whole: &[u8], run: &Values) -> Outcome<Vec<(Values, u64)>> {
        let all = self.decode("uniform run", part(whole, run.length..whole.len(), "a uniform run")?)?;
        let (kind, value) = kind_and_bytes(all.number("word")?)?;
        let key = all.size("key bytes")?;
        ensure!(key > 0 && key + value >= 4, "a uniform run of {key} + {value} bytes");
        let known = [("width", run.size("width")?), ("key bytes", key), ("value bytes", value)];
        let (mut at, mut entries) = (run.length + all.length, Vec::new());
        for _ in 0..run.size("count")? {
            let bytes = part(whole, at..whole.len(), "an entry")?;
            let entry = self.document.decode("uniform run entry", bytes, &known)?;
            at += entry.length;
            entries.push((entry, kind));
        }
        ensure!(at == whole.len(), "a uniform run ends at {at} of {}", whole.len());
        Ok(entries)
    }
}

/// What a word says of the value.
fn kind_and_bytes(word: u64) -> Outcome<(u64, usize)> {
    let value = usize::try_from(word % (1 << 14)).map_err(|error| error.to_string())?;
    let kind = word >> 14;
    let possible = match kind {
        1 => value <= 2048,
        2 => value == 0,
        3 => value == 28,
        _ => false,
    };
    ensure!(possible, "an entry of kind {kind} with {value} bytes");
    Ok((kind, value))
}
