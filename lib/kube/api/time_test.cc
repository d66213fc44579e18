#include "lib/kube/api/time.h"

#include <gtest/gtest.h>

namespace fusionllm::kube {
namespace {

TEST(TimeTest, MicroTimesHaveSixDigitsAlways) {
  const absl::Time time = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_EQ(TimeText(time), "2023-11-14T22:13:20Z");
  EXPECT_EQ(MicroTimeText(time), "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(MicroTimeText(time + absl::Milliseconds(250)), "2023-11-14T22:13:20.250000Z");
  EXPECT_EQ(MicroTimeText(time + absl::Nanoseconds(1999)), "2023-11-14T22:13:20.000001Z");
  EXPECT_EQ(TimeText(time + absl::Milliseconds(999)), "2023-11-14T22:13:20Z");
}

TEST(TimeTest, ReadsWhatItWritesAndWhatOthersWrite) {
  const absl::Time time = absl::FromUnixSeconds(1'700'000'000);
  for (const char* text : {"2023-11-14T22:13:20Z", "2023-11-14T22:13:20.000000Z", "2023-11-15T00:13:20+02:00"}) {
    ASSERT_TRUE(TimeFromText(text).ok()) << text;
    EXPECT_EQ(*TimeFromText(text), time) << text;
  }
  EXPECT_EQ(*TimeFromText("2023-11-14T22:13:20.25Z"), time + absl::Milliseconds(250));
}

TEST(TimeTest, RefusesEverythingElse) {
  for (const char* text :
       {"", "now", "infinite-future", "2023-11-14", "2023-11-14 22:13:20Z", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z",
        " 2023-11-14T22:13:20Z", "2023-11-14T22:13:20Z ", "1700000000", "2023-11-14T25:13:20Z"}) {
    EXPECT_FALSE(TimeFromText(text).ok()) << text;
  }
}

}  // namespace
}  // namespace fusionllm::kube
