#include "operator/manager/stop_jobs.h"

#include <condition_variable>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/kube/api/api_error.h"
#include "operator/cache/job_cache.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::manager {
namespace {

constexpr absl::Duration kTryAgain = absl::Seconds(2);
constexpr size_t kMaxNamed = 10;
// Not the operator's: what it says of spec is its user's, and would be taken back by the next operator otherwise.
constexpr char kManager[] = "fusion-operator-uninstall";

bool IsStopped(const cache::JobView& job, StopMode how) {
  if (!job.ours) return true;
  if (how == StopMode::kDelete || job.deleted_at.has_value()) return false;  // until it is gone
  if (kubeapi::IsFinished(job.status.conditions)) return true;
  const kubeapi::Condition* const suspended = kubeapi::FindCondition(job.status.conditions, "Suspended");
  // Said of this very spec: of a job that was suspended before and resumed the operator may not have said anything yet.
  return job.suspend() && suspended != nullptr && suspended->status == kubeapi::ConditionStatus::kTrue &&
         suspended->observed_generation >= job.generation;
}

class Stopper {
 public:
  Stopper(kube::ApiClient& hub, kube::Clock& clock, const StopJobsOptions& options)
      : hub_(hub), clock_(clock), options_(options), jobs_(options.namespaces, "", "", hub, clock, nullptr, [this](const auto&, bool) {
          const base::MutexLock lock(mutex_);
          news_ = true;
          changed_.notify_all();
        }) {}
  ~Stopper() { jobs_.Stop(); }

  absl::Status Run(const std::stop_token& stop) {
    const absl::Duration deadline = clock_.Monotonic() + options_.timeout;
    jobs_.Start();
    if (!jobs_.WaitForSync(options_.timeout)) return absl::DeadlineExceededError("cannot list FusionJobs; the log says why");
    while (true) {
      std::vector<std::string> running;
      for (const std::shared_ptr<const cache::JobView>& job : jobs_.All()) {
        if (IsStopped(*job, options_.how)) continue;
        running.push_back(absl::StrCat(job->identity.ns, "/", job->identity.name));
        if (!job->deleted_at.has_value() && !asked_.contains(job->resource_version)) Ask(*job, stop);
      }
      if (running.empty()) return absl::OkStatus();
      if (stop.stop_requested()) return absl::CancelledError("asked to end before all jobs were stopped");
      if (clock_.Monotonic() >= deadline) return TooLate(std::move(running));
      base::UniqueLock lock(mutex_);
      const absl::Duration next = std::min(deadline, clock_.Monotonic() + kTryAgain);
      while (!news_ && !stop.stop_requested() && clock_.Monotonic() < next) clock_.WaitUntil(lock, changed_, next);
      news_ = false;
    }
  }

 private:
  void Ask(const cache::JobView& job, const std::stop_token& stop) {
    const kube::ObjectKey key{job.identity.ns, job.identity.name};
    const bool suspend = options_.how == StopMode::kSuspend;
    if (suspend && job.suspend()) return;  // it is for the operator now
    const absl::StatusOr<std::string> answer = suspend
                                                   ? hub_.Patch(manifests::kFusionJobs, key, kube::PatchType::kMerge,
                                                                R"({"spec":{"suspend":true}})", {.field_manager = kManager}, {.stop = stop})
                                                   : hub_.Delete(manifests::kFusionJobs, key, {.uid = job.identity.uid}, {.stop = stop});
    if (answer.ok()) {
      base::Log(base::LogLevel::kInfo, absl::StrCat(suspend ? "suspends " : "deletes ", key.ns, "/", key.name));
      asked_.insert(job.resource_version);
    } else if (!kube::IsApiNotFound(answer.status())) {
      refusal_ = absl::StrCat("; the last refusal, of ", key.ns, "/", key.name, ": ", std::string(answer.status().message()));
    }
  }

  absl::Status TooLate(std::vector<std::string> running) const {
    const size_t all = running.size();
    if (all > kMaxNamed) running.resize(kMaxNamed);
    return absl::DeadlineExceededError(absl::StrCat(all, " jobs are not stopped after ", absl::FormatDuration(options_.timeout), ": ",
                                                    absl::StrJoin(running, ", "), all > kMaxNamed ? ", ..." : "", refusal_));
  }

  kube::ApiClient& hub_;
  kube::Clock& clock_;
  const StopJobsOptions& options_;
  base::Mutex mutex_;
  std::condition_variable changed_;
  bool news_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::string> asked_;  // versions of jobs that were asked to, and that the cache may still show
  std::string refusal_;
  cache::JobCache jobs_;
};

}  // namespace

absl::Status StopJobs(kube::ApiClient& hub, kube::Clock& clock, const StopJobsOptions& options, std::stop_token stop) {
  return Stopper(hub, clock, options).Run(stop);
}

}  // namespace fusionllm::op::manager
