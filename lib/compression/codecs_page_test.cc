// docs/reference/codecs.md against the registry: the page names every codec, its gradient, its ratio, and the fields that take it.
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/source_file.h"
#include "lib/compression/registry.h"

namespace fusionllm::compression {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr int64_t kMaxPage = 1 << 20;
constexpr char kCodecsPage[] = "docs/reference/codecs.md";

// The cells behind the first of each row, by what stands in the first one.
std::map<std::string, std::vector<std::string>> Rows() {
  const char* root = std::getenv("FUSIONLLM_SOURCE_DIR");
  const absl::StatusOr<std::string> page = base::ReadSmallFile(absl::StrCat(root == nullptr ? "." : root, "/", kCodecsPage), kMaxPage);
  EXPECT_TRUE(page.ok()) << page.status();
  std::map<std::string, std::vector<std::string>> rows;
  for (absl::string_view line : absl::StrSplit(page.value_or(""), '\n')) {
    if (!absl::ConsumePrefix(&line, "| ") || !absl::ConsumeSuffix(&line, " |")) continue;
    std::vector<std::string> cells = absl::StrSplit(line, " | ");
    const std::string first = cells.front();
    cells.erase(cells.begin());
    rows[first] = std::move(cells);
  }
  return rows;
}

// What stands between backticks.
std::vector<std::string> Quoted(const std::string& cell) {
  const std::vector<std::string> parts = absl::StrSplit(cell, '`');
  std::vector<std::string> quoted;
  for (size_t i = 1; i < parts.size(); i += 2) quoted.push_back(parts[i]);
  return quoted;
}

double RatioOf(const CodecSpec& spec) { return WireRatio(spec, 1'000'000); }

TEST(CodecsPageTest, HasARowOfEveryCodecThatSendsAllValues) {
  const auto rows = Rows();
  for (const Codec* codec : Codecs()) {
    if (codec->dense() == nullptr) continue;
    const CodecTraits& traits = codec->traits;
    const auto found = rows.find(absl::StrCat("`", traits.name, "`"));
    ASSERT_NE(found, rows.end()) << kCodecsPage << " has no row of " << traits.name;
    ASSERT_EQ(found->second.size(), 4) << "forward, gradient, ratio, what is lost";
    if (traits.gradient == traits.kind) {
      EXPECT_THAT(found->second[1], AnyOf("the same", "as it is")) << traits.name;
    } else {
      EXPECT_EQ(found->second[1], Name(traits.gradient)) << traits.name;
    }
    double ratio = 0;
    ASSERT_TRUE(absl::SimpleAtod(found->second[2], &ratio)) << found->second[2];
    EXPECT_NEAR(ratio, RatioOf({.kind = traits.kind}), 0.05) << traits.name;
  }
}

// In rows such as "`topk@R:int8`, `topk@R:fp16`": ratios are given by example.
TEST(CodecsPageTest, HasEveryFormOfThoseThatSelect) {
  const auto rows = Rows();
  for (const Codec* codec : Codecs()) {
    if (codec->dense() != nullptr) continue;
    std::vector<std::string> forms;
    for (const auto& [first, cells] : rows) {
      if (!absl::StartsWith(first, absl::StrCat("`", codec->traits.name, "@R"))) continue;
      for (const std::string& form : Quoted(first)) forms.push_back(form);
      ASSERT_EQ(cells.size(), 4);
      const std::vector<std::string> parts = absl::StrSplit(cells[2], '`');
      for (size_t i = 1; i + 1 < parts.size(); i += 2) {
        double ratio = 0;
        ASSERT_TRUE(absl::SimpleAtod(parts[i + 1].substr(0, parts[i + 1].find_first_of(",(")), &ratio)) << parts[i + 1];
        const auto spec = ParseCodecSpec(parts[i]);
        ASSERT_TRUE(spec.ok()) << spec.status();
        EXPECT_NEAR(ratio, RatioOf(*spec), 1) << parts[i];
      }
    }
    for (const Codec* values : Codecs()) {
      if (!values->traits.values.has_value()) continue;
      EXPECT_THAT(forms, Contains(absl::StrCat(codec->traits.name, "@R:", values->traits.name)));
    }
  }
}

TEST(CodecsPageTest, FieldsNameTheCodecsThatTheyTake) {
  const auto rows = Rows();
  std::map<std::string, std::vector<std::string>> fields;
  std::string levels;
  for (const Codec* codec : Codecs()) {
    const CodecTraits& traits = codec->traits;
    fields["codec"].push_back(traits.name);
    if (traits.values.has_value()) fields["topkValues"].push_back(traits.name);
    if (traits.tied_loss_increase.has_value()) fields["tiedGradients"].push_back(traits.name);
    if (traits.kind == CodecKind::kExact || traits.automatic || codec->dense() == nullptr) {
      absl::StrAppend(&levels, levels.empty() ? "" : ", ", traits.name);
    }
  }
  for (const auto& [field, names] : fields) {
    const auto found = rows.find(absl::StrCat("`", field, "`"));
    ASSERT_NE(found, rows.end()) << field;
    EXPECT_THAT(Quoted(found->second.front()), IsSupersetOf(names)) << field;
  }
  ASSERT_TRUE(rows.contains("`limit`"));
  EXPECT_THAT(rows.at("`limit`").front(), HasSubstr(levels));
}

}  // namespace
}  // namespace fusionllm::compression
