#include "lib/kube/client/server_clock.h"

#include <gtest/gtest.h>

namespace fusionllm::kube {
namespace {

const absl::Time kNoon = absl::FromCivil(absl::CivilSecond(2026, 11, 23, 12, 0, 0), absl::UTCTimeZone());
constexpr char kNoonDate[] = "Mon, 23 Nov 2026 12:00:00 GMT";

TEST(ServerClockTest, NothingIsKnownBeforeAnAnswerHasADate) {
  ServerClock clock;
  clock.Observe("", kNoon, kNoon);
  clock.Observe("yesterday", kNoon, kNoon);
  EXPECT_EQ(clock.Skew(), std::nullopt);
}

TEST(ServerClockTest, ADateTellsASecondAndACallTakesTime) {
  ServerClock clock;
  // Any time of that second may have been within the call.
  for (const absl::Duration sent : {absl::Seconds(-2), absl::Milliseconds(-1), absl::Milliseconds(999)}) {
    clock.Observe(kNoonDate, kNoon + sent, kNoon + sent + absl::Seconds(2));
    EXPECT_EQ(clock.Skew(), absl::ZeroDuration()) << sent;
  }
}

TEST(ServerClockTest, ACallThatTakesLongTellsNothing) {
  ServerClock clock;
  clock.Observe(kNoonDate, kNoon - absl::Seconds(40), kNoon - absl::Seconds(38));
  clock.Observe(kNoonDate, kNoon - absl::Seconds(30), kNoon + absl::Seconds(30));
  EXPECT_EQ(clock.Skew(), absl::Seconds(38)) << "as before";
}

TEST(ServerClockTest, ReportsCertainSkew) {
  ServerClock clock;
  clock.Observe(kNoonDate, kNoon - absl::Seconds(40), kNoon - absl::Seconds(38));
  EXPECT_EQ(clock.Skew(), absl::Seconds(38));
  clock.Observe(kNoonDate, kNoon + absl::Seconds(40), kNoon + absl::Seconds(42));
  EXPECT_EQ(clock.Skew(), -absl::Seconds(39));
}

}  // namespace
}  // namespace fusionllm::kube
