//! The queue against a backend that follows a script.

use std::fs;
use std::path::Path;

use parking_lot::Mutex;

use super::*;
use crate::backend::BackendKind;
use crate::file::{FileInner, Handle};

/// The calls of the scripted backend, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Read(u64, usize),
    Write(u64, usize),
    WriteDurably(u64, usize),
    Flush,
}

#[derive(Default)]
struct Script {
    asked: Mutex<Vec<Asked>>,
    /// Outcomes of the next attempts; then each attempt transfers everything.
    outcomes: Mutex<VecDeque<i64>>,
    /// Attempts that the lane completes before it fails for good.
    lane_breaks_after: Mutex<Option<usize>>,
}

impl Script {
    fn outcome(&self, offset: u64, transfer: Transfer) -> i64 {
        let (asked, length) = match transfer {
            Transfer::Read { length, .. } => (Asked::Read(offset, length), length),
            Transfer::Write { length, durable: false, .. } => (Asked::Write(offset, length), length),
            Transfer::Write { length, durable: true, .. } => (Asked::WriteDurably(offset, length), length),
            Transfer::Flush => (Asked::Flush, 0),
        };
        self.asked.lock().push(asked);
        let scripted = self.outcomes.lock().pop_front();
        let outcome = scripted.unwrap_or(i64::try_from(length).expect("small"));
        let count = usize::try_from(outcome).unwrap_or(0);
        for (index, byte) in content(offset, count).into_iter().enumerate() {
            // SAFETY: the attempt is for at least `count` bytes of memory that is valid until it is reported.
            unsafe {
                match transfer {
                    Transfer::Read { memory, .. } => memory.add(index).write(byte),
                    Transfer::Write { memory, .. } => assert_eq!(memory.add(index).read(), byte),
                    Transfer::Flush => {}
                }
            }
        }
        outcome
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock())
    }
}

/// The file's content at an offset.
fn content(offset: u64, count: usize) -> Vec<u8> {
    (offset..).take(count).map(|at| at.to_le_bytes()[0]).collect()
}

struct Scripted(Arc<Script>);

impl Backend for Scripted {
    fn kind(&self) -> BackendKind {
        BackendKind::Sync
    }

    unsafe fn call(&self, _file: &FileInner, offset: u64, transfer: Transfer) -> i64 {
        self.0.outcome(offset, transfer)
    }

    fn lane(&self) -> io::Result<Box<dyn Lane>> {
        Ok(Box::new(ScriptedLane { script: Arc::clone(&self.0), in_flight: Vec::new() }))
    }
}

/// Completes attempts one by one, the newest first, and asserts that no flush starts while a write is in flight.
struct ScriptedLane {
    script: Arc<Script>,
    in_flight: Vec<(u32, u64, Transfer)>,
}

impl Lane for ScriptedLane {
    fn capacity(&self) -> usize {
        8
    }

    unsafe fn push(&mut self, slot: u32, _file: &FileInner, offset: u64, transfer: Transfer) {
        if matches!(transfer, Transfer::Flush) {
            let write = |(_, _, other): &(u32, u64, Transfer)| matches!(other, Transfer::Write { .. });
            assert!(!self.in_flight.iter().any(write), "a flush overtook a write");
        }
        self.in_flight.push((slot, offset, transfer));
        assert!(self.in_flight.len() <= self.capacity());
    }

