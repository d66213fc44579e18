#include "operator/features/feature_gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::op {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string GatesRefusal(absl::string_view text) {
  FeatureGates gates;
  const absl::Status status = SetFeatureGates(text, gates);
  EXPECT_FALSE(status.ok()) << text;
  EXPECT_EQ(gates, FeatureGates()) << "nothing of it holds";
  return std::string(status.message());
}

TEST(FeatureGatesTest, WhatIsNamedIsSetAndTheRestStays) {
  FeatureGates gates{.measured_links = false};
  ASSERT_TRUE(SetFeatureGates("SchedulerAdvice=false, DryRunTrials=true", gates).ok());
  EXPECT_EQ(gates, (FeatureGates{.scheduler_advice = false, .measured_links = false}));
  ASSERT_TRUE(SetFeatureGates("", gates).ok());
  EXPECT_EQ(gates, (FeatureGates{.scheduler_advice = false, .measured_links = false}));
}

TEST(FeatureGatesTest, WhatIsNoGateIsRefusedAndTheGatesAreNamed) {
  const std::string known = "the gates are SchedulerAdvice, MeasuredLinks, DryRunTrials";
  EXPECT_THAT(GatesRefusal("DryRunTrials=false,MeasuredLink=false"),
              AllOf(HasSubstr("no feature gate \"MeasuredLink\""), HasSubstr(known)));
  for (const char* text : {"DryRunTrials=false,MeasuredLinks", "DryRunTrials=0", "=true", "DryRunTrials=false=true"}) {
    EXPECT_THAT(GatesRefusal(text), HasSubstr(known));
  }
}

TEST(FeatureGatesTest, HelpAndMetricsSayEachWithItsStage) {
  EXPECT_THAT(DescribeFeatureGates(), HasSubstr("\nMeasuredLinks (BETA, default true): "));
  metrics::Registry registry("test", "0");
  const FeatureMetrics metrics(registry);
  metrics.Set({.measured_links = false});
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_feature_enabled{name=\"MeasuredLinks\",stage=\"BETA\"} 0"));
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_feature_enabled{name=\"DryRunTrials\",stage=\"BETA\"} 1"));
}

TEST(FeatureGatesTest, TheDocumentHasEachWithItsStageAndDefault) {
  const char* const root = std::getenv("FUSIONLLM_SOURCE_DIR");
  const std::string document = base::ReadWholeFile(absl::StrCat(root == nullptr ? "." : root, "/docs/reference/operator-configuration.md"));
  const FeatureGates defaults;
  for (const FeatureGate& gate : kFeatureGates) {
    const char* const by_default = defaults.*gate.on ? "true" : "false";
    EXPECT_THAT(document, HasSubstr(absl::StrCat("\n| `", gate.name, "` | ", Name(gate.stage), " | ", by_default, " | ")));
  }
}

}  // namespace
}  // namespace fusionllm::op
