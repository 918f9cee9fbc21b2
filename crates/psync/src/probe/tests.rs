use super::*;
use crate::BackendKind;
use crate::sim::SimDisk;

fn psync() -> Psync {
    Psync::new(None).expect("backend")
}

fn names(directory: &Path) -> Vec<String> {
    psync().list(directory).expect("list")
}

#[test]
fn a_profile_has_all_figures_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("directory");
    let profile = profile(&psync(), directory.path()).expect("measured");
    assert_eq!(profile.check(), Ok(()));
    assert_eq!(profile.backend, psync().backend());
    assert!(profile.measured_at > 0);
    assert!(names(directory.path()).is_empty());
    assert_eq!(DeviceProfile::from_text(profile.to_text().as_bytes()), Ok(profile));
}

#[test]
fn a_profile_that_cannot_be_measured_is_an_error() {
    let directory = tempfile::tempdir().expect("directory");
    let error = profile(&psync(), &directory.path().join("none")).expect_err("no directory");
    assert!(error.is_not_found(), "{error}");
}

#[test]
fn a_saved_profile_is_taken_unless_it_is_for_something_else() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join(PROFILE_NAME);
    let psync = psync();
    assert_eq!(known(&psync, directory.path()), None);
    let device = device_of(directory.path()).expect("a directory");
    let first = DeviceProfile { device, backend: psync.backend(), ..DeviceProfile::default() };
    save(directory.path(), &first).expect("saved");
    assert_eq!(names(directory.path()), [PROFILE_NAME]);
    assert_eq!(load(&path).expect("stored"), first);
    assert_eq!(known(&psync, directory.path()), Some(first.clone()));

    // A saved profile is believed when its device and backend match.
    let edited = DeviceProfile { best_depth: 256, read_us: 12.5, ..first.clone() };
    save(directory.path(), &edited).expect("saved");
    assert_eq!(known(&psync, directory.path()), Some(edited));

    let elsewhere = [
        DeviceProfile { device: first.device ^ 1, ..first.clone() },
        DeviceProfile {
            backend: if first.backend == BackendKind::Sync { BackendKind::Threads } else { BackendKind::Sync },
            ..first.clone()
        },
        DeviceProfile { version: VERSION + 1, ..first.clone() },
        DeviceProfile { write_us: 0.0, ..first.clone() },
        DeviceProfile {
            durable_buffered: DurableWriteCost { dsync_us: -1.0, ..first.durable_buffered },
            ..first.clone()
        },
        DeviceProfile { durable_direct: DurableWriteCost { flushed_us: 0.0, ..first.durable_direct }, ..first.clone() },
        DeviceProfile { best_depth: 3, ..first.clone() },
        DeviceProfile { spread: -1.0, ..first.clone() },
        DeviceProfile { reads: Vec::new(), ..first.clone() },
        DeviceProfile { writes: Vec::new(), ..first.clone() },
    ];
    for foreign in elsewhere {
        save(directory.path(), &foreign).expect("saved");
        assert_eq!(known(&psync, directory.path()), None);
    }
    for damaged in [&b""[..], b"{", b"\xff\xfe", b"{\"version\": 1}", &[b'['; 200_000]] {
        fs::write(&path, damaged).expect("written");
        assert!(load(&path).is_err());
        assert_eq!(known(&psync, directory.path()), None);
    }
}

#[test]
fn a_profile_of_the_version_before_is_not_taken() {
    let directory = tempfile::tempdir().expect("directory");
    let device = device_of(directory.path()).expect("a directory");
    let now = DeviceProfile { device, backend: psync().backend(), ..DeviceProfile::default() };
    let mut before: serde_json::Value = serde_json::from_str(&now.to_text()).expect("JSON");
    let fields = before.as_object_mut().expect("an object");
    fields.insert("version".to_owned(), 4.into());
    assert!(fields.remove("spread").is_some());
    fs::write(directory.path().join(PROFILE_NAME), before.to_string()).expect("written");
    assert_eq!(known(&psync(), directory.path()), None);
}

#[test]
fn one_request_is_preferred_only_where_it_is_clearly_faster() {
    let faster = |flushed_us, dsync_us| DurableWriteCost { flushed_us, dsync_us }.faster();
    assert_eq!(faster(100.0, 80.0), DurableWrite::Dsync);
    assert_eq!(faster(100.0, 95.0), DurableWrite::Flush);
    assert_eq!(faster(100.0, 300.0), DurableWrite::Flush);
    let profile = DeviceProfile {
        durable_buffered: DurableWriteCost { flushed_us: 100.0, dsync_us: 50.0 },
        ..DeviceProfile::default()
    };
    assert_eq!((profile.durable_write(false), profile.durable_write(true)), (DurableWrite::Dsync, DurableWrite::Flush));
}

