# A thin door to CMake and Ninja. `make run` and `make test` install what is missing, build, and go. Plain `make` builds what
# is installed: the command and the library; the tests and benchmarks are built where they are run.
PREFIX ?= /usr/local
BUILD ?= build
CONFIGURE = cmake -S . -B $(BUILD) -G Ninja -DCMAKE_INSTALL_PREFIX=$(PREFIX)

.PHONY: peers all tests run test nightly python wheel check-gpu check-report setup format lint sanitize tsan install clean wc

# Ninja has jobs of its own: what `make -j` says to its children is not for it, and a newer one stops at it.
unexport MAKEFLAGS MFLAGS
.NOTPARALLEL:

all: setup
	@test -f $(BUILD)/build.ninja || $(CONFIGURE) >/dev/null
	@test -x $(BUILD)/quern || echo "building Quern ($$(find src cli -name "*.c" | wc -l) files)"
	@if [ -t 1 ]; then ninja -C $(BUILD) product; else ninja -C $(BUILD) --quiet product; fi

# Everything, with the programs of tests/ and bench/.
tests: all
	@test -x $(BUILD)/tests/test_base || echo "building the tests ($$(ls tests/unit/*.c | wc -l) programs)"
	@if [ -t 1 ]; then ninja -C $(BUILD) all; else ninja -C $(BUILD) --quiet all; fi

setup:
	@BUILD=$(BUILD) tools/setup

run: all
	@$(BUILD)/quern bench kernels/gelu.qn

test: tests
	@tools/test $(BUILD)

# Quern beside what is installed of PyTorch, Triton, NumPy and OpenBLAS, here and now: the table of README.md.
peers: all
	@python3 bench/peers/run.py --quern $(BUILD)/quern

nightly: tests
	@tools/nightly $(BUILD)

check-gpu: tests
	@tools/check-gpu $(BUILD)

# Reports in headless Chromium; skipped, and told so, where there is none.
check-report: tests
	@tools/check-report $(BUILD)

# The Python package in a virtual environment, with NumPy and torch where they can be had, and its tests.
python: all
	@tools/python $(BUILD)

# One wheel for every CPython from 3.11 on, audited, installed in a clean environment and tested there.
wheel: all
	@tools/python $(BUILD) wheel

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

lint:
	@tools/lint

sanitize: setup
	@tools/test-sanitized address,undefined

tsan: setup
	@tools/test-sanitized thread

install: all
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null
	@cmake --install $(BUILD) >/dev/null

wc:
	@git ls-files '*.c' '*.h' | xargs wc -l | sort -rn | head -20

clean:
	@rm -rf $(BUILD) build-*
