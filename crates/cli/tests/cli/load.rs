//! Every source of `braid load`, and what happens to what does not fit.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Answer, Place, braid, braid_with_input, command, text};

#[test]
fn a_directory_is_loaded_and_comes_back_byte_for_byte() {
    let place = Place::new();
    let db = place.database();
    let long = "d".repeat(200);
    let over_the_limit = format!("tree/{long}/{long}/{long}/{long}/{long}/{}", "f".repeat(100));
    place.file("tree/a.txt", "first");
    place.file("tree/sub/deep/b.bin", (0..=255).cycle().take(70_000).collect::<Vec<u8>>());
    place.file("tree/sub/empty", "");
    place.file("tree/sub/ümläut", "name");
    place.file(&over_the_limit, "left out");
    symlink("a.txt", place.path("tree/link")).expect("linked");
    symlink("..", place.path("tree/sub/up")).expect("linked");
    let tree = text(&place.path("tree"));

    let answer = braid(&["load", &db, "--files", &tree, "--json"])
        .expect(1)
        .says("limit of a key")
        .says("1 files could not be loaded");
    let report = &answer.json()[0];
    assert_eq!(report["records"], 4);
    assert_eq!(report["directories"], 8);
    assert_eq!(report["skipped"]["long_paths"], 1);
    assert_eq!(report["skipped"]["symbolic_links"], 2);
    assert_eq!(report["skipped"]["unreadable"], 0);

    assert_eq!(braid(&["scan", &db, "--keys-only"]).expect(0).text(), "a.txt\nsub/deep/b.bin\nsub/empty\nsub/ümläut\n");
    for name in ["a.txt", "sub/deep/b.bin", "sub/empty", "sub/ümläut"] {
        let content = std::fs::read(place.path("tree").join(name)).expect("read");
        assert_eq!(braid(&["get", &db, name]).expect(0).stdout, content, "{name}");
    }
    braid(&["verify", &db]).expect(0);
}

#[test]
fn a_database_inside_the_directory_does_not_load_itself() {
    let place = Place::new();
    place.file("tree/a", "a");
    let db = text(&place.path("tree/inside.db"));
    for _ in 0..2 {
        let answer = braid(&["load", &db, "--files", &text(&place.path("tree")), "--json"]).expect(0);
        assert_eq!(answer.json()[0]["records"], 1);
    }
    assert_eq!(braid(&["scan", &db]).expect(0).text(), "a\ta\n");
}

#[test]
fn sorted_lines_are_loaded_all_or_none_and_the_table_is_compacted() {
    let place = Place::new();
    let db = place.database();
    place.file("sorted.tsv", (0..5000).map(|number| format!("{number:06}\tvalue {number}\n")).collect::<String>());
    place.file("unsorted.tsv", "a\t1\nc\t2\nb\t3\n");
    let (sorted, unsorted) = (text(&place.path("sorted.tsv")), text(&place.path("unsorted.tsv")));
    let answer = braid(&["load", &db, "--tsv", &unsorted, "--sorted"]).expect(2).says("unsorted.tsv:3: pair 3");
    assert!(answer.stderr.contains("out of order") && answer.stderr.contains("kept: 0"), "{}", answer.stderr);
    assert_eq!(braid(&["scan", &db]).expect(0).text(), "");
    let report = braid(&["load", &db, "--tsv", &sorted, "--sorted", "--json"]).expect(0).json();
    assert_eq!(report[0]["records"], 5000);
    braid(&["load", &db, "--tsv", &sorted, "--sorted"]).expect(2).says("not empty");
    braid(&["load", &db, "--files", ".", "--sorted"]).expect(2);
    assert_eq!(braid(&["get", &db, "004999"]).expect(0).text(), "value 4999");

    braid(&["load", &db, "--tsv", &unsorted]).expect(0);
    let report = &braid(&["compact", &db, "--json"]).expect(0).json()[0];
    let (before, after) = (&report["tables"][0]["before"], &report["tables"][0]["after"]);
    assert!(after["bytes"].as_u64() > Some(0) && after["bytes"].as_u64() <= before["bytes"].as_u64(), "{report}");
    assert!(report["bytes_rewritten"].as_u64() > Some(75_000), "{report}");
    braid(&["compact", &db, "--table", "default"]).expect(0);
    braid(&["compact", &db, "--table", "nobody"]).expect(3);
    assert_eq!(braid(&["scan", &db, "--keys-only"]).expect(0).text().lines().count(), 5003);
    braid(&["verify", &db]).expect(0);
}

