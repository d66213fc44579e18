#include "operator/reconcile/job_cache.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/base/log.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op {
namespace {

struct JobObject : kube::Object {
  std::shared_ptr<const JobView> view;
};

absl::StatusOr<kube::ObjectPtr> DecodeJob(absl::string_view text, const std::string& origin, const std::string& hub) {
  auto decoded = kube::DecodeMetadata(text);
  if (!decoded.ok()) return decoded.status();
  auto view = ReadJob(nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false), origin, hub);
  if (!view.ok()) return view.status();
  auto job = std::make_shared<JobObject>();
  job->meta = (*decoded)->meta;
  job->meta.DropLabels();
  job->view = std::make_shared<const JobView>(*std::move(view));
  return job;
}

}  // namespace

JobCache::JobCache(const std::vector<std::string>& namespaces, const std::string& origin, const std::string& hub, kube::ApiClient& client,
                   kube::Clock& clock, const kube::InformerMetrics* metrics, JobChanged changed)
    : changed_(std::move(changed)) {
  const kube::DecodeObject decode = [origin, hub](absl::string_view text) { return DecodeJob(text, origin, hub); };
  for (const std::string& ns : namespaces.empty() ? std::vector<std::string>{""} : namespaces) {
    auto [at, added] = parts_.emplace(ns, nullptr);
    if (!added) continue;
    at->second = std::make_unique<Part>(client, clock, metrics,
                                        kube::Informer::Options{.scope = {.resource = kFusionJobs, .ns = ns}, .decode = decode});
    at->second->jobs.AddHandler(
        [this](const kube::InformerEvent& event) { changed_(event.object->meta.Key(), !event.initial && !event.resync); });
  }
}

JobCache::Part* JobCache::Of(const std::string& ns) const {
  auto at = parts_.find("");
  if (at == parts_.end()) at = parts_.find(ns);
  return at == parts_.end() ? nullptr : at->second.get();
}

std::vector<kube::ObjectPtr> JobCache::Objects() const {
  std::vector<kube::ObjectPtr> all;
  for (const auto& [ns, part] : parts_) {
    std::vector<kube::ObjectPtr> some = part->jobs.All();
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return all;
}

void JobCache::Start() {
  for (const auto& [ns, part] : parts_) part->jobs.Start();
}

void JobCache::Stop() {
  for (const auto& [ns, part] : parts_) part->jobs.Stop();
}

bool JobCache::WaitForSync(absl::Duration patience) {
  return std::all_of(parts_.begin(), parts_.end(), [&](const auto& entry) { return entry.second->jobs.WaitForSync(patience); });
}

void JobCache::Wrote(const kube::ObjectKey& key, const std::string& resource_version) {
  if (Part* const part = Of(key.ns); part != nullptr) part->writes.Wrote(key, resource_version);
}

bool JobCache::SeenWrites(const kube::ObjectKey& key) {
  Part* const part = Of(key.ns);
  return part == nullptr || part->writes.Seen(key);
}

void JobCache::TouchAll() const {
  for (const kube::ObjectPtr& job : Objects()) changed_(job->meta.Key(), /*urgent=*/false);
}

absl::Status JobCache::CompareWithServer(std::stop_token stop) {
  absl::Status first;
  for (const auto& [ns, part] : parts_) {
    const absl::StatusOr<bool> same = part->jobs.IsConsistent({.timeout = absl::Minutes(2), .stop = stop});
    first.Update(same.status());
    if (!same.ok() || *same) continue;
    base::Log(base::LogLevel::kError, "the cache of FusionJobs is not what the server has; listing anew");
    part->jobs.StartOver();
  }
  return first;
}

std::vector<kube::ObjectKey> JobCache::ShortOfRoom() const {
  std::vector<kube::ObjectKey> keys;
  for (const kube::ObjectPtr& object : Objects()) {
    const kubeapi::FusionJobStatus& status = static_cast<const JobObject&>(*object).view->status;
    const kubeapi::Condition* const dispatched = kubeapi::FindCondition(status.conditions, kubeapi::kDispatched);
    if (dispatched == nullptr || kubeapi::IsFinished(status.conditions)) continue;
    const bool whole = dispatched->status == kubeapi::ConditionStatus::kTrue && dispatched->reason != kFewerDispatched;
    if (!whole) keys.push_back(object->meta.Key());
  }
  return keys;
}

std::shared_ptr<const JobView> JobCache::Find(const kube::ObjectKey& key) const {
  const Part* const part = Of(key.ns);
  const kube::ObjectPtr found = part == nullptr ? nullptr : part->jobs.Get(key);
  return found == nullptr ? nullptr : static_cast<const JobObject&>(*found).view;
}

std::vector<std::shared_ptr<const JobView>> JobCache::All() const {
  std::vector<std::shared_ptr<const JobView>> views;
  for (const kube::ObjectPtr& job : Objects()) views.push_back(static_cast<const JobObject&>(*job).view);
  return views;
}

}  // namespace fusionllm::op
