#include "cli/kubernetes/prepare_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/kubeapi/testing/kubectl_yaml.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class PrepareJobTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  // In jobs/job.yaml, so that a path may lead out of its folder.
  void WriteJob(const std::string& data, const std::string& more = "", const std::string& model = "{family: gpt2, preset: tiny}") {
    Write("jobs/job.yaml", absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: small}\nspec:\n  model: ",
                                        model, "\n  data: ", data, "\n", more));
  }

  absl::StatusOr<PreparedJob> Prepare(PrepareOptions options = {}) {
    options.job = folder_ / "jobs/job.yaml";
    return PrepareJob(options);
  }

  std::string Refusal() {
    const auto prepared = Prepare();
    EXPECT_EQ(prepared.status().code(), absl::StatusCode::kInvalidArgument) << prepared.status();
    return std::string(prepared.status().message());
  }

  // What a Pod would find in a volume, by location; the objects as kubectl reads them.
  static std::map<std::string, std::string> Mounted(const PreparedJob& prepared, const nlohmann::json& volume) {
    std::map<std::string, nlohmann::json> maps;
    for (const YAML::Node& node : YAML::LoadAll(ToYamlStream(prepared))) {
      const nlohmann::json object = kubeapi::testing::FromYaml(node);
      if (object.value("kind", "") == "ConfigMap") maps[object["metadata"]["name"]] = object;
    }
    std::map<std::string, std::string> files;
    const nlohmann::json sources = volume.contains("projected") ? volume["projected"]["sources"] : nlohmann::json::array({volume});
    for (const nlohmann::json& source : sources) {
      const nlohmann::json& map = maps[source["configMap"]["name"]];
      for (const nlohmann::json& item : source["configMap"]["items"]) {
        const std::string key = item["key"], path = item["path"];
        std::string content;
        if (map.contains("data") && map["data"].contains(key)) {
          content = map["data"][key];
        } else {
          EXPECT_TRUE(absl::Base64Unescape(map["binaryData"][key].get<std::string>(), &content)) << key;
        }
        files[path] = content;
      }
    }
    return files;
  }

  static const ordered_json& Job(const PreparedJob& prepared) { return prepared.documents.back(); }

  const base::TempFolder folder_;
};

TEST_F(PrepareJobTest, FilesAreInAConfigMapAndTheJobNamesTheirPlaces) {
  Write("corpus/b/two.txt", "two\n");
  Write("corpus/one.txt", "\"one\"\t: #\r\n\xE2\x80\xA8");
  Write("corpus/.hidden", "not read");
  Write("held.txt", "held");
  WriteJob("{kind: text, path: ../corpus/, validation: {path: [../held.txt]}}");
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_EQ(prepared->documents.size(), 2u);
  const ordered_json& data = Job(*prepared)["spec"]["data"];
  EXPECT_EQ(data["path"], "corpus");
  EXPECT_EQ(data["validation"]["path"], ordered_json::array({"held.txt"}));
  EXPECT_EQ(Mounted(*prepared, data["volume"]),
            (std::map<std::string, std::string>{
                {"corpus/b/two.txt", "two\n"}, {"corpus/one.txt", "\"one\"\t: #\r\n\xE2\x80\xA8"}, {"held.txt", "held"}}));
  EXPECT_TRUE(prepared->commands.empty());
  EXPECT_FALSE(Job(*prepared)["spec"].contains("suspend"));
}

TEST_F(PrepareJobTest, WhatIsNoTextStaysBitForBit) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  Write("jobs/ids.bin", bytes);
  Write("jobs/odd.bin", "\xF3\xA0\x80\x81 tag, \xEF\xBB\xBF mark");
  WriteJob("{kind: tokens, path: [ids.bin, odd.bin]}");
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_TRUE(prepared->documents[0].contains("binaryData"));
  const auto files = Mounted(*prepared, Job(*prepared)["spec"]["data"]["volume"]);
  EXPECT_EQ(files.at("ids.bin"), bytes);
  EXPECT_EQ(files.at("odd.bin"), "\xF3\xA0\x80\x81 tag, \xEF\xBB\xBF mark");
}

TEST_F(PrepareJobTest, NamesFollowContentsAndPlacesAlone) {
  Write("jobs/a.txt", "text");
  WriteJob("{kind: text, path: a.txt}");
  const auto name = [&] { return Prepare()->documents[0]["metadata"]["name"].get<std::string>(); };
  const std::string first = name();
  EXPECT_THAT(first, StartsWith("small-files-"));
  fs::last_write_time(folder_ / "jobs/a.txt", fs::file_time_type::clock::now());
  EXPECT_EQ(name(), first);
  Write("jobs/a.txt", "Text");
  EXPECT_NE(name(), first);
  Write("jobs/b.txt", "text");
  WriteJob("{kind: text, path: b.txt}");
  EXPECT_NE(name(), first);
}

