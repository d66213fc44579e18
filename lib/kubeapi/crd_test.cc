// What can be known of the CRDs without an API server; e2e/crd_test.sh asks a real one.
#include "lib/kubeapi/crd.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/parse.h"
#include "lib/kubeapi/objects.h"
#include "lib/kubeapi/reference.h"
#include "lib/kubeapi/testing/kubectl_yaml.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/yaml.h"

namespace fusionllm::kubeapi {
namespace {

using OrderedJson = nlohmann::ordered_json;
using testing::FromYaml;

constexpr size_t kMaxCrdBytes = 256 * 1024;

std::filesystem::path SourceDir() {
  const char* folder = std::getenv("FUSIONLLM_SOURCE_DIR");
  return folder == nullptr ? "." : folder;
}

std::string Content(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

const OrderedJson& Root(const OrderedJson& crd) { return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]; }

// What an API server does before it keeps an object: it drops null, then fills in what is missing inside mappings that are there.
void FillIn(const OrderedJson& schema, nlohmann::json& value) {
  if (value.is_array() && schema.contains("items")) {
    for (nlohmann::json& item : value) FillIn(schema["items"], item);
  }
  if (!value.is_object() || !schema.contains("properties")) return;
  for (const auto& [name, property] : schema["properties"].items()) {
    if (value.contains(name) && value[name].is_null()) value.erase(name);
    if (!value.contains(name) && property.contains("default")) value[name] = property["default"];
    if (value.contains(name)) FillIn(property, value[name]);
  }
}

void ForEachSchema(const OrderedJson& schema, const std::string& path,
                   const std::function<void(const OrderedJson&, const std::string&)>& visit) {
  visit(schema, path);
  if (schema.contains("items")) ForEachSchema(schema["items"], path + "[]", visit);
  if (!schema.contains("properties")) return;
  for (const auto& [name, property] : schema["properties"].items()) ForEachSchema(property, absl::StrCat(path, ".", name), visit);
}

TEST(CrdTest, AJobMeansTheSameInAFileAndInACluster) {
  const OrderedJson crd = FusionJobCrd();
  size_t jobs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourceDir() / "examples/jobs")) {
    if (entry.path().extension() != ".yaml") continue;
    ++jobs;
    const std::string text = Content(entry.path());
    nlohmann::json object = FromYaml(YAML::Load(text));
    FillIn(Root(crd), object);
    const absl::StatusOr<job::FusionJob> in_cluster = FusionJobFromObject(object);
    ASSERT_TRUE(in_cluster.ok()) << entry.path() << "\n" << in_cluster.status() << "\n" << object.dump(2);
    EXPECT_EQ(*in_cluster, *job::ParseFusionJob(text, "job.yaml")) << entry.path();
  }
  EXPECT_GE(jobs, 5u);
}

// A default of the schema must not stand where the reader would refuse the field or would choose another value.
TEST(CrdTest, DefaultsNeverContradictTheReader) {
  const OrderedJson crd = FusionJobCrd();
  for (const char* spec : {
           R"({"model": {"family": "gpt2"}, "data": {"kind": "text", "path": ["a"]}})",
           R"({"model": {"family": "gpt2"}, "data": {"path": "a"}, "training": {"optimizer": {"name": "sgd"}, "schedule": {}}})",
           R"({"model": {"family": "gpt2", "init": {}}, "data": {"kind": "tokens", "path": ["a"]}, "training": {"optimizer": {}}})",
           R"({"model": {"family": "resnet"}, "data": {"kind": "shapes", "shapes": {}}, "training": {"evaluation": {}}})",
           R"({"model": {"family": "gpt2"}, "data": {"path": ["a"]}, "strategy": {}, "compression": {}, "checkpoint": {}, "executors": {},
               "placement": {"clusters": [{"name": "a"}]}, "failurePolicy": {}, "network": {}, "broker": {}})",
       }) {
    const nlohmann::json written = {{"metadata", {{"name", "t"}}}, {"spec", nlohmann::json::parse(spec)}};
    nlohmann::json kept = written;
    FillIn(Root(crd), kept);
    EXPECT_NE(kept, written);
    const absl::StatusOr<job::FusionJob> job = FusionJobFromObject(kept);
    ASSERT_TRUE(job.ok()) << job.status() << kept.dump(2);
    EXPECT_EQ(*job, *FusionJobFromObject(written)) << spec;
  }
}

