//! get, put, del, scan: what goes in comes out, in every format.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::{Place, braid, braid_with_input, command};

#[test]
fn a_value_is_there_until_it_is_deleted() {
    let place = Place::new();
    let db = place.database();
    braid(&["put", &db, "ada", "1815"]).expect(0);
    braid(&["put", &db, "grace", "1906"]).expect(0);
    assert_eq!(braid(&["get", &db, "ada"]).expect(0).text(), "1815");
    assert_eq!(braid(&["get", &db, "grace", "ada"]).expect(0).text(), "grace\t1906\nada\t1815\n");
    braid(&["put", &db, "ada", "1852"]).expect(0);
    assert_eq!(braid(&["scan", &db]).expect(0).text(), "ada\t1852\ngrace\t1906\n");
    let deleted = braid(&["del", &db, "ada", "nobody", "--json"]).expect(0);
    assert_eq!(deleted.json()[0]["deleted"], 1);
    assert_eq!(deleted.json()[0]["not_there"], 1);
    braid(&["get", &db, "ada"]).expect(3).says("ada");
    assert_eq!(braid(&["scan", &db]).expect(0).text(), "grace\t1906\n");
    braid(&["put", &db, "mary", "1780"]).expect(0);
    let range = braid(&["del", &db, "--from", "h", "--json"]).expect(0);
    assert_eq!(range.json()[0]["ranges"], 1);
    assert_eq!(braid(&["scan", &db]).expect(0).text(), "grace\t1906\n");
    braid(&["del", &db, "--prefix", "gr"]).expect(0);
    assert_eq!(braid(&["scan", &db]).expect(0).text(), "");
}

#[test]
fn what_was_committed_is_told_as_far_as_it_is_kept() {
    let place = Place::new();
    let db = place.database();
    let keep = ["--retain-log", "64m"];
    braid(&[&["put", &db, "ada", "1815"][..], &keep[..]].concat()).expect(0);
    braid(&[&["put", &db, "00ff", "fe", "--format", "hex"][..], &keep[..]].concat()).expect(0);
    braid(&[&["del", &db, "ada"][..], &keep[..]].concat()).expect(0);
    let told = braid(&["changes", &db]).expect(0).text();
    let expected = [
        r#"{"seq":1,"created":{"table":"default","id":1,"structure":"btree","compression":"none"}}"#,
        r#"{"seq":2,"operations":[{"put":"default","id":1,"key":"ada","value":"1815"}]}"#,
        r#"{"seq":3,"operations":[{"put":"default","id":1,"key_hex":"00ff","value_hex":"fe"}]}"#,
        r#"{"seq":4,"operations":[{"delete":"default","id":1,"key":"ada"}]}"#,
    ];
    let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    assert!(told.lines().map(parse).eq(expected.map(parse)), "{told}");
    assert_eq!(braid(&["changes", &db, "--from", "2", "--limit", "1"]).expect(0).json()[0]["seq"], 3);
    assert_eq!(braid(&["changes", &db, "--from", "4"]).expect(0).text(), "");
    braid(&["changes", &db, "--from", "5"]).expect(2).says("the newest is 4");
    // A command that does not say so keeps nothing, but what the next opening replays.
    braid(&["put", &db, "grace", "1906"]).expect(0);
    assert_eq!(braid(&["changes", &db, "--from", "0"]).expect(0).json().len(), 5);
    braid(&["compact", &db]).expect(0);
    braid(&["changes", &db, "--from", "0"]).expect(3).says("begins with seq 6");
    assert_eq!(braid(&["changes", &db]).expect(0).text(), "");
}

