//! Decides which batches may use the space that is reserved for deletes.

use space::Class;

use crate::{Batch, Horizon, Operation, Update};

/// The class of the space that a batch takes. A batch may use the reserved space if deletes wait behind the batch, or
/// if more than half of its updates remove something. An update removes something if:
///
/// - the update is a delete,
/// - a range tombstone hides its version from every reader, or
/// - its value has expired for every reader.
#[must_use]
pub fn class_of(batch: &dyn Batch, horizon: &Horizon) -> Class {
    let goes = |update: &Update<'_>| {
        let is_over = |expiry| horizon.is_over(expiry, update.seq, None);
        let is_gone = update.operation.expiry().is_some_and(is_over) || horizon.is_hidden(update.key, update.seq);
        usize::from(is_gone) + usize::from(matches!(update.operation, Operation::Delete))
    };
    let deletes: usize = (0..batch.len()).map(|index| goes(&batch.get(index))).sum();
    match batch.class() {
        Class::Emptying => Class::Emptying,
        _ if deletes * 2 > batch.len() => Class::Reclaim,
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seq;

    struct Deletes(Class);

    impl Batch for Deletes {
        fn len(&self) -> usize {
            1
        }

        fn get(&self, _: usize) -> Update<'_> {
            Update { key: b"key", seq: Seq(1), operation: Operation::Delete }
        }

        fn through(&self) -> Seq {
            Seq(1)
        }

        fn class(&self) -> Class {
            self.0
        }
    }

    #[test]
    fn deletes_have_more_than_they_ask_for_and_never_less() {
        for (asked, has) in
            [(Class::Normal, Class::Reclaim), (Class::Urgent, Class::Reclaim), (Class::Emptying, Class::Emptying)]
        {
            assert_eq!(class_of(&Deletes(asked), &Horizon::default()), has);
        }
    }
}
