//! Checkpoints: the states that recovery begins with, so that the log can be trimmed.
//!
//! 1. The states of tables that are to be retained are made, and surplus ones given up ([`retain`]).
//! 2. Between two publications the roots, the free list, and the positions that recovery needs are captured.
//! 3. The log is flushed. So the log has every commit that the image counts, and the changes that gave up the image's
//!    pages are durable.
//! 4. The image goes to fresh pages of the data file, which is flushed.
//! 5. A superblock slot flips to the image. Then the log is trimmed, and space is free that neither the image nor the
//!    kept part of the log ([`retention`]) refers to.
//!
//! Invariants:
//! - Nothing that the older image refers to is overwritten before the flip.
//! - In an image every page is either reached by a root or free.
//! - The worker alone writes checkpoints, with no apply and no stretch under way. All tables are held while their roots
//!   and the free list are captured.
//! - Pages that a load has taken are free in the image until its flush-end is logged.

use std::sync::Arc;

use index::{RangeTombstones, Seq};
use psync::{Buffer, Request};
use space::{Class, Extent, PAGE};

use crate::{
    commit::schema,
    engine::{
        Engine, kept,
        retention::{Choice, Kept},
        upkeep::Upkeep,
    },
    error::{Error, Result},
    format::{Image, ImagePlace, TableImage},
    tables::{catalog::TableCore, held, retained, usage},
    upkeep::retain,
};

/// Writes a checkpoint.
pub(crate) fn write(engine: &Engine, held: &mut Upkeep) -> Result<()> {
    // Segments that are dead when all is written are those that were dead for the image.
    let _alone = engine.stretches.alone();
    retain::retain(engine, held)?;
    // Pages that were given up before may be needed for the image.
    engine.flush_log()?;
    let tables = engine.catalog.all();
    let still = held::hold_all(&tables);
    let mut superblock = engine.superblock.lock();
    let old = superblock.current().image.map(|image| image.extent);
    let choice = kept::choose(engine);
    let kept = choice.kept;
    let leaving = leaving(engine, kept);
    let freed: Vec<Extent> = leaving.extents.iter().copied().chain(old).collect();
    let (place, image, bytes) = place(engine, &leaving, &freed, choice)?;
    drop(still);
    if seeded::on(seeded::Bug::UnpinnedBeforeCheckpoint) {
        engine.catalog.live().iter().try_for_each(|table| retained::pin(table))?;
        release_dead(engine, kept);
    }
    // From here on no error is a lack of space that could end later, so no error is tried again.
    engine.flush_log()?;
    let write = write_of(engine, place, &bytes);
    engine.run_with_flushes(vec![write, Request::flush(engine.pages.file(), 1)])?;
    superblock.set_image(image_place(place, &bytes))?;
    drop(superblock);
    engine.note_checkpoint(&image);
    engine.retention.set(choice);

    engine.pages.retire(&freed)?;
    engine.pages.release(&freed)?;
    for (table, husk) in leaving.tables {
        // The table may have been dropped since the worker looked for dropped tables.
        engine.abandon_queues(&table);
        if let Some(husk) = husk {
            engine.catalog.replace_dropped(husk);
            continue;
        }
        // Files that stay are unlinked by the next opening.
        let destroyed = table.tree.destroy().map_err(Error::from);
        if let Err(error) = destroyed.and_then(|()| Ok(table.documents.destroy()?)) {
            events::warn!(table = table.name, %error, "files of a dropped table could not be unlinked");
        }
        engine.catalog.forget(table.id);
    }
    engine.wal.trim_keeping(kept.from, image.log_start)?;
    for table in engine.catalog.live() {
        engine.forget_last(&table);
        retained::pin(&table)?;
    }
    release_dead(engine, kept);
    engine.structures.adapt(&usage::footprints(&engine.catalog.live()));
    Ok(())
}

