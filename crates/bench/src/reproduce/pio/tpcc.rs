//! Figure 13: the index operations of TPC-C.
//!
//! The eight indexes are in one tree, distinguished by the first byte of the key. They therefore share one budget, as
//! the paper's eight files share one buffer. Each tree plays the same trace, starting from the same freshly populated
//! database.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::paper::{B_LINK, B_PLUS, PIO, PioPaper, claim};
use super::scale::{SMALL, Scale};
use super::{memory, tuning};
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Claim, Drawing, Figure, Panel, Point, paired_ratio, times, times_range};
use crate::reproduce::lab::{Device, Lab};
use crate::reproduce::stock::{Contestant, Load, Plan, Prepared, entry};
use crate::tpcc::{Operation, Trace};
use crate::trees::Tree;
use crate::trees::pio::{CACHE_BYTES_MIN, Tuning};
use crate::{Error, Result, keys, values};

/// Threads of figure 13 (b).
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
/// Operations that a thread takes from the trace at a time.
const CHUNK: usize = 64;
/// The paper's OPQ: 20 pages for each of 8 indexes, of 1024 pages of memory.
const QUEUE_SHARE: (u64, u64) = (8 * 20, 1024);
/// Node size of all trees, and L = 1, as in the paper.
const NODE_BYTES: usize = 4096;
/// The seed of the trace.
const SEED: u64 = 2011;

/// A tree and its position in the trace.
struct Runner {
    prepared: Prepared,
    trace: Mutex<Trace>,
}

/// Measurements of one sample.
#[derive(Clone, Copy, Debug, Default)]
struct Played {
    operations: u64,
    /// Seconds from the start until all operations are in the tree.
    elapsed_seconds: f64,
    /// Operations of each kind.
    counts: [u64; 4],
    /// Seconds in operations of each kind, over all threads.
    seconds: [f64; 4],
}

impl Played {
    fn us_per_operation(&self) -> f64 {
        self.elapsed_seconds * 1e6 / self.operations as f64
    }

    /// Microseconds of this kind per operation of any kind.
    fn share_us(&self, kind: usize) -> f64 {
        self.seconds[kind] * 1e6 / self.operations as f64
    }

    /// Microseconds per operation of this kind.
    fn own_us(&self, kind: usize) -> f64 {
        self.seconds[kind] * 1e6 / self.counts[kind].max(1) as f64
    }
}

impl Runner {
    fn new(paper: &mut PioPaper, lab: &mut Lab<'_>, contestant: Contestant) -> Result<Self> {
        let Scale { warehouses, .. } = paper.scale;
        let memory_bytes = paper.scale.tpcc_memory_bytes();
        let plan = Plan { contestant, shape: SMALL, load: Load::Tpcc(warehouses), memory_bytes };
        let prepared = paper.stock.take(lab, &plan)?;
        Ok(Self { prepared, trace: Mutex::new(Trace::new(warehouses, SEED)) })
    }

    fn play(&mut self, lab: &Lab<'_>, threads: usize, time: Duration) -> Result<Played> {
        let begun = Instant::now();
        let (tree, trace) = (self.prepared.tree.as_ref(), &self.trace);
        let all: Vec<Played> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(move || work(lab, tree, trace, time))).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Result<_>>()
        })?;
        let written = Instant::now();
        tree.write_back()?;
        let mut sum = Played { elapsed_seconds: begun.elapsed().as_secs_f64(), ..Played::default() };
        for played in all {
            sum.operations += played.operations;
            for kind in 0..played.counts.len() {
                sum.counts[kind] += played.counts[kind];
                sum.seconds[kind] += played.seconds[kind];
            }
        }
        // The time of this write-back counts as insert time, because the operations still outside the tree are inserts.
        sum.seconds[1] += written.elapsed().as_secs_f64();
        self.prepared.inserted += sum.counts[1];
        Ok(sum)
    }
}

fn work(lab: &Lab<'_>, tree: &dyn Tree, trace: &Mutex<Trace>, time: Duration) -> Result<Played> {
    let mut played = Played::default();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut chunk = Vec::with_capacity(CHUNK);
    lab.repeat_for(time, || {
        chunk.extend(trace.lock().unwrap_or_else(std::sync::PoisonError::into_inner).by_ref().take(CHUNK));
        for operation in chunk.drain(..) {
            let begun = Instant::now();
            apply(tree, &operation, &mut key, &mut value)?;
            played.seconds[operation.kind()] += begun.elapsed().as_secs_f64();
            played.counts[operation.kind()] += 1;
        }
        played.operations += CHUNK as u64;
        Ok(CHUNK as u64)
    })?;
    Ok(played)
}

