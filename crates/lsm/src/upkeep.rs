//! Upkeep of a tree.

use index::due::Due;
use index::{Applied, Chosen, Compacted, Horizon, LeafKeys, Part, Result, Room, Seq, Space, Time, Upkeep, When};
use space::Extent;

use crate::compaction::{Done, Job};
use crate::picks::{self, Relief};
use crate::relocate;
use crate::slices::behind;
use crate::tree::Tree;

impl Upkeep for Tree {
    fn compact(&self, part: Part<'_>, through: Seq, horizon: &Horizon) -> Result<Option<Compacted>> {
        let base = self.current();
        let run = || match part.chosen {
            Some(chosen) => chosen.content::<Job>().run(&base, self.files(), through, horizon),
            None => match Job::hidden(&base, self.files(), &part, through, horizon)? {
                Some(done) => Ok(Some(done)),
                None => Job::of_part(&base, &part).run(&base, self.files(), through, horizon),
            },
        };
        let room = if part.reclaims { Room::Half } else { Room::None };
        let Some(done) = room.make(self.shared().reserve(), run)? else { return Ok(None) };
        let Done { change, made, dropped, next, slices, bytes } = done;
        let applied = self.pend(&base, change, made, dropped, base.floor())?;
        let next = if part.chosen.is_some() { None } else { next };
        Ok(Some(Compacted { applied, next, leaves: slices as u64, bytes: bytes as u64 }))
    }

    fn due(&self, now: Time, most: usize) -> Result<Vec<LeafKeys>> {
        let is_due = |due: &Due| due.is_past(now);
        let current = self.current();
        let due = current.all().filter(|(_, slice)| slice.sst().footer().due.is_some_and(|due| is_due(&due)));
        let mut found: Vec<(&[u8], &[u8])> = due.map(|(_, slice)| (slice.low(), slice.high())).collect();
        found.sort_unstable();
        let mut ranges: Vec<LeafKeys> = Vec::new();
        for (low, high) in found {
            if let Some(last) = ranges.last_mut().filter(|last| last.high.as_deref().is_some_and(|end| low < end)) {
                last.high = last.high.take().max(Some(behind(high)));
            } else if ranges.len() < most {
                ranges.push(LeafKeys { low: low.to_vec(), high: Some(behind(high)) });
            } else {
                break;
            }
        }
        Ok(ranges)
    }

    fn wants(&self, when: When) -> Option<Chosen> {
        picks::pick(&self.current(), when).map(Chosen::new)
    }

    fn can_be_emptied(&self) -> bool {
        picks::relief(&self.current(), 1).is_some()
    }

    fn empty(&self, bytes: u64, through: Seq, horizon: &Horizon) -> Result<Option<Applied>> {
        let base = self.current();
        let Some(relief) = picks::relief(&base, bytes) else { return Ok(None) };
        let of_done = |Done { change, made, dropped, .. }| (change, made, dropped);
        let run = || match &relief {
            Relief::Merge(job) | Relief::Guess(job) => Ok(job.run(&base, self.files(), through, horizon)?.map(of_done)),
            Relief::Files(plan) => relocate::rewrite(&base, self.files(), plan, horizon.now).map(Some),
        };
        let room = if matches!(relief, Relief::Guess(_)) { Room::Quarter } else { Room::All };
        let Some((change, made, dropped)) = room.make(self.shared().reserve(), run)? else { return Ok(None) };
        self.pend(&base, change, made, dropped, base.floor()).map(Some)
    }

    fn debt(&self) -> f64 {
        picks::debt(&self.current())
    }

    fn space(&self) -> Space {
        self.files().space(&self.current())
    }

    fn release_dead(&self) -> Result<()> {
        let released = self.files().release_dead()?;
        if !released.is_empty() {
            self.shared().forget(self.current().table, &released);
        }
        Ok(())
    }

    fn extents(&self, _visit: &mut dyn FnMut(Extent)) -> Result<()> {
        Ok(())
    }

    fn destroy(&self) -> Result<()> {
        self.files().destroy()
    }
}