TEST_F(PrepareJobTest, SeveralConfigMapsEachFitIntoAnAnnotation) {
  for (const char* name : {"a", "b", "c", "d"})
    Write(absl::StrCat("jobs/texts/", name, ".txt"), std::string(200'000, '<').substr(0, 39'000) + std::string(1, *name));
  WriteJob("{kind: text, path: texts}");
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->documents.size(), 5u) << "'<' takes six bytes where kubectl keeps what it applied";
  EXPECT_EQ(Mounted(*prepared, Job(*prepared)["spec"]["data"]["volume"]).size(), 4u);
}

TEST_F(PrepareJobTest, PathsThatLeaveByDifferentStepsLieApart) {
  Write("jobs/a.txt", "inner");
  Write("a.txt", "outer");
  WriteJob("{kind: text, path: [a.txt, ../a.txt]}");
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(Job(*prepared)["spec"]["data"]["path"], ordered_json::array({"a.txt", "up-1/a.txt"}));
  Write("jobs/up-1/a.txt", "taken");
  WriteJob("{kind: text, path: [up-1, ../a.txt]}");
  EXPECT_THAT(Refusal(), HasSubstr("would lie in the volume where"));
}

TEST_F(PrepareJobTest, AFolderThatIsTheJobsOwnDoesNotLieAtTheTop) {
  Write("jobs/sub/a.txt", "text");
  WriteJob("{kind: text, path: .}");
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(Job(*prepared)["spec"]["data"]["path"], "up-0");
  EXPECT_EQ(Mounted(*prepared, Job(*prepared)["spec"]["data"]["volume"]).count("up-0/sub/a.txt"), 1u);
}

TEST_F(PrepareJobTest, AGraphHasAVolumeOfItsOwn) {
  Write("jobs/model.dag", "graph \"g\" {}");
  WriteJob("{kind: shapes}", "", "{graph: {file: model.dag}}");
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const ordered_json& spec = Job(*prepared)["spec"];
  EXPECT_FALSE(spec["data"].contains("volume"));
  EXPECT_EQ(Mounted(*prepared, spec["model"]["graph"]["volume"]).count("model.dag"), 1u);
}

TEST_F(PrepareJobTest, SizesThatALocalStartSaysStandInTheJob) {
  Write("jobs/text.txt", "text");
  Write("jobs/hf/config.json",
        R"({"model_type": "gpt2", "n_layer": 3, "n_head": 2, "n_embd": 32, "vocab_size": 256, "n_positions": 64, "n_ctx": 64})");
  WriteJob("{kind: text, path: text.txt}", "  training: {sequenceLength: 16}\n", "{family: gpt2, init: {from: hf}}");
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(Job(*prepared)["spec"]["model"]["init"]["from"], "hf");
  EXPECT_EQ(Job(*prepared)["spec"]["model"]["config"]["nLayer"], 3);
  EXPECT_EQ(Job(*prepared)["spec"]["model"]["config"]["nHead"], 2);
}

TEST_F(PrepareJobTest, LargeFilesGetAClaimAndTheJobWaits) {
  Write("it's/large.txt", std::string(kMaxConfigMapsBytes + 1, 'x'));
  WriteJob("{kind: text, path: \"../it's\"}");
  const auto prepared = Prepare({.name_space = "team", .claim = {.access_mode = "ReadWriteMany", .storage_class = "fast"}});
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_EQ(prepared->documents.size(), 3u);
  const ordered_json &claim = prepared->documents[0], &pod = prepared->documents[1];
  EXPECT_EQ(claim["kind"], "PersistentVolumeClaim");
  EXPECT_EQ(claim["spec"]["accessModes"], ordered_json::array({"ReadWriteMany"}));
  EXPECT_EQ(claim["spec"]["storageClassName"], "fast");
  EXPECT_EQ(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"]);
  EXPECT_EQ(Job(*prepared)["spec"]["data"]["volume"]["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"]);
  EXPECT_EQ(Job(*prepared)["spec"]["suspend"], true);
  for (const ordered_json& document : prepared->documents) EXPECT_EQ(document["metadata"]["namespace"], "team");
  const std::string name = pod["metadata"]["name"];
  EXPECT_THAT(prepared->commands,
              ElementsAre(absl::StrCat("kubectl -n team wait --for=condition=Ready pod/", name, " --timeout=5m"),
                          absl::StrCat("kubectl -n team cp '", std::string(folder_ / "it'\\''s"), "' '", name, ":/data/it'\\''s'"),
                          absl::StrCat("kubectl -n team delete pod ", name),
                          R"(kubectl -n team patch fusionjob small --type=merge --patch '{"spec": {"suspend": false}}')"));
  EXPECT_THAT(ToYamlStream(*prepared), StartsWith("# Once this is applied, fill the claim:\n#   kubectl -n team wait"));
}

TEST_F(PrepareJobTest, OneFileTooLargeForAnAnnotationNeedsAClaim) {
  Write("jobs/deep/large.txt", std::string(kMaxAppliedBytes, 'x'));
  WriteJob("{kind: text, path: deep/large.txt}");
  const auto prepared = Prepare({.without_job = true});
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->documents.size(), 2u) << "the claim and the Pod that fills it";
  EXPECT_THAT(prepared->commands[1], AllOf(HasSubstr(" exec "), HasSubstr("-- mkdir -p /data/deep")));
  EXPECT_THAT(prepared->commands.back(), HasSubstr("delete pod"));
}

