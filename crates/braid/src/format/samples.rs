//! Samples of what is stored, for tests and for fuzzing.

use doclog::{Compression, Retained, SegmentId};
use index::{Horizon, RangeTombstones, Seq, TableId, Time};
use wal::Lsn;

use super::{CreateTable, Image, RetainedHeader, TableImage, TableSettings};
use crate::words::{applied::AppliedThrough, structure::Structure};

pub(crate) fn applied_through() -> AppliedThrough {
    let mut applied = AppliedThrough::new(Seq(9));
    applied.cover(b"k", Some(b"m"), Seq(11));
    applied
}

pub(crate) fn tombstones() -> RangeTombstones {
    let mut tombstones = RangeTombstones::default();
    tombstones.add(b"k", Some(b"m"), Seq(9), &Horizon::default());
    tombstones.add(b"l", None, Seq(11), &Horizon::default());
    tombstones.outgrow(b"l", Seq(12));
    tombstones
}

pub(crate) fn header() -> RetainedHeader {
    let documents = vec![Retained { segment: SegmentId(6), bytes: 10, end: 11 }];
    RetainedHeader { seq: Seq(10), time: Time(77), root: vec![3, 4], documents, tombstones: tombstones() }
}

pub(crate) const fn settings() -> TableSettings {
    TableSettings { compression: Compression::Zstd, history: 7, inline_bytes: None }
}

/// The record that begins a tree with these settings.
pub(crate) fn a_table(id: u32, structure_settings: Vec<u8>) -> CreateTable {
    let (id, structure, settings) = (TableId(id), Structure::BTree, settings());
    CreateTable { id, structure, settings, structure_settings, name: "a table".into() }
}

pub(crate) fn table_image(id: u32) -> TableImage {
    TableImage {
        id: TableId(id),
        structure: Structure::BTree,
        settings: settings(),
        applied: applied_through(),
        dropped: Seq(0),
        name: format!("table {id}"),
        root: vec![1, 2],
        documents: vec![3; 40],
        tombstones: tombstones(),
        headers: vec![header(); 2],
    }
}

pub(crate) fn image(tables: Vec<TableImage>, dropped: Vec<TableImage>) -> Image {
    Image {
        visible: Seq(12),
        flush_ends_below: Lsn(100),
        log_start: Lsn(50),
        log_durable: Lsn(99),
        kept_from: Lsn(40),
        kept_seq: Seq(6),
        time: Time(1_800_000_000_000),
        next_table: 9,
        tables,
        dropped,
        allocator: vec![9; 30],
    }
}
