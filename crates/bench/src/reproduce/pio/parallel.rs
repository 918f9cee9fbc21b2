//! Figure 4: psync against threads that send one request at a time.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use psync::{Buffer, File, Request};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::io::{DirectFile, INTERLEAVED, LEVELS, PAGE, run};
use super::paper::{PioPaper, claim};
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Drawing, Figure, Panel, Point, times};
use crate::reproduce::lab::{Device, Lab, Turn};
use crate::{Error, Result};

const PSYNC: &str = "psync";
const THREADS: &str = "threads";
/// Number of requests that the context switches of figure 4 (c) refer to.
const REQUESTS: f64 = 1e6;

/// Measurements of one sample.
struct Sample {
    mebibytes_per_second: f64,
    /// Context switches per request.
    switches: f64,
}

/// Figure 4: bandwidth in a shared file and in separate files, and context switches.
pub(super) fn comparison(paper: &PioPaper, lab: &mut Lab<'_>, device: &Device) -> Result<Finding> {
    let most = LEVELS[LEVELS.len() - 1];
    let shared = lab.file()?;
    let separate_room = lab.room()?;
    let mut separate = Vec::new();
    let each_bytes = (paper.scale.file_bytes / most as u64).next_multiple_of(PAGE as u64);
    for number in 0..most {
        let path = separate_room.join(number.to_string());
        lab.fill(&path, each_bytes)?;
        separate.push(path);
    }
    let mut figure = Figure::new("4", "Psync I/O and parallel processing");
    figure.notes.push(
        "Random requests of 4 KiB; (a) and (b): a read directly followed by a write; (c): reads only, the switches of one sample scaled to a \
         million requests, counted by the kernel for every thread of this process."
            .into(),
    );
    lab.expect_groups(3);
    let shared_files = vec![shared; most];
    for (title, paths) in [("(a) In a shared file", &shared_files), ("(b) In separate files", &separate)] {
        let mut panel = Panel::new(title, Drawing::Lines, Axis::logarithmic("OutStd level"), Axis::linear("MiB/s"));
        measure(lab, title, paths, true, |name, level, samples| {
            let rates = samples.iter().map(|sample| sample.mebibytes_per_second).collect();
            panel.add(name, Point::of(level as f64, rates));
        })?;
        figure.panels.push(panel);
    }
    let (across, upwards) = (Axis::logarithmic("OutStd level"), Axis::logarithmic("context switches"));
    let mut panel = Panel::new("(c) Context switches", Drawing::Lines, across, upwards);
    measure(lab, "(c)", &shared_files, false, |name, level, samples| {
        // Fewer than one switch in all is drawn as one, because the axis is logarithmic.
        let switches = samples.iter().map(|sample| (sample.switches * REQUESTS).max(1.0)).collect();
        panel.add(name, Point::of(level as f64, switches));
    })?;
    figure.panels.push(panel);
    fs::remove_dir_all(&separate_room).map_err(Error::io("removing", separate_room))?;
    let claims = claims(&figure, device);
    Ok(Finding { figure, claims })
}

fn claims(figure: &Figure, device: &Device) -> Vec<crate::reproduce::Claim> {
    let over = |panel: &Panel, over: &str, under: &str| {
        let at = |name, level| panel.at(name, level).unwrap_or(f64::NAN);
        format!(
            "{} at level 32, {} at 64",
            times(at(over, 32.0) / at(under, 32.0)),
            times(at(over, 64.0) / at(under, 64.0))
        )
    };
    let [shared, separate, switches] = &figure.panels[..] else { return Vec::new() };
    let setting = "4 KiB, random, reads and writes";
    vec![
        claim(
            "4",
            "psync over threads, shared file",
            "far above 1: threads saturate at level 2",
            over(shared, PSYNC, THREADS),
            device,
            setting,
        ),
        claim("4", "psync over threads, separate files", "about 1", over(separate, PSYNC, THREADS), device, setting),
        claim(
            "4",
            "context switches, threads over psync",
            "10x at level 32",
            over(switches, THREADS, PSYNC),
            device,
            "4 KiB, random reads",
        ),
    ]
}

