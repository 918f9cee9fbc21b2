//! What is learned of a simulated device, whose times are known, on its own clock; and of times that are made up.

use proptest::prelude::*;

use super::super::{PAGE_BYTES, PAGES_MEASURED};
use super::*;
use crate::sim::SimDisk;
use crate::{Buffer, File, OpenOptions, Request};

const FILE_PAGES: usize = 4096;

/// Slower than the ordinary drive when it is alone, and faster in batches; large requests cost more.
fn device() -> DeviceProfile {
    let mut device = DeviceProfile::default();
    for read in &mut device.reads {
        let others = (read.pages - 1) as f64;
        (read.alone_us, read.batched_us) = (150.0 + 5.0 * others, 5.0 + 4.5 * others);
    }
    for write in &mut device.writes {
        let others = (write.pages - 1) as f64;
        (write.alone_us, write.batched_us) = (60.0 + 9.0 * others, 20.0 + 8.0 * others);
    }
    device
}

fn served() -> (Psync, File) {
    let disk = SimDisk::new(1);
    disk.serve_as(device());
    let psync = disk.psync().with_pio_max(64);
    let options = OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
    let file = psync.open(Path::new("/file"), &options).expect("opens");
    psync.run_all(vec![Request::write(&file, 0, Buffer::zeroed(FILE_PAGES * PAGE_BYTES), 0)]).expect("writes");
    psync.run_all(vec![Request::flush(&file, 0)]).expect("flushes");
    (psync, file)
}

fn request(file: &File, kind: RequestKind, pages: usize, place: usize) -> Request {
    let bytes = pages * PAGE_BYTES;
    let offset = (place % (FILE_PAGES / pages) * bytes) as u64;
    match kind {
        RequestKind::Read => Request::read(file, offset, Buffer::zeroed(bytes), 0),
        RequestKind::Write => Request::write(file, offset, Buffer::zeroed(bytes), 0),
    }
}

fn run(psync: &Psync, file: &File, kind: RequestKind, pages: usize, batch: usize, batches: usize) {
    for round in 0..batches {
        let requests = (0..batch).map(|place| request(file, kind, pages, round * 7 + place)).collect();
        psync.run_all(requests).expect("it works");
        if kind == RequestKind::Write {
            psync.run_all(vec![Request::flush(file, 0)]).expect("flushes");
        }
    }
}

fn figure(learned: &LearnedProfile, kind: RequestKind, pages: usize, batched: bool) -> LearnedFigure {
    let is_it = |figure: &&LearnedFigure| (figure.kind, figure.pages, figure.batched) == (kind, pages, batched);
    *learned.figures.iter().find(is_it).expect("there is one for each")
}

#[track_caller]
fn near(found_us: f64, expected_us: f64) {
    assert!((found_us / expected_us - 1.0).abs() < 0.04, "{found_us} µs instead of {expected_us}");
}

/// Enough stretches for one in eight to be enough timings.
const ENOUGH: usize = 400;

#[test]
fn what_requests_take_comes_out_near_what_the_device_takes() {
    let (psync, file) = served();
    for pages in PAGES_MEASURED {
        run(&psync, &file, RequestKind::Read, pages, 1, ENOUGH);
    }
    run(&psync, &file, RequestKind::Write, 1, 1, ENOUGH);
    run(&psync, &file, RequestKind::Write, 4, 1, ENOUGH);
    for pages in [1, 4] {
        run(&psync, &file, RequestKind::Read, pages, 64, ENOUGH);
    }
    run(&psync, &file, RequestKind::Write, 1, 100, ENOUGH);
    // Neither one alone nor a batch of the best depth.
    run(&psync, &file, RequestKind::Read, 2, 8, ENOUGH);
    let learned = learned(&psync, Path::new("/"), &DeviceProfile::default()).expect("derived");
    assert_eq!(learned.profile.check(), Ok(()));
    let truth = device();
    for (read, true_read) in learned.profile.reads.iter().zip(&truth.reads) {
        near(read.alone_us, true_read.alone_us);
    }
    for (size, pages) in [(0, 1), (2, 4)] {
        near(learned.profile.reads[size].batched_us, truth.reads[size].batched_us);
        near(learned.profile.writes[size].alone_us, truth.writes[size].alone_us);
        assert!(figure(&learned, RequestKind::Read, pages, true).is_enough());
    }
    near(learned.profile.writes[0].batched_us, truth.writes[0].batched_us);
    near(learned.profile.read_us, truth.read_us.max(150.0));
    near(learned.profile.batched_write_us, 20.0);
    let two = figure(&learned, RequestKind::Read, 2, true);
    assert_eq!((two.seen_us, two.requests, two.timings), (None, 0, 0));
    let one = figure(&learned, RequestKind::Read, 1, true);
    assert_eq!(one.requests, u64::from(one.timings) * 64);
}

