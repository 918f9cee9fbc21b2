//! Documents as the layers above use them.

mod appender;
mod compressed;
mod documents;
mod rewrite;
mod segments;
