# The front door. Meson and Ninja do the work; this file only installs what is missing and names the doors.
#
#   build/          the ordinary build         build/stage   what everything else uses: bin lib include share
#   build-asan/     the same with ASan+UBSan   build-tsan/   with TSan         build-fuzz/  libFuzzer targets

BUILD  ?= build
STAGE   = $(abspath $(BUILD)/stage)
PREFIX ?= /usr/local
MESON_FLAGS ?=
NINJA  ?= ninja

.DEFAULT_GOAL := all
.PHONY: all setup demo check check-long check-asan check-tsan bench fuzz format format-check install help clean

all: setup  ## build and stage in build/stage
	@build-aux/build $(BUILD) $(MESON_FLAGS)

setup:
	@build-aux/setup build

demo: all  ## two unmodified Debian programs talk RDMA over Verbatim
	@build-aux/setup demo
	@build-aux/demo $(STAGE)

check: all  ## every test of `make check`; ends with "N passed, M failed"
	@build-aux/setup check
	@build-aux/check $(BUILD)

check-long: all  ## the long campaigns
	@build-aux/setup check
	@build-aux/check --long $(BUILD)

check-asan: setup  ## the tests under AddressSanitizer and UBSan
	@build-aux/setup check
	@build-aux/build build-asan -Db_sanitize=address,undefined -Db_lundef=false
	@build-aux/check build-asan

check-tsan: setup  ## the tests under ThreadSanitizer
	@build-aux/setup check
	@build-aux/build build-tsan -Db_sanitize=thread -Db_lundef=false
	@build-aux/check build-tsan

bench: all  ## all benchmarks; bench-verbs etc. run one; JSON=file writes the rows, QUICK=1 only proves it runs
	@build-aux/setup bench
	@build-aux/bench $(STAGE) all

bench-%: all
	@build-aux/setup bench
	@build-aux/bench $(STAGE) $*

fuzz: setup  ## run the libFuzzer targets (SECONDS=60 each)
	@build-aux/setup fuzz
	@build-aux/fuzz

format:  ## format the C sources
	@build-aux/setup check
	@build-aux/format

format-check:
	@build-aux/format --check

install: all  ## copy the staged tree to PREFIX=
	@build-aux/install $(STAGE) $(DESTDIR)$(PREFIX)

clean:  ## remove all build trees
	rm -rf build build-asan build-tsan build-fuzz build-clang build-aarch64

help:  ## this list
	@echo 'Verbatim: a programmable RDMA network card in software'
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20
