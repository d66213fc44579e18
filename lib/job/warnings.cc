#include "lib/job/warnings.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace fusionllm::job {

std::vector<std::string> Warnings(const FusionJob& job) {
  std::vector<std::string> warnings;
  const Training& training = job.spec.training;
  const int64_t warmup = training.schedule.warmup_steps;
  if (training.steps > 0 && warmup > training.steps) {
    warnings.push_back(absl::StrCat("spec.training.schedule.warmupSteps: the warm-up of ", warmup, " steps is longer than the run of ",
                                    training.steps, " (spec.training.steps), so the learning rate never reaches learningRate"));
  }
  if (training.steps == 0 && !job.spec.checkpoint.has_value()) {
    warnings.push_back("spec.training.steps: 0 initialises and writes step-000000, but the run has no checkpoints, so nothing is written");
  }
  return warnings;
}

std::vector<std::string> Warnings(const FusionJob& job, const Topology& topology) {
  std::set<std::string> known;
  for (const Site& site : topology.spec.sites) {
    for (const Device& device : site.devices) known.insert(device.name);
  }
  std::vector<std::string> warnings;
  for (const std::string& name : job.spec.strategy.exclude) {
    if (!known.contains(name)) {
      warnings.push_back(absl::StrCat("spec.strategy.exclude: topology ", topology.metadata.name, " has no device '", name, "'"));
    }
  }
  return warnings;
}

}  // namespace fusionllm::job