/// Dropped tables that no reader and no snapshot sees any more, with all their pages, and the husk that has to stay of
/// each.
#[derive(Default)]
struct Leaving {
    tables: Vec<(Arc<TableCore>, Option<Arc<TableCore>>)>,
    extents: Vec<Extent>,
}

fn leaving(engine: &Engine, kept: Kept) -> Leaving {
    let mut leaving = Leaving::default();
    for table in engine.catalog.dropped() {
        engine.forget_last(&table);
        let is_named = table.dropped() >= kept.seq;
        if !table.is_unobserved() || (is_named && table.is_husk()) {
            continue;
        }
        let mut extents = Vec::new();
        let found = table.tree.extents(&mut |extent| extents.push(extent)).map_err(Error::from);
        let husk = found.and_then(|()| {
            is_named.then(|| schema::husk(&engine.store, &engine.structures, &table).map(Arc::new)).transpose()
        });
        match husk {
            Ok(husk) => {
                leaving.extents.extend(extents);
                leaving.tables.push((table, husk));
            }
            Err(error) => events::warn!(table = table.name, %error, "a dropped table cannot give up its pages"),
        }
    }
    leaving
}

/// The image and pages for it. Allocating them can grow the file, and new tables can grow the image meanwhile: pages
/// that are too few are given back.
fn place(engine: &Engine, leaving: &Leaving, freed: &[Extent], choice: Choice) -> Result<(Extent, Image, Vec<u8>)> {
    let mut needed = capture(engine, leaving, freed, choice).encode().len() + PAGE;
    loop {
        let place = allocate(engine, needed)?;
        let image = capture(engine, leaving, freed, choice);
        let bytes = image.encode();
        if bytes.len() <= place.pages as usize * PAGE {
            return Ok((place, image, bytes));
        }
        needed = bytes.len() + PAGE;
        engine.pages.discard(&[place])?;
    }
}

fn capture(engine: &Engine, leaving: &Leaving, freed: &[Extent], choice: Choice) -> Image {
    // The image's view of the pages does not change meanwhile, because pages that a load takes and gives back are free
    // in it.
    let allocator = engine.pages.image().with_free(freed).encode();
    engine.between_publications(|visible, frontier| {
        let tables = engine.catalog.live();
        let leaves = |table: &Arc<TableCore>| leaving.tables.iter().any(|(gone, _)| gone.id == table.id);
        let mut dropped: Vec<_> = engine.catalog.dropped().into_iter().filter(|table| !leaves(table)).collect();
        dropped.extend(leaving.tables.iter().filter_map(|(_, husk)| husk.clone()));
        let Choice { kept, needed } = choice;
        let oldest = tables.iter().filter_map(|table| table.oldest_unapplied()).min().unwrap_or(frontier);
        let image = Image {
            visible,
            flush_ends_below: engine.wal.end(),
            log_start: oldest.min(frontier).max(needed.from),
            log_durable: frontier.max(needed.from),
            kept_from: kept.from,
            kept_seq: kept.seq,
            time: engine.clock.now(),
            next_table: engine.catalog.next_id(),
            tables: tables.iter().map(|table| table_image(table)).collect(),
            dropped: dropped.iter().map(|table| table_image(table)).collect(),
            allocator,
        };
        let positions = [image.kept_from, image.log_start, image.log_durable, image.flush_ends_below];
        assert!(positions.is_sorted(), "what is kept, needed, durable and logged: {positions:?}");
        image
    })
}

fn table_image(table: &TableCore) -> TableImage {
    TableImage {
        id: table.id,
        structure: table.structure,
        settings: table.settings(),
        applied: table.applied(),
        dropped: table.dropped(),
        name: table.name.clone(),
        root: table.tree.root(),
        documents: table.documents.image().encode(),
        tombstones: RangeTombstones::clone(&table.state.load().tombstones),
        headers: if table.dropped() > Seq(0) { Vec::new() } else { table.history.images() },
    }
}

