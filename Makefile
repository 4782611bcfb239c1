# Every target sets itself up: on a fresh machine the first call installs into .venv, later calls are at once.

VENV := .venv
PACKAGES_STAMP := $(VENV)/.packages
STAMP := $(VENV)/.installed
# Pinned packages are installed without resolving, which takes a quarter of a minute, unless a platform needs more than
# those. Python compiles what it imports, a fifth of what there is.
PIP_INSTALL = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
# LiteLLM's, which needs an older OpenAI SDK: for targets of hosted providers, and the tests of those.
PROVIDERS := .venv-providers
PROVIDERS_STAMP := $(PROVIDERS)/.installed
# vLLM's, which pins torch and FastAPI: for engine hosts of kind vllm, on machines with a GPU.
VLLM := .venv-vllm
VLLM_STAMP := $(VLLM)/.installed
ARGS ?=
# What `make coverage` measures: packages with commas between them.
PACKAGES ?= contracts
# What runs focus-validator, which needs Python 3.12 or later.
FOCUS_PYTHON ?= python3.12
# One more than cores, because each worker waits for a quarter of its time. Each starts a store and a PostgreSQL of its
# own, so more than eight would cost more than they bring.
WORKERS ?= -n $$(expr $$(nproc) + 1) --maxprocesses=8 --dist=worksteal

.PHONY: help setup install providers vllm compile wheel up demo test drills coverage focus openwebui agents langchain check sbom format bench screenshots conformance clean

help:  ## what there is to type
	@sed -n 's/^\([a-z]*\):.*##/\1:/p' Makefile

setup: $(STAMP)  ## install everything into .venv; compile the hot modules where there is a C compiler
	@$(VENV)/bin/python -m tollkeeper.compile

install: $(PACKAGES_STAMP)  ## the packages alone, nothing compiled

providers: $(PROVIDERS_STAMP)  ## install LiteLLM into .venv-providers, for hosted providers

vllm: $(VLLM_STAMP)  ## install vLLM into .venv-vllm, ten gigabytes, for TOLLKEEPER_ENGINE_KIND=vllm

compile: $(STAMP)  ## the gateway's hot modules to machine code again, after a change of them
	@$(VENV)/bin/python -m tollkeeper.compile

wheel: $(STAMP)  ## dist/tollkeeper-*.whl, which pip installs anywhere: compiled for this Python and platform
	@$(VENV)/bin/python -m hatchling build -t wheel

up: $(STAMP)  ## run every process on this machine, until Ctrl-C
	@$(VENV)/bin/tollkeeper up $(ARGS)

demo: $(STAMP)  ## up, with three example tenants and a minute of traffic
	@$(VENV)/bin/tollkeeper demo $(ARGS)

test: $(STAMP)  ## the suite on every core; ARGS="tests/contracts -k prices" runs a part, WORKERS= one by one
	@$(MAKE) --no-print-directory providers || echo "tests of hosted providers are skipped"
	@$(VENV)/bin/python -m pytest $(WORKERS) -m "not drill" --durations=10 $(ARGS)

drills: $(STAMP)  ## what `make test` leaves out because it takes long: kills, whole installations, every page in Chromium
	@$(MAKE) --no-print-directory test ARGS='-m drill $(ARGS)'

coverage: $(STAMP)  ## lines and branches that tests run; PACKAGES=gateway ARGS=tests/gateway measures another part
	@$(VENV)/bin/python -m coverage run --source=$(PACKAGES) -m pytest -q $(or $(ARGS),tests/contracts)
	@$(VENV)/bin/python -m coverage report

conformance: $(STAMP)  ## the official MCP conformance suite against /mcp (needs npm; fetches Node.js 22 and the suite)
	npm install --no-save --prefix .mcp-conformance @modelcontextprotocol/conformance@0.2.0-alpha.12 node@22
	MCP_CONFORMANCE="$(CURDIR)/.mcp-conformance/node_modules/.bin/node $(CURDIR)/.mcp-conformance/node_modules/.bin/conformance" \
		$(VENV)/bin/python -m pytest tests/gateway/mcp/test_conformance.py -q

focus: $(STAMP)  ## a FOCUS file judged by the published validator, installed into .venv-focus (Python 3.12 or later)
	$(FOCUS_PYTHON) -m venv .venv-focus
	.venv-focus/bin/pip install --quiet focus-validator==2.2.1 pyarrow==21.0.0
	FOCUS_VALIDATOR="$(CURDIR)/.venv-focus/bin/python" \
		$(VENV)/bin/python -m pytest tests/analytics/books/test_focus_export.py -q

