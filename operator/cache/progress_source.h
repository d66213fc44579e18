// What brokers tell of their runs, as those see it who reconcile jobs.
#pragma once

#include <optional>
#include <string>

#include "lib/kube/queue/work_key.h"
#include "operator/lifecycle/progress.h"

namespace fusionllm::op::cache {

// Thread-safe.
class ProgressSource {
 public:
  virtual ~ProgressSource() = default;
  // The newest known, and from now on kept fresh from HOST:PORT `address`. Does not block.
  virtual std::optional<lifecycle::Progress> Follow(const kube::WorkKey& job, const std::string& uid, const std::string& address) = 0;
  virtual void Forget(const std::string& uid) = 0;
};

}  // namespace fusionllm::op::cache
