# Every target does its own set-up into .venv; nothing else is needed but Python 3.11 and pip.

# Tests start hundreds of Pythons: each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# The half that lives in other people's environments, and so on an older Python.
WORKER := $(addprefix src/scalewise/,errors.py files.py validate.py plugins.py spec record/write.py record/close.py record/json_files.py record/line_sums.py record/log.py record/run_clock.py record/rank_tail.py record/failure_cause.py record/schema.py record/checkpoints.py probe watch frameworks)

# Two files of tests at a time, in the order of tests/conftest.py.
PAIR := --numprocesses 2 --dist loadfile --no-loadscope-reorder

# The files of tests that carry a mark: collecting all others too takes a quarter of a minute.
marked = $(shell grep -rlE --include='*.py' 'mark\.$(1)\b' tests)

.PHONY: install demo test check types types-of-worker test-training test-scripts engines test-engines horovod test-slurm test-browser test-interchange screenshot bench bench-prediction soak hunt pins audit clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --report .venv/fetched.json -e '.[torch,digits,dev]'
	touch $(READY)

demo: $(READY)  ## A whole study on this machine, about two minutes, then the report.
	$(BIN)/scalewise demo

test: $(READY)  ## Everything that needs pip alone.
	$(BIN)/python -m pytest $(PAIR) \
		-m "not browser and not soak and not gpu and not scripts and not libraries and not engines and not slurm and not training and not interchange"

test-training: $(READY)  ## Every way to split a model, checkpoints, compression: several ranks each.
	$(BIN)/python -m pytest -m "training and not soak" --durations 12 $(PAIR) $(call marked,training)

check: $(READY)  ## Lint, format, types, import contracts, hashes of what was installed.
	$(BIN)/python .ci/packages.py check .venv/fetched.json
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(MAKE) --jobs 2 --output-sync types types-of-worker

types: $(READY)
	$(BIN)/mypy

types-of-worker: $(READY)
	$(BIN)/mypy --python-version 3.10 $(WORKER)

.venv/.engines: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[engines]'
	touch .venv/.engines

# Apart from all else: Lightning and Transformers would import a torchvision that they find, and
# PyPI's is for CUDA.
.venv/.libraries: .venv/.engines
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps --upgrade --target .venv/libraries timm torchvision
	touch .venv/.libraries

test-scripts: .venv/.libraries  ## Whole training scripts under the watcher; installs Lightning and its like.
	$(BIN)/python -m pytest -m "scripts and alone and not soak and not gpu" --durations 12 $(call marked,scripts)
	$(BIN)/python -m pytest -m "scripts and not alone and not soak and not gpu" --durations 12 -n 2 --dist worksteal \
		$(call marked,scripts)
	PYTHONPATH=.venv/libraries $(BIN)/python -m pytest -m libraries $(call marked,libraries)

