//! The device's own rates, with no store on the path.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bench::values;
use psync::probe::{flushed_writes_per_second, random_reads_per_second};
use psync::{OpenOptions, Psync};

use super::{DeviceLimit, Figure, Metric};
use crate::error::{Error, Result};

/// Bytes of one write of the file.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of a random read.
const PAGE_BYTES: usize = 4096;

/// Writes a file of that many bytes, in full, so that no block is measured before its first write. An existing file
/// stays.
pub(crate) fn prepare(path: &Path, bytes: u64) -> Result<()> {
    let chunks = bytes.div_ceil(CHUNK_BYTES as u64);
    let wanted = chunks * CHUNK_BYTES as u64;
    if std::fs::metadata(path).is_ok_and(|there| there.len() == wanted) {
        return Ok(());
    }
    let failed = |error| Error::io("writing", path)(error);
    let mut file = File::create(path).map_err(failed)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    for number in 0..chunks {
        values::write(number, number, &mut chunk);
        file.write_all(&chunk).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}

/// One limit of the device under a file that [`prepare`] wrote.
pub(crate) fn measure(path: &Path, limit: DeviceLimit, time: Duration) -> Result<Vec<Figure>> {
    let psync = Psync::new(None).map_err(Error::store)?;
    let options = OpenOptions { direct: true, write: limit == DeviceLimit::Flushes, ..OpenOptions::default() };
    let file = psync.open(path, &options).map_err(Error::store)?;
    if !file.is_direct() {
        return Err(Error::Invalid("this file system has no direct I/O: the rate would be that of memory".into()));
    }
    let rate = match limit {
        DeviceLimit::Reads { depth } => {
            random_reads_per_second(&psync.with_pio_max(depth), &file, PAGE_BYTES, depth, time)
        }
        DeviceLimit::Flushes => flushed_writes_per_second(&psync, &file, time),
    };
    Ok(vec![Figure { metric: Metric::PerSecond, value: rate.map_err(Error::store)? }])
}
