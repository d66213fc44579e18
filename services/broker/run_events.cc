#include "services/broker/run_events.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lib/base/printable_text.h"
#include "lib/base/truncate_utf8.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

struct Notable {
  const char* reason;
  bool warning = false;
};

// Left out is what comes with every checkpoint, which the page tells by its step, and what only says that something goes on.
constexpr Notable kNotable[] = {
    {"CheckpointCopyFailed", true},
    {"CheckpointFailed", true},
    {"CheckpointFetched"},
    {"CheckpointMovedAside"},
    {"CheckpointSkipped", true},
    {"CheckpointUnusable", true},
    {"CollectingShards"},
    {"CompressionBackoff", true},
    {"CopyingCheckpoints"},
    {"DataChanged", true},
    {"DataOpened"},
    {"DataRulesKept"},
    {"DataStageSelected"},
    {"ExecutorJoined"},
    {"ExecutorLost", true},
    {"JobChanged"},
    {"LinkDegraded", true},
    {"LinkRecovered"},
    {"NoTargetCounts", true},
    {"ProbeFailed", true},
    {"Recovering", true},
    {"ReplanDeclined"},
    {"Replanned"},
    {"ReplicaFailed", true},
    {"ResidualsDropped"},
    {"Restored"},
    {"ShardsInSites", true},
    {"SiteCleanupSkipped", true},
    {"SpareActivated"},
    {"StoreRetried", true},
    {"Straggler", true},
    {"StragglerRecovered"},
    {"WaitingForData", true},
    {"WaitingForExecutors", true},
    {"WaitingForSite", true},
};

}  // namespace

void RunEvents::Add(const broker::EmitEvent& event, absl::Time now) {
  const auto notable = std::find_if(std::begin(kNotable), std::end(kNotable), [&](const Notable& n) { return event.reason == n.reason; });
  if (notable == std::end(kNotable)) return;
  last_number_ = std::max(last_number_ + 1, absl::ToUnixMillis(now));
  const std::string message = base::PrintableText(base::TruncateUtf8(event.message, kMaxMessageBytes));
  entries_.push_back({last_number_, now, notable->warning, event.reason, base::TruncateUtf8(message, kMaxMessageBytes)});
  if (entries_.size() > kMaxEvents) entries_.pop_front();
}

json RunEvents::Json() const {
  json events = json::array();
  for (const Entry& entry : entries_) {
    events.push_back({{"number", entry.number},
                      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", entry.time, absl::UTCTimeZone())},
                      {"type", entry.warning ? "warning" : "normal"},
                      {"reason", entry.reason},
                      {"message", entry.message}});
  }
  return events;
}

}  // namespace fusionllm::services
