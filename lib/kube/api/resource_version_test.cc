#include "lib/kube/api/resource_version.h"

#include <gtest/gtest.h>

namespace fusionllm::kube {
namespace {

TEST(ResourceVersionTest, OnlyDecimalNumbersWithoutLeadingZerosAreVersions) {
  for (const char* good : {"1", "10", "18446744073709551616", "99999999999999999999999999999999"})
    EXPECT_TRUE(IsResourceVersion(good)) << good;
  for (const char* bad : {"", "0", "01", "-1", "+1", "1a", " 1", "1 ", "1.5", "0x10"}) {
    EXPECT_FALSE(IsResourceVersion(bad)) << bad;
    EXPECT_EQ(CompareResourceVersions(bad, "5"), std::nullopt) << bad;
    EXPECT_EQ(CompareResourceVersions("5", bad), std::nullopt) << bad;
  }
}

TEST(ResourceVersionTest, LongerIsNewerAndEqualLengthsGoByDigits) {
  EXPECT_LT(CompareResourceVersions("9", "10"), 0);  // as text it would be the other way round
  EXPECT_GT(CompareResourceVersions("200", "199"), 0);
  EXPECT_EQ(CompareResourceVersions("77", "77"), 0);
  // Beyond 64 bits, where integers would wrap or stop.
  EXPECT_LT(CompareResourceVersions("18446744073709551615", "18446744073709551616"), 0);
  EXPECT_LT(CompareResourceVersions("18446744073709551616", "118446744073709551616"), 0);
}

}  // namespace
}  // namespace fusionllm::kube
