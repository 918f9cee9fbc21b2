# Everything here works the same on a laptop and in CI. `make run` and `make test` need nothing set up first.

CARGO ?= cargo
SEEDS ?= 1000
CASES ?= 10000
ROUNDS ?= 50
DIR ?= target/bench
EFFORT ?= quick
TIME ?= 600
ROWS ?= all
RECORDS ?= 10000000
STRUCTURE ?= append
PEERS ?=
# Some tests wait for the disk: one more than there are processors keeps these busy.
export RUST_TEST_THREADS ?= $(shell echo $$(($$(nproc) + 1)))
ROCKSDB_ARCHIVE ?= $(wildcard ../shared/lib/librocksdb.a.xz)

.PHONY: run test memory models features check columns format bench crash property histories full-disk fuzz kill big overwrite reproduce-pio reproduce-flush reproduce-pfetch peers peers-test clean toolchain

## run: load a real file tree, check it, measure it, kill a writer, recover
run: toolchain
	$(CARGO) build --release --locked -p braid-cli
	./target/release/braid tour

## test: every test, the crash simulation, histories, changed bytes and the kill test at their short length, the models of threads, and all features
test: toolchain
	$(CARGO) test --workspace --locked
	$(MAKE) models
	$(MAKE) features

## memory: most memory of a process in every workload with 1, 8, 32 and 64 threads, in a control group of memory_bytes and 32 MiB (as root; half an hour or more, and
## 10 GB; ROWS: some of them, as in ROWS="btree readrandom 64")
memory: toolchain
	mkdir -p $(DIR)/memory
	BRAID_MEMORY="$(ROWS)" BRAID_MEMORY_DIR=$(abspath $(DIR)/memory) $(CARGO) test --release --locked -p braid-bench --test memory -- --nocapture

## models: threads of the log and of publishing, run by a model checker in many orders (about a minute)
# Built, and run little or not at all.
models: UNUSED = braid braid-append braid-btree braid-cache braid-doclog braid-index braid-lsm braid-mapped braid-psync braid-space
models: toolchain
	$(CARGO) test --locked $(foreach crate,$(UNUSED),--config profile.dev.package.$(crate).opt-level=0) \
		-p braid-wal -p braid --features braid-wal/shuttle,braid/shuttle --lib models::

## features: every combination of the features of `braid` builds; with and without each two of them it opens, writes and reads (about three minutes)
# Built, and run little.
features: PACKAGES = braid braid-append braid-btree braid-doclog braid-index braid-lsm braid-psync braid-space braid-wal
# Of each two features these have both, one, the other, and none.
features: PAIRS = "" lz4,serde,tracing,zstd, lz4,serde, tracing,zstd, lz4,tracing, serde,zstd,
features: toolchain
	@set -e; for lz4 in '' lz4,; do for serde in '' serde,; do for tracing in '' tracing,; do for zstd in '' zstd,; do \
		all="$$lz4$$serde$$tracing$$zstd"; command=check; \
		for pairs in $(PAIRS); do if [ "$$pairs" = "$$all" ]; then command='test --quiet'; fi; done; \
		echo "features: $$all $$command"; \
		$(CARGO) $$command --locked $(foreach crate,$(PACKAGES),--config profile.dev.package.$(crate).opt-level=0) \
			-p braid --no-default-features --features "$$all" --test features; \
	done; done; done; done

## check: format, columns, locked versions, lints with warnings denied, documentation
check: toolchain columns
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) metadata --manifest-path fuzz/Cargo.toml --locked --format-version 1 >/dev/null
	$(CARGO) fmt --manifest-path peers/Cargo.toml --check
	$(CARGO) metadata --manifest-path peers/Cargo.toml --locked --format-version 1 >/dev/null
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --all-targets --locked -p braid-wal -p braid --features braid-wal/shuttle,braid/shuttle -- -D warnings
	$(CARGO) clippy --locked -p braid --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

## columns: no comment, and no line of the pages about the inside, is over 120 columns; of docs/format.md no line but its tables
columns:
	@! { git ls-files '*.rs' | LC_ALL=C.UTF-8 xargs grep -HnP '^(?=.{121}) *//'; \
		git ls-files ARCHITECTURE.md 'docs/internals/*.md' | LC_ALL=C.UTF-8 xargs grep -HnP '^.{121}'; \
		LC_ALL=C.UTF-8 grep -HnP '^(?!\|).{121}' docs/format.md; } | grep .

## format: lay the sources out
format:
	$(CARGO) fmt --all

## bench: the standard workloads beside the device's limits (DIR: where the database goes)
bench: toolchain
	$(CARGO) build --release --locked -p braid-cli
	mkdir -p $(DIR)
	./target/release/braid bench fillrandom,overwrite,readrandom,multireadrandom,readseq,seekrandom,commit --db $(DIR)/db

