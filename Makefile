# joulefs: `make demo` runs the main job, `make test` passes everything.
export PATH := $(CURDIR)/target/tools/bin:$(HOME)/.cargo/bin:$(PATH)

.PHONY: demo test deep kernel kernel-smp soak stress bench install package publishable wheel notebooks book tools suites fmt clippy clean

demo: tools
	cargo build --release -p joulefs-cli -p joulefs-lab
	scripts/demo

# Debug-built logic with optimised code: see [profile.dev] in Cargo.toml.
#
# Says at the end which tests did not run and which kernel judged. JOULEFS_REQUIRE=1: a test that could run if something were
# installed fails. JOULEFS_JUDGE=uml|built|kvm|tcg: asks this kernel (judges/src/oracle/linux.rs).
test: suites
	scripts/with-testlog cargo test --workspace --no-fail-fast

# The long variants of the same judges: more seeds, more operations, more flips; every experiment in full, against the numbers
# it keeps (some 40 minutes of two cores); and a second kernel, Linux 6.12 with its own assertions, wherever `make test` asks
# Debian's 6.1.
deep: suites
	@scripts/install-tools kernel
	JOULEFS_DEEP=1 JOULEFS_JUDGE=built scripts/with-testlog cargo test --workspace --release --no-fail-fast

# Linux 7.2 with kernel/patches (GPL-2.0), built as a process, and what the patches promise: kernel/README.md.
kernel:
	kernel/build-and-test

# The same patches on x86-64 with 2 and 4 processors in QEMU, under lockdep and KASAN. After `make kernel`, whose source it takes.
kernel-smp:
	kernel/on-smp

# Fresh schedules, faults and power cuts until interrupted; each failure is printed with the command that repeats it.
soak:
	cargo build --release -p joulefs-schedules
	target/release/schedules soak

# Linux is built on a mount by `make -j4` while stress-ng works beside it and cleaning hurries; then both checkers.
stress: tools
	cargo build --release -p joulefs-cli
	scripts/stress

# Mount against mount on one medium; writes docs/benchmarks.md.
bench: tools
	cargo build --release -p joulefs-cli
	cargo run --release -p joulefs-conformance --bin bench

# The programs, man pages, completions for shells. zsh looks for those of packages elsewhere than for what is put below /usr/local;
# fish looks there only if XDG_DATA_DIRS names /usr/local/share, as desktops have it.
PREFIX ?= /usr/local
ZSH = $(DESTDIR)$(PREFIX)/share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
install:
	cargo build --release -p joulefs-cli -p joulefs-lab
	rm -rf target/generated && target/release/joulefs generate target/generated
	target/release/joulefs-lab generate target/generated
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin target/release/joulefs target/release/joulefs-lab
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/doc/joulefs
	gzip -9nf target/generated/man1/*.1
	install -m 644 target/generated/man1/*.1.gz $(DESTDIR)$(PREFIX)/share/man/man1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/bash-completion/completions target/generated/completions/bash/*
	install -D -m 644 -t $(ZSH) target/generated/completions/zsh/*
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d target/generated/completions/fish/*
	install -m 644 README.md LICENSE-MIT LICENSE-APACHE $(DESTDIR)$(PREFIX)/share/doc/joulefs

# A Debian package and a static binary, in target/package. scripts/try-package installs, uses and removes them in a fresh Debian.
package:
	scripts/package

# Whether the crates that have no `publish = false` could be published. scripts/publishable --verify compiles the packages, too.
publishable:
	scripts/publishable

# The module for Python with the binary in it, in target/wheel: pip install target/wheel/joulefs-*.whl
wheel:
	@scripts/install-tools python
	cd python && ../target/tools/python/bin/maturin build --release --out ../target/wheel

# Runs the notebooks of docs/notebooks anew, and keeps what came out in them.
notebooks:
	@scripts/install-tools python
	cargo build --release -p joulefs-cli -p joulefs-lab
	JOULEFS=$(CURDIR)/target/release/joulefs PYTHONPATH=$(CURDIR)/python/src target/tools/python/bin/python scripts/run-notebooks

# The pages of docs/ as a book in target/book; fails if a link in it leads nowhere.
book:
	@scripts/install-tools mdbook
	scripts/book

tools:
	@scripts/install-tools

suites:
	@scripts/install-tools suites

fmt:
	cargo fmt --all

clippy:
	cargo clippy --workspace --all-targets

clean:
	cargo clean
