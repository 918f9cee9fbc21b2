//! `braid device` measures, and shows what the cost model makes of it.

use std::path::Path;

use psync::probe::{self, RequestKind, RequestTimes};

use crate::common::{Place, braid};

#[test]
fn the_figures_are_there_for_programs() {
    let place = Place::new();
    let answer = braid(&["device", &place.path("").to_string_lossy(), "--json", "--insert-share", "0.9"]).expect(0);
    let report = &answer.json()[0];
    let choice = &report["choice"];
    let estimates = choice["estimates"].as_array().expect("a list");
    let sizes: Vec<_> = estimates.iter().map(|of| of["leaf_pages"].as_u64().expect("a number")).collect();
    assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64]);
    assert!(sizes.contains(&choice["leaf_pages"].as_u64().expect("a number")));
    for of in estimates {
        let number = |part: &str, name: &str| of[part][name].as_f64().expect("a number");
        let (leaf, scan) = (number("search", "leaf_us"), number("search", "scan_us"));
        let search = number("search", "total_us");
        // A lookup, and now and then a short scan.
        let leaves = search - number("search", "nodes_us");
        assert!((leaf.min(scan)..=leaf.max(scan)).contains(&leaves), "{of}");
        let insert = ["node_reads_us", "node_writes_us", "append_us", "rewrite_us", "flush_us"];
        let insert = insert.map(|name| number("insert", name));
        assert!((number("insert", "total_us") - insert.iter().sum::<f64>()).abs() < 1e-6, "{of}");
        let total = 0.1 * search + 0.9 * insert.iter().sum::<f64>();
        assert!((of["total_us"].as_f64().expect("a number") - total).abs() < 1e-6, "{of}");
        assert!(of["paper_us"].as_f64().expect("a number") > 0.0);
    }
    assert_eq!(report["workload"]["insert_share"], 0.9);
    for kind in ["direct", "buffered"] {
        let cost = &report["profile"][format!("durable_{kind}")];
        let [flushed, dsync] = ["flushed_us", "dsync_us"].map(|name| cost[name].as_f64().expect("a number"));
        assert!(flushed > 0.0 && dsync > 0.0);
        let faster = if dsync <= 0.9 * flushed { "dsync" } else { "flush" };
        assert_eq!(report[format!("durable_write_{kind}")], faster, "{cost}");
    }
    assert_eq!(choice["write_buffer_bytes"], 36 << 20, "as a database has where nothing is said");
}

#[test]
fn explain_shows_each_term_and_why() {
    let place = Place::new();
    let directory = place.path("").to_string_lossy().into_owned();
    let plain = braid(&["device", &directory]).expect(0).text();
    assert!(plain.contains("P_r(L)") && plain.contains("P'_w(L)") && !plain.contains("Cost model"), "{plain}");
    assert!(plain.contains("Durable writes") && plain.contains("RWF_DSYNC"), "{plain}");
    let text = braid(&["device", &directory, "--explain", "--memory", "128m"]).expect(0).text();
    for part in
        ["128.0 MiB of memory", "G", "rewrite when full", "paper: operation", "<- chosen", "PioMax", "L  ", "O  "]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(std::fs::read_dir(place.path("")).expect("lists").next().is_none(), "it leaves nothing behind");
    braid(&["device", &directory, "--memory", "1g", "--cache", "1m"]).expect(2).says("--memory");
    braid(&["device", &directory, "--insert-share", "1.5"]).expect(2).says("0 to 1");
}

#[test]
fn memory_in_one_sum_is_divided() {
    let place = Place::new();
    let db = place.database();
    braid(&["put", &db, "k", "v", "--memory", "64m"]).expect(0);
    let stats = braid(&["stats", &db, "--memory", "64m", "--json"]).expect(0);
    let stats = &stats.json()[0];
    let bytes = |value: &serde_json::Value| value.as_u64().expect("a number");
    let (cache, write_buffer) =
        (bytes(&stats["cache"]["capacity_bytes"]), bytes(&stats["write_buffer_capacity_bytes"]));
    let transactions = bytes(&stats["transaction_capacity_bytes"]);
    let read_ahead = bytes(&stats["read_ahead_capacity_bytes"]);
    // An eighth is for what lies unused between them.
    assert_eq!(cache + write_buffer + transactions + read_ahead, 56 << 20);
    assert_eq!((transactions, read_ahead), (4 << 20, 4 << 20));
    // What the model chose depends on the device; the least of each part does not.
    assert!(cache.min(write_buffer) >= (cache + write_buffer) / 32, "{cache} {write_buffer}");
}

