//! An earlier moment of a table, for readers that look at what was then.

use std::sync::Arc;

use arc_swap::Guard;
use index::Moment;

use crate::{
    error::Result,
    tables::catalog::{TableCore, TableState},
};

/// An earlier moment, for readers that look at what was then.
pub(crate) trait Then: Send + Sync {
    /// What there was of a table, and the moment to look at in that.
    fn of(&self, table: &TableCore) -> Result<(Guard<Arc<TableState>>, Moment)>;
}