#[test]
fn reads_are_measured_on_any_file_that_is_long_enough() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("data");
    let psync = psync();
    let costs = |go_on: &dyn Fn() -> Result<()>| {
        let file = psync.open(&path, &crate::OpenOptions::default())?;
        read_costs(&psync, &file, 4, Duration::from_micros(100), go_on)
    };
    fs::write(&path, vec![1; 64 * PAGE_BYTES]).expect("written");
    let found = costs(&|| Ok(())).expect("measured");
    assert_eq!(found.iter().map(|read| read.pages).collect::<Vec<_>>(), PAGES_MEASURED);
    assert!(found.iter().all(|read| read.alone_us > 0.0 && read.batched_us > 0.0));
    assert!(found.windows(2).all(|pair| pair[0].alone_us <= pair[1].alone_us));
    let asked = std::cell::Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        if asked.get() == 3 { Err(Error::Profile { path: path.clone(), reason: "stopped".to_owned() }) } else { Ok(()) }
    };
    assert!(matches!(costs(&stop), Err(Error::Profile { .. })));
    assert_eq!(asked.get(), 3, "nothing goes on");
    fs::write(&path, vec![1; 64 * PAGE_BYTES - 1]).expect("written");
    assert!(matches!(costs(&|| Ok(())), Err(Error::ShortRead { .. })));
}

#[test]
fn the_best_depth_is_the_smallest_of_the_best() {
    assert_eq!(best_depth(&[(1, 100.0), (2, 50.0), (4, 10.3), (8, 10.0), (16, 10.1)]), 4);
    assert_eq!(best_depth(&[(1, 100.0), (2, 50.0), (4, 11.0), (8, 10.0)]), 8);
    assert_eq!(best_depth(&[(1, 5.0), (2, 5.0)]), 1);
}

#[test]
fn a_request_costs_no_more_than_a_larger_one_or_its_parts() {
    let smoothed = |mut by_size: Vec<(usize, f64)>| {
        smooth(&mut by_size);
        by_size.into_iter().map(|(_, us)| us).collect::<Vec<_>>()
    };
    assert_eq!(smoothed(vec![(1, 40.0), (2, 20.0), (4, 30.0)]), [20.0, 20.0, 30.0]);
    assert_eq!(smoothed(vec![(1, 5.0), (2, 9.0), (4, 8.0)]), [5.0, 8.0, 8.0]);
    assert_eq!(smoothed(vec![(1, 22.0), (2, 22.0), (4, 439.0), (16, 500.0)]), [22.0, 22.0, 44.0, 176.0]);
}

#[test]
fn a_simulated_disk_has_an_assumed_profile() {
    let psync = SimDisk::new(1).psync();
    assert_eq!(known(&psync, Path::new("/")), None);
    let assumed = profile(&psync, Path::new("/")).expect("assumed");
    assert_eq!(assumed, DeviceProfile::default());
    assert_eq!(assumed.check(), Ok(()));
}

#[test]
fn limits_are_measured_beside_a_file_that_stays_as_it_is() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("data");
    let content = vec![7; 40 * PAGE_BYTES + 100];
    fs::write(&path, &content).expect("written");
    let options = LimitsOptions { read_bytes: 5000, depths: vec![1, 8], time: Duration::from_millis(5), writes: true };
    for kind in BackendKind::ALL {
        let psync = Psync::new(Some(kind)).expect("backend");
        let limits = limits(&psync, &path, &options).expect("measured");
        assert_eq!(limits.read_bytes, 2 * PAGE_BYTES);
        assert_eq!(limits.backend, kind);
        let depths: Vec<usize> = limits.random_reads.iter().map(|rate| rate.depth).collect();
        assert_eq!(depths, options.depths);
        assert!(limits.random_reads.iter().all(|rate| rate.per_second.is_finite() && rate.per_second > 0.0));
        assert!(limits.sequential_write_bytes_per_second > Some(0.0));
        assert!(limits.flushed_writes_per_second > Some(0.0));
    }
    assert!(fs::read(&path).expect("read") == content);
    assert_eq!(names(directory.path()), ["data"]);
    fs::write(&path, b"short").expect("written");
    let error = limits(&psync(), &path, &options).expect_err("shorter than a read");
    assert!(matches!(error, Error::ShortRead { .. }), "{error}");
}
