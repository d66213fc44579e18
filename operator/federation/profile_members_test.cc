// Members that ClusterProfiles describe: over TLS, with credentials from a real program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_http_server.h"
#include "lib/security/certificate_authority.h"
#include "operator/federation/cluster_registry.h"
#include "operator/federation/member_client.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::federation {
namespace {

using kube::testing::FakeApiServer;
using kube::testing::FakeHttpServer;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kFleet[] = "fleet";
constexpr char kConfigExtension[] = "client.authentication.k8s.io/exec";
constexpr char kArgsExtension[] = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
constexpr char kEnvExtension[] = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";

class ProfileMembersTest : public ::testing::Test {
 protected:
  ProfileMembersTest() : authority_(*security::CertificateAuthority::Create()) {
    // Writes down how it was called, and wants to get a cluster. With --brief what it prints is for one request; with a file "broken"
    // beside it, it fails.
    const std::string program = folder_.path() + "/login";
    std::ofstream(program) << "#!/bin/sh\necho \"$*|$SITE|$REGION\" >> " << folder_.path() << "/runs\n"
                           << "printf '%s\\n' \"$KUBERNETES_EXEC_INFO\" >> " << folder_.path() << "/infos\n"
                           << "[ \"$2\" = --cluster ] || exit 7\n"
                           << "[ ! -e " << folder_.path() << "/broken ] || exit 8\n"
                           << R"([ "$4" != --brief ] || until=',"expirationTimestamp":"2020-01-02T03:04:05Z"')"
                           << "\n"
                           << R"(printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",')"
                           << R"('"status":{"token":"t"%s}}' "$until")"
                           << "\n";
    chmod(program.c_str(), 0755);
    const json file = {{"providers",
                        {{{"name", "login"},
                          {"execConfig",
                           {{"apiVersion", "client.authentication.k8s.io/v1"},
                            {"command", program},
                            {"args", {"token"}},
                            {"env", {{{"name", "REGION"}, {"value", "eu"}}}},
                            {"provideClusterInfo", true}}},
                          {"profileSourcedCLIArgsPolicy", "Append"},
                          {"profileSourcedEnvVarsPolicy", "AppendIfNotExists"},
                          {"profileSourcedEnvVarNames", json::array({"SITE"})}}}}};
    providers_ = *ParseAccessProviders(file.dump(), "providers.json");
    for (const char* site : {"paris", "tokyo"}) {
      sites_[site] = std::make_unique<FakeApiServer>(clock_);
      const auto issued = *authority_.Issue(site);
      fronts_[site] = std::make_unique<FakeHttpServer>(
          *sites_[site], kube::testing::RawServerTls{issued.certificate_pem, issued.private_key_pem, /*client_ca_pem=*/""});
    }
    hub_server_.Serve(manifests::kFusionClusters);
    hub_ = std::make_unique<kube::RestClient>(
        kube::ClusterAccess{.transport = hub_server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "hub"},
        kube::RestClientOptions{}, clock_);
    const json fleet = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", kFleet}}}};
    EXPECT_TRUE(hub_->Create(manifests::kNamespaces, "", fleet.dump()).ok());
  }

  void Start() {
    MemberContext context{.origin = "hub", .clock = &clock_, .heartbeat = heartbeat_};
    context.reconcile = [](const kube::WorkKey&, std::stop_token) { return kube::ReconcileResult::Done(); };
    context.changed = [](const kube::ObjectKey&, bool) {};
    const MemberClientOptions client{.user_agent = "test", .profile_exec_allowed = CommandsOf(providers_)};
    registry_ = std::make_unique<ClusterRegistry>(
        RegistryOptions{.ns = "default",
                        .access_providers = providers_,
                        .hub_uid = "hub",
                        .connect = [this, client](const std::string& kubeconfig, const kubeapi::FusionClusterSpec& spec)
                            -> absl::StatusOr<std::unique_ptr<kube::ApiClient>> {
                          ++connections_;
                          return ConnectMember(kubeconfig, spec, client, clock_, nullptr);
                        }},
        *hub_, std::move(context));
    registry_->Start();
    ASSERT_TRUE(registry_->WaitForSync(absl::Minutes(1)));
  }

