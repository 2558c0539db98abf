# The Python client's lint: types and names, by Debian's own tools.
LINT_PYTHON = $(shell git ls-files 'clients/python/*.py' 'tests/python/*.py') tests/python/run
.PHONY: lint-python
lint-python:
	@mkdir -p $(BUILD)
	@MYPYPATH=clients/python:tests/python mypy --config-file clients/python/pyproject.toml --cache-dir $(BUILD)/mypy \
		--no-error-summary --scripts-are-modules $(LINT_PYTHON)
	@pyflakes3 $(LINT_PYTHON)
lint: lint-python

.PHONY: docs-api
## make docs-api   docs/api.md anew, out of docs/openapi.json
docs-api:
	@/usr/bin/python3 -B tests/python/api_md.py
