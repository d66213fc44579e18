// Every row of testdata/yaml_values.txt: what kubectl reads is read here as the same value, or refused in words.
// e2e/crd/yaml_values_test.sh asks kubectl and an API server of the same rows.
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/base/yaml_scalar.h"
#include "lib/job/describer.h"
#include "lib/job/fusion_job_fields.h"
#include "lib/job/parse.h"

namespace fusionllm::job {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string ReadFile(const std::string& name) {
  const char* const folder = std::getenv("FUSIONLLM_SOURCE_DIR");
  std::ifstream stream(absl::StrCat(folder == nullptr ? "." : folder, "/lib/job/testdata/", name));
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

struct Row {
  int line = 0;
  std::string place, yaml, kubectl, here;
};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  int number = 0;
  const std::string text = ReadFile("yaml_values.txt");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    EXPECT_EQ(cells.size(), 4u) << "line " << number;
    if (cells.size() != 4) continue;
    Row row{number, cells[0], "", cells[2], cells[3]};
    if (cells[1] != "(nothing)") {
      // Every other character stands for itself, quotes too.
      EXPECT_TRUE(absl::CUnescape(absl::StrReplaceAll(cells[1], {{"\"", "\\\""}}), &row.yaml)) << "line " << number;
    }
    rows.push_back(row);
  }
  return rows;
}

// The job with `value` at the word `place`, and at the others what stands there if nothing is said.
std::string JobWith(const std::string& place, const std::string& value) {
  std::string job;
  const std::string text = ReadFile("yaml_values_job.yaml");
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (const absl::string_view line : lines) {
    const std::vector<std::string> parts = absl::StrSplit(line, '@');
    if (parts.size() != 3 || line[0] == '#') {
      absl::StrAppend(&job, line, "\n");
      continue;
    }
    const std::pair<std::string, std::string> word = absl::StrSplit(parts[1], absl::MaxSplits(':', 1));
    absl::StrAppend(&job, parts[0], word.first == place ? value : word.second, parts[2], "\n");
  }
  return job;
}

json ValueAt(const std::string& place, const FusionJob& job) {
  if (place == "VALUE") return json::parse(job.spec.data.volume.json).at("value");
  if (place == "STEPS") return job.spec.training.steps;
  if (place == "RATE") return job.spec.training.optimizer.learning_rate;
  if (place == "NESTEROV") return job.spec.training.optimizer.nesterov;
  if (place == "PRESET") return job.spec.model.preset.value_or("");
  if (place == "PATH") return job.spec.data.path.at(0);
  if (place == "PRECISION") return ToString(job.spec.training.precision);
  if (place == "NAME") return job.metadata.name;
  ADD_FAILURE() << "no such place: " << place;
  return nullptr;
}

absl::StatusOr<FusionJob> Load(const std::string& text) {
  const base::TempFolder folder;
  absl::StatusOr<FusionJob> job = LoadFusionJob(folder.Write("job.yaml", text));
  if (job.ok()) job->spec.data.path = ParseFusionJob(text, "job.yaml")->spec.data.path;  // as it is written
  return job;
}

TEST(YamlValuesTest, EveryRowIsReadAsKubectlReadsItOrRefusedInWords) {
  const std::vector<Row> rows = Rows();
  ASSERT_GT(rows.size(), 100u);
  const absl::StatusOr<FusionJob> plain = Load(JobWith("", ""));
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (const Row& row : rows) {
    SCOPED_TRACE(absl::StrCat("line ", row.line, " of yaml_values.txt: ", row.place, " ", absl::CEscape(row.yaml)));
    const bool document = row.place == "DOCUMENT";
    const absl::StatusOr<FusionJob> job =
        Load(document ? absl::StrReplaceAll(row.yaml, {{"JOB", JobWith("", "")}}) : JobWith(row.place, row.yaml));
    absl::string_view words = row.here;
    if (absl::ConsumePrefix(&words, "refused")) {
      EXPECT_FALSE(job.ok());
      EXPECT_THAT(std::string(job.status().message()), HasSubstr(std::string(absl::StripAsciiWhitespace(words))));
      EXPECT_TRUE(absl::StrContains(job.status().message(), "job.yaml:")) << job.status();  // and on which line
      continue;
    }
    ASSERT_TRUE(job.ok()) << job.status();
    if (document) {
      EXPECT_TRUE(*job == *plain);
      EXPECT_TRUE(row.kubectl == "read" || row.here == "read");
      continue;
    }
    const json value = ValueAt(row.place, *job), wanted = json::parse(row.kubectl);
    EXPECT_EQ(row.place == "PRESET" && wanted.is_number() ? json(wanted.dump()) : wanted, value);
  }
}

