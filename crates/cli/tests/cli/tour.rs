//! The tour on a small tree, and the commands it ends with.

use std::process::Command;

use crate::common::{Answer, BRAID, Place, braid, text};

fn tree(place: &Place) -> String {
    for number in 0..300 {
        let content = format!("file {number}\n").repeat(number * 7 % 900);
        place.file(&format!("tree/{}/{number}.txt", number % 10), content);
    }
    text(&place.path("tree"))
}

#[test]
fn the_tour_shows_figures_that_it_checked() {
    let place = Place::new();
    let source = tree(&place);
    let dir = text(&place.path("tour"));
    let arguments = ["tour", "--source", &source, "--dir", &dir, "--keep", "--time", "200ms", "--kills", "1", "--json"];
    let report = &braid(&arguments).expect(0).json()[0];
    assert_eq!(report["loaded"]["files"], 300);
    assert_eq!(report["checked_files"], 300);
    assert_eq!(report["reads"].as_array().expect("reads").len(), 3);
    let kill = &report["kills"][0];
    assert!(
        kill["acknowledged"].as_u64() >= Some(100) && kill["found"].as_u64() >= kill["acknowledged"].as_u64(),
        "{kill}"
    );
    braid(&["verify", &dir]).expect(0);
    // What is there is never removed or used.
    braid(&["tour", "--source", &source, "--dir", &dir]).expect(1).says("tour");
    braid(&["verify", &dir]).expect(0);
}

#[test]
fn the_commands_it_ends_with_work() {
    let place = Place::new();
    let source = tree(&place);
    let arguments = ["tour", "--source", &source, "--time", "100ms", "--kills", "1"];
    let run = Command::new(BRAID).args(arguments).current_dir(place.directory.path()).output().expect("starts");
    let text = Answer::of(run).expect(0).text();
    let commands: Vec<_> = text.lines().filter_map(|line| line.trim().strip_prefix("$ ")).collect();
    assert!(commands.len() >= 5, "{text}");
    for command in commands {
        let quick = if command.contains(" bench ") {
            format!("{command} --num 2000 --duration 100ms")
        } else {
            command.to_owned()
        };
        let quick = quick.replace("--num 200k ", "");
        let run = Command::new("sh").args(["-c", &quick]).current_dir(place.directory.path()).output().expect("starts");
        Answer::of(run).expect(0);
    }
}
