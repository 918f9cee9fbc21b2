//! Learning from a simulated device, whose times are known, on its own clock; and from made-up times.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::learn::Learner;
use crate::profile::{PAGE_BYTES, PAGES_MEASURED};
use crate::sim::SimDisk;
use crate::{Buffer, File, OpenOptions, Request};

const FILE_PAGES: usize = 4096;

/// A device that is slower alone than the ordinary drive, and faster in batches; large requests cost more.
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

fn served_through(direct: bool) -> (SimDisk, Psync, File) {
    let disk = SimDisk::new(1);
    disk.serve_as(device());
    let psync = disk.psync().with_pio_max(64);
    let options = OpenOptions { write: true, create_new: true, direct, ..OpenOptions::default() };
    let file = psync.open(Path::new("/file"), &options).expect("opens");
    psync.run_all(vec![Request::write(&file, 0, Buffer::zeroed(FILE_PAGES * PAGE_BYTES), 0)]).expect("writes");
    psync.run_all(vec![Request::flush(&file, 0)]).expect("flushes");
    (disk, psync, file)
}

fn served() -> (SimDisk, Psync, File) {
    served_through(true)
}

fn request(file: &File, kind: RequestKind, pages: usize, place: usize) -> Request {
    let bytes = pages * PAGE_BYTES;
    let offset = (place % (FILE_PAGES / pages) * bytes) as u64;
    match kind {
        RequestKind::Read => Request::read(file, offset, Buffer::zeroed(bytes), 0),
        RequestKind::Write => Request::write(file, offset, Buffer::zeroed(bytes), 0),
    }
}

