// A FusionJob on an API server in memory, with a kubelet and a cluster that a test plays, and an operator that can die. Header-only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "operator/cache/owner_config_map_view.h"
#include "operator/cache/pod_view.h"
#include "operator/controller/job_reconciler.h"
#include "operator/controller/tombstones.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller::testing {

using kube::testing::FakeApiServer;
using kube::testing::FakeClock;
using nlohmann::json;

inline constexpr char kOrigin[] = "hub";
inline constexpr char kHubUid[] = "hub-uid";
inline constexpr char kOperatorNamespace[] = "fusionllm";

inline json JobObject() {
  return {{"apiVersion", "fusionllm.io/v1alpha1"},
          {"kind", "FusionJob"},
          {"metadata", {{"name", "train"}, {"namespace", "default"}}},
          {"spec",
           {{"model", {{"family", "gpt2"}, {"preset", "tiny"}}},
            {"data", {{"kind", "text"}, {"path", {"corpus.txt"}}, {"volume", {{"configMap", {{"name", "text"}}}}}}},
            {"training", {{"steps", 100}}},
            {"executors", {{"replicas", 2}}}}}};
}

// What its Pods mount, in a cluster.
inline void AddData(kube::ApiClient& client) {
  const json text = {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", "text"}}}};
  EXPECT_TRUE(client.Create(manifests::kConfigMaps, "default", text.dump()).ok());
}

// Nothing waits by this clock: the time comes at once.
class AutoAdvanceClock : public FakeClock {
 public:
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, absl::Duration deadline) override {
    if (deadline < absl::InfiniteDuration()) Advance(deadline - Monotonic());
  }
};

// Reads the server itself, so it never trails.
class DirectMember : public cache::Member {
 public:
  explicit DirectMember(kube::ApiClient& client, std::string name = "local") : name_(std::move(name)), client_(client) {}
  const std::string& name() const override { return name_; }
  bool reachable() const override { return reachable_; }
  kube::ApiClient& client() const override { return client_; }
  bool lost() const override { return lost_ && !reachable_; }
  bool listed() const override { return !blind_; }
  void SetReachable(bool reachable) { reachable_ = reachable; }
  std::shared_ptr<const cache::ClusterCapacity> Capacity() const override { return capacity_; }
  // Null: its nodes are not known.
  void SetCapacity(std::shared_ptr<const cache::ClusterCapacity> capacity) { capacity_ = std::move(capacity); }
  void SetLost(bool lost) { lost_ = lost; }
  // As a cache that a restarted operator has of a cluster that it cannot reach.
  void SetBlind(bool blind) { blind_ = blind; }
  // As a cache that trails.
  void SetBehind(bool behind) { behind_ = behind; }
  // As a cache that does not show this pod yet; empty: it shows all.
  void Hide(const std::string& pod) { hidden_ = pod; }
  void Wrote(const std::string&, const kube::Resource&, const std::string& answer) override {
    wrote_.push_back(kube::TextAt(kube::ParseJson(answer), "metadata", "name"));
  }
  std::vector<std::string> wrote_;  // names
  bool SeenWrites(const std::string&) override { return !behind_; }

  std::vector<lifecycle::PodView> PodsOf(const manifests::JobIdentity& job) const override {
    (void)OwnerConfigMapOf(job);
    std::vector<lifecycle::PodView> views;
    const json pods = List(manifests::kPods, absl::StrCat(manifests::kJobUidLabel, "=", job.uid));
    for (const json& pod : pods) {
      lifecycle::PodView view = cache::ReadPod(pod.dump(), name_).value();
      if (view.name != hidden_ && cache::IsPodOf(view, job, seen_owner_config_maps_)) views.push_back(std::move(view));
    }
    return views;
  }
  std::optional<cache::OwnerConfigMapView> OwnerConfigMapOf(const manifests::JobIdentity& job) const override {
    for (const cache::OwnerConfigMapView& owner_config_map : OwnerConfigMaps()) {
      if (!cache::IsOwnerConfigMapOf(owner_config_map, job)) continue;
      seen_owner_config_maps_.insert(owner_config_map.uid);
      return owner_config_map;
    }
    return std::nullopt;
  }
  // What a cache has seen to go that a test's kubelet has taken away.
  std::optional<cache::BrokerReport> LastReportOf(const manifests::JobIdentity&) const override { return left_; }
  std::optional<cache::BrokerReport> left_;
  // As a cache that hears of no owner ConfigMap any more.
  void KeepOwnerConfigMaps() { kept_ = OwnerConfigMaps(); }
  std::vector<cache::OwnerConfigMapView> OwnerConfigMaps() const override {
    if (kept_.has_value()) return *kept_;
    std::vector<cache::OwnerConfigMapView> owner_config_maps;
    const json objects = List(manifests::kConfigMaps, absl::StrCat(manifests::kRoleLabel, "=", manifests::kOwnerConfigMapRole));
    for (const json& object : objects) {
      cache::OwnerConfigMapView owner_config_map = cache::ReadOwnerConfigMap(object.dump()).value();
      if (cache::JobOf(owner_config_map).has_value()) owner_config_maps.push_back(std::move(owner_config_map));
    }
    return owner_config_maps;
  }

