#include "lib/kube/watch/strip_fields.h"

#include <gtest/gtest.h>

namespace fusionllm::kube {
namespace {

TEST(StripFieldsTest, ManagedFieldsAndWhatIsNamedAreLeftOut) {
  constexpr char kPod[] =
      R"({"kind":"Pod", "metadata":{"name":"a","managedFields":[{"manager":"x","fieldsV1":{"f:spec":{}}}],"labels":{"b/c":"d\"e"}},)"
      R"( "spec":{"containers":[{"name":"spec"}]}, "status":{"phase":"Running","podIP":null}, "n": -1.5 })";
  EXPECT_EQ(StripFields(kPod, {"spec"}).value(),
            R"({"kind":"Pod","metadata":{"name":"a","labels":{"b/c":"d\"e"}},"status":{"phase":"Running","podIP":null},"n":-1.5})");
  EXPECT_EQ(StripFields(kPod, {"spec", "status", "kind", "n"}).value(), R"({"metadata":{"name":"a","labels":{"b/c":"d\"e"}}})");
}

TEST(StripFieldsTest, WhatIsNoObjectIsAnError) {
  for (const char* text : {"", "[]", "7", "{", R"({"metadata":{"name":})"}) EXPECT_FALSE(StripFields(text).ok()) << text;
  EXPECT_EQ(StripFields("{}").value(), "{}");
  EXPECT_EQ(StripFields(R"({"metadata":{}})").value(), R"({"metadata":{}})");
  EXPECT_EQ(StripFields(R"({"metadata":null,"a\"b":1,"spec":[]})").value(), R"({"metadata":null,"spec":[]})") << "no kind has such a field";
}

}  // namespace
}  // namespace fusionllm::kube
