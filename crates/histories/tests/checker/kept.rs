//! Histories are kept as lines, and are the same when they come back.

use histories::{History, HistoryError, Isolation, Model, Runner, Workload};

use crate::reference::{Mode, Reference};

#[test]
fn a_history_comes_back() {
    for model in [Model::Lists, Model::Registers] {
        let workload = Workload::of_seed(7, model, 30, &[Isolation::Snapshot, Isolation::Serializable]);
        let (store, runner) = (Reference::new(Mode::Proper, true), Runner::new());
        runner.interleave(&store, workload.plans(7), 7, 4, &mut |_, _| {}).expect("nothing is broken");
        let history = runner.into_history();
        let mut lines = Vec::new();
        history.write_jsonl(&mut lines).expect("memory takes it");
        assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), history.transactions.len());
        assert_eq!(History::read_jsonl(&lines[..]).expect("its own lines"), history);
    }
}

#[test]
fn a_line_that_is_none_is_named() {
    let line = r#"{"id":1,"isolation":"snapshot","operations":[{"do":"read","key":3,"found":[1,2]}],"outcome":"committed","began":0,"ended":9}"#;
    let history = History::read_jsonl(format!("{line}\n\n{line}\n").as_bytes()).expect("two transactions");
    assert_eq!(history.transactions.len(), 2);
    assert_eq!(history.transactions[0].to_string(), "T1 (snapshot, committed, time 0 to 9): read k3 = [1 2]");
    let bad = History::read_jsonl(format!("{line}\nnonsense\n").as_bytes());
    assert!(matches!(bad, Err(HistoryError::Line { number: 2, .. })), "{bad:?}");
}