#[test]
fn streams_show_what_batches_do() {
    let (psync, file) = served();
    for _ in 0..ENOUGH {
        let mut stream = psync.stream(64);
        for place in 0..256 {
            stream.push(request(&file, RequestKind::Read, 1, place * 3));
        }
        assert!(stream.all(|completion| completion.result.is_ok()));
    }
    // One that never ends.
    let mut stream = psync.stream(64);
    (0..64).for_each(|place| stream.push(request(&file, RequestKind::Read, 2, place)));
    for place in 0..STRETCHES * 256 {
        assert!(stream.next().expect("64 are in flight").result.is_ok());
        stream.push(request(&file, RequestKind::Read, 2, place));
    }
    let learned = learned(&psync, Path::new("/"), &DeviceProfile::default()).expect("derived");
    for (pages, size) in [(1, 0), (2, 1)] {
        let figure = figure(&learned, RequestKind::Read, pages, true);
        assert!(figure.is_enough(), "{figure:?}");
        near(figure.learned_us, device().reads[size].batched_us);
    }
}

const STRETCHES: usize = 320;

#[test]
fn what_goes_through_the_page_cache_shows_nothing_of_the_device() {
    let disk = SimDisk::new(1);
    disk.serve_as(device());
    let psync = disk.psync();
    let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let file = psync.open(Path::new("/file"), &options).expect("opens");
    psync.run_all(vec![Request::write(&file, 0, Buffer::zeroed(FILE_PAGES * PAGE_BYTES), 0)]).expect("writes");
    run(&psync, &file, RequestKind::Read, 1, 1, ENOUGH);
    run(&psync, &file, RequestKind::Read, 1, 64, ENOUGH);
    let in_use = DeviceProfile::default();
    let learned = learned(&psync, Path::new("/"), &in_use).expect("derived");
    assert!(learned.figures.iter().all(|figure| figure.timings == 0));
    assert_eq!(learned.profile, in_use);
}

#[test]
fn a_disk_without_a_clock_teaches_nothing() {
    let psync = SimDisk::new(1).psync();
    let options = OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
    let file = psync.open(Path::new("/file"), &options).expect("opens");
    psync.run_all(vec![Request::write(&file, 0, Buffer::zeroed(FILE_PAGES * PAGE_BYTES), 0)]).expect("writes");
    run(&psync, &file, RequestKind::Read, 1, 1, ENOUGH);
    assert!(psync.learner().times.all().is_empty());
}

fn note(times: &RequestTimes, kind: RequestKind, pages: usize, depth: usize, each_us: f64, timings: u32) {
    (0..timings).for_each(|_| times.note(kind, pages, depth, each_us, depth as u64));
}

#[test]
fn too_few_requests_change_nothing_and_are_shown() {
    let (times, in_use) = (RequestTimes::default(), DeviceProfile::default());
    note(&times, RequestKind::Read, 1, 1, 500.0, TIMINGS_MIN - 1);
    note(&times, RequestKind::Write, 1, 32, 500.0, TIMINGS_MIN);
    let before = derive(&times, &in_use);
    assert_eq!(before.profile, in_use);
    assert!(!before.is_any_enough());
    let seen = figure(&before, RequestKind::Read, 1, false);
    assert_eq!((seen.timings, seen.requests, seen.learned_us), (TIMINGS_MIN - 1, 31, 80.0));
    near(seen.seen_us.expect("seen"), 500.0);
    note(&times, RequestKind::Read, 1, 1, 500.0, 1);
    let after = derive(&times, &in_use);
    near(after.profile.read_us, 500.0);
    near(after.profile.reads[0].alone_us, 500.0);
    assert!(after.profile.measured_at > 0);
}

#[test]
fn what_was_not_seen_keeps_its_proportion_to_what_was() {
    let (times, in_use) = (RequestTimes::default(), DeviceProfile::default());
    note(&times, RequestKind::Read, 2, 1, 2.0 * in_use.reads[1].alone_us, TIMINGS_MIN);
    note(&times, RequestKind::Read, 16, 1, 3.0 * in_use.reads[4].alone_us, TIMINGS_MIN);
    let learned = derive(&times, &in_use).profile;
    for ((learned, in_use), ratio) in learned.reads.iter().zip(&in_use.reads).zip([2.0, 2.0, 2.33, 2.67, 3.0, 3.0, 3.0])
    {
        near(learned.alone_us, ratio * in_use.alone_us);
    }
    assert_eq!(learned.writes, in_use.writes);
    let batched = |profile: &DeviceProfile| profile.reads.iter().map(|read| read.batched_us).collect::<Vec<_>>();
    assert_eq!(batched(&learned), batched(&in_use));
}

