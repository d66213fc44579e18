// An op is complete when schemas, gradient rules and kernels all know it, and when something checks its numbers.
#include <set>

#include "gtest/gtest.h"
#include "lib/autodiff/gradient_rule.h"
#include "lib/kernels/backend.h"
#include "lib/opdag/op_schema.h"
#include "lib/opdag/text.h"
#include "tests/numerics/training_case.h"

namespace fusionllm::numerics {
namespace {

// Filled by the runtime: no kernel, no gradient.
const std::set<std::string> kFilled = {"placeholder"};
// No gradient reaches them.
const std::set<std::string> kSources = {"placeholder", "constant"};
// Its mask is our own, so no other library knows its numbers; gradient_test.cc checks it by finite differences.
const std::set<std::string> kNoGolden = {"dropout", "dropout_grad"};

TEST(CompletenessTest, EveryBackEndHasAKernelForEveryOp) {
  for (const absl::string_view name : kernels::BackendNames()) {
    const auto backend = kernels::CreateBackend(name, {.threads = 1});
    ASSERT_TRUE(backend.ok()) << backend.status();
    for (const opdag::OpSchema* schema : opdag::AllSchemas()) {
      if (kFilled.contains(schema->name())) continue;
      EXPECT_TRUE((*backend)->Supports(schema->kind)) << name << " lacks " << schema->name();
    }
  }
}

TEST(CompletenessTest, EveryForwardOpThatAGradientCanReachHasARule) {
  for (const opdag::OpSchema* schema : opdag::AllSchemas()) {
    if (schema->backward_only || kSources.contains(schema->name())) continue;
    EXPECT_NE(autodiff::FindRule(schema->kind), nullptr) << schema->name();
  }
}

TEST(CompletenessTest, EveryOpForwardAndBackwardStandsInAGolden) {
  std::set<std::string> seen;
  for (const std::string& path : OpGoldenPaths()) {
    const auto goldens = ReadGoldens(path);
    ASSERT_TRUE(goldens.ok()) << goldens.status();
    for (const GoldenCase& golden : *goldens) {
      auto graph = opdag::ParseGraph(golden.graph, golden.name);
      ASSERT_TRUE(graph.ok()) << graph.status();
      ASSERT_TRUE(opdag::InferTypes(*graph, 1).ok());
      const auto training = autodiff::Differentiate(*graph);
      ASSERT_TRUE(training.ok()) << golden.name << ": " << training.status();
      for (const opdag::Op& op : training->graph.ops()) seen.insert(std::string(opdag::Name(op.kind)));
    }
  }
  for (const opdag::OpSchema* schema : opdag::AllSchemas()) {
    if (kNoGolden.contains(schema->name())) continue;
    EXPECT_TRUE(seen.contains(schema->name())) << "no golden holds " << schema->name();
  }
}

}  // namespace
}  // namespace fusionllm::numerics