/// Leaves what reads took in a database, as if it had been used: on a drive half as fast as the ordinary one, in so
/// many minutes. Those of one page are there where they are said to
/// be.
fn requests_took(database: &str, timings: u32, minutes: u32, has_pages: bool) {
    let (times, drive) = (RequestTimes::default(), probe::DeviceProfile::default());
    for timing in 0..timings {
        let minute = u64::from(timing * minutes / timings);
        for read in drive.reads.iter().filter(|read| has_pages || read.pages > 1) {
            times.note(minute, RequestKind::Read, read.pages, 1, 2.0 * read.alone_us, 1);
            times.note(minute, RequestKind::Read, read.pages, 64, 2.0 * read.batched_us, 64);
        }
    }
    let backend = psync::Psync::new(None).expect("a backend").backend();
    probe::keep_times(Path::new(database), backend, &times).expect("saved");
}

#[test]
fn what_was_learned_is_shown_and_saved_when_asked() {
    let place = Place::new();
    let db = place.database();
    braid(&["device", "--learned", &db]).expect(3);
    braid(&["put", &db, "k", "v"]).expect(0);
    let file = Path::new(&db).join(probe::LEARNED_NAME);
    let _ = std::fs::remove_file(&file);
    braid(&["device", "--learned", &db]).expect(3).says("nothing was learned yet");

    let refused = |why: &str| {
        let refused = braid(&["device", "--learned", "--save", &db]).expect(1);
        refused.says("too little was learned").says("P_r(1) read alone, too few").says(why).says("lookups");
        assert!(!Path::new(&db).join(probe::PROFILE_NAME).exists());
    };
    requests_took(&db, 2, 2, true);
    let text = braid(&["device", "--learned", &db]).expect(0).text();
    assert!(text.contains("P'_r(64)") && text.contains("too few: 2 of 32 timings"), "{text}");
    assert!(text.contains("goes by an ordinary NVMe drive") && !text.contains("Saved"), "{text}");
    assert!(!text.contains("proportion"), "nothing was seen for others to keep a proportion to: {text}");
    refused("2 of 32 timings");
    requests_took(&db, 100, 4, true);
    refused("4 of 5 minutes");
    requests_took(&db, 100, 100, false);
    refused("0 of 32 timings");
    let text = braid(&["device", "--learned", &db]).expect(0).text();
    assert!(text.contains("2 more were not seen: they keep their proportion"), "{text}");

    requests_took(&db, 100, 100, true);
    let shown = braid(&["stats", &db]).expect(0).text();
    assert!(shown.contains("device, taken for an ordinary NVMe drive"), "{shown}");
    assert!(shown.contains("80.0 µs") && shown.contains("would be"), "{shown}");
    let explained = braid(&["device", "--learned", "--explain", &db]).expect(0).text();
    for part in [
        "80.0 µs",
        "6,400",
        "spread",
        "What it would change",
        "pages of a leaf",
        "background requests",
        "Cost model",
        "<- chosen",
    ] {
        assert!(explained.contains(part), "{part} is not in {explained}");
    }
    assert!(!explained.contains("write buffer  "), "memory is as given: {explained}");
    let divided = braid(&["device", "--learned", &db, "--memory", "64m"]).expect(0).text();
    assert!(divided.contains("\n  write buffer  "), "{divided}");
    let saved = braid(&["device", "--learned", "--save", &db, "--json"]).expect(0);
    let report = &saved.json()[0];
    let read_us = report["learned"]["profile"]["read_us"].as_f64().expect("a number");
    assert!((read_us / 160.0 - 1.0).abs() < 0.04, "{read_us}");
    assert_eq!(report["in_use"]["read_us"], 80.0);
    assert_eq!(report["is_learned_saved"], true);
    assert_eq!(report["choice"]["leaf_pages"], report["by_learned"]["leaf_pages"]);
    assert!(report["by_in_use"]["gap_pages"].is_u64() && report["by_in_use"]["background_depth"] == 10);
    let stats = braid(&["stats", &db, "--json"]).expect(0);
    assert_eq!(stats.json()[0]["device"]["source"], "saved");
    assert_eq!(stats.json()[0]["device"]["profile"]["read_us"], read_us);
    braid(&["compact", &db, "--insert-share", "0.9"]).expect(0);
    braid(&["compact", &db, "--insert-share", "1.9"]).expect(2).says("0 to 1");
    braid(&["compact", &db, "--batched-share", "0.5"]).expect(2).says("--insert-share");
}

#[test]
fn a_learned_file_that_is_damaged_is_told() {
    let place = Place::new();
    let db = place.database();
    braid(&["put", &db, "k", "v"]).expect(0);
    requests_took(&db, 100, 100, true);
    let file = Path::new(&db).join(probe::LEARNED_NAME);
    let mut bytes = std::fs::read(&file).expect("reads");
    bytes[70] ^= 1;
    std::fs::write(&file, bytes).expect("writes");
    braid(&["device", "--learned", &db]).expect(1).says("checksum").says("learned anew");
    let text = braid(&["stats", &db]).expect(0).text();
    assert!(text.contains("cannot use what was learned from requests"), "{text}");
}
