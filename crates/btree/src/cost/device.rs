//! Times of requests of any size, from the sizes in a device profile.

use psync::probe::DeviceProfile;

/// Times over sizes: linear between the measured sizes. Beyond them the line of the last two goes on.
pub(super) struct Curve(Vec<(f64, f64)>);

impl Curve {
    fn new(points: impl Iterator<Item = (usize, f64)>) -> Self {
        Self(points.map(|(pages, us)| (pages as f64, us)).collect())
    }

    /// µs for a request of `pages`, which may be an average; at least one.
    pub(super) fn us(&self, pages: f64) -> f64 {
        let points = &self.0;
        let after = points.partition_point(|(size, _)| *size < pages).clamp(1, points.len().max(2) - 1);
        match (points.get(after - 1), points.get(after)) {
            (Some((small, faster)), Some((large, slower))) => {
                let part = ((pages - small) / (large - small)).max(0.0);
                faster + part * (slower - faster).max(0.0)
            }
            (Some((_, us)), None) => *us,
            _ => 0.0,
        }
    }

    /// µs for a page of the largest request that was measured.
    fn least_page_us(&self) -> f64 {
        self.0.last().map_or(0.0, |(pages, us)| us / pages)
    }
}

/// A device.
pub(super) struct Device {
    /// `P_r(L)`.
    pub(super) read: Curve,
    /// `P'_r(L)`: each of a batch.
    pub(super) batched_read: Curve,
    /// `P_w(L)`.
    pub(super) write: Curve,
    /// `P'_w(L)`: each of a batch.
    pub(super) batched_write: Curve,
    /// A page of a large write in a batch.
    pub(super) bulk_write_us: f64,
    /// A flush of the written pages, small or large.
    pub(super) flush_us: f64,
}

/// Numbers of concurrent readers: one, eight, and thirty-two, each as often as the others.
const READERS: [f64; 3] = [1.0, 8.0, 32.0];

/// Bounds of the gap between two pages that is read rather than skipped.
const GAP_PAGES: std::ops::RangeInclusive<f64> = 1.0..=16.0;

impl Device {
    /// Pages that a batch can read in the time that one more request costs: (cost of a request beside its pages) /
    /// (cost of a page).
    pub(super) fn gap_pages(&self) -> f64 {
        let (one, four) = (self.batched_read.us(1.0), self.batched_read.us(4.0));
        let page = (four - one) / 3.0;
        if page <= 0.0 {
            return *GAP_PAGES.end();
        }
        ((one - page) / page).floor().clamp(*GAP_PAGES.start(), *GAP_PAGES.end())
    }

    /// µs of shared time for a read of `requests` of `pages` each, over the possible numbers of readers. One reader
    /// alone waits for the latency, many for the device's throughput.
    pub(super) fn shared_read_us(&self, requests: f64, pages: f64) -> f64 {
        let (alone, brought) = (self.read.us(pages), requests * self.batched_read.us(pages));
        READERS.iter().map(|readers| (alone / readers).max(brought)).sum::<f64>() / READERS.len() as f64
    }

    pub(super) fn new(profile: &DeviceProfile) -> Self {
        let batched_write = Curve::new(profile.writes.iter().map(|write| (write.pages, write.batched_us)));
        Self {
            read: Curve::new(profile.reads.iter().map(|read| (read.pages, read.alone_us))),
            batched_read: Curve::new(profile.reads.iter().map(|read| (read.pages, read.batched_us))),
            write: Curve::new(profile.writes.iter().map(|write| (write.pages, write.alone_us))),
            bulk_write_us: batched_write.least_page_us(),
            batched_write,
            flush_us: profile.flushed_write_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_sizes_lie_between() {
        let curve = Curve::new([(1, 10.0), (2, 12.0), (4, 20.0)].into_iter());
        for (pages, us) in [(0.5, 10.0), (1.0, 10.0), (1.5, 11.0), (2.0, 12.0), (3.0, 16.0), (4.0, 20.0), (6.0, 28.0)] {
            assert_eq!(curve.us(pages), us, "{pages} pages");
        }
        assert_eq!(curve.least_page_us(), 5.0);
    }

    #[test]
    fn a_profile_without_sizes_costs_nothing_rather_than_failing() {
        assert_eq!(Curve::new(std::iter::empty()).us(3.0), 0.0);
        assert_eq!(Curve::new([(1, 7.0)].into_iter()).us(3.0), 7.0);
    }
}