#[test]
fn tables_do_not_mix() {
    let place = Place::new();
    let db = place.database();
    braid(&["put", &db, "k", "one"]).expect(0);
    braid(&["put", &db, "k", "two", "--table", "other"]).expect(0);
    assert_eq!(braid(&["get", &db, "k"]).expect(0).text(), "one");
    assert_eq!(braid(&["get", &db, "k", "-t", "other"]).expect(0).text(), "two");
    let listed = braid(&["tables", &db, "--json"]).expect(0).json();
    let names: Vec<_> = listed.iter().map(|table| table["name"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(names, ["default", "other"]);
    assert!(braid(&["tables", &db]).expect(0).text().contains("btree"));
}

#[test]
fn binary_keys_and_values_in_every_format() {
    let place = Place::new();
    let db = place.database();
    braid(&["put", &db, "00ff", "fe0a", "--format", "hex"]).expect(0);
    assert_eq!(braid(&["get", &db, "00ff", "--format", "hex"]).expect(0).text(), "fe0a\n");
    assert_eq!(braid(&["get", &db, r"\0\xff", "--format", "escaped"]).expect(0).text(), "\\xfe\\n\n");
    assert_eq!(
        braid(&["get", &db, "00FF", "-f", "hex", "--json"]).expect(0).text(),
        "{\"key_hex\":\"00ff\",\"value_hex\":\"fe0a\"}\n"
    );
    assert_eq!(braid(&["scan", &db]).expect(0).text(), "\\0\\xff\t\\xfe\\n\n");
    assert_eq!(braid(&["scan", &db, "--format", "raw"]).expect(0).stdout, b"\0\xff\t\xfe\n\n");
    assert_eq!(braid(&["scan", &db, "--format", "hex", "--prefix", "00"]).expect(0).text(), "00ff\tfe0a\n");
    braid(&["get", &db, "0", "--format", "hex"]).expect(2).says("KEY");
    braid(&["get", &db, r"\q", "--format", "escaped"]).expect(2).says("escape");
}

#[test]
fn a_value_into_a_pipe_is_its_bytes() {
    let place = Place::new();
    let db = place.database();
    let every_byte: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let file = place.file("bytes", &every_byte);
    braid(&["put", &db, "file", "--file", &file]).expect(0);
    braid_with_input(&["put", &db, "input", "--file", "-"], &every_byte).expect(0);
    assert_eq!(braid(&["get", &db, "file"]).expect(0).stdout, every_byte);
    assert_eq!(braid(&["get", &db, "input"]).expect(0).stdout, every_byte);
    braid_with_input(&["put", &db, "empty", "--file", "-"], b"").expect(0);
    assert_eq!(braid(&["get", &db, "empty"]).expect(0).stdout, b"");
}

#[test]
fn scans_have_bounds_both_ways() {
    let place = Place::new();
    let db = place.database();
    let lines: String = (0..100).map(|number| format!("k{number:02}\t{number}\n")).collect();
    braid_with_input(&["load", &db, "--tsv", "-"], lines.as_bytes()).expect(0);
    let keys = |arguments: &[&str]| {
        let all = [["scan", &db, "--keys-only"].as_slice(), arguments].concat();
        braid(&all).expect(0).text().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]).len(), 100);
    assert_eq!(keys(&["--from", "k10", "--to", "k13"]), ["k10", "k11", "k12"]);
    assert_eq!(keys(&["--from", "k98"]), ["k98", "k99"]);
    assert_eq!(keys(&["--to", "k02"]), ["k00", "k01"]);
    assert_eq!(keys(&["--prefix", "k5", "--limit", "2"]), ["k50", "k51"]);
    assert_eq!(keys(&["--prefix", "k5", "--limit", "2", "--reverse"]), ["k59", "k58"]);
    assert_eq!(keys(&["--reverse", "-n", "1"]), ["k99"]);
    assert_eq!(keys(&["--limit", "0"]), Vec::<String>::new());
    assert_eq!(keys(&["--prefix", "x"]), Vec::<String>::new());
    braid(&["scan", &db, "--prefix", "k", "--from", "k"]).expect(2);
}

#[test]
fn a_reader_that_has_enough_ends_a_scan_quietly() {
    let place = Place::new();
    let db = place.database();
    let lines: String = (0..20_000).map(|number| format!("{number:06}\t{}\n", "x".repeat(100))).collect();
    braid_with_input(&["load", &db, "--tsv", "-", "--durability", "os"], lines.as_bytes()).expect(0);
    let mut child = command(&["scan", &db]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    stdout.read_line(&mut first).expect("a line");
    drop(stdout);
    assert!(first.starts_with("000000\t"));
    let answer = crate::common::Answer::of(child.wait_with_output().expect("ends"));
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""));
}
