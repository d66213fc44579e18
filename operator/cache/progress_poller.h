// Asks the brokers of running jobs where they stand, every so often, and says when that has changed, and what has happened.
//
// A few threads ask one broker after the other with a short deadline each, no more than half of them those of one namespace at a time. One
// that has kept them waiting is left alone for a while, for many times as long as it took, and from kSlow on each time for twice as long,
// whether it has answered in the end or not: neither brokers of a node that is gone nor a tenant's slow pages make the word of others late.
// What a pod answers is not trusted (progress.h). Thread-safe; what it is given is called by several threads at once.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/clock.h"
#include "lib/kube/queue/work_key.h"
#include "operator/cache/progress_source.h"
#include "operator/lifecycle/run_events.h"

namespace fusionllm::op::cache {

class ProgressPoller : public ProgressSource {
 public:
  // GET http://ADDRESS/progress: the body, or why there is none. Blocks, with a deadline of its own.
  using Fetch = std::function<absl::StatusOr<std::string>(const std::string& address)>;
  using Changed = std::function<void(const kube::WorkKey& job)>;
  // A page of the job's broker, as it is. Called on a thread that asks.
  using PageHandler = std::function<void(const kube::WorkKey& job, const std::string& page)>;

  // What has happened in the job's run, each event once (run_events.h). On such a thread, too.
  using EventHandler = std::function<void(const kube::WorkKey& job, const std::string& uid, const lifecycle::RunEvent& event)>;

  static constexpr absl::Duration kEvery = absl::Seconds(5);
  static constexpr absl::Duration kSlow = absl::Seconds(1), kMaxBackoff = absl::Minutes(1);
  static constexpr int kBackoffFactor = 20;  // how many times as long as its answer took it is not asked at the least
  static constexpr int kThreads = 4;         // pages that are waited for at a time

  ProgressPoller(kube::Clock& clock, Fetch fetch, Changed changed, PageHandler on_page = {}, EventHandler happened = {},
                 int threads = kThreads);
  ~ProgressPoller() override;

  std::optional<lifecycle::Progress> Follow(const kube::WorkKey& job, const std::string& uid, const std::string& address) override;
  void Forget(const std::string& uid) override;

 private:
  struct Followed {
    kube::WorkKey job;
    std::string address;
    std::optional<lifecycle::Progress> newest;
    int64_t last_event = 0;  // the last one; 0: nothing has been asked yet
    absl::Duration pause;    // for being slow, the last one
    absl::Duration next;     // it is asked then, by the clock's monotonic time
    bool asking = false;
  };
  static constexpr absl::Duration kMinWait = absl::Milliseconds(100);

  void Run(const std::stop_token& stop);
  // What is to be asked, as it was when it was taken.
  struct Question {
    kube::WorkKey job;
    std::string uid, address;
    int64_t last_event = 0;
  };
  using Turn = std::pair<absl::Duration, std::string>;  // when, and whose: a uid
  struct OfNamespace {
    int asked = 0;             // at this moment
    std::set<Turn> held_back;  // until fewer are
  };
  void Remove(const std::string& uid, const Followed& followed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One that is to be asked now, of those that have waited longest; the one who gets it asks it.
  std::optional<Question> Take();
  void Ask(Question question);
  void Answered(const Question& question, bool ok, absl::Duration took);

  kube::Clock& clock_;
  const Fetch fetch_;
  const Changed changed_;
  const PageHandler on_page_;
  const EventHandler happened_;
  const int of_namespace_max_;
  base::Mutex mutex_;
  std::map<std::string, Followed> followed_ ABSL_GUARDED_BY(mutex_);  // by uid
  std::set<Turn> waiting_ ABSL_GUARDED_BY(mutex_);                    // those that are not being asked, and not held back
  std::map<std::string, OfNamespace> asked_of_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;
};

}  // namespace fusionllm::op::cache
