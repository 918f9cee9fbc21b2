//! Small histories, each with the anomaly that it was written for.

use std::collections::BTreeSet;

use histories::{
    Element, History, HistoryError, Isolation, Key, Kind, Operation, Options, Outcome, Report, Transaction, TxnId,
    check, check_with,
};

fn elements(list: &[u64]) -> Vec<Element> {
    list.iter().copied().map(Element).collect()
}

fn read(key: u64, found: &[u64]) -> Operation {
    Operation::Read { key: Key(key), found: elements(found), for_update: false }
}

fn range(from: u64, to: u64, found: &[(u64, &[u64])]) -> Operation {
    let found = found.iter().map(|(key, list)| (Key(*key), elements(list))).collect();
    Operation::ReadRange { from: Key(from), to: Key(to), backward: false, found }
}

fn append(key: u64, element: u64) -> Operation {
    Operation::Append { key: Key(key), element: Element(element) }
}

fn write(key: u64, value: u64) -> Operation {
    Operation::Write { key: Key(key), value: Element(value) }
}

fn delete(key: u64) -> Operation {
    Operation::Delete { key: Key(key) }
}

/// Transactions T1, T2, … that all ran at the same time, under this isolation, and were committed.
fn at(isolation: Isolation, transactions: Vec<Vec<Operation>>) -> History {
    let transaction = |(id, operations)| Transaction {
        id: TxnId(id),
        isolation,
        operations,
        outcome: Outcome::Committed,
        began: 0,
        ended: 100 + id,
        commit_seq: None,
    };
    History { transactions: (1..).zip(transactions).map(transaction).collect() }
}

fn serializable(transactions: Vec<Vec<Operation>>) -> History {
    at(Isolation::Serializable, transactions)
}

fn found(history: &History) -> Report {
    check(history).expect("a workload that can be checked")
}

/// The history has these anomalies, and `allowed` of isolation forbids none of them while the next stronger one does.
#[track_caller]
fn expect(transactions: Vec<Vec<Operation>>, kinds: &[Kind]) -> Report {
    let report = found(&serializable(transactions.clone()));
    assert_eq!(report.kinds(), kinds.iter().copied().collect::<BTreeSet<_>>(), "{report:#?}");
    assert_eq!(report.violations().count(), report.anomalies.len(), "a serializable store may show none");
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let weaker = found(&at(isolation, transactions.clone()));
        let forbidden = kinds.iter().filter(|kind| kind.forbidden_from() <= isolation).count();
        assert_eq!(weaker.violations().next().is_some(), forbidden > 0, "{isolation}: {weaker:#?}");
    }
    report
}

#[test]
fn a_serial_history_has_no_anomaly() {
    let report = expect(
        vec![
            vec![append(1, 1), read(1, &[1])],
            vec![read(1, &[1]), append(1, 2), append(2, 3)],
            vec![range(0, 5, &[(1, &[1, 2]), (2, &[3])]), read(3, &[])],
        ],
        &[],
    );
    assert_eq!((report.transactions, report.dependencies), (3, 3));
}

#[test]
fn g0_two_lists_in_two_orders() {
    let report = expect(
        vec![
            vec![append(1, 1), append(2, 1)],
            vec![append(1, 2), append(2, 2)],
            vec![read(1, &[1, 2])],
            vec![read(2, &[2, 1])],
        ],
        &[Kind::G0],
    );
    let shown = report.anomalies[0].to_string();
    assert!(
        shown.contains("T1 -ww(k1)-> T2 -ww(k2)-> T1") || shown.contains("T2 -ww(k2)-> T1 -ww(k1)-> T2"),
        "{shown}"
    );
    assert!(shown.contains("T2 wrote 2 to k1 behind T1's 1"), "{shown}");
}

#[test]
fn g1a_a_read_of_what_was_aborted() {
    for operation in [append(1, 7), write(1, 7)] {
        let mut history = serializable(vec![vec![operation], vec![read(1, &[7])]]);
        assert_eq!(found(&history).kinds(), BTreeSet::new());
        history.transactions[0].outcome = Outcome::Aborted;
        let report = found(&history);
        assert_eq!(report.kinds(), BTreeSet::from([Kind::AbortedRead]));
        assert!(report.complaint(&history).is_some_and(|text| text.contains("T2 saw 7 in k1, and T1 aborted")));
    }
}

#[test]
fn g1b_a_read_between_two_writes_of_one_transaction() {
    expect(vec![vec![append(1, 1), append(1, 2)], vec![read(1, &[1])]], &[Kind::IntermediateRead, Kind::GSingle]);
    expect(vec![vec![write(1, 1), write(1, 2)], vec![read(1, &[1])]], &[Kind::IntermediateRead]);
}

#[test]
fn g1c_each_saw_the_other() {
    for (one, other) in [(append(1, 1), append(2, 2)), (write(1, 1), write(2, 2))] {
        expect(vec![vec![one, read(2, &[2])], vec![other, read(1, &[1])]], &[Kind::G1c]);
    }
}

