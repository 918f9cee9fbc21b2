//! Checkpoints: what recovery begins with, so that the log can be trimmed.
//!
//! 1. Between two publications the roots, the free list, and the positions that recovery needs are captured.
//! 2. The log is flushed, so that every commit the image counts is in it.
//! 3. The image goes to fresh pages of the data file, which is flushed.
//! 4. A superblock slot flips to it; then the log is trimmed and what the image no longer refers to is free.
//!
//! Invariants: nothing that the older image refers to is overwritten before the flip; an image says of every page either
//! that a root reaches it or that it is free; the worker alone writes checkpoints, with no apply under way.

use std::sync::Arc;

use index::{Index, TableId};
use psync::{Buffer, Request};
use space::{Class, Extent, PAGE};

use crate::{
    Error, Result,
    catalog::TableCore,
    engine::Engine,
    format::{Image, ImagePlace, TableImage},
};

/// Pages beyond the size of an image that its own allocation may add to the free list it holds.
const SLACK_BYTES: usize = PAGE;

/// Writes a checkpoint.
pub(crate) fn write(engine: &Engine) -> Result<()> {
    let mut superblock = engine.superblock.lock();
    let old = superblock.current().image.map(|image| image.extent);
    let log_error = |error| engine.log_error(error);
    let leaving = leaving(engine);
    let generous = capture(engine, &leaving.ids).encode().len() + leaving.encoded_bytes() + SLACK_BYTES;
    let place = allocate(engine, generous)?;
    // From here on no error is one of space that could be had later, so none is tried again.
    engine.pages.retire(&leaving.extents)?;
    engine.pages.retire(old.as_slice())?;
    let image = capture(engine, &leaving.ids);
    let bytes = image.encode();
    if bytes.len() > place.pages as usize * PAGE {
        return Err(Error::Failed { cause: format!("a checkpoint image of {} bytes outgrew its pages", bytes.len()) });
    }
    engine.wal.flush_through(image.flush_ends_below).map_err(log_error)?;
    write_image(engine, place, &bytes)?;
    let length = u32::try_from(bytes.len()).expect("it fits its pages");
    superblock.set_image(ImagePlace { extent: place, length, crc: crc32c::crc32c(&bytes) })?;
    engine.counters.checkpointed();

    engine.pages.release(old.as_slice())?;
    engine.pages.release(&leaving.extents)?;
    for table in &leaving.tables {
        table.documents.destroy()?;
        engine.catalog.forget(table.id);
    }
    engine.wal.trim(image.log_start).map_err(log_error)?;
    release_documents(engine)
}

/// Dropped tables that nobody reads any more, with all their pages.
struct Leaving {
    tables: Vec<Arc<TableCore>>,
    ids: Vec<TableId>,
    extents: Vec<Extent>,
}

impl Leaving {
    /// Most bytes that their pages can take in the free list.
    fn encoded_bytes(&self) -> usize {
        self.extents.len() * size_of::<Extent>()
    }
}

fn leaving(engine: &Engine) -> Leaving {
    let mut leaving = Leaving { tables: Vec::new(), ids: Vec::new(), extents: Vec::new() };
    for table in engine.catalog.dropped() {
        if !table.is_unobserved() {
            continue;
        }
        let mut extents = Vec::new();
        match table.tree.collect_extents(&mut |extent| extents.push(extent)) {
            Ok(()) => {
                leaving.extents.extend(extents);
                leaving.ids.push(table.id);
                leaving.tables.push(table);
            }
            Err(error) => tracing::warn!(table = table.name, %error, "the pages of a dropped table cannot be found"),
        }
    }
    leaving
}

fn capture(engine: &Engine, leaving: &[TableId]) -> Image {
    engine.publisher.between(|visible, frontier| {
        let tables = engine.catalog.live();
        let dropped: Vec<_> =
            engine.catalog.dropped().into_iter().filter(|table| !leaving.contains(&table.id)).collect();
        let oldest = tables.iter().filter_map(|table| table.oldest_unapplied()).min().unwrap_or(frontier);
        Image {
            visible,
            flush_ends_below: engine.wal.end(),
            log_start: oldest.min(frontier),
            log_durable: frontier,
            next_table: engine.catalog.next_id(),
            tables: tables.iter().map(|table| table_image(table)).collect(),
            dropped: dropped.iter().map(|table| table_image(table)).collect(),
            allocator: engine.pages.image().encode(),
        }
    })
}

fn table_image(table: &TableCore) -> TableImage {
    TableImage {
        id: table.id,
        structure: table.structure,
        applied: table.applied(),
        name: table.name.clone(),
        root: table.tree.root(),
        documents: table.documents.image().encode(),
    }
}

fn allocate(engine: &Engine, bytes: usize) -> Result<Extent> {
    let pages = u32::try_from(bytes.div_ceil(PAGE)).map_err(|_| Error::Failed {
        cause: format!("a checkpoint image of {bytes} bytes exceeds what an extent holds"),
    })?;
    Ok(engine.pages.allocate(pages, Class::Reclaim)?)
}

fn write_image(engine: &Engine, place: Extent, bytes: &[u8]) -> Result<()> {
    let mut buffer = Buffer::zeroed(bytes.len().next_multiple_of(PAGE));
    buffer[..bytes.len()].copy_from_slice(bytes);
    let file = engine.pages.file();
    let write = Request::write(file, place.page.0 * PAGE as u64, buffer, 0);
    engine.store.psync().run_all(vec![write, Request::flush(file, 1)])?;
    Ok(())
}

/// Unlinks document segments that this checkpoint knows to be dead, of tables that nobody reads in an older state.
fn release_documents(engine: &Engine) -> Result<()> {
    for table in engine.catalog.live() {
        if table.is_unobserved() {
            table.documents.release_dead()?;
        }
    }
    Ok(())
}
