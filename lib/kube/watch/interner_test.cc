#include "lib/kube/watch/interner.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fusionllm::kube {
namespace {

TEST(InternerTest, EqualValuesAreOne) {
  Interner<std::string> values;
  const auto a = values.Share("a"), b = values.Share("b");
  EXPECT_EQ(values.Share("a"), a);
  EXPECT_EQ(*b, "b");
  EXPECT_EQ(values.size(), 2);
}

TEST(InternerTest, DropsUnreferencedValues) {
  Interner<int> values;
  std::vector<Interner<int>::Pointer> held;
  for (int i = 0; i < 100; ++i) held.push_back(values.Share(i));
  for (int i = 100; i < 10'000; ++i) values.Share(i);
  EXPECT_LE(values.size(), 200);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(values.Share(i), held[static_cast<size_t>(i)]);
}

}  // namespace
}  // namespace fusionllm::kube
