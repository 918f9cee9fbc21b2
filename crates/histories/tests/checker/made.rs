//! Histories of the reference store: what it does right is not reported, what it does wrong is.

use std::collections::BTreeSet;

use histories::{History, Isolation, Kind, Model, Report, Runner, Workload, check};

use crate::reference::{Bug, Mode, Reference};

const TRANSACTIONS: usize = 40;

fn history_of(mode: Mode, isolation: &[Isolation], model: Model, seed: u64) -> History {
    let workload = Workload::of_seed(seed, model, TRANSACTIONS, isolation);
    let store = Reference::new(mode, seed.is_multiple_of(2));
    let runner = Runner::new();
    let open_max = 1 + usize::try_from(seed % 6).expect("below six");
    runner
        .interleave(&store, workload.plans(seed), seed, open_max, &mut |_, _| {})
        .expect("it says of nothing that it is broken");
    let last = *isolation.iter().max().expect("some isolation");
    runner.read_everything(&store, workload.keys, last).expect("the same");
    runner.into_history()
}

fn report_of(mode: Mode, isolation: &[Isolation], model: Model, seed: u64) -> Report {
    let history = history_of(mode, isolation, model, seed);
    let report = check(&history).expect("a workload that can be checked");
    if mode == Mode::Proper || mode == Mode::Serial {
        let complaint = report.complaint(&history);
        assert_eq!(complaint, None, "seed {seed}, {mode:?}, {isolation:?}, {model:?}\n{history}");
    }
    report
}

const MODELS: [Model; 2] = [Model::Lists, Model::Registers];
const ALL: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

/// Every name that shows within some seeds.
fn kinds(mode: Mode, isolation: &[Isolation], seeds: u64) -> BTreeSet<Kind> {
    let mut kinds = BTreeSet::new();
    for seed in 0..seeds {
        MODELS.iter().for_each(|model| kinds.extend(report_of(mode, isolation, *model, seed).kinds()));
    }
    kinds
}

#[test]
fn one_after_the_other_shows_nothing() {
    assert_eq!(kinds(Mode::Serial, &ALL, 1000), BTreeSet::new());
}

#[test]
fn serializable_transactions_show_nothing() {
    assert_eq!(kinds(Mode::Proper, &[Isolation::Serializable], 1000), BTreeSet::new());
}

#[test]
fn snapshots_show_write_skew_and_no_more() {
    assert_eq!(kinds(Mode::Proper, &[Isolation::Snapshot], 400), BTreeSet::from([Kind::G2Item, Kind::G2]));
}

#[test]
fn read_committed_shows_what_snapshots_forbid_and_no_more() {
    let shown = kinds(Mode::Proper, &[Isolation::ReadCommitted], 200);
    for kind in [Kind::FuzzyRead, Kind::LostUpdate, Kind::GSingle, Kind::GNonadjacent] {
        assert!(shown.contains(&kind), "{kind} in {shown:?}");
    }
}

#[test]
fn each_gets_what_it_was_promised_beside_the_others() {
    assert!(!kinds(Mode::Proper, &[Isolation::Snapshot, Isolation::Serializable], 400).is_empty());
}

/// The names of violations that show within some seeds of a store with a mistake.
fn violations(bug: Bug, isolation: Isolation, seeds: u64) -> BTreeSet<Kind> {
    let mut kinds = BTreeSet::new();
    for (seed, model) in (0..seeds).flat_map(|seed| MODELS.map(|model| (seed, model))) {
        let report = report_of(Mode::With(bug), &[isolation], model, seed);
        kinds.extend(report.violations().map(|anomaly| anomaly.kind));
    }
    kinds
}

#[track_caller]
fn expect(bug: Bug, isolation: Isolation, kinds: &[Kind]) {
    let shown = violations(bug, isolation, 60);
    for kind in kinds {
        assert!(shown.contains(kind), "{bug:?} of {isolation}: {kind} is not among {shown:?}");
    }
}

#[test]
fn first_committer_skipped_loses_updates() {
    expect(Bug::FirstCommitterSkipped, Isolation::Snapshot, &[Kind::LostUpdate, Kind::GSingle]);
}

#[test]
fn a_read_set_that_nobody_looks_at_is_write_skew() {
    expect(Bug::ReadSetSkipped, Isolation::Serializable, &[Kind::G2Item, Kind::G2]);
    assert_eq!(violations(Bug::ReadSetSkipped, Isolation::Snapshot, 60), BTreeSet::new());
}

#[test]
fn ranges_that_nobody_looks_at_are_phantoms() {
    expect(Bug::RangeSetSkipped, Isolation::Serializable, &[Kind::G2]);
}

#[test]
fn half_of_a_commit_shows() {
    expect(Bug::TornCommit, Isolation::Snapshot, &[Kind::GSingle]);
}

#[test]
fn what_is_not_committed_shows() {
    expect(Bug::DirtyRead, Isolation::Snapshot, &[Kind::AbortedRead, Kind::IntermediateRead, Kind::G1c]);
}

#[test]
fn writes_in_place_show_everything() {
    let kinds = [Kind::AbortedRead, Kind::IntermediateRead, Kind::G0, Kind::G1c, Kind::FuzzyRead];
    expect(Bug::WritesInPlace, Isolation::ReadCommitted, &kinds[..4]);
    expect(Bug::WritesInPlace, Isolation::Snapshot, &kinds);
}

#[test]
fn a_stale_snapshot_shows_in_real_time_alone() {
    let (mut real_time, mut timeless) = (0, 0);
    for seed in 0..60 {
        let report = report_of(Mode::With(Bug::StaleSnapshot), &[Isolation::Snapshot], Model::Lists, seed);
        real_time += report.violations().filter(|anomaly| anomaly.real_time).count();
        timeless += report.violations().filter(|anomaly| !anomaly.real_time).count();
    }
    assert!(real_time > 0 && timeless == 0, "{real_time} and {timeless}");
}

#[test]
fn two_snapshots_are_a_long_fork() {
    expect(Bug::TwoSnapshots, Isolation::Snapshot, &[Kind::GSingle, Kind::GNonadjacent]);
}

#[test]
fn own_writes_that_a_range_forgets_are_missed() {
    expect(Bug::OwnWritesForgotten, Isolation::Snapshot, &[Kind::Internal]);
}

#[test]
fn a_seed_makes_the_same_history_again() {
    for seed in 0..20 {
        let make = || history_of(Mode::Proper, &ALL, Model::Lists, seed);
        assert_eq!(make(), make());
    }
}

#[test]
fn threads_show_nothing_either() {
    for seed in 0..30 {
        let workload = Workload::of_seed(seed, MODELS[usize::from(seed % 2 == 0)], 200, &ALL[1..]);
        let (store, runner) = (Reference::new(Mode::Proper, true), Runner::new());
        runner.threads(&store, workload.plans(seed), 4).expect("nothing is broken");
        runner.read_everything(&store, workload.keys, Isolation::Snapshot).expect("nothing is broken");
        let history = runner.into_history();
        let report = check(&history).expect("a workload that can be checked");
        assert_eq!(report.complaint(&history), None, "{history}");
    }
}
