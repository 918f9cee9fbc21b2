//! The leaves of a tree that is built anew, for the contents and the use of its table.

use crate::{
    engine::Engine,
    error::Result,
    tables::{catalog::TableCore, traffic::Shares},
};

impl Engine {
    /// Pages of a leaf of `table` if its tree is built anew. The model chooses for the contents of the table and its
    /// use: `used_for`, or else the requests since the table was opened. With too few requests the leaves stay as they
    /// are.
    pub(crate) fn leaf_pages_for(&self, table: &TableCore, used_for: Option<Shares>) -> Result<u32> {
        let shares = used_for.or_else(|| table.traffic.shares()).filter(|_| table.structure.facts().has_leaf_sizes);
        let Some(shares) = shares else { return Ok(table.tree.leaf_pages()) };
        let shape = table.state.load_full().view.stats()?;
        Ok(self.tuning.leaf_pages_now(&self.tuning.profile, shape.entries, shape.run_bytes, shares))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{
        handles::batch::WriteBatch,
        options::{Options, TableOptions},
        words::structure::Structure,
    };

    #[test]
    fn a_tree_built_anew_gets_leaves_for_what_its_table_was_asked_for() {
        let disk = psync::sim::SimDisk::new(1);
        let options = Options::new().cache_bytes(1 << 20).write_buffer_bytes(256 << 10);
        let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let expected = TableOptions::new().insert_share(0.0).records(100_000_000);
        let table = db.table_with("t", Structure::BTree, &expected).expect("a table");
        let core = &table.core;
        let chosen = core.tree.leaf_pages();
        assert_eq!(table.engine().leaf_pages_for(core, None).expect("reads"), chosen, "nothing was asked yet");
        for first in (0..20_000_u32).step_by(500) {
            let mut batch = WriteBatch::new();
            (first..first + 500).for_each(|key| batch.put(&table, key.to_be_bytes(), [7; 100]));
            db.write(batch).expect("writes");
        }
        db.drain().expect("applies");
        let now = table.engine().leaf_pages_for(core, None).expect("reads");
        assert!(now > chosen, "{now} pages for nothing but puts, {chosen} for nothing but lookups");
        let stats = table.stats().expect("reads");
        assert_eq!((stats.pages_of_new_leaf, stats.pages_of_leaf_for_use), (chosen, Some(now)));
        assert_eq!(stats.insert_share, Some(1.0));
    }
}
