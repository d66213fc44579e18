// What clusters say in the events of Pods that do not start, of which the Pods themselves say nothing: a volume that cannot be mounted, a
// network that cannot be set up.
//
// Shared by the parts of a job, of which the hub's alone writes the status. In memory alone: what is not here is asked for again.
// Thread-safe.
#pragma once

#include <map>
#include <stop_token>
#include <string>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "operator/cache/member.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op::controller {

class PodEvents {
 public:
  // A Pod that has not started for so long is asked about, and again after as long.
  static constexpr absl::Duration kAskAfter = absl::Seconds(20);
  // Of one job in one cluster, at a time: each is a question to an API server.
  static constexpr size_t kMaxPods = 4;

  struct Answer {
    bool changed = false;                                     // something is said that was not
    absl::Duration requeue_after = absl::InfiniteDuration();  // when a Pod is to be asked about next
  };
  // Asks about the Pods of `here`, one of `seen.clusters`, that is due, and gives all Pods of `seen` the reason and words that are known of
  // them, where they have none. A server that may not be asked has said nothing. Blocks on the API server.
  Answer Observe(cache::Member& member, const lifecycle::ClusterView& here, lifecycle::Observation& seen, const std::stop_token& stop);
  void Forget(const std::string& job_uid);

 private:
  struct Said {
    absl::Time asked;
    std::string reason, message;
  };
  using ByPod = std::map<std::string, Said>;  // by uid

  // What is known of each Pod of that cluster that waits, with those asked about just now.
  ByPod Ask(cache::Member& member, const lifecycle::ClusterView& here, const lifecycle::Observation& seen, ByPod known, Answer& answer,
            const std::stop_token& stop);

  base::Mutex mutex_;
  std::map<std::string, std::map<std::string, ByPod>> said_ ABSL_GUARDED_BY(mutex_);  // by job uid, then by cluster
};

}  // namespace fusionllm::op::controller
