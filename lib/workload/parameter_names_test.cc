#include "lib/workload/parameter_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/models/families.h"

namespace fusionllm::workload {
namespace {

using ::testing::ElementsAre;

NameCounts CountsOf(const std::vector<std::string>& names) {
  NameCounts counts;
  for (const std::string& name : names) counts.Add(name);
  return counts;
}

TEST(ParameterNamesTest, ANumberBeyondTheOthersIsALayerOfItsOwn) {
  const NameCounts counts = CountsOf({"transformer.h.1.ln_1.weight", "transformer.h.0.ln_2.weight", "layer4.1.conv2.weight", "fc.weight"});
  EXPECT_EQ(counts.Beyond("transformer.h.2.ln_1.weight"), "transformer.h.2");
  EXPECT_EQ(counts.Beyond("transformer.h.10.ln_1.weight"), "transformer.h.10") << "by value, not by text";
  EXPECT_EQ(counts.Beyond("transformer.h.0.ln_3.weight"), "transformer.h.0.ln_3");
  EXPECT_EQ(counts.Beyond("layer5.0.conv1.weight"), "layer5");
  EXPECT_EQ(counts.Beyond("layer4.2.conv1.weight"), "layer4.2");
  for (const char* name :
       {"transformer.h.1.ln_1.weight", "fc2.weight", "extra.7", "h.5.ln_1.weight", "", "transformer.h.99999999999999999999.x"}) {
    EXPECT_EQ(counts.Beyond(name), "") << name;
  }
}

TEST(ParameterNamesTest, PatternsTakeLayersAndModulesWholeAndNothingElse) {
  const std::vector<std::string> all = {"h.0.ln.weight", "h.1.ln.weight", "h.1.ln.bias", "fc.weight",
                                        "fc.bias",       "bn.weight",     "bn.bias",     "lone"};
  const NameCounts stored = CountsOf({"h.0.ln.weight"});
  EXPECT_THAT(PatternsFor({"h.1.ln.weight", "h.1.ln.bias"}, all, stored), ElementsAre("h.1.*"));
  EXPECT_THAT(PatternsFor({"fc.weight", "fc.bias", "bn.bias", "lone"}, all, stored), ElementsAre("fc.*", "bn.bias", "lone"));
}

TEST(ParameterNamesTest, WhatProgramsKeepBesideParametersIsABuffer) {
  EXPECT_TRUE(IsBuffer("bn1.num_batches_tracked", nullptr) && IsBuffer("optimizer.state.0", nullptr) &&
              IsBuffer("fc.weight.exp_avg_sq", nullptr));
  EXPECT_TRUE(IsBuffer("transformer.h.0.attn.bias", &models::Gpt2Family()));
  EXPECT_FALSE(IsBuffer("transformer.h.0.attn.bias", nullptr)) << "a graph may have it";
  EXPECT_FALSE(IsBuffer("transformer.h.0.attn.c_attn.bias", &models::Gpt2Family()));
}

}  // namespace
}  // namespace fusionllm::workload
