# Two commands do everything on a fresh machine: `make bench WORKLOAD=prod` and `make test`.
# Each target sets up what it needs; nothing is built or downloaded twice.

WORKLOAD ?= prod
ARGS ?=
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
JOBS := $(shell nproc)

DEMO_MODEL := models/smollm2-135m-instruct.sqm
WORKER := build/native/worker/specquant-worker
CUDA_ARCHITECTURES ?= 80-real;89-real;90a-real
CUDA_TESTS := cuda_support_test cuda_test cuda_invariance_test cuda_head_test cuda_drafters_test int4_test
NATIVE_SOURCES := $(shell find native -name '*.h' -o -name '*.cpp' -o -name '*.inl' -o -name 'CMakeLists.txt')
ENVIRONMENT := $(VENV)/.installed

.PHONY: help setup backends backend-llama-cpp backend-transformers backend-quantize backend-train backend-vllm test-backends bench test test-native test-python lint format native bench-native test-sanitize fuzz clean native-cuda test-cuda

help: ## What can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

setup: $(ENVIRONMENT) $(WORKER) $(DEMO_MODEL) ## Python environment, native worker and demo model

bench: setup ## Measure a workload and write its report: make bench WORKLOAD=prod
	$(PY) -m harness.sweep workload=$(WORKLOAD) $(ARGS)

$(ENVIRONMENT): requirements.lock pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

native: $(WORKER) ## The native worker
$(WORKER): $(NATIVE_SOURCES)
	@tools/system-packages.sh build
	cmake -S native -B build/native -G Ninja -DSPECQUANT_TESTS=OFF > build-native.log 2>&1 || (cat build-native.log; exit 1)
	@rm -f build-native.log
	cmake --build build/native -j $(JOBS) --target specquant-worker
	@touch $@

native-cuda: ## The native worker with --device cuda (needs nvcc; sm_80, sm_89 and sm_90)
	@command -v nvcc > /dev/null || { echo "nvcc is not on the PATH. Install CUDA 13 or newer, or put its bin folder on the PATH."; exit 1; }
	@tools/system-packages.sh build
	cmake -S native -B build/native-cuda -G Ninja -DSPECQUANT_CUDA=ON -DSPECQUANT_TESTS=OFF \
	  "-DSPECQUANT_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)" > /dev/null
	cmake --build build/native-cuda -j $(JOBS) --target specquant-worker cuda_bench cuda_round_bench

test-cuda: ## The tests of the CUDA engine (skipped, with the reason, without a GPU)
	@tools/system-packages.sh build
	@tools/system-packages.sh test
	cmake -S native -B build/native-cuda -G Ninja -DSPECQUANT_CUDA=ON -DSPECQUANT_TESTS=ON \
	  "-DSPECQUANT_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)" > /dev/null
	cmake --build build/native-cuda -j $(JOBS) --target specquant-worker $(CUDA_TESTS)
	ctest --test-dir build/native-cuda -R '^(cuda|int4)_' --output-on-failure

$(DEMO_MODEL): $(ENVIRONMENT)
	$(PY) -m backends.pack demo
	@touch $@

test: test-native test-python ## All tests that this machine can run

test-native: ## The native tests
	@tools/system-packages.sh build
	@tools/system-packages.sh test
	cmake -S native -B build/test -G Ninja -DSPECQUANT_TESTS=ON > /dev/null
	cmake --build build/test -j $(JOBS)
	ctest --test-dir build/test --output-on-failure

test-python: setup ## The Python tests
	$(PY) -m pytest

lint: $(ENVIRONMENT) ## ruff, mypy (strict) and clang-format
	@tools/system-packages.sh lint
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	find native -name '*.h' -o -name '*.cpp' -o -name '*.inl' -o -name '*.cu' -o -name '*.cuh' | xargs clang-format --dry-run --Werror

format: $(ENVIRONMENT) ## Format all code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	find native -name '*.h' -o -name '*.cpp' -o -name '*.inl' -o -name '*.cu' -o -name '*.cuh' | xargs clang-format -i

