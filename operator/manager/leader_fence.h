// The lead of this process, as a fence for what it writes.
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "lib/base/mutex.h"
#include "lib/kube/lease/leader_elector.h"
#include "operator/controller/fence.h"

namespace fusionllm::op::manager {

class LeaderFence : public controller::Fence {
 public:
  // `on_lost` is called when an object shows that another leads; as that of the elector it should end the process. `elector` must outlive
  // the fence.
  LeaderFence(kube::LeaderElector& elector, std::function<void(const std::string& why)> on_lost)
      : elector_(elector), on_lost_(std::move(on_lost)) {}

  // For kube::FencedClient: OK while the lead is held, by this process's own clock.
  absl::Status MayWrite() const;

  int64_t epoch() const override;
  absl::Status OnHigherEpoch(int64_t other, std::stop_token stop) override;

 private:
  kube::LeaderElector& elector_;
  const std::function<void(const std::string& why)> on_lost_;
  mutable base::Mutex mutex_;
  int64_t above_ ABSL_GUARDED_BY(mutex_) = 0;  // what the Lease counts is too low by so much: somebody deleted it, and it began again
};

}  // namespace fusionllm::op::manager
