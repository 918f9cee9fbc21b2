//! `braid device --learned`: the profile that a database learned from its own requests, beside the profile in use.

use std::path::PathBuf;

use btree::cost::{Choice, Memory, Workload, choose, gap_pages};
use psync::Psync;
use psync::probe::{
    DeviceProfile, LearnedFigure, LearnedProfile, MINUTES_MIN, RequestKind, TIMINGS_MIN, device_of, known, learned,
    recall, save,
};
use serde::Serialize;

use super::explain;
use crate::exit::{Error, Exit, Result};
use crate::output::{Output, section, table};
use crate::units::{bytes, count, microseconds, percent};

#[derive(Serialize)]
struct Report {
    directory: PathBuf,
    /// Whether the profile in use was saved in the database; else the profile of an ordinary NVMe drive is in use.
    is_saved_in_use: bool,
    /// Whether the learned one is saved now.
    is_learned_saved: bool,
    in_use: DeviceProfile,
    learned: LearnedProfile,
    /// The workload that the leaf size is for.
    workload: Workload,
    by_in_use: Follows,
    by_learned: Follows,
    /// The choice of the cost model by the learned profile, with each term for each leaf size.
    choice: Choice,
}

/// The settings that a database takes from a profile.
#[derive(Serialize)]
struct Follows {
    leaf_pages: u32,
    /// Largest gap between two pages that is read with them in one request, in pages.
    gap_pages: usize,
    /// Requests that background work keeps in flight when behind.
    background_depth: usize,
    cache_bytes: u64,
    write_buffer_bytes: u64,
}

impl Follows {
    fn new(profile: &DeviceProfile, choice: &Choice) -> Self {
        Self {
            leaf_pages: choice.leaf_pages,
            gap_pages: gap_pages(profile),
            background_depth: profile.parallelism(),
            cache_bytes: choice.cache_bytes,
            write_buffer_bytes: choice.write_buffer_bytes,
        }
    }
}

/// What is asked of the command.
pub(super) struct Request {
    pub(super) directory: PathBuf,
    pub(super) workload: Workload,
    /// Whether the database is to go by what it learned.
    pub(super) save: bool,
    /// Whether every term of the cost model is shown.
    pub(super) explain: bool,
}

pub(super) fn run(request: Request, psync: &Psync, json: bool) -> Result<Exit> {
    let Request { directory, workload, save: saves, explain } = request;
    if !recall(psync, &directory)? {
        return Err(Error::NotFound(format!(
            "nothing was learned yet in {}: a database learns from its reads and writes past the page cache, and saves that with a checkpoint and when it is closed",
            directory.display()
        )));
    }
    let saved = known(psync, &directory);
    let is_saved_in_use = saved.is_some();
    let in_use = saved.unwrap_or_default();
    let learned = learned(psync, device_of(&directory)?, &in_use);
    if saves {
        check(&learned)?;
        save(&directory, &learned.profile)?;
    }
    let choice = choose(&learned.profile, &workload);
    let report = Report {
        is_saved_in_use,
        is_learned_saved: saves,
        by_in_use: Follows::new(&in_use, &choose(&in_use, &workload)),
        by_learned: Follows::new(&learned.profile, &choice),
        directory,
        in_use,
        learned,
        workload,
        choice,
    };
    let mut output = Output::new();
    if json {
        output.json(&report)?;
    } else {
        print(&report, &mut output)?;
        if explain {
            explain::print(&report.workload, &report.choice, &mut output)?;
        }
    }
    output.flush()?;
    Ok(Exit::Ok)
}

/// Refuses a profile without enough reads of one page, because most settings follow from these.
fn check(learned: &LearnedProfile) -> Result<()> {
    let is_read = |figure: &&LearnedFigure| figure.kind == RequestKind::Read && figure.pages == 1;
    if learned.figures.iter().filter(is_read).any(LearnedFigure::is_enough) {
        return Ok(());
    }
    let missing: Vec<String> = learned.figures.iter().filter(is_read).map(missing).collect();
    Err(Error::Failed(format!(
        "too little was learned to go by; one of these is needed: {}. Use the database for longer, with lookups of what is not in memory, or measure with `braid device --save`",
        missing.join("; ")
    )))
}

