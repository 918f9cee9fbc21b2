//! The abilities of a device, as plain data: the terms of PIO's cost model (Roh et al. 2011, table 1).
//!
//! Left to others: the source of the figures ([`crate::probe`]).

mod text;

use crate::BackendKind;

/// Version of a saved profile; another one is not taken.
pub(crate) const VERSION: u32 = 5;

/// Bytes of a page, the unit of all figures.
pub const PAGE_BYTES: usize = crate::BLOCK;

/// Sizes at which P_r(L) and P_w(L) are measured, in pages.
pub const PAGES_MEASURED: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Depths among which the best is sought.
pub const DEPTHS_MEASURED: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A durable write is preferred if it takes at most this share of the time of a write and a flush.
const CLEARLY_FASTER: f64 = 0.9;

/// Reads of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReadCost {
    /// Pages of one read: L.
    pub pages: usize,
    /// Latency of one random read alone: P_r(L), in µs.
    pub alone_us: f64,
    /// Time per read in batches of the best depth: P'_r(L), in µs per read of L pages.
    pub batched_us: f64,
}

/// Writes of one size, in place.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WriteCost {
    /// Pages of one write.
    pub pages: usize,
    /// Latency of one random write alone, in µs. In the device's cache, not flushed.
    pub alone_us: f64,
    /// Time per write in batches of the best depth, in µs per write of these pages.
    pub batched_us: f64,
}

/// The cost of a page write in place that is on stable storage at completion.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DurableWriteCost {
    /// With a flush of the file behind it, in µs.
    pub flushed_us: f64,
    /// As one request, [`crate::Operation::WriteDurably`], in µs.
    pub dsync_us: f64,
}

/// A way to make a write durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum DurableWrite {
    /// A write and a flush of its file.
    Flush,
    /// One request, [`crate::Operation::WriteDurably`].
    Dsync,
}

impl DurableWriteCost {
    /// The faster way: one request where that is clearly faster, else a write and a flush.
    #[must_use]
    pub fn faster(&self) -> DurableWrite {
        if self.dsync_us <= self.flushed_us * CLEARLY_FASTER { DurableWrite::Dsync } else { DurableWrite::Flush }
    }
}

/// The abilities of a device with pages of 4 KiB, through one backend.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceProfile {
    /// Version of this layout.
    pub version: u32,
    /// The device (`st_dev`) of the directory that was measured.
    pub device: u64,
    /// The backend that measured.
    pub backend: BackendKind,
    /// The time of the measurement, in seconds since 1970; 0 without a measurement.
    pub measured_at: u64,
    /// Whether direct I/O works in that directory.
    pub direct: bool,
    /// Latency of one random page read: P_r, in µs.
    pub read_us: f64,
    /// Latency of one random page write in place: P_w, in µs. In the device's cache, not flushed.
    pub write_us: f64,
    /// Time per random page read in batches of `best_depth`: P'_r, in µs.
    pub batched_read_us: f64,
    /// Time per random page write in batches of `best_depth`: P'_w, in µs.
    pub batched_write_us: f64,
    /// Reads of 1, 2, 4, … 64 pages ([`PAGES_MEASURED`]).
    pub reads: Vec<ReadCost>,
    /// Writes of 1, 2, 4, … 64 pages ([`PAGES_MEASURED`]).
    pub writes: Vec<WriteCost>,
    /// Latency of a page write in place and its `fdatasync`, in µs.
    pub flushed_write_us: f64,
    /// Durable page writes in place past the page cache.
    pub durable_direct: DurableWriteCost,
    /// Durable page writes in place through the page cache.
    pub durable_buffered: DurableWriteCost,
    /// The smallest batch whose read rate is within 5 % of the best of those tried.
    pub best_depth: usize,
    /// The spread of the rounds of a figure, as a share of the figure: the median over all figures; 0 without a
    /// measurement.
    pub spread: f64,
}

