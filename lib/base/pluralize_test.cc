#include "lib/base/pluralize.h"

#include <gtest/gtest.h>

namespace fusionllm::base {
namespace {

TEST(PluralizeTest, OneIsSingularAndAllElsePlural) {
  EXPECT_EQ(Pluralize(1, "stage"), "1 stage");
  EXPECT_EQ(Pluralize(2, "stage"), "2 stages");
  EXPECT_EQ(Pluralize(0, "stage"), "0 stages");
  EXPECT_EQ(Pluralize(1, "micro-batch", "micro-batches"), "1 micro-batch");
  EXPECT_EQ(Pluralize(8, "micro-batch", "micro-batches"), "8 micro-batches");
}

}  // namespace
}  // namespace fusionllm::base
