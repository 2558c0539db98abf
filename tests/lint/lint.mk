LINT_SCRIPTS = $(shell git ls-files | xargs -r grep -lE '^\#!/bin/(ba)?sh' 2>/dev/null) tests/support/tap.sh
LINT_ALL_C = $(shell git ls-files '*.c' '*.h')
LINT_TIDY := $(LINT_SRCS:%.c=$(BUILD)/lint/%.tidy)
LINT_CLANG := $(LINT_SRCS:%.c=$(BUILD)/lint/%.clang.o)

$(BUILD)/lint/%.tidy: %.c .clang-tidy
	@mkdir -p $(@D)
	@echo "  TIDY $<"
	@clang-tidy --quiet $< -- $(BASE_CFLAGS) > $@.log 2>/dev/null || { cat $@.log; exit 1; }
	@touch $@
$(BUILD)/lint/%.clang.o: %.c
	@mkdir -p $(@D)
	@clang $(BASE_CFLAGS) -O1 -c -o $@ $<

.PHONY: lint lint-quick
## make lint       clang-format, layering, formats, shellcheck, clang's warnings, cppcheck, clang-tidy, mypy and pyflakes
lint: lint-quick $(LINT_CLANG) $(LINT_TIDY)
	@echo "lint: clean"

## make lint-quick  the same without what compiles each file: clang's warnings, clang-tidy, and the Python tools
lint-quick:
	@tests/lint/layering
	@tests/lint/formats
	@clang-format --dry-run -Werror $(LINT_ALL_C)
	@shellcheck -x $(LINT_SCRIPTS)
	@cppcheck --quiet --std=c11 --language=c --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
		--suppress=missingInclude --suppress=missingIncludeSystem -D__x86_64__ -I. $(LINT_SRCS)
