#include "lib/base/nearest_name.h"

#include <vector>

#include "gtest/gtest.h"

namespace fusionllm::base {
namespace {

TEST(NearestNameTest, SuggestsTheNearestChoiceOnly) {
  const std::vector<std::string> choices = {"globalBatchSize", "microBatchSize", "steps"};
  EXPECT_EQ(NearestName("global_batch_size", choices), "globalBatchSize");
  EXPECT_EQ(NearestName("stps", choices), "steps");
  EXPECT_EQ(NearestName("colour", choices), "");
  EXPECT_EQ(NearestName("", choices), "");
}

TEST(NearestNameTest, FoldedNamesDifferByLettersAlone) {
  EXPECT_EQ(FoldName("per_device_Batch-Size"), "perdevicebatchsize");
  EXPECT_EQ(FoldName(std::string(100, 'a')).size(), 64u);
}

}  // namespace
}  // namespace fusionllm::base