TEST_F(PrepareJobTest, APathThatCannotBeCopiedIsNamed) {
  Write("jobs/a:b.txt", std::string(kMaxAppliedBytes, 'x'));
  WriteJob("{kind: text, path: 'a:b.txt'}");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("job.yaml:6: spec.data.path: "), HasSubstr("kubectl cp")));
  Write("jobs/a:b.txt", "small");
  EXPECT_TRUE(Prepare().ok()) << "a ConfigMap has it without being copied";
}

TEST_F(PrepareJobTest, AJobWithAVolumeStaysAsItIs) {
  WriteJob("{kind: text, path: nowhere.txt, volume: {configMap: {name: text}}}");
  const auto prepared = Prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_EQ(prepared->documents.size(), 1u);
  EXPECT_EQ(Job(*prepared)["spec"]["data"]["path"], "nowhere.txt");
  WriteJob("{kind: text, path: [/corpus, 's3://texts/a']}");
  EXPECT_EQ(Prepare()->documents.size(), 1u) << "neither lies on this machine";
}

TEST_F(PrepareJobTest, WhatCannotBeCopiedIsNamedWithFieldAndPath) {
  Write("elsewhere/secret.txt", "secret");
  Write("jobs/texts/a.txt", "text");
  fs::create_symlink("../../elsewhere/secret.txt", folder_ / "jobs/texts/link.txt");
  WriteJob("{kind: text, path: texts}");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("job.yaml:6: spec.data.path: "), HasSubstr("jobs/texts/link.txt is a symbolic link"),
                               Not(HasSubstr("secret"))));
  fs::remove(folder_ / "jobs/texts/link.txt");
  fs::create_directory_symlink("../elsewhere", folder_ / "jobs/shortcut");
  WriteJob("{kind: text, path: shortcut/secret.txt}");
  EXPECT_THAT(Refusal(), HasSubstr("jobs/shortcut is a symbolic link"));
  WriteJob("{kind: text, path: texts, validation: {path: [texts, missing.txt]}}");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("spec.data.validation.path: "), HasSubstr("missing.txt does not exist")));
  ASSERT_EQ(mkfifo(std::string(folder_ / "jobs/texts/pipe").c_str(), 0600), 0);
  WriteJob("{kind: text, path: texts}");
  EXPECT_THAT(Refusal(), HasSubstr("texts/pipe is neither a file nor a folder"));
  fs::create_directory(folder_ / "jobs/empty");
  WriteJob("{kind: text, path: empty}");
  EXPECT_THAT(Refusal(), HasSubstr("empty holds no file"));
  fs::create_symlink("../elsewhere/secret.txt", folder_ / "jobs/model.dag");
  WriteJob("{kind: shapes}", "", "{graph: {file: model.dag}}");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("spec.model.graph.file: "), HasSubstr("is a symbolic link")));
  fs::create_symlink("../elsewhere", folder_ / "jobs/start");
  WriteJob("{kind: text, path: texts/a.txt}", "", "{family: gpt2, init: {from: start}}");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("spec.model.init.from: "), HasSubstr("is a symbolic link")));
}

TEST_F(PrepareJobTest, AnotherNamespaceThanTheJobsIsRefused) {
  Write("jobs/job.yaml",
        "{apiVersion: fusionllm.io/v1alpha1, kind: FusionJob, metadata: {name: a, namespace: one}, spec: {model: {family: mlp, config: "
        "{layers: "
        "[768, 4]}}, data: {kind: shapes, shapes: {imageSize: 16, numClasses: 4}}}}");
  EXPECT_TRUE(Prepare({.name_space = "one"}).ok());
  EXPECT_THAT(std::string(Prepare({.name_space = "two"}).status().message()),
              HasSubstr("metadata.namespace: is one, and --namespace says two"));
}

TEST_F(PrepareJobTest, CheckpointsThatGoWithAPodAreReported) {
  Write("jobs/a.txt", "text");
  WriteJob("{kind: text, path: a.txt}", "  checkpoint: {path: checkpoints/}\n");
  EXPECT_THAT(Prepare()->notes, ElementsAre(HasSubstr("spec.checkpoint has no volume")));
  WriteJob("{kind: text, path: a.txt}", "  checkpoint: {path: 's3://runs/a'}\n");
  EXPECT_THAT(Prepare()->notes, ElementsAre());
}

}  // namespace
}  // namespace fusionllm::cli
