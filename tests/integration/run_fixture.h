// A job, a topology and saved profiles in a folder of its own, and what tests ask of a run.
//
// The job is small enough for steps of some 10 ms; a latency of 1 ms between all devices makes them long enough to be struck in the
// middle. Profiles are measured once for each test program and given to every device, so that a run starts without calibration; all links
// are told to be alike.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/testing/temp_folder.h"
#include "tests/integration/fusionctl_child.h"

namespace fusionllm::integration {

// loss_bits by step.
using Bits = std::map<int64_t, std::string>;

inline constexpr double kStartLimit = 60;  // until the first step, on a busy machine
inline constexpr double kRunLimit = 240;
inline constexpr char kCheckpoints[] = "spec.checkpoint={path: checkpoints, everySteps: 10}";

class RunTest : public ::testing::Test {
 protected:
  RunTest();

  // The one site's devices; `spares` of them more.
  void WriteTopology(int devices, int spares, const std::string& memory = "1Gi");
  // `fusionctl run job.yaml --topology topology.yaml --format json --output out` with fields set ("spec.training.steps=3") and more flags.
  std::unique_ptr<FusionctlChild> Start(const std::vector<std::string>& settings, const std::vector<std::string>& flags = {},
                                        const std::string& output = "out");
  // Start, and wait for exit code 0 with nobody left.
  std::unique_ptr<FusionctlChild> RunToEnd(const std::vector<std::string>& settings, const std::vector<std::string>& flags = {},
                                           const std::string& output = "out");
  // Exit code and that no process of the run lives.
  void ExpectEnd(FusionctlChild& run, int code);

  // Of an undisturbed run in one stage, `steps` long; run once for each test program.
  const Bits& Undisturbed();
  static constexpr int64_t kUndisturbedSteps = 60;

  std::string Path(const std::string& name) const { return folder_ / name; }

  const base::TempFolder folder_;
};

Bits BitsOf(const FusionctlChild& run);
// Every step line, replayed ones included, has the bits of `expected`; steps `first` to `last` are all there.
void ExpectSameBits(const FusionctlChild& run, const Bits& expected, int64_t first, int64_t last);

std::vector<std::string> Reasons(const FusionctlChild& run);
nlohmann::json Event(const FusionctlChild& run, const std::string& reason);  // the first; null if there is none
nlohmann::json Summary(const FusionctlChild& run);
// The process that runs a stage of the first plan, or of a spare (stage -1); 0 when no event told.
pid_t PidOfStage(const FusionctlChild& run, int stage);

}  // namespace fusionllm::integration
