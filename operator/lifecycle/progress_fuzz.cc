// The /progress page of a broker, and the report that its container leaves behind: of a pod that may be anybody's.
#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "lib/base/testing/fuzz.h"
#include "operator/lifecycle/progress.h"

namespace fusionllm::op::lifecycle {
namespace {

std::vector<std::string> Seeds() {
  return {
      R"({"phase":"running","step":20,"steps":100,"loss":2.5,"epoch":2,"stages":["a","b"],"executors":3,"eta_seconds":36.5,"step_seconds":0.45,)"
      R"("predicted_step_seconds":0.4,"tokens_per_second":8192,"learning_rate":0.001,"checkpoint_step":10,"recoveries":1,)"
      R"("waiting":{"reason":"ProbeFailed","message":"a cannot reach b"},)"
      R"("slowest_link":{"src":"a","dst":"b","codec":"int8","bandwidth_bytes_per_second":1250000.0},)"
      R"("events":[{"number":1699999990000,"time":"2023-11-14T22:13:10.000Z","type":"warning","reason":"ExecutorLost","message":"b was lost"},)"
      R"({"number":1699999990001,"time":"2023-11-14T22:13:10.001Z","type":"normal","reason":"SpareActivated","message":"c takes stage 1 from b"}]})",
      R"({"step":7,"exit_code":3,"reason":"InsufficientMemory","error":"stage 1 needs 8 GiB"})",
  };
}

std::vector<std::string> Words() {
  return {"\"events\":[",
          "\"number\":",
          "{\"number\":9223372036854775807,\"reason\":\"A\"},",
          "{\"number\":18446744073709551615,\"reason\":\"A\"},",
          "\"type\":\"warning\"",
          "\"reason\":\"CheckpointFailed\"",
          "\"time\":\"9999-12-31T23:59:59.999999999Z\"",
          "\"time\":\"infinite-past\"",
          "\\u001b[2J",
          "\\u0000",
          "\\u009b",
          "\\ud83d",
          "1e999",
          "null",
          "{},"};
}

bool IsOneLine(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

bool Accepts(absl::string_view input) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  bool accepted = false;
  for (const int64_t before : {int64_t{0}, int64_t{1'699'999'990'000}, std::numeric_limits<int64_t>::max()}) {
    int64_t last_number = before;
    const absl::StatusOr<ProgressPage> page = ParseProgressPage(input, last_number, now);
    const absl::StatusOr<Progress> progress = ParseProgress(input);
    FUZZ_CHECK(page.ok() == progress.ok());
    if (!page.ok()) return false;
    accepted = true;
    FUZZ_CHECK(page->progress == *progress);
    FUZZ_CHECK(last_number >= before && last_number > 0);
    FUZZ_CHECK(page->events.size() <= kMaxRunEvents);
    int64_t last = before;
    for (const RunEvent& event : page->events) {
      FUZZ_CHECK(event.number > last && event.number <= last_number);
      last = event.number;
      FUZZ_CHECK(event.time <= now && event.time >= now - kReplayWindow);
      FUZZ_CHECK(!event.reason.empty() && absl::ascii_isupper(static_cast<unsigned char>(event.reason[0])));
      FUZZ_CHECK(IsOneLine(event.reason) && IsOneLine(event.message));
      FUZZ_CHECK(event.reason.size() <= 128 && event.message.size() <= kMaxRunEventBytes);
    }
    int64_t again = last_number;
    const absl::StatusOr<ProgressPage> next = ParseProgressPage(input, again, now);
    FUZZ_CHECK(next.ok() && next->events.empty() && again == last_number);  // once
  }
  return accepted;
}

}  // namespace
}  // namespace fusionllm::op::lifecycle

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() {
  return {op::lifecycle::Seeds, op::lifecycle::Words, op::lifecycle::Accepts};
}