langchain: $(STAMP)  ## LangChain's standard suites through a gateway (installs them into .langchain-tests)
	@$(PIP_INSTALL) --no-deps --upgrade --target .langchain-tests -r constraints/langchain.txt
	@PYTHONPATH=.langchain-tests $(VENV)/bin/python -m pytest tests/gateway/langchain -q -W default $(ARGS) \
		-o asyncio_default_test_loop_scope=session -o asyncio_default_fixture_loop_scope=session

openwebui: $(STAMP)  ## Open WebUI lists models and chats through the gateway (installs it into .venv-open-webui, 2.4 GB)
	@$(VENV)/bin/python -m venv .venv-open-webui
	@.venv-open-webui/bin/pip install --quiet --disable-pip-version-check --no-compile open-webui==0.12.4 torch==2.13.0
	OPEN_WEBUI="$(CURDIR)/.venv-open-webui/bin/open-webui" \
		$(VENV)/bin/python -m pytest tests/e2e/agents/test_open_webui.py -m "agents or e2e" -q $(ARGS)

agents: $(STAMP)  ## Claude Code, Codex, Gemini CLI and opencode do a task through the gateway (needs npm; installs them beside temporary files)
	@$(VENV)/bin/python -m pytest tests/e2e/agents -m "agents or e2e" -q $(ARGS)

check: $(STAMP)  ## lint, format, types, import layers; that all is pinned, and what is known against it
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(VENV)/bin/python -m tollkeeper.supply.pins
	@$(VENV)/bin/python -m tollkeeper.supply.vulnerabilities
	@$(VENV)/bin/python -m tollkeeper.supply.structure

sbom: $(STAMP)  ## the bill of materials: dist/sbom.json, in CycloneDX
	@$(VENV)/bin/python -m tollkeeper.supply.sbom dist/sbom.json

format: $(STAMP)  ## rewrite the code as `check` wants it
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

bench: compile  ## every benchmark; ARGS=--quick or ARGS=--json
	@$(VENV)/bin/python -m bench $(ARGS)

screenshots: compile  ## every page of the dashboard, light and dark, into docs/screenshots; --data DIR of one that runs
	@$(VENV)/bin/python -m bench.screenshots $(ARGS)

clean:  ## remove what was installed and cached; the data directory .tollkeeper stays
	rm -rf $(VENV) $(PROVIDERS) $(VLLM) .venv-open-webui .langchain-tests .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Any of these may be a version manager's stub or lack venv, so each is tried, not only looked up. The distribution's
# goes before a version manager's: it is built with profile-guided optimisation, which the gateway feels (a fifth more
# requests a second). PYTHON=/path/to/python goes first.
define MAKE_VENV
for candidate in $(PYTHON) /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	"$$candidate" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		2>/dev/null || continue; \
	echo "installing into $(VENV) with $$("$$candidate" --version), two minutes the first time"; \
	"$$candidate" -m venv $(VENV); exit; \
done; \
echo "Tollkeeper needs Python 3.11, 3.12 or 3.13 with its venv module; python3 here is: $$(python3 --version 2>&1)." >&2; \
echo "Install one (Debian, Ubuntu: apt install python3 python3-venv) or name it: make setup PYTHON=/path/to/python" >&2; \
exit 1
endef

$(VENV)/bin/python:
	@$(MAKE_VENV)

$(PACKAGES_STAMP): pyproject.toml constraints/base.txt | $(VENV)/bin/python
	@$(PIP_INSTALL) --no-deps -r constraints/base.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@$(VENV)/bin/python -m pip check --disable-pip-version-check >/dev/null || \
		$(PIP_INSTALL) -c constraints/base.txt -e '.[all,dev]'
	@touch $(PACKAGES_STAMP)

$(STAMP): $(PACKAGES_STAMP)
	@$(VENV)/bin/python -m tollkeeper.compile
	@touch $(STAMP)

$(PROVIDERS_STAMP): constraints/providers.txt | $(VENV)/bin/python
	@$(VENV)/bin/python -m tollkeeper.provider_environment
	@touch $(PROVIDERS_STAMP)

$(VLLM_STAMP): constraints/vllm.txt | $(VENV)/bin/python
	@$(VENV)/bin/python -m tollkeeper.vllm_environment
	@touch $(VLLM_STAMP)
