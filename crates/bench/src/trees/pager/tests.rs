use std::path::PathBuf;

use psync::sim::{Fault, SimDisk};

use super::*;
use crate::trees::Shape;

const EIO: i32 = 5;

fn pager(disk: &SimDisk, pool_bytes: u64) -> Pager {
    let directory = PathBuf::from("/pager");
    disk.psync().create_directory(&directory).expect("made");
    let shape = Shape { key_bytes: 8, value_bytes: 8 };
    let setting = Setting { psync: disk.psync(), directory, shape, memory_bytes: pool_bytes };
    Pager::create(&setting, "nodes", BLOCK, pool_bytes).expect("created")
}

fn stamp(node: &mut WriteGuard, stamp: u64) {
    node[..8].copy_from_slice(&stamp.to_le_bytes());
}

fn stamp_of(node: &[u8]) -> u64 {
    u64::from_le_bytes(node[..8].try_into().expect("eight bytes"))
}

#[test]
fn nodes_come_back_as_they_were_written() {
    let pager = pager(&SimDisk::new(1), 0);
    for round in 1..=50_u64 {
        stamp(&mut pager.allocate().expect("allocated"), round);
    }
    for node in 1..=50 {
        assert_eq!(stamp_of(&pager.read(NodeId(node)).expect("read")), node);
    }
    assert_eq!(pager.memory_bytes(), 4 * (BLOCK + FRAME_OVERHEAD_BYTES) as u64);
    let counters = pager.counters();
    assert_eq!((counters.hits, counters.reads, counters.writes), (0, 50, 50));
    // The last four are in the pool and clean: no I/O.
    for node in 47..=50 {
        assert_eq!(stamp_of(&pager.read(NodeId(node)).expect("read")), node);
    }
    pager.write_back().expect("written");
    assert_eq!(pager.counters(), PagerCounters { hits: 4, ..counters });
}

#[test]
fn a_freed_node_is_zero_when_it_comes_back() {
    let pager = pager(&SimDisk::new(2), 0);
    let mut first = pager.allocate().expect("allocated");
    stamp(&mut first, 7);
    let id = first.id();
    pager.free(first);
    let again = pager.allocate().expect("allocated");
    assert_eq!((again.id(), stamp_of(&again)), (id, 0));
    assert_eq!(pager.counters(), PagerCounters::default());
}

#[test]
fn pinned_nodes_stay_and_the_frames_beyond_the_budget_go() {
    let pager = pager(&SimDisk::new(3), 0);
    let pinned: Vec<WriteGuard> = (0..9).map(|_| pager.allocate().expect("allocated")).collect();
    assert!(pager.memory_bytes() >= 9 * BLOCK as u64);
    drop(pinned);
    drop(pager.allocate().expect("allocated"));
    assert!(pager.memory_bytes() < 5 * BLOCK as u64);
}

#[test]
fn what_is_not_there_and_what_fails_is_an_error_and_can_be_tried_again() {
    let disk = SimDisk::new(4);
    let pager = pager(&disk, 0);
    for _ in 0..8 {
        drop(pager.allocate().expect("allocated"));
    }
    pager.write_back().expect("written");
    for node in [NodeId::NONE, NodeId(9), NodeId(u64::MAX)] {
        assert!(matches!(pager.read(node), Err(Error::Invalid(_))));
    }
    disk.fail_operation(Fault::Read, 0, EIO);
    assert!(matches!(pager.read(NodeId(1)), Err(Error::Device(_))));
    assert_eq!(pager.read(NodeId(1)).expect("read").id(), NodeId(1));
}

#[test]
fn threads_that_share_a_few_frames_lose_nothing() {
    const NODES: u64 = 40;
    const ROUNDS: u64 = 2000;
    let pager = pager(&SimDisk::new(5), 0);
    for _ in 0..NODES {
        drop(pager.allocate().expect("allocated"));
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let pager = &pager;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let node = NodeId(1 + (round * 7 + thread * 11) % NODES);
                    if round % 3 == 0 {
                        pager.read(node).expect("read");
                    }
                    let mut node = pager.write(node).expect("latched");
                    let count = stamp_of(&node);
                    stamp(&mut node, count + 1);
                }
            });
        }
    });
    let sum: u64 = (1..=NODES).map(|node| stamp_of(&pager.read(NodeId(node)).expect("read"))).sum();
    assert_eq!(sum, 4 * ROUNDS);
}
