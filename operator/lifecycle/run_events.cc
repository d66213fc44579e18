#include "operator/lifecycle/run_events.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "lib/base/printable_text.h"
#include "lib/base/truncate_utf8.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/api/time.h"

namespace fusionllm::op::lifecycle {
namespace {

using nlohmann::json;

constexpr size_t kMaxReasonBytes = 64;

bool IsReason(const std::string& text) {
  return !text.empty() && text.size() <= kMaxReasonBytes && absl::ascii_isupper(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); });
}

std::optional<RunEvent> EventOf(const json& object, absl::Time now) {
  RunEvent event;
  event.number = kube::IntegerOf(kube::At(object, "number"), 0);
  event.reason = kube::TextAt(object, "reason");
  if (event.number <= 0 || !IsReason(event.reason)) return std::nullopt;
  event.warning = kube::TextAt(object, "type") == "warning";
  event.message =
      base::TruncateUtf8(base::PrintableText(base::TruncateUtf8(kube::TextAt(object, "message"), kMaxRunEventBytes)), kMaxRunEventBytes);
  event.time = std::min(kube::TimeFromText(kube::TextAt(object, "time")).value_or(absl::InfinitePast()), now);
  return event;
}

}  // namespace

std::vector<RunEvent> TakeRunEvents(const json& page, int64_t& last_number, absl::Time now) {
  const json& all = kube::ListOf(kube::At(page, "events"));
  const bool is_new_page = last_number == 0;
  last_number = std::max<int64_t>(last_number, 1);
  std::vector<RunEvent> events;
  for (size_t i = all.size() - std::min(all.size(), kMaxRunEvents); i < all.size(); ++i) {
    std::optional<RunEvent> event = EventOf(all[i], now);
    if (!event.has_value() || event->number <= last_number) continue;
    last_number = event->number;
    if (event->time < now - kReplayWindow) {
      if (is_new_page) continue;
      event->time = now;  // it has just happened: the broker's clock is wrong
    }
    events.push_back(*std::move(event));
  }
  return events;
}

}  // namespace fusionllm::op::lifecycle
