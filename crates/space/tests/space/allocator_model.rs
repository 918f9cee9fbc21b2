//! The page allocator against a bitmap: allocate, retire, release, discard, checkpoint, reopen and replay, with a disk
//! that gets full.

use std::path::Path;

use proptest::prelude::*;
use psync::sim::SimDisk;
use space::{AllocatorImage, CheckedImage, Class, Error, Extent, FileStore, PAGE, PageId, PagedFile};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Allocated,
    Retired,
}

#[derive(Clone, Debug)]
enum Step {
    /// A batch takes pages, and its record is logged.
    Allocate {
        count: usize,
        pages: u32,
        class: Class,
    },
    /// A batch takes pages and fails before its record is logged.
    Fail {
        count: usize,
        pages: u32,
    },
    /// A batch makes some of the extents in use unreachable; its record is logged.
    Retire {
        every: usize,
    },
    /// Readers leave some of the retired extents.
    Release {
        every: usize,
    },
    Checkpoint,
    /// What is not needed is left out of a checkpoint, and, unless the process ends before that, given back to the
    /// disk.
    Rest {
        gives_back: bool,
    },
    /// The process ends; the next one opens the last image and replays the log.
    Reopen,
    /// The disk gets room for so many pages more than the file has, or no bound.
    Room(Option<u64>),
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop_oneof![Just(Class::Normal), Just(Class::Reclaim)];
    prop_oneof![
        6 => (1_usize..40, 1_u32..9, class).prop_map(|(count, pages, class)| Step::Allocate { count, pages, class }),
        1 => (1_usize..600, 1_u32..20).prop_map(|(count, pages)| Step::Fail { count, pages }),
        4 => (1_usize..5).prop_map(|every| Step::Retire { every }),
        4 => (1_usize..4).prop_map(|every| Step::Release { every }),
        1 => Just(Step::Checkpoint),
        1 => any::<bool>().prop_map(|gives_back| Step::Rest { gives_back }),
        1 => Just(Step::Reopen),
        1 => prop_oneof![Just(None), (0_u64..400).prop_map(Some)].prop_map(Step::Room),
    ]
}

#[derive(Clone)]
enum Logged {
    Allocated(Vec<Extent>),
    Retired(Vec<Extent>),
}

struct World {
    disk: SimDisk,
    store: FileStore,
    file: PagedFile,
    image: AllocatorImage,
    log: Vec<Logged>,
    pages: Vec<State>,
    used: Vec<Extent>,
    retired: Vec<Extent>,
    /// The file may be longer than is known.
    is_longer: bool,
}

impl World {
    fn new() -> Self {
        let disk = SimDisk::new(1);
        let store = FileStore::open(disk.psync(), Path::new("/db"), false).expect("opens");
        let file = PagedFile::create(&store, "data").expect("creates");
        let image = file.image();
        Self {
            disk,
            store,
            file,
            image,
            log: Vec::new(),
            pages: vec![State::Allocated],
            used: Vec::new(),
            retired: Vec::new(),
            is_longer: false,
        }
    }

    fn mark(&mut self, extents: &[Extent], from: State, to: State) {
        for extent in extents {
            for page in extent.page.0..extent.end().0 {
                let page = &mut self.pages[usize::try_from(page).expect("small")];
                assert_eq!(*page, from, "{extent}");
                *page = to;
            }
        }
    }

    /// New pages of a longer file are free.
    fn learn_growth(&mut self) {
        let total = usize::try_from(self.file.stats().total_pages).expect("small");
        assert!(total >= self.pages.len(), "a file never gets shorter");
        self.pages.resize(total, State::Free);
    }

    fn allocate(&mut self, count: usize, pages: u32, class: Class) -> Option<Vec<Extent>> {
        let before = self.file.image();
        match self.file.allocate_many(count, pages, class) {
            Ok(extents) => {
                assert_eq!(extents.len(), count);
                assert!(extents.iter().all(|extent| extent.pages == pages));
                assert!(extents.is_sorted());
                self.learn_growth();
                self.mark(&extents, State::Free, State::Allocated);
                self.write(&extents);
                let stats = self.file.stats();
                if class == Class::Normal {
                    assert!(stats.free_pages >= stats.reserve_pages, "{stats:?}");
                }
                Some(extents)
            }
            Err(error) => {
                assert!(matches!(error, Error::Full { .. }) && error.is_disk_full(), "{error}");
                // Full is true: nothing has changed but that holes may have been filled, and neither has the file.
                let after = self.file.image();
                assert_eq!(after.clone().with_free(&after.holes).free, before.clone().with_free(&before.holes).free);
                let room = self.file.file().len().expect("length") / PAGE as u64;
                assert!(room == before.total_pages || (room > before.total_pages && self.is_longer));
                None
            }
        }
    }

