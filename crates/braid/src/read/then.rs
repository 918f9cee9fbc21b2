//! An earlier moment of a table, for readers of the past.

use std::sync::Arc;

use arc_swap::Guard;
use index::Moment;

use crate::{
    error::Result,
    tables::catalog::{TableCore, TableState},
};

/// An earlier moment, for readers of the past.
pub(crate) trait Then: Send + Sync {
    /// The state of a table at that time, and the moment to look at in that state.
    fn of(&self, table: &TableCore) -> Result<(Guard<Arc<TableState>>, Moment)>;
}
