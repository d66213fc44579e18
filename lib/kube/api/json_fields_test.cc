#include "lib/kube/api/json_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fusionllm::kube {
namespace {

using nlohmann::json;

const json& PodWithFields() {
  static const json kPod = ParseJson(R"({"metadata": {"name": "p", "labels": {"a/b": "c"}, "uid": 7},
    "status": {"count": 18446744073709551615, "restarts": -3, "phase": null, "conditions": [{"type": "Ready"}]}})");
  return kPod;
}

TEST(JsonFieldsTest, ReadsAlongAPath) {
  EXPECT_EQ(TextAt(PodWithFields(), "metadata", "name"), "p");
  EXPECT_EQ(TextAt(PodWithFields(), "metadata", "labels", "a/b"), "c");
  EXPECT_EQ(IntegerOf(At(PodWithFields(), "status", "restarts"), 0), -3);
  ASSERT_EQ(ListOf(At(PodWithFields(), "status", "conditions")).size(), 1u);
}

TEST(JsonFieldsTest, WhatIsMissingIsNothing) {
  EXPECT_TRUE(At(PodWithFields(), "spec").is_null());
  EXPECT_TRUE(At(PodWithFields(), "spec", "containers", "name").is_null());
  EXPECT_EQ(TextAt(PodWithFields(), "metadata", "namespace"), "");
  EXPECT_EQ(IntegerOf(At(PodWithFields(), "status", "ready"), 5), 5);
}

TEST(JsonFieldsTest, WhatHasAnotherTypeIsNothing) {
  EXPECT_EQ(TextAt(PodWithFields(), "metadata", "uid"), "");
  EXPECT_EQ(TextAt(PodWithFields(), "metadata", "name", "first"), "");     // of text
  EXPECT_EQ(TextAt(PodWithFields(), "status", "conditions", "type"), "");  // of a list
  EXPECT_EQ(IntegerOf(At(PodWithFields(), "metadata", "name"), 5), 5);
  EXPECT_EQ(IntegerOf(At(PodWithFields(), "status", "count"), 5), 5) << "beyond 63 bits";
  EXPECT_EQ(IntegerOf(json(1.5), 5), 5);
  for (const json& value : {json("text"), json(3), json(), json(true)}) {
    EXPECT_TRUE(ListOf(value).is_array() && ListOf(value).empty());
    EXPECT_TRUE(MappingOf(value).is_object() && MappingOf(value).empty());
  }
  EXPECT_TRUE(MappingOf(json::array({1})).empty());
  EXPECT_TRUE(ListOf(json{{"a", 1}}).empty());
}

// A page of a broker, or an answer of a member cluster: its copy ended the operator.
TEST(JsonFieldsTest, TextThatNestsWithoutEndIsNothing) {
  EXPECT_TRUE(ParseJson(std::string(1 << 20, '[')).is_null());
  std::string closed(400'000, '[');
  closed.append(400'000, ']');
  EXPECT_TRUE(ParseJson(closed).is_null());
  std::string mappings;
  for (int i = 0; i < 100'000; ++i) mappings += "{\"a\":";
  EXPECT_TRUE(ParseJson(mappings + "1" + std::string(100'000, '}')).is_null());
}

TEST(JsonFieldsTest, WhatIsNoJsonIsNothing) {
  EXPECT_TRUE(ParseJson("<html>").is_null());
  EXPECT_TRUE(ParseJson("").is_null());
  EXPECT_TRUE(ParseJson("\"\xff\"").is_null()) << "text that is no UTF-8";
}

}  // namespace
}  // namespace fusionllm::kube