    /// There is room on the disk for what was allocated.
    fn write(&self, extents: &[Extent]) {
        let write = |extent: &Extent| {
            let bytes = psync::Buffer::zeroed(extent.pages as usize * PAGE);
            psync::Request::write(self.file.file(), extent.offset(), bytes, 0)
        };
        self.store.psync().run_all(extents.iter().map(write).collect()).expect("room");
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Allocate { count, pages, class } => {
                if let Some(extents) = self.allocate(count, pages, class) {
                    self.used.extend_from_slice(&extents);
                    self.log.push(Logged::Allocated(extents));
                }
            }
            Step::Fail { count, pages } => {
                if let Some(extents) = self.allocate(count, pages, Class::Normal) {
                    self.file.discard(&extents).expect("allocated");
                    self.mark(&extents, State::Allocated, State::Free);
                }
            }
            Step::Retire { every } => {
                let (gone, kept) = split(&self.used, every);
                self.file.retire(&gone).expect("allocated");
                self.mark(&gone, State::Allocated, State::Retired);
                self.used = kept;
                self.retired.extend_from_slice(&gone);
                self.log.push(Logged::Retired(gone));
            }
            Step::Release { every } => {
                let (gone, kept) = split(&self.retired, every);
                self.file.release(&gone).expect("retired");
                self.mark(&gone, State::Retired, State::Free);
                self.retired = kept;
            }
            Step::Checkpoint => {
                self.image = CheckedImage::new(self.file.image().encode()).expect("whole").decode();
                self.log.clear();
            }
            Step::Rest { gives_back } => {
                self.file.leave_out();
                let total = usize::try_from(self.file.stats().total_pages).expect("small");
                assert!(self.pages.drain(total..).all(|page| page == State::Free));
                self.is_longer = true;
                self.step(&Step::Checkpoint);
                if gives_back {
                    self.file.give_back();
                    self.is_longer = false;
                    let room = self.file.file().len().expect("length") / PAGE as u64;
                    assert_eq!(room, self.file.stats().total_pages);
                    assert!(!self.file.has_surplus());
                }
            }
            Step::Reopen => self.reopen(),
            Step::Room(pages) => {
                let length = self.file.file().len().expect("length");
                let bytes = pages.map(|pages| length + pages * PAGE as u64);
                self.disk.set_capacity(bytes);
            }
        }
    }

    fn reopen(&mut self) {
        self.file = PagedFile::open(&self.store, "data", (&self.image).into()).expect("opens");
        self.is_longer = true;
        for logged in self.log.clone() {
            match logged {
                Logged::Allocated(extents) => self.file.replay_allocate(&extents).expect("free"),
                Logged::Retired(extents) => self.file.replay_retire(&extents).expect("allocated"),
            }
        }
        self.file.release_all_retired();
        let retired = std::mem::take(&mut self.retired);
        self.mark(&retired, State::Retired, State::Free);
        // Growth that no record tells of is forgotten; all that it can have had is free pages.
        let total = usize::try_from(self.file.stats().total_pages).expect("small");
        assert!(self.pages[total.min(self.pages.len())..].iter().all(|page| *page == State::Free));
        self.pages.resize(total, State::Free);
    }

    fn check(&self) {
        let count = |state| self.pages.iter().filter(|page| **page == state).count() as u64;
        let stats = self.file.stats();
        assert_eq!(stats.total_pages, self.pages.len() as u64);
        let free = stats.free_pages + stats.hole_pages;
        assert_eq!((free, stats.retired_pages), (count(State::Free), count(State::Retired)));
        assert!(self.file.file().len().expect("length") >= stats.total_pages * PAGE as u64);

        let image = self.file.image();
        let image = image.clone().with_free(&image.holes);
        assert!(image.free.windows(2).all(|pair| pair[0].end() < pair[1].page), "{image:?}");
        let free: Vec<u64> = image.free.iter().flat_map(|extent| extent.page.0..extent.end().0).collect();
        let expected = (0_u64..).zip(&self.pages).filter(|(_, state)| **state != State::Allocated);
        assert!(free.iter().copied().eq(expected.map(|(page, _)| page)));

        assert!(self.file.audit(&self.used).is_clean());
    }
}

/// Every so-many-th extent, and the others.
fn split(extents: &[Extent], every: usize) -> (Vec<Extent>, Vec<Extent>) {
    let numbered = extents.iter().copied().enumerate();
    let (gone, kept): (Vec<_>, Vec<_>) = numbered.partition(|(index, _)| index % every == 0);
    let plain = |list: Vec<(usize, Extent)>| list.into_iter().map(|(_, extent)| extent).collect();
    (plain(gone), plain(kept))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn agrees_with_a_bitmap(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.reopen();
        world.check();
    }
}

#[test]
fn the_model_notices_a_lost_page() {
    let mut world = World::new();
    world.step(&Step::Allocate { count: 3, pages: 2, class: Class::Normal });
    let lost = world.used.remove(1);
    let audit = world.file.audit(&world.used);
    assert_eq!(audit.leaked, [lost]);
    assert!(!audit.is_clean());
    // And pages in use that are free, retired, in use twice or nowhere.
    let other = world.used[0];
    world.file.discard(&[lost]).expect("allocated");
    world.file.retire(&[other]).expect("allocated");
    let nowhere = Extent::new(PageId(u64::MAX - 5), 9);
    let audit = world.file.audit(&[lost, other, other, nowhere, Extent::new(PageId(0), 1)]);
    assert_eq!(audit.used_while_free, [lost]);
    assert_eq!(audit.used_while_retired, [other]);
    assert_eq!(audit.used_twice, [other]);
    assert_eq!(audit.leaked, [world.used[1]]);
    assert_eq!(audit.outside, [Extent::new(PageId(0), 1), Extent::new(PageId(u64::MAX - 5), 5)]);
}
