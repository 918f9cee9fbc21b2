//! A machine whose security policy forbids kernel queues, as container runtimes do: a real seccomp filter, on one
//! thread.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "installs a seccomp filter with prctl")]

use psync::{BLOCK, BackendKind, Buffer, Error, OpenOptions, Psync, Request};

/// `BPF_LD | BPF_W | BPF_ABS`, `BPF_JMP | BPF_JEQ | BPF_K`, `BPF_RET | BPF_K`.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const SECCOMP_RET_ALLOW: u32 = 0x7fff_0000;
const SECCOMP_RET_ERRNO: u32 = 0x0005_0000;

/// Offsets in `seccomp_data` of the call's number and of the low word of its last argument, on a little-endian machine.
const NUMBER: u32 = 0;
const LAST_ARGUMENT: u32 = 16 + 5 * 8;

/// Makes a system call fail with an error number on the calling thread and those it starts, for good; with `last`, only
/// where its last
/// argument is that.
fn forbid(call: libc::c_long, last: Option<i32>, errno: i32) {
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let positive = |number: i64| u32::try_from(number).expect("small and not negative");
    let mut program = vec![instruction(LOAD, 0, 0, NUMBER)];
    match last {
        None => program.push(instruction(JUMP_IF_EQUAL, 0, 1, positive(call))),
        Some(last) => program.extend([
            instruction(JUMP_IF_EQUAL, 0, 3, positive(call)),
            instruction(LOAD, 0, 0, LAST_ARGUMENT),
            instruction(JUMP_IF_EQUAL, 0, 1, positive(last.into())),
        ]),
    }
    program.push(instruction(RETURN, 0, 0, SECCOMP_RET_ERRNO | positive(errno.into())));
    program.push(instruction(RETURN, 0, 0, SECCOMP_RET_ALLOW));
    let len = u16::try_from(program.len()).expect("a few");
    let filter = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the filter's program is valid during the call; both calls change only the calling thread.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let installed = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter);
        assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
    }
}

/// Writes and reads a few blocks in batches and in a stream.
fn works(psync: &Psync) {
    let directory = tempfile::tempdir().expect("directory");
    let options = OpenOptions { write: true, create: true, direct: true, ..OpenOptions::default() };
    let file = psync.open(&directory.path().join("file"), &options).expect("create");
    let offsets = (0..8).map(|block| block * BLOCK as u64);
    let writes = offsets.clone().map(|offset| Request::write(&file, offset, Buffer::from_slice(&[7; BLOCK]), 0));
    psync.run_all(writes.chain([Request::flush(&file, 0)]).collect()).expect("write");
    let mut stream = psync.stream(4);
    for offset in offsets {
        stream.push(Request::read(&file, offset, Buffer::zeroed(BLOCK), 0));
    }
    let mut count = 0;
    for completion in stream {
        completion.result.expect("read");
        assert_eq!(*completion.buffer.expect("buffer"), [7; BLOCK]);
        count += 1;
    }
    assert_eq!(count, 8);
}

#[test]
fn a_refused_backend_is_replaced_by_the_next() {
    let before = Psync::new(Some(BackendKind::IoUring)).expect("not refused yet");
    std::thread::spawn(move || {
        forbid(libc::SYS_io_uring_setup, None, libc::EPERM);
        let psync = Psync::new(None).expect("another backend");
        assert_eq!(psync.backend(), BackendKind::Libaio);
        let reason = psync.fallback_reason().expect("a reason");
        assert!(reason.starts_with("io_uring is not available: ") && reason.contains("not permitted"), "{reason}");
        works(&psync);

        let error = Psync::new(Some(BackendKind::IoUring)).expect_err("refused");
        assert!(matches!(error, Error::Unsupported { backend: BackendKind::IoUring, .. }), "{error}");

        // One that was opened elsewhere makes plain calls on this thread, and says so.
        assert_eq!(before.fallback_reason(), None);
        works(&before);
        let reason = before.fallback_reason().expect("a reason");
        assert!(reason.contains("plain calls"), "{reason}");

        forbid(libc::SYS_io_setup, None, libc::EPERM);
        // A context that the thread has already serves on; a new thread gets none.
        std::thread::spawn(|| {
            let psync = Psync::new(None).expect("another backend");
            assert_eq!(psync.backend(), BackendKind::Threads);
            works(&psync);
        })
        .join()
        .expect("threads do");
    })
    .join()
    .expect("a refusal is no failure");
}

/// Writes a block in each way, and says which failed.
fn durable_and_plain(psync: &Psync) -> [psync::Result<()>; 2] {
    let directory = tempfile::tempdir().expect("directory");
    let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
    let file = psync.open(&directory.path().join("file"), &options).expect("create");
    let done = [Request::write_durably, Request::write].map(|write| {
        let done = psync.run_all(vec![write(&file, 0, Buffer::from_slice(&[7; BLOCK]), 0)]);
        done.map(|_| ())
    });
    if done.iter().any(Result::is_ok) {
        let read = psync.run_all(vec![Request::read(&file, 0, Buffer::zeroed(BLOCK), 0)]).expect("read");
        assert_eq!(read[0].as_deref(), Some(&[7; BLOCK][..]));
    }
    done
}

/// What says that plain calls do make durable writes durable: they ask for it in the call, or flush.
#[test]
fn a_durable_write_is_a_call_of_its_own_and_a_flush_where_there_is_none() {
    for kind in BackendKind::ALL {
        let with_refusals = move |durable_write: i32, flush: Option<i32>| {
            let writes = move || {
                forbid(libc::SYS_pwritev2, Some(libc::RWF_DSYNC), durable_write);
                if let Some(errno) = flush {
                    forbid(libc::SYS_fdatasync, None, errno);
                }
                durable_and_plain(&Psync::new(Some(kind)).expect("backend")).map(|done| done.is_ok())
            };
            std::thread::spawn(writes).join().expect("no panic")
        };
        assert_eq!(with_refusals(libc::EIO, None), [false, true], "{kind}");
        for unknown in [libc::ENOSYS, libc::EOPNOTSUPP] {
            assert_eq!(with_refusals(unknown, None), [true, true], "{kind}");
            assert_eq!(with_refusals(unknown, Some(libc::EIO)), [false, true], "{kind}");
        }
    }
}
