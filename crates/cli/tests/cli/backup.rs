//! Backups and dumps there and back.

use std::fs;

use crate::common::{Place, braid, braid_with_input, text};

/// A database with two tables, and what `scan` shows of them.
fn made() -> (Place, String, Vec<String>) {
    let place = Place::new();
    let db = place.database();
    place.file("a.tsv", (0..3000).map(|number| format!("{number:06}\tvalue {number}\n")).collect::<String>());
    braid(&["load", &db, "--tsv", &text(&place.path("a.tsv")), "--retain-log", "64m"]).expect(0);
    braid(&["put", &db, r"\xff\x00", r"\xfe", "--format", "escaped", "--table", "other", "--retain-log", "64m"])
        .expect(0);
    let scans = scans(&db);
    (place, db, scans)
}

fn scans(db: &str) -> Vec<String> {
    let table = |name| braid(&["scan", db, "--table", name]).expect(0).text();
    vec![table("default"), table("other")]
}

#[test]
fn a_chain_in_a_directory_comes_back() {
    let (place, db, _) = made();
    let (backups, again) = (text(&place.path("backups")), text(&place.path("again")));
    braid(&["backup", &db, &backups, "--incremental"]).expect(3).says("no full backup");
    let report = &braid(&["backup", &db, &backups, "--json"]).expect(0).json()[0];
    assert_eq!(
        (report["kind"].as_str(), report["records"].as_u64(), report["tables"].as_u64()),
        (Some("full"), Some(3001), Some(2))
    );
    assert!(report["file"].as_str().is_some_and(|file| file.ends_with("000001.full")));
    braid(&["put", &db, "new", "one", "--retain-log", "64m"]).expect(0);
    braid(&["del", &db, "000007", "--retain-log", "64m"]).expect(0);
    let said = braid(&["backup", &db, &backups, "--incremental"]).expect(0).text();
    assert!(said.contains("incremental backup") && said.contains("2 changes"), "{said}");

    let said = braid(&["restore", &backups, &again]).expect(0).text();
    assert!(said.contains("2 backups") && said.contains("3,001 records, then 2 changes"), "{said}");
    assert_eq!(scans(&again), scans(&db));
    braid(&["verify", &again]).expect(0);
    braid(&["restore", &backups, &again]).expect(2).says("give a new or empty directory");

    // There is nothing to continue in another directory.
    let fresh = text(&place.path("fresh"));
    let said = braid(&["backup", &db, &fresh, "--incremental", "--or-full"]).expect(0).text();
    assert!(said.contains("full backup"), "{said}");

    let mut bytes = fs::read(place.path("backups/000001.full")).expect("read");
    bytes[5000] ^= 1;
    fs::write(place.path("damaged"), bytes).expect("written");
    let other = text(&place.path("other"));
    braid(&["restore", &text(&place.path("damaged")), &other]).expect(5).says("damaged at byte");
    assert!(!place.path("other").exists());
}

#[test]
fn a_chain_in_a_stream_comes_back() {
    let (place, db, _) = made();
    let again = text(&place.path("again"));
    let full = braid(&["backup", &db, "-", "--json"]).expect(0);
    let report: serde_json::Value = serde_json::from_str(&full.stderr).expect("a report aside");
    let point = report["point"].as_str().expect("a point").to_owned();
    braid(&["put", &db, "new", "one", "--retain-log", "64m"]).expect(0);
    let since = braid(&["backup", &db, "-", "--since", &point]).expect(0).says("incremental backup");
    let chain = [full.stdout.clone(), since.stdout].concat();
    braid_with_input(&["restore", "-", &again], &chain).expect(0);
    assert_eq!(scans(&again), scans(&db));

    let cut = text(&place.path("cut"));
    braid_with_input(&["restore", "-", &cut], &chain[..chain.len() - 1]).expect(5).says("cut off");
    assert!(!place.path("cut").exists() && !place.path("cut.restoring").exists());
    braid(&["backup", &db, "-", "--since", "nonsense"]).expect(2).says("two ids and a seq");
    braid(&["backup", &db, "-", "--incremental"]).expect(2).says("--since POINT");
}

#[test]
fn a_dump_comes_back_and_is_lines_of_json() {
    let (place, db, scanned) = made();
    let dump = braid(&["dump", &db]).expect(0);
    let lines = dump.json();
    assert_eq!((&lines[0]["braid_dump"], lines.len()), (&1.into(), 3001 + 4));
    assert_eq!(lines[1], serde_json::json!({"table": "default", "structure": "btree"}));
    assert_eq!(lines[2], serde_json::json!({"key": "000000", "value": "value 0"}));
    assert_eq!(lines[3003], serde_json::json!({"key_hex": "ff00", "value_hex": "fe"}));
    assert_eq!(lines[3004], serde_json::json!({"end": {"tables": 2, "records": 3001}}));
    let again = text(&place.path("again"));
    let said = braid_with_input(&["restore", "-", &again], &dump.stdout).expect(0).text();
    assert!(said.contains("a dump: 3,001 records"), "{said}");
    assert_eq!(scans(&again), scanned);
    assert_eq!(braid(&["dump", &again, "--table", "other"]).expect(0).json().len(), 4);

    let to = text(&place.path("to"));
    let wrong = |content: &str, code: i32, says: &str| {
        let file = place.file("wrong.jsonl", content);
        braid(&["restore", &file, &to]).expect(code).says(says);
        assert!(!place.path("to").exists() && !place.path("to.restoring").exists());
    };
    let text = dump.text();
    let until_end = text.trim_end().rsplit_once('\n').expect("many lines").0;
    wrong(until_end, 5, "cut off");
    wrong(&format!("{until_end}\n{{\"end\":{{\"tables\":2,\"records\":3000}}}}\n"), 2, "counts other");
    wrong(&format!("{text}{{\"key\":\"a\",\"value\":\"b\"}}\n"), 2, "behind the line");
    let head = "{\"braid_dump\":1,\"seq\":1}\n";
    wrong(&format!("{head}{{\"key\":\"a\",\"value\":\"b\"}}\n"), 2, ":2: a record comes before any table");
    let table = format!("{head}{{\"table\":\"t\",\"structure\":\"btree\"}}\n");
    wrong(&format!("{table}{{\"key\":\"b\",\"value\":\"\"}}\n{{\"key\":\"a\",\"value\":\"\"}}\n"), 2, "out of order");
    wrong(&format!("{table}{{\"key\":\"a\"}}\n"), 2, "neither `value`");
    wrong("{\"braid_dump\":9,\"seq\":1}\n", 2, "version 9");
    wrong("{\"key\":\"a\",\"value\":\"b\"}\n", 2, "`braid load`");
    wrong("", 5, "nothing is in it");
}
