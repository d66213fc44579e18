// e2e/crd/refused.yaml and refused-updates.txt, which crd_test.sh puts to an API server: that they try every rule, and that this code's own
// reader refuses the same jobs; reader-alone.yaml: that what it refuses besides is known, with a reason. No library that evaluates CEL can
// be had here (cel-cpp is in no Debian release, and Kubernetes' own in Go needs a Go newer than Debian's), so what the expressions do is
// for that server to tell.
#include <algorithm>
#include <cstdlib>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/kubeapi/crd.h"
#include "lib/kubeapi/objects.h"
#include "lib/kubeapi/testing/kubectl_yaml.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/yaml.h"

namespace fusionllm::kubeapi {
namespace {

std::string E2eFile(const std::string& name) {
  const char* folder = std::getenv("FUSIONLLM_SOURCE_DIR");
  return base::ReadWholeFile(absl::StrCat(folder == nullptr ? "." : folder, "/e2e/crd/", name));
}

struct Case {
  std::string expected;
  nlohmann::json object;
};

std::vector<Case> Cases(const std::string& name, const char* key) {
  std::vector<Case> cases;
  const std::string text = E2eFile(name);
  for (const absl::string_view document : absl::StrSplit(text, "\n---\n")) {
    Case one{.object = testing::FromYaml(YAML::Load(std::string(document)))};
    for (absl::string_view line : absl::StrSplit(document, '\n')) {
      if (absl::ConsumePrefix(&line, key)) one.expected = std::string(line);
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<Case> Refused() { return Cases("refused.yaml", "# expect: "); }
std::vector<Case> RefusedByTheReaderAlone() { return Cases("reader-alone.yaml", "# field: "); }

// The fields of the job that lib/job/check_job.cc finds wrong, as they stand there, as often as they do: "spec.strategy.pins[" of a list.
std::vector<std::string> BlamedByTheReader() {
  const std::string text = E2eFile("../../lib/job/check_job.cc");
  const std::regex blame(R"re((?:report\(\{|StrCat\(|CheckUri\([^"\n]*)"(spec\.[^"]*)")re");
  std::vector<std::string> fields;
  for (std::sregex_iterator at(text.begin(), text.end(), blame), end; at != end; ++at) fields.push_back((*at)[1]);
  return fields;
}

// What the API server says of an object that breaks the rule, up to where the message may go on with a value.
std::string WordsOf(const Rule& rule) {
  const std::string field = absl::StrReplaceAll(absl::StrCat(rule.path, rule.field), {{"[]", "[0]"}});
  if (field.empty()) return rule.message;
  const char* const kind = rule.reason == Rule::Reason::kForbidden  ? "Forbidden"
                           : rule.reason == Rule::Reason::kRequired ? "Required value"
                                                                    : "Invalid value: \"object\"";
  return absl::StrCat(absl::StripPrefix(field, "."), ": ", kind, ": ", rule.message);
}

bool IsOfUpdates(const Rule& rule) { return absl::StrContains(rule.expression, "oldSelf"); }

TEST(RefusedTest, EveryRuleIsTried) {
  std::vector<std::string> creations;
  for (const Case& one : Refused()) creations.push_back(one.expected);
  std::vector<std::string> updates = absl::StrSplit(E2eFile("refused-updates.txt"), '\n');
  updates.push_back("spec.suspend: Forbidden: must not change once the job is Complete or Failed");  // by crd_test.sh itself
  for (const std::vector<Rule>& rules : {FusionJobRules(), FusionClusterRules()}) {
    for (const Rule& rule : rules) {
      const std::vector<std::string>& tried = IsOfUpdates(rule) ? updates : creations;
      const bool found =
          std::any_of(tried.begin(), tried.end(), [&](const std::string& words) { return absl::StartsWith(words, WordsOf(rule)); });
      EXPECT_TRUE(found) << "no case of e2e/crd expects: " << WordsOf(rule);
    }
  }
}

// Where the value cannot be put into it, because there is none, the API server falls back on the message.
TEST(RefusedTest, AMessageWithAValueBeginsAsTheOneWithout) {
  for (const Rule& rule : FusionJobRules()) {
    if (rule.message_expression.empty()) continue;
    EXPECT_TRUE(absl::StartsWith(rule.message_expression, absl::StrCat("'", rule.message))) << rule.message_expression;
    EXPECT_FALSE(absl::StrContains(rule.message_expression, "string(")) << "no server would take the definition";
  }
}

// What a job outside of a cluster may be, which the same reader reads: to run on this machine's files.
bool HoldsInClustersAlone(const Rule& rule) { return rule.path.empty() || rule.field == ".model.graph.file"; }

// Those that break a rule; of volumes, selectors and managers the schema knows more.
TEST(RefusedTest, TheReaderRefusesTheSameJobs) {
  const std::vector<Rule> rules = FusionJobRules();
  size_t jobs = 0;
  for (const Case& one : Refused()) {
    const bool by_rule = std::any_of(rules.begin(), rules.end(), [&](const Rule& rule) {
      return !HoldsInClustersAlone(rule) && absl::StartsWith(one.expected, WordsOf(rule));
    });
    if (!by_rule || one.object.value("kind", "") != "FusionJob") continue;
    ++jobs;
    EXPECT_FALSE(FusionJobFromObject(one.object).ok()) << one.expected << "\n" << one.object.dump();
  }
  EXPECT_GE(jobs, 30u);
}

TEST(RefusedTest, WhatTheReaderAloneRefusesItDoesRefuseByThatField) {
  for (const Case& one : RefusedByTheReaderAlone()) {
    const absl::Status status = FusionJobFromObject(one.object).status();
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat(one.expected, ":"))) << one.expected << "\n" << status;
  }
}

// So that no check is added that a job meets only when it is too late to mend it: there is a rule, or a reason why there is none.
TEST(RefusedTest, EachCheckOfTheReaderHasACase) {
  std::vector<std::string> tried;
  for (const std::vector<Case>& cases : {Refused(), RefusedByTheReaderAlone()}) {
    for (const Case& one : cases) tried.emplace_back(absl::StripPrefix(one.expected, "\""));  // some servers' words quote it
  }
  const std::vector<std::string> blamed = BlamedByTheReader();
  EXPECT_GE(blamed.size(), 25u) << "check_job.cc is written otherwise than it is read here";
  for (const std::string& field : blamed) {
    const auto is_it = [&](const std::string& words) {
      return absl::StartsWith(words, field) &&
             (absl::EndsWith(field, "[") || words.size() == field.size() || absl::StrContains(":\"", words[field.size()]));
    };
    EXPECT_GE(std::count_if(tried.begin(), tried.end(), is_it), std::count(blamed.begin(), blamed.end(), field))
        << "e2e/crd has fewer cases of " << field << " than check_job.cc has checks";
  }
}

}  // namespace
}  // namespace fusionllm::kubeapi
