// An operator that starts when jobs run already: it waits until it knows what their members have, and then finds nothing to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "lib/kube/queue/controller.h"
#include "lib/kube/watch/heartbeat_client.h"
#include "operator/cache/job_cache.h"
#include "operator/controller/testing/two_clusters_fixture.h"
#include "operator/federation/cluster_registry.h"

namespace fusionllm::op::manager {
namespace {

using controller::testing::kHubUid;
using controller::testing::kOperatorNamespace;
using controller::testing::kOrigin;
using controller::testing::TwoClustersTest;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOperatorAgent[] = "fusion-operator";

// A member whose lists and watches do not come before they are let through.
class Gate : public kube::Transport {
 public:
  Gate(std::shared_ptr<kube::Transport> inner, kube::Clock& clock) : inner_(std::move(inner)), clock_(clock) {}

  absl::StatusOr<kube::HttpResponse> Send(const kube::HttpRequest& request, const kube::UnaryLimits& limits,
                                          std::stop_token stop) override {
    return inner_->Send(request, limits, std::move(stop));
  }
  absl::StatusOr<kube::HttpResponse> Stream(const kube::HttpRequest& request, const kube::StreamLimits& limits, kube::StreamSink& sink,
                                            std::stop_token stop) override {
    std::unique_lock lock(mutex_);
    while (!open_ && !stop.stop_requested()) clock_.WaitUntil(lock, changed_, clock_.Monotonic() + absl::Hours(1));
    lock.unlock();
    return inner_->Stream(request, limits, sink, std::move(stop));
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  const std::shared_ptr<kube::Transport> inner_;
  kube::Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

std::unique_ptr<kube::ApiClient> ClientOf(std::shared_ptr<kube::Transport> transport, kube::Clock& clock) {
  return std::make_unique<kube::RestClient>(
      kube::ClusterAccess{.transport = std::move(transport), .credentials = kube::StaticCredentials({}), .server = "test"},
      kube::RestClientOptions{.user_agent = kOperatorAgent, .requests_per_second = 1e6, .burst = 1'000'000}, clock);
}

// What main() wires together, on one hub with one member.
class TestOperator {
 public:
  TestOperator(kube::testing::FakeApiServer& hub, std::shared_ptr<kube::Transport> member, cache::ProgressSource& progress,
               kube::Clock& clock)
      : client_(ClientOf(hub.NewTransport(), clock)),
        reads_(*client_, clock),
        queue_("fusionjob", clock, nullptr),
        hub_("local", kOrigin, reads_, *client_, clock, nullptr, changed_),
        jobs_({}, kOrigin, kHubUid, reads_, clock, nullptr, changed_),
        tombstones_(*client_, kOperatorNamespace, kOrigin, kHubUid),
        registry_({.ns = kOperatorNamespace,
                   .connect = [member = std::move(member), &clock](const std::string&,
                                                                   const kubeapi::FusionClusterSpec&) { return ClientOf(member, clock); },
                   .hub = &hub_,
                   .connect_timeout = absl::ZeroDuration(),
                   .changed_for_all = [this] { jobs_.ResyncAll(); }},
                  *client_, {.origin = kOrigin, .clock = &clock, .reconcile = reconcile_, .changed = changed_}),
        reconciler_({.images = {"b", "s", "e", ""},
                     .enqueue = [this](const std::string& cluster,
                                       const kube::ObjectKey& job) { registry_.Enqueue(cluster, job, /*urgent=*/true); }},
                    jobs_, hub_, registry_, tombstones_, progress, events_, clock) {
    hub_.Start();
    jobs_.Start();
    registry_.Start();
    EXPECT_TRUE(hub_.WaitForSync(absl::InfiniteDuration()));
    EXPECT_TRUE(jobs_.WaitForSync(absl::InfiniteDuration()));
    EXPECT_TRUE(registry_.WaitForSync(absl::InfiniteDuration()));
    controller_ = std::make_unique<kube::Controller>(queue_, clock, nullptr, reconcile_);
  }
  // No call of its handlers and workers is at work any more.
  ~TestOperator() {
    controller_->Stop(absl::InfiniteDuration());
    registry_.Stop();
    jobs_.Stop();
    hub_.Stop();
  }
  int looks() const { return looks_; }
  bool KnowsItsMember() const { return registry_.Connecting().empty() && !registry_.Remote().empty(); }

 private:
  const cache::JobChanged changed_ = [this](const kube::ObjectKey& job, bool) { queue_.Add({"", job.ns, job.name}); };
  const kube::Controller::Reconcile reconcile_ = [this](const kube::WorkKey& key, std::stop_token stop) {
    const kube::ReconcileResult result = reconciler_.Reconcile(key, std::move(stop));
    if (key.cluster.empty()) ++looks_;
    return result;
  };
  std::atomic<int> looks_ = 0;  // of the hub's part, that are over
  std::unique_ptr<kube::ApiClient> client_;
  kube::HeartbeatClient reads_;
  kube::WorkQueue queue_;
  cache::ClusterCache hub_;
  cache::JobCache jobs_;
  controller::Tombstones tombstones_;
  controller::testing::RecordedEvents events_;
  federation::ClusterRegistry registry_;
  controller::JobReconciler reconciler_;
  std::unique_ptr<kube::Controller> controller_;
};

class RestartTest : public TwoClustersTest {
 protected:
  void SetUp() override {
    server_.Serve(manifests::kFusionClusters);
    const json secret = {{"apiVersion", "v1"},
                         {"kind", "Secret"},
                         {"metadata", {{"name", "tokyo"}}},
                         {"data", {{"kubeconfig", absl::Base64Escape("to tokyo")}}}};
    ASSERT_TRUE(looking_->Create(manifests::kSecrets, kOperatorNamespace, secret.dump()).ok());
    AddCluster("local", {{"local", json::object()}});
    AddCluster("tokyo", {{"kubeConfig", {{"location", "tokyo"}}}});
    progress_.newest_ = lifecycle::Progress{.step = 7, .steps = 100};
    Submit2();
    SettleBoth();
    ASSERT_EQ(Job()["status"]["executors"], "2/2");
    Start();
    gate_->Open();
    ASSERT_TRUE(Eventually([&] {
      clock_.Advance(absl::Milliseconds(100));
      return HasBeenEnqueued("local") && HasBeenEnqueued("tokyo");
    }));
    TouchBroker();
    operator_.reset();
    server_.ForgetRequests();
    tokyo_server_.ForgetRequests();
  }

  void AddCluster(const std::string& name, const json& spec) {
    const json object = {{"apiVersion", manifests::kFusionClusters.ApiVersion()},
                         {"kind", manifests::kFusionClusters.kind},
                         {"metadata", {{"name", name}}},
                         {"spec", spec}};
    EXPECT_TRUE(looking_->Create(manifests::kFusionClusters, "", object.dump()).ok());
  }
  // All that there is to be said of it.
  bool HasBeenEnqueued(const std::string& cluster) const {
    const json object = json::parse(looking_->Get(manifests::kFusionClusters, {"", cluster}).value());
    const json status = object.value("status", json::object());
    const auto is_well = [](const json& condition) { return condition["status"] == (condition["type"] == "Conflict" ? "False" : "True"); };
    return status.contains("resourceSummary") && std::all_of(status["conditions"].begin(), status["conditions"].end(), is_well);
  }
  void Start() {
    gate_ = std::make_shared<Gate>(tokyo_server_.NewTransport(), clock_);
    operator_ = std::make_unique<TestOperator>(server_, gate_, progress_, clock_);
  }
  // Threads carry things along while the clock stands still: a test waits for what must come, at most a minute.
  static bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 60'000 && !holds(); ++i) kube::RealClock().WaitFor(absl::Milliseconds(1), {});
    return holds();
  }
  // Until a look is over that began after now, by its own timer.
  bool LooksAgain() {
    const int before = operator_->looks();
    return Eventually([&] {
      clock_.Advance(absl::Milliseconds(100));
      return operator_->looks() >= before + 2;
    });
  }
  // The same, because something of it has changed that does not matter.
  void TouchBroker() {
    for (int i = 0; i < 2; ++i) {  // the first may find a look at work
      const int before = operator_->looks();
      Patch(manifests::kPods, "train-broker-r0", {{"metadata", {{"annotations", {{"touched", absl::StrCat(++touched_)}}}}}});
      EXPECT_TRUE(Eventually([&] { return operator_->looks() > before; }));
    }
  }
  std::vector<std::string> Writes() const {
    std::vector<std::string> writes;
    for (const auto* server : {&server_, &tokyo_server_}) {
      for (const auto& request : server->requests()) {
        if (request.method != "GET" && request.user_agent == kOperatorAgent)
          writes.push_back(absl::StrCat(request.verb, " ", request.target));
      }
    }
    return writes;
  }

  std::shared_ptr<Gate> gate_;
  std::unique_ptr<TestOperator> operator_;
  int touched_ = 0;
};

TEST_F(RestartTest, AnOperatorThatStartsWhenAllRunsWritesNothing) {
  Start();
  EXPECT_TRUE(LooksAgain());
  EXPECT_THAT(Writes(), ElementsAre()) << "while its member is being listed";
  gate_->Open();
  EXPECT_TRUE(Eventually([&] {
    clock_.Advance(absl::Milliseconds(100));
    return operator_->KnowsItsMember();
  }));
  TouchBroker();
  EXPECT_TRUE(HasBeenEnqueued("tokyo"));
  operator_.reset();
  EXPECT_THAT(Writes(), ElementsAre());
}

TEST_F(RestartTest, WhatHappenedMeanwhileIsSeenToOnceTheMemberIsKnown) {
  ASSERT_TRUE(tokyo_client_->Delete(manifests::kPods, {"default", "train-tokyo-0-r0"}, {.grace_period_seconds = 0}).ok());
  Start();
  EXPECT_TRUE(LooksAgain());
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").contains("spec"));
  gate_->Open();
  EXPECT_TRUE(Eventually([&] {
    clock_.Advance(absl::Milliseconds(1));
    return TokyoPod("train-tokyo-0-r0").contains("spec");
  }));
  EXPECT_THAT(Job()["status"]["clusterStatuses"].dump(), Not(HasSubstr("Unreachable"))) << "nobody counted the member as lost";
}

TEST_F(RestartTest, AMemberThatIsNeverListedHoldsAJobUpNoLongerThanItMust) {
  const absl::Duration started = clock_.Monotonic();
  Start();
  // Five seconds more than it takes until a member counts as lost, and as many until the next look.
  const absl::Duration most = cache::ClusterCache::kLossTimeout + absl::Seconds(10);
  EXPECT_TRUE(Eventually([&] {
    if (clock_.Monotonic() - started < most) clock_.Advance(absl::Milliseconds(100));
    return Job()["status"]["clusterStatuses"].dump().find("Unreachable") != std::string::npos;
  }));
}

TEST_F(RestartTest, ADeletedJobDoesNotWaitForItsMember) {
  Start();
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  EXPECT_TRUE(Eventually([&] { return Condition("Deleting") == "True ClusterUnreachable"; }));
}

// The operator died when it had deleted all there was, and not yet let the job go: no event of the member's tells of it any more.
TEST_F(RestartTest, ADeletedJobOfWhichNothingIsLeftGoesOnceTheMemberIsKnown) {
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  ASSERT_TRUE(tokyo_client_->Delete(manifests::kConfigMaps, {"default", "train-anchor"}).ok());
  ASSERT_TRUE(looking_->Delete(manifests::kConfigMaps, {"default", "train-anchor"}).ok());
  Start();
  EXPECT_TRUE(Eventually([&] { return Condition("Deleting") == "True ClusterUnreachable"; }));
  gate_->Open();
  EXPECT_TRUE(Eventually([&] {
    clock_.Advance(absl::Milliseconds(1));
    return operator_->KnowsItsMember();
  }));
  const absl::Duration known = clock_.Monotonic();
  EXPECT_TRUE(Eventually([&] {
    if (clock_.Monotonic() - known < absl::Seconds(10)) clock_.Advance(absl::Milliseconds(100));
    return absl::IsNotFound(looking_->Get(manifests::kFusionJobs, {"default", "train"}).status());
  }));
}

}  // namespace
}  // namespace fusionllm::op::manager