 private:
  json List(const kube::Resource& resource, const std::string& selector) const {
    if (blind_) return json::array();
    const auto answer = client_.List(resource, "", {.label_selector = selector});
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? json::parse(*answer)["items"] : json::array();
  }
  const std::string name_;
  std::string hidden_;
  mutable std::set<std::string> seen_owner_config_maps_;  // uids, those of owner ConfigMaps that are gone included
  bool reachable_ = true, lost_ = false, blind_ = false, behind_ = false;
  std::shared_ptr<const cache::ClusterCapacity> capacity_;
  std::optional<std::vector<cache::OwnerConfigMapView>> kept_;
  kube::ApiClient& client_;
};

// Reads through one client, writes through another, so that faults meet writes alone.
class WritingMember : public cache::Member {
 public:
  WritingMember(DirectMember& seen, kube::ApiClient& client) : seen_(seen), client_(client) {}
  const std::string& name() const override { return seen_.name(); }
  bool reachable() const override { return seen_.reachable(); }
  bool lost() const override { return seen_.lost(); }
  bool listed() const override { return seen_.listed(); }
  kube::ApiClient& client() const override { return client_; }
  std::vector<lifecycle::PodView> PodsOf(const manifests::JobIdentity& job) const override { return seen_.PodsOf(job); }
  std::optional<cache::OwnerConfigMapView> OwnerConfigMapOf(const manifests::JobIdentity& job) const override {
    return seen_.OwnerConfigMapOf(job);
  }
  std::optional<cache::BrokerReport> LastReportOf(const manifests::JobIdentity& job) const override { return seen_.LastReportOf(job); }
  std::vector<cache::OwnerConfigMapView> OwnerConfigMaps() const override { return seen_.OwnerConfigMaps(); }
  std::shared_ptr<const cache::ClusterCapacity> Capacity() const override { return seen_.Capacity(); }
  void Wrote(const std::string& uid, const kube::Resource& resource, const std::string& answer) override {
    seen_.Wrote(uid, resource, answer);
  }
  bool SeenWrites(const std::string& uid) override { return seen_.SeenWrites(uid); }

 private:
  DirectMember& seen_;
  kube::ApiClient& client_;
};

// The connection of an operator that dies at a request of its own: before the server has heard of it, or before the operator has the
// answer.
class CrashingTransport : public kube::Transport {
 public:
  explicit CrashingTransport(std::shared_ptr<kube::Transport> inner) : inner_(std::move(inner)) {}

  void DieAt(int request, bool carried_out) {
    left_ = request;
    carried_out_ = carried_out;
  }
  bool died() const { return died_; }
  int requests() const { return requests_; }  // so far, those included that got no answer
  void Revive() { died_ = false; }

  absl::StatusOr<kube::HttpResponse> Send(const kube::HttpRequest& request, const kube::UnaryLimits& limits,
                                          std::stop_token stop) override {
    ++requests_;
    if (!died_ && left_-- != 0) return inner_->Send(request, limits, std::move(stop));
    if (!died_ && carried_out_) (void)inner_->Send(request, limits, std::move(stop));
    died_ = true;
    return absl::UnavailableError("it has died");
  }
  absl::StatusOr<kube::HttpResponse> Stream(const kube::HttpRequest&, const kube::StreamLimits&, kube::StreamSink&,
                                            std::stop_token) override {
    return absl::UnimplementedError("no watches here");
  }

 private:
  const std::shared_ptr<kube::Transport> inner_;
  int requests_ = 0;
  int left_ = -1;  // requests until it dies; below zero: never
  bool carried_out_ = false;
  bool died_ = false;
};

class DirectJobs : public cache::JobSource {
 public:
  explicit DirectJobs(kube::ApiClient& client) : client_(client) {}
  std::shared_ptr<const cache::JobView> Find(const kube::ObjectKey& key) const override {
    const auto answer = client_.Get(manifests::kFusionJobs, key);
    if (!answer.ok()) return nullptr;
    return std::make_shared<const cache::JobView>(cache::ReadJob(json::parse(*answer), kOrigin, kHubUid).value());
  }
  void Wrote(const kube::ObjectKey&, const std::string&) override {}
  bool SeenWrites(const kube::ObjectKey&) override { return !behind_; }
  bool behind_ = false;

 private:
  kube::ApiClient& client_;
};