TEST(CrdTest, IsSmallEnoughForClientSideApply) {
  EXPECT_LT(FusionJobCrd().dump().size(), kMaxCrdBytes);
  EXPECT_LT(FusionClusterCrd().dump().size(), kMaxCrdBytes);
}

// As an API server validates: each word of a schema holds for values of its kind.
bool Takes(const OrderedJson& schema, const OrderedJson& value) {
  const auto within = [&](size_t size, const char* min, const char* max) {
    return size >= schema.value(min, size_t{0}) && size <= schema.value(max, size);
  };
  if (schema.contains("type") && schema["type"] != value.type_name()) return false;
  if (value.is_string()) return within(value.get<std::string>().size(), "minLength", "maxLength");
  if (value.is_object()) return within(value.size(), "minProperties", "maxProperties");
  if (!value.is_array()) return true;
  return within(value.size(), "minItems", "maxItems") &&
         (!schema.contains("items") ||
          std::all_of(value.begin(), value.end(), [&](const OrderedJson& item) { return Takes(schema["items"], item); }));
}

TEST(CrdTest, APathOfDataIsATextOrAListOfSome) {
  const OrderedJson crd = FusionJobCrd();
  const OrderedJson& data = Root(crd)["properties"]["spec"]["properties"]["data"]["properties"];
  for (const OrderedJson& path : {data["path"], data["validation"]["properties"]["path"]}) {
    for (const char* good : {R"("a")", R"(["a"])", R"(["a","b"])"}) EXPECT_TRUE(Takes(path, OrderedJson::parse(good))) << good;
    for (const char* bad : {R"("")", "[]", R"([""])", "{}", R"({"file":"a"})", R"([["a"]])", R"([{"file":"a"}])", R"(["a",null])"}) {
      EXPECT_FALSE(Takes(path, OrderedJson::parse(bad))) << bad;
      nlohmann::json job = {{"metadata", {{"name", "t"}}}, {"spec", {{"model", {{"family", "gpt2"}}}}}};
      job["spec"]["data"]["path"] = nlohmann::json::parse(bad);
      EXPECT_FALSE(FusionJobFromObject(job).ok()) << bad << " is taken by the reader";
    }
  }
}

// The cost of a rule is estimated from these bounds, and a field without words is no help in kubectl explain.
TEST(CrdTest, EverythingIsBoundedAndDescribed) {
  for (const OrderedJson& crd : {FusionJobCrd(), FusionClusterCrd()}) {
    ForEachSchema(Root(crd), "", [](const OrderedJson& schema, const std::string& path) {
      const bool element = absl::EndsWith(path, "[]");
      const bool hand_written = absl::StrContains(path, ".clusterSelector.");
      EXPECT_TRUE(element || hand_written || path == ".metadata" || schema.contains("description")) << path;
      const std::string type = schema.value("type", "");
      if (type.empty()) {
        EXPECT_TRUE(schema.contains("x-kubernetes-int-or-string") || schema.contains("x-kubernetes-preserve-unknown-fields")) << path;
      }
      if (type == "array") {
        EXPECT_TRUE(schema.contains("maxItems") && schema.contains("items") && schema.contains("x-kubernetes-list-type")) << path;
        if (schema.value("x-kubernetes-list-type", "") == "map") {
          const std::string key = schema["x-kubernetes-list-map-keys"][0];
          EXPECT_TRUE(schema["items"]["properties"].contains(key)) << path;
          const OrderedJson& required = schema["items"]["required"];
          EXPECT_TRUE(std::find(required.begin(), required.end(), key) != required.end()) << path;
        }
      }
      const bool bounded = schema.contains("maxLength") || schema.contains("enum") || schema.value("format", "") == "date-time";
      EXPECT_TRUE(type != "string" || bounded || path == ".apiVersion" || path == ".kind") << path;
      EXPECT_TRUE(!schema.contains("additionalProperties") || schema.contains("maxProperties")) << path;
    });
  }
}

