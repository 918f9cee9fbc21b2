//! The database that is damaged, and all that was ever written to it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use braid::{Database, Options, Seq, Structure, Table, TableOptions};
use psync::{Buffer, OpenOptions, Request, sim::SimDisk};

/// Files and what is in them.
pub(crate) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Of each key all values that it had, oldest first, each with its seq; none where it was deleted.
pub(crate) type History = BTreeMap<Vec<u8>, Vec<(u64, Option<Vec<u8>>)>>;

/// How the database ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Closed,
    Killed,
    PowerCut,
}

/// A database that was made.
pub(crate) struct Made {
    pub(crate) files: Files,
    /// The tables that it has.
    pub(crate) tables: BTreeMap<String, History>,
    /// The name that goes with each id, also of the table that was dropped.
    pub(crate) names: BTreeMap<u32, String>,
}

/// A disk with these files.
pub(crate) fn disk_with(files: &Files) -> SimDisk {
    let disk = SimDisk::new(1);
    let psync = disk.psync();
    for (path, bytes) in files {
        for parent in path.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            if !psync.exists(parent).expect("known") {
                psync.create_directory(parent).expect("made");
            }
        }
        let new = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let file = psync.open(path, &new).expect("new");
        if !bytes.is_empty() {
            psync.run_all(vec![Request::write(&file, 0, Buffer::from_slice(bytes), 0)]).expect("written");
        }
    }
    disk
}

/// Writes, and notes what was written.
struct Maker {
    database: Database,
    tables: BTreeMap<String, History>,
}

impl Maker {
    fn note(&mut self, table: &Table, key: Vec<u8>, value: Option<Vec<u8>>) {
        let seq = self.database.snapshot().seq().0;
        let history = self.tables.entry(table.name().to_owned()).or_default();
        history.entry(key).or_default().push((seq, value));
    }

    fn put(&mut self, table: &Table, key: u32, value: Vec<u8>) {
        table.put(key.to_be_bytes(), &value).expect("put");
        self.note(table, key.to_be_bytes().to_vec(), Some(value));
    }

    fn delete(&mut self, table: &Table, key: u32) {
        table.delete(key.to_be_bytes()).expect("delete");
        self.note(table, key.to_be_bytes().to_vec(), None);
    }

    fn delete_range(&mut self, table: &Table, keys: std::ops::Range<u32>) {
        table.delete_range(keys.start.to_be_bytes()..keys.end.to_be_bytes()).expect("delete");
        keys.for_each(|key| self.note(table, key.to_be_bytes().to_vec(), None));
    }
}

/// Goes back to the oldest state that is retained.
fn roll_back(maker: &mut Maker, table: &Table) {
    let state = table.history()[0].seq;
    let now = table.roll_back(state).expect("goes back");
    for versions in maker.tables.get_mut(table.name()).expect("it was written to").values_mut() {
        let then = versions.iter().rfind(|(seq, _)| Seq(*seq) <= state);
        versions.push((now.0, then.and_then(|(_, value)| value.clone())));
    }
}

/// A value that tells key and round.
fn value(key: u32, round: u32, bytes: usize) -> Vec<u8> {
    let number = key.to_le_bytes().into_iter().chain(round.to_le_bytes());
    number.cycle().take(bytes).collect()
}