    fn reap(&mut self, wait: usize, done: &mut Vec<Done>) -> io::Result<()> {
        for _ in 0..wait {
            let mut breaks = self.script.lane_breaks_after.lock();
            if *breaks == Some(0) {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            *breaks = breaks.map(|left| left - 1);
            let Some((slot, offset, transfer)) = self.in_flight.pop() else {
                break;
            };
            let outcome = self.script.outcome(offset, transfer);
            done.push(Done { slot, outcome });
        }
        Ok(())
    }
}

fn scripted(outcomes: &[i64]) -> (Arc<dyn Backend>, Arc<Script>, File) {
    let script = Arc::new(Script::default());
    script.outcomes.lock().extend(outcomes);
    let null = fs::File::open("/dev/null").expect("open");
    let file = File::new(Path::new("file"), None, None, Handle::System(null));
    (Arc::new(Scripted(Arc::clone(&script))), script, file)
}

/// A queue that learns, and its learner.
fn queue(backend: &Arc<dyn Backend>, depth: usize) -> (Queue, Arc<Learner>) {
    let learner = Arc::new(Learner::new(Arc::clone(backend)));
    let learning = Learning::new(Arc::clone(&learner), false);
    let traffic = Traffic::new(&Arc::default());
    let queue =
        Queue::new(backend, backend.lane(), traffic, learning, depth, &|_| unreachable!("the lane is always given"));
    (queue, learner)
}

#[track_caller]
fn nothing_in_flight(learner: &Learner, started: u64) {
    assert_eq!(learner.look(), (started, 0));
}

fn run(backend: &Arc<dyn Backend>, depth: usize, requests: Vec<Request>) -> Vec<Completion> {
    let (mut queue, learner) = queue(backend, depth);
    let count = requests.len();
    for (index, request) in requests.into_iter().enumerate() {
        queue.push(index, request);
    }
    let mut completions: Vec<Option<Completion>> = Vec::new();
    completions.resize_with(count, || None);
    queue.finish(|index, completion| {
        assert!(completions[index].replace(completion).is_none(), "completed twice");
    });
    nothing_in_flight(&learner, count as u64);
    completions.into_iter().flatten().collect()
}

fn one(outcomes: &[i64], request: impl Fn(&File) -> Request) -> (Result<()>, Vec<Asked>) {
    let (backend, script, file) = scripted(outcomes);
    let learner = Learner::new(Arc::clone(&backend));
    let alone = perform(&*backend, &learner, request(&file));
    nothing_in_flight(&learner, 1);
    let asked = script.asked();
    // The same holds through a lane.
    script.outcomes.lock().clear();
    script.outcomes.lock().extend(outcomes);
    let (mut queue, learner) = queue(&backend, 4);
    queue.push(0, request(&file));
    let (_, queued) = queue.next().expect("one completion");
    nothing_in_flight(&learner, 1);
    assert_eq!(format!("{:?}", queued.result), format!("{:?}", alone.result));
    for (completion, buffer) in [&alone, &queued].iter().filter_map(|done| Some((done, done.buffer.as_ref()?))) {
        if completion.result.is_ok() {
            assert_eq!(**buffer, content(100, 50));
        }
    }
    assert_eq!(script.asked(), asked);
    (alone.result, asked)
}

fn read(file: &File) -> Request {
    Request::read(file, 100, Buffer::zeroed(50), 0)
}

fn write(file: &File) -> Request {
    Request::write(file, 100, Buffer::from_slice(&content(100, 50)), 0)
}

fn write_durably(file: &File) -> Request {
    Request::write_durably(file, 100, Buffer::from_slice(&content(100, 50)), 0)
}

const EINTR: i64 = -(libc::EINTR as i64);
const EAGAIN: i64 = -(libc::EAGAIN as i64);

#[test]
fn short_transfers_are_continued_where_they_stopped() {
    let (result, asked) = one(&[10, 15], read);
    assert!(result.is_ok());
    assert_eq!(asked, [Asked::Read(100, 50), Asked::Read(110, 40), Asked::Read(125, 25)]);
    let (result, asked) = one(&[49], write);
    assert!(result.is_ok());
    assert_eq!(asked, [Asked::Write(100, 50), Asked::Write(149, 1)]);
}

#[test]
fn what_is_left_of_a_durable_write_is_durable_too() {
    let (result, asked) = one(&[10, EINTR, 15], write_durably);
    assert!(result.is_ok());
    let again =
        [(100, 50), (110, 40), (110, 40), (125, 25)].map(|(offset, length)| Asked::WriteDurably(offset, length));
    assert_eq!(asked, again);
    let (result, asked) = one(&[20, -i64::from(libc::EIO)], write_durably);
    assert!(matches!(result, Err(Error::Io { operation: "write", offset: 100, length: 50, .. })));
    assert_eq!(asked.len(), 2, "a failure is not repeated");
}

#[test]
fn the_end_of_the_file_is_a_short_read() {
    let (result, asked) = one(&[10, 0], read);
    assert!(matches!(result, Err(Error::ShortRead { offset: 100, wanted: 50, got: 10, .. })));
    assert_eq!(asked.len(), 2);
}

#[test]
fn interruptions_are_repeated_within_a_bound() {
    let (result, asked) = one(&[EINTR, 10, EAGAIN, EINTR], write);
    assert!(result.is_ok());
    assert_eq!(asked.len(), 5);
    assert_eq!(asked[4], Asked::Write(110, 40));
    let (result, asked) = one(&[EINTR, EINTR], |file| Request::flush(file, 0));
    assert!(result.is_ok());
    assert_eq!(asked, [Asked::Flush; 3]);
    let forever = vec![EAGAIN; 100];
    let (result, asked) = one(&forever, read);
    assert!(matches!(result, Err(Error::Io { operation: "read", .. })));
    assert_eq!(asked.len(), RETRIES_MAX as usize + 1);
    let nothing = vec![0; 100];
    let (result, asked) = one(&nothing, write);
    assert!(matches!(result, Err(Error::Io { operation: "write", .. })));
    assert_eq!(asked.len(), RETRIES_MAX as usize + 1);
}

#[test]
fn a_failure_is_not_repeated() {
    let (result, asked) = one(&[20, -i64::from(libc::EIO)], write);
    let Err(Error::Io { offset, length, .. }) = result else {
        panic!("{result:?} is no failure");
    };
    assert_eq!((offset, length), (100, 50));
    assert_eq!(asked.len(), 2);
    let (result, asked) = one(&[-i64::from(libc::EIO)], |file| Request::flush(file, 0));
    assert!(result.is_err());
    assert_eq!(asked, [Asked::Flush]);
}

#[test]
fn a_flush_starts_after_the_writes_before_it() {
    // Short writes keep a write in flight for longer.
    let (backend, script, file) = scripted(&[1, 1, 1, 1]);
    let mut requests: Vec<Request> = (0..4).map(|_| write(&file)).collect();
    requests.push(write_durably(&file));
    requests.push(Request::flush(&file, 0));
    requests.push(Request::flush(&file, 0));
    requests.push(read(&file));
    requests.push(write(&file));
    requests.push(Request::flush(&file, 0));
    for depth in [1, 3, 8] {
        let again = requests.iter().map(|request| match &request.operation {
            Operation::Read(_) => read(&file),
            Operation::Write(_) => write(&file),
            Operation::WriteDurably(_) => write_durably(&file),
            Operation::Flush => Request::flush(&file, 0),
        });
        let completions = run(&backend, depth, again.collect());
        assert_eq!(completions.len(), 10);
        assert!(completions.iter().all(|completion| completion.result.is_ok()));
        let asked = script.asked();
        let first_flush = asked.iter().position(|asked| *asked == Asked::Flush).expect("asked");
        let writes = asked[..first_flush]
            .iter()
            .filter(|asked| matches!(asked, Asked::Write(_, 50) | Asked::WriteDurably(_, 50)));
        assert!(writes.count() >= 5);
        assert_eq!(asked.last(), Some(&Asked::Flush));
    }
}

#[test]
fn when_the_lane_breaks_its_requests_fail_and_the_others_are_done() {
    let (backend, script, file) = scripted(&[]);
    *script.lane_breaks_after.lock() = Some(3);
    let completions = run(&backend, 4, (0..20).map(|_| write(&file)).collect());
    assert_eq!(completions.len(), 20);
    let failed: Vec<&Completion> = completions.iter().filter(|completion| completion.result.is_err()).collect();
    assert!(!failed.is_empty() && failed.len() <= 4);
    assert!(failed.iter().all(|completion| completion.buffer.is_none()));
    assert_eq!(file.counters().snapshot().writes, 20 - failed.len() as u64);
}

#[test]
fn a_queue_that_is_dropped_leaves_nothing_in_flight() {
    for breaks in [None, Some(3)] {
        let (backend, script, file) = scripted(&[10, EINTR, -i64::from(libc::EIO)]);
        *script.lane_breaks_after.lock() = breaks;
        let (mut queue, learner) = queue(&backend, 4);
        for index in 0..9 {
            queue.push(index, write(&file));
        }
        queue.submit();
        assert!(breaks.is_some() || learner.look().1 > 0);
        drop(queue);
        nothing_in_flight(&learner, 9);
    }
}
