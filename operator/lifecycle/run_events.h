// What a broker says has happened in its run: the events of its /progress page, which become events of the job.
//
// A number is reported once. Who follows a page from here on knows by its last number what it has reported. Who begins to follow one, for
// it is new or for another operator has led until now, tells what is no older than kReplayWindow: each becomes the same Event object
// whichever writes it (kube::Event::Source), and a server remembers those for longer than that.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace fusionllm::op::lifecycle {

struct RunEvent {
  int64_t number = 0;
  absl::Time time;
  bool warning = false;
  std::string reason;   // a word in CamelCase
  std::string message;  // one line, printable

  bool operator==(const RunEvent&) const = default;
};

inline constexpr size_t kMaxRunEvents = 16;
inline constexpr size_t kMaxRunEventBytes = 512;                    // of a message
inline constexpr absl::Duration kReplayWindow = absl::Minutes(30);  // API servers keep events for an hour, unless set otherwise

// Those of a page that are to be reported, oldest first. `last_number`: the last number so far, 0 for a page that is new to us; afterwards
// it counts these in, and is not 0. From a pod that may be anybody's: of a list that is too long the last ones count, what is no event is
// left out, and times are no later than `now`.
std::vector<RunEvent> TakeRunEvents(const nlohmann::json& page, int64_t& last_number, absl::Time now);

}  // namespace fusionllm::op::lifecycle
