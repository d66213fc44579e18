#include "lib/workload/input_limits.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "lib/opdag/text.h"

namespace fusionllm::workload {
namespace {

constexpr char kGraph[] =
    "graph \"g\" {\n"
    "  x = placeholder() {role=\"tokens\", dtype=\"i32\", shape=[b, 6]}\n"
    "  y = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b, 6]}\n"
    "  e = embedding(x) {vocab=50, dim=4}\n"
    "  head = linear(e) {out=30}\n"
    "  loss = cross_entropy(head, y)\n"
    "  return loss\n"
    "}\n";

InputLimits LimitsOf(absl::string_view from, absl::string_view to) {
  absl::StatusOr<opdag::Graph> graph = opdag::ParseGraph(absl::StrReplaceAll(kGraph, {{from, to}}), "test.dag");
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return {};
  const absl::Status typed = opdag::InferTypes(*graph, 2);
  EXPECT_TRUE(typed.ok()) << typed;
  return InputLimitsOf(*graph);
}

TEST(InputLimitsTest, AreRowsOfTheEmbeddingAndClassesOfTheLoss) {
  const InputLimits limits = LimitsOf("", "");
  EXPECT_EQ(limits.tokens, 50);
  EXPECT_EQ(limits.labels, 30);
}

TEST(InputLimitsTest, TheSmallestOfSeveralReadersCounts) {
  const InputLimits limits = LimitsOf("  e = embedding(x) {vocab=50, dim=4}\n",
                                      "  f = embedding(x) {vocab=40, dim=4}\n  d = embedding(x) {vocab=50, dim=4}\n  e = add(d, f)\n");
  EXPECT_EQ(limits.tokens, 40);
}

TEST(InputLimitsTest, AnIgnoredIdIsNotOutOfRange) {
  EXPECT_EQ(LimitsOf("cross_entropy(head, y)", "cross_entropy(head, y) {ignore_index=255}").labels, 0);
  EXPECT_EQ(LimitsOf("cross_entropy(head, y)", "cross_entropy(head, y) {ignore_index=3}").labels, 30);
}

TEST(InputLimitsTest, ChannelsAreThoseOfImagesThatAreNotFlat) {
  const auto images = [](absl::string_view shape) {
    return LimitsOf("  e = embedding", absl::StrCat("  i = placeholder() {role=\"images\", dtype=\"f32\", shape=[", shape,
                                                    "]}\n  r = relu(i)\n  e = embedding"))
        .image_channels;
  };
  EXPECT_EQ(images("b, 8, 8, 3"), 3);
  EXPECT_EQ(images("b, 192"), 0);
}

TEST(InputLimitsTest, WithoutSuchOpsThereAreNone) {
  const InputLimits limits = LimitsOf("  x = placeholder() {role=\"tokens\"", "  x = placeholder() {role=\"other\"");
  EXPECT_EQ(limits.tokens, 0);
}

}  // namespace
}  // namespace fusionllm::workload
