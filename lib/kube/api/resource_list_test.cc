#include "lib/kube/api/resource_list.h"

#include <gtest/gtest.h>

#include <limits>

namespace fusionllm::kube {
namespace {

TEST(ResourceListTest, ProcessorsAreInThousandthsAllElseInUnits) {
  EXPECT_EQ(ParseResourceQuantity(kCpu, "1500m").value(), 1500);
  EXPECT_EQ(ParseResourceQuantity(kCpu, "2").value(), 2000);
  EXPECT_EQ(ParseResourceQuantity(kMemory, "1Ki").value(), 1024);
  EXPECT_EQ(ParseResourceQuantity("nvidia.com/gpu", "8").value(), 8);
  EXPECT_FALSE(ParseResourceQuantity(kMemory, "many").ok());
  for (const char* much : {"1e20", "1e400", "99999999Ei"})
    EXPECT_EQ(ParseResourceQuantity(kMemory, much).value(), std::numeric_limits<int64_t>::max()) << much;
  EXPECT_EQ(ParseResourceQuantity(kMemory, "-1e400").value(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ParseResourceQuantity(kCpu, "1e17").value(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ParseResourceQuantity(kMemory, "-1e20").value(), std::numeric_limits<int64_t>::min());
}

TEST(ResourceListTest, SumsAndMaximaGoResourceByResource) {
  ResourceList resources = {{"cpu", 500}, {"memory", 10}};
  AddResourceList({{"cpu", 250}, {"pods", 1}}, resources);
  EXPECT_EQ(resources, (ResourceList{{"cpu", 750}, {"memory", 10}, {"pods", 1}}));
  MaxResourceList({{"cpu", 1000}, {"memory", 5}}, resources);
  EXPECT_EQ(resources, (ResourceList{{"cpu", 1000}, {"memory", 10}, {"pods", 1}}));
  EXPECT_EQ(QuantityOf(resources, "nvidia.com/gpu"), 0);
}

TEST(ResourceListTest, SumsOfStrangersDoNotWrapAround) {
  ResourceList resources = {{"memory", std::numeric_limits<int64_t>::max()}};
  AddResourceList({{"memory", 1}}, resources);
  EXPECT_EQ(QuantityOf(resources, "memory"), std::numeric_limits<int64_t>::max());
  resources = {{"memory", std::numeric_limits<int64_t>::min()}};
  AddResourceList({{"memory", -1}}, resources);
  EXPECT_EQ(QuantityOf(resources, "memory"), std::numeric_limits<int64_t>::min());
}

TEST(ResourceListTest, ReadsAsPeopleWriteIt) {
  EXPECT_EQ(ResourceListText({{"cpu", 1500}, {"memory", int64_t{8} << 30}, {"nvidia.com/gpu", 2}}),
            "1.5 cpu, 8Gi memory, 2 nvidia.com/gpu");
  EXPECT_EQ(QuantityText("memory", int64_t{1536} << 20), "1.5Gi memory");
  EXPECT_EQ(ResourceListText({}), "nothing");
}

}  // namespace
}  // namespace fusionllm::kube
