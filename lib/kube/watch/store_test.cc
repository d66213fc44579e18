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

TEST(StoreTest, AnObjectIsFoundOnceByEachOfItsValues) {
  Store store;
  store.AddIndex("jobs", [](const Object& object) {
    std::vector<std::string> values;
    for (const auto& [name, value] : object.meta.labels) values.push_back(value);
    return values;
  });
  store.AddIndex("all", [](const Object&) { return std::vector<std::string>{""}; });
  for (int i = 0; i < 1000; ++i) {
    const auto object = std::make_shared<Object>();
    object->meta.name = std::to_string(i);
    object->meta.labels = {{"a", std::to_string(i % 100)}, {"b", std::to_string(i % 70)}, {"c", "every"}};
    store.Put(object);
  }
  for (int i = 0; i < 1000; i += 2) store.Remove({"", std::to_string(i)});
  EXPECT_EQ(store.Find("jobs", "every").size(), 500u);
  EXPECT_EQ(store.Find("all", "").size(), 500u);
  for (int value = 0; value < 100; ++value) {
    std::vector<std::string> expected;
    for (int i = 1; i < 1000; i += 2) {
      if (i % 100 == value || i % 70 == value) expected.push_back(std::to_string(i));
    }
    EXPECT_THAT(Names(store.Find("jobs", std::to_string(value))), ::testing::UnorderedElementsAreArray(expected));
  }
}

}  // namespace
}  // namespace fusionllm::kube
