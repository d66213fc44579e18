#!/bin/bash
# api_server.sh [definitions]: a real API server is as crds/ and the client library take it to be: crd/crd_test.sh, which is all of
# `definitions`, and the conformance suite that the server in memory passes, under which everything else of the operator is tested.
# Needs the images (make images) and build/tests (make all), though no image runs; `definitions` needs no tests. Of an API server that is given
# (HUB_KUBECONFIG) no image is asked for.
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
[ "${1:-definitions}" = definitions ] || die "usage: api_server.sh [definitions]"
tests=$build_folder/tests/kube_testing_tests
[ -n "${1:-}" ] || [ -x "$tests" ] || die "$tests is not there: make all"
bring_up ehub
kubeconfig=$(kubeconfig_of ehub)
before=$(kubectl_of ehub get namespaces --output name)
HUB_KUBECONFIG=$kubeconfig KUBECTL=$(tool kubectl) "$scenario_folder/../crd/crd_test.sh"
took "the definitions"
if [ -z "${1:-}" ]; then
  for suite in ApiConformance ControllerParts; do
    # Of the suites' servers the real one; what cannot be asked of it is skipped, and said.
    FUSIONLLM_TEST_KUBECONFIG=$kubeconfig "$tests" --gtest_filter="*/$suite.*/RealServer" --gtest_brief=1 >"$scratch/said" || {
      cat "$scratch/said"
      fail "$suite"
    }
    grep -E 'PASSED|SKIPPED' "$scratch/said"
    ran=$(sed -n 's/.*PASSED  \] \([0-9]*\) test.*/\1/p' "$scratch/said")
    [ "${ran:-0}" -gt 0 ] || fail "$suite asked nothing of the real server"
  done
fi
namespaces_as_before() { [ "$(kubectl_of ehub get namespaces --output name)" = "$before" ]; }
until_true "the tests' namespaces to go" namespaces_as_before
[ -n "${1:-}" ] || took "the client library"
leave "api server"
