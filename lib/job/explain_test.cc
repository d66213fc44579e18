#include "lib/job/explain.h"

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/reference.h"

namespace fusionllm::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const std::string& path, bool recursive = false) {
  const absl::StatusOr<FoundField> found = FindField(path);
  return found.ok() ? ExplainText(*found, recursive) : std::string(found.status().message());
}

TEST(ExplainTest, AFieldHasItsTypeDefaultRangeAndMeaning) {
  EXPECT_THAT(Text("spec.training.steps"), AllOf(HasSubstr("spec.training.steps  <whole number, >= 0, <= 1000000000; default 100>\n"),
                                                 HasSubstr("  Optimizer steps; 0 "), Not(HasSubstr("Fields:"))));
  EXPECT_THAT(Text("spec.training.optimizer.beta1"), HasSubstr("<number, >= 0, < 1; default 0.9; belongs to optimizer adamw>"));
  EXPECT_THAT(Text("spec.training.optimizer.learningRate"), HasSubstr("default 0.001, depends on other fields"));
  EXPECT_THAT(Text("spec.suspend"), HasSubstr("Kubernetes only"));
  EXPECT_THAT(Text("metadata.name"), HasSubstr("required"));
  EXPECT_THAT(Text("kind"), HasSubstr("<FusionJob>"));
}

TEST(ExplainTest, AMappingListsItsFields) {
  EXPECT_THAT(Text("spec.training.optimizer"), AllOf(HasSubstr("spec.training.optimizer  <mapping>"), HasSubstr("\nFields:\n"),
                                                     HasSubstr("\n  name  <one of adamw, sgd; default adamw>\n"), HasSubstr("nesterov")));
  EXPECT_THAT(Text(""), AllOf(HasSubstr("(the document)"), HasSubstr("\n  spec  <mapping; required>")));
}

TEST(ExplainTest, ElementsOfListsAreReached) {
  for (const char* path : {"spec.strategy.pins[0].device", "spec.strategy.pins[].device", "spec.strategy.pins.device"}) {
    EXPECT_THAT(Text(path), HasSubstr("spec.strategy.pins[].device  <text; required>")) << path;
  }
  EXPECT_THAT(Text("spec.strategy.pins"), AllOf(HasSubstr("<list of: mapping>"), HasSubstr("\n  ops  <text; required>")));
}

TEST(ExplainTest, TheKindMayStandBeforeThePath) {
  EXPECT_EQ(Text("fusionjob.spec.training"), Text("spec.training"));
  EXPECT_EQ(Text("FusionJob"), Text(""));
  EXPECT_THAT(Text("topology.spec.links"), HasSubstr("bandwidth"));
  EXPECT_THAT(Text("topology"), HasSubstr("Emulated sites"));
}

TEST(ExplainTest, WhatIsNotThereIsAnsweredWithWhatIsNear) {
  EXPECT_EQ(Text("spec.training.optimiser"), "spec.training has no field 'optimiser'; did you mean optimizer?");
  EXPECT_EQ(Text("training"), "a job has no field 'training'; did you mean spec.training?");
  EXPECT_EQ(Text("spec.training.lr"), "spec.training has no field 'lr'; did you mean spec.training.optimizer.learningRate?");
  EXPECT_EQ(Text("spec.sites[0].devices"), "spec has no field 'sites'; did you mean topology.spec.sites[0].devices?");
  EXPECT_EQ(Text("spec.training.steps.x"), "spec.training.steps has no fields, so no 'x'");
  EXPECT_EQ(Text("spec.training.evaluation.zzzzz"), "spec.training.evaluation has no field 'zzzzz'; it has everySteps, batches");
  EXPECT_EQ(FindField("spec..x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindField("spec[").ok(), true);  // an open bracket ends the path
}

TEST(ExplainTest, RecursionShowsAllThatIsBelow) {
  EXPECT_THAT(Text("spec.training", true), AllOf(HasSubstr("\n  optimizer  <mapping>\n    name  <one of adamw, sgd; default adamw>\n"),
                                                 HasSubstr("\n    everySteps  <")));
}

TEST(ExplainTest, PathsForCompletionAreFields) {
  const std::vector<std::string> paths = FieldPaths();
  EXPECT_THAT(paths, ::testing::IsSupersetOf({"spec", "spec.training.optimizer", "spec.training.optimizer.learningRate"}));
  for (const std::string& path : paths) EXPECT_TRUE(FindField(path).ok()) << path;
}

TEST(ExplainTest, EveryFieldOfBothKindsIsFoundByItsPathAndFitsAPage) {
  int fields = 0;
  const std::function<void(const FieldSchema&, const std::string&)> visit = [&](const FieldSchema& at, const std::string& path) {
    const FieldSchema& mapping = at.type == FieldType::kList ? at.children[0] : at;
    for (const FieldSchema& child : mapping.children) {
      if (child.name.empty()) continue;
      const std::string inner = absl::StrCat(path, ".", child.name);
      const absl::StatusOr<FoundField> found = FindField(inner);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->field.doc, child.doc) << inner;
      for (const absl::string_view line : absl::StrSplit(ExplainText(*found, false), '\n')) {
        if (line.substr(0, 6) == "      ") {
          EXPECT_LE(line.size(), 100u) << line;
        }
      }
      ++fields;
      if (child.type == FieldType::kObject || child.type == FieldType::kList) visit(child, inner);
    }
  };
  visit(FusionJobSchema(), "fusionjob");
  visit(TopologySchema(), "topology");
  EXPECT_GT(fields, 120);
}

}  // namespace
}  // namespace fusionllm::job
