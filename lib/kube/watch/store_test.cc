#include "lib/kube/watch/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::kube {
namespace {

ObjectPtr Make(const std::string& name, const std::string& job) {
  const auto object = std::make_shared<Object>();
  object->meta.ns = "ns";
  object->meta.name = name;
  if (!job.empty()) object->meta.labels = {{"job", job}};
  return object;
}

std::vector<std::string> Names(const std::vector<ObjectPtr>& objects) {
  std::vector<std::string> names;
  for (const ObjectPtr& object : objects) names.push_back(object->meta.name);
  return names;
}

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(StoreTest, IndexesFollowTheirObjects) {
  Store store;
  store.AddIndex("job", [](const Object& object) -> std::vector<std::string> {
    const absl::string_view job = object.meta.Label("job");
    if (job.empty()) return {};
    return {std::string(job)};
  });
  EXPECT_EQ(store.Put(Make("a", "1")), nullptr);
  store.Put(Make("b", "1"));
  store.Put(Make("c", "2"));
  store.Put(Make("d", ""));
  EXPECT_THAT(Names(store.Find("job", "1")), UnorderedElementsAre("a", "b"));
  EXPECT_EQ(store.Put(Make("a", "2"))->meta.Label("job"), "1");  // moves
  EXPECT_THAT(Names(store.Find("job", "1")), UnorderedElementsAre("b"));
  EXPECT_THAT(Names(store.Find("job", "2")), UnorderedElementsAre("a", "c"));
  EXPECT_NE(store.Remove({"ns", "b"}), nullptr);
  EXPECT_EQ(store.Remove({"ns", "b"}), nullptr);
  EXPECT_THAT(store.Find("job", "1"), IsEmpty());
  EXPECT_THAT(store.Find("job", ""), IsEmpty());
  EXPECT_EQ(store.size(), 3u);
  EXPECT_EQ(store.Get({"ns", "b"}), nullptr);
  EXPECT_EQ(store.Get({"ns", "d"})->meta.name, "d");
}

}  // namespace
}  // namespace fusionllm::kube
