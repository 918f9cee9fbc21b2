//! A writer at a fixed rate, whether or not the store keeps up (open loop): how long a put takes from the moment at
//! which it was due. So a stall counts for every put that it holds up.
//!
//! `cargo run --release -p braid-bench --example steady -- DIR [STRUCTURE [RECORDS [SECONDS [SHARE]]]]` makes a
//! database in DIR and puts each record once, at random. It measures for half a minute at which rate one thread
//! overwrites records of 16 + 100 bytes at random as fast as it can, with durability `Os`. Then it overwrites at SHARE
//! (0.9) of that rate for SECONDS. Each line has the throughput and the longest wait of ten seconds; the last ones have
//! the quantiles, the second with the fewest puts, and the most space that the files took beside the live bytes.

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bench::{keys, process::bytes_below, values};
use braid::{Durability, Options, Structure, Table};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

type Outcome<T> = Result<T, Box<dyn Error>>;

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
const PROBE: Duration = Duration::from_secs(30);
/// Puts that are due within this time are made one after the other without a look at the clock's next tick.
const TICK: Duration = Duration::from_micros(200);

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let scratch = tempfile::tempdir_in(arguments.next().ok_or("give a directory on the device to measure")?)?;
    let structure = arguments.next().map_or(Ok(Structure::Lsm), |text| text.parse())?;
    let records = arguments.next().map_or(Ok(20_000_000), |text| text.parse())?;
    let seconds = arguments.next().map_or(Ok(600), |text| text.parse())?;
    let share = arguments.next().map_or(Ok(0.9), |text| text.parse())?;
    measure(&scratch.path().join("db"), structure, records, seconds, share)
}

fn measure(path: &Path, structure: Structure, records: u64, seconds: u64, share: f64) -> Outcome<()> {
    let db = Options::new().durability(Durability::Os).open(path)?;
    let table = db.table("records", structure)?;
    let mut writer = Writer { table: &table, random: SmallRng::seed_from_u64(1), value: vec![0; VALUE_BYTES] };
    let order = keys::Permutation::new(records, 1);
    let begun = Instant::now();
    (0..records).try_for_each(|position| writer.put(order.at(position)))?;
    println!("{structure}: {records} records put at {:.0}/s", records as f64 / begun.elapsed().as_secs_f64());
    let (mut puts, begun) = (0_u64, Instant::now());
    while begun.elapsed() < PROBE {
        writer.overwrite(records)?;
        puts += 1;
    }
    let sustained = puts as f64 / begun.elapsed().as_secs_f64();
    let rate = sustained * share;
    println!("{sustained:.0} puts/s at full speed; {rate:.0}/s from here on");
    let live = records as f64 * (KEY_BYTES + VALUE_BYTES) as f64;
    let (mut all, mut ten) = (histogram()?, histogram()?);
    let (mut of_seconds, mut most_space): (Vec<u64>, f64) = (vec![0; usize::try_from(seconds)? + 1], 0.0);
    let begun = Instant::now();
    let mut number = 0_u64;
    let mut shown = 0;
    loop {
        let due = Duration::from_secs_f64(number as f64 / rate);
        if due.as_secs() >= seconds {
            break;
        }
        let now = begun.elapsed();
        if due > now + TICK {
            thread::sleep(due - now);
        }
        writer.overwrite(records)?;
        number += 1;
        let done = begun.elapsed();
        let waited = u64::try_from(done.saturating_sub(due).as_nanos())?.max(1);
        all.record(waited)?;
        ten.record(waited)?;
        if let Some(count) = of_seconds.get_mut(usize::try_from(done.as_secs())?) {
            *count += 1;
        }
        if done.as_secs() / 10 > shown {
            shown = done.as_secs() / 10;
            most_space = most_space.max(bytes_below(path)? as f64 / live);
            println!("{} s: {:.0}/s, longest {:.1} ms", shown * 10, ten.len() as f64 / 10.0, ms(ten.max()));
            ten.reset();
        }
    }
    let [p50, p99, p9999] = [0.5, 0.99, 0.9999].map(|quantile| ms(all.value_at_quantile(quantile)));
    println!("p50 {p50:.3} ms, p99 {p99:.2} ms, p99.99 {p9999:.1} ms, longest {:.1} ms", ms(all.max()));
    of_seconds.truncate(usize::try_from(seconds)?);
    of_seconds.sort_unstable();
    println!("fewest puts of a second {}, median {}", of_seconds[0], of_seconds[of_seconds.len() / 2]);
    println!("space at most {most_space:.2} times the live bytes");
    Ok(())
}

struct Writer<'a> {
    table: &'a Table,
    random: SmallRng,
    value: Vec<u8>,
}

impl Writer<'_> {
    fn put(&mut self, record: u64) -> Outcome<()> {
        values::write(record, self.random.random(), &mut self.value);
        self.table.put(keys::key(record, KEY_BYTES), &self.value)?;
        Ok(())
    }

    fn overwrite(&mut self, records: u64) -> Outcome<()> {
        let record = self.random.random_range(0..records);
        self.put(record)
    }
}

/// A histogram of nanoseconds, up to an hour.
fn histogram() -> Outcome<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?)
}

fn ms(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}
