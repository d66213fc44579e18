#include "lib/planning/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/estimator/graph_cost.h"
#include "lib/opdag/models/gpt2.h"

namespace fusionllm::planning {
namespace {

autodiff::TrainingGraph TinyGpt(int layers) {
  auto graph = opdag::BuildGpt2({.layers = layers, .heads = 2, .embd = 16, .vocab = 32, .positions = 8, .sequence = 8, .tied = true});
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(opdag::InferTypes(*graph, 2).ok());
  auto training = autodiff::Differentiate(*graph);
  EXPECT_TRUE(training.ok()) << training.status();
  return *training;
}

CalibrationOptions Quick() { return {.seconds_per_op = 0, .least_runs = 2}; }

std::unique_ptr<kernels::Backend> Reference() { return *kernels::CreateBackend("ref", {}); }

TEST(Calibrate, EveryOpOfTheGraphIsInTheProfile) {
  const autodiff::TrainingGraph training = TinyGpt(2);
  const auto backend = Reference();
  const auto profile = Calibrate(training, *backend, Quick());
  ASSERT_TRUE(profile.ok()) << profile.status();
  for (const opdag::Op& op : training.graph.ops()) {
    if (op.type == "placeholder") continue;
    const auto found = profile->ops.find(estimator::OpSignature(training.graph, op));
    ASSERT_NE(found, profile->ops.end()) << op.name;
    EXPECT_GT(found->second.seconds, 0) << op.name;
  }
  EXPECT_GT(profile->update_seconds_per_element, 0);
  EXPECT_EQ(profile->codecs.size(), 6);
  EXPECT_EQ(profile->backend, "ref");
}

TEST(Calibrate, LayersOfTheSameShapeAreMeasuredOnce) {
  const auto backend = Reference();
  const auto two = Calibrate(TinyGpt(2), *backend, Quick());
  const auto four = Calibrate(TinyGpt(4), *backend, Quick());
  ASSERT_TRUE(two.ok() && four.ok());
  EXPECT_EQ(two->ops.size(), four->ops.size());
}

TEST(Calibrate, CancellingEndsIt) {
  const auto backend = Reference();
  CalibrationOptions options = Quick();
  options.cancelled = [] { return true; };
  EXPECT_EQ(Calibrate(TinyGpt(1), *backend, options).status().code(), absl::StatusCode::kCancelled);
}

TEST(Calibrate, ProfileSurvivesTheWire) {
  const auto backend = Reference();
  auto profile = Calibrate(TinyGpt(1), *backend, Quick());
  ASSERT_TRUE(profile.ok()) << profile.status();
  profile->name = "lab-0";
  profile->memory_bytes = 1 << 30;
  const auto parsed = wire::ParseProfile(wire::PrintProfile(*profile));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, *profile);
}

}  // namespace
}  // namespace fusionllm::planning
