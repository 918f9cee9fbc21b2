//! The buffer pool that all tables of a database share.