impl Default for DeviceProfile {
    /// An ordinary NVMe drive, for use where no profile was saved.
    fn default() -> Self {
        let (read_us, batched_read_us) = (80.0, 8.0);
        let (write_us, batched_write_us) = (30.0, 8.0);
        Self {
            version: VERSION,
            device: 0,
            backend: BackendKind::Sync,
            measured_at: 0,
            direct: true,
            read_us,
            write_us,
            batched_read_us,
            batched_write_us,
            reads: PAGES_MEASURED
                .map(|pages| {
                    // Larger reads are striped: the first page costs the latency, the others little.
                    let others = (pages - 1) as f64;
                    ReadCost { pages, alone_us: read_us + 3.0 * others, batched_us: batched_read_us + 3.0 * others }
                })
                .to_vec(),
            writes: PAGES_MEASURED
                .map(|pages| {
                    // Pages behind the first are programmed beside one another, but each takes the bus.
                    let others = (pages - 1) as f64;
                    WriteCost { pages, alone_us: write_us + 4.0 * others, batched_us: batched_write_us + 4.0 * others }
                })
                .to_vec(),
            flushed_write_us: 500.0,
            durable_direct: DurableWriteCost { flushed_us: 500.0, dsync_us: 500.0 },
            durable_buffered: DurableWriteCost { flushed_us: 500.0, dsync_us: 500.0 },
            best_depth: 64,
            spread: 0.0,
        }
    }
}

impl DeviceProfile {
    /// The faster way to make a write durable, on a file that is open past the page cache (`direct`) or through it.
    #[must_use]
    pub fn durable_write(&self, direct: bool) -> DurableWrite {
        if direct { self.durable_direct } else { self.durable_buffered }.faster()
    }

    /// Requests in flight that keep the device as busy as it gets without queueing, by Little's law: P_r over P'_r.
    #[must_use]
    pub fn parallelism(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "clamped, and rounded down: more would queue")]
        let ratio = (self.read_us / self.batched_read_us).clamp(1.0, 1024.0) as usize;
        ratio
    }

    pub(crate) fn is_for(&self, device: u64, backend: BackendKind) -> bool {
        self.version == VERSION && self.device == device && self.backend == backend
    }

    /// Checks that the figures are fit for calculation, because a file, or a caller, may say anything.
    ///
    /// # Errors
    /// The defect.
    pub fn check(&self) -> Result<(), String> {
        let sizes: Vec<usize> = self.reads.iter().map(|read| read.pages).collect();
        if sizes != PAGES_MEASURED {
            return Err(format!("it has reads of {sizes:?} pages instead of {PAGES_MEASURED:?}"));
        }
        let sizes: Vec<usize> = self.writes.iter().map(|write| write.pages).collect();
        if sizes != PAGES_MEASURED {
            return Err(format!("it has writes of {sizes:?} pages instead of {PAGES_MEASURED:?}"));
        }
        let figures = [self.read_us, self.write_us, self.batched_read_us, self.batched_write_us, self.flushed_write_us];
        let of_reads = self.reads.iter().flat_map(|read| [read.alone_us, read.batched_us]);
        let of_writes = self.writes.iter().flat_map(|write| [write.alone_us, write.batched_us]);
        let of_durable_writes =
            [self.durable_direct, self.durable_buffered].into_iter().flat_map(|cost| [cost.flushed_us, cost.dsync_us]);
        if !self.spread.is_finite() || self.spread < 0.0 {
            return Err("its spread is no share".to_owned());
        }
        let sound = |figure: f64| figure.is_finite() && figure > 0.0;
        if !figures.into_iter().chain(of_reads).chain(of_writes).chain(of_durable_writes).all(sound) {
            return Err("a time in it is not positive".to_owned());
        }
        if !DEPTHS_MEASURED.contains(&self.best_depth) {
            return Err(format!("its best depth {} was never tried", self.best_depth));
        }
        Ok(())
    }
}
