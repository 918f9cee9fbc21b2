//! `braid device --explain`: each term of the cost model, and the reason of each choice.

use btree::cost::{AS_GOOD, Choice, Estimate, Memory, PIO_MAX_BOUNDS, ROOM_ENTRIES, ROOM_PAGES_MAX, Workload};

use crate::exit::Result;
use crate::output::{Output, section};
use crate::units::{bytes, count, microseconds, percent};

/// Prints the terms for each leaf size, and the choices.
pub(super) fn print(workload: &Workload, choice: &Choice, output: &mut Output) -> Result<()> {
    output.line("")?;
    output.line(format!(
        "Cost model, for {} records of {}, {:.0}% puts, {:.0}% of the lookups in batches, {}:",
        count(workload.records),
        bytes(workload.record_bytes),
        workload.insert_share * 100.0,
        workload.batched_share * 100.0,
        memory(workload.memory),
    ))?;
    section("A tree with leaves of L pages:", &trees(choice), output)?;
    section("Time of a lookup:", &searches(choice), output)?;
    section("Time of a put, its share of the batch update that applies it:", &inserts(choice), output)?;
    section("Time of an operation, by this engine's model and by the paper's equation (9):", &totals(choice), output)?;
    output.line("")?;
    output.line("Chosen:")?;
    for line in reasons(workload, choice) {
        output.line(format!("  {line}"))?;
    }
    Ok(())
}

fn memory(memory: Memory) -> String {
    match memory {
        Memory::Total { bytes: all } => format!("{} of memory", bytes(all)),
        Memory::Divided { cache_bytes, write_buffer_bytes } => {
            format!("{} of cache, {} of write buffer", bytes(cache_bytes), bytes(write_buffer_bytes))
        }
    }
}

/// A table with a row for each leaf size.
fn rows(choice: &Choice, titles: &[&str], cells: impl Fn(&Estimate) -> Vec<String>) -> Vec<Vec<String>> {
    let title = std::iter::once("L").chain(titles.iter().copied()).map(String::from).collect();
    let row = |estimate: &Estimate| std::iter::once(estimate.leaf_pages.to_string()).chain(cells(estimate)).collect();
    std::iter::once(title).chain(choice.estimates.iter().map(row)).collect()
}

fn trees(choice: &Choice) -> Vec<Vec<String>> {
    let titles = ["leaves", "internal nodes", "nodes cached", "leaves cached", "puts sharing a leaf: G", "space"];
    rows(choice, &titles, |of| {
        vec![
            format!("{:.0}", of.leaves),
            format!("{:.0}", of.nodes),
            percent(of.nodes_cached),
            percent(of.leaves_cached),
            format!("{:.2}", of.shared),
            format!("{:.2} of the records", of.space),
        ]
    })
}

fn searches(choice: &Choice) -> Vec<Vec<String>> {
    rows(choice, &["internal nodes", "leaf", "short scan", "lookup"], |of| {
        [of.search.nodes_us, of.search.leaf_us, of.search.scan_us, of.search.total_us].map(microseconds).to_vec()
    })
}

fn inserts(choice: &Choice) -> Vec<Vec<String>> {
    rows(choice, &["nodes read", "nodes written", "append", "rewrite when full", "flushes", "put"], |of| {
        let cost = &of.insert;
        [cost.node_reads_us, cost.node_writes_us, cost.append_us, cost.rewrite_us, cost.flush_us, cost.total_us]
            .map(microseconds)
            .to_vec()
    })
}

fn totals(choice: &Choice) -> Vec<Vec<String>> {
    let titles = ["lookup", "put", "operation", "with space", "paper: lookup", "paper: put", "paper: operation", ""];
    rows(choice, &titles, |of| {
        let times = [
            of.search.total_us,
            of.insert.total_us,
            of.total_us,
            of.cost_us,
            of.paper_search_us,
            of.paper_insert_us,
            of.paper_us,
        ];
        let chosen = of.leaf_pages == choice.leaf_pages as usize;
        let mark = if chosen { "<- chosen" } else { "" };
        times.map(microseconds).into_iter().chain([mark.to_owned()]).collect()
    })
}

fn reasons(workload: &Workload, choice: &Choice) -> Vec<String> {
    let within = format!("within {:.0}% of the least", (AS_GOOD - 1.0) * 100.0);
    let queue = match workload.memory {
        Memory::Total { .. } => format!("the smallest of 1/32 to 1/2 of the memory whose time is {within}"),
        Memory::Divided { .. } => "as given".to_owned(),
    };
    vec![
        format!(
            "L       {} page{}: of leaves with room for {ROOM_ENTRIES} entries, or of {ROOM_PAGES_MAX} pages, the smallest whose time per operation, with what space counts, is {within}",
            choice.leaf_pages,
            if choice.leaf_pages == 1 { "" } else { "s" }
        ),
        format!(
            "O       {} of write buffer, {} of cache: {queue}",
            bytes(choice.write_buffer_bytes),
            bytes(choice.cache_bytes)
        ),
        format!(
            "PioMax  {} requests in flight: the fewest with 95% of the best rate, from {} to {}",
            choice.pio_max,
            PIO_MAX_BOUNDS.start(),
            PIO_MAX_BOUNDS.end()
        ),
    ]
}
