//! Makes the states of tables that are to be retained, before a checkpoint ([`crate::tables::history`]).

use std::collections::BTreeMap;

use doclog::{DocImage, Retained, SegmentId};
use index::Moment;

use crate::{
    apply::round::{self, Turn},
    engine::{Engine, horizon::Hold, upkeep::Upkeep},
    error::{Error, Result},
    format::RetainedHeader,
    tables::{catalog::TableCore, retained},
};

/// Retains the state of each table that is due, before a checkpoint, and gives up surplus ones.
///
/// # Errors
/// Errors that keep rounds from being run, except a full disk: then there is no new state.
pub(crate) fn retain(engine: &Engine, held: &mut Upkeep) -> Result<()> {
    for table in engine.catalog.live() {
        let keep = usize::try_from(table.history.keep()).unwrap_or(usize::MAX);
        if keep > 0 && table.history.is_due() {
            let turn = [Turn { table: table.hold(), sections: &[] }];
            let header = match apply_visible(engine, held, &turn) {
                Ok(hold) => capture(engine, &table, &hold)?,
                Err(error @ Error::DiskFull { .. }) => {
                    events::warn!(%error, table = table.name, "there is no room to retain a state");
                    continue;
                }
                Err(error) => return Err(error),
            };
            retained::add(&table, header)?;
        }
        // While a table goes back to one of its retained states, none is given up: a crash may come before the table
        // is there.
        if table.check_not_loading().is_ok() {
            table.history.trim(keep);
        }
    }
    Ok(())
}

/// Brings everything into the structure that is visible at one moment, and nothing else.
fn apply_visible<'a>(engine: &'a Engine, held: &mut Upkeep, turn: &[Turn<'_>; 1]) -> Result<Hold<'a>> {
    let [Turn { table, .. }] = turn;
    let apply = |held: &mut Upkeep| {
        while table.state.load().frozen.is_some() {
            round::run_held(engine, held, turn)?;
        }
        Ok::<_, Error>(())
    };
    apply(held)?;
    // From here on no merge drops a version that is visible at that moment.
    let hold = round::freeze_whole(engine, table, || engine.hold());
    apply(held)?;
    Ok(hold)
}

/// Captures the state of a table whose structure has everything that is visible.
fn capture(engine: &Engine, table: &TableCore, hold: &Hold<'_>) -> Result<RetainedHeader> {
    let Moment { seq, now } = hold.moment();
    // Waiting operations were committed after that moment.
    engine.publisher.between(|_, _| {
        let mut waiting = BTreeMap::new();
        for document in table.waiting_documents() {
            *waiting.entry(document.segment).or_default() += document.stored_bytes();
        }
        let documents = live(&table.documents.image(), &waiting);
        let tombstones = table.state.load().tombstones.seen_at(seq);
        Ok(RetainedHeader { seq, time: now, root: table.tree.root(), documents, tombstones })
    })
}

/// The documents of an image, without those of waiting operations.
fn live(image: &DocImage, waiting: &BTreeMap<SegmentId, u64>) -> Vec<Retained> {
    let retained = image.segments.iter().map(|segment| {
        let waiting = waiting.get(&segment.id).copied().unwrap_or(0);
        Retained { segment: segment.id, bytes: segment.live_bytes.saturating_sub(waiting), end: segment.length }
    });
    retained.filter(|retained| retained.bytes > 0).collect()
}
