//! Segments that are used again: what they held before is neither believed nor read.

use psync::sim::SimDisk;
use psync::{BLOCK, Buffer, OpenOptions, Request};
use wal::Options;

use crate::common::{SEGMENT_BYTES, append, commit, open, options, store};

/// The file of the segment with that number.
fn segment(disk: &SimDisk, number: u64) -> Vec<u8> {
    let psync = disk.psync();
    let contents =
        disk.files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "log")).map(|path| {
            let file = psync.open(&path, &OpenOptions::default()).expect("opens");
            let length = usize::try_from(file.len().expect("a length")).expect("short");
            let read = Request::read(&file, 0, Buffer::zeroed(length), 0);
            psync.run_all(vec![read]).expect("read")[0].as_deref().expect("its bytes").to_vec()
        });
    let mut live = contents.filter(|bytes| bytes[32..40] == number.to_le_bytes());
    live.next().expect("it has its number in its header")
}

/// Else the kernel would read what a block held before a part of it is written, and a commit would wait for that.
#[test]
fn a_block_is_written_whole_when_it_is_written_first() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    while wal.end().0 < 6 * SEGMENT_BYTES {
        append(&wal, 1, &[0xA5; 3000]);
    }
    commit(&wal, 2, b"the checkpoint is behind it");
    let start = wal.durable();
    wal.trim(start).expect("it trims");

    let mut recycled = 0;
    for number in 0..3 * SEGMENT_BYTES / 500 {
        // Some groups are of many records, and some are longer than a block.
        for _ in 0..number % 4 {
            append(&wal, 1, &[0x5A; 100]);
        }
        let length = if number % 7 == 0 { 6000 } else { 50 };
        commit(&wal, 1, &vec![0x5A; length]);
        let end = usize::try_from(wal.end().0 % SEGMENT_BYTES).expect("short");
        let bytes = segment(&disk, wal.end().0 / SEGMENT_BYTES);
        let (rest, behind) = bytes[end..].split_at(end.next_multiple_of(BLOCK) - end);
        assert!(rest.iter().all(|byte| *byte == 0), "behind {end}");
        recycled += u32::from(behind.contains(&0xA5));
    }
    assert!(recycled > 100, "the log was in segments that had been used before, {recycled} times");
    drop(wal);
    open(&store(&disk), &Options { start, ..options(2) }).expect("what lies behind its end is no harm");
}
