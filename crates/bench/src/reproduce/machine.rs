//! The machine of a run, as its operating system describes it.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;

/// The facts that a reader needs to compare figures with those of another machine. A fact that could not be determined
/// is "unknown".
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Name and version of the kernel.
    pub kernel: String,
    /// Type and source of the file system that holds the data.
    pub file_system: String,
    /// The date of this record, in UTC.
    pub date: String,
    /// Version of Braid.
    pub version: String,
}

impl Machine {
    /// This machine, with data in `directory`.
    #[must_use]
    pub fn here(directory: &Path) -> Self {
        let unknown = || "unknown".to_owned();
        let first_line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let memory = fs::read_to_string("/proc/meminfo").ok();
        let memory = memory.and_then(|text| field(&text, "MemTotal")?.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            processor: fs::read_to_string("/proc/cpuinfo")
                .ok()
                .and_then(|text| field(&text, "model name").or_else(|| field(&text, "Model")))
                .unwrap_or_else(unknown),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory.map(|kibibytes| kibibytes * 1024),
            kernel: first_line("/proc/sys/kernel/osrelease").map_or_else(unknown, |release| format!("Linux {release}")),
            file_system: fs::read_to_string("/proc/self/mounts")
                .ok()
                .and_then(|mounts| file_system(&mounts, &directory.canonicalize().ok()?))
                .unwrap_or_else(unknown),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

fn field(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned());
    values.next()
}

/// Type, source and options of the mount that holds `path`: the last among the mounts with the longest mount point.
fn file_system(mounts: &str, path: &Path) -> Option<String> {
    let parsed = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?, words.next()?, words.next()?))
    });
    let holding = parsed.filter(|(_, point, _, _)| path.starts_with(point));
    let (source, _, kind, options) = holding.max_by_key(|(_, point, _, _)| point.len())?;
    Some(format!("{kind} on {source} ({options})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_holds_a_path() {
        let mounts = "/dev/a / ext4 rw 0 0\n/dev/b /data xfs rw,noatime 0 0\n/dev/c /da tmpfs rw 0 0\n";
        let of = |path: &str| file_system(mounts, Path::new(path)).expect("mounted");
        assert_eq!(of("/data/x"), "xfs on /dev/b (rw,noatime)");
        assert_eq!(of("/dat"), "ext4 on /dev/a (rw)");
    }

    #[test]
    fn fields_are_found() {
        assert_eq!(field("cpu MHz : 1\nmodel name\t: Fast One\n", "model name").as_deref(), Some("Fast One"));
        assert_eq!(field("a: b", "c"), None);
        assert!(Machine::here(Path::new(".")).processors > 0);
    }
}
