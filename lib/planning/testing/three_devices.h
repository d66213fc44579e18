// A GPT-2 of four blocks, to be planned on three devices (and a spare) of two sites whose speed is stated, not measured.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/job/parse.h"
#include "lib/planning/calibrate.h"
#include "lib/planning/plan_workload.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::planning {

inline constexpr char kSmallJob[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: test}
spec:
  model: {family: gpt2, preset: tiny, config: {nLayer: 4, nHead: 2, nEmbd: 32, vocabSize: 64, blockSize: 16}}
  data: {kind: tokens, path: [x.bin]}
  training: {steps: 5, globalBatchSize: 16, microBatchSize: 2, sequenceLength: 16}
)";

inline constexpr char kTwoSites[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: two-sites}
spec:
  sites:
  - name: paris
    devices: [{name: paris-0, computeScale: 0.5, memory: 1Gi}, {name: paris-1, computeScale: 0.25, memory: 1Gi}]
    internal: {bandwidth: 1Gbit, latency: 1ms}
  - name: tokyo
    devices: [{name: tokyo-0, computeScale: 0.5, memory: 1Gi}, {name: tokyo-1, computeScale: 0.5, memory: 1Gi, role: spare}]
    internal: {bandwidth: 1Gbit, latency: 1ms}
  links: [{from: paris, to: tokyo, bandwidth: 20Mbit, latency: 40ms, symmetric: true}]
)";

inline std::unique_ptr<workload::Workload> Resolve(const std::vector<std::string>& overrides = {}) {
  const auto job = job::ParseFusionJob(kSmallJob, "job.yaml", overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  auto workload = workload::Resolve(*job, "/");
  EXPECT_TRUE(workload.ok()) << workload.status();
  return std::move(*workload);
}

// Every op takes 1 ms, whatever it is, so that tests do not depend on the machine.
inline wire::DeviceProfile Machine(const workload::Workload& workload, double op_seconds = 1e-3) {
  const auto backend = *kernels::CreateBackend("ref", {});
  auto profile = Calibrate(workload, *backend, {.seconds = 0, .min_passes = 1});
  EXPECT_TRUE(profile.ok()) << profile.status();
  for (auto& [signature, op] : profile->ops) op.seconds = op_seconds;
  for (auto& [op_class, rate] : profile->rates) rate = {.overhead_s = op_seconds, .relative_error = 0.1, .samples = 9};
  profile->update_seconds_per_element = 1e-9;
  for (auto& [name, codec] : profile->codecs) codec = {1e-9, 1e-9};
  profile->name = "machine";
  profile->memory_bytes = 1 << 30;
  return *profile;
}

inline Profiles OnTopology(const workload::Workload& workload, absl::string_view yaml = kTwoSites) {
  const auto topology = job::ParseTopology(yaml, "topology.yaml");
  EXPECT_TRUE(topology.ok()) << topology.status();
  auto profiles = ProfilesFromTopology(*topology, {Machine(workload)}, int64_t{4} << 30);
  EXPECT_TRUE(profiles.ok()) << profiles.status();
  return *profiles;
}

inline plan::Plan PlanOf(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options = {}) {
  const auto answer = PlanWorkload(workload, profiles, options);
  EXPECT_TRUE(answer.ok()) << answer.status();
  if (!answer.ok() || !std::holds_alternative<plan::Plan>(*answer)) {
    ADD_FAILURE() << (answer.ok() ? wire::PrintPlan(*answer) : std::string(answer.status().message()));
    return {};
  }
  return std::get<plan::Plan>(*answer);
}

}  // namespace fusionllm::planning
