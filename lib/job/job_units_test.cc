#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/yaml_scalar.h"
#include "lib/job/scalar.h"
#include "lib/job/units.h"

namespace fusionllm::job {
namespace {

using ::testing::HasSubstr;

TEST(UnitsTest, BandwidthIsDecimalBits) {
  EXPECT_EQ(ParseBandwidth("10Mbit")->bits_per_s, 10'000'000);
  EXPECT_EQ(ParseBandwidth("10Mbit")->bytes_per_s(), 1'250'000);
  EXPECT_EQ(ParseBandwidth("2.5Gbit")->bits_per_s, 2'500'000'000);
  EXPECT_EQ(ParseBandwidth("0.1Gbit")->bits_per_s, 100'000'000);
  EXPECT_EQ(ParseBandwidth("64kbit")->bits_per_s, 64'000);
  EXPECT_EQ(ParseBandwidth("9bit")->bits_per_s, 9);
}

TEST(UnitsTest, SizesAreBinaryBytesAndDurationsNanoseconds) {
  EXPECT_EQ(ParseByteSize("2Gi")->bytes, int64_t{2} << 30);
  EXPECT_EQ(ParseByteSize("1.5Ki")->bytes, 1536);
  EXPECT_EQ(ParseByteSize("77")->bytes, 77);
  EXPECT_EQ(ParseDuration("40ms")->ns, 40'000'000);
  EXPECT_EQ(ParseDuration("0.25s")->ns, 250'000'000);
  EXPECT_EQ(ParseDuration("7us")->ns, 7'000);
  EXPECT_EQ(ParseDuration("0")->ns, 0);
  EXPECT_EQ(ParseDuration("0ms")->ns, 0);
}

TEST(UnitsTest, RefusesEverythingElse) {
  for (const char* text :
       {"", "10", "10Mb", "10mbit", "Mbit", "10 Mbit", "1e3Mbit", ".5Mbit", "5.Mbit", "1..5Mbit", "+1Mbit", "0x10bit", "nanMbit"}) {
    EXPECT_FALSE(ParseBandwidth(text).ok()) << text;
  }
  for (const char* text : {"2G", "2GB", "1.5", "Gi", "2gi", "-1Gi", "99999999Ti"}) EXPECT_FALSE(ParseByteSize(text).ok()) << text;
  for (const char* text : {"5", "5m", "5min", "-5ms", "00:05", "99999999999999s"}) EXPECT_FALSE(ParseDuration(text).ok()) << text;
  EXPECT_THAT(ParseBandwidth("0Mbit").status().message(), HasSubstr("at least 1bit"));
  EXPECT_THAT(ParseBandwidth("-3Mbit").status().message(), HasSubstr("must not be negative, got -3Mbit"));
  EXPECT_THAT(ParseBandwidth(absl::StrCat(std::string(100000, '9'), "Mbit")).status().message(), HasSubstr("is no bandwidth"));
}

TEST(UnitsTest, PrintsTheLargestExactUnit) {
  EXPECT_EQ(ToString(Bandwidth{1'000'000'000}), "1Gbit");
  EXPECT_EQ(ToString(Bandwidth{2'500'000'000}), "2500Mbit");
  EXPECT_EQ(ToString(Bandwidth{1}), "1bit");
  EXPECT_EQ(ToString(ByteSize{int64_t{3} << 40}), "3Ti");
  EXPECT_EQ(ToString(ByteSize{1025}), "1025");
  EXPECT_EQ(ToString(Duration{1'500'000}), "1500us");
  EXPECT_EQ(ToString(Duration{1'001}), "1.001us");
  EXPECT_EQ(ToString(Duration{0}), "0us");
}

TEST(UnitsTest, EveryValueReadsBackAsItIsPrinted) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 draw(seed);
    const int64_t value = static_cast<int64_t>(draw() % 1'000'000'000'000'000) >> (draw() % 50);
    EXPECT_EQ(ParseByteSize(ToString(ByteSize{value}))->bytes, value) << "seed " << seed;
    EXPECT_EQ(ParseDuration(ToString(Duration{value}))->ns, value) << "seed " << seed;
    EXPECT_EQ(ParseBandwidth(ToString(Bandwidth{value + 1}))->bits_per_s, value + 1) << "seed " << seed;
    const double number = std::ldexp(static_cast<double>(static_cast<int64_t>(draw())), static_cast<int>(draw() % 600) - 300);
    EXPECT_EQ(base::ResolveYamlScalar(NumberText(number)).number, number) << "seed " << seed;
  }
}

TEST(ScalarTest, SplitsPathsIntoSteps) {
  absl::string_view path = "spec.pins[12].device";
  EXPECT_EQ(NextPathStep(path).key, "spec");
  EXPECT_EQ(NextPathStep(path).key, "pins");
  EXPECT_EQ(NextPathStep(path).index, 12);
  EXPECT_EQ(NextPathStep(path).key, "device");
  EXPECT_TRUE(path.empty());
}

}  // namespace
}  // namespace fusionllm::job