fn apply(tree: &dyn Tree, operation: &Operation, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<()> {
    match operation {
        Operation::Search(index) => {
            key.resize(SMALL.key_bytes, 0);
            keys::write(*index, key);
            if tree.get(key, value)? && values::is_right(*index, value) {
                return Ok(());
            }
            Err(Error::WrongValue { table: tree.name().to_owned(), index: *index, bytes: value.len() })
        }
        Operation::Insert(index) => {
            entry(SMALL, *index, key, value);
            tree.put(key, value)
        }
        Operation::Delete(index) => tree.delete(&keys::key(*index, SMALL.key_bytes)),
        Operation::Range(range) => {
            let [first, end] = [range.start, range.end].map(|index| keys::key(index, SMALL.key_bytes));
            let mut outside = false;
            tree.scan(&first, &end, &mut |key, _| outside |= key < first.as_slice() || key >= end.as_slice())?;
            if outside {
                return Err(Error::Invalid(format!("{} has an entry outside of the range asked for", tree.name())));
            }
            Ok(())
        }
    }
}

/// Figure 13.
pub(super) fn traces(paper: &mut PioPaper, lab: &mut Lab<'_>, device: &Device) -> Result<Finding> {
    let scale = paper.scale;
    let bytes = scale.tpcc_memory_bytes();
    let share = bytes * QUEUE_SHARE.0 / QUEUE_SHARE.1;
    let pio = Contestant::Pio(Tuning { leaf_pages: 1, queue_bytes: share.min(bytes - CACHE_BYTES_MIN) });
    let b_plus = Contestant::BPlus { node_bytes: NODE_BYTES };
    let b_link = Contestant::BLink { node_bytes: NODE_BYTES };
    let mut figure = Figure::new("13", "Performance with the TPC-C index trace");
    figure.notes.push(format!(
        "{} warehouses, {} of 8 B + 8 B entries in 8 indexes that share one tree and one budget: {}. Shares: 71.5 % point search, 23.8 % insert, 3.7 % \
         range search, 1 % delete. The paper has 10 million operations; here it is as many as a sample has time for, and a faster tree \
         gets further in the trace.",
        scale.warehouses,
        memory::text(scale.tpcc_bytes()),
        memory::beside(bytes, scale.tpcc_bytes())
    ));
    figure.notes.push(format!(
        "{}; the OPQ has the share of the memory that 20 pages for each of 8 indexes have of 4 MB.",
        tuning::note(&[b_plus, b_link, pio])
    ));
    lab.expect_groups(1 + THREADS.len());
    let setting = format!("TPC-C, {}", memory::beside(bytes, scale.tpcc_bytes()));
    let (panel, mut claims) =
        from_the_start(paper, lab, [b_plus, pio], |lab, runners| by_operation(runners, scale, lab, device, &setting))?;
    figure.panels.push(panel);
    let (panel, claim) =
        from_the_start(paper, lab, [b_link, pio], |lab, runners| by_threads(runners, scale, lab, device, &setting))?;
    figure.panels.push(panel);
    claims.push(claim);
    Ok(Finding { figure, claims })
}

/// Measures two trees that begin the trace together. A first slice of the trace does not count.
fn from_the_start<T>(
    paper: &mut PioPaper, lab: &mut Lab<'_>, [left, right]: [Contestant; 2],
    measure: impl FnOnce(&mut Lab<'_>, &mut [Runner; 2]) -> Result<T>,
) -> Result<T> {
    let mut runners = [Runner::new(paper, lab, left)?, Runner::new(paper, lab, right)?];
    for runner in &mut runners {
        runner.play(lab, 1, paper.scale.trace_slice)?;
    }
    let measured = measure(lab, &mut runners)?;
    for runner in runners {
        paper.note_memory(&runner.prepared);
        paper.stock.put_back(runner.prepared)?;
    }
    Ok(measured)
}

fn by_operation(
    runners: &mut [Runner; 2], scale: Scale, lab: &mut Lab<'_>, device: &Device, setting: &str,
) -> Result<(Panel, Vec<Claim>)> {
    let samples =
        lab.interleave("figure 13 (a)", 2, |lab, turn| runners[turn.contestant].play(lab, 1, scale.trace_slice))?;
    let (across, upwards) = (Axis::linear("index"), Axis::linear("µs per operation"));
    let mut panel = Panel::new("(a) One thread", Drawing::StackedBars, across, upwards);
    for ((place, name), samples) in [B_PLUS, PIO].into_iter().enumerate().zip(&samples) {
        for (kind, part) in Operation::NAMES.into_iter().enumerate() {
            let shares = samples.iter().map(|played| played.share_us(kind)).collect();
            panel.add(part, Point::of(place as f64, shares).labelled(name));
        }
    }
    let ratio = |of: &dyn Fn(&Played) -> f64| {
        let [b_plus, pio] = [0, 1].map(|tree: usize| samples[tree].iter().map(of).collect::<Vec<f64>>());
        times(paired_ratio(&b_plus, &pio))
    };
    let row = |what: &str, paper: &str, here: String| claim("13", what, paper, here, device, setting);
    let claims = vec![
        row("all operations against the B+-tree", "1.25x to 1.49x", ratio(&Played::us_per_operation)),
        row("point searches", "not quoted", ratio(&|played| played.own_us(0))),
        row("inserts", "5.7x to 6.2x", ratio(&|played| played.own_us(1))),
        row("range searches", "1.9x to 2.1x", ratio(&|played| played.own_us(2))),
    ];
    Ok((panel, claims))
}

fn by_threads(
    runners: &mut [Runner; 2], scale: Scale, lab: &mut Lab<'_>, device: &Device, setting: &str,
) -> Result<(Panel, Claim)> {
    let (across, upwards) = (Axis::logarithmic("threads"), Axis::linear("operations per second"));
    let mut panel = Panel::new("(b) Threads", Drawing::Lines, across, upwards);
    let time = scale.trace_slice / 2;
    let mut ratios = Vec::new();
    for threads in THREADS {
        let what = format!("figure 13 (b), {threads} threads");
        let samples = lab.interleave(&what, 2, |lab, turn| {
            let played = runners[turn.contestant].play(lab, threads, time)?;
            Ok(1e6 / played.us_per_operation())
        })?;
        ratios.push(paired_ratio(&samples[1], &samples[0]));
        for (name, samples) in [B_LINK, PIO].into_iter().zip(samples) {
            panel.add(name, Point::of(threads as f64, samples));
        }
    }
    let what = "1 to 16 threads against the B-link tree";
    let says = "1.33x to 1.49x, 1.3x to 1.47x, 1.17x to 1.32x";
    Ok((panel, claim("13", what, says, times_range(&ratios), device, setting)))
}