class FakeMembers : public cache::Members {
 public:
  std::vector<std::shared_ptr<cache::Member>> Remote() const override { return remote_; }
  std::optional<std::string> LocalName() const override { return local_; }
  void ForEachCluster(absl::FunctionRef<void(const cache::ClusterFacts&)> look) const override {
    std::vector<cache::ClusterFacts> all;
    if (local_.has_value()) all.push_back({.name = *local_, .local = true});
    for (const std::shared_ptr<cache::Member>& member : remote_) all.push_back({.name = member->name()});
    for (cache::ClusterFacts& facts : all) {
      facts.labels = labels_.contains(facts.name) ? labels_.at(facts.name) : facts.labels;
      facts.egress_only = egress_only_.contains(facts.name);
      facts.address = addresses_.contains(facts.name) ? addresses_.at(facts.name) : "";
      look(facts);
    }
  }
  std::map<std::string, absl::Duration> Connecting() const override { return connecting_; }
  bool Lost(const std::string& cluster) const override { return lost_.contains(cluster); }
  std::map<std::string, absl::Duration> connecting_;
  std::set<std::string> lost_;
  std::optional<std::string> local_ = "local";
  std::vector<std::shared_ptr<cache::Member>> remote_;
  std::map<std::string, std::map<std::string, std::string>> labels_;
  std::map<std::string, std::string> addresses_;  // of nodes, by cluster
  std::set<std::string> egress_only_;             // by cluster
};

class ScriptedProgress : public cache::ProgressSource {
 public:
  std::optional<lifecycle::Progress> Follow(const kube::WorkKey&, const std::string&, const std::string& address) override {
    address_ = address;
    return newest_;
  }
  void Forget(const std::string&) override { newest_.reset(); }
  std::optional<lifecycle::Progress> newest_;
  std::string address_;
};

class RecordedEvents : public EventSink {
 public:
  void Record(const manifests::JobIdentity&, const lifecycle::EventRecord& note) override {
    reasons_.push_back(note.reason);
    messages_.push_back(note.message);
  }
  std::vector<std::string> reasons_, messages_;
};

// What a cloud does for Services that ask for a load balancer: each gets an address of `network`, the broker's .5.
inline void GiveLoadBalancers(kube::ApiClient& client, const std::string& network) {
  const json services = json::parse(client.List(manifests::kServices, "default").value());
  int next = 10;
  for (const json& service : services["items"]) {
    if (service["spec"].value("type", "") != "LoadBalancer") continue;
    const std::string name = service["metadata"]["name"];
    const std::string ip = absl::StrCat(network, ".", name == "train-broker" ? 5 : next++);
    if (service.contains("status")) continue;
    const json status = {{"status", {{"loadBalancer", {{"ingress", {{{"ip", ip}}}}}}}}};
    EXPECT_TRUE(
        client.Patch(manifests::kServices, {"default", name}, kube::PatchType::kMerge, status.dump(), {.subresource = "status"}).ok());
  }
}

class JobReconcilerTest : public ::testing::Test {
 protected:
  JobReconcilerTest() {
    server_.Serve(manifests::kFusionJobs);
    auto transport = std::make_shared<CrashingTransport>(server_.NewTransport());
    transport_ = transport.get();
    client_ = NewClient(std::move(transport));
    looking_ = NewClient(server_.NewTransport());
    const json own = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", kOperatorNamespace}}}};
    EXPECT_TRUE(looking_->Create(manifests::kNamespaces, "", own.dump()).ok());
    AddData(*looking_);
    Restart();
  }

  std::unique_ptr<kube::ApiClient> NewClient(std::shared_ptr<kube::Transport> transport) {
    return std::make_unique<kube::RestClient>(
        kube::ClusterAccess{.transport = std::move(transport), .credentials = kube::StaticCredentials({}), .server = "test"},
        kube::RestClientOptions{.max_retries = 0}, hurrying_);
  }

  // As after a crash: nothing is remembered.
  void Restart() {
    transport_->Revive();
    member_ = std::make_unique<DirectMember>(*looking_);
    hub_ = std::make_unique<WritingMember>(*member_, *client_);
    jobs_ = std::make_unique<DirectJobs>(*looking_);
    tombstones_ = std::make_unique<Tombstones>(*client_, kOperatorNamespace, kOrigin, kHubUid);
    reconciler_ = std::make_unique<JobReconciler>(
        ReconcilerOptions{.images = {"b", "s", "e", ""},
                          .enqueue = [this](const std::string& cluster, const kube::ObjectKey&) { enqueued_.insert(cluster); },
                          .hints = hints_,
                          .measured = measured_,
                          .workloads = workloads_,
                          .metrics = metrics_},
        *jobs_, *hub_, members_, *tombstones_, progress_, events_, clock_);
  }

