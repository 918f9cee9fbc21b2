//! Loading: sorted entries become files of the lowest level at once. The caller that ends the load flushes the written
//! files at the end; if they become many, they are flushed meanwhile.
//!
//! Invariant: a load that is dropped leaves no file behind.

use std::sync::Arc;

use doclog::Unflushed;
use index::{Expiry, Load, Loaded, Operation, Payload, Ready, Result, Seq, Time, Update};

use crate::files::Files;
use crate::format::footer::Written;
use crate::rewrite::{Made, Output};
use crate::slices::Slice;
use crate::version::{BOTTOM, Change, Version, stream_of};

/// Bytes of entries between two questions whether the load may go on.
const READY_BYTES: usize = 64 << 10;

/// A tree under construction.
pub(crate) struct TreeLoad {
    base: Arc<Version>,
    seq: Seq,
    output: Output,
    last_key: Vec<u8>,
    /// Bytes since the last question.
    bytes: usize,
    /// Files that were ended, as far as they are known to `unflushed`.
    known: usize,
    unflushed: Unflushed,
}

impl TreeLoad {
    pub(crate) fn new(base: Arc<Version>, files: &Arc<Files>, seq: Seq) -> Self {
        let format = base.format(BOTTOM, Time(0));
        let output = Output::new(&base, files, BOTTOM, format, base.shared.sizes().file_bytes_max());
        let (last_key, unflushed) = (Vec::new(), Unflushed::default());
        Self { base, seq, output, last_key, bytes: 0, known: 0, unflushed }
    }

    /// The change that brings loaded files.
    pub(crate) fn change(made: &Made) -> Change {
        let entry = |written: &Written| Slice::whole(stream_of(BOTTOM), written.number(), written).entry(BOTTOM);
        Change { removed: Vec::new(), added: made.written.iter().map(entry).collect(), expires: made.expires }
    }

    /// Before a write: the reserve is filled first, so that a full disk keeps it.
    fn ready(&mut self, ready: &Ready<'_>) -> Result<()> {
        ready()?;
        self.base.shared.reserve().fill().inspect_err(|_| self.output.fail())?;
        Ok(())
    }
}

impl Load for TreeLoad {
    fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    fn push(&mut self, key: &[u8], payload: Payload<'_>, expiry: Option<Expiry>, ready: &Ready<'_>) -> Result<()> {
        let value = if let Payload::Inline(value) = payload { value.len() } else { 0 };
        self.bytes += key.len() + value;
        if self.bytes >= READY_BYTES {
            self.bytes = 0;
            self.ready(ready)?;
        }
        let update = Update { key, seq: self.seq, operation: Operation::Put(payload, expiry) };
        self.output.push(&[update])?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        let ended = &self.output.made().files[self.known..];
        if !ended.is_empty() {
            let ended = ended.to_vec();
            self.known += ended.len();
            self.unflushed.add(self.base.shared.store().psync(), ended)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, ready: &Ready<'_>) -> Result<Loaded> {
        self.ready(ready)?;
        let mut made = self.output.finish()?;
        made.files.drain(..self.known);
        made.files.extend(self.unflushed.take());
        Ok(Loaded::new(made.files.clone(), made))
    }
}
