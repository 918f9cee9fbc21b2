//! Holds what was salvaged against what there was.

use std::{collections::BTreeMap, path::Path};

use braid::{Database, Salvage, SalvagedTable, Table};

use super::made::{History, Made};

pub(crate) struct Judge<'a> {
    made: &'a Made,
}

/// The key that comes last of all, in a commit that nothing says was durable.
const LAST: &[u8] = b"last";

impl<'a> Judge<'a> {
    pub(crate) const fn new(made: &'a Made) -> Self {
        Self { made }
    }

    /// Checks every pair. Returns how many keys are not as they were, each of which was told.
    #[track_caller]
    pub(crate) fn check(&self, report: &Salvage, database: &Database) -> usize {
        let mut wrong = 0;
        for told in &report.tables {
            let table = database.open_table(&told.name).expect("the report names what is there");
            let name = self.made.names.get(&told.id);
            assert!(!told.is_name_known || name == Some(&told.name), "{} never was: {report:#?}", told.name);
            let Some(history) = name.and_then(|name| self.made.tables.get(name)) else {
                // Where its end is lost, a dropped table is back.
                assert!(!report.lost_commits.is_empty(), "{} is back: {report:#?}", told.name);
                continue;
            };
            wrong += compare(history, report, Some(told), &contents(&table));
        }
        for (id, name) in &self.made.names {
            if let Some(history) = self.made.tables.get(name)
                && report.tables.iter().all(|told| told.id != *id)
            {
                wrong += compare(history, report, None, &BTreeMap::new());
            }
        }
        wrong
    }

    /// Most keys that the damage of a place may cost.
    pub(crate) fn most_lost(&self, path: &Path, at: usize, bytes: &[u8]) -> usize {
        let all = self.made.tables.values().map(History::len).sum();
        let is_node = bytes.get(at..at + 4) == Some(b"BtNd");
        if path.ends_with("data") && !is_node { 110 } else { all }
    }
}

fn contents(table: &Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
    table.iter().map(|pair| pair.expect("a pair")).collect()
}

#[track_caller]
fn compare(
    history: &History, report: &Salvage, told: Option<&SalvagedTable>, found: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> usize {
    for key in found.keys() {
        assert!(history.contains_key(key) || key == LAST, "{} never was", key.escape_ascii());
    }
    let mut wrong = 0;
    for (key, versions) in history {
        let (seq, newest) = versions.last().expect("a version");
        let found = found.get(key);
        let was = found.is_none() || versions.iter().any(|(_, value)| value.as_ref() == found);
        assert!(was, "{} has a value that it never had", key.escape_ascii());
        if found == newest.as_ref() {
            continue;
        }
        let in_range = |told: &SalvagedTable| {
            told.lost.iter().any(|lost| lost.low <= *key && lost.high.as_ref().is_none_or(|high| key < high))
        };
        let is_document = told.is_some_and(|told| told.documents_lost.iter().any(|lost| lost.key == *key));
        assert!(!is_document || found.is_none(), "an older value of {} is back", key.escape_ascii());
        let is_commit =
            report.lost_commits.iter().any(|lost| lost.first.0 <= *seq && lost.last.is_none_or(|last| last.0 >= *seq));
        let excused = told.is_some_and(in_range) || is_document || is_commit;
        assert!(excused, "{} at seq {seq} is not as it was, and nothing says so: {report:#?}", key.escape_ascii());
        wrong += 1;
    }
    wrong
}