  static json Extension(const char* name, const json& value) { return {{"name", name}, {"extension", value}}; }
  static json ArgsFor(const std::string& site) { return Extension(kArgsExtension, {"--cluster", site}); }
  json ClusterAt(const std::string& site, const json& extensions) const {
    return {{"server", fronts_.at(site)->Url()},
            {"certificate-authority-data", absl::Base64Escape(authority_.certificate_pem())},
            // Braces around one value are no list to this library.
            {"extensions", extensions.is_array() ? extensions : json::array({extensions})}};
  }
  void SetProfile(const std::string& name, const json& cluster, const std::string& provider = "login") {
    const json profile = {{"apiVersion", "multicluster.x-k8s.io/v1alpha1"},
                          {"kind", "ClusterProfile"},
                          {"metadata", {{"name", name}, {"namespace", kFleet}}},
                          {"spec", {{"clusterManager", {{"name", "test"}}}}}};
    (void)hub_->Create(manifests::kClusterProfiles, kFleet, profile.dump());  // it may be there
    SetStatus(name, {{"accessProviders", {{{"name", provider}, {"cluster", cluster}}}}});
  }
  void SetStatus(const std::string& name, const json& status) {
    const auto patched = hub_->Patch(manifests::kClusterProfiles, {kFleet, name}, kube::PatchType::kMerge, json{{"status", status}}.dump(),
                                     {.subresource = "status"});
    ASSERT_TRUE(patched.ok()) << patched.status();
  }
  void AddCluster(const std::string& name) {
    const json object = {{"apiVersion", "fusionllm.io/v1alpha1"},
                         {"kind", "FusionCluster"},
                         {"metadata", {{"name", name}}},
                         {"spec", {{"clusterProfileRef", {{"name", name}, {"namespace", kFleet}}}}}};
    ASSERT_TRUE(hub_->Create(manifests::kFusionClusters, "", object.dump()).ok());
  }

  // At most a minute.
  bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 60'000; ++i) {
      if (holds()) return true;
      clock_.WaitFor(absl::Milliseconds(1), {});
    }
    return false;
  }
  // "STATUS REASON MESSAGE".
  std::string Condition(const std::string& cluster, const std::string& type) {
    const auto answer = hub_->Get(manifests::kFusionClusters, {"", cluster});
    const json object = answer.ok() ? json::parse(*answer) : json();
    for (const json& condition : object.value(json::json_pointer("/status/conditions"), json::array())) {
      if (condition["type"] == type) {
        return absl::StrCat(condition["status"].get<std::string>(), " ", condition["reason"].get<std::string>(), " ",
                            condition["message"].get<std::string>());
      }
    }
    return "none";
  }
  bool IsConnected(const std::string& cluster) { return Condition(cluster, "Connected").rfind("True", 0) == 0; }
  bool CredentialsBecome(const std::string& cluster, const std::string& begin) {
    return Eventually([&] { return Condition(cluster, "CredentialsValid").rfind(begin, 0) == 0; });
  }
  std::set<std::string> Lines(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(folder_.path() + "/" + name).rdbuf();
    return absl::StrSplit(text.str(), '\n', absl::SkipEmpty());
  }

  kube::Clock& clock_ = kube::RealClock();
  base::TempFolder folder_;
  const security::CertificateAuthority authority_;
  AccessProviders providers_;
  kube::HeartbeatTimes heartbeat_;
  FakeApiServer hub_server_{clock_};
  std::map<std::string, std::unique_ptr<FakeApiServer>> sites_;
  std::map<std::string, std::unique_ptr<FakeHttpServer>> fronts_;
  std::unique_ptr<kube::ApiClient> hub_;
  std::atomic<int> connections_ = 0;
  std::unique_ptr<ClusterRegistry> registry_;  // last: its threads use the rest
};

TEST_F(ProfileMembersTest, AMemberIsConnectedAsItsProfileSays) {
  hub_server_.Serve(manifests::kClusterProfiles);
  SetProfile("paris", ClusterAt("paris", {ArgsFor("paris"), Extension(kEnvExtension, {{"SITE", "7 e"}, {"REGION", "us"}}),
                                          Extension(kConfigExtension, {{"audience", "members"}})}));
  AddCluster("paris");
  Start();
  ASSERT_TRUE(Eventually([&] { return IsConnected("paris"); })) << Condition("paris", "Connected");
  EXPECT_THAT(Condition("paris", "CredentialsValid"), StartsWith("True"));
  EXPECT_THAT(Lines("runs"), ::testing::ElementsAre("token --cluster paris|7 e|eu"));
  ASSERT_FALSE(Lines("infos").empty());
  const json cluster_info = json::parse(*Lines("infos").begin())["spec"]["cluster"];
  EXPECT_EQ(cluster_info["server"], fronts_["paris"]->Url());
  EXPECT_EQ(cluster_info["config"], json({{"audience", "members"}}));
}

