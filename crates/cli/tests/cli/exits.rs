//! What goes wrong ends with its own exit code and a message that says what, where and what to do.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::common::{Answer, BRAID, Place, braid, braid_with_input, command, text};

#[test]
fn nothing_there() {
    let place = Place::new();
    let db = place.database();
    for arguments in [
        ["get", &db, "k"].as_slice(),
        &["scan", &db],
        &["tables", &db],
        &["stats", &db],
        &["verify", &db],
        &["del", &db, "k"],
    ] {
        braid(arguments).expect(3).says(&db);
    }
    assert!(!place.path("database").exists(), "reading creates nothing");
    braid(&["put", &db, "k", "v"]).expect(0);
    braid(&["get", &db, "k", "--table", "other"]).expect(3).says("other");
    braid(&["get", &db, "other"]).expect(3).says("other");
}

#[test]
fn wrong_usage() {
    let place = Place::new();
    let db = place.database();
    braid(&["frobnicate"]).expect(2).says("frobnicate");
    braid(&["get", &db]).expect(2).says("KEY");
    braid(&["put", &db, "k"]).expect(2).says("VALUE");
    braid(&["put", &db, "k", "v", "--cache", "lots"]).expect(2).says("lots");
    braid(&["put", &db, "k", "v", "--durability", "maybe"]).expect(2).says("maybe");
    braid(&["put", &db, "k", "v", "--backend", "punchcards"]).expect(2).says("punchcards");
    braid(&["put", &db, "k", "v", "--cache", "1"]).expect(2).says("cache");
    braid(&["bench", "readlots"]).expect(2).says("readrandom");
    braid(&["bench", "fillseq", "--key-size", "4"]).expect(2).says("key size");
    braid(&["put", &db, &"k".repeat(1025), "v"]).expect(2).says("1024");
    braid(&["put", &db, "", "v"]).expect(2);
}

#[test]
fn an_over_long_key_writes_nothing() {
    let place = Place::new();
    let db = place.database();
    braid(&["put", &db, "k", "v"]).expect(0);
    braid(&["put", &db, &"k".repeat(1025), "v"]).expect(2).says("1025").says("1024");
    assert_eq!(braid(&["scan", &db]).expect(0).text(), "k\tv\n");
    braid(&["put", &db, &"k".repeat(1024), "v"]).expect(0);
}

#[test]
fn a_second_opener_is_told_who_holds_it() {
    let place = Place::new();
    let db = place.database();
    let mut holder = command(&["crash-child", &db]).stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a commit");
    let answers = [braid(&["put", &db, "k", "v"]), braid(&["get", &db, "k"]), braid(&["verify", &db])];
    let id = holder.id().to_string();
    holder.kill().expect("killed");
    holder.wait().expect("ended");
    for answer in answers {
        answer.expect(4).says(&id);
    }
    braid(&["put", &db, "k", "v"]).expect(0);
}

#[test]
fn something_else_is_no_database() {
    let place = Place::new();
    place.file("other/notes.txt", "mine");
    let directory = text(&place.path("other"));
    braid(&["get", &directory, "k"]).expect(5).says(&directory);
    braid(&["put", &directory, "k", "v"]).expect(5).says(&directory);
    let left: Vec<_> =
        std::fs::read_dir(&directory).expect("listed").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
    let file = place.file("file", "no directory");
    assert_ne!(braid(&["put", &file, "k", "v"]).code, 0);
    assert_eq!(std::fs::read(file).expect("read"), b"no directory");
}

