#include "operator/manager/hub_cleanup.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace fusionllm::op::manager {
namespace {

void LogUncompared(const absl::Status& status) {
  if (!status.ok()) base::Log(base::LogLevel::kDebug, absl::StrCat("caches of the hub not compared: ", std::string(status.message())));
}

}  // namespace

HubCleanup::HubCleanup(std::function<void()> forget_expired, cache::ClusterCache& hub, cache::JobCache& jobs,
                       controller::OrphanCollector& collector, kube::Clock& clock)
    : forget_expired_(std::move(forget_expired)),
      hub_(hub),
      jobs_(jobs),
      collector_(collector),
      clock_(clock),
      compare_at_(clock.Monotonic() + cache::ClusterCache::kCompareEvery) {}

kube::ReconcileResult HubCleanup::RunPeriodicCleanup(const std::stop_token& stop) {
  forget_expired_();
  if (clock_.Monotonic() >= compare_at_) {
    compare_at_ = clock_.Monotonic() + cache::ClusterCache::kCompareEvery;
    LogUncompared(hub_.CompareWithServer(stop));
    LogUncompared(jobs_.CompareWithServer(stop));
  }
  return collector_.Collect(hub_, stop);
}

}  // namespace fusionllm::op::manager
