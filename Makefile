# The two commands of the README are `make demo` and `make test`; both make their own virtual
# environment in .venv. Use another Python with PYTHON=python3.12.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= -1
ROOT ?= results
HEADLINE := scale_mismatch
SWEPT := $(filter-out $(HEADLINE:%=results/%.parquet) results/claims.parquet,$(wildcard results/*.parquet))
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
export MKL_NUM_THREADS = 1

.PHONY: demo test reproduce reproduce-all reproduce-quick claims figure speed suite docs parity lint types format clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'agentic-gym needs Python 3.11 or newer; use PYTHON=...')"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

demo: .venv/installed
	$(BIN)/python -m benchmarks run scale_mismatch --quick --jobs $(JOBS)
	$(BIN)/python -m plots scale_mismatch --quick
	$(BIN)/python -m benchmarks table scale_mismatch --quick

test: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

# Every figure and the report. What is stored in ROOT counts as finished. `make reproduce ROOT=fresh/results` makes the
# headline results anew: scale_mismatch, the microscope, the credit, and the claims' reported runs, at the learning rates
# that follow from the stored tuning. The other sweeps take hours, and their stored results are taken over. Figures go
# to fresh/plots/figures, the report to fresh/RESULTS.md.
reproduce: .venv/installed
	mkdir -p $(ROOT)
	for path in $(SWEPT); do test -e $(ROOT)/$$(basename $$path) || cp $$path $(ROOT) || exit 1; done
	$(BIN)/python -m benchmarks run $(HEADLINE) --jobs $(JOBS) --root $(ROOT)
	$(MAKE) claims
	test -f $(ROOT)/microscope.json || $(BIN)/python -m benchmarks.microscope --jobs $(JOBS) --json $(ROOT)/microscope.json
	test -f $(ROOT)/credit.json || $(BIN)/python -m benchmarks.credit --json $(ROOT)/credit.json
	$(BIN)/python -m plots all --root $(ROOT)
	$(BIN)/python -m benchmarks report --root $(ROOT)

# The claims' scoreboard, without tuning and the sensitivity of its verdicts where these are not in ROOT already.
claims: .venv/installed
	$(BIN)/python -m benchmarks claims --phase report --tuned-in results --jobs $(JOBS) --root $(ROOT)
	test -f $(ROOT)/claims_untrained.json || $(BIN)/python -m benchmarks.claims.untrained --jobs $(JOBS) --json $(ROOT)/claims_untrained.json
	$(BIN)/python -m benchmarks scoreboard --write --root $(ROOT)

# Every experiment and every claim: hours.
reproduce-all: .venv/installed
	$(BIN)/python -m benchmarks run all --jobs $(JOBS) --root $(ROOT)
	$(BIN)/python -m benchmarks claims --jobs $(JOBS) --root $(ROOT)
	$(MAKE) reproduce

# Two seeds and few schemes of every experiment: minutes.
reproduce-quick: .venv/installed
	$(BIN)/python -m benchmarks run all --quick --jobs $(JOBS) --root $(ROOT)
	$(BIN)/python -m plots all --quick --root $(ROOT)

figure: .venv/installed
	$(BIN)/python -m plots $(NAME)

speed: .venv/installed
	$(BIN)/python -m benchmarks.speed --json results/speed.json
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/generate_schemes.py

suite: .venv/installed
	$(BIN)/python -m benchmarks.suite

docs: .venv/docs
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo site/index.html

.venv/docs: .venv/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	touch $@

# Makes the stored numbers of verl and TRL anew, in a virtual environment of their own.
parity:
	test -x .parity/bin/python || $(PYTHON) -m venv .parity
	.parity/bin/pip install --quiet torch==2.13.0 "trl==1.16.*" "tensordict<=0.10" hydra-core codetiming datasets peft ray pandas
	.parity/bin/pip install --quiet --no-deps verl==0.9.1
	.parity/bin/python tests/parity/generate.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
