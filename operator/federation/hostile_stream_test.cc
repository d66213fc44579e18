// A member whose API server sends without end: it is cut off, and costs no more than is left for it, while others go on. One that sends
// next to nothing holds up nothing either; how long it is listened to is the transport's to say (curl_transport_test.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/kube/testing/fake_api_server.h"
#include "operator/federation/cluster_registry.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::federation {
namespace {

using kube::testing::FakeApiServer;
using nlohmann::json;
using ::testing::HasSubstr;

// The chart's limit, less what an operator with 10,000 Pods has otherwise.
constexpr int64_t kRoomMib = 256 - 64;

struct Torrent {
  const char* name;
  bool watch = false;        // of events, after a list that is as it should be
  size_t name_bytes = 16;    // of each object
  bool one_object = false;   // that does not end
  size_t padding_bytes = 0;  // that is not kept, in each object
  bool slow = false;         // a byte now and then, of one object that does not end
  const char* cut_off = "more objects than fit into the 12 MiB";
};

class PouringTransport : public kube::Transport {
 public:
  PouringTransport(std::shared_ptr<kube::Transport> inner, const Torrent& torrent) : inner_(std::move(inner)), torrent_(torrent) {}

  absl::StatusOr<kube::HttpResponse> Send(const kube::HttpRequest& request, const kube::UnaryLimits& limits,
                                          std::stop_token stop) override {
    return inner_->Send(request, limits, std::move(stop));
  }
  absl::StatusOr<kube::HttpResponse> Stream(const kube::HttpRequest& request, const kube::StreamLimits& limits, kube::StreamSink& sink,
                                            std::stop_token stop) override {
    if (absl::StrContains(request.target, "watch=") != torrent_.watch) return inner_->Stream(request, limits, sink, std::move(stop));
    const kube::HttpResponse head{.code = 200};
    absl::Status status = sink.OnOpen(head);
    const std::string kind = absl::StrContains(request.target, "/nodes")        ? "Node"
                             : absl::StrContains(request.target, "/configmaps") ? "ConfigMap"
                                                                                : "Pod";
    ++begun_;
    size_t bytes = 0;
    const auto pour = [&](const std::string& chunk) {
      bytes += chunk.size();
      if (status.ok()) status = sink.OnData(chunk);
      return status.ok() && !stop.stop_requested();
    };
    bool goes_on = torrent_.watch ||
                   pour(absl::StrCat(R"({"kind":")", kind, R"(List","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[)"));
    const std::string padding(torrent_.padding_bytes, 'x'), text(torrent_.name_bytes, 'n');
    if (torrent_.one_object) goes_on = goes_on && pour(R"({"metadata":{"name":")");
    if (torrent_.slow)
      goes_on = goes_on && pour(torrent_.watch ? R"({"type":"ADDED","object":{"metadata":{"name":")" : R"({"metadata":{"name":")");
    for (uint64_t i = 10; goes_on; ++i) {
      if (torrent_.slow) {
        kube::RealClock().WaitFor(absl::Milliseconds(1), stop);
        goes_on = pour("x");
        continue;
      }
      if (torrent_.one_object) {
        goes_on = pour(std::string(64 << 10, 'x'));
        continue;
      }
      const std::string object = absl::StrCat(
          R"({"kind":")", kind, R"(","apiVersion":"v1","metadata":{"namespace":"default","name":")", text, i, R"(","uid":"u)", i,
          R"(","resourceVersion":")", i, R"(","labels":{"fusionllm.io/origin":"hub","fusionllm.io/role":"executor","fusionllm.io/job":"j)",
          i, R"(","fusionllm.io/job-uid":"j)", i, R"("},"annotations":{"a":")", padding, R"("}},"spec":{},"status":{}})");
      goes_on =
          pour(torrent_.watch ? absl::StrCat(R"({"type":"ADDED","object":)", object, "}\n") : absl::StrCat(i == 10 ? "" : ",", object));
    }
    if (size_t peak = peak_.load(); bytes > peak) peak_ = bytes;
    ++streams_;
    if (!status.ok()) return status;
    return absl::CancelledError("stopped");
  }
  // Bytes of the longest stream, and how many there were.
  size_t peak() const { return peak_; }
  int streams() const { return streams_; }
  int begun() const { return begun_; }

 private:
  const std::shared_ptr<kube::Transport> inner_;
  const Torrent torrent_;
  std::atomic<size_t> peak_ = 0;
  std::atomic<int> streams_ = 0, begun_ = 0;
};

// Of this process, in MiB: "VmRSS" now, "VmHWM" at most.
int64_t MemoryMib(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(what)) return std::stoll(line.substr(what.size() + 1)) / 1024;
  }
  return 0;
}

class HostileStreamTest : public ::testing::TestWithParam<Torrent> {
 protected:
  std::unique_ptr<kube::ApiClient> Client(std::shared_ptr<kube::Transport> transport) {
    const MemberLimits limits;
    return std::make_unique<kube::RestClient>(
        kube::ClusterAccess{.transport = std::move(transport), .credentials = kube::StaticCredentials({}), .server = "test"},
        kube::RestClientOptions{.max_response_bytes = limits.answer_bytes, .max_list_bytes = limits.list_bytes}, clock_);
  }
  void AddCluster(kube::ApiClient& hub, const std::string& name) {
    const json secret = {{"apiVersion", "v1"},
                         {"kind", "Secret"},
                         {"metadata", {{"name", name}, {"namespace", "default"}}},
                         {"data", {{"kubeconfig", absl::Base64Escape(name)}}}};
    const json cluster = {{"apiVersion", "fusionllm.io/v1alpha1"},
                          {"kind", "FusionCluster"},
                          {"metadata", {{"name", name}}},
                          {"spec", {{"kubeConfig", {{"location", name}}}}}};
    ASSERT_TRUE(hub.Create(manifests::kSecrets, "default", secret.dump()).ok());
    ASSERT_TRUE(hub.Create(manifests::kFusionClusters, "", cluster.dump()).ok());
  }
  bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 60'000 && !holds(); ++i) clock_.WaitFor(absl::Milliseconds(1), {});
    return holds();
  }

  kube::Clock& clock_ = kube::RealClock();
  FakeApiServer hub_server_{clock_}, paris_{clock_}, tokyo_{clock_};
};

