//! The settings of a structure that is built anew, for the contents and the use of its table.

use crate::{
    engine::Engine,
    error::Result,
    tables::{catalog::TableCore, traffic::Shares},
};

impl Engine {
    /// Settings of the structure of `table` if it is built anew, for the contents of the table and its use: `used_for`,
    /// or else the requests since the table was opened. None where there were too few requests to say, or where the
    /// structure has no settings: it then stays as it is.
    pub(crate) fn settings_for(&self, table: &TableCore, used_for: Option<Shares>) -> Result<Option<Vec<u8>>> {
        let Some(shares) = used_for.or_else(|| table.traffic.shares()) else { return Ok(None) };
        if table.tree.settings().is_empty() {
            return Ok(None);
        }
        let stats = table.state.load_full().view.stats()?;
        Ok(Some(self.tuning.settings_now(&self.tuning.profile, table.structure, &stats, shares)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{
        handles::batch::WriteBatch,
        options::{Options, TableHints, TableOptions},
        words::structure::Structure,
    };

    #[test]
    fn a_tree_built_anew_gets_leaves_for_what_its_table_was_asked_for() {
        let disk = psync::sim::SimDisk::new(1);
        let options = Options::new().cache_bytes(1 << 20).write_buffer_bytes(256 << 10);
        let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let hints = TableHints::new().insert_share(0.0).records(100_000_000);
        let table = db.table_with("t", Structure::BTree, &TableOptions::new().hints(hints)).expect("a table");
        let core = &table.core;
        let chosen = core.tree.settings();
        assert_eq!(table.engine().settings_for(core, None).expect("reads"), None, "nothing was asked yet");
        for first in (0..20_000_u32).step_by(500) {
            let mut batch = WriteBatch::new();
            (first..first + 500).for_each(|key| batch.put(&table, key.to_be_bytes(), [7; 100]));
            db.write(&batch).expect("writes");
        }
        db.drain().expect("applies");
        let now = table.engine().settings_for(core, None).expect("reads").expect("enough was asked");
        let said = |settings: &[u8]| (table.structure().facts().describe)(settings).expect("those of a tree");
        let leaf = |settings: &[u8]| index::value_of(&said(settings), "new leaf");
        assert!(leaf(&now) > leaf(&chosen), "{now:?} for nothing but puts, {chosen:?} for nothing but lookups");
        let stats = table.stats().expect("reads");
        assert_eq!((stats.settings, stats.settings_for_use), (said(&chosen), Some(said(&now))));
        assert_eq!(stats.insert_share, Some(1.0));
    }
}
