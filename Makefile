# Everything a newcomer needs: `make demo` runs the main job, `make test` passes every test, `make static` builds
# one file that runs on any Linux of its kind.
CARGO ?= cargo
HIGHORDER = $(CARGO) run --release --locked --quiet --package highorder --
RECORDING = tests/data/recordings/612-rec-churn

.PHONY: demo test static lint guest-setup python-setup

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

test: lint guest-setup python-setup
	$(CARGO) test --workspace --locked

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# What the tests on real kernels boot; they skip, and say so, where it cannot be had.
guest-setup:
	sh tests/guest/setup.sh

# What the examples of docs/record.md import; their test skips, and says so, where it cannot be had.
python-setup:
	sh tests/python/setup.sh
