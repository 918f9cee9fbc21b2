//! A time series: readings of many sensors, written in batches, read by time, summed, and removed when they are old.
//!
//! A key is the sensor, a zero byte, and the time with its largest byte first, so that the readings of a sensor lie
//! next to one another in the order of time.
//!
//! `cargo run --example series`

use std::ops::ControlFlow;

use braid::{Database, Durability, Structure, Table, WriteBatch};

fn key(sensor: &str, time: u64) -> Vec<u8> {
    [sensor.as_bytes(), &[0], &time.to_be_bytes()].concat()
}

struct Series {
    db: Database,
    readings: Table,
}

impl Series {
    fn open(db: &Database) -> braid::Result<Self> {
        Ok(Self { db: db.clone(), readings: db.table("readings", Structure::BTree)? })
    }

    /// Writes readings together. They survive a crash of the program at once, and a power cut from the next
    /// `persist` on.
    fn record(&self, readings: &[(&str, u64, f64)]) -> braid::Result<()> {
        let mut batch = WriteBatch::new();
        for (sensor, time, value) in readings {
            batch.put(&self.readings, key(sensor, *time), value.to_le_bytes());
        }
        self.db.write_with(&batch, Durability::Os)?;
        Ok(())
    }

    /// Number and mean of the readings of a sensor from one time to another.
    fn mean(&self, sensor: &str, from: u64, to: u64) -> braid::Result<(usize, f64)> {
        let (mut count, mut sum) = (0, 0.0);
        let _end = self.readings.range(key(sensor, from)..key(sensor, to)).visit(|_, value| {
            sum += value.try_into().map_or(0.0, f64::from_le_bytes);
            count += 1;
            ControlFlow::<()>::Continue(())
        })?;
        Ok((count, sum / count.max(1) as f64))
    }

    /// The newest reading before a time.
    fn newest_before(&self, sensor: &str, time: u64) -> braid::Result<Option<f64>> {
        let mut range = self.readings.range(key(sensor, 0)..key(sensor, time)).rev();
        let newest = range.next_pair()?;
        Ok(newest.and_then(|(_, value)| Some(f64::from_le_bytes(value.try_into().ok()?))))
    }

    /// Removes the readings of a sensor before a time. The cost does not depend on their number.
    fn forget(&self, sensor: &str, before: u64) -> braid::Result<()> {
        self.readings.delete_range(key(sensor, 0)..key(sensor, before))?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Database::open(directory.path().join("series"))?;
    let series = Series::open(&db)?;
    for minute in 0..1000_u64 {
        series.record(&[("attic", minute, minute as f64 / 10.0), ("cellar", minute, 11.0)])?;
    }
    db.persist()?;
    let (count, mean) = series.mean("attic", 100, 200)?;
    println!("attic: {count} readings, {mean:.2} degrees on average");
    println!("newest before minute 500: {:?}", series.newest_before("attic", 500)?);
    series.forget("attic", 900)?;
    assert_eq!(series.mean("attic", 0, 2000)?.0, 100);
    assert_eq!(series.mean("cellar", 0, 2000)?.0, 1000, "other sensors stay");
    let bytes = series.readings.size_of::<Vec<u8>>(..)?;
    assert!(bytes >= 1100 * 8, "the values alone have as many");
    println!("the readings take about {bytes} bytes");
    Ok(db.close()?)
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().expect("it runs");
}
