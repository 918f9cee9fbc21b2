//! The keys of a stretch that is to be rewritten, and keys that are due.

use std::ops::ControlFlow;
use std::sync::Arc;

use doclog::DocPointer;
use index::{Error, LeafKeys, Part, Result, Time, is_below};

use crate::empty::Waiting;
use crate::format::Link;
use crate::format::node::Node;
use crate::garbage::Segments;
use crate::ordered::{Groups, Span, Walk, walk};
use crate::version::Version;

/// The first stretch of a part of a version.
#[derive(Default)]
pub(crate) struct Stretch {
    pub(crate) keys: Vec<Vec<u8>>,
    /// The first key of the next stretch, or of the keys behind the part.
    pub(crate) next: Option<Vec<u8>>,
    pub(crate) leaves: u64,
    pub(crate) bytes: usize,
}

/// Finds the first stretch of a part: the leaves from its beginning on, none behind its end, as many as its bytes say.
/// For a part restricted to some segments, the stretch has one key below each node of these segments. Nodes on one way
/// down share a key.
pub(crate) fn stretch(version: &Version, part: Part<'_>) -> Result<Stretch> {
    let mut finder = Finder {
        part,
        waiting: part.chosen.map(|chosen| Waiting::new(chosen.content::<Segments>())),
        found: Stretch::default(),
        failed: None,
    };
    walk(version, &mut finder);
    finder.failed.map_or(Ok(finder.found), Err)
}

struct Finder<'a> {
    part: Part<'a>,
    waiting: Option<Waiting<'a>>,
    found: Stretch,
    failed: Option<Error>,
}

impl Finder<'_> {
    /// Ends the stretch before these keys.
    fn end(&mut self, span: &Span) -> ControlFlow<()> {
        self.found.next = Some(span.low.clone());
        ControlFlow::Break(())
    }
}

impl Walk for Finder<'_> {
    fn enters(&mut self, span: &Span, link: &Link) -> bool {
        let is_ahead = is_below(self.part.from, span.high.as_deref());
        if let Some(waiting) = self.waiting.as_mut().filter(|_| is_ahead) {
            waiting.enter(span, link);
        }
        // Nodes below this one may be in any segment.
        is_ahead
    }

    fn fetch(&mut self, version: &Version, pointers: &[DocPointer]) -> Vec<Result<Arc<Node>>> {
        version.nodes_or_error(pointers)
    }

    fn leaf(&mut self, _leaf: &Node, span: &Span) -> ControlFlow<()> {
        if self.found.bytes >= self.part.bytes || !self.part.has(&span.low) {
            return self.end(span);
        }
        self.found.leaves += 1;
        ControlFlow::Continue(())
    }

    fn groups(&mut self, groups: &Groups) -> ControlFlow<()> {
        if !is_below(self.part.from, groups.span.high.as_deref()) {
            return ControlFlow::Continue(());
        }
        if self.found.bytes >= self.part.bytes || !self.part.has(&groups.span.low) {
            return self.end(&groups.span);
        }
        self.found.bytes += groups.bytes();
        let is_one_enough = self.waiting.is_some();
        if self.waiting.as_mut().is_none_or(|waiting| waiting.meet(&groups.span.low)) {
            let _ = groups.each_key(|key, _| {
                self.found.keys.push(key);
                if is_one_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
        ControlFlow::Continue(())
    }

    fn failed(&mut self, _span: &Span, why: Error) -> ControlFlow<()> {
        self.failed = Some(why);
        ControlFlow::Break(())
    }
}

/// Key ranges of leaves that are due at `now`: neighbours together, at most `most` ranges, the first in key order.
/// Reads only nodes on the way to these leaves.
pub(crate) fn due(version: &Version, now: Time, most: usize) -> Result<Vec<LeafKeys>> {
    let mut looker = Looker { now, most, found: Vec::new(), failed: None };
    walk(version, &mut looker);
    looker.failed.map_or(Ok(looker.found), Err)
}

struct Looker {
    now: Time,
    most: usize,
    found: Vec<LeafKeys>,
    failed: Option<Error>,
}

impl Walk for Looker {
    fn enters(&mut self, span: &Span, link: &Link) -> bool {
        // Nodes below a leaf that is due as a whole are rewritten with that leaf.
        let is_found = self.found.last().is_some_and(|last| is_below(&span.low, last.high.as_deref()));
        link.due.is_some_and(|due| due.is_past(self.now)) && !is_found
    }

    fn fetch(&mut self, version: &Version, pointers: &[DocPointer]) -> Vec<Result<Arc<Node>>> {
        version.nodes_or_error(pointers)
    }

    fn leaf(&mut self, leaf: &Node, span: &Span) -> ControlFlow<()> {
        if !leaf.own_due(Time(0)).is_some_and(|due| due.is_past(self.now)) {
            return ControlFlow::Continue(());
        }
        LeafKeys { low: span.low.clone(), high: span.high.clone() }.join(&mut self.found, self.most)
    }

    fn groups(&mut self, _groups: &Groups) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn failed(&mut self, _span: &Span, why: Error) -> ControlFlow<()> {
        self.failed = Some(why);
        ControlFlow::Break(())
    }
}