#[test]
fn g_single_half_of_a_commit_is_seen() {
    let writer = vec![append(1, 1), append(2, 2)];
    expect(vec![writer.clone(), vec![read(1, &[1]), read(2, &[])]], &[Kind::GSingle]);
    expect(vec![writer.clone(), vec![read(2, &[]), read(1, &[1])]], &[Kind::GSingle]);
    // Of a range alone: the other key was not there.
    let report = expect(vec![writer, vec![range(0, 9, &[(1, &[1])])]], &[Kind::GSingle]);
    assert!(report.anomalies[0].to_string().contains("-rw-range(k2)->"), "{report:#?}");
}

/// The example of the paper on Elle: T1 did not see T2's append, and its own came behind it.
#[test]
fn g_single_an_append_behind_one_that_was_not_seen() {
    expect(
        vec![
            vec![append(34, 2), append(34, 1)],
            vec![read(34, &[2, 1]), append(36, 5), append(34, 4)],
            vec![append(34, 5)],
            vec![read(34, &[2, 1, 5, 4])],
        ],
        &[Kind::GSingle],
    );
}

/// Adya's example of a phantom: the sum says that an employee is there whom the query did not find.
#[test]
fn g_single_a_phantom_is_in_the_sum() {
    let sum = 100;
    expect(
        vec![
            vec![append(1, 10), append(sum, 10)],
            vec![range(0, 99, &[(1, &[10])]), read(sum, &[10, 20])],
            vec![append(2, 20), append(sum, 20)],
        ],
        &[Kind::GSingle],
    );
}

#[test]
fn lost_update_two_wrote_over_one_version() {
    // One append is gone: whoever looks sees it.
    let lists = vec![
        vec![append(1, 1)],
        vec![read(1, &[1]), append(1, 2)],
        vec![read(1, &[1]), append(1, 3)],
        vec![read(1, &[1, 3])],
    ];
    expect(lists, &[Kind::LostUpdate, Kind::GSingle]);
    let registers = vec![vec![write(1, 1)], vec![read(1, &[1]), write(1, 2)], vec![read(1, &[1]), write(1, 3)]];
    expect(registers, &[Kind::LostUpdate, Kind::G2Item]);
}

#[test]
fn a_write_that_was_lost_is_missed_later() {
    let mut history = serializable(vec![vec![append(1, 1)], vec![read(1, &[])]]);
    assert_eq!(found(&history).kinds(), BTreeSet::new());
    history.transactions[1].began = 200;
    history.transactions[1].ended = 300;
    let report = found(&history);
    assert_eq!(report.kinds(), BTreeSet::from([Kind::GSingle]));
    assert!(report.anomalies[0].real_time);
    assert!(report.anomalies[0].to_string().contains("T1 ended at 101, before T2 began at 200"), "{report:#?}");
    let timeless = check_with(&history, Options { real_time: false, ..Options::default() }).expect("a workload");
    assert_eq!(timeless.kinds(), BTreeSet::new());
    // A commit that may not have happened is not lost.
    history.transactions[0].outcome = Outcome::Unknown;
    assert_eq!(found(&history).kinds(), BTreeSet::new());
}

#[test]
fn what_was_seen_of_an_unknown_commit_was_committed() {
    let mut history =
        serializable(vec![vec![append(1, 1), append(2, 2)], vec![read(1, &[1])], vec![read(1, &[1]), read(2, &[])]]);
    history.transactions[0].outcome = Outcome::Unknown;
    assert_eq!(found(&history).kinds(), BTreeSet::from([Kind::GSingle]));
    history.transactions[1].operations.clear();
    history.transactions[2].operations.remove(0);
    assert_eq!(found(&history).kinds(), BTreeSet::new());
}

#[test]
fn a_long_fork_is_no_snapshot() {
    for write in [append as fn(u64, u64) -> Operation, write] {
        expect(
            vec![
                vec![write(1, 1)],
                vec![write(2, 2)],
                vec![read(1, &[1]), read(2, &[])],
                vec![read(1, &[]), read(2, &[2])],
            ],
            &[Kind::GNonadjacent],
        );
    }
}

#[test]
fn write_skew_is_g2_item() {
    for write in [append as fn(u64, u64) -> Operation, write] {
        let skew = vec![vec![read(1, &[]), write(2, 2)], vec![read(2, &[]), write(1, 1)]];
        let report = expect(skew.clone(), &[Kind::G2Item]);
        let shown = report.anomalies[0].to_string();
        assert!(shown.contains("-rw(k1)->") && shown.contains("-rw(k2)->"), "{shown}");
        // Reads for update forbid it whatever the isolation.
        let mut history = at(Isolation::Snapshot, skew);
        for transaction in &mut history.transactions {
            for operation in &mut transaction.operations {
                if let Operation::Read { for_update, .. } = operation {
                    *for_update = true;
                }
            }
        }
        assert!(found(&history).violations().next().is_some());
    }
}

#[test]
fn two_phantoms_are_g2() {
    let report = expect(
        vec![
            vec![range(0, 9, &[]), append(1, 1)],
            vec![range(0, 9, &[]), append(2, 2)],
            vec![read(1, &[1]), read(2, &[2])],
        ],
        &[Kind::G2],
    );
    assert!(report.anomalies[0].to_string().contains("-rw-range(k"), "{report:#?}");
}

