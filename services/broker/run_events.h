// The last notable events of a run, for its /progress page (docs/reference/metrics.md): what a user wants to read beside the job, of all
// that the log tells. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/time/time.h"
#include "lib/broker/events.h"

namespace fusionllm::services {

class RunEvents {
 public:
  static constexpr size_t kMaxEvents = 16;
  static constexpr size_t kMaxMessageBytes = 320;

  // An event that is not notable is left out.
  void Add(const broker::EmitEvent& event, absl::Time now);

  // The oldest first: `number`, `time`, `type` (normal, warning), `reason`, `message`. Numbers rise, over lives of a broker, too: they
  // start at the milliseconds of its clock.
  nlohmann::json Json() const;

 private:
  struct Entry {
    int64_t number = 0;
    absl::Time time;
    bool warning = false;
    std::string reason, message;
  };

  std::deque<Entry> entries_;
  int64_t last_number_ = 0;
};

}  // namespace fusionllm::services