## crash: simulated crashes of the log, of its slots, and of the database (SEEDS: how many of each)
crash: toolchain
	BRAID_SEEDS=0..$(SEEDS) $(CARGO) test --locked -p braid-wal --lib --test crash -- every_crash --nocapture
	$(CARGO) test --locked -p braid --features braid/verify --lib assertions::
	BRAID_CRASH_SEEDS=$(SEEDS) $(CARGO) test --locked -p braid --features braid/verify --test crash -- --nocapture
	BRAID_IN_ORDER_SEEDS=$(SEEDS) $(CARGO) test --locked -p braid --test in_order -- --nocapture

## property: random operations, power cuts and kills against a map (CASES: how many)
property: toolchain
	BRAID_PROPERTY_SEEDS=$(CASES) $(CARGO) test --locked -p braid --features braid/verify --test property -- --nocapture

## histories: concurrent transactions, searched for isolation anomalies (SEEDS: how many)
histories: toolchain
	BRAID_HISTORY_SEEDS=$(SEEDS) $(CARGO) test --locked -p braid --test histories -- --nocapture

## full-disk: disks of all sizes, filled to the last byte with values of all lengths (SEEDS: how many random ones)
full-disk: toolchain
	BRAID_DISK_WHOLE=1 BRAID_DISK_SEEDS=$(SEEDS) BRAID_SLICE_SEEDS=$(SEEDS) $(CARGO) test --locked -p braid --test full_disk -- --nocapture

## fuzz: everything that is read from a disk, under libFuzzer (TIME: seconds for all targets together)
fuzz: toolchain
	CARGO=$(CARGO) SECONDS_ALL=$(TIME) fuzz/run

## kill: kill -9 of a process that commits (ROUNDS: how often)
kill: toolchain
	BRAID_KILL_ROUNDS=$(ROUNDS) $(CARGO) test --locked -p braid-cli --test cli kill9 -- --nocapture

## big: 20 million records in random order into a tree with a 64 MiB cache, checked (takes minutes and 10 GB)
big: toolchain
	$(CARGO) build --release --locked -p braid-cli
	mkdir -p $(DIR)
	./target/release/braid bench fillrandom --num 20000000 --key-size 16 --value-size 100 --cache 64MiB --durability os --db $(DIR)/big
	./target/release/braid verify $(DIR)/big

## overwrite: RECORDS records of 100 B and 4 KiB overwritten three times at random, within 2.2 times what lives (half an hour and 45 GB for 10 million)
overwrite: toolchain
	mkdir -p $(DIR)
	$(CARGO) run --release --locked -p braid-bench --example overwrite -- $(DIR) $(RECORDS) $(STRUCTURE)

## reproduce-pio: the PIO paper's figures on this machine, into DIR/pio (EFFORT: quick, or full for 40 minutes and 36 GB)
reproduce-pio: toolchain
	$(CARGO) build --release --locked -p braid-cli
	./target/release/braid reproduce pio --$(EFFORT) --out $(DIR)/pio

## reproduce-flush: the flushing paper's figures 5a, 5b and 6, and table 1, into DIR/flush (EFFORT: quick, or full for an hour and 2 GB)
reproduce-flush: toolchain
	$(CARGO) build --release --locked -p braid-cli
	./target/release/braid reproduce flush --$(EFFORT) --out $(DIR)/flush

## reproduce-pfetch: the figures of the paper on parallel fetch, into DIR/pfetch (EFFORT: quick, or full for an hour and 15 GB)
reproduce-pfetch: toolchain
	$(CARGO) build --release --locked -p braid-cli
	./target/release/braid reproduce pfetch --$(EFFORT) --out $(DIR)/pfetch

## peers: Braid beside RocksDB, LMDB, redb and fjall on the same work, into docs/results/peers (an hour and 10 GB, Rust 1.90; EFFORT=quick: five
## minutes; PEERS: more options, as in PEERS="--rows cold-get,scan --stores btree,rocksdb"; as root, because what reads gets a limit of memory)
peers: EFFORT = full
peers: toolchain
	CARGO=$(CARGO) ROCKSDB_ARCHIVE=$(ROCKSDB_ARCHIVE) peers/run run --$(EFFORT) --out docs/results/peers --data $(DIR)/peers $(PEERS)

## peers-test: what measures the peers, on a few records of each
peers-test: toolchain
	CARGO=$(CARGO) ROCKSDB_ARCHIVE=$(ROCKSDB_ARCHIVE) peers/run test

clean:
	$(CARGO) clean

# Cargo brings everything but itself.
toolchain:
	@command -v $(CARGO) >/dev/null || { echo "Braid needs Rust 1.89 or newer: see https://rustup.rs" >&2; exit 1; }
