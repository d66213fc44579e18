#include "operator/cache/job_cache.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/base/json_text.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/kube/watch/strip_fields.h"
#include "operator/lifecycle/decide.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::cache {
struct JobHub {
  JobHub(std::string origin, std::string uid) : origin(std::move(origin)), uid(std::move(uid)) {}
  const std::string origin, uid;
  std::atomic<bool> listed = false;  // the first list has come
};

namespace {

// While the first list comes, the job is read when somebody asks for it first: a thousand of them, by the one thread that lists them, would
// hold up an operator that starts by a third of a second, and those who work on jobs are several. Later it is read at once: texts
// that come and go among what stays leave holes in memory (docs/results/operator.md).
class JobObject : public kube::Object {
 public:
  JobObject(const kube::ObjectMeta& of, std::shared_ptr<const JobHub> hub) : hub_(std::move(hub)) {
    meta = of;
    meta.DropLabels();
  }

  void ReadLater(std::string text) { text_ = std::move(text); }
  void ReadNow(absl::string_view text) const {
    std::call_once(once_, [&] { Read(text); });
  }
  std::shared_ptr<const JobView> View() const {
    std::call_once(once_, [this] {
      Read(text_);
      text_ = std::string();
    });
    return view_;
  }

 private:
  void Read(absl::string_view text) const {
    const nlohmann::json object = base::ParseJson(text);
    absl::StatusOr<JobView> view = ReadJob(object, hub_->origin, hub_->uid);
    if (!view.ok()) {
      view = JobView{.job = view.status(), .ending = std::make_shared<const job::FusionJob>()};
      view->identity = {.name = meta.name, .ns = meta.ns, .uid = meta.uid, .origin = hub_->origin, .hub = hub_->uid};
    }
    view_ = std::make_shared<const JobView>(*std::move(view));
  }

  mutable std::once_flag once_;
  mutable std::string text_;  // until it is read
  mutable std::shared_ptr<const JobView> view_;
  const std::shared_ptr<const JobHub> hub_;
};

const JobObject& AsJob(const kube::ObjectPtr& object) { return static_cast<const JobObject&>(*object); }

absl::StatusOr<kube::ObjectPtr> DecodeJob(absl::string_view text, const std::shared_ptr<const JobHub>& hub) {
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ObjectPtr decoded, kube::DecodeMetadata(text));
  if (decoded->meta.uid.empty()) return absl::InvalidArgumentError("a FusionJob without uid");
  auto job = std::make_shared<JobObject>(decoded->meta, hub);
  if (hub->listed) {
    job->ReadNow(text);
    return job;
  }
  FUSIONLLM_ASSIGN_OR_RETURN(std::string lean, kube::StripFields(text));
  job->ReadLater(std::move(lean));
  return job;
}

}  // namespace

JobCache::JobCache(const std::vector<std::string>& namespaces, const std::string& origin, const std::string& hub, kube::ApiClient& client,
                   kube::Clock& clock, const kube::InformerMetrics* metrics, JobChanged changed)
    : hub_(std::make_shared<JobHub>(origin, hub)), changed_(std::move(changed)) {
  const kube::DecodeObject decode = [hub = hub_](absl::string_view text) { return DecodeJob(text, hub); };
  for (const std::string& ns : namespaces.empty() ? std::vector<std::string>{""} : namespaces) {
    auto [at, added] = parts_.emplace(ns, nullptr);
    if (!added) continue;
    at->second = std::make_unique<Part>(client, clock, metrics,
                                        kube::Informer::Options{.scope = {.resource = manifests::kFusionJobs, .ns = ns}, .decode = decode});
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

bool JobCache::WaitForSync(absl::Duration timeout) {
  const bool all = std::all_of(parts_.begin(), parts_.end(), [&](const auto& entry) { return entry.second->jobs.WaitForSync(timeout); });
  if (all) hub_->listed = true;
  return all;
}

void JobCache::Wrote(const kube::ObjectKey& key, const std::string& resource_version) {
  if (Part* const part = Of(key.ns); part != nullptr) part->writes.Wrote(key, resource_version);
}

bool JobCache::SeenWrites(const kube::ObjectKey& key) {
  Part* const part = Of(key.ns);
  return part == nullptr || part->writes.Seen(key);
}

void JobCache::ResyncAll() const {
  for (const kube::ObjectPtr& job : Objects()) changed_(job->meta.Key(), /*urgent=*/false);
}

absl::Status JobCache::CompareWithServer(std::stop_token stop) {
  absl::Status first;
  for (const auto& [ns, part] : parts_) {
    const absl::StatusOr<bool> same = part->jobs.IsConsistent({.timeout = absl::Minutes(2), .stop = stop});
    first.Update(same.status());
    if (!same.ok() || *same) continue;
    base::Log(base::LogLevel::kError, "the cache of FusionJobs is not what the server has; listing again");
    part->jobs.Relist();
  }
  return first;
}

std::vector<kube::ObjectKey> JobCache::JobsShortOfCapacity() const {
  std::vector<kube::ObjectKey> keys;
  for (const kube::ObjectPtr& object : Objects()) {
    const kubeapi::FusionJobStatus& status = AsJob(object).View()->status;
    const kubeapi::Condition* const dispatched = kubeapi::FindCondition(status.conditions, kubeapi::kScheduled);
    if (dispatched == nullptr || kubeapi::IsFinished(status.conditions)) continue;
    const bool whole = dispatched->status == kubeapi::ConditionStatus::kTrue && dispatched->reason != lifecycle::kPartiallyScheduled;
    if (!whole) keys.push_back(object->meta.Key());
  }
  return keys;
}

std::shared_ptr<const JobView> JobCache::Find(const kube::ObjectKey& key) const {
  const Part* const part = Of(key.ns);
  const kube::ObjectPtr found = part == nullptr ? nullptr : part->jobs.Get(key);
  return found == nullptr ? nullptr : AsJob(found).View();
}

std::vector<std::shared_ptr<const JobView>> JobCache::All() const {
  std::vector<std::shared_ptr<const JobView>> views;
  for (const kube::ObjectPtr& job : Objects()) views.push_back(AsJob(job).View());
  return views;
}

}  // namespace fusionllm::op::cache
