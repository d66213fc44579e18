#include "operator/placement/graph_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::placement {
namespace {

job::Spec SpecWith(const std::string& file, const std::string& volume, const std::string& data_volume = "") {
  job::Spec spec;
  spec.model.graph = job::GraphSource{.file = file};
  spec.model.graph->volume.json = volume;
  spec.data.volume.json = data_volume;
  return spec;
}

using File = ConfigMapFile;

TEST(GraphFileTest, AGraphInAConfigMapIsFoundByItsPath) {
  EXPECT_EQ(GraphInConfigMap(SpecWith("m.dag", R"({"configMap":{"name":"nets"}})")), (File{"nets", "m.dag"}));
  EXPECT_EQ(GraphInConfigMap(SpecWith("./m.dag", "", R"({"configMap":{"name":"data"}})")), (File{"data", "m.dag"})) << "among the data";
  const std::string items = R"({"configMap":{"name":"nets","items":[{"key":"k","path":"nets/m.dag"}]}})";
  EXPECT_EQ(GraphInConfigMap(SpecWith("nets/m.dag", items)), (File{"nets", "k"}));
  EXPECT_EQ(GraphInConfigMap(SpecWith("k", items)), std::nullopt);
}

TEST(GraphFileTest, WhatLiesElsewhereIsForPodsAlone) {
  EXPECT_EQ(GraphInConfigMap(SpecWith("m.dag", R"({"persistentVolumeClaim":{"claimName":"nets"}})")), std::nullopt);
  EXPECT_EQ(GraphInConfigMap(SpecWith("m.dag", "no JSON")), std::nullopt);
  EXPECT_EQ(GraphInConfigMap(job::Spec()), std::nullopt);
}

TEST(GraphFileTest, ItsTextIsReadOnTheHub) {
  kube::testing::FakeClock clock;
  kube::testing::FakeApiServer server(clock);
  kube::RestClient client({.transport = server.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "hub"}, {}, clock);
  kube::ApiClient& api = client;
  const char* const object =
      R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"nets","namespace":"default"},"data":{"m.dag":"graph m"}})";
  ASSERT_TRUE(api.Create(manifests::kConfigMaps, "default", object).ok());
  EXPECT_EQ(ReadConfigMapFile(client, "default", {"nets", "m.dag"}, {}).value(), "graph m");
  EXPECT_TRUE(absl::IsNotFound(ReadConfigMapFile(client, "default", {"nets", "other"}, {}).status()));
  EXPECT_FALSE(ReadConfigMapFile(client, "default", {"none", "m.dag"}, {}).ok());
}

}  // namespace
}  // namespace fusionllm::op::placement
