//! The lines of the report, each with its meaning, its unit, and the better direction.

use bench::ycsb::Core;

use crate::run::Sizes;
use crate::work::{FILL_BATCH, MULTI_GET_KEYS, Metric, Set, Work, YCSB_THREADS, warm_records};

/// Lines that belong together: a part of the table and a plot.
pub(crate) struct Section {
    /// Name of the plot's file.
    pub(crate) stem: &'static str,
    pub(crate) title: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// One line.
pub(crate) struct Line {
    pub(crate) work: Work,
    pub(crate) metric: Metric,
    pub(crate) what: String,
    pub(crate) unit: Unit,
    /// Durability, and the memory for the amount of data.
    pub(crate) setting: String,
}

/// A unit of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Thousands,
    Millions,
    Each,
    Bytes,
    BytesPerByte,
}

impl Unit {
    /// The text beside a figure.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Thousands => "k/s",
            Self::Millions => "M/s",
            Self::Each => "/s",
            Self::Bytes => "B",
            Self::BytesPerByte => "B/B",
        }
    }

    /// Number of measured units in one shown unit.
    pub(crate) const fn scale(self) -> f64 {
        match self {
            Self::Thousands => 1e3,
            Self::Millions => 1e6,
            Self::Each | Self::Bytes | Self::BytesPerByte => 1.0,
        }
    }

    /// Whether more is better.
    pub(crate) const fn more_is_better(self) -> bool {
        matches!(self, Self::Thousands | Self::Millions | Self::Each)
    }
}

/// All of them, in the report's order.
pub(crate) fn sections(sizes: &Sizes) -> Vec<Section> {
    let of = |stem, title, is_in: fn(Work) -> bool| Section {
        stem,
        title,
        lines: Work::all().into_iter().filter(|work| is_in(*work)).flat_map(|work| lines(work, sizes)).collect(),
    };
    let is_read = |work| matches!(work, Work::Get { set: Set::Small, .. } | Work::Absent { .. } | Work::MultiGet);
    vec![
        of("reads", "Lookups from the device", is_read),
        of("scans", "Scans", |work| matches!(work, Work::Scan { .. })),
        of("ycsb", "YCSB", |work| matches!(work, Work::Ycsb { .. })),
        of("fills", "Fills", |work| matches!(work, Work::Fill { set: Set::Small, .. })),
        of("memory", "Lookups in memory", |work| matches!(work, Work::Warm { .. })),
        of("commits", "Commits", |work| matches!(work, Work::Commit { .. })),
        of("queue", "Queues of jobs", |work| matches!(work, Work::Queue { .. })),
        of("seeks", "Seeks in memory", |work| matches!(work, Work::Seek)),
        of("creations", "Databases made and removed", |work| matches!(work, Work::Create { .. })),
        of("values", "Values of 1 KiB", |work| {
            matches!(work, Work::Fill { set: Set::Large, .. } | Work::Get { set: Set::Large, .. })
        }),
    ]
}

