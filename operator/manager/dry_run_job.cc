#include "operator/manager/dry_run_job.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/kube/api/api_error.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::manager {
namespace {

nlohmann::json Job() {
  return {{"apiVersion", manifests::kFusionJobs.ApiVersion()},
          {"kind", manifests::kFusionJobs.kind},
          {"metadata", {{"generateName", "helm-test-"}}},
          {"spec",
           {{"model", {{"family", "gpt2"}, {"preset", "tiny"}}},
            {"data", {{"kind", "text"}, {"path", {"none.txt"}}}},
            {"training", {{"steps", 1}}},
            {"executors", {{"min", 1}, {"max", 2}}}}}};
}

}  // namespace

absl::Status DryRunJob(kube::ApiClient& hub, const std::string& ns) {
  nlohmann::json job = Job();
  const kube::WriteOptions dry_run{.field_manager = "helm-test", .dry_run = true};
  if (const auto made = hub.Create(manifests::kFusionJobs, ns, job.dump(), dry_run); !made.ok()) {
    return absl::Status(made.status().code(), absl::StrCat("a FusionJob is refused: ", std::string(made.status().message())));
  }
  job["spec"]["executors"]["min"] = 3;
  const absl::Status refused = hub.Create(manifests::kFusionJobs, ns, job.dump(), dry_run).status();
  if (refused.ok())
    return absl::FailedPreconditionError("a FusionJob that breaks a rule is taken: the definitions are not this operator's");
  // Anything else was refused for another reason, or not answered.
  if (!kube::IsApiInvalid(refused)) return refused;
  return absl::OkStatus();
}

}  // namespace fusionllm::op::manager