#[test]
fn a_damaged_superblock_and_a_damaged_page() {
    let place = Place::new();
    let db = place.database();
    let lines: String = (0..5000).map(|number| format!("{number:05}\t{}\n", "value ".repeat(20))).collect();
    braid_with_input(&["load", &db, "--tsv", "-"], lines.as_bytes()).expect(0);
    let damage = |name: &str, from: usize, bytes: usize| {
        let copy = text(&place.path(&format!("damaged-{name}")));
        let copied = Command::new("cp").args(["-r", &db, &copy]).status().expect("cp runs");
        assert!(copied.success());
        let path = place.path(&format!("damaged-{name}/{name}"));
        let mut content = std::fs::read(&path).expect("read");
        let end = content.len().min(from + bytes);
        content[from..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
        std::fs::write(&path, content).expect("written");
        copy
    };
    let superblock = damage("superblock", 0, usize::MAX / 2);
    braid(&["get", &superblock, "00000"]).expect(5).says("superblock");
    // Every page of the data file: whatever verify reads first is damaged.
    let data = damage("data", 0, usize::MAX / 2);
    braid(&["verify", &data]).expect(5).says("data");
}

#[test]
fn what_is_left_of_a_damaged_database_is_copied_and_the_rest_is_told() {
    let place = Place::new();
    let (db, whole, rest) = (place.database(), text(&place.path("whole")), text(&place.path("rest")));
    let lines: String = (0..20_000).map(|key| format!("{key:05}\t{}\n", "v".repeat(50))).collect();
    braid_with_input(&["load", &db, "--sorted", "--tsv", "-"], lines.as_bytes()).expect(0);
    braid(&["put", &db, "later", "1", "--table", "other"]).expect(0);
    let answer = braid(&["salvage", &db, &whole]).expect(0);
    assert!(
        answer.text().contains("nothing is lost: 20,000 pairs in 2 tables, and 1 later commits"),
        "{}",
        answer.text()
    );
    assert_eq!(braid(&["scan", &whole]).expect(0).text(), lines);
    braid(&["verify", &whole]).expect(0);
    braid(&["salvage", &db, &whole]).expect(2).says("whole");

    // A page in the middle of the leaves.
    let path = place.path("database/data");
    let mut content = std::fs::read(&path).expect("read");
    let at = content.windows(5).position(|bytes| bytes == b"10000").expect("a leaf has it");
    content[at] ^= 1;
    std::fs::write(&path, content).expect("written");
    let answer = braid(&["salvage", &db, &rest, "--json"]).expect(5).says("rest");
    let report: serde_json::Value = serde_json::from_str(&answer.text()).expect("an object");
    let lost = &report["tables"][0]["lost"];
    assert_eq!((&report["complete"], lost.as_array().map(Vec::len)), (&false.into(), Some(1)), "{report}");
    let kept = braid(&["scan", &rest]).expect(0).text();
    let kept: Vec<&str> = kept.lines().collect();
    let (low, high) = (lost[0]["low"].as_str().expect("a key"), lost[0]["high"].as_str().expect("a key"));
    let told = |line: &&str| line[..5] < *low || line[..5] >= *high;
    assert_eq!(kept, lines.lines().filter(told).collect::<Vec<_>>());
    assert_eq!(braid(&["get", &rest, "later", "--table", "other"]).expect(0).text(), "1");
    assert!(kept.len() > 19_000, "{} are kept", kept.len());
}

/// Runs the binary as a user without rights, where the test itself has all of them.
fn unprivileged(place: &Place, arguments: &[&str]) -> Answer {
    let program = place.path("braid");
    if !program.exists() {
        std::fs::copy(BRAID, &program).expect("copied");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("set");
        std::fs::set_permissions(place.directory.path(), PermissionsExt::from_mode(0o755)).expect("set");
    }
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|this| std::os::unix::fs::MetadataExt::uid(&this) == 0);
    if is_root {
        command.uid(65534).gid(65534);
    }
    Answer::of(command.output().expect("starts"))
}

#[test]
fn a_directory_without_write_permission() {
    let place = Place::new();
    let db = place.database();
    braid(&["put", &db, "k", "v"]).expect(0);
    let all = |mode_of_files, mode_of_directories| {
        let mut waiting = vec![place.path("database")];
        while let Some(path) = waiting.pop() {
            let is_directory = path.is_dir();
            if is_directory {
                waiting.extend(std::fs::read_dir(&path).expect("listed").map(|entry| entry.expect("an entry").path()));
            }
            let mode = if is_directory { mode_of_directories } else { mode_of_files };
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
        }
    };
    all(0o444, 0o555);
    unprivileged(&place, &["put", &db, "k", "w"]).expect(7).says("database");
    assert_eq!(unprivileged(&place, &["get", &db, "k"]).expect(0).text(), "v");
    let new = text(&place.path("database/new"));
    unprivileged(&place, &["put", &new, "k", "v"]).expect(7);
    all(0o644, 0o755);
    assert_eq!(braid(&["get", &db, "k"]).expect(0).text(), "v");
}

/// Runs a script in a mount namespace of its own; none where this system does not let us.
fn with_small_disk(place: &Place, script: &str) -> Option<Answer> {
    let mount = place.path("mount");
    std::fs::create_dir(&mount).expect("made");
    let all = format!("mount -t tmpfs -o size=24m braid-test '{0}' || exit 99; cd '{0}'; {script}", text(&mount));
    let output =
        Command::new("unshare").args(["--mount", "--map-root-user", "sh", "-c", &all]).env("BRAID", BRAID).output();
    let answer = Answer::of(output.ok()?);
    let refused = answer.code == 99 || answer.stderr.contains("unshare");
    if refused {
        eprintln!("not run, since mounts are not allowed here: {}", answer.stderr);
        return None;
    }
    Some(answer)
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let place = Place::new();
    let script = r#"
        "$BRAID" put db first value --cache 1m --write-buffer 64k || exit 20
        i=0; code=0
        while [ $i -lt 100 ] && [ $code = 0 ]; do
            head -c 700000 /dev/urandom | "$BRAID" put db "large$i" --file - --cache 1m; code=$?
            [ $code = 0 ] && i=$((i+1))
        done
        echo "code $code loaded $i"
        [ "$("$BRAID" get db first)" = value ] || exit 21
        "$BRAID" verify db >/dev/null || exit 22
        n=$("$BRAID" scan db --prefix large --keys-only | wc -l)
        [ "$n" = "$i" ] || { echo "found $n"; exit 23; }
        "$BRAID" del db large0 >&2 || exit 24
        "$BRAID" get db large0 && exit 25
        exit 0"#;
    let Some(answer) = with_small_disk(&place, script) else { return };
    let answer = answer.expect(0);
    assert!(answer.text().starts_with("code 6 "), "{}{}", answer.text(), answer.stderr);
}
