#include "lib/base/counted.h"

#include <gtest/gtest.h>

namespace fusionllm::base {
namespace {

TEST(CountedTest, OneIsSingularAndAllElsePlural) {
  EXPECT_EQ(Counted(1, "stage"), "1 stage");
  EXPECT_EQ(Counted(2, "stage"), "2 stages");
  EXPECT_EQ(Counted(0, "stage"), "0 stages");
  EXPECT_EQ(Counted(1, "micro-batch", "micro-batches"), "1 micro-batch");
  EXPECT_EQ(Counted(8, "micro-batch", "micro-batches"), "8 micro-batches");
}

}  // namespace
}  // namespace fusionllm::base
