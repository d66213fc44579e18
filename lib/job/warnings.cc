#include "lib/job/warnings.h"

#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/nearest_name.h"
#include "lib/job/differences.h"
#include "lib/job/reference.h"

namespace fusionllm::job {

namespace {

// The outermost fields of the table that are so marked.
void CollectKubernetesOnly(const FieldSchema& object, const std::string& path, std::vector<std::string>& paths) {
  for (const FieldSchema& field : object.children) {
    const std::string inner = absl::StrCat(path, path.empty() ? "" : ".", field.name);
    if (field.rule.kubernetes_only) {
      paths.push_back(inner);
    } else if (field.type == FieldType::kObject) {
      CollectKubernetesOnly(field, inner, paths);
    }
  }
}

}  // namespace

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
  if (!job.spec.model.init.from && !job.spec.model.init.skip.empty()) {
    warnings.push_back("spec.model.init.skip: there is no spec.model.init.from, so every parameter begins fresh");
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
    if (known.contains(name)) continue;
    const std::string near = base::NearestNameOrPart(name, std::vector<std::string>(known.begin(), known.end()));
    warnings.push_back(absl::StrCat("spec.strategy.exclude: topology ", topology.metadata.name, " has no device '", name,
                                    "', so none is left out for it", near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
  }
  return warnings;
}

std::string KubernetesOnlyWarning(const FusionJob& job) {
  std::vector<std::string> marked, set;
  CollectKubernetesOnly(FusionJobSchema(), "", marked);
  for (const FieldDifference& difference : Differences(FusionJob{}, job)) {
    for (const std::string& path : marked) {
      const bool within = absl::StartsWith(difference.path, path) &&
                          (difference.path.size() == path.size() || absl::StrContains(".[", difference.path[path.size()]));
      if (within && (set.empty() || set.back() != path)) set.push_back(path);
    }
  }
  if (set.empty()) return "";
  const bool device = absl::c_linear_search(set, "spec.placement.device");
  return absl::StrCat(absl::StrJoin(set, ", "), set.size() == 1 ? " has" : " have", " no effect here: only Kubernetes reads ",
                      set.size() == 1 ? "it" : "them", device ? "; `fusionctl run --device` or a topology says what computes" : "");
}

}  // namespace fusionllm::job
