#include "operator/kueue/workload_cache.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/watch/object.h"
#include "operator/kueue/kueue_workload.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::kueue {
namespace {

using nlohmann::json;

// The job that a Workload is of.
std::string OwnerOf(const kube::Object& object) {
  const json workload = kube::ParseJson(static_cast<const kube::JsonObject&>(object).json);
  for (const json& owner : kube::ListOf(kube::At(workload, "metadata", "ownerReferences"))) {
    if (kube::TextAt(owner, "kind") == manifests::kFusionJobs.kind) return kube::TextAt(owner, "name");
  }
  return "";
}

}  // namespace

WorkloadCache::WorkloadCache(const std::vector<std::string>& namespaces, kube::ApiClient& client, kube::Clock& clock,
                             const kube::InformerMetrics* metrics, cache::JobChanged changed)
    : namespaces_(namespaces.begin(), namespaces.end()), client_(client), clock_(clock), metrics_(metrics), changed_(std::move(changed)) {}

WorkloadCache::Part* WorkloadCache::Of(const std::string& ns) const {
  const base::MutexLock lock(mutex_);
  const auto at = parts_.find(namespaces_.empty() ? "" : ns);
  return at == parts_.end() ? nullptr : at->second.get();
}

WorkloadCache::Part* WorkloadCache::Begin(const std::string& ns) {
  const base::MutexLock lock(mutex_);
  if (stopped_) return nullptr;
  const std::string of = namespaces_.empty() ? "" : ns;
  std::unique_ptr<Part>& part = parts_[of];
  if (part != nullptr) return part.get();
  part =
      std::make_unique<Part>(client_, clock_, metrics_,
                             kube::Informer::Options{.scope = {.resource = kWorkloads, .ns = of, .label_selector = manifests::kJobUidLabel},
                                                     .decode = kube::DecodeJson});
  part->workloads.AddHandler([this](const kube::InformerEvent& event) {
    const std::string job = OwnerOf(*event.object);
    if (!job.empty()) changed_({event.object->meta.ns, job}, !event.initial && !event.resync);
  });
  part->workloads.Start();
  base::Log(base::LogLevel::kInfo, absl::StrCat("a job waits in a queue of Kueue's: watching Workloads", of.empty() ? "" : " in ", of));
  return part.get();
}

WorkloadAccess WorkloadCache::Discover() {
  {
    const base::MutexLock lock(mutex_);
    if (clock_.Monotonic() < missing_until_) return WorkloadAccess::kMissing;
  }
  const absl::StatusOr<std::string> answer = client_.GetPath(absl::StrCat("/apis/", kWorkloads.ApiVersion()));
  if (!answer.ok()) {
    const bool missing = kube::IsApiNotFound(answer.status());
    const base::MutexLock lock(mutex_);
    if (missing) missing_until_ = clock_.Monotonic() + kKueueDiscoveryPeriod / 2;
    return missing ? WorkloadAccess::kMissing : WorkloadAccess::kUnknown;
  }
  const json served = kube::ParseJson(*answer);
  for (const json& resource : kube::ListOf(kube::At(served, "resources"))) {
    if (kube::TextAt(resource, "name") == kWorkloads.plural) return WorkloadAccess::kListed;
  }
  return WorkloadAccess::kMissing;
}

WorkloadAccess WorkloadCache::Access(const std::string& ns) {
  Part* part = Of(ns);
  if (part == nullptr) {
    const WorkloadAccess found = Discover();
    if (found != WorkloadAccess::kListed) return found;
    part = Begin(ns);
    if (part == nullptr) return WorkloadAccess::kUnknown;
  }
  if (part->workloads.HasSynced()) return WorkloadAccess::kListed;
  return absl::IsPermissionDenied(part->workloads.State().last_error) ? WorkloadAccess::kForbidden : WorkloadAccess::kUnknown;
}

std::shared_ptr<const json> WorkloadCache::Find(const kube::ObjectKey& key) const {
  const Part* const part = Of(key.ns);
  const kube::ObjectPtr found = part == nullptr ? nullptr : part->workloads.Get(key);
  if (found == nullptr) return nullptr;
  return std::make_shared<const json>(kube::ParseJson(static_cast<const kube::JsonObject&>(*found).json));
}

void WorkloadCache::Wrote(const kube::ObjectKey& key, const std::string& resource_version) {
  if (Part* const part = Of(key.ns); part != nullptr) part->writes.Wrote(key, resource_version);
}

void WorkloadCache::Deleted(const kube::ObjectKey& key, const std::string& uid) {
  if (Part* const part = Of(key.ns); part != nullptr) part->writes.Deleted(key, uid);
}

bool WorkloadCache::SeenWrites(const kube::ObjectKey& key) {
  Part* const part = Of(key.ns);
  return part == nullptr || part->writes.Seen(key);
}

void WorkloadCache::Stop() {
  std::map<std::string, std::unique_ptr<Part>> parts;
  {
    const base::MutexLock lock(mutex_);
    stopped_ = true;
    parts.swap(parts_);
  }
  for (const auto& [ns, part] : parts) part->workloads.Stop();
}

}  // namespace fusionllm::op::kueue
