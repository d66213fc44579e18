// Copies checkpoints to a place while the run trains on: on a thread of its own, one after the other, oldest first.
//
// Nothing that happens there stops a run. A place that fails is reported once and tried again, with pauses that double, until it works;
// what was saved meanwhile is caught up with, but for what the folder itself has removed by then. Thread-safe. The destructor gives up what
// is under way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/archive/mirror_target.h"
#include "lib/base/mutex.h"

namespace fusionllm::archive {

struct MirrorEvent {
  bool copied = false;  // else: failing, and tried again
  int64_t step = 0;
  std::string message;  // where the copy is, or a sentence
};

struct MirrorOptions {
  int64_t keep = 0;            // newest to keep there; 0: all
  int64_t first_sequence = 0;  // of those that may be removed there
  int64_t every_steps = 0;     // > 0: only checkpoints of steps that are multiples of it, and what Finish() finds to be the last
  absl::Duration initial_backoff = absl::Seconds(1);
  absl::Duration max_backoff = absl::Minutes(1);
  // From the mirror's thread; must not block for long. What has been copied is reported before Finish() returns.
  std::function<void(const MirrorEvent&)> on_event;
  // Likewise: what is tried again within a copy, and why.
  std::function<void(const std::string& sentence)> retried;
};

class Mirror {
 public:
  // Makes the place, which gets this transfer; it is used by the mirror's thread alone, from the first Offer on.
  using MakeTarget = std::function<std::unique_ptr<MirrorTarget>(Transfer transfer)>;
  Mirror(const MakeTarget& make, MirrorOptions options);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // For what goes before the first Offer: to look for a checkpoint to begin with.
  MirrorTarget& place() { return *target_; }
  // Likewise.
  void RemoveFrom(int64_t first_sequence) { options_.first_sequence = first_sequence; }
  // Likewise: what brings files that lie in other sites into the folder of their checkpoint, which is held against removal meanwhile. It
  // calls `moved` while bytes come.
  using Gather = std::function<absl::Status(const std::string& folder, const std::vector<checkpoint::FileEntry>& elsewhere,
                                            const std::stop_token& stop, const std::function<void()>& moved)>;
  void GatherBy(Gather gather) { gather_ = std::move(gather); }

  // That `folder` is a whole checkpoint. Does not block.
  void Offer(const std::string& folder, int64_t step);
  // Whether there is anything that has been offered and is not there yet.
  bool behind() const;

  // Copies what is left, the last that was offered in any case, and blocks meanwhile: until all is there, or for `timeout` nothing has
  // moved or every try has failed, or a stop is requested. The error is that of the last try, or DeadlineExceeded. Call it once, last.
  absl::Status Finish(absl::Duration timeout, std::stop_token stop);

 private:
  struct Offered {
    std::string folder;
    int64_t step = 0;
  };
  void Work();
  absl::Status Copy(const Offered& offered, std::string& where);
  void Moved();
  void Retried(const std::string& sentence);

  MirrorOptions options_;
  Gather gather_;
  std::stop_source stop_;
  std::unique_ptr<MirrorTarget> target_;

  mutable base::Mutex mutex_;
  std::condition_variable_any news_;
  std::deque<Offered> waiting_ ABSL_GUARDED_BY(mutex_);  // with the one under way in front
  std::optional<Offered> left_out_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
  std::string last_retry_ ABSL_GUARDED_BY(mutex_);  // why, of the copy under way
  absl::Time moved_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Time> failing_since_ ABSL_GUARDED_BY(mutex_);
  bool hurry_ ABSL_GUARDED_BY(mutex_) = false;  // no more long pauses
  std::jthread worker_;
};

}  // namespace fusionllm::archive
