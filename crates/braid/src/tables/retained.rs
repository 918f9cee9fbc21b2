//! The retained states of a table in use: protected, restored, and opened ([`crate::tables::history`]).

use std::{collections::BTreeSet, sync::Arc};

use doclog::SegmentId;
use index::Seq;

use crate::{
    error::{Error, Result},
    format::RetainedHeader,
    options::no_history,
    tables::{
        catalog::{TableCore, TableState},
        history::{CommitHeader, State},
    },
};

/// Protects the segments that the retained states of a table refer to, and no others. A durable checkpoint knows these
/// states.
pub(crate) fn pin(table: &TableCore) -> Result<()> {
    let states = table.history.states.lock().clone();
    if let Some(past) = table.tree.history() {
        past.protect(&mut states.iter().map(|state| state.header.root.as_slice()))?;
    }
    let segments: BTreeSet<SegmentId> =
        states.iter().flat_map(|state| &state.header.documents).map(|retained| retained.segment).collect();
    table.documents.pin(&segments);
    Ok(())
}

/// Adds a retained state, the newest of a table.
pub(crate) fn add(table: &TableCore, header: RetainedHeader) -> Result<()> {
    table.history.add(state_of(table, header)?);
    Ok(())
}

fn state_of(table: &TableCore, header: RetainedHeader) -> Result<Arc<State>> {
    let described = table.past()?.describe(&header.root)?;
    Ok(State::new(header, described))
}

/// Restores the states that a checkpoint knows of a table that is being opened.
pub(crate) fn restore(table: &TableCore, headers: &[RetainedHeader]) -> Result<()> {
    let states = headers.iter().map(|header| state_of(table, header.clone())).collect::<Result<_>>()?;
    *table.history.states.lock() = states;
    pin(table)
}

/// A retained state that was opened. The state stays readable as long as this value lives, even when it is given up.
pub(crate) struct Opened {
    pub(crate) header: RetainedHeader,
    pub(crate) commit_header: CommitHeader,
    pub(crate) state: Arc<TableState>,
}

impl TableCore {
    /// The older states of the structure.
    pub(crate) fn past(&self) -> Result<&dyn index::History> {
        self.tree.history().ok_or_else(no_history)
    }

    /// Opens the state of `seq`.
    pub(crate) fn open_state(&self, seq: Seq) -> Result<Opened> {
        // Held meanwhile, because a state is given up before its readers are counted.
        let states = self.history.states.lock();
        let Some(state) = states.iter().find(|state| state.header.seq == seq) else {
            let retained = states.iter().map(|state| state.header.seq.0).collect();
            return Err(Error::NoSuchState { name: self.name.clone(), seq: seq.0, retained });
        };
        self.opened(state)
    }

    /// Opens all retained states.
    pub(crate) fn open_states(&self) -> Result<Vec<Opened>> {
        self.history.states.lock().iter().map(|state| self.opened(state)).collect()
    }

    fn opened(&self, state: &State) -> Result<Opened> {
        let (header, commit_header) = (state.header.clone(), state.commit_header());
        let state = self.retained_state(self.past()?.at(&header.root)?, header.tombstones.clone());
        Ok(Opened { header, commit_header, state })
    }
}
