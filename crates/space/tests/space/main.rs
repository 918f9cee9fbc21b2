//! Files, pages and the free list as the layers above use them.

mod allocator_model;
mod file_store;
mod paged_file;