/// Batches, one a second.
fn run((disk, psync, file): &(SimDisk, Psync, File), kind: RequestKind, pages: usize, batch: usize, batches: usize) {
    for round in 0..batches {
        disk.pass(Duration::from_secs(1));
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
    let served = served();
    for pages in PAGES_MEASURED {
        run(&served, RequestKind::Read, pages, 1, ENOUGH);
    }
    run(&served, RequestKind::Write, 1, 1, ENOUGH);
    run(&served, RequestKind::Write, 4, 1, ENOUGH);
    for pages in [1, 4] {
        run(&served, RequestKind::Read, pages, 64, ENOUGH);
    }
    run(&served, RequestKind::Write, 1, 100, ENOUGH);
    // Neither one alone nor a batch of the best depth.
    run(&served, RequestKind::Read, 2, 8, ENOUGH);
    let learned = learned(&served.1, 0, &DeviceProfile::default());
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
    let (disk, psync, file) = &served();
    for _ in 0..ENOUGH {
        disk.pass(Duration::from_secs(1));
        let mut stream = psync.stream(64);
        for place in 0..256 {
            stream.push(request(file, RequestKind::Read, 1, place * 3));
        }
        assert!(stream.all(|completion| completion.result.is_ok()));
    }
    // A stream that never ends, whose consumer rests now and then.
    let mut stream = psync.stream(64);
    (0..64).for_each(|place| stream.push(request(file, RequestKind::Read, 2, place)));
    for place in 0..STRETCHES * 256 {
        if place % 8000 == 0 {
            disk.pass(Duration::from_secs(60));
        }
        assert!(stream.next().expect("64 are in flight").result.is_ok());
        stream.push(request(file, RequestKind::Read, 2, place));
    }
    let learned = learned(psync, 0, &DeviceProfile::default());
    for (pages, size) in [(1, 0), (2, 1)] {
        let figure = figure(&learned, RequestKind::Read, pages, true);
        assert!(figure.is_enough(), "{figure:?}");
        near(figure.learned_us, device().reads[size].batched_us);
    }
}

const STRETCHES: usize = 320;

#[test]
fn a_slow_consumer_is_counted_and_its_device_is_not_judged() {
    let (disk, psync, file) = &served();
    let mut stream = psync.stream(64);
    (0..64).for_each(|place| stream.push(request(file, RequestKind::Read, 1, place)));
    for place in 0..STRETCHES * 256 {
        // The device is done long before the next call, but for a part of the time.
        if !(8000..20_000).contains(&(place % 30_000)) {
            disk.pass(Duration::from_millis(20));
        }
        assert!(stream.next().expect("64 are in flight").result.is_ok());
        stream.push(request(file, RequestKind::Read, 1, place));
    }
    let seen = figure(&learned(psync, 0, &DeviceProfile::default()), RequestKind::Read, 1, true);
    assert!(seen.timings > 0 && seen.left_out > seen.timings, "{seen:?}");
    assert!(!seen.is_enough() && seen.learned_us.to_bits() == seen.in_use_us.to_bits());
}

#[test]
fn nothing_is_timed_beside_requests_of_others() {
    let served = served();
    let (_, psync, file) = &served;
    let mut stream = psync.stream(64);
    (0..64).for_each(|place| stream.push(request(file, RequestKind::Read, 1, place)));
    stream.submit();
    // The device soon finishes them, but nobody takes them.
    run(&served, RequestKind::Read, 1, 1, ENOUGH);
    run(&served, RequestKind::Read, 1, 64, ENOUGH);
    assert!(psync.learner().times.all().is_empty());
    assert_eq!(stream.count(), 64);
    for place in 0..ENOUGH {
        let mut stream = psync.stream(64);
        (0..64).for_each(|place| stream.push(request(file, RequestKind::Read, 1, place)));
        psync.run_all(vec![request(file, RequestKind::Read, 1, place)]).expect("reads");
        assert_eq!(stream.count(), 64);
    }
    assert!(psync.learner().times.all().is_empty(), "neither is a stream during which others read");
    run(&served, RequestKind::Read, 1, 1, ENOUGH);
    let learned = learned(psync, 0, &DeviceProfile::default());
    near(figure(&learned, RequestKind::Read, 1, false).seen_us.expect("seen"), 150.0);
}

#[test]
fn a_part_of_a_page_is_no_page() {
    let (_, psync, file) = &served();
    for place in 0..ENOUGH {
        let part = |place: usize| Request::read(file, (place * 512) as u64, Buffer::zeroed(512), 0);
        psync.run_all(vec![part(place)]).expect("reads");
        psync.run_all((0..64).map(part).collect()).expect("reads");
    }
    assert!(psync.learner().times.all().is_empty());
}

#[test]
fn a_batch_with_a_flush_or_a_durable_write_is_left_out() {
    let (_, psync, file) = &served();
    for _ in 0..ENOUGH {
        let mut batch: Vec<Request> = (0..64).map(|place| request(file, RequestKind::Write, 1, place)).collect();
        batch.insert(32, Request::flush(file, 0));
        psync.run_all(batch).expect("writes");
        let mut batch: Vec<Request> = (0..64).map(|place| request(file, RequestKind::Read, 1, place)).collect();
        batch.push(Request::write_durably(file, (100 * PAGE_BYTES) as u64, Buffer::zeroed(PAGE_BYTES), 0));
        psync.run_all(batch).expect("works");
    }
    let noted = psync.learner().times.all();
    assert!(!noted.is_empty(), "the writes before the flush have the device to themselves");
    assert!(noted.iter().all(|(_, histogram)| histogram.requests == 32 * u64::from(histogram.timings())));
}

#[test]
fn what_goes_through_the_page_cache_shows_nothing_of_the_device() {
    let served = served_through(false);
    run(&served, RequestKind::Read, 1, 1, ENOUGH);
    run(&served, RequestKind::Read, 1, 64, ENOUGH);
    let in_use = DeviceProfile::default();
    let learned = learned(&served.1, 0, &in_use);
    assert!(learned.figures.iter().all(|figure| figure.timings == 0));
    assert_eq!(learned.profile, in_use);
}

#[test]
fn a_disk_without_a_clock_teaches_nothing() {
    let psync = SimDisk::new(1).psync();
    let options = OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
    let file = psync.open(Path::new("/file"), &options).expect("opens");
    psync.run_all(vec![Request::write(&file, 0, Buffer::zeroed(FILE_PAGES * PAGE_BYTES), 0)]).expect("writes");
    (0..ENOUGH).for_each(|place| {
        psync.run_all(vec![request(&file, RequestKind::Read, 1, place)]).expect("reads");
    });
    assert!(psync.learner().times.all().is_empty());
}

/// Notes timings in this many minutes in turn.
fn note_in(
    times: &RequestTimes, minutes: u32, kind: RequestKind, pages: usize, depth: usize, each_us: f64, timings: u32,
) {
    for timing in 0..timings {
        let minute = u64::from(timing * minutes / timings);
        times.note(minute, kind, pages, depth, each_us, depth as u64);
    }
}

fn note(times: &RequestTimes, kind: RequestKind, pages: usize, depth: usize, each_us: f64, timings: u32) {
    note_in(times, 8, kind, pages, depth, each_us, timings);
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
    assert!(after.figures.iter().all(|figure| figure.spread.is_none_or(|spread| spread < 0.07)));
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
fn a_busy_minute_is_not_believed() {
    let (times, in_use) = (RequestTimes::default(), DeviceProfile::default());
    note_in(&times, MINUTES_MIN - 1, RequestKind::Read, 1, 1, 500.0, 4000);
    let unlike_its_reads = DeviceProfile { read_us: 7.0, ..in_use.clone() };
    assert_eq!(derive(&times, &unlike_its_reads).profile, unlike_its_reads);
    times.note(1000, RequestKind::Read, 1, 1, 500.0, 1);
    near(derive(&times, &in_use).profile.read_us, 500.0);
}

#[test]
fn a_figure_of_which_more_was_left_out_than_noted_is_not_believed() {
    let (times, in_use) = (RequestTimes::default(), DeviceProfile::default());
    let left_out = || {
        let shape = Shape { kind: RequestKind::Read, size: 0 };
        times.note_shape(shape, 0, 2000, crate::learn::Timing::LeftOut);
    };
    note(&times, RequestKind::Read, 1, 1, 500.0, TIMINGS_MIN);
    (0..TIMINGS_MIN).for_each(|_| left_out());
    near(derive(&times, &in_use).profile.read_us, 500.0);
    left_out();
    assert_eq!(derive(&times, &in_use).profile, in_use);
}

#[test]
fn a_batch_is_no_slower_than_what_is_alone_unless_both_were_seen() {
    let (times, in_use) = (RequestTimes::default(), DeviceProfile::default());
    note(&times, RequestKind::Read, 1, 1, 2.0, TIMINGS_MIN);
    note(&times, RequestKind::Write, 1, 64, 90.0, TIMINGS_MIN);
    let learned = derive(&times, &in_use).profile;
    assert!(learned.batched_read_us <= learned.read_us && learned.read_us < 2.2);
    assert!(learned.write_us >= learned.batched_write_us && learned.batched_write_us > 83.0);
    note(&times, RequestKind::Write, 1, 1, 20.0, TIMINGS_MIN);
    let learned = derive(&times, &in_use).profile;
    near(learned.write_us, 20.0);
    near(learned.batched_write_us, 90.0);
}

#[test]
fn a_figure_that_was_seen_is_not_raised_by_one_that_was_not() {
    let (times, in_use) = (RequestTimes::default(), DeviceProfile::default());
    note(&times, RequestKind::Read, 1, 64, 400.0, TIMINGS_MIN);
    note(&times, RequestKind::Read, 4, 1, 90.0, TIMINGS_MIN);
    note(&times, RequestKind::Read, 8, 1, 70.0, TIMINGS_MIN);
    let learned = derive(&times, &in_use).profile;
    near(learned.reads[2].alone_us, 90.0);
    near(learned.reads[3].alone_us, 70.0);
    assert!(learned.reads[2].batched_us <= learned.reads[2].alone_us, "that in batches was not seen");
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
        for figure in &learned.figures {
            prop_assert!(!figure.is_enough() || Some(figure.learned_us) == figure.seen_us, "{:?}", figure);
        }
        for kind in RequestKind::ALL {
            let row = |batched: bool| {
                let is_in = move |figure: &&LearnedFigure| (figure.kind, figure.batched) == (kind, batched);
                learned.figures.iter().filter(is_in)
            };
            for (alone, batched) in row(false).zip(row(true)) {
                let both = alone.is_enough() && batched.is_enough();
                prop_assert!(both || batched.learned_us <= alone.learned_us, "{:?} {:?}", alone, batched);
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
    for _ in 0..3 {
        assert!(recall(&first, path).expect("there"));
    }
    assert_eq!(learned(&first, 0, &in_use).profile, in_use, "half is too little, however often it is recalled");
    note(&first.learner().times, RequestKind::Read, 1, 1, 500.0, TIMINGS_MIN / 2);
    keep_times(path, BackendKind::Sync, &first.learner().times).expect("saved");
    let second = psync();
    assert!(recall(&second, path).expect("there"));
    let learned = learned(&second, device_of(path).expect("looks"), &in_use).profile;
    near(learned.read_us, 500.0);
    super::super::save(path, &learned).expect("saved");
    assert_eq!(super::super::known(&second, path), Some(learned), "it is for this device and backend");
    let names: Vec<_> = second.list(path).expect("lists");
    assert_eq!(names, ["device.json", LEARNED_NAME]);
}

/// Has a learner take a read of one page that takes no time.
fn learn_one(learner: &Learner) {
    let mut stretch = std::iter::repeat_with(|| learner.begin(0, false)).flatten().next().expect("one in eight");
    learner.started(1);
    learner.completed(1);
    stretch.completed(Shape::new(RequestKind::Read, PAGE_BYTES), PAGE_BYTES);
    stretch.waited(1, 1, Duration::ZERO);
    learner.end(stretch, 0);
}

#[test]
fn what_could_not_be_saved_is_saved_the_next_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, psync) = (directory.path(), Psync::new(Some(BackendKind::Sync)).expect("always works"));
    learn_one(psync.learner());
    keep(&psync, &path.join("missing")).expect_err("there is no such directory");
    keep(&psync, path).expect("saved");
    let saved = || path.join(LEARNED_NAME).exists();
    assert!(saved());
    fs::remove_file(path.join(LEARNED_NAME)).expect("removed");
    keep(&psync, path).expect("nothing is new");
    assert!(!saved());
    learn_one(psync.learner());
    keep(&psync, path).expect("saved");
    assert!(saved());
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
        note(&psync.learner().times, RequestKind::Read, 1, 1, 500.0, 1);
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
