//! A control group that limits the memory of one process, including the pages that the operating system caches for the
//! process.
//!
//! 1. [`Group::create`] makes a group below this process's own group, or, where the system refuses, at the top of the
//!    hierarchy. The hierarchy is of version 2 or 1, whichever has the memory controller.
//! 2. The process to be limited writes itself into [`Group::members`] before it opens anything.
//! 3. Dropping the group releases its pages and removes the group.
//!
//! Not every machine offers this, because a group needs root or a group that was handed down. Without a group, a report
//! says so.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Prefix of the names of groups.
const PREFIX: &str = "braid-bench-";
/// Attempts to remove a group whose last process is still exiting.
const REMOVALS: usize = 50;

/// The controller's two generations, which name the same things differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A place where groups can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    mount: PathBuf,
    /// The group of this process, below the mount.
    own: PathBuf,
}

/// A group, meant for at most one process.
#[derive(Debug)]
pub struct Group {
    version: Version,
    directory: PathBuf,
}

impl Group {
    /// Makes a group whose processes get at most so many bytes.
    ///
    /// # Errors
    /// Why no group can be made, as a sentence.
    pub fn create(limit_bytes: u64) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let hierarchies = hierarchies(&mounts, &groups);
        let mut refused = "no control group file system with a memory controller is mounted".to_owned();
        for hierarchy in hierarchies {
            for parent in [hierarchy.own.as_path(), Path::new("")] {
                let parent = hierarchy.mount.join(parent);
                match Self::below(hierarchy.version, &parent, limit_bytes) {
                    Ok(group) => return Ok(group),
                    Err(error) => refused = format!("{}: {error}", parent.display()),
                }
            }
        }
        Err(refused)
    }

    fn below(version: Version, parent: &Path, limit_bytes: u64) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        remove_left(parent);
        if version == Version::Two {
            // Refused while the parent itself has processes; then the limit below is missing too.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let group = Self { version, directory: parent.join(name) };
        fs::create_dir(&group.directory)?;
        let limit = match version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        fs::write(group.directory.join(limit), limit_bytes.to_string())?;
        // Without swap, as far as the system counts swap.
        let swap = match version {
            Version::One => ("memory.memsw.limit_in_bytes", limit_bytes.to_string()),
            Version::Two => ("memory.swap.max", "0".to_owned()),
        };
        let _ = fs::write(group.directory.join(swap.0), swap.1);
        Ok(group)
    }

    /// The file that a process writes itself into.
    pub fn members(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// The most bytes that the group ever had.
    pub fn peak_bytes(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        fs::read_to_string(self.directory.join(file)).ok()?.trim().parse().ok()
    }

    /// Whether a process of the group was killed because its memory exceeded the limit.
    pub fn has_killed(&self) -> bool {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        fs::read_to_string(self.directory.join(file)).is_ok_and(|text| kills(&text) > 0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.version == Version::One {
            // Otherwise the cached pages would stay charged to a group that no process is in.
            let _ = fs::write(self.directory.join("memory.force_empty"), "0");
        }
        for _ in 0..REMOVALS {
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Removes the groups of processes that are gone. The system refuses to remove a group in use.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|owner| owner != std::process::id() && !Path::new(&format!("/proc/{owner}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn kills(text: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.strip_prefix("oom_kill "));
    lines.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
}

/// The hierarchies with a memory controller, version 2 first, each with this process's group.
fn hierarchies(mounts: &str, groups: &str) -> Vec<Hierarchy> {
    let own = |version| {
        let mut lines = groups.lines().filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let of_version = match version {
                Version::One => controllers.split(',').any(|controller| controller == "memory"),
                Version::Two => controllers.is_empty(),
            };
            of_version.then(|| PathBuf::from(path.trim_start_matches('/')))
        });
        lines.next().unwrap_or_default()
    };
    let mut found: Vec<Hierarchy> = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (mount, kind, options) = (words.next()?, words.next()?, words.next()?);
            let version = match kind {
                "cgroup2" => Version::Two,
                "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
                _ => return None,
            };
            Some(Hierarchy { version, mount: mount.into(), own: own(version) })
        })
        .collect();
    found.sort_by_key(|hierarchy| hierarchy.version == Version::One);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_controller_is_found_in_both_versions() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let groups = "4:memory:/jobs/7\n1:cpu:/\n0::/user.slice\n";
        let found = hierarchies(mounts, groups);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].version, found[0].own.as_path()), (Version::Two, Path::new("user.slice")));
        assert_eq!(found[1].mount, Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(found[1].own, Path::new("jobs/7"));
    }

    #[test]
    fn kills_are_counted() {
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), 1);
        assert_eq!(kills("low 0\noom 3\noom_kill 0\noom_group_kill 0\n"), 0);
    }
}