#[test]
fn what_scan_prints_loads_into_a_copy() {
    let place = Place::new();
    let db = place.database();
    let every_byte: Vec<u8> = (0..=255).collect();
    place.file("tree/bytes", &every_byte);
    place.file("tree/tab\there", "line\nbreak\\");
    braid(&["load", &db, "--files", &text(&place.path("tree"))]).expect(0);
    let scan = |db: &str, format: &[&str]| braid(&[["scan", db].as_slice(), format].concat()).expect(0).stdout;
    for (name, scan_options, load_options) in [
        ("escaped", [].as_slice(), ["--tsv", "-"].as_slice()),
        ("hex", &["--format", "hex"], &["--tsv", "-", "--format", "hex"]),
        ("json", &["--json"], &["--jsonl", "-"]),
    ] {
        let copy = text(&place.path(name));
        let lines = scan(&db, scan_options);
        braid_with_input(&[["load", &copy].as_slice(), load_options].concat(), &lines).expect(0);
        assert_eq!(scan(&copy, &["--format", "hex"]), scan(&db, &["--format", "hex"]), "{name}");
    }
}

#[test]
fn what_expires_does_so_in_copies_too() {
    let place = Place::new();
    let db = place.database();
    braid(&["put", &db, "session", "42", "--ttl", "7d"]).expect(0);
    braid(&["put", &db, "stays", "1"]).expect(0);
    braid(&["put", &db, "never", "0", "--ttl", "0"]).expect(2);
    let lines = braid(&["scan", &db, "--json"]).expect(0);
    assert!(lines.json()[0]["expires_ms"].as_u64().is_some_and(|millis| millis > 1_700_000_000_000));
    assert_eq!(lines.json()[1], serde_json::json!({"key": "stays", "value": "1"}));
    assert_eq!(braid(&["get", &db, "session", "--json"]).expect(0).json()[0], lines.json()[0]);
    let (copy, again) = (text(&place.path("copy")), text(&place.path("again")));
    braid_with_input(&["load", &copy, "--jsonl", "-"], &lines.stdout).expect(0);
    assert_eq!(braid(&["scan", &copy, "--json"]).expect(0).stdout, lines.stdout);
    let dump = braid(&["dump", &db]).expect(0).stdout;
    braid_with_input(&["restore", "-", &again], &dump).expect(0);
    assert_eq!(braid(&["scan", &again, "--json"]).expect(0).stdout, lines.stdout);
}

#[test]
fn lines_from_files() {
    let place = Place::new();
    let db = place.database();
    let tsv = place.file("a.tsv", "plain\tvalue\twith tab\nesc\\taped\t\\xff\nlast\tno break");
    let answer = braid(&["load", &db, "--tsv", &tsv, "--json"]).expect(0);
    assert_eq!(answer.json()[0]["records"], 3);
    assert_eq!(braid(&["get", &db, "plain"]).expect(0).text(), "value\twith tab");
    assert_eq!(braid(&["get", &db, "esc\taped"]).expect(0).stdout, [0xff]);
    assert_eq!(braid(&["get", &db, "last"]).expect(0).text(), "no break");

    let raw = place.file("raw.tsv", b"c:\\new\t\\q\xff\r\n");
    braid(&["load", &db, "--tsv", &raw, "--format", "raw", "-t", "raw"]).expect(0);
    assert_eq!(braid(&["get", &db, "c:\\new", "-t", "raw"]).expect(0).stdout, b"\\q\xff\r");

    let jsonl =
        place.file("a.jsonl", "{\"key\":\"j\",\"value\":\"ü\\n\"}\n\n{\"key_hex\":\"ff\",\"value_hex\":\"\"}\n");
    let answer = braid(&["load", &db, "--jsonl", &jsonl, "--table", "json", "--json"]).expect(0);
    assert_eq!(answer.json()[0]["records"], 2);
    assert_eq!(braid(&["scan", &db, "-t", "json"]).expect(0).text(), "j\tü\\n\n\\xff\t\n");
}