// What kubectl explain shows of a field must be a sentence, not the name of another field or of what it belongs to ("adamw.").
TEST(CrdTest, DescriptionsAreSentences) {
  for (const OrderedJson& crd : {FusionJobCrd(), FusionClusterCrd()}) {
    // A sentence may begin with a value of some field, which is as it is written.
    std::set<std::string> values;
    ForEachSchema(Root(crd), "", [&](const OrderedJson& schema, const std::string&) {
      for (const OrderedJson& value : schema.value("enum", OrderedJson::array())) values.insert(value.get<std::string>());
    });
    ForEachSchema(Root(crd), "", [&](const OrderedJson& schema, const std::string& path) {
      if (!schema.contains("description")) return;
      const std::string text = schema["description"];
      const std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" :"), absl::SkipEmpty());
      EXPECT_GE(words.size(), 4u) << path << ": " << text;
      EXPECT_TRUE(absl::EndsWith(text, ".")) << path << ": " << text;
      const bool begins =
          absl::ascii_isupper(static_cast<unsigned char>(text[0])) || absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
      EXPECT_TRUE(begins || values.contains(words[0])) << path << ": " << text;
    });
  }
}

TEST(CrdTest, EveryRuleStandsWhereItSaysAndBlamesAFieldThatExists) {
  for (const OrderedJson& crd : {FusionJobCrd(), FusionClusterCrd()}) {
    size_t rules = 0;
    ForEachSchema(Root(crd), "", [&](const OrderedJson& schema, const std::string& path) {
      if (!schema.contains("x-kubernetes-validations")) return;
      for (const OrderedJson& rule : schema["x-kubernetes-validations"]) {
        ++rules;
        EXPECT_FALSE(rule["message"].get<std::string>().empty()) << path;
        const std::string field = rule.value("fieldPath", "");
        bool found = field.empty();
        ForEachSchema(schema, "", [&](const OrderedJson&, const std::string& below) { found |= below == field; });
        EXPECT_TRUE(found) << path << ": " << field;
      }
    });
    EXPECT_EQ(rules, crd == FusionJobCrd() ? FusionJobRules().size() : FusionClusterRules().size());
  }
}

// As users type and read them: written out here, so that a change of the tables is a change of this, too.
TEST(CrdTest, NamesAreThoseThatUsersType) {
  const auto names = [](const OrderedJson& crd) {
    const OrderedJson& of = crd["spec"]["names"];
    return absl::StrCat(crd["metadata"]["name"].get<std::string>(), " ", crd["spec"]["group"].get<std::string>(), " ",
                        crd["spec"]["scope"].get<std::string>(), " ", of.dump());
  };
  EXPECT_EQ(names(FusionJobCrd()),
            R"(fusionjobs.fusionllm.io fusionllm.io Namespaced {"kind":"FusionJob","listKind":"FusionJobList","plural":"fusionjobs",)"
            R"("singular":"fusionjob","shortNames":["fj"],"categories":["all","fusion"]})");
  EXPECT_EQ(names(FusionClusterCrd()),
            R"(fusionclusters.fusionllm.io fusionllm.io Cluster {"kind":"FusionCluster","listKind":"FusionClusterList",)"
            R"("plural":"fusionclusters","singular":"fusioncluster","shortNames":["fc"],"categories":["all","fusion"]})");
}

TEST(CrdTest, ThereIsOneVersionThatIsServedAndKept) {
  for (const OrderedJson& crd : {FusionJobCrd(), FusionClusterCrd()}) {
    ASSERT_EQ(crd["spec"]["versions"].size(), 1u);
    const OrderedJson& version = crd["spec"]["versions"][0];
    EXPECT_EQ(version["name"], "v1alpha1");
    EXPECT_EQ(version["served"], true);
    EXPECT_EQ(version["storage"], true);
  }
}

TEST(CrdTest, SubresourcesAndSelectableFieldsAreThoseThatToolsUse) {
  const OrderedJson job = FusionJobCrd()["spec"]["versions"][0], cluster = FusionClusterCrd()["spec"]["versions"][0];
  EXPECT_EQ(job["subresources"].dump(),
            R"({"status":{},"scale":{"specReplicasPath":".spec.executors.replicas","statusReplicasPath":".status.replicas",)"
            R"("labelSelectorPath":".status.selector"}})");
  EXPECT_EQ(cluster["subresources"].dump(), R"({"status":{}})");
  EXPECT_EQ(job["selectableFields"].dump(),
            R"([{"jsonPath":".spec.managedBy"},{"jsonPath":".spec.queueName"},{"jsonPath":".status.state"}])");
  EXPECT_FALSE(cluster.contains("selectableFields"));
}

