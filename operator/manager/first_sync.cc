#include "operator/manager/first_sync.h"

namespace fusionllm::op::manager {
namespace {

constexpr absl::Duration kStopCheckPeriod = absl::Milliseconds(100);

}  // namespace

bool AwaitFirstSync(std::initializer_list<WaitForSync> caches, const std::stop_token& stop, kube::Clock& clock) {
  const absl::Duration deadline = clock.Monotonic() + kSyncTimeout;
  for (const WaitForSync& complete : caches) {
    while (!complete(kStopCheckPeriod)) {
      if (stop.stop_requested() || clock.Monotonic() >= deadline) return false;
    }
  }
  return !stop.stop_requested();
}

}  // namespace fusionllm::op::manager
