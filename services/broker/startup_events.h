// What a broker tells before there is a loop that tells it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/broker/checkpoint_mirrors.h"
#include "services/broker/run_log.h"

namespace fusionllm::services {

// Tells who waits for the broker that it is at work: every ten seconds while it fetches something.
class FetchProgressReporter {
 public:
  void operator()(int64_t bytes) {
    bytes_ += bytes;
    const absl::Time now = absl::Now();
    if (now - last_report_ < absl::Seconds(10)) return;
    last_report_ = now;
    RunLog(stdout, 0, 0)
        .Event({.reason = "Fetching", .message = absl::StrFormat("%.1f MB from object stores so far", static_cast<double>(bytes_) / 1e6)});
  }

 private:
  int64_t bytes_ = 0;
  absl::Time last_report_ = absl::Now();
};

// Where news go of which no loop knows yet: to the log of the run, later to the loop. Outlives both in closures.
using DeferredEventSink = std::shared_ptr<CheckpointMirrors::EventSink>;
inline CheckpointMirrors::EventSink ForwardTo(const DeferredEventSink& emit) {
  return [emit](broker::EmitEvent news) { (*emit)(std::move(news)); };
}

}  // namespace fusionllm::services