fn lines(work: Work, sizes: &Sizes) -> Vec<Line> {
    let setting = setting(work, sizes);
    let line = |metric, what: String, unit| Line { work, metric, what, unit, setting: setting.clone() };
    let rate = |what: String, unit| line(Metric::PerSecond, what, unit);
    let read = || line(Metric::ReadPerOperation, "… bytes read from the device for each".into(), Unit::Bytes);
    match work {
        Work::Get { set: Set::Small, threads } => {
            vec![rate(format!("cold get, {}", plural(threads, "thread")), Unit::Thousands), read()]
        }
        Work::Get { set: Set::Large, threads } => {
            vec![rate(format!("1 KiB: cold get, {}", plural(threads, "thread")), Unit::Thousands), read()]
        }
        Work::Absent { threads } => {
            vec![rate(format!("cold get of absent keys, {}", plural(threads, "thread")), Unit::Thousands), read()]
        }
        Work::MultiGet => {
            let what = format!("multi-get of {MULTI_GET_KEYS}, one thread, keys");
            vec![rate(what, Unit::Thousands), read()]
        }
        Work::Scan { records } => {
            let records = grouped(records.min(sizes.records));
            vec![rate(format!("scan of {records}, one thread, records"), Unit::Millions)]
        }
        Work::Ycsb { core, distribution } => {
            let mix = match core {
                Core::A => "A: half updates",
                Core::B => "B: 5 % updates",
                Core::C => "C: reads",
                Core::D => "D: reads of the newest",
                Core::E => "E: short scans, 5 % inserts",
                Core::F => "F: half read-modify-writes",
            };
            vec![rate(format!("{mix}, {distribution}, {YCSB_THREADS} threads"), Unit::Thousands)]
        }
        Work::Fill { set, sorted } => {
            let order = match (set, sorted) {
                (Set::Large, _) => "1 KiB: fill in random order",
                (Set::Small, true) => "fill in key order",
                (Set::Small, false) => "fill in random order",
            };
            vec![
                rate(format!("{order}, commits of {FILL_BATCH}"), Unit::Thousands),
                line(Metric::FlushedPerSecond, "… with the flush behind it".into(), Unit::Thousands),
                line(Metric::WrittenPerByte, "… bytes written for each user byte".into(), Unit::BytesPerByte),
                line(Metric::SpacePerByte, "… bytes on storage for each user byte".into(), Unit::BytesPerByte),
            ]
        }
        Work::Warm { threads } => vec![rate(format!("warm get, {}", plural(threads, "thread")), Unit::Millions)],
        Work::Commit { threads } => {
            vec![rate(format!("commits of one put, {}", plural(threads, "thread")), Unit::Each)]
        }
        Work::Queue { threads } => {
            vec![rate(format!("jobs pushed, claimed and acknowledged, {}", plural(threads, "thread")), Unit::Each)]
        }
        Work::Create { threads } => {
            let what = format!("databases made, given a record, closed and removed, {}", plural(threads, "thread"));
            let written = "… bytes written to the device for each".into();
            vec![rate(what, Unit::Each), line(Metric::WrittenPerOperation, written, Unit::Bytes)]
        }
        Work::Seek => vec![rate("first pair of a range, 1 thread beside 20 000 writes/s".into(), Unit::Thousands)],
    }
}

fn setting(work: Work, sizes: &Sizes) -> String {
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let limit = mebibytes(sizes.limit_bytes);
    match work {
        Work::Fill { .. } => "`Os`; no limit".into(),
        Work::Get { set, .. } => format!("{} MiB in {limit}", mebibytes(sizes.user_bytes(set))),
        Work::Ycsb { .. } => format!("`Os`; {} MiB in {limit}", mebibytes(sizes.user_bytes(Set::Small))),
        Work::Absent { .. } | Work::MultiGet | Work::Scan { .. } => {
            format!("{} MiB in {limit}", mebibytes(sizes.user_bytes(Set::Small)))
        }
        Work::Warm { .. } | Work::Seek => {
            format!("{} records, in the cache", grouped(warm_records(sizes.cache_bytes, sizes.records)))
        }
        Work::Commit { .. } | Work::Queue { .. } | Work::Create { .. } => "`Sync`; no limit".into(),
    }
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// `10 000`: digits in threes.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::drive::Pace;

    #[test]
    fn every_row_has_its_lines_once() {
        let pace = Pace { warm_up: Duration::ZERO, time: Duration::from_secs(1) };
        let sections = sections(&Sizes::of(Sizes::RECORDS, 3, pace));
        let mut names: Vec<String> =
            sections.iter().flat_map(|section| &section.lines).map(|line| line.work.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Work::all().len());
        let all = sections.iter().flat_map(|section| &section.lines);
        assert_eq!(all.filter(|line| line.metric == Metric::PerSecond).count(), Work::all().len());
    }

    #[test]
    fn digits_come_in_threes() {
        assert_eq!([7, 100, 1000, 1_234_567].map(grouped), ["7", "100", "1 000", "1 234 567"]);
    }
}
