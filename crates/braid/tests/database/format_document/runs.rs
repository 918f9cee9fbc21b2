//! Decodes the entries of runs of both types.

use super::check::{Reader, part};
use super::document::{Outcome, Values, ensure, number};
use super::made::EXPIRY_MILLIS;

impl Reader<'_> {
    /// The entries of a run, each with its kind, which is that of one that does not expire.
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
        let known = [("width", width), ("value bytes", 0), ("expiry bytes", 0)];
        let word = Word::of(self.document.decode("run entry", bytes, &known)?.number("word")?)?;
        let known = [("width", width), ("value bytes", word.value), ("expiry bytes", word.expiry)];
        let entry = self.document.decode("run entry", bytes, &known)?;
        ensure!(entry.size("key bytes")? > 0, "an entry without a key");
        word.check(&entry)?;
        Ok((entry, word.kind))
    }

    fn uniform(&self, whole: &[u8], run: &Values) -> Outcome<Vec<(Values, u64)>> {
        let all = self.decode("uniform run", part(whole, run.length..whole.len(), "a uniform run")?)?;
        let word = Word::of(all.number("word")?)?;
        let (key, width) = (all.size("key bytes")?, run.size("width")?);
        let least = key + word.value + word.expiry;
        ensure!(key > 0 && least >= 4, "a uniform run of {key} bytes of key, {least} with the rest");
        let known = [("width", width), ("key bytes", key), ("value bytes", word.value), ("expiry bytes", word.expiry)];
        let (mut at, mut entries) = (run.length + all.length, Vec::new());
        for _ in 0..run.size("count")? {
            let bytes = part(whole, at..whole.len(), "an entry")?;
            let entry = self.document.decode("uniform run entry", bytes, &known)?;
            at += entry.length;
            word.check(&entry)?;
            entries.push((entry, word.kind));
        }
        ensure!(at == whole.len(), "a uniform run ends at {at} of {}", whole.len());
        Ok(entries)
    }
}

/// What a word says of the value.
struct Word {
    /// 4 and 5 are 1 and 3 that expire.
    kind: u64,
    value: usize,
    expiry: usize,
}

impl Word {
    fn of(word: u64) -> Outcome<Self> {
        let value = usize::try_from(word % (1 << 12)).map_err(|error| error.to_string())?;
        let (kind, expiry) = match word >> 12 {
            4 => (1, 8),
            5 => (3, 8),
            kind => (kind, 0),
        };
        let possible = match kind {
            1 => value <= 2048,
            2 => value == 0,
            3 => value == 28,
            _ => false,
        };
        ensure!(possible, "an entry of kind {kind} with {value} bytes");
        Ok(Self { kind, value, expiry })
    }

    /// All that expires does so at the same time.
    fn check(&self, entry: &Values) -> Outcome<()> {
        let expiry = entry.number("expiry")?;
        let expected = if self.expiry > 0 { EXPIRY_MILLIS } else { 0 };
        ensure!(expiry == expected, "an entry expires at {expiry}");
        Ok(())
    }
}