TEST_F(ProfileMembersTest, TwoMembersOfOneProviderShareNoArguments) {
  hub_server_.Serve(manifests::kClusterProfiles);
  for (const char* site : {"paris", "tokyo"}) {
    SetProfile(site, ClusterAt(site, {ArgsFor(site), Extension(kEnvExtension, {{"SITE", site}})}));
    AddCluster(site);
  }
  Start();
  ASSERT_TRUE(Eventually([&] { return IsConnected("paris") && IsConnected("tokyo"); }));
  SetProfile("paris", ClusterAt("paris", {ArgsFor("paris"), Extension(kEnvExtension, {{"SITE", "again"}})}));
  ASSERT_TRUE(Eventually([&] { return Lines("runs").size() == 3; }));
  EXPECT_THAT(Lines("runs"),
              ::testing::ElementsAre("token --cluster paris|again|eu", "token --cluster paris|paris|eu", "token --cluster tokyo|tokyo|eu"));
}

TEST_F(ProfileMembersTest, AChangedProfileMakesAnotherConnectionAndANewHeartbeatDoesNot) {
  hub_server_.Serve(manifests::kClusterProfiles);
  SetProfile("paris", ClusterAt("paris", {ArgsFor("one")}));
  AddCluster("paris");
  Start();
  ASSERT_TRUE(Eventually([&] { return IsConnected("paris"); }));
  const auto reads = [&] {
    const std::vector<kube::testing::RecordedRequest> all = hub_server_.requests();
    return std::count_if(all.begin(), all.end(), [](const auto& request) {
      return request.verb == "get" && absl::StrContains(request.target, "/clusterprofiles/paris");
    });
  };
  const auto before = reads();
  SetStatus("paris", {{"conditions", {{{"type", "ControlPlaneHealthy"}, {"status", "True"}}}}});
  ASSERT_TRUE(Eventually([&] { return reads() > before; }));
  SetProfile("paris", ClusterAt("paris", {ArgsFor("two")}));
  ASSERT_TRUE(Eventually([&] { return Lines("runs").contains("token --cluster two||eu"); }));
  EXPECT_TRUE(Eventually([&] { return IsConnected("paris"); }));
  EXPECT_EQ(connections_, 2) << "one for each change";
}

TEST_F(ProfileMembersTest, AProfileThatGoesLeavesTheConnectionThatThereIs) {
  hub_server_.Serve(manifests::kClusterProfiles);
  SetProfile("paris", ClusterAt("paris", {ArgsFor("paris")}));
  AddCluster("paris");
  Start();
  ASSERT_TRUE(Eventually([&] { return IsConnected("paris"); }));
  ASSERT_TRUE(hub_->Delete(manifests::kClusterProfiles, {kFleet, "paris"}).ok());
  ASSERT_TRUE(CredentialsBecome("paris", "False ProfileMissing there is no ClusterProfile fleet/paris"));
  EXPECT_TRUE(IsConnected("paris"));
}

