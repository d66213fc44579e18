// Asks the brokers of running jobs where they stand, every so often, and says when that has changed, and what has happened.
//
// One thread asks one broker after the other with a short deadline each. One that has kept it waiting and has not answered is left alone
// for a while, each time for twice as long: brokers of a node that is gone do not make the word of others late. What a pod answers is not
// trusted (progress.h). Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "lib/kube/clock.h"
#include "lib/kube/queue/work_key.h"
#include "operator/progress/progress.h"
#include "operator/reconcile/job_reconciler.h"

namespace fusionllm::op {

class ProgressWatch : public ProgressSource {
 public:
  // GET http://ADDRESS/progress: the body, or why there is none. Blocks, with a deadline of its own.
  using Fetch = std::function<absl::StatusOr<std::string>(const std::string& address)>;
  using Changed = std::function<void(const kube::WorkKey& job)>;
  // A page of the job's broker, as it is. Called on the thread that asks.
  using Told = std::function<void(const kube::WorkKey& job, const std::string& page)>;

  // What has happened in the job's run, each event once (run_events.h). On that thread, too.
  using Happened = std::function<void(const kube::WorkKey& job, const std::string& uid, const RunEvent& event)>;

  static constexpr absl::Duration kEvery = absl::Seconds(5);
  static constexpr absl::Duration kSlow = absl::Seconds(1), kLongestPause = absl::Minutes(1);

  ProgressWatch(kube::Clock& clock, Fetch fetch, Changed changed, Told told = {}, Happened happened = {});
  ~ProgressWatch() override;

  std::optional<Progress> Follow(const kube::WorkKey& job, const std::string& uid, const std::string& address) override;
  void Forget(const std::string& uid) override;

 private:
  struct Followed {
    kube::WorkKey job;
    std::string address;
    std::optional<Progress> newest;
    int64_t told_event = 0;  // the last one; 0: nothing has been asked yet
    absl::Duration pause;    // the last one
    absl::Time not_before = absl::InfinitePast();
  };
  void Run(const std::stop_token& stop);
  void Ask(const std::string& uid);

  kube::Clock& clock_;
  const Fetch fetch_;
  const Changed changed_;
  const Told told_;
  const Happened happened_;
  std::mutex mutex_;
  std::map<std::string, Followed> followed_;  // by uid
  std::jthread thread_;
};

}  // namespace fusionllm::op