TEST(YamlValuesTest, CrLfIsReadAsLf) {
  const absl::StatusOr<FusionJob> job = Load(absl::StrReplaceAll(JobWith("VALUE", "|\n        x\n        y"), {{"\n", "\r\n"}}));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(ValueAt("VALUE", *job), "x\ny\n");
}

TEST(YamlValuesTest, CarriageReturnsAloneEndLines) {
  const absl::StatusOr<FusionJob> job = Load(absl::StrReplaceAll(JobWith("VALUE", "|\n        x\n        y"), {{"\n", "\r"}}));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(ValueAt("VALUE", *job), "x\ny\n");
  const std::string wrong = JobWith("STEPS", "many");
  EXPECT_EQ(ParseFusionJob(absl::StrReplaceAll(wrong, {{"\n", "\r"}}), "job.yaml").status(), ParseFusionJob(wrong, "job.yaml").status());
}

TEST(YamlValuesTest, EscapesOfSpacesAndLineEndsAreTheirCharacters) {
  const absl::StatusOr<FusionJob> job = Load(JobWith("VALUE", R"("\_|\N|\L|\P|à\_")"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(ValueAt("VALUE", *job), "\xC2\xA0|\xC2\x85|\xE2\x80\xA8|\xE2\x80\xA9|\xC3\xA0\xC2\xA0");
  const absl::StatusOr<FusionJob> key = Load(JobWith("VALUE", R"({"a\_b": 1})"));
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(ValueAt("VALUE", *key), json({{"a\xC2\xA0"
                                           "b",
                                           1}}));
  const std::vector<std::string> overrides = {R"(spec.data.volume.value="\_")"};
  const absl::StatusOr<FusionJob> set = ParseFusionJob(JobWith("", ""), "job.yaml", overrides);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(ValueAt("VALUE", *set), "\xC2\xA0");
}

TEST(YamlValuesTest, LengthIsCountedInCharactersAsAnApiServerCounts) {
  std::string path;  // of two bytes each
  for (int i = 0; i < 4096; ++i) path += "\xC3\xA0";
  const absl::StatusOr<FusionJob> job = ParseFusionJob(JobWith("PATH", path), "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(ValueAt("PATH", *job), path);
  EXPECT_THAT(std::string(ParseFusionJob(JobWith("PATH", path + "x"), "job.yaml").status().message()),
              HasSubstr("must have at most 4096 characters, got 4097"));
}

TEST(YamlValuesTest, AnotherEncodingIsRefusedWithTheRemedy) {
  std::string little, big;
  for (const char c : JobWith("", "")) {
    little += {c, '\0'};
    big += {'\0', c};
  }
  for (const std::string& text : {"\xff\xfe" + little, "\xfe\xff" + big, little, big}) {
    EXPECT_THAT(std::string(Load(text).status().message()),
                ::testing::AllOf(HasSubstr("job.yaml:1: it "), HasSubstr("UTF-16: save it as UTF-8")));
  }
  EXPECT_THAT(std::string(Load("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n").status().message()),
              HasSubstr("git lfs pull"));
}

void CheckChoices(const FieldSchema& field, const std::string& path) {
  for (const std::string& choice : field.choices) {
    EXPECT_EQ(base::ResolveYamlScalar(choice).type, base::YamlScalar::Type::kText) << path << ": " << choice;
  }
  for (const FieldSchema& child : field.children) CheckChoices(child, absl::StrCat(path, ".", child.name));
}

// Else a job could not name it without quotes.
TEST(YamlValuesTest, NoChoiceIsABoolOrANumberToYaml) { CheckChoices(Describer::Root<FusionJob>(), ""); }

}  // namespace
}  // namespace fusionllm::job
