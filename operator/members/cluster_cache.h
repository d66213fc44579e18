// The pods and anchors of one cluster, cached by informers, with the client to write there.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lib/kube/watch/informer.h"
#include "operator/members/member.h"

namespace fusionllm::op {

// Called on a thread of the cache for each change of a pod or an anchor, with the job that it belongs to.
using JobChanged = std::function<void(const kube::ObjectKey& job, bool urgent)>;

class ClusterCache : public Member {
 public:
  // Watches end and begin again as a matter of course.
  static constexpr absl::Duration kLossPatience = absl::Seconds(30);

  // Only objects with this origin are read. `client`, `clock` and `metrics` (which may be null) must outlive it.
  ClusterCache(std::string name, const std::string& origin, kube::ApiClient& client, kube::Clock& clock,
               const kube::InformerMetrics* metrics, JobChanged changed);

  void Start();
  void Stop();
  // Blocks until the first lists are in the cache. False: not within `patience`.
  bool WaitForSync(absl::Duration patience);
  // OK: the first lists are in the cache and watches are alive, or were within kLossPatience. Else why not: Unauthenticated or
  // PermissionDenied if the server refuses us, Unavailable in all other cases.
  absl::Status Connection() const;

  const std::string& name() const override { return name_; }
  bool reachable() const override { return Connection().ok(); }
  kube::ApiClient& client() const override { return client_; }
  std::vector<PodView> PodsOf(const std::string& job_uid) const override;
  std::optional<AnchorView> AnchorOf(const std::string& job_uid) const override;

 private:
  const std::string name_;
  kube::ApiClient& client_;
  kube::Clock& clock_;
  mutable std::mutex mutex_;
  mutable std::optional<absl::Duration> lost_at_;  // no watch since then
  kube::Informer pods_, anchors_;
};

}  // namespace fusionllm::op
