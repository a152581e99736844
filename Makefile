# Targets for users: `make demo` and `make test`. Both install missing system packages and say so.

CARGO ?= cargo
# Where cargo builds.
TARGET := $(or $(CARGO_TARGET_DIR),target)
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: build demo test lint unit planted vm bench properties mutants soak fuzz install uninstall deb try-deb static try-static

build:
	scripts/deps.sh build
	$(CARGO) build -p segue

## The main job on this machine, in under a minute: a silent outage, and no session dies.
demo:
	scripts/deps.sh build
	CARGO_INCREMENTAL=0 $(CARGO) build -p segue
	$(TARGET)/debug/segue demo

test: lint unit planted

lint: export CARGO_INCREMENTAL := 0
lint:
	scripts/deps.sh test
	$(CARGO) fmt --check
	scripts/check-style.sh
	scripts/circles
	scripts/heartbeat scripts/pure
	scripts/heartbeat $(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
		scripts/heartbeat $(CARGO) doc --workspace --no-deps --document-private-items

unit:
	scripts/deps.sh test
	@[ $$(id -u) -eq 0 ] || echo 'NOTE: without root the tests of namespaces and eBPF say "skipped" and test nothing.'
	scripts/unit
	scripts/heartbeat scripts/instructions

## Whether the fault harness finds ten of the planted mistakes, others with each commit; `make soak` plants all.
planted:
	scripts/heartbeat scripts/planted-faults --sample 10

## What needs a distribution's kernel: tests in a virtual machine without network (segue lab vm).
vm:
	scripts/deps.sh vm
	$(CARGO) build -p segue-datapath --example relay_end
	$(CARGO) test -p segue --test vm -- --ignored --show-output --test-threads 1

## Side-by-side figures; quiet machine, as root.
bench:
	scripts/deps.sh bench
	$(CARGO) build --release --examples -p segue-datapath
	$(TARGET)/release/examples/tunnel_bench
	$(TARGET)/release/examples/user_bench
	$(TARGET)/release/examples/relay_bench
	$(CARGO) build --release -p segue-daemon --example link_bench
	$(TARGET)/release/examples/link_bench
	$(CARGO) build --release -p segue
	$(TARGET)/release/segue bench probes
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

## Properties with PROPERTY_CASES cases each, from a seed of this second unless PROPERTY_SEED is set. A failure is
## kept in a file to commit (proptest-regressions), and its seed is printed first.
PROPERTY_CASES ?= 4000
properties:
	@seed=$${PROPERTY_SEED:-$$(date +%s)} && set -x && \
	export PROPTEST_RNG_SEED=$$seed PROPTEST_CASES=$(PROPERTY_CASES) && \
	$(CARGO) test -p segue-wire -p segue-keepalive -p segue-steering -p segue-netem && \
	$(CARGO) test -p segue-sim -p segue-traffic --lib && \
	$(CARGO) test -p segue-traffic --test tcp && \
	$(CARGO) test -p segue-datapath --lib user && \
	$(CARGO) test -p segue-text

## How many of MUTANTS (200) mistakes in the pure crates, drawn by MUTANTS_SEED, their own tests find. An hour or two.
mutants:
	scripts/mutants

## The long ones: every test three times over, ten minutes of each fuzzer, FAULT_SEEDS schedules of faults.
FAULT_FIRST ?= 300
FAULT_SEEDS ?= 5000
soak:
	$(CARGO) test -p segue --test reproduce -- --ignored
	$(CARGO) test -p segue-datapath --lib -- --ignored --nocapture averages
	$(CARGO) test -p segue-datapath --test ebpf -- --ignored --nocapture ten_thousand_paths
	$(CARGO) test -p segue-daemon --test many_paths -- --ignored --nocapture
	$(CARGO) test -p segue-keepalive --test false_positives -- --ignored --nocapture
	$(CARGO) test -p segue --test bars -- --ignored --nocapture busy_for_ten_minutes
	$(CARGO) test -p segue --test bars -- --ignored --nocapture of_thousands_of_round_trip_times
	$(CARGO) test -p segue --test bars -- --ignored --nocapture without_a_configuration unplugged fifty_hosts
	$(CARGO) test -p segue --test bars -- --ignored --nocapture soak_
	$(CARGO) test -p segue-sim --test tunnel -- --ignored --nocapture soak_
	$(CARGO) test -p segue --test daemons -- --ignored --nocapture soak_
	FAULT_FIRST=$(FAULT_FIRST) FAULT_SEEDS=$(FAULT_SEEDS) \
		$(CARGO) test -p segue-faults --test faults -- --ignored --nocapture soak
	$(CARGO) build --release -p segue
	$(TARGET)/release/segue sim run examples/million.toml
	scripts/planted-faults
	$(MAKE) try-deb try-static
	$(MAKE) properties
	for run in 1 2 3; do $(MAKE) unit || exit 1; done
	$(MAKE) fuzz FUZZ_SECONDS=600

## Installs the program, systemd units, man pages, completions, documentation and initial configurations. DESTDIR and
## PREFIX as usual; BINARY names an already built program. Existing files in /etc/segue stay unchanged.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
RELEASE := $(TARGET)/release/segue
BINARY ?= $(RELEASE)
bindir = $(DESTDIR)$(PREFIX)/bin
unitdir = $(DESTDIR)$(PREFIX)/lib/systemd/system
mandir = $(DESTDIR)$(PREFIX)/share/man/man1
bashdir = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zshdir = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fishdir = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
docdir = $(DESTDIR)$(PREFIX)/share/doc/segue
confdir = $(DESTDIR)$(SYSCONFDIR)/segue

$(RELEASE):
	scripts/deps.sh build
	$(CARGO) build --release -p segue

.PHONY: $(RELEASE)
install: $(filter $(RELEASE),$(BINARY))
	install -Dm755 $(BINARY) $(bindir)/segue
	install -d $(docdir) $(mandir) $(unitdir)
	install -d -m750 $(confdir)
	made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && $(BINARY) generate "$$made" && \
	sed -i 's|/usr/share/doc|$(PREFIX)/share/doc|' "$$made"/man1/* && install -m644 "$$made"/man1/* $(mandir) && \
	install -Dm644 "$$made"/bash/segue.bash $(bashdir)/segue && \
	install -Dm644 "$$made"/zsh/_segue $(zshdir)/_segue && \
	install -Dm644 "$$made"/fish/segue.fish $(fishdir)/segue.fish && \
	sed -i 's|@PREFIX@|$(PREFIX)|; s|@SYSCONFDIR@|$(SYSCONFDIR)|' "$$made"/systemd/* && \
	install -m644 "$$made"/systemd/* $(unitdir) && \
	for unit in "$$made"/systemd/*; do \
		role=$$(basename $$unit .service) && role=$${role#segue-} && { [ -e $(confdir)/$$role.toml ] || \
		{ sed -f packaging/configuration.sed examples/$$role.toml >$(confdir)/$$role.toml && \
		chmod 640 $(confdir)/$$role.toml; }; } || exit 1; \
	done
	cp -R README.md LICENSE docs examples monitoring $(docdir)
	rm $(docdir)/docs/progress.md
	find $(docdir) -name '*.md' -exec sed -i -f packaging/documentation.sed {} +
	chmod -R u=rwX,go=rX $(docdir)
	[ -n "$(DESTDIR)" ] || [ ! -d /run/systemd/system ] || systemctl daemon-reload

## Removes what `make install` put there, but neither /etc/segue nor the state in /var/lib/segue.
uninstall:
	rm -rf $(docdir)
	grep -ls '^Documentation=man:segue-' $(unitdir)/segue-*.service | xargs -r rm
	rm -f $(bindir)/segue \
		$(mandir)/segue.1 $(mandir)/segue-*.1 $(bashdir)/segue $(zshdir)/_segue $(fishdir)/segue.fish
	[ -n "$(DESTDIR)" ] || [ ! -d /run/systemd/system ] || systemctl daemon-reload

## A Debian package of what `make install` installs, in target/debian. Removing it keeps /etc/segue and the state;
## purging it removes them.
DEB_VERSION ?=
deb:
	scripts/deps.sh deb
	command -v cargo-deb >/dev/null || $(CARGO) install cargo-deb --locked
	rm -rf target/deb target/debian
	$(MAKE) install DESTDIR=target/deb PREFIX=/usr SYSCONFDIR=/etc BINARY=$(BINARY)
	strip target/deb/usr/bin/segue
	$(CARGO) deb -p segue --no-build --no-strip --output target/debian/ $(DEB_VERSION:%=--deb-version %)

## Installs the package on fresh machines, and follows the quick starts there. As root; some minutes.
try-deb: deb
	scripts/deps.sh try-deb
	scripts/try-deb target/debian/segue_*.deb

## One file without shared libraries, in target/segue-static: for a machine whose C library is older, or for which there is no package.
STATIC_PROFILE ?= release
static:
	scripts/deps.sh build
	LIBBPF_SYS_LIBRARY_PATH=$$(dirname $$(cc -print-file-name=libelf.a)) CARGO_TARGET_DIR=$(TARGET) \
		$(CARGO) rustc --profile $(STATIC_PROFILE) -p segue --bin segue --features static -- -C target-feature=+crt-static
	mkdir -p target && strip -o target/segue-static $(TARGET)/$(patsubst dev,debug,$(STATIC_PROFILE))/segue
	ls -lh target/segue-static

## The file in a directory that has nothing else, and the demonstration with it. As root.
try-static: static
	empty=$$(mktemp -d) && trap 'rm -rf "$$empty"' EXIT && cp target/segue-static examples/host.toml "$$empty" && \
	chroot "$$empty" /segue-static --version && chroot "$$empty" /segue-static check /host.toml && \
	target/segue-static demo --out "$$empty/demo"
