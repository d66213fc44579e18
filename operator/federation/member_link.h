// The connection to one member cluster: a client, caches, a queue and workers of its own, so that a member that hangs holds up no other.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "lib/kube/client/rest_client.h"
#include "lib/kube/clock.h"
#include "lib/kube/queue/controller.h"
#include "operator/members/cluster_cache.h"

namespace fusionllm::op {

// What all members share. Everything must outlive them.
struct MemberContext {
  std::string origin;
  kube::Clock* clock = nullptr;
  const kube::InformerMetrics* informer_metrics = nullptr;
  kube::QueueMetrics* queue_metrics = nullptr;
  kube::ControllerMetrics* controller_metrics = nullptr;
  kube::Controller::Reconcile reconcile;  // for keys of members
  // A job has pods or an anchor in a member, and they have changed: its hub's part wants a look.
  JobChanged changed;
};

class MemberLink : public Member {
 public:
  // Starts at once.
  MemberLink(std::string name, std::unique_ptr<kube::ApiClient> client, const MemberContext& context);
  ~MemberLink() override { Stop(); }

  // Ends its threads. Before the last reference goes: that may be held by a worker, which cannot wait for itself.
  void Stop();

  // Asks for a look at a job's part here.
  void Poke(const kube::ObjectKey& job);
  // Not connected, and why; OK: its caches are complete and its watches alive.
  absl::Status Connection() const { return cache_.Connection(); }

  const std::string& name() const override { return name_; }
  bool reachable() const override { return cache_.reachable(); }
  kube::ApiClient& client() const override { return *client_; }
  std::vector<PodView> PodsOf(const std::string& job_uid) const override { return cache_.PodsOf(job_uid); }
  std::optional<AnchorView> AnchorOf(const std::string& job_uid) const override { return cache_.AnchorOf(job_uid); }

 private:
  const std::string name_;
  const std::unique_ptr<kube::ApiClient> client_;
  kube::WorkQueue queue_;
  ClusterCache cache_;
  std::mutex stop_mutex_;
  std::unique_ptr<kube::Controller> controller_;  // null once stopped
};

}  // namespace fusionllm::op
