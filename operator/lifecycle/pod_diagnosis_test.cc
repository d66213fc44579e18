#include "operator/lifecycle/pod_diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/job/reference.h"

namespace fusionllm::op::lifecycle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PodDiagnosisTest : public ::testing::Test {
 protected:
  std::string Of(const std::string& reason, const std::string& message = "") {
    pod_.reason = reason;
    pod_.message = message;
    const std::optional<PodDiagnosis> trouble = DiagnosePod(pod_, spec_, "team");
    return trouble.has_value() ? absl::StrCat(trouble->reason, "| ", trouble->sentence) : "none";
  }

  PodView pod_{.name = "train-east-0-r0", .role = manifests::kExecutorRole, .cluster = "east"};
  job::Spec spec_;
};

TEST_F(PodDiagnosisTest, EachSaysWhereWhatAndWhatToDo) {
  EXPECT_EQ(Of(""), "none");
  EXPECT_EQ(Of("ImagePullBackOff", "Back-off pulling image \"x\""),
            "ImageNotAvailable| train-east-0-r0 in east: ImagePullBackOff: Back-off pulling image \"x\". Name an image that east can pull "
            "(spec.executors.template, spec.broker.template), or give its namespace team the pull secret.");
  EXPECT_THAT(
      Of("CreateContainerConfigError", "secret \"s\" not found"),
      AllOf(HasSubstr("ContainerConfigError| "), HasSubstr("secret \"s\" not found. Make what it names in namespace team of east")));
  EXPECT_EQ(Of("OOMKilled"),
            "OutOfMemory| train-east-0-r0 in east: OOMKilled. Raise resources.limits.memory in spec.executors.template, or give the job "
            "more executors or smaller micro-batches.");
  EXPECT_EQ(Of("Evicted", "low on memory"), "ExecutorsNotReady| train-east-0-r0 in east: Evicted: low on memory");
  pod_.role = manifests::kBrokerRole;
  pod_.name = "train-broker-r0";
  EXPECT_EQ(Of("CrashLoopBackOff"), "BrokerNotReady| train-broker-r0 on the hub: CrashLoopBackOff");
  EXPECT_THAT(Of("ErrImagePull"), HasSubstr("an image that the hub can pull"));
  EXPECT_THAT(Of("OOMKilled"), HasSubstr("Raise resources.limits.memory in spec.broker.template,"));
}

TEST_F(PodDiagnosisTest, ClaimsAreNamedWhereTheyAreTheCause) {
  constexpr char kUnbound[] = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";
  EXPECT_THAT(Of("Unschedulable", kUnbound), HasSubstr("Unschedulable| ")) << "it has none that are known";
  spec_.data.volume.json = R"({"persistentVolumeClaim":{"claimName":"corpus"}})";
  spec_.executors.pod_template.json =
      R"({"spec":{"volumes":[{"name":"a","persistentVolumeClaim":{"claimName":"scratch"}},{"name":"b","emptyDir":{}}]}})";
  spec_.broker.volume.json = R"({"persistentVolumeClaim":{"claimName":"journal"}})";
  EXPECT_THAT(Of("Unschedulable", kUnbound), AllOf(HasSubstr("ClaimNotBound| "), HasSubstr("corpus, scratch, in namespace team of east")));
  EXPECT_THAT(Of("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu."), Not(HasSubstr("corpus")));
  pod_.role = manifests::kBrokerRole;
  EXPECT_THAT(Of("Unschedulable", kUnbound), HasSubstr("corpus, journal, in namespace team of the hub"));
}

TEST_F(PodDiagnosisTest, ANodeThatIsAwayIsNamedWhateverThePodSaid) {
  pod_.node_away_since = absl::FromUnixSeconds(1'700'000'000);
  pod_.node = "east-1";
  spec_.force_delete_after_seconds = 600;
  EXPECT_EQ(Of(""),
            "NodeNotReady| train-east-0-r0 in east: its node east-1 is not ready; it counts as lost after "
            "spec.forceDeleteAfterSeconds, 600 s");
  spec_.force_delete_after_seconds = 0;
  EXPECT_THAT(Of("Unschedulable"), HasSubstr("it stays until the node is back or gone"));
}

// "spec.a.b" of a text, each.
std::vector<std::string> FieldsNamedIn(const std::string& text) {
  const std::string root = "spec.";
  std::vector<std::string> fields;
  for (size_t at = text.find(root); at != std::string::npos; at = text.find(root, at + 1)) {
    size_t end = at;
    while (end < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[end])) || text[end] == '.')) ++end;
    fields.emplace_back(absl::StripSuffix(text.substr(at, end - at), "."));
  }
  return fields;
}

bool IsFieldOfAJob(const std::string& path) {
  std::vector<job::FieldSchema> fields = job::FusionJobSchema().children;
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const job::FieldSchema& each) { return each.name == name; });
    if (field == fields.end()) return false;
    fields = std::vector<job::FieldSchema>(field->children);
  }
  return true;
}

TEST_F(PodDiagnosisTest, EveryFieldThatARemedyNamesExists) {
  EXPECT_FALSE(IsFieldOfAJob("spec.executors.resources"));
  spec_.force_delete_after_seconds = 600;
  size_t named = 0;
  const auto check = [&](const std::string& sentence) {
    for (const std::string& field : FieldsNamedIn(sentence)) {
      EXPECT_TRUE(IsFieldOfAJob(field)) << field << ": " << sentence;
      ++named;
    }
  };
  for (const char* const role : {manifests::kExecutorRole, manifests::kBrokerRole}) {
    pod_.role = role;
    for (const std::string& reason : ReasonsWithRemedy()) check(Of(reason));
  }
  pod_.node_away_since = absl::FromUnixSeconds(1'700'000'000);
  check(Of(""));
  EXPECT_GE(named, 5u);
}

// A cluster may say what it likes.
TEST_F(PodDiagnosisTest, WhatToDoIsThereHoweverLongTheWordsAre) {
  const std::string reported = Of("ErrImagePull", std::string(100000, 'x'));
  EXPECT_LT(reported.size(), 1000u);
  EXPECT_THAT(reported, HasSubstr("pull secret"));
}

}  // namespace
}  // namespace fusionllm::op::lifecycle
