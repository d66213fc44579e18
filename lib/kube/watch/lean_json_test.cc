#include "lib/kube/watch/lean_json.h"

#include <gtest/gtest.h>

namespace fusionllm::kube {
namespace {

TEST(LeanJsonTest, ManagedFieldsAndWhatIsNamedAreLeftOut) {
  constexpr char kPod[] =
      R"({"kind":"Pod", "metadata":{"name":"a","managedFields":[{"manager":"x","fieldsV1":{"f:spec":{}}}],"labels":{"b/c":"d\"e"}},)"
      R"( "spec":{"containers":[{"name":"spec"}]}, "status":{"phase":"Running","podIP":null}, "n": -1.5 })";
  EXPECT_EQ(LeanJson(kPod, {"spec"}).value(),
            R"({"kind":"Pod","metadata":{"name":"a","labels":{"b/c":"d\"e"}},"status":{"phase":"Running","podIP":null},"n":-1.5})");
  EXPECT_EQ(LeanJson(kPod, {"spec", "status", "kind", "n"}).value(), R"({"metadata":{"name":"a","labels":{"b/c":"d\"e"}}})");
}

TEST(LeanJsonTest, WhatIsNoObjectIsAnError) {
  for (const char* text : {"", "[]", "7", "{", R"({"metadata":{"name":})"}) EXPECT_FALSE(LeanJson(text).ok()) << text;
  EXPECT_EQ(LeanJson("{}").value(), "{}");
  EXPECT_EQ(LeanJson(R"({"metadata":{}})").value(), R"({"metadata":{}})");
  EXPECT_EQ(LeanJson(R"({"metadata":null,"a\"b":1,"spec":[]})").value(), R"({"metadata":null,"spec":[]})") << "no kind has such a field";
}

}  // namespace
}  // namespace fusionllm::kube
