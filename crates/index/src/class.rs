//! Which batches may use the space that is kept for what gives space back.

use space::Class;

use crate::{Batch, Horizon, Operation, Update};

/// The class of the space that a batch takes: it may use what is kept for deletes where it gives back more than it takes, or deletes wait behind it. What a range delete hides from
/// everybody, or has expired, is to go as a delete is.
#[must_use]
pub fn class_of(batch: &dyn Batch, horizon: &Horizon) -> Class {
    let goes = |update: &Update<'_>| {
        let is_over = |expiry| horizon.is_over(expiry, update.seq, None);
        let is_gone = update.operation.expiry().is_some_and(is_over) || horizon.is_hidden(update.key, update.seq);
        usize::from(is_gone) + usize::from(matches!(update.operation, Operation::Delete))
    };
    let deletes: usize = (0..batch.len()).map(|index| goes(&batch.get(index))).sum();
    match deletes * 2 > batch.len() {
        true => Class::Reclaim,
        false => batch.class(),
    }
}
