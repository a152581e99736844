# What a person needs: `make demo` and `make test`. Both install missing system packages and say so.

CARGO ?= cargo
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: build demo test lint unit bench soak fuzz install

build:
	scripts/deps.sh build
	$(CARGO) build -p segue

## The main job on this machine, in under a minute: a silent outage, and no session dies.
demo: build
	target/debug/segue demo

test: lint unit

lint:
	scripts/deps.sh test
	$(CARGO) fmt --check
	scripts/check-style.sh
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --workspace --no-deps --document-private-items

unit:
	scripts/deps.sh test
	@[ $$(id -u) -eq 0 ] || echo 'NOTE: without root the tests of namespaces and eBPF say "skipped" and test nothing.'
	$(CARGO) test --workspace --no-fail-fast
	scripts/planted-faults

## Side-by-side figures; quiet machine, as root.
bench:
	scripts/deps.sh bench
	$(CARGO) build --release --examples -p segue-datapath
	target/release/examples/tunnel_bench
	target/release/examples/user_bench
	$(CARGO) build --release -p segue
	target/release/segue bench probes
	scripts/compare-ns2
	$(CARGO) test -p segue-bench -- --ignored --nocapture raw_frames_and_sending
	$(CARGO) test -p segue --test bars -- --ignored --nocapture errors_of_round_trip_times

## Every parser against a fuzzer, FUZZ_SECONDS each; what must hold is in docs/fuzzing.md.
FUZZ_SECONDS ?= 60
fuzz:
	command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz --locked
	cd fuzz && export RUSTC_BOOTSTRAP=1 && $(CARGO) fuzz build -s none && \
	for target in $$($(CARGO) fuzz list); do \
		$(CARGO) fuzz run -s none $$target -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 || exit 1; \
	done

## The long ones: every test three times over, ten minutes of each fuzzer, FAULT_SEEDS schedules of faults.
FAULT_FIRST ?= 300
FAULT_SEEDS ?= 5000
soak:
	$(CARGO) test -p segue --test reproduce -- --ignored
	$(CARGO) test -p segue-datapath --lib -- --ignored --nocapture averages
	$(CARGO) test -p segue-datapath --test ebpf -- --ignored --nocapture ten_thousand_paths
	$(CARGO) test -p segue --test many_paths -- --ignored --nocapture
	$(CARGO) test -p segue-keepalive --test false_positives -- --ignored --nocapture
	$(CARGO) test -p segue --test bars -- --ignored --nocapture busy_for_ten_minutes
	$(CARGO) test -p segue --test bars -- --ignored --nocapture of_thousands_of_round_trip_times
	$(CARGO) test -p segue --test bars -- --ignored --nocapture without_a_configuration
	$(CARGO) test -p segue --test daemons -- --ignored --nocapture soak_floods
	FAULT_FIRST=$(FAULT_FIRST) FAULT_SEEDS=$(FAULT_SEEDS) \
		$(CARGO) test -p segue-sim --test faults -- --ignored --nocapture soak
	$(CARGO) build --release -p segue
	target/release/segue sim run examples/million.toml
	for run in 1 2 3; do $(MAKE) unit || exit 1; done
	$(MAKE) fuzz FUZZ_SECONDS=600

install:
	scripts/deps.sh build
	$(CARGO) build --release -p segue
	install -Dm755 target/release/segue $(DESTDIR)/usr/local/bin/segue
