#include "lib/kube/api/quantity.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace fusionllm::kube {
namespace {

TEST(Quantity, ReadsEverySuffix) {
  struct Case {
    const char* text;
    int64_t value;
  };
  const Case cases[] = {{"0", 0},
                        {"12", 12},
                        {"+7", 7},
                        {"-3", -3},
                        {"1k", 1000},
                        {"2M", 2'000'000},
                        {"3G", 3'000'000'000},
                        {"1T", 1'000'000'000'000},
                        {"1Ki", 1024},
                        {"2Mi", 2 << 20},
                        {"1.5Gi", 1'610'612'736},
                        {"1Ti", int64_t{1} << 40},
                        {"1Pi", int64_t{1} << 50},
                        {"1Ei", int64_t{1} << 60},
                        {"1e3", 1000},
                        {"1E3", 1000},
                        {"12e-1", 2},
                        {"5E", 5'000'000'000'000'000'000},
                        {".5k", 500},
                        {"1.", 1},
                        {"9223372036854775807", std::numeric_limits<int64_t>::max()},
                        {"0000000000000000000000000000000000001", 1}};
  for (const Case& one : cases) {
    const auto value = ParseQuantity(one.text);
    ASSERT_TRUE(value.ok()) << one.text << " " << value.status();
    EXPECT_EQ(*value, one.value) << one.text;
  }
}

TEST(Quantity, PartsRoundAwayFromZero) {
  EXPECT_EQ(*ParseQuantity("1500m"), 2);
  EXPECT_EQ(*ParseQuantity("-1500m"), -2);
  EXPECT_EQ(*ParseQuantity("1n"), 1);
  EXPECT_EQ(*ParseQuantity("0.000"), 0);
  EXPECT_EQ(*ParseQuantity("1500m", 1000), 1500);
  EXPECT_EQ(*ParseQuantity("0.5", 1000), 500);
  EXPECT_EQ(*ParseQuantity("100u", 1000), 1);
  EXPECT_EQ(*ParseQuantity("1e-400"), 1);
  EXPECT_EQ(*ParseQuantity("-1e-99999999999999999999"), -1);
  EXPECT_EQ(*ParseQuantity("0e400"), 0);
}

TEST(Quantity, RefusesAllElse) {
  for (const char* text : {"",     " 1",   "1 ",  "m",     "-",     ".",    "1.2.3", "1mi", "1ki", "1K", "1e",
                           "1e 3", "1e3 ", "1e+", "1e--3", "1e1.5", "0x10", "1Gb",   "1,5", "nan", "inf"}) {
    EXPECT_EQ(ParseQuantity(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  // 2^128 among them, in two ways.
  for (const char* text : {"9223372036854775808", "8Ei", "10E", "1e30", "1e31", "1e99", "1e400", "-1e400", "1E+99999999999999999999",
                           "0.00000000000000000000000000000000001e400", "99999999999999999999999999999999",
                           "340282366920938463463374607431768211456", "295147905179352825856Ei"}) {
    EXPECT_EQ(ParseQuantity(text).status().code(), absl::StatusCode::kOutOfRange) << text;
  }
  EXPECT_FALSE(ParseQuantity(std::string(1000, '1')).ok());
}

}  // namespace
}  // namespace fusionllm::kube
