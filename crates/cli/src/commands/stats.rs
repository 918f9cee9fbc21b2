//! `braid stats`: the contents of a database in figures.

use std::borrow::Cow;

use braid::{Figure, ProfileSource, Stats as Counted, TableStats, Unit};
use clap::Args;

use super::device::learned::figures;
use crate::exit::{Exit, Result};
use crate::open::{DatabaseArgs, Mode};
use crate::output::{Output, list, table};
use crate::units::{bytes, count, percent, seconds};

/// Show what a database holds, and what opening it took
///
/// The figures are those of the files and of this process: counters begin at zero when a database is opened.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid stats my.db
  braid stats my.db --json | jq .space          every figure, for programs")]
pub(crate) struct Stats {
    #[command(flatten)]
    database: DatabaseArgs,
}

impl Stats {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        let database = self.database.open(Mode::Read)?;
        let stats = database.stats()?;
        let mut output = Output::new();
        if json {
            output.json(&stats)?;
        } else {
            for (title, lines) in sections(&stats) {
                output.line(title)?;
                for line in lines {
                    output.line(format!("  {line}"))?;
                }
            }
        }
        output.flush()?;
        Ok(Exit::Ok)
    }
}

type Rows = Vec<(Cow<'static, str>, String)>;

fn sections(stats: &Counted) -> Vec<(String, Vec<String>)> {
    let mut sections = vec![
        (format!("database {}", stats.path), list(&database(stats))),
        ("data file".into(), list(&space(stats))),
        ("write-ahead log".into(), list(&log(stats))),
        ("opening".into(), list(&opening(stats))),
        ("cache".into(), list(&cache(stats))),
        ("I/O since opening".into(), table(&streams(stats))),
        (format!("device, taken for {}", source(stats)), device(stats)),
    ];
    sections.extend(stats.tables.iter().map(|table| {
        let title = format!("table {} ({})", crate::bytes::escape(table.name.as_bytes()), table.structure);
        (title, list(&one_table(table)))
    }));
    sections
}

fn row(name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> (Cow<'static, str>, String) {
    (name.into(), value.into())
}

fn database(stats: &Counted) -> Rows {
    let direct =
        if stats.direct_io { "yes" } else { "no: this file system refuses it, so data goes through the page cache" };
    let mut rows = vec![row("I/O backend", &stats.backend)];
    rows.extend(stats.backend_fallback.as_ref().map(|why| row("why no better backend", why)));
    rows.push(row("direct I/O", direct));
    rows.extend(stats.failure.as_ref().map(|why| row("read-only, because", why)));
    rows.extend(stats.full_disk.as_ref().map(|why| row("refuses puts, because", why)));
    rows.push(row("newest commit", count(stats.visible_seq)));
    rows.push(row("tables", count(stats.tables.len() as u64)));
    rows
}

fn space(stats: &Counted) -> Rows {
    let space = &stats.space;
    let pages = |pages: u64| format!("{} ({} pages)", bytes(pages * space.page_bytes), count(pages));
    vec![
        row("size", pages(space.total_pages)),
        row("free", pages(space.free_pages)),
        row("given back to the disk", pages(space.hole_pages)),
        row("kept for older readers", pages(space.retired_pages)),
    ]
}

fn log(stats: &Counted) -> Rows {
    let log = &stats.log;
    let each = |time: u64, of: u64| seconds(time as f64 / of.max(1) as f64 / 1e9);
    vec![
        row("kept for recovery", bytes(log.retained_bytes)),
        row(
            "records",
            format!(
                "{}, {} of them direct, {} in {} slots",
                count(log.records),
                count(log.direct_records),
                count(log.consolidated_records),
                count(log.slots)
            ),
        ),
        row("flushes", format!("{}, {} each", count(log.flushes), each(log.flush_ns, log.flushes))),
        row("calls that they served", count(log.flush_requests)),
        row(
            "sync lock",
            format!(
                "taken {} times after {}",
                count(log.sync_lock_acquisitions),
                each(log.sync_lock_wait_ns, log.sync_lock_acquisitions)
            ),
        ),
        row("waiting for another's flush", seconds(log.flush_wait_ns as f64 / 1e9)),
    ]
}

fn opening(stats: &Counted) -> Rows {
    let recovery = &stats.recovery;
    vec![
        row("took", seconds(recovery.seconds)),
        row("replayed", format!("{} records, {}", count(recovery.records), bytes(recovery.bytes))),
    ]
}

fn cache(stats: &Counted) -> Rows {
    let cache = &stats.cache;
    let share = |hits: u64, reads: u64| match hits + reads {
        0 => "no reads yet".to_owned(),
        all => format!("{} of {} found", percent(hits as f64 / all as f64), count(all)),
    };
    let mut rows = vec![row("holds", format!("{} of {}", bytes(cache.bytes), bytes(cache.capacity_bytes)))];
    for part in cache.structures.iter().filter(|part| part.capacity_bytes > 0) {
        let held = format!("{} of {} of that", bytes(part.bytes), bytes(part.capacity_bytes));
        rows.push(row(format!("nodes of {} tables", part.structure), held));
        rows.extend(part.lookups.iter().map(|of| row(format!("found of the {}", of.nodes), share(of.hits, of.reads))));
    }
    if cache.document_capacity_bytes > 0 {
        let part = format!("{} of {} of that", bytes(cache.document_bytes), bytes(cache.document_capacity_bytes));
        rows.push(row("documents", part));
        rows.push(row("found of these", share(cache.document_hits, cache.document_misses)));
    }
    if cache.lent_bytes > 0 {
        let lent = format!("{} of {}", bytes(cache.secondary_bytes), bytes(cache.lent_bytes));
        rows.push(row("lent by the write buffer", format!("{lent}, {} reads saved", count(cache.secondary_hits))));
    }
    rows
}

fn source(stats: &Counted) -> &'static str {
    match stats.device.source {
        ProfileSource::Options => "what the options say",
        ProfileSource::Saved => "what the profile saved in the database says",
        ProfileSource::OrdinaryDrive => "an ordinary NVMe drive",
    }
}

/// What was learned from requests, beside what the database goes by.
fn device(stats: &Counted) -> Vec<String> {
    let device = &stats.device;
    let mut lines: Vec<String> = device.unusable.iter().cloned().collect();
    lines.extend(figures(&device.learned));
    if device.learned.is_any_enough() {
        lines.push("`braid device --save --learned` has the database go by what was learned".into());
    }
    lines
}

fn streams(stats: &Counted) -> Vec<Vec<String>> {
    let title = ["stream", "reads", "bytes read", "writes", "bytes written", "flushes"].map(String::from).to_vec();
    let stream = |stream: &braid::StreamStats| {
        vec![
            stream.stream.clone(),
            count(stream.reads),
            bytes(stream.read_bytes),
            count(stream.writes),
            bytes(stream.written_bytes),
            count(stream.flushes),
        ]
    };
    std::iter::once(title).chain(stats.streams.iter().map(stream)).collect()
}

/// The value of a figure, with its unit.
pub(super) fn value(figure: &Figure) -> String {
    match figure.unit {
        Unit::Bytes => bytes(figure.value),
        Unit::Count => count(figure.value),
    }
}

/// A setting, and what it would be by the use of its table.
fn setting(table: &TableStats, figure: &Figure) -> String {
    let of = |chosen: &Option<Vec<Figure>>| chosen.iter().flatten().find(|other| other.name == figure.name).map(value);
    let mut text = value(figure);
    if let (Some(share), Some(fit)) = (table.insert_share, of(&table.settings_for_use)) {
        text += &format!("; {fit} would fit {} puts", percent(share));
    }
    if let Some(fit) = of(&table.settings_by_learned) {
        text += &format!(", {fit} by what was learned of the device");
    }
    text
}

fn one_table(table: &TableStats) -> Rows {
    let mut rows = vec![
        row("entries, older versions included", count(table.entries)),
        row("bytes of the entries", format!("{} in {}", bytes(table.entry_bytes), bytes(table.stored_bytes))),
    ];
    rows.extend(table.shape.iter().map(|figure| row(figure.name, value(figure))));
    rows.extend(table.settings.iter().map(|figure| row(figure.name, setting(table, figure))));
    rows.push(row(
        "waiting to be applied",
        format!("{} operations, {}", count(table.waiting_operations), bytes(table.waiting_bytes)),
    ));
    if table.own_files > 0 {
        let (live, all) = (bytes(table.own_live_bytes), bytes(table.own_bytes));
        rows.push(row("files of its own", format!("{}, {live} live of {all}", count(table.own_files))));
    }
    if table.compression != "none" {
        rows.push(row("compression of large values", &table.compression));
    }
    if table.document_segments > 0 {
        let (live, all) = (bytes(table.document_live_bytes), bytes(table.document_bytes));
        rows.push(row(
            "documents (large values)",
            format!("{live} live of {all} in {} segments", count(table.document_segments)),
        ));
    }
    if table.history_states > 0 {
        let (states, held) = (count(table.history_states), bytes(table.history_bytes));
        rows.push(row("history", format!("{states} states, which hold {held} beside what is live")));
    }
    rows
}
