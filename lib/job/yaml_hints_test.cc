#include "lib/job/yaml_hints.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/parse.h"

namespace fusionllm::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kHeadOfJob[] =
    "apiVersion: fusionllm.io/v1alpha1\n"
    "kind: FusionJob\n"
    "metadata: {name: t}\n"
    "spec:\n";

TEST(YamlHintsTest, CommonSlipsAreNamedBeforeTheWordsOfTheParser) {
  const struct {
    const char* spec;
    const char* place;
    const char* hint;
    const char* parser;
  } cases[] = {
      {"  model:\n    family: gpt2\n    preset:tiny\n  data: {path: [a]}\n", "job.yaml:8: not YAML: no ':' is expected here",
       "is ':' missing in the line above, or the blank after it", "(illegal map value)"},
      {"  model: {family: gpt2}\n   training: {steps: 5}\n", "job.yaml:6: not YAML: this line does not fit what stands above it",
       "is it indented otherwise", "(end of map not found)"},
      {"  model:\n    family: gpt2\n   training:\n    steps: 5\n", "job.yaml:7: not YAML: this line does not fit what stands above it",
       "is it indented otherwise, or is a blank missing after ':' in it or in the line above?", "(end of map not found)"},
      {"  data: {path: [a, kind: text\n  training: {steps: 5}\n", "job.yaml:6: not YAML: a '[' in this line or above it has no ']'",
       "a ',' is missing", "(end of sequence flow not found)"},
      {"  training: {steps: 5\n", "not YAML: a '{' in this line or above it has no '}'", "a ',' is missing", "(end of map flow not found)"},
      {"  training: steps: 5}\n", "not YAML: no ':' is expected here", "must be in quotes", "(illegal map value)"},
      {"  data: - text\n", "job.yaml:5: not YAML: a list begins on a line of its own", "[a, b]", "(illegal block entry)"},
      {"  data: {path: [@a]}\n", "job.yaml:5: not YAML: a value that begins with @", "must be in quotes", "(unknown token)"},
      {"  data: {path: *.txt}\n", "job.yaml:5: not YAML: a value that begins with @, `, % or *", "must be in quotes", "(the referenced"},
      {"  data: {path: \"C:\\data\"}\n", "job.yaml:5: not YAML: in double quotes", "single quotes", "(unknown escape character: d)"},
  };
  for (const auto& c : cases) {
    const std::string error(ParseFusionJob(absl::StrCat(kHeadOfJob, c.spec), "job.yaml").status().message());
    EXPECT_THAT(error, AllOf(HasSubstr(c.place), HasSubstr(c.hint), HasSubstr(c.parser))) << c.spec;
  }
}

TEST(YamlHintsTest, OtherSentencesOfTheParserStayAsTheyAre) {
  EXPECT_EQ(ExplainYamlError("repeated YAML directive"), "repeated YAML directive");
  EXPECT_THAT(ExplainYamlError("end of sequence not found"), StartsWith("this line does not fit the list above it"));
}

}  // namespace
}  // namespace fusionllm::job
