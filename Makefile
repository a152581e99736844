# What a person needs: `make demo` and `make test`. Both install missing system packages and say so.

CARGO ?= cargo
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: build demo test lint unit bench soak fuzz install clean

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
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items

unit:
	scripts/deps.sh test
	$(CARGO) test --workspace

## Side-by-side figures; quiet machine, as root.
bench:
	scripts/deps.sh bench
	$(CARGO) build --release --examples -p segue-datapath
	target/release/examples/tunnel_bench
	target/release/examples/user_bench

install:
	scripts/deps.sh build
	$(CARGO) build --release -p segue
	install -Dm755 target/release/segue $(DESTDIR)/usr/local/bin/segue