fn measure(
    lab: &mut Lab<'_>, title: &str, paths: &[PathBuf], writes: bool, mut found: impl FnMut(&str, usize, &[Sample]),
) -> Result<()> {
    let cells: Vec<(&str, usize)> =
        [PSYNC, THREADS].into_iter().flat_map(|name| LEVELS.map(|level| (name, level))).collect();
    let samples = lab.interleave(&format!("figure 4 {title}"), cells.len(), |lab, turn| {
        let (name, level) = cells[turn.contestant];
        let paths = &paths[..level];
        if name == PSYNC { by_psync(lab, turn, paths, writes) } else { by_threads(lab, turn, paths, writes) }
    })?;
    for ((name, level), samples) in cells.iter().zip(&samples) {
        found(name, *level, samples);
    }
    Ok(())
}

fn sample(done: u64, seconds: f64, switches: u64) -> Sample {
    let bytes = done as f64 * PAGE as f64;
    Sample { mebibytes_per_second: bytes / f64::from(1 << 20) / seconds, switches: switches as f64 / done as f64 }
}

fn by_psync(lab: &Lab<'_>, turn: Turn, paths: &[PathBuf], writes: bool) -> Result<Sample> {
    let level = paths.len();
    let psync = lab.psync().clone().with_pio_max(level);
    let options = psync::OpenOptions { write: true, direct: true, ..psync::OpenOptions::default() };
    let files = paths.iter().map(|path| Ok(psync.open(path, &options)?)).collect::<Result<Vec<File>>>()?;
    let places = files[0].len()? / PAGE as u64;
    let mut random = SmallRng::seed_from_u64(turn.seed);
    let mut buffers: Vec<Buffer> = (0..level).map(|_| Buffer::zeroed(PAGE)).collect();
    let mut number = 0;
    let before = switches_of_process();
    let (done, elapsed) = lab.repeat_for(lab.slice(), || {
        let requests = buffers.drain(..).zip(&files).map(|(buffer, file)| {
            let offset = random.random_range(0..places) * PAGE as u64;
            number += 1;
            let write = writes && INTERLEAVED(number, level);
            if write { Request::write(file, offset, buffer, 0) } else { Request::read(file, offset, buffer, 0) }
        });
        let requests = requests.collect();
        buffers = run(&psync, requests)?;
        Ok(level as u64)
    })?;
    Ok(sample(done, elapsed.as_secs_f64(), switches_of_process().saturating_sub(before)))
}

fn by_threads(lab: &Lab<'_>, turn: Turn, paths: &[PathBuf], writes: bool) -> Result<Sample> {
    let files = paths.iter().map(|path| DirectFile::open(path)).collect::<Result<Vec<_>>>()?;
    let total = Mutex::new((0, 0.0_f64, 0));
    let work = |seed: u64, file: &DirectFile| -> Result<()> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut buffer = Buffer::zeroed(PAGE);
        let before = switches_of_thread();
        let mut number = 0;
        let (done, elapsed) = lab.repeat_for(lab.slice(), || {
            number += 1;
            let write = writes && INTERLEAVED(number, 1);
            file.request(&mut random, &mut buffer, PAGE, write).map(|()| 1)
        })?;
        let switches = switches_of_thread().saturating_sub(before);
        let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *total = (total.0 + done, total.1.max(elapsed.as_secs_f64()), total.2 + switches);
        Ok(())
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = files
            .iter()
            .zip(0..)
            .map(|(file, number)| scope.spawn(move || work(turn.seed << 8 | number, file)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let (done, seconds, switches) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(sample(done, seconds, switches))
}

/// Context switches of this thread since it began; 0 if the kernel does not report them.
fn switches_of_thread() -> u64 {
    fs::read_to_string("/proc/thread-self/status").map_or(0, |status| switches(&status))
}

/// Context switches of all current threads of this process.
fn switches_of_process() -> u64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0 };
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    statuses.map(|status| switches(&status)).sum()
}

fn switches(status: &str) -> u64 {
    let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
    lines.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_switches_count() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(switches(status), 42);
        assert_eq!(switches("Name: x\n"), 0);
    }
}
