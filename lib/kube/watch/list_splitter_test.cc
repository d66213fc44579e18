#include "lib/kube/watch/list_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lib/kube/watch/testing/objects.h"

namespace fusionllm::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Split {
  absl::StatusOr<ListHead> head = absl::UnknownError("not finished");
  std::vector<std::string> objects;
};

Split SplitAll(const std::string& text, size_t chunk, size_t max_object_bytes = 1000) {
  Split split;
  ListSplitter splitter(max_object_bytes);
  for (size_t at = 0; at < text.size(); at += chunk) {
    const absl::Status status = splitter.Push(absl::string_view(text).substr(at, chunk), [&](absl::string_view object) {
      split.objects.emplace_back(object);
      return absl::OkStatus();
    });
    if (!status.ok()) {
      split.head = status;
      return split;
    }
  }
  split.head = splitter.Finish();
  return split;
}

TEST(ListSplitterTest, GivesTheSameObjectsHoweverTheAnswerIsCut) {
  const std::string first = R"({"metadata":{"name":"a","labels":{"x":"]},{\"items\":[\\"}},"spec":{"list":[[{}],[]]}})";
  const std::string second = R"({ "metadata": {"name": "é€😀"} })";
  const std::string text =
      absl::StrCat("{\n \"kind\": \"PodList\", \"apiVersion\":\"v1\",\n \"metadata\": {\"resourceVersion\": \"42\", ",
                   "\"continue\": \"next,\\\"items\\\":[\", \"items\": [1]},\n \"items\" : [ ", first, " ,\n ", second, " ] }\n");
  for (size_t chunk = 1; chunk <= text.size(); ++chunk) {
    const Split split = SplitAll(text, chunk);
    ASSERT_TRUE(split.head.ok()) << split.head.status() << " in chunks of " << chunk;
    EXPECT_EQ(split.head->kind, "PodList");
    EXPECT_EQ(split.head->api_version, "v1");
    EXPECT_EQ(split.head->resource_version, "42");
    EXPECT_EQ(split.head->continue_token, "next,\"items\":[");
    ASSERT_THAT(split.objects, ElementsAre(first, second)) << "in chunks of " << chunk;
  }
}

// As of a long line: with a cost for each chunk of what has come so far this would take hours.
TEST(ListSplitterTest, ALongObjectThatComesByteByByteCostsNoMoreThanItsBytes) {
  constexpr size_t kLong = size_t{16} << 20;
  const std::string text = absl::StrCat(R"({"kind":"PodList","items":[{"a":")", std::string(kLong, 'x'), "\"}]}");
  const Split split = SplitAll(text, 1, 2 * kLong);
  ASSERT_TRUE(split.head.ok()) << split.head.status();
  ASSERT_EQ(split.objects.size(), 1u);
  EXPECT_EQ(split.objects[0].size(), kLong + 8);
}

TEST(ListSplitterTest, TheHeadMayComeAfterTheItems) {
  const Split split = SplitAll(R"({"items":[{"a":1}],"metadata":{"resourceVersion":"7"},"kind":"PodList"})", 5);
  ASSERT_TRUE(split.head.ok()) << split.head.status();
  EXPECT_EQ(split.head->resource_version, "7");
  EXPECT_THAT(split.objects, ElementsAre(R"({"a":1})"));
}

TEST(ListSplitterTest, EmptyListsAreLists) {
  for (const char* text : {R"({"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]})",
                           R"({"kind":"PodList","metadata":{"resourceVersion":"7"},"items":null})"}) {
    const Split split = SplitAll(text, 3);
    EXPECT_TRUE(split.head.ok()) << text << ": " << split.head.status();
    EXPECT_THAT(split.objects, IsEmpty());
  }
}

TEST(ListSplitterTest, RefusesWhatIsNoWholeList) {
  const std::string whole = testing::ListJson({testing::PodJson("a", "1")}, "2");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(SplitAll(whole.substr(0, length), 1000).head.ok()) << length << " bytes of it";
  }
  for (const char* text : {"", "[]", "null", "x", R"({"kind":"Status","code":500})", R"({"items":5})", R"({"items":[5]})",
                           R"({"items":["a"]})", R"({"items":[[{}]]})", R"({"items":[],"items":[]})", R"({"items":[]}})", R"({"items":{}})",
                           R"({"items":[{]]})", R"({"items":[{}}})", "<html>busy</html>"}) {
    EXPECT_FALSE(SplitAll(text, 1000).head.ok()) << text;
    EXPECT_FALSE(SplitAll(text, 1).head.ok()) << text;
  }
}

TEST(ListSplitterTest, EndlessObjectsHeadsAndNestingAreCutOff) {
  const std::string object = R"({"a":")" + std::string(100, 'x') + "\"}";
  EXPECT_TRUE(SplitAll(testing::ListJson({object}, "1"), 7, object.size()).head.ok());
  for (const size_t chunk : {1, 1000}) {
    EXPECT_EQ(SplitAll(testing::ListJson({object}, "1"), chunk, object.size() - 1).head.status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(SplitAll("{\"kind\":\"" + std::string(100'000, 'x'), chunk).head.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(SplitAll(std::string(10'000, '['), chunk).head.ok());
    EXPECT_FALSE(SplitAll("{\"items\":[" + std::string(10'000, '{'), chunk, 100'000).head.ok());
  }
}

}  // namespace
}  // namespace fusionllm::kube