TEST_P(HostileStreamTest, IsCutOffWhileOthersGoOn) {
  hub_server_.Serve(manifests::kFusionClusters);
  const std::unique_ptr<kube::ApiClient> hub = Client(hub_server_.NewTransport()), tokyo = Client(tokyo_.NewTransport());
  const auto pouring = std::make_shared<PouringTransport>(paris_.NewTransport(), GetParam());
  std::atomic<int> changes = 0;
  MemberContext context{.origin = "hub", .clock = &clock_};
  context.reconcile = [](const kube::WorkKey&, std::stop_token) { return kube::ReconcileResult::Done(); };
  context.changed = [&](const kube::ObjectKey& job, bool) { changes += job.name == "train" ? 1 : 0; };
  [[maybe_unused]] const int64_t before = MemoryMib("VmRSS:");  // sanitizers take memory of their own
  ClusterRegistry registry(
      {.ns = "default",
       .connect = [&](const std::string& name,
                      const kubeapi::FusionClusterSpec&) { return Client(name == "paris" ? pouring : tokyo_.NewTransport()); }},
      *hub, std::move(context));
  AddCluster(*hub, "paris");
  AddCluster(*hub, "tokyo");
  registry.Start();
  const auto member = [&](const std::string& name) {
    std::shared_ptr<MemberConnection> found;
    for (const auto& one : registry.Remote()) {
      if (one->name() == name) found = std::static_pointer_cast<MemberConnection>(one);
    }
    return found;
  };
  if (GetParam().slow) {
    EXPECT_TRUE(Eventually([&] { return pouring->begun() >= 4; })) << "each cache";
  } else {
    EXPECT_TRUE(Eventually([&] { return pouring->streams() >= 8; })) << "it is tried again: two times each cache";
  }
  EXPECT_TRUE(Eventually([&] { return member("tokyo") != nullptr && member("tokyo")->reachable(); }));
  // Without labels it is no news itself; without it the garbage collector would take the Pod away.
  const json owner_config_map = {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", "train-anchor"}}}};
  const auto made = tokyo->Create(manifests::kConfigMaps, "default", owner_config_map.dump());
  ASSERT_TRUE(made.ok()) << made.status();
  const json owner = {{"apiVersion", "v1"},
                      {"kind", "ConfigMap"},
                      {"name", "train-anchor"},
                      {"uid", json::parse(*made)["metadata"]["uid"]},
                      {"controller", true}};
  const json pod = {{"apiVersion", "v1"},
                    {"kind", "Pod"},
                    {"metadata",
                     {{"name", "train-tokyo-0-r0"},
                      {"ownerReferences", json::array({owner})},
                      {"labels",
                       {{manifests::kOriginLabel, "hub"},
                        {manifests::kJobLabel, "train"},
                        {manifests::kJobUidLabel, "u"},
                        {manifests::kRoleLabel, manifests::kExecutorRole},
                        {manifests::kClusterLabel, "tokyo"},
                        {manifests::kIndexLabel, "0"},
                        {manifests::kAttemptLabel, "0"}}}}}};
  ASSERT_TRUE(tokyo->Create(manifests::kPods, "default", pod.dump()).ok());
  EXPECT_TRUE(Eventually([&] { return changes > 0; })) << "what happens in another member is seen";
  EXPECT_LT(pouring->peak(), size_t{64} << 20);
  if (!GetParam().watch) {
    EXPECT_FALSE(member("paris")->reachable());
  }
  if (!GetParam().watch && !GetParam().slow) {
    EXPECT_THAT(std::string(member("paris")->Connection().message()), HasSubstr(GetParam().cut_off));
  }
  if (GetParam().slow) {
    EXPECT_EQ(pouring->streams(), 0) << "it trickled all the time";
  }
  const absl::Time stopping = absl::Now();
  registry.Stop();
  EXPECT_LT(absl::Now() - stopping, absl::Seconds(20)) << "who sends without end is not waited for";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(MemoryMib("VmHWM:") - before, kRoomMib);
#endif
}

INSTANTIATE_TEST_SUITE_P(All, HostileStreamTest,
                         ::testing::Values(Torrent{.name = "EndlessList"},
                                           Torrent{.name = "EndlessListOfLongNames", .name_bytes = 200 << 10},
                                           Torrent{.name = "EndlessListOfPaddedObjects", .padding_bytes = 2000},
                                           Torrent{.name = "EndlessObject", .one_object = true, .cut_off = "long"},
                                           Torrent{.name = "HugeObjects", .padding_bytes = 4 << 20, .cut_off = "long"},
                                           Torrent{.name = "TricklingList", .slow = true},
                                           Torrent{.name = "TricklingWatch", .watch = true, .slow = true},
                                           Torrent{.name = "EndlessWatch", .watch = true},
                                           Torrent{.name = "EndlessWatchOfLongNames", .watch = true, .name_bytes = 200 << 10},
                                           Torrent{.name = "EndlessWatchOfHugeObjects", .watch = true, .padding_bytes = 4 << 20}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fusionllm::op::federation
