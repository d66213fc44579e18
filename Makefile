# One command per wish. `make help` lists them; everything is built by CMake (see CMakePresets.json).
SHELL := /bin/bash
CORES := $(shell nproc)
# A gRPC-facing file needs about 1 GB to compile: three at a time fit a small machine. Override: make JOBS=16 build
JOBS ?= $(shell echo $$(( $(CORES) < 3 ? $(CORES) : 3 )))
BENCH_ARGS ?=
# What a run on one machine needs; the operator is built for clusters alone.
RUN_PROGRAMS := fusionctl fusion-scheduler fusion-broker fusion-executor
FUZZ_SECONDS ?= 30

.DEFAULT_GOAL := help
# Parallelism belongs to the build tool below, and apt runs once at a time: make -j changes nothing.
.NOTPARALLEL:
.PHONY: help deps deps-build deps-test deps-verify deps-fuzz deps-cuda cuda cuda-portable configure build image-programs all test demo bench bench-micro verify format asan tsan fuzz images e2e-programs e2e-images e2e-up e2e-down e2e-smoke e2e-short e2e-object-store e2e-crds e2e clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9 -]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  JOBS=$(JOBS) compilers at a time (make JOBS=N ...); SKIP_DEPS=1 leaves the packages alone"

deps:  ## install every missing package (apt, as root or through sudo; says which)
	@tools/install-deps.sh build test verify

# Quick when nothing is missing: one dpkg query, no network.
deps-build:
	@$(if $(SKIP_DEPS),true,tools/install-deps.sh build)
deps-test:
	@$(if $(SKIP_DEPS),true,tools/install-deps.sh build test)
deps-verify:
	@$(if $(SKIP_DEPS),true,tools/install-deps.sh build verify)

deps-fuzz:
	@$(if $(SKIP_DEPS),true,tools/install-deps.sh build fuzz)