impl Made {
    pub(crate) fn new(end: End) -> Self {
        let disk = SimDisk::new(3);
        let open = |options: Options| options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let mut maker = Maker { database: open(super::options()), tables: BTreeMap::new() };
        let small = maker.database.table("small leaves", Structure::BTree).expect("a table");
        for key in 0..600 {
            maker.put(&small, key, value(key, 0, 40));
        }
        maker.database.checkpoint().expect("a checkpoint");
        // Appended runs, some of tombstones.
        for key in (0..600).step_by(7) {
            maker.put(&small, key, value(key, 1, 44));
        }
        for key in (0..600).step_by(11) {
            maker.delete(&small, key);
        }
        drop(small);
        let tables = std::mem::take(&mut maker.tables);
        maker.database.close().expect("closes");

        let mut maker = Maker { database: open(super::options().leaf_pages(4)), tables };
        let large = maker.database.table("large leaves", Structure::BTree).expect("a table");
        for key in 0..250 {
            maker.put(&large, key, value(key, 0, if key % 25 == 0 { 3000 } else { 300 }));
        }
        let gone = maker.database.table("gone", Structure::BTree).expect("a table");
        gone.put("k", "v").expect("put");
        let loaded = maker.database.table("loaded", Structure::Append).expect("a table");
        let pairs: Vec<_> = (0..200_u32).map(|key| (key.to_be_bytes(), value(key, 9, 60))).collect();
        loaded.load(pairs.iter().map(|(key, value)| (key, value))).expect("loads");
        for (key, value) in pairs {
            maker.note(&loaded, key.to_vec(), Some(value));
        }
        let nodes = maker.database.table("nodes", Structure::Append).expect("a table");
        for key in 0..300 {
            maker.put(&nodes, key, value(key, 0, if key % 25 == 0 { 3000 } else { 100 + (key as usize % 3) * 100 }));
        }
        let retaining = TableOptions::new().history(4);
        let [back, forth] = ["back", "forth"]
            .map(|name| maker.database.table_with(name, Structure::Append, &retaining).expect("a table"));
        for key in 0..60 {
            maker.put(&back, key, value(key, 0, if key % 25 == 0 { 3000 } else { 100 }));
            maker.put(&forth, key, value(key, 0, 40));
        }
        maker.database.checkpoint().expect("a checkpoint");
        let names = maker.database.tables().into_iter().map(|table| (table.id, table.name));
        let mut names: BTreeMap<_, _> = names.collect();
        maker.database.drain().expect("drains");
        for key in (0..250).step_by(9) {
            maker.put(&large, key, value(key, 1, 310));
            maker.put(&nodes, key, value(key, 1, 290));
            maker.delete(&nodes, key + 1);
        }
        maker.delete_range(&nodes, 200..220);
        // What a rollback takes back, of which the image knows, and one that only the log has.
        for (table, round) in [(&back, 5), (&forth, 6)] {
            (0..60).step_by(3).for_each(|key| maker.put(table, key, value(key, round, 50)));
            maker.delete_range(table, 20..40);
            maker.put(table, 30, value(30, round, 2500));
        }
        roll_back(&mut maker, &back);
        maker.put(&back, 7, value(7, 7, 30));
        // Ranges that the image knows, and that only the log does.
        maker.delete_range(&large, 100..120);
        maker.put(&large, 110, value(110, 3, 20));
        roll_back(&mut maker, &forth);
        maker.put(&forth, 8, value(8, 8, 30));
        // A load that only the log has, and deletes behind it that are swept: what moves says the same of what is
        // applied.
        let swept = maker.database.table("swept", Structure::Append).expect("a table");
        let pairs: Vec<_> = (0..100_u32).map(|key| (key.to_be_bytes(), value(key, 10, 50))).collect();
        swept.load(pairs.iter().map(|(key, value)| (key, value))).expect("loads");
        for (key, value) in pairs {
            maker.note(&swept, key.to_vec(), Some(value));
        }
        maker.delete_range(&swept, 10..30);
        drop(gone);
        maker.database.drop_table("gone").expect("drops");
        // A root that only the log has.
        for key in (0..250).step_by(10) {
            maker.delete(&large, key);
            maker.put(&nodes, key, value(key, 2, 30));
        }
        maker.database.drain().expect("drains");
        // Operations that no tree has.
        let small = maker.database.open_table("small leaves").expect("it is there");
        for key in (0..600).step_by(13) {
            maker.put(&small, key, value(key, 2, 48));
        }
        maker.put(&large, 3, value(3, 2, 2500));
        maker.delete(&small, 5);
        maker.put(&nodes, 5, value(5, 4, 270));
        maker.delete(&nodes, 77);
        maker.delete_range(&small, 300..330);
        maker.put(&small, 310, value(310, 3, 20));
        let late = maker.database.table("late", Structure::BTree).expect("a table");
        (0..20).for_each(|key| maker.put(&late, key, value(key, 0, 20)));
        // A commit is known durable no sooner than another one comes behind it, and damage hits both if they share a
        // sector.
        (0..3).for_each(|_| late.put("last", [1; 2 * super::SECTOR]).map(drop).expect("put"));
        names.extend(maker.database.tables().into_iter().map(|table| (table.id, table.name)));
        let tables = maker.tables;
        drop((small, large, loaded, nodes, late, back, forth, swept));
        match end {
            End::Closed => maker.database.close().expect("closes"),
            End::Killed => disk.kill(),
            End::PowerCut => disk.restart(),
        }
        let read = |path: PathBuf| disk.read_file(&path).map(|bytes| (path, bytes));
        let files = disk.files().into_iter().filter_map(read).collect();
        Self { files, tables, names }
    }
}