fn allocate(engine: &Engine, bytes: usize) -> Result<Extent> {
    let pages = u32::try_from(bytes.div_ceil(PAGE)).map_err(|_| Error::Failed {
        cause: format!("a checkpoint image of {bytes} bytes exceeds what an extent holds"),
    })?;
    Ok(engine.pages.allocate(pages, Class::Reclaim)?)
}

/// Writes the first checkpoint of a database that is being created, when the log is still empty.
pub(crate) fn write_first(engine: &Engine) -> Result<()> {
    let mut superblock = engine.superblock.lock();
    let choice = kept::choose(engine);
    let (place, image, bytes) = place(engine, &Leaving::default(), &[], choice)?;
    engine.store.psync().run_all(vec![write_of(engine, place, &bytes)])?;
    superblock.set_first_image(&engine.store, image_place(place, &bytes), engine.pages.file())?;
    engine.note_checkpoint(&image);
    engine.retention.set(choice);
    Ok(())
}

fn image_place(extent: Extent, bytes: &[u8]) -> ImagePlace {
    let length = u32::try_from(bytes.len()).expect("it fits its pages");
    ImagePlace { extent, length, crc: checksum::crc32c(bytes) }
}

fn write_of(engine: &Engine, place: Extent, bytes: &[u8]) -> Request {
    let mut buffer = Buffer::zeroed(bytes.len().next_multiple_of(PAGE));
    buffer[..bytes.len()].copy_from_slice(bytes);
    Request::write(engine.pages.file(), place.page.0 * PAGE as u64, buffer, 0)
}

/// Unlinks segments of documents and nodes that are dead by this checkpoint, of tables whose older states nobody
/// reads. A segment of documents stays while a commit in the kept log names it. Segments that cannot be unlinked now
/// are tried again after the next checkpoint.
fn release_dead(engine: &Engine, kept: Kept) {
    let (live, dropped) = (engine.catalog.live(), engine.catalog.dropped());
    for table in live.iter().chain(&dropped).filter(|table| table.is_read_as_it_is()) {
        let released = table.tree.release_dead().map_err(Error::from);
        if let Err(error) = released.and_then(|()| Ok(table.documents.release_dead(kept.seq.0).map(drop)?)) {
            events::warn!(table = table.name, %error, "dead segments could not be unlinked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use super::{Leaving, capture};
    use crate::{
        engine::kept,
        options::Options,
        words::{durability::Durability, structure::Structure},
    };

    #[test]
    fn what_comes_after_an_image_was_captured_is_not_saved_by_it() {
        for writes_another in [false, true] {
            let options = Options::new().background(false);
            let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
            let table = database.table("table", Structure::BTree).expect("created");
            let engine = table.engine();
            let image = capture(engine, &Leaving::default(), &[], kept::choose(engine));
            engine.note_checkpoint(&image);
            assert!(engine.is_saved());
            table.put_with("key", "while the image is written", Durability::Os).expect("put");
            engine.note_checkpoint(&image);
            assert!(!engine.is_saved());
            engine.ask(false).expect("applied");
            let mut end = None;
            if writes_another {
                super::write(engine, &mut engine.upkeep.lock()).expect("a checkpoint");
                end = Some(engine.wal.end());
            }
            engine.mark_clean().expect("nothing fails");
            let clean_end = engine.superblock.lock().current().clean_end;
            assert_eq!(clean_end, end, "only a newer image has the put");
        }
    }

    #[test]
    fn a_table_that_is_dropped_just_before_a_checkpoint_gives_its_memory_back() {
        let options = Options::new().background(false);
        let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = database.table("table", Structure::BTree).expect("created");
        let engine = table.engine();
        table.put("key", "value").expect("put");
        assert!(engine.pressure.used() > 0);
        engine.drop_table("table").expect("dropped");
        super::write(engine, &mut engine.upkeep.lock()).expect("a checkpoint");
        assert!(engine.catalog.dropped().is_empty());
        engine.ask(false).expect("asked");
        assert_eq!(engine.pressure.used(), 0);
    }
}
