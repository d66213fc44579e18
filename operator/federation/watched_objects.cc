#include "operator/federation/watched_objects.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/watch/reflector.h"

namespace fusionllm::op::federation {
namespace {

// What is watched is read again after this long all the same: a watch that brings nothing may be one that does not work.
constexpr absl::Duration kTrustFor = absl::Minutes(5);

}  // namespace

class WatchedObjects::Watch : private kube::ReflectorSink {
 public:
  Watch(const WatchedObjects& all, const kube::ObjectKey& key)
      : all_(all),
        key_(key),
        reflector_(
            all.api_, all.clock_,
            {.resource = all.resource_, .ns = key.ns, .field_selector = absl::StrCat("metadata.name=", key.name), .metadata_only = true},
            kube::DecodeMetadata, *this,
            all.metrics_ == nullptr ? kube::InformerMetrics::Recorder() : all.metrics_->Of("", all.resource_.Name())),
        thread_([this](std::stop_token stop) { reflector_.Run(std::move(stop)); }) {}

  void RequestStop() { thread_.request_stop(); }

  bool Current() const {
    const base::MutexLock lock(mutex_);
    return CurrentLocked();
  }

  absl::StatusOr<std::string> Read(std::stop_token stop) {
    {
      const base::MutexLock lock(mutex_);
      if (CurrentLocked()) return text_;
    }
    const absl::Duration asked_at = all_.clock_.Monotonic();
    absl::StatusOr<std::string> answer = all_.api_.Get(all_.resource_, key_, {.stop = std::move(stop)});
    const base::MutexLock lock(mutex_);
    if (answer.ok()) {
      text_ = *answer;
      version_ = kube::TextAt(kube::ParseJson(text_), "metadata", "resourceVersion");
      read_at_ = asked_at;
    } else if (kube::IsApiNotFound(answer.status())) {
      text_.clear();
      version_.reset();
    }
    return answer;
  }

 private:
  bool CurrentLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return open_ && version_.has_value() && version_ == seen_ && all_.clock_.Monotonic() - read_at_ < kTrustFor;
  }
  // `version`: empty: it is not there.
  void See(const std::string& version) {
    {
      const base::MutexLock lock(mutex_);
      seen_ = version;
      if (version_ == version) return;
    }
    all_.changed_(key_);
  }
  void Replace(std::vector<kube::ObjectPtr> objects, const std::vector<kube::ObjectKey>& unreadable, const std::string&) override {
    for (const kube::ObjectPtr& object : objects) {
      if (object->meta.Key() == key_) return See(object->meta.resource_version);
    }
    if (unreadable.empty()) See("");
  }
  void Apply(kube::WatchEventType type, kube::ObjectPtr object) override {
    if (object->meta.Key() == key_) See(type == kube::WatchEventType::kDeleted ? "" : object->meta.resource_version);
  }
  void Advance(const std::string&) override {}
  void Watching(bool open, const absl::Status& why) override {
    const base::MutexLock lock(mutex_);
    open_ = open;
    if (why.ok() || why.message() == complaint_) return;
    complaint_ = std::string(why.message());
    base::Log(base::LogLevel::kInfo, absl::StrCat("no watch of ", all_.resource_.kind, " ", key_.ToString(),
                                                  ", which is read from time to time instead: ", complaint_));
  }

  const WatchedObjects& all_;
  const kube::ObjectKey key_;
  mutable base::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  std::string complaint_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> seen_ ABSL_GUARDED_BY(mutex_);     // by the watch; empty: it is not there
  std::optional<std::string> version_ ABSL_GUARDED_BY(mutex_);  // of text_
  std::string text_ ABSL_GUARDED_BY(mutex_);
  absl::Duration read_at_ ABSL_GUARDED_BY(mutex_);
  kube::Reflector reflector_;
  std::jthread thread_;  // last: it calls the rest
};

WatchedObjects::WatchedObjects(kube::ApiClient& api, kube::Clock& clock, const kube::InformerMetrics* metrics, kube::Resource resource,
                               std::function<void(const kube::ObjectKey&)> changed)
    : api_(api), clock_(clock), metrics_(metrics), resource_(std::move(resource)), changed_(std::move(changed)) {}

WatchedObjects::~WatchedObjects() { RetainOnly({}); }

std::shared_ptr<WatchedObjects::Watch> WatchedObjects::Of(const kube::ObjectKey& key) {
  const base::MutexLock lock(mutex_);
  std::shared_ptr<Watch>& watch = watches_[key];
  if (watch == nullptr) watch = std::make_shared<Watch>(*this, key);
  return watch;
}

absl::StatusOr<std::string> WatchedObjects::Read(const kube::ObjectKey& key, std::stop_token stop) {
  return Of(key)->Read(std::move(stop));
}

bool WatchedObjects::Watches(const kube::ObjectKey& key) const {
  const base::MutexLock lock(mutex_);
  const auto at = watches_.find(key);
  return at != watches_.end() && at->second->Current();
}

void WatchedObjects::RetainOnly(const std::set<kube::ObjectKey>& keys) {
  std::vector<std::shared_ptr<Watch>> gone;  // ended outside of the lock
  {
    const base::MutexLock lock(mutex_);
    std::erase_if(watches_, [&](const auto& entry) {
      if (keys.contains(entry.first)) return false;
      entry.second->RequestStop();
      gone.push_back(entry.second);
      return true;
    });
  }
}

}  // namespace fusionllm::op::federation