# A toolkit that is installed comes first: CUDACXX, nvcc in PATH, /usr/local/cuda.
NVCC := $(firstword $(CUDACXX) $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
deps-cuda:  ## make a CUDA toolkit from wheels in ~/.cache/fusionllm (3 GB), where none is installed
	@$(if $(SKIP_DEPS),true,tools/install-deps.sh build cuda static)
	@$(if $(NVCC),echo "CUDA compiler: $(NVCC)",tools/install-cuda.sh >/dev/null)

# All but the last two want a card, and are skipped where there is none: `fusionctl doctor` says which there is.
CUDA_TESTS := cuda_attention_test cuda_batch_norm_test cuda_bf16_test cuda_conformance_test cuda_convolution_test cuda_device_test cuda_embedding_test \
  cuda_fusion_test cuda_nccl_test cuda_padded_gemm_test cuda_pooling_test cuda_rows_test cuda_select_test cuda_stage_test cuda_tensor_codec_test cuda_tensor_cores_test cudnn_test devices_test
CUDA_TEST_PROGRAMS := collective_nccl_tests compression_cuda_tests kernels_cuda_tests runtime_cuda_tests
empty :=
space := $(empty) $(empty)
cuda: deps-cuda  ## build the programs with the CUDA back end, and its tests, into build-cuda/
	@CUDACXX=$(or $(NVCC),$$(tools/install-cuda.sh)/toolkit/bin/nvcc) tools/configure.sh cuda
	@cmake --build --preset cuda -j $(JOBS) --target programs $(addprefix --target ,$(CUDA_TEST_PROGRAMS))
	@ctest --preset cuda -j $(JOBS) -R '^($(subst $(space),|,$(CUDA_TESTS)))$$'
	@build-cuda/bin/fusionctl doctor | grep -E '^[a-z]+ +device: '

# What is carried to a machine that has a card and nothing of ours (docs/design/gpu-bench.md): programs, tests and benchmarks, and what runs them.
PORTABLE_PROGRAMS := $(RUN_PROGRAMS) cuda_tests training_bench topk_bench
cuda-portable: deps-cuda  ## build programs, CUDA tests and benchmarks that need nothing but glibc, and pack them: build-cuda-portable/portable.tar.xz
	@export FUSIONLLM_STATIC_HOME=$$(tools/install-static.sh) && CUDACXX=$(or $(NVCC),$$(tools/install-cuda.sh)/toolkit/bin/nvcc) tools/configure.sh cuda-portable
	@cmake --build --preset cuda-portable -j $(JOBS) $(addprefix --target ,$(PORTABLE_PROGRAMS))
	@tools/pack-portable.sh build-cuda-portable

configure: deps-build
	@tools/configure.sh release

build: configure  ## build the programs, a release, into build/bin/
	@cmake --build --preset release -j $(JOBS) --target programs

# What differs is linked again, once: the build folder stays so.
image-programs: deps-build  ## build the programs into build/bin/ as images have them: libcurl in them, of HTTP alone (docker/README.md)
	@SKIP_DEPS=$(SKIP_DEPS) JOBS=$(JOBS) tools/configure-images.sh release
	@cmake --build --preset release -j $(JOBS) --target programs

all: configure  ## build the programs, the tests and the benchmarks
	@cmake --build --preset release -j $(JOBS)

test: deps-test all  ## build and run all tests
	@ctest --preset release -j $(JOBS)

demo: configure  ## train a small model over emulated slow links on this machine, and report
	@cmake --build --preset release -j $(JOBS) --target $(RUN_PROGRAMS)
	@if [ ! -x build/bin/fusionctl ]; then echo "make demo: build/bin/fusionctl was not built, so there is no demo to run" >&2; exit 1; fi
	@build/bin/fusionctl demo

bench: bench-micro  ## build and run all benchmarks: the micro-benchmarks and the figures of docs/results (half an hour)
	@tools/perf/figures.sh build/bin

bench-micro: all  ## build and run the micro-benchmarks alone (BENCH_ARGS=--benchmark_filter=... is passed on)
	@tools/bench.sh build/benchmarks $(BENCH_ARGS)

verify: deps-verify configure  ## check format, scripts, layering, headers, generated files; clang-tidy on changed files
	@JOBS=$(JOBS) tools/verify.sh

format: deps-verify  ## rewrite the C++ sources in the one format
	@git ls-files -z '*.h' '*.cc' | xargs -0 clang-format-14 -i

asan tsan: deps-test  ## build and run all tests under AddressSanitizer + UBSan, or ThreadSanitizer
	@tools/configure.sh $@
	@cmake --build --preset $@ -j $(JOBS)
	@ctest --preset $@ -j $(JOBS)

fuzz: deps-fuzz  ## run every decoder of untrusted bytes under libFuzzer, FUZZ_SECONDS each (default 30), one on each core
	@tools/configure.sh fuzz
	@cmake --build --preset fuzz -j $(JOBS)
	@tools/fuzz.sh build-fuzz/fuzzers $(FUZZ_SECONDS) $(CORES)

images:  ## build the container images; PROGRAMS=prebuilt packs build/bin (make image-programs), LOCAL_BASE=1 needs no registry (docker/README.md)
	@$(if $(SKIP_DEPS),true,tools/install-deps.sh images)
	@JOBS=$(JOBS) docker/images.sh

# What the scripts of e2e/ take from the build.
e2e-programs: configure
	@$(if $(SKIP_DEPS),true,tools/install-deps.sh e2e)
	@cmake --build --preset release -j $(JOBS) --target e2e_programs

CLUSTERS ?= hub member-a member-b
e2e-up: e2e-programs  ## as root: bring up Kubernetes clusters on this machine, CLUSTERS="hub member-a member-b" (e2e/README.md)
	@e2e/cluster/up.sh $(CLUSTERS)

e2e-down:  ## as root: take those clusters down, leaving nothing
	@e2e/cluster/down.sh

# What the scenarios put into clusters is what this checkout builds, never what an earlier one left; it fails where an image cannot be made.
e2e-images: image-programs
	@$(if $(SKIP_DEPS),true,tools/install-deps.sh images)
	@PROGRAMS=prebuilt docker/images.sh

e2e-smoke: e2e-programs e2e-images  ## as root: a Pod on one cluster, then three clusters over slow links
	@e2e/smoke/one_cluster.sh
	@e2e/smoke/three_clusters.sh

# For whoever wants one proof that a change still works on clusters.
e2e-short: e2e-programs e2e-images  ## as root: what an API server makes of crds/; a job over two members that is Complete, deleted, and has left nothing
	@e2e/scenarios/api_server.sh definitions
	@e2e/scenarios/two_members_job.sh short
	@e2e/dashboards/check.sh

# The first one mostly waits, and runs beside the others; the last one looks at what they have kept.
E2E_SCENARIOS := rest api_server one_cluster_job two_members_job node_ports_job direct_job load_balancers_job egress_only_job network_policy suspend_resume kueue_job object_store_job volumes_job csi_job accelerators_job replicas_job elastic_job \
  executor_lost hub_upgraded uninstall_job missing_objects api_server_lost busy_api_servers credentials_rotated member_by_command advised_job tombstones failover silent_member member_lost site_lost two_hubs given_clusters before_first_step rights
# On clusters that are given (HUB_KUBECONFIG, e2e/README.md) nothing needs root, nothing of this machine is tried, and images are pulled.
e2e: $(if $(HUB_KUBECONFIG),build,e2e-smoke)  ## as root: the images, the smoke, then what a user does, and what goes wrong (e2e/scenarios)
	@rm -rf build/e2e/rights
	@e2e/dashboards/check.sh
	@cmake --build --preset release -j $(JOBS) --target kube_testing_tests
	@e2e/scenarios/all.sh $(E2E_SCENARIOS)

e2e-object-store: build  ## runs with data and checkpoints in a real S3 server on this machine; needs Go, no clusters
	@e2e/smoke/object_store.sh

e2e-crds:  ## ask the API server of HUB_KUBECONFIG what it makes of crds/; says so and ends where that is unset
	@e2e/crd/crd_test.sh

clean:  ## remove build/ and build-*/
	@rm -rf build build-*
