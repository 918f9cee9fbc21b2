//! `--inline-bytes`, and what shows it.

use crate::common::{Place, braid, braid_with_input, text};

#[test]
fn a_table_stores_values_beside_their_keys_as_it_was_created_to() {
    let place = Place::new();
    let (db, value) = (place.database(), place.file("value", "x".repeat(16 << 10)));
    let put = |more: &[&str]| braid(&[&["put", &db, "page", "--file", &value], more].concat());
    put(&["--structure", "btree", "--inline-bytes", "4096"]).expect(2).says("at most 2048 bytes");
    put(&["--structure", "lsm", "--inline-bytes", "16384"]).expect(0);
    // It stays what it is, and whoever wants something else is told.
    put(&["--inline-bytes", "16384"]).expect(0);
    put(&["--inline-bytes", "100"]).expect(2).says("has inline bytes 16384, not 100");
    put(&["--inline-bytes", "70000"]).expect(2);
    // A dump and a backup have it too.
    let [dumped, restored] = ["dumped", "restored"].map(|name| text(&place.path(name)));
    let dump = braid(&["dump", &db]).expect(0);
    assert!(dump.text().contains("\"inline_bytes\":16384"), "{}", dump.text());
    braid_with_input(&["restore", "-", &dumped], &dump.stdout).expect(0);
    let backup = braid(&["backup", &db, "-"]).expect(0);
    braid_with_input(&["restore", "-", &restored], &backup.stdout).expect(0);
    for copy in [&db, &dumped, &restored] {
        braid(&["put", copy, "page", "y", "--inline-bytes", "16384"]).expect(0);
        let table = braid(&["tables", copy, "--json"]).expect(0).json()[0].clone();
        assert_eq!(table["document_live_bytes"], 0, "{table}");
    }
}
