# A thin door to CMake and Ninja. `make run` and `make test` install what is missing, build, and go.
PREFIX ?= /usr/local
BUILD ?= build
CONFIGURE = cmake -S . -B $(BUILD) -G Ninja -DCMAKE_INSTALL_PREFIX=$(PREFIX)

.PHONY: all run test nightly check-gpu check-report setup format lint sanitize tsan install clean wc

all: setup
	@test -f $(BUILD)/build.ninja || $(CONFIGURE) >/dev/null
	@test -x $(BUILD)/quern || echo "building Quern ($$(grep -c '^build .*[.]o:' $(BUILD)/build.ninja) files)"
	@if [ -t 1 ]; then ninja -C $(BUILD); else ninja -C $(BUILD) --quiet; fi

setup:
	@tools/setup

run: all
	@$(BUILD)/quern bench kernels/gelu.qn

test: all
	@tools/test $(BUILD)

nightly: all
	@tools/nightly $(BUILD)

check-gpu: all
	@tools/check-gpu $(BUILD)

# Reports in headless Chromium; skipped, and told so, where there is none.
check-report: all
	@tools/check-report $(BUILD)

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
	@ninja -C $(BUILD) --quiet install

wc:
	@git ls-files '*.c' '*.h' | xargs wc -l | sort -rn | head -20

clean:
	@rm -rf $(BUILD) build-*
