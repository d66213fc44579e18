#include "operator/federation/member_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace fusionllm::op {
namespace {

constexpr int kWorkers = 2;
constexpr absl::Duration kStopPatience = absl::Seconds(1);

}  // namespace

MemberLink::MemberLink(std::string name, std::unique_ptr<kube::ApiClient> client, const MemberContext& context)
    : name_(std::move(name)),
      client_(std::move(client)),
      queue_(absl::StrCat("member-", name_), *context.clock, context.queue_metrics),
      cache_(name_, context.origin, *client_, *context.clock, context.informer_metrics,
             [this, changed = context.changed](const kube::ObjectKey& job, bool urgent) {
               Poke(job);
               changed(job, urgent);
             }) {
  kube::Controller::Options options{.workers = kWorkers};
  options.report = [](const kube::WorkKey& key, const absl::Status& status) {
    base::Log(base::LogLevel::kWarning, absl::StrCat("job ", key.ToString(), ": ", std::string(status.message())));
  };
  controller_ = std::make_unique<kube::Controller>(queue_, *context.clock, context.controller_metrics, context.reconcile, options);
  cache_.Start();
}

void MemberLink::Stop() {
  const std::lock_guard lock(stop_mutex_);
  if (controller_ == nullptr) return;
  cache_.Stop();
  controller_->Stop(kStopPatience);
  controller_.reset();
}

void MemberLink::Poke(const kube::ObjectKey& job) { queue_.Add({name_, job.ns, job.name}); }

}  // namespace fusionllm::op
