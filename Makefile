# The front door. Meson and Ninja do the work; this file only installs what is missing and names the doors.
#
#   build/          the ordinary build         build/stage   what everything else uses: bin lib include share
#   build-asan/     the same with ASan+UBSan   build-tsan/   with TSan         build-fuzz/  libFuzzer targets
#   build-clang/    made by check with clang   build-aarch64/  by check for aarch64

BUILD       ?= build
PREFIX      ?= /opt/verbatim
MESON_FLAGS ?=

STAGE = $(abspath $(BUILD)/stage)
export JSON QUICK FUZZ_SECONDS WERROR

.DEFAULT_GOAL := all
.PHONY: all demo check check-long check-mutants check-asan check-tsan bench fuzz format format-check install install-vendor-paths clean help

all:  ## build, and stage in build/stage
	@build-aux/setup build
	@build-aux/build $(BUILD) $(MESON_FLAGS)
	@echo 'verbatim: ready in $(BUILD)/stage; try: $(BUILD)/stage/bin/verbatim devices'

demo:  ## two unmodified Debian programs talk RDMA, and a program runs on the card's accelerator
	@build-aux/setup build demo
	@build-aux/build $(BUILD) $(MESON_FLAGS)
	@build-aux/demo "$(STAGE)"

check:  ## all tests; ends with "N passed, M failed"
	@build-aux/setup build check format
	@build-aux/build $(BUILD) $(MESON_FLAGS)
	@build-aux/check --builds $(BUILD)

check-long:  ## the same with the long campaigns and the mutants
	@build-aux/setup build check format
	@build-aux/build $(BUILD) $(MESON_FLAGS)
	@build-aux/check --builds --long $(BUILD)
	@build-aux/mutants

check-mutants:  ## change guards of the code one at a time, and see that the tests notice
	@build-aux/setup build check
	@build-aux/mutants

check-asan:  ## the tests under AddressSanitizer and UBSan
	@build-aux/setup build check
	@build-aux/build build-asan -Db_sanitize=address,undefined -Db_lundef=false $(MESON_FLAGS)
	@build-aux/check build-asan

check-tsan:  ## the tests under ThreadSanitizer
	@build-aux/setup build check
	@build-aux/build build-tsan -Db_sanitize=thread -Db_lundef=false -Dc_args=-Wno-tsan $(MESON_FLAGS)
	@build-aux/check build-tsan

bench:  ## all benchmarks, bench-NAME one; JSON=FILE writes the rows, QUICK=1 only proves that it runs
	@build-aux/setup build bench
	@build-aux/build $(BUILD) $(MESON_FLAGS)
	@build-aux/bench "$(STAGE)"

bench-%:
	@build-aux/setup build bench
	@build-aux/build $(BUILD) $(MESON_FLAGS)
	@build-aux/bench "$(STAGE)" $*

fuzz:  ## run the libFuzzer targets, FUZZ_SECONDS=60 each
	@build-aux/setup build fuzz
	@build-aux/fuzz

format:  ## format the C sources
	@build-aux/setup format
	@build-aux/format

format-check:  ## say which changed C sources need it
	@build-aux/setup format
	@build-aux/format --check

install: all  ## copy the staged tree to PREFIX=/opt/verbatim (below DESTDIR=)
	@build-aux/install "$(STAGE)" "$(PREFIX)"

install-vendor-paths:  ## link /opt/mellanox (below DESTDIR=) to the tree installed in PREFIX=
	@build-aux/vendor-paths "$(PREFIX)"

clean:  ## remove all build trees
	rm -rf build build-asan build-tsan build-fuzz build-clang build-aarch64 build-mutants

help:  ## this list
	@echo 'Verbatim: a programmable RDMA network card in software'
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 30
