//! What a database takes from its device: measured when it is created, looked up when it is opened.

use std::{fs, path::Path};

use braid::{Database, ErrorKind, Options, Structure, TableOptions};

fn open(path: &Path) -> Database {
    Options::new().cache_bytes(1 << 20).write_buffer_bytes(1 << 20).segment_bytes(64 << 10).open(path).expect("opens")
}

fn profile(path: &Path) -> Option<serde_json::Value> {
    let text = fs::read(path.join("device.json")).ok()?;
    Some(serde_json::from_slice(&text).expect("JSON"))
}

fn new_leaf(db: &Database, name: &str, expected: &TableOptions) -> u32 {
    let table = db.table_with(name, Structure::BTree, expected).expect("a table");
    table.stats().expect("reads").pages_of_new_leaf
}

#[test]
fn the_device_is_measured_when_something_is_created() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    open(path).close().expect("closes");
    let first = profile(path).expect("creating measures");
    fs::remove_file(path.join("device.json")).expect("removed");
    let db = open(path);
    assert_eq!(profile(path), None, "opening does not");
    db.table("t", Structure::BTree).expect("a table");
    let second = profile(path).expect("creating a table does");
    assert_eq!(second["device"], first["device"]);
    db.close().expect("closes");
    fs::remove_file(path.join("device.json")).expect("removed");
    let db = open(path);
    db.table("t", Structure::BTree).expect("the table");
    assert_eq!(profile(path), None, "opening a table does not");
}

#[test]
fn the_profile_decides_on_requests_in_flight_and_leaves() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    open(path).close().expect("closes");
    let mut profile = profile(path).expect("creating measures");
    for (best, in_flight) in [(1, 32), (64, 64), (256, 256)] {
        profile["best_depth"] = best.into();
        fs::write(path.join("device.json"), profile.to_string()).expect("written");
        assert_eq!(open(path).psync().pio_max(), in_flight);
    }
    // Larger requests are as slow as all the smaller ones in them: nothing is won by larger leaves but fewer of them.
    let mut with = |page_us: f64, request_us: f64| {
        for kind in ["reads", "writes"] {
            for size in profile[kind].as_array_mut().expect("sizes") {
                let pages = size["pages"].as_f64().expect("a number");
                size["alone_us"] = (10.0 * (request_us + page_us * pages)).into();
                size["batched_us"] = (request_us + page_us * pages).into();
            }
        }
        fs::write(path.join("device.json"), profile.to_string()).expect("written");
        open(path)
    };
    let db = with(10.0, 0.0);
    let usual = TableOptions::new().records(20_000_000).record_bytes(116);
    let dear = new_leaf(&db, "usual", &usual);
    assert!(dear <= 2, "{dear}");
    assert!(new_leaf(&db, "written", &usual.insert_share(1.0)) > dear);
    // It stays what it was created with.
    assert_eq!(new_leaf(&db, "written", &usual.insert_share(0.0)), new_leaf(&db, "written", &usual));
    drop(db);
    // Requests cost much and their pages next to nothing: leaves are larger.
    let db = with(0.1, 10.0);
    assert!(new_leaf(&db, "cheap pages", &usual) > dear);
    drop(db);
    assert!(new_leaf(&open(path), "written", &usual) > 1);
}

#[test]
fn what_leaf_pages_says_goes_before_the_profile() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Options::new().leaf_pages(3).open(directory.path()).expect("opens");
    assert_eq!(new_leaf(&db, "t", &TableOptions::new().insert_share(1.0)), 3);
    assert_eq!(profile(directory.path()), None, "nothing depends on the device");
}

#[test]
fn an_impossible_use_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(directory.path());
    let expected = TableOptions::new().insert_share(1.01);
    let error = db.table_with("t", Structure::BTree, &expected).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(db.tables().is_empty());
}
