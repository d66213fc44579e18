#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/dns_label.h"
#include "lib/base/object_uri.h"
#include "lib/job/checks.h"
#include "lib/job/name.h"
#include "lib/job/scalar.h"

namespace fusionllm::job {
namespace {

absl::string_view Trimmed(absl::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

void CheckData(const Spec& spec, const Report& report) {
  const Data& data = spec.data;
  if (data.kind != DataKind::kShapes && data.path.empty()) {
    report({"spec.data.path"}, absl::StrCat("required for data of kind ", ToString(data.kind)));
  }
  if (data.validation) {
    if (data.validation->path.empty() != data.validation->fraction.has_value()) {
      report({"spec.data.validation"}, "must have exactly one of path and fraction");
    } else if (data.kind == DataKind::kShapes && !data.validation->path.empty()) {
      report({"spec.data.validation.path"}, "belongs to data that is read from files, not to shapes: use fraction");
    }
  } else if (spec.training.evaluation.every_steps > 0) {
    report({"spec.training.evaluation.everySteps", "spec.data.validation"},
           "needs spec.data.validation: there is nothing to evaluate on; `validation: {fraction: 0.05}` holds out a 20th");
  }
}

void CheckUri(const std::string& path, const std::string& field, const Report& report) {
  if (!base::IsUri(path)) return;
  if (const auto uri = base::ParseObjectUri(path); !uri.ok()) report({field}, uri.status().message());
}

void CheckUris(const Spec& spec, const Report& report) {
  for (const std::string& path : spec.data.path) CheckUri(path, "spec.data.path", report);
  if (spec.data.validation) {
    for (const std::string& path : spec.data.validation->path) CheckUri(path, "spec.data.validation.path", report);
  }
  if (spec.model.init.from) CheckUri(*spec.model.init.from, "spec.model.init.from", report);
  if (spec.model.graph && spec.model.graph->file && base::IsUri(*spec.model.graph->file)) {
    report({"spec.model.graph.file"}, "must be a file: a graph is not read from an object store");
  }
  if (!spec.checkpoint) return;
  const Checkpoint& checkpoint = *spec.checkpoint;
  CheckUri(checkpoint.path, "spec.checkpoint.path", report);
  CheckUri(checkpoint.resume, "spec.checkpoint.resume", report);
  if (base::IsUri(checkpoint.path) && !checkpoint.volume.json.empty()) {
    report({"spec.checkpoint.volume", "spec.checkpoint.path"}, "belongs to a path that is a folder, not to a URI");
  }
  if (!checkpoint.replica) return;
  const Replica& replica = *checkpoint.replica;
  CheckUri(replica.path, "spec.checkpoint.replica.path", report);
  if (replica.path.empty()) report({"spec.checkpoint.replica.path"}, "must not be empty");
  if (base::IsUri(replica.path) && !replica.volume.json.empty()) {
    report({"spec.checkpoint.replica.volume", "spec.checkpoint.replica.path"}, "belongs to a path that is a folder, not to a URI");
  }
  if (replica.volume.json.empty() && Trimmed(replica.path) == Trimmed(checkpoint.path)) {
    report({"spec.checkpoint.replica.path", "spec.checkpoint.path"}, "must be another place than spec.checkpoint.path");
  }
}

void CheckTraining(const Training& training, const Report& report) {
  if (training.micro_batch_size > 0 && training.global_batch_size % training.micro_batch_size != 0) {
    report({"spec.training.microBatchSize", "spec.training.globalBatchSize"},
           absl::StrCat("must divide globalBatchSize, and ", training.global_batch_size, " is no multiple of ", training.micro_batch_size));
  }
  const Optimizer& optimizer = training.optimizer;
  const std::pair<const char*, double> used_in_fp32[] = {{"spec.training.optimizer.learningRate", optimizer.learning_rate},
                                                         {"spec.training.optimizer.epsilon", optimizer.epsilon},
                                                         {"spec.training.gradientClipNorm", training.gradient_clip_norm}};
  for (const auto& [field, value] : used_in_fp32) {
    if (value != 0 && static_cast<float>(value) == 0) {
      report({field}, absl::StrCat("must be 0 or a number that differs from 0 in fp32, got ", NumberText(value)));
    }
  }
  if (training.schedule.min_learning_rate > optimizer.learning_rate) {
    report({"spec.training.schedule.minLearningRate", "spec.training.optimizer.learningRate"},
           "must be at most spec.training.optimizer.learningRate");
  }
  if (optimizer.nesterov && optimizer.momentum == 0) {
    report({"spec.training.optimizer.nesterov", "spec.training.optimizer.momentum"}, "needs momentum above 0");
  }
}

void CheckStrategy(const Strategy& strategy, const Report& report) {
  for (size_t i = 0; i < strategy.pins.size(); ++i) {
    const std::string& device = strategy.pins[i].device;
    if (std::find(strategy.exclude.begin(), strategy.exclude.end(), device) != strategy.exclude.end()) {
      report({absl::StrCat("spec.strategy.pins[", i, "].device")}, absl::StrCat(device, " is excluded by spec.strategy.exclude"));
    }
  }
}

void CheckCompression(const Spec& spec, const Report& report) {
  const bool none = spec.compression.policy == CompressionPolicy::kNone;  // and what else is said of it ignored
  if (none || !spec.compression.error_feedback || spec.strategy.replicas == 1) return;
  report({"spec.compression.errorFeedback", "spec.strategy.replicas"},
         "belongs to one pipeline: of several (spec.strategy.replicas) each has residuals of its own, which no checkpoint holds");
}

void CheckExecutors(const Executors& executors, const Report& report) {
  if (executors.max && *executors.max < executors.min) {
    report({"spec.executors.max", "spec.executors.min"},
           absl::StrCat("must be at least min, which is ", executors.min, ", got ", *executors.max));
  }
  const int64_t most = executors.replicas.value_or(executors.max.value_or(executors.min));
  if (most + executors.spares > kMaxExecutors) {
    report({"spec.executors.spares"},
           absl::StrCat("must leave room for the others: ", most, " and ", executors.spares, " spares are more than ", kMaxExecutors));
  }
  if (!executors.replicas) return;
  if (*executors.replicas < executors.min) {
    report({"spec.executors.replicas", "spec.executors.min"},
           absl::StrCat("must be at least min, which is ", executors.min, ", got ", *executors.replicas));
  } else if (executors.max && *executors.replicas > *executors.max) {
    report({"spec.executors.replicas", "spec.executors.max"},
           absl::StrCat("must be at most max, which is ", *executors.max, ", got ", *executors.replicas));
  }
}

void CheckPlacement(const Placement& placement, const Executors& executors, const Report& report) {
  std::set<std::string> names;
  int64_t least = 0;
  for (size_t i = 0; i < placement.clusters.size(); ++i) {
    const PlacementCluster& cluster = placement.clusters[i];
    const std::string path = absl::StrCat("spec.placement.clusters[", i, "]");
    least += cluster.min;
    if (!names.insert(cluster.name).second) report({absl::StrCat(path, ".name")}, absl::StrCat(cluster.name, " is given twice"));
    if (cluster.max && *cluster.max < cluster.min) {
      report({absl::StrCat(path, ".max")}, absl::StrCat("must be at least min, which is ", cluster.min, ", got ", *cluster.max));
    }
  }
  const char* const bound = executors.replicas ? "spec.executors.replicas" : "spec.executors.max";
  const auto most = executors.replicas ? executors.replicas : executors.max;
  if (most && least > *most) {
    report({"spec.placement.clusters", bound},
           absl::StrCat("the clusters ask for ", least, " executors, by their min, and ", bound, " allows ", *most));
  }
}

void CheckFailurePolicy(const FailurePolicy& policy, const Report& report) {
  std::set<std::string> names;
  for (size_t i = 0; i < policy.rules.size(); ++i) {
    if (names.insert(policy.rules[i].name).second) continue;
    report({absl::StrCat("spec.failurePolicy.rules[", i, "].name")}, absl::StrCat(policy.rules[i].name, " is given twice"));
  }
}

}  // namespace

void CheckJob(const FusionJob& job, const Report& report) {
  // It becomes part of Kubernetes object names and of folder names. The rest of the rule is for files of jobs alone (parse.cc): a
  // checkpoint of a longer name, made before the rule was, can be read.
  if (!base::IsDnsLabel(job.metadata.name)) {
    report({"metadata.name"}, absl::StrCat("must be ", kJobNameRule));
  }
  CheckModel(job.spec, report);
  CheckData(job.spec, report);
  CheckUris(job.spec, report);
  CheckTraining(job.spec.training, report);
  CheckStrategy(job.spec.strategy, report);
  CheckCompression(job.spec, report);
  CheckExecutors(job.spec.executors, report);
  CheckPlacement(job.spec.placement, job.spec.executors, report);
  CheckFailurePolicy(job.spec.failure_policy, report);
}

}  // namespace fusionllm::job
