//! The help is there for every command, and says what a newcomer needs.

use crate::common::braid;

const COMMANDS: [&str; 20] = [
    "load",
    "get",
    "put",
    "del",
    "scan",
    "tables",
    "stats",
    "verify",
    "salvage",
    "changes",
    "history",
    "rollback",
    "compact",
    "backup",
    "restore",
    "dump",
    "device",
    "bench",
    "reproduce",
    "tour",
];

#[test]
fn every_command_has_help_with_examples() {
    for name in COMMANDS {
        let answer = braid(&[name, "--help"]).expect(0);
        let text = answer.text();
        assert!(text.contains("Examples:\n"), "{name}");
        assert!(text.contains(&format!("  braid {name} ")), "{name}: an example of itself");
        assert!(text.contains("--json"), "{name}");
        let after = text.split_once("\nExamples:\n").map_or("", |(_, after)| after);
        for line in after.lines() {
            assert!(line.chars().count() <= 80, "{name}: wraps on a terminal: {line}");
        }
    }
}

#[test]
fn the_help_lists_commands_and_exit_codes() {
    let text = braid(&["--help"]).expect(0).text();
    for name in COMMANDS {
        assert!(text.lines().any(|line| line.trim_start().starts_with(&format!("{name} "))), "{name}");
    }
    assert!(text.contains("Exit codes:"));
    assert!(!text.contains("crash-child"), "what is for tests is hidden");
}

#[test]
fn the_version_is_the_package_version() {
    assert_eq!(braid(&["--version"]).expect(0).text(), format!("braid {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn no_command_shows_the_help() {
    let answer = braid::<&str>(&[]).expect(2);
    assert!(answer.stderr.contains("Usage:"));
}