bench-native: ## Micro-benchmarks of the native kernels
	@tools/system-packages.sh build
	@tools/system-packages.sh bench
	cmake -S native -B build/bench -G Ninja -DSPECQUANT_TESTS=OFF -DSPECQUANT_BENCHMARKS=ON > /dev/null
	cmake --build build/bench -j $(JOBS)
	build/bench/bench/kernels_bench $(ARGS)

test-sanitize: ## The native tests under ASan + UBSan, then under TSan
	@tools/system-packages.sh build
	@tools/system-packages.sh test
	cmake -S native -B build/asan -G Ninja -DSPECQUANT_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=Release > /dev/null
	cmake --build build/asan -j $(JOBS)
	ctest --test-dir build/asan --output-on-failure
	cmake -S native -B build/tsan -G Ninja -DSPECQUANT_SANITIZE=thread -DCMAKE_BUILD_TYPE=Release > /dev/null
	cmake --build build/tsan -j $(JOBS)
	ctest --test-dir build/tsan --output-on-failure

backends: backend-llama-cpp backend-transformers backend-quantize backend-train ## The environments of all optional backends

backend-llama-cpp: .venvs/llama_cpp/.installed ## llama.cpp, built for this processor (five minutes)
.venvs/llama_cpp/.installed: backends/requirements/llama_cpp.txt
	@tools/system-packages.sh build
	@test -x .venvs/llama_cpp/bin/python || $(PYTHON) -m venv .venvs/llama_cpp
	CMAKE_ARGS="-DGGML_NATIVE=ON" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) .venvs/llama_cpp/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

backend-transformers: .venvs/transformers/.installed ## Hugging Face transformers with PyTorch for the CPU
.venvs/transformers/.installed: backends/requirements/transformers.txt
	@test -x .venvs/transformers/bin/python || $(PYTHON) -m venv .venvs/transformers
	.venvs/transformers/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

backend-quantize: .venvs/quantize/.installed ## llmcompressor, to quantize checkpoints
.venvs/quantize/.installed: backends/requirements/quantize.txt
	@test -x .venvs/quantize/bin/python || $(PYTHON) -m venv .venvs/quantize
	.venvs/quantize/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

backend-train: .venvs/train/.installed ## PyTorch, to train drafters and to test their training
.venvs/train/.installed: backends/requirements/train.txt
	@test -x .venvs/train/bin/python || $(PYTHON) -m venv .venvs/train
	.venvs/train/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

backend-vllm: .venvs/vllm/.installed ## vLLM for an NVIDIA GPU; VLLM_WHEELS=FOLDER installs without a network
.venvs/vllm/.installed: backends/requirements/vllm.txt
	@test -x .venvs/vllm/bin/python || $(PYTHON) -m venv --system-site-packages .venvs/vllm
	.venvs/vllm/bin/pip install --quiet --disable-pip-version-check $(if $(VLLM_WHEELS),--no-index --no-deps $(VLLM_WHEELS)/*.whl,-r $<)
	@touch $@

test-backends: setup ## The conformance suite on every optional backend that is installed, and training
	$(PY) -m pytest -m backend tests/conformance
	@if test -x .venvs/train/bin/python; then .venvs/train/bin/python -m pytest tests/train; else echo "training is not tested: make backend-train"; fi

fuzz: setup ## Fuzz the packed-file reader, the protocol parser and the GGUF import, a minute each
	@tools/system-packages.sh build
	@tools/system-packages.sh sanitize
	cmake -S native -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DSPECQUANT_FUZZ=ON -DSPECQUANT_TESTS=OFF > /dev/null
	cmake --build build/fuzz -j $(JOBS) --target run_packed_file_fuzz
	cmake --build build/fuzz -j $(JOBS) --target run_protocol_fuzz
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r tests/fuzz/requirements.txt
	$(PY) -m tests.fuzz.gguf_fuzz -max_total_time=60 -print_final_stats=1

clean: ## Remove what was built (results and models stay)
	rm -rf build
