#include "lib/kube/api/amounts.h"

#include <gtest/gtest.h>

#include <limits>

namespace fusionllm::kube {
namespace {

TEST(AmountsTest, ProcessorsAreInThousandthsAllElseInUnits) {
  EXPECT_EQ(ParseAmount(kCpu, "1500m").value(), 1500);
  EXPECT_EQ(ParseAmount(kCpu, "2").value(), 2000);
  EXPECT_EQ(ParseAmount(kMemory, "1Ki").value(), 1024);
  EXPECT_EQ(ParseAmount("nvidia.com/gpu", "8").value(), 8);
  EXPECT_FALSE(ParseAmount(kMemory, "many").ok());
  for (const char* much : {"1e20", "1e400", "99999999Ei"})
    EXPECT_EQ(ParseAmount(kMemory, much).value(), std::numeric_limits<int64_t>::max()) << much;
  EXPECT_EQ(ParseAmount(kMemory, "-1e400").value(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ParseAmount(kCpu, "1e17").value(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ParseAmount(kMemory, "-1e20").value(), std::numeric_limits<int64_t>::min());
}

TEST(AmountsTest, SumsAndMaximaGoResourceByResource) {
  Amounts amounts = {{"cpu", 500}, {"memory", 10}};
  AddAmounts({{"cpu", 250}, {"pods", 1}}, amounts);
  EXPECT_EQ(amounts, (Amounts{{"cpu", 750}, {"memory", 10}, {"pods", 1}}));
  RaiseAmounts({{"cpu", 1000}, {"memory", 5}}, amounts);
  EXPECT_EQ(amounts, (Amounts{{"cpu", 1000}, {"memory", 10}, {"pods", 1}}));
  EXPECT_EQ(AmountOf(amounts, "nvidia.com/gpu"), 0);
}

TEST(AmountsTest, SumsOfStrangersDoNotWrapAround) {
  Amounts amounts = {{"memory", std::numeric_limits<int64_t>::max()}};
  AddAmounts({{"memory", 1}}, amounts);
  EXPECT_EQ(AmountOf(amounts, "memory"), std::numeric_limits<int64_t>::max());
  amounts = {{"memory", std::numeric_limits<int64_t>::min()}};
  AddAmounts({{"memory", -1}}, amounts);
  EXPECT_EQ(AmountOf(amounts, "memory"), std::numeric_limits<int64_t>::min());
}

TEST(AmountsTest, ReadsAsPeopleWriteIt) {
  EXPECT_EQ(AmountsText({{"cpu", 1500}, {"memory", int64_t{8} << 30}, {"nvidia.com/gpu", 2}}), "1.5 cpu, 8Gi memory, 2 nvidia.com/gpu");
  EXPECT_EQ(AmountText("memory", int64_t{1536} << 20), "1.5Gi memory");
  EXPECT_EQ(AmountsText({}), "nothing");
}

}  // namespace
}  // namespace fusionllm::kube
