//! A batch that meets an error changes nothing, and can be applied again.

use index::Index;
use index::testing::steps::Store;
use index::testing::{Change, Model, Updates};
use psync::sim::{Fault, SimDisk};

use crate::common::Home;

/// No space left on device.
const ENOSPC: i32 = 28;
/// An error of the device.
const EIO: i32 = 5;

fn batch(seq: u64) -> Updates {
    let updates = (0..600_u32).map(|number| {
        let key = format!("{:04}/{}", (number * 7) % 900, "long".repeat(number as usize % 30)).into_bytes();
        let change = match (u64::from(number) + seq) % 5 {
            0 => Change::Delete,
            1 => Change::Put(vec![7; 900]),
            _ => Change::Put(vec![9; 40]),
        };
        (key, seq, change)
    });
    Updates::new(updates.collect())
}

/// Has operation `operation` of a kind fail. Whether a batch met that.
fn fails_once(kind: Fault, errno: i32, operation: u64) -> bool {
    let disk = SimDisk::new(operation);
    let (mut home, mut model) = (Home::new(disk.clone(), 4, 0, 64 << 10), Model::default());
    home.apply(&batch(1), &[]);
    model.apply(&batch(1));
    disk.fail_operation(kind, operation, errno);
    let (mut seq, mut failed) = (1, false);
    while disk.faults_left() > 0 {
        seq += 1;
        let updates = batch(seq);
        let segments = home.trie.room().segments;
        if home.try_apply(&updates, &[]).is_err() {
            failed = true;
            home.check(&model, seq);
            home.check_space();
            assert!(home.trie.room().segments <= segments + 2, "what failed leaves no segments behind");
            if let Err(error) = home.try_apply(&updates, &[]) {
                assert!(error.to_string().contains("flush directory"), "the fault is over: {error}");
                break;
            }
        }
        model.apply(&updates);
    }
    home.check(&model, seq);
    home.checkpoint();
    disk.restart();
    home.reopen();
    home.check(&model, seq);
    failed
}

fn fails_at(kind: Fault, errno: i32) {
    let failed = (0..12).filter(|operation| fails_once(kind, errno, *operation)).count();
    assert!(failed >= 2, "{failed} batches met the fault");
}

#[test]
fn a_full_disk_fails_a_batch_and_nothing_else() {
    fails_at(Fault::Write, ENOSPC);
    fails_at(Fault::Name, ENOSPC);
}

#[test]
fn a_read_that_fails_fails_a_batch_and_nothing_else() {
    fails_at(Fault::Read, EIO);
}

#[test]
fn a_batch_that_was_discarded_leaves_nothing() {
    let mut home = Home::new(SimDisk::new(1), 4, 1 << 20, 64 << 10);
    home.apply(&batch(1), &[]);
    let (nodes, values) = (home.trie.room(), home.values.stats());
    let mut model = Model::default();
    model.apply(&batch(1));
    for seq in 2..10 {
        let applied = home.written(&batch(seq), &[]).expect("a disk that works");
        Index::discard(&home.trie, &applied);
        home.check(&model, seq);
        home.check_space();
        assert_eq!(home.trie.room().live_bytes, nodes.live_bytes);
        assert_eq!(home.values.stats().live_bytes, values.live_bytes);
        assert_eq!(home.values.stats().pending_documents, 0);
    }
}
