//! States that a table retains, and going back to them.
//!
//! 1. Some append tables retain states. After each step those that are new are told apart by the counter that they
//!    hold, and what they must hold is kept by
//!    their seq: all listed by then are durable.
//! 2. After a crash none of these is missing but the oldest, for newer ones, or where a rollback had left one too many;
//!    those that a checkpoint made whose end was not seen are behind one of the last commits. Each is read in full.
//! 3. A rollback is as durable as a commit that syncs; a crash in the middle leaves what there was before, or what
//!    there is after it.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use braid::{CommitHeader, Seq, Structure, Table, TableAt, TableOptions};
use rand::{Rng, seq::IteratorRandom};

use super::{
    BEGIN, COUNTER, State, World,
    content::{Content, Outcome, difference},
};

/// What a retained state must hold.
#[derive(Clone)]
pub(super) struct Then {
    counter: u64,
    content: Arc<Content>,
    expiries: Arc<BTreeMap<Vec<u8>, u64>>,
}

/// What the retained states of each table must hold.
pub(super) type Retained = [BTreeMap<Seq, Then>; 2];

/// Some tables that can retain states do so, few or more.
pub(super) fn options(seed: u64, structures: [Structure; 2], tables: [TableOptions; 2]) -> [TableOptions; 2] {
    let history = [seed / 36, seed / 108].map(|number| [0, 1, 4][usize::try_from(number % 3).unwrap_or(0)]);
    let [left, right] = tables;
    let with = |table: TableOptions, which: usize| match structures[which] {
        Structure::Append => table.history(history[which]),
        _ => table,
    };
    [with(left, 0), with(right, 1)]
}

impl Then {
    /// What is retained of a state at a time at which it was the newest.
    fn new(state: &State, which: usize, time: u64) -> Self {
        let content = state.as_of(which, time);
        let expired = state.expired[which].iter().map(|(key, (_, expiry))| (key, expiry));
        let expiries = state.expiries[which].iter().chain(expired).filter(|(key, _)| content.contains_key(*key));
        let expiries = expiries.map(|(key, expiry)| (key.clone(), *expiry)).collect();
        Self { counter: state.counters[which], content: Arc::new(content), expiries: Arc::new(expiries) }
    }

    fn compare(&self, then: &TableAt) -> Outcome<()> {
        let found: Result<Content, _> = then.iter().collect();
        let mut found = found.map_err(|error| format!("scanning it: {error}"))?;
        let counter =
            found.remove(COUNTER).map_or(0, |value| u64::from_le_bytes(value.try_into().expect("eight bytes")));
        if counter != self.counter {
            return Err(format!("it is behind commit {counter} instead of {}", self.counter));
        }
        difference(&self.content, &found).map_or(Ok(()), Err)
    }
}

fn open(table: &Table, header: &CommitHeader) -> Outcome<TableAt> {
    table.at(header.seq).map_err(|error| format!("opening it: {error}"))
}

fn in_words(table: &Table, header: &CommitHeader, problem: &str) -> String {
    format!("the state of {} retained at {}: {problem}", table.name(), header.seq.0)
}

impl World {
    /// Learns what states are new, each behind one of the last commits, and forgets those that are gone; or nothing,
    /// where the power went meanwhile.
    pub(super) fn note_retained(&mut self, tables: &[Table; 2]) -> Outcome<()> {
        let mut retained = Retained::default();
        for (which, table) in tables.iter().enumerate() {
            for header in &table.history() {
                let then = match self.retained[which].get(&header.seq) {
                    Some(then) => then.clone(),
                    None => {
                        let candidates = self.states.iter().chain(&self.before);
                        let then = recognise(table, header, which, candidates, self.now);
                        then.map_err(|problem| in_words(table, header, &problem))?
                    }
                };
                retained[which].insert(header.seq, then);
            }
        }
        if self.disk.is_crashed() {
            return Err("the power went, and nobody knows what of this is durable".into());
        }
        self.retained = retained;
        self.before = self.states.last().cloned();
        Ok(())
    }

    /// What was retained is so after a crash, and each state holds what it held.
    pub(super) fn check_retained(&mut self, tables: &[Table; 2]) -> Outcome<()> {
        for (which, table) in tables.iter().enumerate() {
            let history = table.history();
            let (first, known) = (history.first().map_or(Seq(0), |header| header.seq), &self.retained[which]);
            let lost = known.keys().find(|seq| **seq >= first && history.iter().all(|header| header.seq != **seq));
            // A rollback leaves one more than there are to be, until the next checkpoint.
            let least = known.len().min(table.settings().history as usize);
            if let Some(seq) = lost.or(known.keys().next().filter(|_| history.len() < least)) {
                return Err(format!("the state of {} retained at {} is lost", table.name(), seq.0));
            }
        }
        self.note_retained(tables)?;
        for (which, table) in tables.iter().enumerate() {
            table.history().iter().try_for_each(|header| self.compare_retained(which, table, header))?;
        }
        Ok(())
    }

    fn compare_retained(&self, which: usize, table: &Table, header: &CommitHeader) -> Outcome<()> {
        let compared = open(table, header).and_then(|then| self.retained[which][&header.seq].compare(&then));
        compared.map_err(|problem| in_words(table, header, &problem))
    }

    /// Reads a retained state, if there is one.
    pub(super) fn read_retained(&mut self, tables: &[Table; 2]) -> Outcome<()> {
        let all = tables
            .iter()
            .enumerate()
            .flat_map(|(which, table)| table.history().into_iter().map(move |header| (which, table, header)));
        let Some((which, table, header)) = all.choose(&mut self.random) else { return Ok(()) };
        self.compare_retained(which, table, &header)
    }

    /// Goes back to a retained state, if there is one.
    pub(super) fn roll_back(&mut self, tables: &[Table; 2]) -> braid::Result<()> {
        let which = self.random.random_range(0..2);
        let Some((&to, then)) = self.retained[which].iter().choose(&mut self.random) else { return Ok(()) };
        let mut state = self.states.last().expect("never empty").clone();
        (state.number, state.time, state.counters[which]) = (state.number + 1, self.now, then.counter);
        state.tables[which].clone_from(&then.content);
        state.expiries[which].clone_from(&then.expiries);
        state.expired[which].clear();
        state.expire(self.now);
        self.states.push(state);
        tables[which].roll_back(to)?;
        self.states.drain(..self.states.len() - 1);
        self.written = self.states[0].number;
        self.told = self.now;
        Ok(())
    }
}

/// Behind which commit a state was retained, by its counter, and what it must hold.
fn recognise<'a>(
    table: &Table, header: &CommitHeader, which: usize, mut candidates: impl Iterator<Item = &'a State>, now: u64,
) -> Outcome<Then> {
    let counter = open(table, header)?.get(COUNTER).map_err(|error| format!("reading its counter: {error}"))?;
    let counter = counter.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("eight bytes")));
    let Some(state) = candidates.find(|state| state.counters[which] == counter) else {
        return Err(format!("it is behind commit {counter}, which is none of the last"));
    };
    let time = header.time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_millis());
    let time = u64::try_from(time).unwrap_or(u64::MAX).saturating_sub(BEGIN);
    if time > now {
        return Err(format!("it is of {time} ms, and it is {now} ms now"));
    }
    Ok(Then::new(state, which, time))
}
