//! Walking the versions whose values are documents.

use std::ops::ControlFlow;
use std::sync::Arc;

use doclog::DocPointer;
use index::{Error, Result, ShowVersions, Update, is_below};

use crate::format::Link;
use crate::format::node::Node;
use crate::ordered::{Groups, Span, Walk, walk};
use crate::version::Version;

/// Shows the versions of each key from `from` on that has documents.
pub(crate) fn documents(version: &Version, from: &[u8], show: &mut ShowVersions<'_>) -> Result<()> {
    let mut shown = Shown { from, show, failed: None };
    walk(version, &mut shown);
    shown.failed.map_or(Ok(()), Err)
}

struct Shown<'a, 'b> {
    from: &'a [u8],
    show: &'a mut ShowVersions<'b>,
    failed: Option<Error>,
}

impl Walk for Shown<'_, '_> {
    fn enters(&mut self, span: &Span, _link: &Link) -> bool {
        is_below(self.from, span.high.as_deref())
    }

    fn fetch(&mut self, version: &Version, pointers: &[DocPointer]) -> Vec<Result<Arc<Node>>> {
        version.nodes_or_error(pointers)
    }

    fn leaf(&mut self, _leaf: &Node, _span: &Span) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn groups(&mut self, groups: &Groups) -> ControlFlow<()> {
        groups.each_key(|key, versions| {
            if key.as_slice() < self.from {
                return ControlFlow::Continue(());
            }
            let mut versions: Vec<Update<'_>> =
                versions.map(|(seq, operation)| Update { key: &key, seq, operation }).collect();
            versions.reverse();
            if !versions.iter().any(|version| version.operation.document().is_some()) {
                versions.clear();
            }
            if versions.is_empty() && key == self.from {
                return ControlFlow::Continue(());
            }
            (self.show)(&key, &versions)
        })
    }

    fn failed(&mut self, _span: &Span, why: Error) -> ControlFlow<()> {
        self.failed = Some(why);
        ControlFlow::Break(())
    }
}
