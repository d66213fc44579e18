#include "operator/reconcile/job_cache.h"

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

JobCache::JobCache(const std::string& origin, const std::string& hub, kube::ApiClient& client, kube::Clock& clock,
                   const kube::InformerMetrics* metrics, JobChanged changed)
    : changed_(std::move(changed)),
      jobs_(client, clock, metrics,
            {.scope = {.resource = kFusionJobs}, .decode = [origin, hub](absl::string_view text) { return DecodeJob(text, origin, hub); }}),
      writes_(jobs_, clock) {
  jobs_.AddHandler([this](const kube::InformerEvent& event) { changed_(event.object->meta.Key(), !event.initial && !event.resync); });
}

void JobCache::TouchAll() const {
  for (const kube::ObjectPtr& job : jobs_.All()) changed_(job->meta.Key(), /*urgent=*/false);
}

absl::Status JobCache::CompareWithServer(std::stop_token stop) {
  const absl::StatusOr<bool> same = jobs_.IsConsistent({.timeout = absl::Minutes(2), .stop = std::move(stop)});
  if (!same.ok()) return same.status();
  if (!*same) {
    base::Log(base::LogLevel::kError, "the cache of FusionJobs is not what the server has; listing anew");
    jobs_.StartOver();
  }
  return absl::OkStatus();
}

std::vector<kube::ObjectKey> JobCache::ShortOfRoom() const {
  std::vector<kube::ObjectKey> keys;
  for (const kube::ObjectPtr& object : jobs_.All()) {
    const kubeapi::FusionJobStatus& status = static_cast<const JobObject&>(*object).view->status;
    const kubeapi::Condition* const dispatched = kubeapi::FindCondition(status.conditions, kubeapi::kDispatched);
    if (dispatched == nullptr || kubeapi::IsFinished(status.conditions)) continue;
    const bool whole = dispatched->status == kubeapi::ConditionStatus::kTrue && dispatched->reason != kFewerDispatched;
    if (!whole) keys.push_back(object->meta.Key());
  }
  return keys;
}

std::shared_ptr<const JobView> JobCache::Find(const kube::ObjectKey& key) const {
  const kube::ObjectPtr found = jobs_.Get(key);
  return found == nullptr ? nullptr : static_cast<const JobObject&>(*found).view;
}

std::vector<std::shared_ptr<const JobView>> JobCache::All() const {
  std::vector<std::shared_ptr<const JobView>> views;
  for (const kube::ObjectPtr& job : jobs_.All()) views.push_back(static_cast<const JobObject&>(*job).view);
  return views;
}

}  // namespace fusionllm::op
