// Two API servers in memory, for tests of the commands about clusters.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "cli/cluster/add_cluster.h"
#include "cli/cluster/member_objects.h"
#include "lib/kube/auth/cluster_access.h"
#include "lib/kube/auth/credentials.h"
#include "lib/kube/auth/kubeconfig.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/client/service_account_token.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::cli::testing {

using nlohmann::json;

// Others work while somebody waits: the control plane of the member, the operator on the hub.
class BusyClock : public kube::testing::SelfAdvancingClock {
 public:
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, absl::Duration deadline) override {
    if (work) work();
    SelfAdvancingClock::WaitUntil(lock, changed, deadline);
  }
  std::function<void()> work;
};

inline const kube::Resource kFusionJobs = {"fusionllm.io", "v1alpha1", "fusionjobs", "FusionJob", true};

// A hub with the chart and a member, both in memory, each with its control plane at work while somebody waits.
class HubAndMember : public ::testing::Test {
 protected:
  HubAndMember() {
    for (kube::testing::FakeApiServer* server : {&hub_server_, &member_server_}) {
      server->Serve({"", "v1", "serviceaccounts", "ServiceAccount", true}, {.builtin = true});
      server->Serve({"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false}, {.builtin = true});
      server->Serve({"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false}, {.builtin = true});
      server->Serve(kAdmissionPolicyResource, {.builtin = true});
      server->Serve(kAdmissionPolicyBindingResource, {.builtin = true});
    }
    hub_server_.Serve(kFusionClusterResource);
    hub_server_.Serve(kFusionJobs);
    Create(hub_, "namespaces", {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", "fusionllm"}}}});
    clock_.work = [this] {
      if (config_.insecure) WriteAuthority();
      MarkReady();
    };
  }

  void Create(kube::ApiClient& client, const std::string& plural, const json& object, const std::string& ns = "") {
    const auto created = client.Create({"", "v1", plural, object["kind"], !ns.empty()}, ns, object.dump());
    EXPECT_TRUE(created.ok()) << created.status();
  }

  void CreateNamespace(kube::ApiClient& client, const std::string& name) {
    Create(client, "namespaces", {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", name}}}});
  }

  // A job that has objects in the cluster.
  void AddJob(const std::string& name, const std::string& cluster, const std::string& ns = "default") {
    const json job = {{"apiVersion", "fusionllm.io/v1alpha1"}, {"kind", "FusionJob"}, {"metadata", {{"name", name}}}};
    ASSERT_TRUE(hub_.Create(kFusionJobs, ns, job.dump()).ok());
    const json status = {{"status", {{"clusterStatuses", json::array({{{"name", cluster}}})}}}};
    ASSERT_TRUE(hub_.Patch(kFusionJobs, {ns, name}, kube::PatchType::kMerge, status.dump(), {.subresource = "status"}).ok());
  }

  json Get(kube::ApiClient& client, const kube::Resource& resource, const kube::ObjectKey& key) {
    const auto found = client.Get(resource, key);
    EXPECT_TRUE(found.ok()) << key.ToString() << ": " << found.status();
    return found.ok() ? json::parse(*found) : json();
  }

  // As a controller of the member does in each namespace.
  void WriteAuthority() {
    if (!member_.Get(kNamespaceResource, {"", options_.member_namespace}).ok()) return;
    const json map = {
        {"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", "kube-root-ca.crt"}}}, {"data", {{"ca.crt", "member's own"}}}};
    (void)member_.Create(kConfigMapResource, options_.member_namespace, map.dump());
  }

  void MarkReady() {
    if (!hub_.Get(kFusionClusterResource, {"", options_.name}).ok()) return;
    const json status = {{"status", {{"conditions", json::array({{{"type", "Ready"}, {"status", "True"}, {"message", "connected"}}})}}}};
    EXPECT_TRUE(
        hub_.Patch(kFusionClusterResource, {"", options_.name}, kube::PatchType::kMerge, status.dump(), {.subresource = "status"}).ok());
  }

  absl::StatusOr<AddedCluster> Add() {
    return AddCluster(options_, hub_, member_, config_, clock_, [this](const std::string& line) { output_.push_back(line); });
  }

  kube::ClientConfig KubeconfigOnHub() {
    std::string text;
    const json secret = Get(hub_, kSecretResource, {options_.hub_namespace, options_.name});
    EXPECT_TRUE(absl::Base64Unescape(secret["data"]["kubeconfig"].get<std::string>(), &text));
    const auto parsed = kube::ParseKubeconfig(text, "kubeconfig", "");
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    const auto config = kube::ResolveContext(*parsed);
    EXPECT_TRUE(config.ok()) << config.status();
    return *config;
  }

  // The token that the hub has, as it says itself.
  kube::ServiceAccountToken TokenOnHub() {
    const auto token = kube::ReadServiceAccountToken(KubeconfigOnHub().token);
    EXPECT_TRUE(token.ok()) << token.status();
    return token.value_or(kube::ServiceAccountToken());
  }

  BusyClock clock_;
  kube::testing::FakeApiServer hub_server_{clock_}, member_server_{clock_};
  kube::RestClient hub_client_{{hub_server_.NewTransport(), kube::StaticCredentials({}), "hub", "default"}, {}, clock_};
  kube::RestClient member_client_{{member_server_.NewTransport(), kube::StaticCredentials({}), "member", "default"}, {}, clock_};
  kube::ApiClient& hub_ = hub_client_;
  kube::ApiClient& member_ = member_client_;
  AddClusterOptions options_{.name = "paris", .all_namespaces = true};
  kube::ClientConfig config_{.server = "https://paris.example:6443", .ca = {.data = "authority"}, .token = "the user's own"};
  std::vector<std::string> output_;
};

}  // namespace fusionllm::cli::testing
