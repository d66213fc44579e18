// A small job and a topology beside fusionctl, for tests of the program that train, plan and evaluate.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "cli/testing/fusionctl.h"

namespace fusionllm::cli {

class FusionctlTest : public ::testing::Test, protected Fusionctl {
 protected:
  FusionctlTest() {
    Write("job.yaml", kJob);
    Write("topology.yaml", kTopology);
  }
  using Fusionctl::Run;  // and not that of GoogleTest's fixture

  std::string Calibrated() const {
    const Outcome outcome = Run("bench job.yaml --calibrate -o profiles.json");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return "profiles.json";
  }

  static constexpr char kJob[] =
      "apiVersion: fusionllm.io/v1alpha1\n"
      "kind: FusionJob\n"
      "metadata: {name: test}\n"
      "spec:\n"
      "  model: {family: gpt2, preset: tiny, config: {nLayer: 2, nHead: 2, nEmbd: 32, vocabSize: 256, blockSize: 32}}\n"
      "  data: {kind: text, path: [text.txt]}\n"
      "  training: {steps: 2, globalBatchSize: 4, microBatchSize: 2, sequenceLength: 16}\n";
  static constexpr char kTopology[] =
      "apiVersion: fusionllm.io/v1alpha1\n"
      "kind: Topology\n"
      "metadata: {name: two}\n"
      "spec:\n"
      "  sites:\n"
      "  - {name: a, devices: [{name: a-0, computeScale: 0.5, memory: 1Gi}, {name: a-1, computeScale: 0.25, memory: 1Gi}]}\n"
      "  - {name: b, devices: [{name: b-0, computeScale: 0.5, memory: 1Gi}]}\n"
      "  links: [{from: a, to: b, bandwidth: 100Mbit, latency: 5ms, symmetric: true}]\n";
};

}  // namespace fusionllm::cli
