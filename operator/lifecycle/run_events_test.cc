#include "operator/lifecycle/run_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "operator/lifecycle/progress.h"

namespace fusionllm::op::lifecycle {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RunEventsTest : public ::testing::Test {
 protected:
  json EventAt(int64_t number, absl::Duration ago, const std::string& message = "m") const {
    return {{"number", number},
            {"time", absl::FormatTime(absl::RFC3339_full, now_ - ago, absl::UTCTimeZone())},
            {"type", "warning"},
            {"reason", "ExecutorLost"},
            {"message", message}};
  }
  std::vector<RunEvent> Take(const json& events) { return TakeRunEvents({{"step", 1}, {"events", events}}, last_number_, now_); }
  std::vector<int64_t> Numbers(const json& events) {
    std::vector<int64_t> numbers;
    for (const RunEvent& event : Take(events)) numbers.push_back(event.number);
    return numbers;
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  int64_t last_number_ = 0;
};

TEST_F(RunEventsTest, ReadsWhatTheBrokerTells) {
  const auto page = ParseProgressPage(R"({"step":20,"events":[
      {"number":1699999990000,"time":"2023-11-14T22:13:10.000Z","type":"normal","reason":"SpareActivated","message":"c takes stage 1 from b"}]})",
                                      last_number_, now_);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->progress.step, 20);
  EXPECT_THAT(page->events,
              ElementsAre(RunEvent{1'699'999'990'000, now_ - absl::Seconds(10), false, "SpareActivated", "c takes stage 1 from b"}));
}

TEST_F(RunEventsTest, ABrokerOfAnEarlierReleaseTellsNone) {
  const auto page = ParseProgressPage(R"({"step":20})", last_number_, now_);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(page->events, IsEmpty());
}

TEST_F(RunEventsTest, TakesEachEventOnce) {
  json events = {EventAt(5, absl::Seconds(2)), EventAt(7, absl::Seconds(1))};
  EXPECT_THAT(Numbers(events), ElementsAre(5, 7));
  EXPECT_THAT(Numbers(events), IsEmpty());
  events.push_back(EventAt(8, absl::ZeroDuration()));
  EXPECT_THAT(Numbers(events), ElementsAre(8));
}

TEST_F(RunEventsTest, NewReaderReplaysOnlyRecentEvents) {
  const json events = {EventAt(5, kReplayWindow + absl::Seconds(1)), EventAt(7, kReplayWindow - absl::Seconds(1))};
  EXPECT_THAT(Numbers(events), ElementsAre(7));
  EXPECT_EQ(last_number_, 7);
}

// Its page is read before anything happens.
TEST_F(RunEventsTest, TakesEventsDespiteWrongBrokerClock) {
  EXPECT_THAT(Numbers(json::array()), IsEmpty());
  const std::vector<RunEvent> late = Take(json::array({EventAt(5, absl::Hours(5))}));
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].time, now_);
  const std::vector<RunEvent> early = Take(json::array({EventAt(6, absl::Hours(-5))}));
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].time, now_);
}

TEST_F(RunEventsTest, WhatIsNoEventIsLeftOut) {
  const json good = EventAt(50, absl::ZeroDuration());
  json events = json::array({3, nullptr, "text", json::array(), json::object()});
  const auto with = [&](const char* key, const json& value) {
    json event = good;
    event[key] = value;
    events.push_back(std::move(event));
  };
  for (const json& number : {json("50"), json(-1), json(0), json(1.5), json(std::numeric_limits<uint64_t>::max()), json()})
    with("number", number);
  for (const json& reason : {json(""), json("lower"), json("Two Words"), json("Bell\x07"), json(std::string(65, 'A')), json(7)}) {
    with("reason", reason);
  }
  for (const json& entry : events) EXPECT_THAT(Take(json::array({entry})), IsEmpty()) << entry;
  EXPECT_EQ(last_number_, 1);
  for (const json& none : {json(), json("events"), json(7), json({{"number", 1}})}) EXPECT_THAT(Take(none), IsEmpty()) << none;
  EXPECT_THAT(Numbers(json::array({good})), ElementsAre(50));
}

TEST_F(RunEventsTest, AHostilePageTellsNoMoreThanAnHonestOne) {
  json events = json::array();
  for (int i = 1; i <= 100'000; ++i) events.push_back(EventAt(i, absl::ZeroDuration()));
  EXPECT_EQ(Take(events).size(), kMaxRunEvents);
  EXPECT_EQ(last_number_, 100'000);
  EXPECT_FALSE(ParseProgressPage(json{{"events", events}}.dump(), last_number_, now_).ok()) << "a page of that many bytes";
  const std::vector<RunEvent> taken =
      Take(json::array({EventAt(200'000, absl::ZeroDuration(), std::string(50'000, 'x')),
                        EventAt(200'001, absl::ZeroDuration(), "\x1b[2J\n" + std::string(50'000, '\x01'))}));
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].message.size(), kMaxRunEventBytes);
  EXPECT_EQ(taken[1].message.size(), kMaxRunEventBytes);
  EXPECT_THAT(taken[1].message, ::testing::StartsWith("\\x1b[2J\\n\\x01"));
  EXPECT_THAT(Numbers(json::array({EventAt(std::numeric_limits<int64_t>::max(), absl::ZeroDuration())})),
              ElementsAre(std::numeric_limits<int64_t>::max()));
  EXPECT_THAT(Numbers(json::array({EventAt(300'000, absl::ZeroDuration())})), IsEmpty()) << "it has said its last word";
}

}  // namespace
}  // namespace fusionllm::op::lifecycle
