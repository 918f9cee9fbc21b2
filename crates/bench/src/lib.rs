//! Workloads and device limits.