/// After Fekete, O'Neil and O'Neil: two writers alone are serializable, and the reader shows that they were not.
#[test]
fn a_reader_makes_two_writers_not_serializable() {
    let (savings, checking) = (1, 2);
    expect(
        vec![
            vec![read(savings, &[]), append(savings, 20)],
            vec![read(savings, &[]), read(checking, &[]), append(checking, 11)],
            vec![read(savings, &[20]), read(checking, &[])],
            vec![read(checking, &[11])],
        ],
        &[Kind::G2Item],
    );
}

#[test]
fn promises_are_kept_to_those_to_whom_they_were_made() {
    let mut history =
        serializable(vec![vec![read(1, &[]), append(2, 2)], vec![read(2, &[]), append(1, 1)], vec![read(1, &[1])]]);
    history.transactions[1].isolation = Isolation::Snapshot;
    let report = found(&history);
    assert_eq!(report.kinds(), BTreeSet::from([Kind::G2Item]));
    assert_eq!(report.complaint(&history), None);
}

#[test]
fn a_transaction_has_to_see_its_own_writes() {
    expect(vec![vec![append(1, 1), read(1, &[])]], &[Kind::Internal]);
    expect(vec![vec![append(1, 1), append(1, 2), read(1, &[2])]], &[Kind::Internal]);
    expect(vec![vec![append(2, 1), range(0, 9, &[])]], &[Kind::Internal]);
    expect(vec![vec![write(1, 1), delete(1), read(1, &[1])]], &[Kind::Internal]);
    expect(vec![vec![write(1, 1), delete(1), read(1, &[]), write(1, 2), read(1, &[2])]], &[]);
}

#[test]
fn a_snapshot_shows_the_same_twice() {
    let report = expect(vec![vec![read(1, &[]), read(1, &[1])], vec![append(1, 1)]], &[Kind::FuzzyRead, Kind::GSingle]);
    assert!(report.anomalies[0].to_string().contains("T1 found k1 = [] and [1]"), "{report:#?}");
}

#[test]
fn lists_that_cannot_be() {
    expect(
        vec![vec![append(1, 1)], vec![append(1, 2)], vec![read(1, &[1, 2])], vec![read(1, &[2, 1])]],
        &[Kind::IncompatibleOrder],
    );
    expect(vec![vec![append(1, 1)], vec![read(1, &[1, 1])]], &[Kind::DuplicateElement]);
    expect(vec![vec![read(1, &[1])]], &[Kind::GarbageRead]);
    expect(vec![vec![append(2, 1)], vec![range(0, 5, &[(1, &[1])])]], &[Kind::GarbageRead]);
}

#[test]
fn ranges_that_cannot_be() {
    let writer = vec![append(1, 1), append(2, 2)];
    let all = |found| vec![writer.clone(), vec![range(1, 2, found)]];
    expect(all(&[(1, &[1]), (2, &[2])]), &[]);
    expect(all(&[(2, &[2]), (1, &[1])]), &[Kind::BadRange]);
    expect(all(&[(1, &[1]), (1, &[1]), (2, &[2])]), &[Kind::BadRange]);
    expect(vec![writer, vec![range(2, 2, &[(1, &[1]), (2, &[2])])]], &[Kind::BadRange]);
}

#[test]
fn of_absence_that_may_be_a_deletion_nothing_is_said() {
    let half =
        |deleter: Vec<Operation>| vec![vec![write(1, 1), write(2, 2)], deleter, vec![read(1, &[1]), read(2, &[])]];
    expect(half(vec![]), &[Kind::GSingle]);
    expect(half(vec![read(2, &[2]), delete(2)]), &[]);
    // But a deletion is a version like another where it is missed.
    let missed = vec![
        vec![write(1, 1), write(2, 2)],
        vec![read(1, &[1]), delete(1), read(2, &[2]), write(2, 3)],
        vec![read(1, &[1]), read(2, &[3])],
    ];
    expect(missed, &[Kind::GSingle]);
}

#[test]
fn seqs_of_commits_order_registers() {
    // Blind writes: nobody read what they wrote over.
    let mut history = serializable(vec![
        vec![write(1, 1), write(2, 1)],
        vec![write(1, 2), write(2, 2)],
        vec![read(1, &[2]), read(2, &[1])],
    ]);
    assert_eq!(found(&history).kinds(), BTreeSet::new());
    for (seq, transaction) in (1..).zip(&mut history.transactions[..2]) {
        transaction.commit_seq = Some(seq);
    }
    assert_eq!(found(&history).kinds(), BTreeSet::from([Kind::GSingle]));
}

#[test]
fn a_workload_that_tells_nothing_is_refused() {
    let twice = serializable(vec![vec![append(1, 1)], vec![append(1, 1)]]);
    assert!(matches!(check(&twice), Err(HistoryError::Workload(_))));
    let mixed = serializable(vec![vec![append(1, 1)], vec![write(1, 2)]]);
    assert!(matches!(check(&mixed), Err(HistoryError::Workload(_))));
}