#[test]
fn a_bad_line_is_named_and_what_was_before_it_is_kept() {
    let place = Place::new();
    let good: String = (0..5000).map(|number| format!("{number:05}\tv\n")).collect();
    let long_key = "k".repeat(1025);
    for (index, (bad, what)) in [
        ("no tab\n", "no tab"),
        ("a\\q\tv\n", "escape"),
        ("\tv\n", "empty"),
        (&*format!("{long_key}\tv\n"), "1025 bytes, the limit is 1024"),
    ]
    .into_iter()
    .enumerate()
    {
        let db = text(&place.path(&format!("{index}")));
        let file = place.file("bad.tsv", format!("{good}{bad}after\tit\n"));
        let answer =
            braid(&["load", &db, "--tsv", &file]).expect(2).says("bad.tsv:5001: ").says(what).says("kept: 5000");
        assert_eq!(answer.text(), "");
        assert_eq!(braid(&["scan", &db, "--keys-only"]).expect(0).text().lines().count(), 5000);
    }
    let db = place.database();
    let file = place.file("bad.jsonl", "{\"key\":\"a\",\"value\":\"b\"}\n{\"key\":\"a\"\n");
    braid(&["load", &db, "--jsonl", &file]).expect(2).says("bad.jsonl:2: ").says("kept: 1");
    assert_eq!(braid(&["scan", &db]).expect(0).text(), "a\tb\n");
}

#[test]
fn a_source_that_is_not_there_leaves_no_database_behind() {
    let place = Place::new();
    let db = place.database();
    let missing = text(&place.path("missing"));
    braid(&["load", &db, "--files", &missing]).expect(3).says("missing");
    braid(&["load", &db, "--tsv", &missing]).expect(3).says("missing");
    let file = place.file("file", "");
    braid(&["load", &db, "--files", &file]).expect(2).says("directory");
    braid(&["load", &db]).expect(2);
    braid(&["load", &db, "--tsv", &file, "--jsonl", &file]).expect(2);
    assert!(!place.path("database").exists());
}

/// Interrupts a load of ten thousand lines while it waits for more. Returns the number that it told of, and the number
/// of keys that are there.
fn interrupted(options: &[&str], says: &str) -> (String, usize) {
    let place = Place::new();
    let db = place.database();
    // Creating the database measures the device, which takes longer than the interrupt waits below.
    braid(&["put", &db, "k", "v", "--table", "other"]).expect(0);
    let mut load = command(&[&["load", &db, "--tsv", "-"], options].concat());
    let mut child = load.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    // It waits for more input when the interrupt comes: standard input stays open.
    let mut stdin = child.stdin.take().expect("piped");
    let lines: String = (0..10_000).map(|number| format!("{number:05}\tv\n")).collect();
    stdin.write_all(lines.as_bytes()).expect("taken");
    stdin.write_all(b"half a li").expect("taken");
    std::thread::sleep(Duration::from_millis(500));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    let answer = Answer::of(child.wait_with_output().expect("ends")).expect(130).says("interrupted").says(says);
    drop(stdin);
    let said: String = answer.stderr.chars().filter(char::is_ascii_digit).collect();
    let kept = braid(&["scan", &db, "--keys-only"]).expect(0).text().lines().count();
    braid(&["verify", &db]).expect(0);
    (said, kept)
}

#[test]
fn an_interrupted_load_keeps_what_it_loaded() {
    assert_eq!(interrupted(&[], "are kept"), ("10000".to_owned(), 10_000));
}

#[test]
fn an_interrupted_sorted_load_keeps_nothing() {
    assert_eq!(interrupted(&["--sorted"], "all or nothing").1, 0);
}