# Engines rarely share an environment. Theirs outlive the checkout: they take minutes to make.
ENVS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/scalewise/envs
WHEELS := $(dir $(ENVS))wheels
# Its build takes minutes and a compiler, so that it is asked for by name.
UNBUILT := $(if $(wildcard $(WHEELS)/horovod-*.whl),,horovod)
NOT_RUN := $(if $(UNBUILT),@echo "Horovod was not run: $(WHEELS) has no wheel of it; make horovod builds one")
ENGINES := $(filter-out $(UNBUILT),$(basename $(notdir $(wildcard engines/*.txt))))

# What NAME.late names is built where the rest of its environment is already there. A new checkout
# asks for nothing that was asked for already.
PIP := -m pip install --quiet --disable-pip-version-check
.SECONDEXPANSION:
$(ENVS)/%/.ready: engines/%.txt $$(wildcard engines/$$*.late)
	test -x $(ENVS)/$*/bin/python || $(PYTHON) -m venv $(ENVS)/$*
	cat $^ | cmp --quiet - $(ENVS)/$*/.asked || { \
		$(ENVS)/$*/bin/python $(PIP) -r engines/$*.txt && \
		{ test ! -e engines/$*.late || DS_BUILD_OPS=0 $(ENVS)/$*/bin/python $(PIP) \
			--no-build-isolation --find-links $(WHEELS) -r engines/$*.late; } && \
		cat $^ > $(ENVS)/$*/.asked; }
	touch $@

OWN := $(or $(XDG_CONFIG_HOME),$(HOME)/.config)/scalewise/engines.toml

engines: $(ENGINES:%=$(ENVS)/%/.ready)  ## An environment for each engine, named for all studies in your own engines.toml.
	mkdir -p $(dir $(OWN))
	touch $(OWN)
	@for each in $(ENGINES); do \
		grep -q "^$$each *=" $(OWN) || echo "$$each = \"$(ENVS)/$$each/bin/python\"" >> $(OWN); done
	cat $(OWN)

test-engines: $(READY) $(ENGINES:%=$(ENVS)/%/.ready)  ## TensorFlow, JAX and their like, each in its own environment.
	$(BIN)/python -m pytest -m "engines and not soak" --durations 12 $(PAIR) $(call marked,engines)
	$(NOT_RUN)

# Who may not install packages may have them all the same; what is missing, horovod.sh says.
MPI := cmake g++ openmpi-bin libopenmpi-dev

horovod:  ## Horovod's wheel, built against today's PyTorch: 5 minutes on a quiet machine.
	dpkg -s $(MPI) >/dev/null 2>&1 || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(MPI); } || true
	test -x $(ENVS)/horovod/bin/python || $(PYTHON) -m venv $(ENVS)/horovod
	$(ENVS)/horovod/bin/python -m pip install --quiet --disable-pip-version-check -r engines/horovod.txt
	engines/horovod.sh $(ENVS)/horovod/bin/python $(WHEELS)

SLURM := slurm-wlm munge iproute2 python3-venv openmpi-bin libpmix-dev shellcheck slurmdbd slurm-wlm-mysql-plugin mariadb-server podman runc

.venv/.slurm: $(READY)
	dpkg -s $(SLURM) >/dev/null 2>&1 || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(SLURM); }
	touch .venv/.slurm

test-slurm: .venv/.slurm  ## A real Slurm of three nodes, as root; installs Slurm and MariaDB.
	$(BIN)/python tests/support/user_python.py
	$(BIN)/python -m pytest -m "slurm and not soak" --durations 12 $(PAIR) $(call marked,slurm)
	$(NOT_RUN)

.venv/.browser: $(READY)
	command -v chromium >/dev/null || { apt-get update && apt-get install -y --no-install-recommends chromium; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	touch .venv/.browser

test-browser: .venv/.browser  ## The report in a real browser; installs Chromium.
	$(BIN)/python -m pytest -m browser $(call marked,browser)

READERS := $(basename $(notdir $(wildcard tests/readers/*.txt)))

$(ENVS)/readers-%/.ready: tests/readers/%.txt
	test -x $(ENVS)/readers-$*/bin/python || $(PYTHON) -m venv $(ENVS)/readers-$*
	cmp --quiet $< $(ENVS)/readers-$*/.asked || { \
		$(ENVS)/readers-$*/bin/python $(PIP) -r $< && cp $< $(ENVS)/readers-$*/.asked; }
	touch $@

test-interchange: $(READY) $(READERS:%=$(ENVS)/readers-%/.ready)  ## Exports in the tools' own readers: TensorBoard, MLflow, Extra-P …
	$(BIN)/python -m pytest -m interchange --durations 12 $(call marked,interchange)

screenshot: .venv/.browser  ## docs/images/page.png: the first screen of the page of a published study.
	mkdir -p docs/images
	$(BIN)/scalewise report studies/published/vit-h14-tiny-224.csv -o .venv/page.html
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,800 \
		--virtual-time-budget=20000 --screenshot=docs/images/page.png file://$(CURDIR)/.venv/page.html

bench: $(READY)  ## What we claim about speed: prints its figures.
	$(BIN)/python benchmarks/fake.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/input.py

bench-prediction: $(READY)  ## What we claim about predictions: every law and the default, cross-validated.
	$(BIN)/python benchmarks/prediction.py --families
	$(BIN)/python benchmarks/chances.py

.venv/.fashion: $(READY)
	dpkg -s dataset-fashion-mnist >/dev/null 2>&1 || { apt-get update && apt-get install -y --no-install-recommends dataset-fashion-mnist; }
	touch .venv/.fashion

soak: .venv/.engines .venv/.slurm .venv/.fashion  ## Long campaigns, by hand.
	$(BIN)/python tests/support/user_python.py
	$(BIN)/python -m pytest -m "soak and not gpu" --timeout 3600

MINUTES ?= 10

hunt: $(READY)  ## Random faults, MINUTES of them (10): kills, damaged folders, mutated inputs, bad disks.
	$(BIN)/python tests/hunt/hunt.py --minutes $(MINUTES)

$(ENVS)/audit/.ready:
	test -x $(ENVS)/audit/bin/python || $(PYTHON) -m venv $(ENVS)/audit
	$(ENVS)/audit/bin/python $(PIP) uv pip-audit
	touch $@

pins: $(ENVS)/audit/.ready .venv/.engines .venv/.browser .venv/.libraries  ## Pin what .venv has now, with the hashes of all its files.
	$(ENVS)/audit/bin/python .ci/packages.py pin .venv

audit: $(ENVS)/audit/.ready  ## Known vulnerabilities of what CI installs: asks a public service.
	$(ENVS)/audit/bin/pip-audit --disable-pip --no-deps -r constraints.txt

clean:
	rm -rf .venv runs
