#include "lib/report/number_format.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace fusionllm::report {
namespace {

TEST(WordsTest, NumbersReadWell) {
  EXPECT_EQ(Count(5210), "5,210");
  EXPECT_EQ(Count(1234567.6), "1,234,568");
  EXPECT_EQ(Count(52.14), "52.1");
  EXPECT_EQ(Count(99.96), "100");
  EXPECT_EQ(Count(0.314), "0.31");
  EXPECT_EQ(Count(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(WholeNumber(0), "0");
  EXPECT_EQ(WholeNumber(16), "16");
  EXPECT_EQ(WholeNumber(-100), "-100");
  EXPECT_EQ(WholeNumber(-1000), "-1,000");
  EXPECT_EQ(WholeNumber(123456), "123,456");
  EXPECT_EQ(WholeNumber(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(TimeSpan(9360), "2h36m");
  EXPECT_EQ(TimeSpan(59.6), "1m00s");
  EXPECT_EQ(TimeSpan(12), "12s");
  EXPECT_EQ(TimeSpan(-1), "-");
  EXPECT_EQ(ElapsedTime(0.52), "0.52s");
  EXPECT_EQ(ElapsedTime(9.5), "9.50s");
  EXPECT_EQ(ElapsedTime(70), "1m10s");
  EXPECT_EQ(ElapsedTime(-1), "-");
  EXPECT_EQ(StepSeconds(1.924), "1.92s");
  EXPECT_EQ(StepSeconds(0.0851), "85.1ms");
  EXPECT_EQ(TrafficBytes(12'345'678), "12.3 MB");
  EXPECT_EQ(MemoryBytes(1.5 * 1024 * 1024 * 1024), "1.50 GiB");
  EXPECT_EQ(TrafficBytes(999), "999 B");
  EXPECT_EQ(Percent(0.024), "2.4%");
  EXPECT_EQ(Ratio(10.52), "10.5x");
  EXPECT_EQ(Ratio(std::numeric_limits<double>::infinity()), "-");
}

}  // namespace
}  // namespace fusionllm::report
