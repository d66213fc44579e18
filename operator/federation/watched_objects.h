// Objects of one kind that are known by their names, as Secrets with the credentials of members are: each is watched by its name, of which
// only the metadata are sent, and read when it has changed. No object of another name is asked for.
//
// Where there is no watch, because it is not open yet or is not allowed, an object is read whenever somebody asks. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"
#include "lib/kube/watch/informer_metrics.h"

namespace fusionllm::op::federation {

class WatchedObjects {
 public:
  // `changed`: an object may be another than when it was read last, or be gone; must not block. What is passed by reference, and `metrics`
  // (which may be null), must outlive it.
  WatchedObjects(kube::ApiClient& api, kube::Clock& clock, const kube::InformerMetrics* metrics, kube::Resource resource,
                 std::function<void(const kube::ObjectKey&)> changed);
  ~WatchedObjects();
  WatchedObjects(const WatchedObjects&) = delete;
  WatchedObjects& operator=(const WatchedObjects&) = delete;

  // The JSON of the object as it is now; it is watched from then on. Blocks when it must be asked for. Errors: the server's.
  absl::StatusOr<std::string> Read(const kube::ObjectKey& key, std::stop_token stop);
  // Whether the last Read() need not be repeated until `changed` says so.
  bool Watches(const kube::ObjectKey& key) const;
  // Others are watched no more. Blocks for the moment that takes.
  void RetainOnly(const std::set<kube::ObjectKey>& keys);

 private:
  class Watch;
  std::shared_ptr<Watch> Of(const kube::ObjectKey& key);

  kube::ApiClient& api_;
  kube::Clock& clock_;
  const kube::InformerMetrics* const metrics_;
  const kube::Resource resource_;
  const std::function<void(const kube::ObjectKey&)> changed_;
  mutable base::Mutex mutex_;
  std::map<kube::ObjectKey, std::shared_ptr<Watch>> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::op::federation
