//! `--compression`, and what shows it.

use crate::common::{Place, braid, braid_with_input, text};

#[test]
fn a_table_is_compressed_as_it_was_created() {
    let place = Place::new();
    let (db, value) = (place.database(), place.file("value", "a line of it\n".repeat(4000)));
    for (structure, compression) in [("btree", "zstd"), ("append", "lz4")] {
        let put = |more: &[&str]| braid(&[&["put", &db, "page", "--file", &value, "-t", structure], more].concat());
        put(&["--structure", structure, "--compression", compression]).expect(0);
        // It stays what it is, and whoever wants something else is told.
        put(&[]).expect(0);
        put(&["--compression", compression]).expect(0);
        put(&["--compression", "none"]).expect(2).says(&format!("has compression {compression}, not none"));
        put(&["--compression", "gzip"]).expect(2).says("none, lz4, zstd");
        let stats = braid(&["tables", &db, "--json"]).expect(0);
        let table = stats.json().iter().find(|table| table["name"] == structure).expect("it is listed").clone();
        assert_eq!(table["compression"], compression);
        let (live, segments) = (table["document_live_bytes"].as_u64(), table["document_segments"].as_u64());
        assert!(live.is_some_and(|bytes| bytes > 0 && bytes < 2000) && segments.is_some(), "{table}");
        assert!(braid(&["stats", &db]).expect(0).text().contains(compression));
    }
    // What was put again goes.
    braid(&["compact", &db]).expect(0);
    let verified = braid(&["verify", &db, "--json"]).expect(0).json()[0].clone();
    assert_eq!(verified["document_bytes"], 2 * 52_000);
    assert!(verified["document_stored_bytes"].as_u64().is_some_and(|bytes| bytes < 4000), "{verified}");
    assert!(braid(&["verify", &db]).expect(0).text().contains("are stored in"));

    // A dump, a backup and a salvage have it too.
    let compressions = |db: &str| -> Vec<_> {
        let tables = braid(&["tables", db, "--json"]).expect(0).json();
        tables.iter().map(|table| (table["name"].clone(), table["compression"].clone())).collect()
    };
    let expected = compressions(&db);
    let dump = braid(&["dump", &db]).expect(0);
    let [dumped, restored, salvaged] = ["dumped", "restored", "salvaged"].map(|name| text(&place.path(name)));
    braid_with_input(&["restore", "-", &dumped], &dump.stdout).expect(0);
    let backup = braid(&["backup", &db, "-"]).expect(0);
    braid_with_input(&["restore", "-", &restored], &backup.stdout).expect(0);
    braid(&["salvage", &db, &salvaged]).expect(0);
    for copy in [&dumped, &restored, &salvaged] {
        assert_eq!(compressions(copy), expected);
        assert_eq!(braid(&["get", copy, "page", "-t", "append"]).expect(0).text(), "a line of it\n".repeat(4000));
    }
    let wrong = dump.text().replace("\"lz4\"", "\"gzip\"");
    let to = text(&place.path("wrong"));
    braid_with_input(&["restore", "-", &to], wrong.as_bytes()).expect(2).says("none of none, lz4, zstd");
}

#[test]
fn lines_are_loaded_compressed() {
    let place = Place::new();
    let (db, lines) = (place.database(), format!("key\t{}\n", "again and ".repeat(1000)));
    for more in [&["-t", "plain"][..], &["-t", "sorted", "--sorted"]] {
        let load = [&["load", &db, "--tsv", "-", "--compression", "zstd"], more].concat();
        braid_with_input(&load, lines.as_bytes()).expect(0);
    }
    for table in braid(&["tables", &db, "--json"]).expect(0).json() {
        assert_eq!(table["compression"], "zstd");
        assert!(table["document_live_bytes"].as_u64().is_some_and(|bytes| bytes < 200), "{table}");
    }
}

#[test]
fn a_benchmark_measures_values_that_become_shorter() {
    let place = Place::new();
    let bench = |compression: &str| {
        let db = text(&place.path(compression));
        let options = ["--db", &db, "--num", "500", "--value-size", "4k", "--compressible", "0.5"];
        let measure = ["--duration", "50ms", "--pairs", "1", "--compression", compression, "--json"];
        let reports = braid(&[&["bench", "fillrandom,readrandom"], &options[..], &measure].concat()).expect(0).json();
        assert_eq!((reports[0]["compression"].as_str(), &reports[1]["not_found"]), (Some(compression), &0.into()));
        let verified = braid(&["verify", &db, "--json"]).expect(0).json()[0].clone();
        let field = |name: &str| verified[name].as_f64().expect("a number");
        field("document_stored_bytes") / field("document_bytes")
    };
    assert!((bench("none") - 1.0).abs() < 1e-9);
    let share = bench("lz4");
    assert!((0.5..0.6).contains(&share), "{share}");
}
