# Two commands for users: `make run` (the main job: suites, load, report) and `make test` (everything CI checks).
# Both set themselves up in .venv; nothing outside this folder is touched.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

# Bytecode is kept, below .venv, whatever the environment says: the tests start hundreds of Python processes, and each
# would compile the sources again (a third of the start of our scheduler).
export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/bytecode
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run setup nightly test test-real lint types contract docs pictures own-tests suites suites-real-time fuzz lock clean help

help:
	@echo "make run    suites, load and sign-off report on the embedded cluster (ARGS='...' goes to seatrial run)"
	@echo "make setup  only the virtual environment, with the command seatrial"
	@echo "make nightly  the suites with their long cases; results are kept and pushed (docs/lab.md)"
	@echo "make test   lint, types, import contracts, documentation, own tests, the suites in virtual time and on embedded clusters"
	@echo "make suites-real-time  all cases in real time, most of which make test judges in virtual time only"
	@echo "make test-real  the suites on real etcd, kube-apiserver, kube-controller-manager and kubelet (docs/backends.md)"
	@echo "make fuzz   random inputs for the API server and all readers of files (INPUTS=..., SEED=...)"
	@echo "make test-interpreters  install and run seatrial with each of python3.12, 3.13 and 3.14 that is on PATH"
	@echo "make docs   the documentation site in build/site; a warning or a broken link is an error"
	@echo "make pictures  the picture of the sign-off page in README, from a run of all suites (needs Chromium)"
	@echo "make lock   resolve the dependencies anew and write the lock files (needs uv)"
	@echo "make clean  remove what the other commands made"

run: $(VENV)/.run
	$(BIN)/seatrial run $(ARGS)

setup: $(VENV)/.run

# RESULTS, PUSH, LAB, PLACE, CARDS, WINDOW: flags of `seatrial nightly`; ARGS: arguments of `seatrial run`.
RESULTS ?= nightly
nightly: $(VENV)/.run
	$(BIN)/seatrial nightly --results "$(RESULTS)" $(if $(PUSH),--push "$(PUSH)") $(if $(LAB),--lab "$(LAB)") \
		$(if $(PLACE),--place "$(PLACE)") $(if $(CARDS),--cards "$(CARDS)") $(if $(WINDOW),--window "$(WINDOW)") -- $(ARGS)

# What reads the sources alone runs side by side.
test: $(VENV)/.dev
	$(MAKE) -j 2 lint types contract docs
	$(MAKE) own-tests suites

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python docs/checks.py
	$(BIN)/python docs/tables.py

types: $(VENV)/.dev
	$(BIN)/mypy

contract: $(VENV)/.dev
	$(BIN)/lint-imports

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

# The picture of README, from a run of all suites; needs Chromium.
pictures: $(VENV)/.run
	$(BIN)/seatrial run --report build/pictures
	$(BIN)/python docs/pictures.py build/pictures/signoff.html

# Two workers more than CI has cores: some wait for processes that they started. A worker that has run its share takes
# tests of the others; the default leaves the long tests at the end to one worker.
own-tests: $(VENV)/.dev
	$(BIN)/pytest -n 4 --dist=worksteal $(call again,)

# What fails beside other tests is run once more, alone: a machine that stands still for a while fails tests of real
# processes. What fails again fails the job.
again = || { [ $$? -eq 1 ] && echo "$@: once more, alone, what failed above" \
	&& $(BIN)/pytest $(1) --last-failed --last-failed-no-failures=none --maxfail=5; }

suites: $(VENV)/.dev
	$(BIN)/pytest suites --seatrial-subject=inprocess -n 2 --dist=worksteal -q
	$(BIN)/pytest suites/gang/test_native_jobs.py --seatrial-subject=inprocess --seatrial-feature-gates=WorkloadWithJob=true -q
	$(BIN)/pytest suites --seatrial-subject=seatrial --seatrial-part=real -n 8 --dist=worksteal \
		$(call again,suites --seatrial-subject=seatrial --seatrial-part=real)

# All cases in real time; `make suites` judges a quick one of each promise so.
suites-real-time: $(VENV)/.dev
	$(BIN)/pytest suites --seatrial-subject=seatrial --seatrial-part=real --seatrial-long -n 8 --dist=worksteal

# Where the programs are missing, it says which and succeeds. With the limit in seconds for all of it, it stays with `make test`
# below the 90 minutes of a CI job; .ci/kubernetes-programs builds the programs.
REAL_RESULTS ?= build/test-real
SECONDS_AT_MOST ?= 3900
test-real: $(VENV)/.dev
	SECONDS_AT_MOST=$(SECONDS_AT_MOST) .ci/test-real $(BIN) $(REAL_RESULTS)

# INPUTS, SEED: of `seatrial fuzz`.
INPUTS ?= 100000
SEED   ?= 1
fuzz: $(VENV)/.dev
	$(BIN)/seatrial fuzz --inputs $(INPUTS) --seed $(SEED)

# Skips, with the reason, the interpreters that are not on PATH. Packages are installed from the package index.
test-interpreters: $(VENV)/.dev
	SEATRIAL_TEST_INTERPRETERS=1 $(BIN)/pytest fixtures/tests/test_installed.py -k another_interpreter -ra -q

$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "seatrial needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3"; exit 2; }
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 2; }
	@touch $@

COLLECT = $(BIN)/python -m pytest suites --collect-only -q -c suites/pytest.run.ini --rootdir=suites --import-mode=importlib \
	-p seatrial.testing -p no:cacheprovider

$(VENV)/.run: $(VENV)/.base requirements.lock pyproject.toml
	@echo "setting up $(VENV); this is done once and takes some minutes"
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(COLLECT) >/dev/null || true  # compiles the cases once; else each worker of the first run does
	@$(BIN)/seatrial build-kernel >/dev/null || echo "no compiled kernel: the scheduler computes the same scores and filters in Python, more slowly"
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.lock
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements-dev.lock
	@touch $@

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --extra build --extra plots \
		--output-file requirements.lock pyproject.toml
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --extra build --extra plots \
		--extra dask --extra dev --output-file requirements-dev.lock pyproject.toml

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist seatrial-report
