// The jobs of examples/jobs, made into what a cluster takes: that an operator reads the same job, with the same files.
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/testing/fusionctl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/data/files.h"
#include "lib/job/parse.h"
#include "lib/kubeapi/objects.h"
#include "lib/kubeapi/testing/kubectl_yaml.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What the annotations of an object may have, of which one holds the object as it was applied.
constexpr size_t kMaxAnnotations = size_t{256} << 10;

class KubernetesPrepareTest : public ::testing::Test, protected Fusionctl {
 protected:
  using Fusionctl::Run;  // and not that of GoogleTest's fixture

  static std::string Example(const std::string& name) {
    const char* source = std::getenv("FUSIONLLM_SOURCE_DIR");
    return fs::absolute(absl::StrCat(source == nullptr ? "." : source, "/examples/jobs/", name, ".yaml")).string();
  }

  static std::vector<json> Documents(const std::string& stream) {
    std::vector<json> documents;
    for (const YAML::Node& node : YAML::LoadAll(stream)) documents.push_back(kubeapi::testing::FromYaml(node));
    return documents;
  }

  static std::vector<std::string> Kinds(const std::vector<json>& documents) {
    std::vector<std::string> kinds;
    for (const json& document : documents) kinds.push_back(document.value("kind", ""));
    return kinds;
  }

  // Where a Pod would have the volume of these ConfigMaps.
  std::string Mount(const std::vector<json>& documents, const json& volume) const {
    std::map<std::string, json> maps;
    for (const json& document : documents) maps[document["metadata"]["name"]] = document;
    const json sources = volume.contains("projected") ? volume["projected"]["sources"] : json::array({volume});
    for (const json& source : sources) {
      const json& map = maps.at(source["configMap"]["name"]);
      for (const json& item : source["configMap"]["items"]) {
        const std::string path = Path(absl::StrCat("data/", item["path"].get<std::string>())), key = item["key"];
        fs::create_directories(fs::path(path).parent_path());
        std::string content;
        if (map.contains("data") && map["data"].contains(key)) {
          content = map["data"][key];
        } else {
          EXPECT_TRUE(absl::Base64Unescape(map["binaryData"][key].get<std::string>(), &content));
        }
        std::ofstream(path, std::ios::binary) << content;
      }
    }
    return Path("data");
  }

  // The contents that a job reads as one path or several, in its order.
  static std::string Read(const std::vector<std::string>& paths, const std::string& base) {
    const auto files = data::ExpandPaths(paths, base);
    EXPECT_TRUE(files.ok()) << files.status();
    std::string all;
    for (const std::string& file : files.value_or(std::vector<std::string>())) absl::StrAppend(&all, base::ReadWholeFile(file), "\f");
    return all;
  }
};

TEST_F(KubernetesPrepareTest, EachExampleIsAFusionJobThatAnOperatorReads) {
  int examples = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(Example("demo")).parent_path())) {
    const std::string name = entry.path().stem();
    SCOPED_TRACE(name);
    ++examples;
    const Outcome outcome = Run(absl::StrCat("kubernetes prepare -n team ", entry.path().string()));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::vector<json> documents = Documents(outcome.out);
    ASSERT_FALSE(documents.empty());
    const auto job = kubeapi::FusionJobFromObject(documents.back());
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->metadata.name_space, "team");
    const bool files = job->spec.data.kind == job::DataKind::kText;
    EXPECT_EQ(job->spec.data.volume.json.empty(), !files);
    // Nothing else has changed.
    job::FusionJob there = *job, here = job::LoadFusionJob(entry.path().string()).value();
    for (job::FusionJob* one : {&there, &here}) {
      one->metadata = {};
      one->spec.data.path.clear();
      one->spec.data.volume.json.clear();
      if (one->spec.data.validation) one->spec.data.validation->path.clear();
      one->spec.suspend = false;
    }
    EXPECT_EQ(job::ToYaml(there), job::ToYaml(here));
    for (const json& document : documents) EXPECT_LT(document.dump().size(), kMaxAnnotations) << document["metadata"];
  }
  EXPECT_GE(examples, 7);
}

TEST_F(KubernetesPrepareTest, SmallFilesAreReadInTheVolumeAsOnThisMachine) {
  const Outcome outcome = Run(absl::StrCat("kubernetes prepare ", Example("gpt2-tiny")));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<json> documents = Documents(outcome.out);
  const json& data = documents.back()["spec"]["data"];
  EXPECT_EQ(data["path"], "README.md");
  const std::string mounted = Mount(documents, data["volume"]);
  const job::FusionJob here = job::LoadFusionJob(Example("gpt2-tiny")).value();
  EXPECT_EQ(Read({data["path"]}, mounted), Read(here.spec.data.path, ""));
  EXPECT_EQ(Read(data["validation"]["path"], mounted), Read(here.spec.data.validation->path, ""));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(KubernetesPrepareTest, LargeFilesAreAClaimThatTheJobWaitsFor) {
  const Outcome outcome = Run(absl::StrCat("kubernetes prepare -o job.yaml ", Example("gpt2-two-sites")));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const std::vector<json> documents = Documents(base::ReadWholeFile(Path("job.yaml")));
  EXPECT_THAT(Kinds(documents), ElementsAre("PersistentVolumeClaim", "Pod", "FusionJob"));
  EXPECT_EQ(documents.back()["spec"]["suspend"], true);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("kubectl apply -f job.yaml"), HasSubstr("kubectl cp "), HasSubstr("spec.checkpoint has no volume")));
}

TEST_F(KubernetesPrepareTest, TheSameFilesGiveTheSameStream) {
  const std::string command = absl::StrCat("kubernetes prepare ", Example("gpt2-replicas"));
  EXPECT_EQ(Run(command).out, Run(command).out);
  const json list = json::parse(Run(absl::StrCat(command, " --format json")).out);
  EXPECT_EQ(list["kind"], "List");
  EXPECT_TRUE(kubeapi::FusionJobFromObject(list["items"].back()).ok());
}

TEST_F(KubernetesPrepareTest, AMemberGetsTheFilesWithoutTheJob) {
  Write("text.txt", "text");
  Write(
      "job.yaml",
      "{apiVersion: fusionllm.io/v1alpha1, kind: FusionJob, metadata: {name: t}, spec: {model: {family: gpt2, preset: tiny}, data: {kind: "
      "text, path: text.txt}}}");
  EXPECT_THAT(Kinds(Documents(Run("kubernetes prepare job.yaml --without-job").out)), ElementsAre("ConfigMap"));
}

TEST_F(KubernetesPrepareTest, AnErrorPrintsNothingElse) {
  Write("text.txt", "text");
  Write("job.yaml",
        "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: t}\nspec:\n  model: {family: gpt2, preset: tiny}\n"
        "  data: {kind: text, path: [text.txt, gone.txt]}\n");
  const Outcome outcome = Run("kubernetes prepare job.yaml -o out.yaml");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_FALSE(fs::exists(Path("out.yaml")));
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("job.yaml:6: spec.data.path: "), HasSubstr("gone.txt does not exist")));
  EXPECT_EQ(Run("kubernetes prepare none.yaml").code, 2);
  EXPECT_EQ(Run("kubernetes prepare job.yaml -n Team").code, 2);
  EXPECT_THAT(Run("kubernetes prepare --help").out, HasSubstr("Example:\n  fusionctl kubernetes prepare "));
}

}  // namespace
}  // namespace fusionllm::cli
