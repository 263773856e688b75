# Everything a newcomer needs: `make demo` runs the main job, `make test` passes every test, `make static` builds
# one file that runs on any Linux of its kind.
CARGO ?= cargo
HIGHORDER = $(CARGO) run --release --locked --quiet --package highorder --
RECORDING = tests/data/recordings/612-rec-churn

.PHONY: demo test static lint fuzz mutate swarm miri sanitize guest-setup python-setup python-lint

# A recording of a real kernel, replayed decision by decision, then freely; the memory it began with; and
# one workload under two variants of a kernel, as a page to look at.
demo:
	$(CARGO) build --release --locked --package highorder
	mkdir -p out/demo
	$(HIGHORDER) replay $(RECORDING) --lockstep
	$(HIGHORDER) replay $(RECORDING) --png-dir out/demo --force
	$(HIGHORDER) map $(RECORDING)/state0 --png out/demo/state0.png --force
	$(HIGHORDER) run overcommit --scale 1/16 --store out/demo/store
	$(HIGHORDER) run overcommit --scale 1/16 --store out/demo/store --format html --out out/demo/overcommit.html --force

# The program without a shared library, to be copied to other machines.
static:
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release --locked --package highorder \
	    --target $(shell uname -m)-unknown-linux-gnu
	mkdir -p out
	cp target/$(shell uname -m)-unknown-linux-gnu/release/highorder out/highorder

# Lints keep the processors busy, and what is set up keeps the network busy: they go side by side.
test:
	$(MAKE) --jobs=3 lint guest-setup python-lint
	if command -v python3 >/dev/null; then tests/run.py $(CARGO); else $(CARGO) test --workspace --locked; fi

# Every reader over mutated good inputs, on any compiler; `make test` has two seconds of each.
SECONDS = 60
mutate:
	FUZZ_SECONDS=$(SECONDS) $(CARGO) test --release --locked --package highorder-fuzz --test mutated -- --nocapture

# The same readers under libFuzzer, one after another: takes cargo-fuzz and a nightly compiler. TARGETS are all of
# crates/fuzz unless it says which.
TARGETS = $(shell sed -n 's/.*Target { name: "\([a-z-]*\)".*/\1/p; s/^ *name: "\([a-z-]*\)",$$/\1/p' crates/fuzz/src/targets.rs)
fuzz:
	FUZZ_CORPUS=$(CURDIR)/fuzz/corpus $(CARGO) test --release --locked --package highorder-fuzz --test mutated -- --ignored corpus
	for target in $(TARGETS); do \
	    HIGHORDER_FUZZ_TARGET=$$target $(CARGO) +nightly fuzz run reader fuzz/corpus/$$target -- \
	        -max_total_time=$(SECONDS) -timeout=20 -rss_limit_mb=3072 || exit 1; \
	done

# Experiments drawn from seeds, with every invariant checked; `make test` has 120 of them.
SEEDS = 1000
SEED = 1
swarm:
	SEEDS=$(SEEDS) SEED=$(SEED) $(CARGO) test --release --locked --package highorder-swarm --test swarm -- --nocapture

# What the compiler cannot see of unsafe code: takes a nightly compiler with miri and rust-src.
miri:
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=4 $(CARGO) +nightly miri test --package highorder-words --package highorder-mm --lib

# Memory that processes of a run share, under the address and the thread sanitizer: takes a nightly compiler with
# rust-src, since the standard library is built with them.
sanitize:
	for sanitizer in address thread; do \
	    RUSTFLAGS="-Zsanitizer=$$sanitizer" $(CARGO) +nightly test -Zbuild-std --locked --package highorder-real --lib \
	        --target $(shell uname -m)-unknown-linux-gnu --target-dir target/$$sanitizer shared || exit 1; \
	done

# There are no examples to document: with `--examples`, dependencies are built with the features that tests want of them,
# so that clippy's are used again.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --lib --bins --examples --locked

# What the tests on real kernels boot; they skip, and say so, where it cannot be had.
guest-setup:
	sh tests/guest/setup.sh

# What the examples of docs/record.md import; their test skips, and says so, where it cannot be had.
python-setup:
	sh tests/python/setup.sh

# Where Python's lints could be had.
RUFF = $(or $(CARGO_TARGET_DIR),target)/python/bin/ruff
python-lint: python-setup
	if [ -x $(RUFF) ]; then $(RUFF) check --quiet tests && $(RUFF) format --quiet --check tests; fi
