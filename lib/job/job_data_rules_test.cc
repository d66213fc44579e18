#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/data_rules.h"
#include "lib/job/parse.h"

namespace fusionllm::job {
namespace {

Data DataOf(const std::string& data) {
  const auto job = ParseFusionJob(absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
                                               "  model: {family: gpt2, preset: tiny}\n  data: {path: [a], ",
                                               data, "}\n"),
                                  "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(FusionJob{}).spec.data;
}

TEST(DataRulesTest, ACheckpointThatDoesNotSayReadAnyBytesAndHeldOutTheEnd) {
  const Data open = DataOf("kind: text, validation: {fraction: 0.1}");
  EXPECT_EQ(DataRulesOf(open), (DataRules{TextEncoding::kUtf8, Split::kEven}));
  EXPECT_EQ(DataRulesOfCheckpoint(open), (DataRules{TextEncoding::kBytes, Split::kEnd}));
  EXPECT_EQ(DataRulesOfCheckpoint(DataOf("kind: tokens, validation: {path: b}")), DataRules{}) << "nothing is held out, nor text";
  const Data explicit_rules = DataOf("kind: text, encoding: utf-8, validation: {fraction: 0.1, split: even}");
  EXPECT_EQ(DataRulesOfCheckpoint(explicit_rules), DataRules{});
}

TEST(DataRulesTest, WhatTheJobSaysStaysAndWhatItLeavesOpenIsWrittenDown) {
  Data data = DataOf("kind: text, validation: {fraction: 0.1, split: even}");
  FixDataRules({TextEncoding::kBytes, Split::kEnd}, data);
  EXPECT_EQ(data.encoding, TextEncoding::kBytes);
  EXPECT_EQ(data.validation->split, Split::kEven);
  Data tokens = DataOf("kind: tokens, validation: {path: b}");
  FixDataRules({TextEncoding::kBytes, Split::kEnd}, tokens);
  EXPECT_FALSE(tokens.encoding.has_value());
  EXPECT_FALSE(tokens.validation->split.has_value());
}

}  // namespace
}  // namespace fusionllm::job
