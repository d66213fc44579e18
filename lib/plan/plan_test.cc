#include "lib/plan/plan.h"

#include <gtest/gtest.h>

#include "lib/plan/testing/plans.h"

namespace fusionllm::plan {
namespace {

using testing::TwoPipelines;
using testing::TwoStages;

TEST(Plan, ReplicasHaveTheirOwnFigures) {
  const Plan plan = TwoPipelines();
  EXPECT_EQ(plan.CodecBetween(0, 1, 0), "topk@20:int8");
  EXPECT_EQ(plan.CodecBetween(0, 1, 1), "int8");
  EXPECT_EQ(plan.MicroBatchesOf(0), 5);
  EXPECT_EQ(plan.MicroBatchesOf(1), 3);
  EXPECT_EQ(plan.FirstMicroBatchOf(0), 0);
  EXPECT_EQ(plan.FirstMicroBatchOf(1), 5);
  EXPECT_EQ(plan.ReplicaOf(0, 0).in_flight, 3);
  EXPECT_EQ(plan.ReplicaOf(0, 1).in_flight, 1);
  const Plan one = TwoStages();
  EXPECT_EQ(one.MicroBatchesOf(0), 8);
  EXPECT_EQ(one.FirstMicroBatchOf(0), 0);
  EXPECT_EQ(one.ReplicaOf(1, 0).memory_bytes, 2 << 20);
}

TEST(Plan, CodecOfAPairIsThatOfItsForwardLink) {
  EXPECT_EQ(TwoStages().CodecBetween(0, 1), "topk@20:int8");
  EXPECT_EQ(TwoStages().CodecBetween(1, 0), "fp32");
}

}  // namespace
}  // namespace fusionllm::plan