TEST(CrdTest, ColumnsAreThoseThatUsersRead) {
  const auto columns = [](const OrderedJson& crd) {
    std::vector<std::string> lines;
    for (const OrderedJson& column : crd["spec"]["versions"][0]["additionalPrinterColumns"]) {
      lines.push_back(absl::StrCat(column["name"].get<std::string>(), " | ", column["type"].get<std::string>(), " | ",
                                   column["jsonPath"].get<std::string>(), column.value("priority", 0) > 0 ? " | wide" : ""));
    }
    return lines;
  };
  EXPECT_THAT(
      columns(FusionJobCrd()),
      ::testing::ElementsAre("State | string | .status.state", "Reason | string | .status.reason", "Clusters | string | .status.clusters",
                             "Executors | string | .status.executors", "Step | integer | .status.trainerStatus.step",
                             "Progress | string | .status.trainerStatus.progress", "ETA | string | .status.trainerStatus.eta",
                             "Age | date | .metadata.creationTimestamp", "Slowest link | string | .status.trainerStatus.slowestLink | wide",
                             "Restarts | integer | .status.restarts | wide", "Queue | string | .spec.queueName | wide"));
  EXPECT_THAT(columns(FusionClusterCrd()),
              ::testing::ElementsAre(R"(Ready | string | .status.conditions[?(@.type=="Ready")].status)",
                                     R"(Connected | string | .status.conditions[?(@.type=="Connected")].status)",
                                     "Version | string | .status.kubernetesVersion", "Nodes | integer | .status.resourceSummary.readyNodes",
                                     "Executors | integer | .status.executors", "Age | date | .metadata.creationTimestamp",
                                     "Region | string | .spec.region | wide", "Provider | string | .spec.provider | wide",
                                     R"(Reason | string | .status.conditions[?(@.type=="Ready")].reason | wide)"));
}

TEST(CrdTest, ColumnsAndSelectableFieldsShowFieldsThatExist) {
  for (const OrderedJson& crd : {FusionJobCrd(), FusionClusterCrd()}) {
    std::vector<std::string> paths = {".metadata.creationTimestamp"};
    ForEachSchema(Root(crd), "", [&](const OrderedJson&, const std::string& path) { paths.push_back(path); });
    const OrderedJson& version = crd["spec"]["versions"][0];
    std::vector<std::string> shown;
    for (const OrderedJson& column : version["additionalPrinterColumns"]) shown.push_back(column["jsonPath"]);
    for (const OrderedJson& field : version.value("selectableFields", OrderedJson::array())) shown.push_back(field["jsonPath"]);
    for (std::string path : shown) {
      const size_t filter = path.find("[?");
      if (filter != std::string::npos) path.replace(filter, path.find(')') + 2 - filter, "[]");
      EXPECT_THAT(paths, ::testing::Contains(path));
    }
  }
}

TEST(CrdTest, TheCommittedFilesAreTheOnesTheTablesGive) {
  const std::pair<const char*, std::string> files[] = {{"crds/fusionllm.io_fusionjobs.yaml", ToYaml(FusionJobCrd())},
                                                       {"crds/fusionllm.io_fusionclusters.yaml", ToYaml(FusionClusterCrd())},
                                                       {"docs/reference/kubernetes-reference.md", ReferencePage()}};
  for (const auto& [name, text] : files) {
    const std::string committed = Content(SourceDir() / name);
    EXPECT_TRUE(absl::EndsWith(committed, text)) << name << " is stale: tools/check-generated.sh --write";
  }
}

TEST(BlockYamlTest, ReadersTakeItForTheSameValues) {
  const OrderedJson document = {
      {"a", {{"b", OrderedJson::array({1, "1", true, "true", 1.5e-8, "x: y", "- z", OrderedJson::object(), OrderedJson::array()})}}},
      {"list", OrderedJson::array({OrderedJson{{"name", "n"}, {"inner", OrderedJson::array({"p", "q"})}}, OrderedJson{{"name", "m"}}})},
      {"empty", OrderedJson::object()}};
  const nlohmann::json same = nlohmann::json::parse(document.dump());
  EXPECT_EQ(FromYaml(YAML::Load(ToYaml(document))), same) << ToYaml(document);
  EXPECT_EQ(FromYaml(YAML::Load(ToYaml(FusionJobCrd()))), nlohmann::json::parse(FusionJobCrd().dump()));
}

}  // namespace
}  // namespace fusionllm::kubeapi