  void Submit(const json& object = JobObject()) {
    const auto created = looking_->Create(manifests::kFusionJobs, "default", object.dump());
    ASSERT_TRUE(created.ok()) << created.status();
  }
  json Job() const {
    const auto answer = looking_->Get(manifests::kFusionJobs, {"default", "train"});
    return answer.ok() ? json::parse(*answer) : json();
  }
  void Patch(const kube::Resource& resource, const std::string& name, const json& patch, const std::string& subresource = "") {
    const auto done = looking_->Patch(resource, {"default", name}, kube::PatchType::kMerge, patch.dump(), {.subresource = subresource});
    ASSERT_TRUE(done.ok()) << done.status();
  }
  kube::ReconcileResult Reconcile() { return reconciler_->Reconcile({"", "default", "train"}, {}); }

  json Pods() const { return json::parse(looking_->List(manifests::kPods, "default").value())["items"]; }
  std::vector<std::string> PodNames() const {
    std::vector<std::string> names;
    const json pods = Pods();
    for (const json& pod : pods) names.push_back(pod["metadata"]["name"]);
    std::sort(names.begin(), names.end());
    return names;
  }

  // What a cluster does by itself: addresses for Services, pods that start, pods that end when they are deleted.
  void SimulateCluster() {
    const json services = json::parse(looking_->List(manifests::kServices, "default").value());
    for (const json& service : services["items"]) {
      if (!service["spec"].contains("clusterIP"))
        Patch(manifests::kServices, service["metadata"]["name"], {{"spec", {{"clusterIP", "10.96.0.7"}}}});
    }
    if (balances_) GiveLoadBalancers(*looking_, "203.0.113");
    const json pods = Pods();
    for (const json& pod : pods) {
      const std::string name = pod["metadata"]["name"];
      if (pod["metadata"].contains("deletionTimestamp")) {
        (void)looking_->Delete(manifests::kPods, {"default", name}, {.grace_period_seconds = 0});
      } else if (!pod.contains("status") || !pod["status"].contains("podIP")) {
        Patch(manifests::kPods, name,
              {{"status", {{"phase", "Running"}, {"podIP", "10.0.0.1"}, {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}},
              "status");
      }
    }
  }
  void EndBroker(int64_t attempt, int exit_code, const std::string& report) {
    const std::string name = absl::StrCat("train-broker-r", attempt);
    const json terminated = {{"exitCode", exit_code}, {"reason", exit_code == 0 ? "Completed" : "Error"}, {"message", report}};
    Patch(manifests::kPods, name,
          {{"status",
            {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
             {"containerStatuses", {{{"name", "broker"}, {"state", {{"terminated", terminated}}}}}}}}},
          "status");
  }
  // Until nothing changes any more.
  void Settle() {
    absl::Status last;
    for (int i = 0; i < 40; ++i) {
      const std::vector<std::string> before = server_.objects();
      const json job = Job();
      const kube::ReconcileResult result = Reconcile();
      last = result.status;
      if (transport_->died()) ++deaths_;
      if (!result.status.ok()) Restart();  // as if it had died of that
      SimulateCluster();
      if (result.status.ok() && server_.objects() == before && Job() == job) return;
    }
    FAIL() << "it does not settle: " << last << "\n" << Job().dump(1);
  }
  json ConditionObject(const std::string& type) const {
    const json job = Job();
    for (const json& condition : job["status"]["conditions"]) {
      if (condition["type"] == type) return condition;
    }
    return nullptr;
  }
  std::string Condition(const std::string& type) const {
    const json condition = ConditionObject(type);
    if (condition.is_null()) return "none";
    return absl::StrCat(condition["status"].get<std::string>(), " ", condition["reason"].get<std::string>());
  }

  int Deaths() const { return deaths_; }

  int deaths_ = 0;
  bool balances_ = true;  // the cluster gives load balancers their addresses
  FakeClock clock_;
  AutoAdvanceClock hurrying_;  // of the clients: what they wait before they try again is no matter here
  FakeApiServer server_{clock_};
  CrashingTransport* transport_ = nullptr;
  std::unique_ptr<kube::ApiClient> client_, looking_;  // of the operator; of the test
  std::unique_ptr<DirectMember> member_;
  std::unique_ptr<WritingMember> hub_;
  std::unique_ptr<DirectJobs> jobs_;
  std::unique_ptr<Tombstones> tombstones_;
  FakeMembers members_;
  std::set<std::string> enqueued_;
  ScriptedProgress progress_;
  RecordedEvents events_;
  placement::HintCache* hints_ = nullptr;               // of the next operator; must outlive it
  const placement::MeasuredLinks* measured_ = nullptr;  // as that
  kueue::WorkloadSource* workloads_ = nullptr;          // as that
  const JobMetrics* metrics_ = nullptr;                 // as that
  std::unique_ptr<JobReconciler> reconciler_;
};

}  // namespace fusionllm::op::controller::testing
