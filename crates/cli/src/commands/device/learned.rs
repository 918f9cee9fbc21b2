//! `braid device --learned`: what a database learned of its device from its own requests, beside the profile that it goes by.

use std::path::PathBuf;

use btree::cost::{Choice, Workload, choose};
use psync::Psync;
use psync::probe::{
    DeviceProfile, LearnedFigure, LearnedProfile, RequestKind, TIMINGS_MIN, known, learned, recall, save,
};
use serde::Serialize;

use super::{Device, explain};
use crate::exit::{Error, Exit, Result};
use crate::output::{Output, table};
use crate::units::{count, microseconds};

#[derive(Serialize)]
struct Report {
    directory: PathBuf,
    /// Whether the profile in use was saved in the database; else it is that of an ordinary NVMe drive.
    is_saved_in_use: bool,
    /// Whether the learned one is saved now.
    is_learned_saved: bool,
    in_use: DeviceProfile,
    learned: LearnedProfile,
    /// What the leaf size is for.
    workload: Workload,
    leaf_pages_in_use: u32,
    leaf_pages_learned: u32,
    /// What the cost model chooses by the learned profile, with each term for each leaf size.
    choice: Choice,
}

pub(super) fn run(device: Device, psync: &Psync, json: bool) -> Result<Exit> {
    let directory = &device.directory;
    if !recall(psync, directory)? {
        return Err(Error::NotFound(format!(
            "nothing was learned yet in {}: a database learns from its reads and writes past the page cache, and saves that with a checkpoint and when it is closed",
            directory.display()
        )));
    }
    let saved = known(psync, directory);
    let is_saved_in_use = saved.is_some();
    let in_use = saved.unwrap_or_default();
    let learned = learned(psync, directory, &in_use)?;
    if device.save {
        if !learned.is_any_enough() {
            return Err(Error::Failed(format!(
                "too little was learned to go by: {}. Use the database for longer, or measure with `braid device --save`",
                too_few(&learned).join("; ")
            )));
        }
        save(directory, &learned.profile)?;
    }
    let workload = device.workload();
    let choice = choose(&learned.profile, &workload);
    let report = Report {
        is_saved_in_use,
        is_learned_saved: device.save,
        leaf_pages_in_use: choose(&in_use, &workload).leaf_pages,
        leaf_pages_learned: choice.leaf_pages,
        directory: device.directory,
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
        if device.explain {
            explain::print(&report.workload, &report.choice, &mut output)?;
        }
    }
    output.flush()?;
    Ok(Exit::Ok)
}

fn print(report: &Report, output: &mut Output) -> Result<()> {
    let source = if report.is_saved_in_use { "the profile saved in it" } else { "an ordinary NVMe drive" };
    output.line(format!("database {}, which goes by {source}", report.directory.display()))?;
    output.line("")?;
    output.line("Learned from its requests, medians:")?;
    for line in figures(&report.learned) {
        output.line(format!("  {line}"))?;
    }
    output.line("")?;
    output.line("What it would change:")?;
    output.line(format!(
        "  leaf pages {} by the profile in use, {} by what was learned: for the expected table; --explain shows the terms",
        report.leaf_pages_in_use, report.leaf_pages_learned
    ))?;
    if report.is_learned_saved {
        output.line("")?;
        output.line(
            "Saved: the database goes by it from its next opening on, for tables that are created or compacted.",
        )?;
        for figure in too_few(&report.learned) {
            output.line(format!("  not by its own requests: {figure}"))?;
        }
    }
    Ok(())
}

/// A table of the figures that were seen, in lines.
pub(crate) fn figures(learned: &LearnedProfile) -> Vec<String> {
    let title = ["", "", "in use", "learned", "requests", ""].map(String::from).to_vec();
    let row = |figure: &LearnedFigure| {
        let (learned_us, note) = match figure.seen_us {
            Some(seen_us) if !figure.is_enough() => (seen_us, format!("too few: {}", timings(figure))),
            _ => (figure.learned_us, String::new()),
        };
        let [symbol, what] = name(figure);
        vec![symbol, what, microseconds(figure.in_use_us), microseconds(learned_us), count(figure.requests), note]
    };
    let seen = || learned.figures.iter().filter(|figure| figure.timings > 0);
    let mut lines = table(&std::iter::once(title).chain(seen().map(row)).collect::<Vec<_>>());
    let unseen = learned.figures.len() - seen().count();
    if unseen > 0 {
        lines.push(format!(
            "{unseen} more were not seen: they keep their proportion to those of the same kind that were"
        ));
    }
    lines
}

/// Figures that rest on too few requests to be believed, those that were not seen at all left out.
fn too_few(learned: &LearnedProfile) -> Vec<String> {
    let few = |figure: &&LearnedFigure| figure.timings > 0 && !figure.is_enough();
    learned
        .figures
        .iter()
        .filter(few)
        .map(|figure| format!("{}, {}", name(figure).join(" "), timings(figure)))
        .collect()
}

fn timings(figure: &LearnedFigure) -> String {
    format!("{} of {TIMINGS_MIN} timings", figure.timings)
}

/// Its symbol in the cost model, and what it is.
fn name(figure: &LearnedFigure) -> [String; 2] {
    let (letter, kind) = match figure.kind {
        RequestKind::Read => ('r', "read"),
        RequestKind::Write => ('w', "write"),
    };
    let (prime, how) = if figure.batched { ("'", "in batches, each") } else { ("", "alone") };
    [format!("P{prime}_{letter}({})", figure.pages), format!("{kind} {how}")]
}