fn print(report: &Report, output: &mut Output) -> Result<()> {
    let source = if report.is_saved_in_use { "the profile saved in it" } else { "an ordinary NVMe drive" };
    output.line(format!("database {}, which goes by {source}", report.directory.display()))?;
    output.line("")?;
    output.line("Learned from its requests, medians:")?;
    for line in figures(&report.learned) {
        output.line(format!("  {line}"))?;
    }
    section("What it would change:", &changes(report), output)?;
    if report.is_learned_saved {
        output.line("")?;
        output.line(
            "Saved: the database goes by it from its next opening on, for tables that are created or compacted.",
        )?;
        let is_few = |figure: &&LearnedFigure| figure.timings > 0 && !figure.is_enough();
        for figure in report.learned.figures.iter().filter(is_few) {
            output.line(format!("  not by its own requests: {}", missing(figure)))?;
        }
    }
    Ok(())
}

/// The settings that follow from each of the two profiles.
fn changes(report: &Report) -> Vec<Vec<String>> {
    let (in_use, learned) = (&report.by_in_use, &report.by_learned);
    let row = |what: &str, of: &dyn Fn(&Follows) -> String| vec![what.to_owned(), of(in_use), of(learned)];
    let mut rows = vec![
        ["", "in use", "learned"].map(String::from).to_vec(),
        row("pages of a leaf of the expected table", &|by| by.leaf_pages.to_string()),
        row("pages read with those beside them", &|by| by.gap_pages.to_string()),
        row("background requests in flight when behind", &|by| by.background_depth.to_string()),
    ];
    if matches!(report.workload.memory, Memory::Total { .. }) {
        rows.push(row("cache", &|by| bytes(by.cache_bytes)));
        rows.push(row("write buffer", &|by| bytes(by.write_buffer_bytes)));
    }
    rows
}

/// A table of the figures seen, in lines, and the number of unseen figures that keep their proportion to those.
pub(crate) fn figures(learned: &LearnedProfile) -> Vec<String> {
    let title = ["", "", "in use", "seen", "spread", "would be", "requests", ""].map(String::from).to_vec();
    let row = |figure: &LearnedFigure| {
        let [symbol, what] = name(figure);
        vec![
            symbol,
            what,
            microseconds(figure.in_use_us),
            figure.seen_us.map_or_else(String::new, microseconds),
            figure.spread.map_or_else(String::new, percent),
            microseconds(figure.learned_us),
            count(figure.requests),
            too_few(figure),
        ]
    };
    let (shown, others): (Vec<_>, Vec<_>) =
        learned.figures.iter().partition(|figure| figure.timings > 0 || figure.left_out > 0);
    if shown.is_empty() {
        return vec!["nothing learned from requests yet".into()];
    }
    let mut lines = table(&std::iter::once(title).chain(shown.into_iter().map(row)).collect::<Vec<_>>());
    let is_in_believed_row = |of: &&&LearnedFigure| {
        learned
            .figures
            .iter()
            .any(|figure| (figure.kind, figure.batched) == (of.kind, of.batched) && figure.is_enough())
    };
    let proportional = others.iter().filter(is_in_believed_row).count();
    if proportional > 0 {
        lines.push(format!("{proportional} more were not seen: they keep their proportion to other sizes that were"));
    }
    lines
}

/// The reason for which a figure is not believed; empty if the figure is.
fn too_few(figure: &LearnedFigure) -> String {
    let LearnedFigure { timings, minutes, left_out, .. } = *figure;
    if figure.is_enough() {
        String::new()
    } else if timings < TIMINGS_MIN {
        format!("too few: {timings} of {TIMINGS_MIN} timings")
    } else if minutes < MINUTES_MIN {
        format!("too few: {minutes} of {MINUTES_MIN} minutes")
    } else {
        format!("too few: {timings} timings, {left_out} left out for a slow consumer")
    }
}

fn missing(figure: &LearnedFigure) -> String {
    format!("{}, {}", name(figure).join(" "), too_few(figure))
}

/// The figure's symbol in the cost model, and its name in words.
fn name(figure: &LearnedFigure) -> [String; 2] {
    let (letter, kind) = match figure.kind {
        RequestKind::Read => ('r', "read"),
        RequestKind::Write => ('w', "write"),
    };
    let (prime, how) = if figure.batched { ("'", "in batches, each") } else { ("", "alone") };
    [format!("P{prime}_{letter}({})", figure.pages), format!("{kind} {how}")]
}