TEST_F(ProfileMembersTest, AProgramThatBeginsToFailEndsNoWatchesAndIsSaidWhenTheyEnd) {
  hub_server_.Serve(manifests::kClusterProfiles);
  heartbeat_.period = absl::Milliseconds(100);
  SetProfile("paris", ClusterAt("paris", {Extension(kArgsExtension, {"--cluster", "paris", "--brief"})}));
  AddCluster("paris");
  Start();
  FakeApiServer& paris = *sites_["paris"];
  ASSERT_TRUE(Eventually([&] { return IsConnected("paris") && paris.open_watches() == 4; })) << Condition("paris", "Connected");
  const auto count = [&](const char* target) {
    const std::vector<kube::testing::RecordedRequest> all = paris.requests();
    return std::count_if(all.begin(), all.end(), [&](const auto& request) { return absl::StrContains(request.target, target); });
  };
  const auto watches = count("watch=");
  EXPECT_GE(watches, 4);
  std::ofstream(folder_.path() + "/broken") << "";
  // What it has printed is used for some seconds more. Then no question reaches the member, and many cannot be asked.
  auto asked = count("/version");
  absl::Duration asked_at = clock_.Monotonic();
  ASSERT_TRUE(Eventually([&] {
    if (const auto now = count("/version"); now != asked) {
      asked = now;
      asked_at = clock_.Monotonic();
    }
    return clock_.Monotonic() - asked_at > 10 * heartbeat_.period;
  }));
  EXPECT_EQ(paris.open_watches(), 4);
  EXPECT_EQ(count("watch="), watches);
  EXPECT_TRUE(IsConnected("paris")) << Condition("paris", "Connected");
  paris.BreakWatches();
  EXPECT_TRUE(CredentialsBecome("paris", "False Unauthorized no watch: no credentials: ")) << Condition("paris", "CredentialsValid");
  EXPECT_THAT(Condition("paris", "CredentialsValid"), AllOf(HasSubstr("/login: ended with 8; it is run again "), HasSubstr(" after that")));
  std::remove((folder_.path() + "/broken").c_str());
  EXPECT_TRUE(CredentialsBecome("paris", "True")) << Condition("paris", "CredentialsValid");
  EXPECT_TRUE(Eventually([&] { return IsConnected("paris") && paris.open_watches() == 4; })) << Condition("paris", "Connected");
}

TEST_F(ProfileMembersTest, WhatIsMissingIsSaidUntilItComes) {
  AddCluster("paris");
  Start();
  ASSERT_TRUE(CredentialsBecome("paris", "False ProfileKindMissing the hub does not serve the kind ClusterProfile"))
      << Condition("paris", "CredentialsValid");
  EXPECT_THAT(Condition("paris", "Connected"), StartsWith("False"));
  hub_server_.Serve(manifests::kClusterProfiles);
  ASSERT_TRUE(CredentialsBecome("paris", "False ProfileMissing there is no ClusterProfile fleet/paris"));
  SetProfile("paris", ClusterAt("paris", {ArgsFor("paris")}), "somebody-else");
  // A profile is there before its status is.
  EXPECT_TRUE(
      CredentialsBecome("paris",
                        "False NoAccessProvider ClusterProfile fleet/paris: offers none of the access providers that the operator is "
                        "given (login): it has somebody-else"))
      << Condition("paris", "CredentialsValid");
  SetProfile("paris", ClusterAt("paris", {Extension(kArgsExtension, {{"--cluster", "paris"}})}));
  ASSERT_TRUE(
      CredentialsBecome("paris", "False ProfileRefused ClusterProfile fleet/paris: status.accessProviders[0].cluster.extensions[0]"));
  json insecure = ClusterAt("paris", {ArgsFor("paris")});
  insecure["insecure-skip-tls-verify"] = true;
  SetProfile("paris", insecure);
  ASSERT_TRUE(CredentialsBecome("paris", "False ProfileRefused InsecureSkipVerifyNotAllowed"));
  EXPECT_THAT(Condition("paris", "Connected"), HasSubstr(" its credentials are refused"));
  EXPECT_TRUE(Lines("runs").empty()) << "nothing was run for it so far";
  SetProfile("paris", ClusterAt("paris", json::array()));  // the program gets no cluster
  ASSERT_TRUE(CredentialsBecome("paris", "False Unauthorized no credentials: ")) << Condition("paris", "CredentialsValid");
  EXPECT_THAT(Condition("paris", "CredentialsValid"), HasSubstr("/login: ended with 7"));
  SetProfile("paris", ClusterAt("paris", {ArgsFor("paris")}));
  EXPECT_TRUE(Eventually([&] { return IsConnected("paris"); })) << Condition("paris", "Connected");
}

TEST_F(ProfileMembersTest, WithoutProvidersAProfileIsNotRead) {
  providers_.clear();
  hub_server_.Serve(manifests::kClusterProfiles);
  AddCluster("paris");
  Start();
  ASSERT_TRUE(CredentialsBecome("paris", "False ProfilesNotEnabled"));
  for (const auto& request : hub_server_.requests()) EXPECT_THAT(request.target, ::testing::Not(HasSubstr("clusterprofiles")));
}

}  // namespace
}  // namespace fusionllm::op::federation
