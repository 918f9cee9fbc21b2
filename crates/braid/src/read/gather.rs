//! Reads what callers without a thread of their own have asked for ([`crate::engine::lookups`]).

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::{
    engine::{
        Engine,
        lookups::{Request, Values},
    },
    error::Result,
    read::point,
};

/// Answers requests until no more come.
pub(crate) fn answer_all(engine: &Arc<Engine>) {
    while let Some(mut batch) = engine.lookups.next() {
        batch.sort_by_key(|request| request.table.id);
        while let Some(first) = batch.first() {
            let table = first.table.id;
            let rest = batch.split_off(batch.partition_point(|request| request.table.id == table));
            let requests = std::mem::replace(&mut batch, rest);
            // What it leaves unanswered gets an error, and the next requests are read.
            let read = catch_unwind(AssertUnwindSafe(|| answer(engine, requests)));
            if read.is_err() {
                events::error!("a lookup panicked");
            }
        }
    }
}

/// Answers requests for keys of one table, read as one batch.
fn answer(engine: &Engine, requests: Vec<Request>) {
    match read(engine, &requests) {
        Ok(values) => {
            let mut values = values.into_iter();
            for request in requests {
                let own = values.by_ref().take(request.keys.len()).collect();
                request.answer(Ok(own));
            }
        }
        // One of them has the fault; the others have their answers.
        Err(_) if requests.len() > 1 => requests.into_iter().for_each(|request| answer(engine, vec![request])),
        Err(error) => requests.into_iter().for_each(|request| request.answer(Err(error.clone()))),
    }
}

fn read(engine: &Engine, requests: &[Request]) -> Result<Values> {
    let Some(first) = requests.first() else { return Ok(Vec::new()) };
    let keys: Vec<&[u8]> = requests.iter().flat_map(|request| &request.keys).map(Vec::as_slice).collect();
    point::read_many(engine, &first.table, &keys, None)
}
