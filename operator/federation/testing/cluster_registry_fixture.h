// A hub and members on API servers in memory, with a registry that connects them. Header-only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"
#include "lib/kube/testing/fake_api_server.h"
#include "operator/federation/cluster_registry.h"
#include "operator/federation/connect_metrics.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::federation::testing {

using kube::testing::FakeApiServer;
using nlohmann::json;

inline constexpr char kNamespace[] = "default";

class ClusterRegistryTest : public ::testing::Test {
 protected:
  ClusterRegistryTest() {
    hub_server_.Serve(manifests::kFusionClusters);
    hub_ = Client(hub_server_);
    Make(absl::ZeroDuration());  // the first look comes before the connection
  }
  void Make(absl::Duration connect_timeout, absl::Duration loss_timeout = absl::ZeroDuration(), kube::HeartbeatTimes heartbeat = {}) {
    MemberContext context{.origin = "hub", .clock = &clock_};
    context.connect_metrics = &connect_metrics_;
    context.heartbeat = heartbeat;
    context.reconcile = [this](const kube::WorkKey& key, std::stop_token) {
      const base::MutexLock lock(mutex_);
      looked_at_.insert(key.ToString());
      return kube::ReconcileResult::Done();
    };
    context.changed = [](const kube::ObjectKey&, bool) {};
    context.namespaces = [](const std::string&) { return std::set<std::string>{"team"}; };
    registry_ = std::make_unique<ClusterRegistry>(
        RegistryOptions{.ns = kNamespace,
                        .hub_uid = UidOf(hub_server_),
                        .connect = [this](const std::string& kubeconfig,
                                          const kubeapi::FusionClusterSpec& spec) -> absl::StatusOr<std::unique_ptr<kube::ApiClient>> {
                          {
                            const base::MutexLock lock(mutex_);
                            limits_.push_back(spec.max_concurrent_requests);
                          }
                          // One of JSON is known by its context, whatever its token.
                          const json config = json::parse(kubeconfig, nullptr, /*allow_exceptions=*/false);
                          const auto server = servers_.find(config.is_object() ? config.value("current-context", "") : kubeconfig);
                          if (server == servers_.end()) return absl::InvalidArgumentError("TokenFileNotAllowed: a token file of ours");
                          return Client(*server->second);
                        },
                        .connect_timeout = connect_timeout,
                        .loss_timeout = loss_timeout,
                        .conflict = [this](const std::string& cluster) -> std::string {
                          const base::MutexLock lock(mutex_);
                          return conflicts_.contains(cluster) ? conflicts_.at(cluster) : "";
                        },
                        .changed_for_all = [this] { ++loss_changes_; },
                        .status_written = [this] { ++statuses_written_; },
                        .removed = [this](const std::string& cluster) { ++(cluster == "paris" ? paris_left_ : others_left_); },
                        .may_list = [this] { return may_list_.load(); },
                        .may_write_status = [this] { return may_write_status_.load(); },
                        .record =
                            [this](const kube::ObjectMeta& cluster, const lifecycle::EventRecord& note) {
                              const base::MutexLock lock(mutex_);
                              EXPECT_FALSE(cluster.uid.empty());
                              events_.push_back(absl::StrCat(cluster.name, note.warning ? " ! " : " ", note.reason, ": ", note.message));
                            }},
        *hub_, std::move(context));
  }

  std::unique_ptr<kube::ApiClient> Client(FakeApiServer& server) {
    return std::make_unique<kube::RestClient>(
        kube::ClusterAccess{.transport = server.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
        kube::RestClientOptions{}, clock_);
  }

  std::string UidOf(FakeApiServer& server) { return ReadClusterUid(*Client(server)).value_or(""); }
  // As a proxy or another address of the same cluster.
  static void Impersonate(FakeApiServer& server, const std::string& uid) {
    const json object = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", "kube-system"}, {"uid", uid}}}};
    server.AddFault({.verb = "get", .target = "/namespaces/kube-system", .times = 1'000'000, .code = 200, .body = object.dump()});
  }
  void AddCluster(const std::string& name, const json& spec) {
    const json object = {
        {"apiVersion", "fusionllm.io/v1alpha1"}, {"kind", "FusionCluster"}, {"metadata", {{"name", name}}}, {"spec", spec}};
    ASSERT_TRUE(hub_->Create(manifests::kFusionClusters, "", object.dump()).ok());
  }
  void WriteSecret(const std::string& name, const std::string& kubeconfig) {
    const json secret = {{"apiVersion", "v1"},
                         {"kind", "Secret"},
                         {"metadata", {{"name", name}, {"namespace", kNamespace}}},
                         {"data", {{"kubeconfig", absl::Base64Escape(kubeconfig)}}}};
    ASSERT_TRUE(hub_->Apply(manifests::kSecrets, {kNamespace, name}, secret.dump(), {.field_manager = "test"}).ok());
  }

  // Threads of informers and queues carry things along: a test waits for what must come, at most a minute.
  bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 60'000; ++i) {
      if (holds()) return true;
      clock_.WaitFor(absl::Milliseconds(1), {});
    }
    return false;
  }
  std::string Condition(const std::string& cluster, const std::string& type) {
    const auto answer = hub_->Get(manifests::kFusionClusters, {"", cluster});
    const json object = answer.ok() ? json::parse(*answer) : json();
    const json conditions = object.value(json::json_pointer("/status/conditions"), json::array());
    for (const json& condition : conditions) {
      if (condition["type"] == type)
        return absl::StrCat(condition["status"].get<std::string>(), " ", condition["message"].get<std::string>());
    }
    return "none";
  }
  bool Holds(const std::string& cluster, const std::string& type) { return absl::StartsWith(Condition(cluster, type), "True "); }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& member : registry_->Remote()) names.push_back(member->name());
    return names;
  }

  kube::Clock& clock_ = kube::RealClock();
  FakeApiServer hub_server_{clock_}, paris_{clock_}, tokyo_{clock_}, lima_{clock_};
  std::map<std::string, FakeApiServer*> servers_ = {{"to paris", &paris_}, {"to tokyo", &tokyo_}, {"to lima", &lima_}};
  std::unique_ptr<kube::ApiClient> hub_;
  base::Mutex mutex_;
  std::set<std::string> looked_at_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> limits_ ABSL_GUARDED_BY(mutex_);  // of the connections made
  std::map<std::string, std::string> conflicts_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> loss_changes_ = 0, statuses_written_ = 0, paris_left_ = 0, others_left_ = 0;
  std::atomic<bool> may_list_ = true, may_write_status_ = true;
  metrics::Registry metrics_{"test", "1"};
  ConnectMetrics connect_metrics_{metrics_};
  std::unique_ptr<ClusterRegistry> registry_;  // last: its threads call the rest
};

}  // namespace fusionllm::op::federation::testing
