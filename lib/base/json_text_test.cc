#include "lib/base/json_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::base {
namespace {

std::string Repeated(absl::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) absl::StrAppend(&all, text);
  return all;
}

TEST(JsonTextTest, ReadsWhatIsWithinTheLimits) {
  EXPECT_EQ(ParseJson(R"({"a": [1, {"b": "]]]]{{{{"}]})")["a"][1]["b"], "]]]]{{{{");
  const std::string deep = absl::StrCat(Repeated("[", kMaxJsonDepth), Repeated("]", kMaxJsonDepth));
  EXPECT_FALSE(ParseJson(deep).is_discarded());
  EXPECT_EQ(ParseJson(deep).dump(), deep);
}

TEST(JsonTextTest, TextThatIsNoJsonIsDiscarded) {
  for (const char* text : {"", "{", "[1,]", "nul", "{\"a\":1}x", "\"open"}) EXPECT_TRUE(ParseJson(text).is_discarded()) << text;
}

// A megabyte of brackets made processes end in a copy of the document.
TEST(JsonTextTest, TextThatNestsTooDeepIsDiscardedWhateverItsEnd) {
  for (const char* opening : {"[", "{\"a\":", "[{\"a\":", "[0,["}) {
    const std::string text = Repeated(opening, 300'000);
    EXPECT_TRUE(ParseJson(text).is_discarded()) << opening;
    EXPECT_THAT(BeyondJsonLimits(text), ::testing::HasSubstr("nested deeper than 128")) << opening;
  }
  EXPECT_TRUE(ParseJson(absl::StrCat(Repeated("[", 300'000), Repeated("]", 300'000))).is_discarded());
  EXPECT_TRUE(ParseJson("[[[]]]", {.depth = 2}).is_discarded());
  EXPECT_EQ(BeyondJsonLimits("[[[]]]", {.depth = 2}), "byte 2: nested deeper than 2");
}

TEST(JsonTextTest, TooManyValuesAreDiscarded) {
  EXPECT_TRUE(ParseJson("[1,2,3,4]", {.values = 4}).is_discarded());
  EXPECT_FALSE(ParseJson("[1,2,3,4]", {.values = 5}).is_discarded());
  EXPECT_EQ(BeyondJsonLimits("[\",,,,\",1]", {.values = 3}), "") << "commas of a text";
}

}  // namespace
}  // namespace fusionllm::base
