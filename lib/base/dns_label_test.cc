#include "lib/base/dns_label.h"

#include <gtest/gtest.h>

#include <string>

namespace fusionllm::base {
namespace {

TEST(DnsLabelTest, DistinguishesLabelsFromOtherNames) {
  for (const std::string label : {"a", "7", "train-2", "0-0", "a--b"}) EXPECT_TRUE(IsDnsLabel(label)) << label;
  for (const std::string other : {"", "-", "-a", "a-", "A", "a_b", "a.b", "a b", "../x", "caf\xc3\xa9"}) {
    EXPECT_FALSE(IsDnsLabel(other)) << other;
  }
  EXPECT_TRUE(IsDnsLabel(std::string(63, 'a')));
  EXPECT_FALSE(IsDnsLabel(std::string(64, 'a')));
  EXPECT_FALSE(IsDnsLabel(absl::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace fusionllm::base
