// A member whose API server answers with objects that no server should send: what it hurts is its own part of a job, nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "lib/kube/testing/mutations.h"
#include "operator/cache/cached_objects.h"
#include "operator/cache/job_view.h"
#include "operator/cache/pod_requirements.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using kube::testing::Mutations;
using nlohmann::json;
using ::testing::Contains;
using ::testing::IsSupersetOf;
using testing::TwoClustersTest;
using testing::WritingMember;

// Answers as the server behind it does, but for one value of each object, or for all of it.
class GarblingTransport : public kube::Transport {
 public:
  GarblingTransport(std::shared_ptr<kube::Transport> inner, uint64_t seed) : inner_(std::move(inner)), random_(seed) {}

  void Mend() { mended_ = true; }
  int garbled() const { return garbled_; }

  absl::StatusOr<kube::HttpResponse> Send(const kube::HttpRequest& request, const kube::UnaryLimits& limits,
                                          std::stop_token stop) override {
    absl::StatusOr<kube::HttpResponse> response = inner_->Send(request, limits, std::move(stop));
    if (mended_ || !response.ok()) return response;
    const json object = json::parse(response->body, nullptr, /*allow_exceptions=*/false);
    if (!object.is_structured()) return response;
    const Mutations mutations(object);
    response->body = random_() % 16 == 0 ? "<html>busy</html>" : mutations.Make(random_() % mutations.size()).dump();
    ++garbled_;
    return response;
  }
  absl::StatusOr<kube::HttpResponse> Stream(const kube::HttpRequest&, const kube::StreamLimits&, kube::StreamSink&,
                                            std::stop_token) override {
    return absl::UnimplementedError("no watches here");
  }

 private:
  const std::shared_ptr<kube::Transport> inner_;
  std::mt19937_64 random_;
  bool mended_ = false;
  int garbled_ = 0;
};

class HostileMemberTest : public TwoClustersTest, public ::testing::WithParamInterface<int> {};

// Sixty runs of a job's life, each with other answers.
TEST_P(HostileMemberTest, TheJobGoesOnAsSoonAsItsAnswersMakeSense) {
  auto transport = std::make_shared<GarblingTransport>(tokyo_server_.NewTransport(), GetParam());
  GarblingTransport& garbling = *transport;
  const std::unique_ptr<kube::ApiClient> client = NewClient(std::move(transport));
  members_.remote_ = {std::make_shared<WritingMember>(*tokyo_, *client)};
  Submit2();
  for (int i = 0; i < 4; ++i) {
    ASSERT_NO_THROW((void)Reconcile());
    SimulateCluster();
    ASSERT_NO_THROW((void)ReconcileTokyo());
  }
  EXPECT_GT(garbling.garbled(), 0);
  // Its own part waits until Tokyo would take the other, if that is not the answer. A job that is on the hub alone waits for nothing.
  EXPECT_THAT(server_.objects(), Contains("services default/train-broker")) << "the hub's part is prepared";
  json alone = testing::JobObject();
  alone["metadata"]["name"] = "alone";
  alone["spec"]["placement"] = {{"clusters", {{{"name", "local"}, {"min", 2}}}}};
  Submit(alone);
  for (int i = 0; i < 4; ++i) {
    ASSERT_NO_THROW((void)reconciler_->Reconcile({"", "default", "alone"}, {}));
    SimulateCluster();
  }
  EXPECT_THAT(PodNames(), IsSupersetOf({"alone-broker-r0", "alone-local-0-r0", "alone-local-1-r0"}));
  garbling.Mend();
  clock_.Advance(absl::Minutes(6));  // what it seemed to refuse is asked again
  SettleBoth();
  EXPECT_EQ(Job()["status"]["executors"], "2/2");
  EXPECT_TRUE(TokyoPod("train-tokyo-0-r0").contains("spec"));
}
INSTANTIATE_TEST_SUITE_P(Seeds, HostileMemberTest, ::testing::Range(0, 60));

// What caches hold is read by these.
class OddObjectsTest : public TwoClustersTest {};

TEST_F(OddObjectsTest, AreReadOrRefused) {
  Submit2();
  SettleBoth();
  EndBroker(0, 1, R"({"error":"x"})");
  const json broker = json::parse(looking_->Get(manifests::kPods, {"default", "train-broker-r0"}).value());
  const json owner_config_map = json::parse(tokyo_client_->List(manifests::kConfigMaps, "default").value())["items"].at(0);
  ASSERT_TRUE(cache::ReadPod(broker.dump(), "local").ok());
  ASSERT_TRUE(cache::ReadOwnerConfigMap(owner_config_map.dump()).ok());
  for (const json& odd : Mutations(broker).All()) {
    ASSERT_NO_THROW((void)cache::ReadPod(odd.dump(), "local")) << odd.dump(1);
    ASSERT_NO_THROW((void)cache::CachedPod::Decode(odd.dump())) << odd.dump(1);
    ASSERT_NO_THROW((void)cache::RequirementsOfPod(odd)) << odd.dump(1);
  }
  for (const json& odd : Mutations(owner_config_map).All())
    ASSERT_NO_THROW((void)cache::CachedOwnerConfigMap::Decode(odd.dump())) << odd.dump(1);
  for (const json& odd : Mutations(Job()).All()) ASSERT_NO_THROW((void)cache::ReadJob(odd, "hub", "uid")) << odd.dump(1);
}

}  // namespace
}  // namespace fusionllm::op::controller