#[test]
fn a_batch_is_no_slower_than_what_is_alone() {
    let (times, in_use) = (RequestTimes::default(), DeviceProfile::default());
    note(&times, RequestKind::Read, 1, 1, 2.0, TIMINGS_MIN);
    note(&times, RequestKind::Write, 1, 64, 90.0, TIMINGS_MIN);
    let learned = derive(&times, &in_use).profile;
    assert!(learned.batched_read_us <= learned.read_us && learned.read_us < 2.2);
    assert!(learned.write_us >= learned.batched_write_us && learned.batched_write_us > 83.0);
}

#[test]
fn a_deeper_batch_counts_and_a_shallower_one_does_not() {
    let times = RequestTimes::default();
    note(&times, RequestKind::Read, 1, 32, 90.0, 1000);
    note(&times, RequestKind::Read, 1, 256, 4.0, TIMINGS_MIN);
    for (best_depth, expected_us) in [(64, 4.0), (256, 4.0), (32, 90.0)] {
        let in_use = DeviceProfile { best_depth, ..DeviceProfile::default() };
        near(derive(&times, &in_use).profile.batched_read_us, expected_us);
    }
}

proptest! {
    #[test]
    fn whatever_was_seen_makes_a_sound_profile(
        seen in prop::collection::vec((any::<bool>(), 0..7_usize, 0..9_usize, 0.0..1e7_f64), 0..40),
    ) {
        let times = RequestTimes::default();
        for (reads, size, depth, us) in seen {
            let kind = if reads { RequestKind::Read } else { RequestKind::Write };
            note(&times, kind, PAGES_MEASURED[size], DEPTHS_MEASURED[depth], us, TIMINGS_MIN);
        }
        let learned = derive(&times, &DeviceProfile::default());
        prop_assert_eq!(learned.profile.check(), Ok(()));
        for (kind, batched) in [(RequestKind::Read, false), (RequestKind::Read, true), (RequestKind::Write, false), (RequestKind::Write, true)] {
            for pair in costs(&learned.profile, kind, batched).windows(2) {
                prop_assert!(pair[0].1 <= pair[1].1, "{:?}", pair);
                prop_assert!(pair[1].1 <= 2.0 * pair[0].1 + 0.002, "{:?}", pair);
            }
        }
    }
}

#[test]
fn what_was_learned_comes_back_in_a_later_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let psync = || Psync::new(Some(BackendKind::Sync)).expect("always works");
    let path = directory.path();
    assert!(!recall(&psync(), path).expect("nothing is there"));
    let first = psync();
    keep(&first, path).expect("nothing to keep");
    assert!(!path.join(LEARNED_NAME).exists(), "nothing was noted");

    let times = RequestTimes::default();
    note(&times, RequestKind::Read, 1, 1, 500.0, TIMINGS_MIN / 2);
    keep_times(path, BackendKind::Sync, &times).expect("saved");
    let in_use = DeviceProfile::default();
    assert!(recall(&first, path).expect("there"));
    assert_eq!(learned(&first, path, &in_use).expect("derived").profile, in_use, "half is too little");
    note(&first.learner().times, RequestKind::Read, 1, 1, 500.0, TIMINGS_MIN / 2);
    keep_times(path, BackendKind::Sync, &first.learner().times).expect("saved");
    let second = psync();
    assert!(recall(&second, path).expect("there"));
    let learned = learned(&second, path, &in_use).expect("derived").profile;
    near(learned.read_us, 500.0);
    super::super::save(path, &learned).expect("saved");
    assert_eq!(super::super::known(&second, path), Some(learned), "it is for this device and backend");
    let names: Vec<_> = second.list(path).expect("lists");
    assert_eq!(names, ["device.json", LEARNED_NAME]);
}

#[test]
fn what_is_damaged_or_of_something_else_is_an_error_and_adds_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let times = RequestTimes::default();
    note(&times, RequestKind::Read, 1, 1, 500.0, TIMINGS_MIN);
    keep_times(path, BackendKind::Sync, &times).expect("saved");
    let sound = fs::read(path.join(LEARNED_NAME)).expect("reads");
    let refused = |bytes: &[u8], kind| {
        fs::write(path.join(LEARNED_NAME), bytes).expect("writes");
        let psync = Psync::new(Some(kind)).expect("always works");
        let error = recall(&psync, path).expect_err("refused");
        assert!(psync.learner().times.all().is_empty());
        assert!(matches!(error, Error::Learned { .. }), "{error}");
        error.to_string()
    };
    let mut newer = sound.clone();
    newer[8] += 1;
    assert!(refused(&newer, BackendKind::Sync).contains("version 2"));
    let mut rotten = sound.clone();
    rotten[40] ^= 1;
    assert!(refused(&rotten, BackendKind::Sync).contains("checksum"));
    assert!(refused(&sound, BackendKind::Threads).contains("through threads"));
    for bytes in [&sound[..sound.len() - 1], &sound[..20], b"", b"{}", &vec![b'B'; 1 << 20]] {
        refused(bytes, BackendKind::Sync);
    }
}
