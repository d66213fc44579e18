#include "operator/reconcile/job_cache.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "operator/manifests/resources.h"

namespace fusionllm::op {
namespace {

struct JobObject : kube::Object {
  std::shared_ptr<const JobView> view;
};

absl::StatusOr<kube::ObjectPtr> DecodeJob(absl::string_view text, const std::string& origin) {
  auto decoded = kube::DecodeMetadata(text);
  if (!decoded.ok()) return decoded.status();
  auto view = ReadJob(nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false), origin);
  if (!view.ok()) return view.status();
  auto job = std::make_shared<JobObject>();
  job->meta = (*decoded)->meta;
  job->view = std::make_shared<const JobView>(*std::move(view));
  return job;
}

}  // namespace

JobCache::JobCache(const std::string& origin, kube::ApiClient& client, kube::Clock& clock, const kube::InformerMetrics* metrics,
                   JobChanged changed)
    : jobs_(client, clock, metrics,
            {.scope = {.resource = kFusionJobs}, .decode = [origin](absl::string_view text) { return DecodeJob(text, origin); }}) {
  jobs_.AddHandler([changed = std::move(changed)](const kube::InformerEvent& event) {
    changed(event.object->meta.Key(), !event.initial && !event.resync);
  });
}

std::shared_ptr<const JobView> JobCache::Find(const kube::ObjectKey& key) const {
  const kube::ObjectPtr found = jobs_.Get(key);
  return found == nullptr ? nullptr : static_cast<const JobObject&>(*found).view;
}

}  // namespace fusionllm::op
