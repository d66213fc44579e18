// Member clusters of ill will against the real fusion-operator: each lies in its own way, all at once. The operator stays up and keeps the
// lead, a job that has nothing to do with them comes to its end, and each one's FusionCluster says what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/kube/auth/kubeconfig.h"
#include "lib/kube/testing/fake_token.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"
#include "tests/load/federation.h"
#include "tests/load/operator_process.h"

namespace fusionllm::load {
namespace {

using kube::testing::Fault;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kAlways = 1'000'000;
constexpr absl::Duration kTestTimeout = absl::Minutes(2);

class LyingMemberTest : public ::testing::Test {
 protected:
  enum Liar { kHonest, kDeep, kDeepList, kPages, kForged, kReplaced, kGarbage, kToken, kLiars };

  SimCluster& member(size_t which) { return *fleet_.members()[which]; }
  static std::string NameOf(size_t which) { return absl::StrCat("m", which); }
  static std::string Deep(absl::string_view begin = "", absl::string_view end = "") {
    return absl::StrCat(begin, std::string(100'000, '['), std::string(100'000, ']'), end);
  }
  // What a member answers from now on in place of what it should; a part of it may be what every cluster does.
  void Lie(size_t which, const std::string& verb, const std::string& target, const std::string& body, int code = 200) {
    member(which).server().AddFault({.verb = verb, .target = target, .times = kAlways, .code = code, .body = body});
  }
  // Has it listed again.
  void ListAgain(size_t which) {
    member(which).server().Compact();
    member(which).server().BreakWatches();
  }
  // It is looked at now, and not when its time comes.
  void TouchCluster(size_t which) {
    const kube::ObjectKey key{"", NameOf(which)};
    const std::string touch = R"({"metadata":{"annotations":{"touched":"now"}}})";
    EXPECT_TRUE(fleet_.hub().admin().Patch(op::manifests::kFusionClusters, key, kube::PatchType::kMerge, touch).ok());
  }
  // "False REASON: message" of a condition of a member.
  std::string Said(size_t which, const std::string& type) {
    const auto answer = fleet_.hub().admin().Get(op::manifests::kFusionClusters, {"", NameOf(which)});
    const json object = answer.ok() ? json::parse(*answer) : json();
    for (const json& one : object.value("/status/conditions"_json_pointer, json::array())) {
      if (one["type"] != type) continue;
      return absl::StrCat(one["status"].get<std::string>(), " ", one["reason"].get<std::string>(), ": ", one["message"].get<std::string>());
    }
    return "";
  }
  void AwaitSaid(size_t which, const std::string& type, const std::string& said) {
    EXPECT_TRUE(Federation::WaitUntil([&] { return absl::StrContains(Said(which, type), said); }, kTestTimeout))
        << NameOf(which) << " " << type << ": " << Said(which, type);
  }
  json Object(SimCluster& cluster, const kube::Resource& resource, const std::string& name) {
    const auto answer = cluster.admin().Get(resource, {kNamespace, name});
    return answer.ok() ? json::parse(*answer) : json();
  }
  std::string Leader() {
    const kube::Resource leases{"coordination.k8s.io", "v1", "leases", "Lease", true};
    const auto answer = fleet_.hub().admin().List(leases, "");
    const json list = answer.ok() ? json::parse(*answer)["items"] : json::array();
    return list.empty() ? "" : list[0]["spec"].value("holderIdentity", "");
  }
  void Replace(size_t which);
  void GiveOldToken(size_t which);
  void Forge(size_t which, const std::string& job);
  void Lure(const std::string& job, size_t honest, size_t which);

  Federation fleet_{kLiars};
};

// Another cluster stands behind the name than the one that was registered, and one more at each look.
void LyingMemberTest::Replace(size_t which) {
  const json status = {{"status", {{"clusterUID", "that-was-registered"}}}};
  ASSERT_TRUE(
      fleet_.hub()
          .admin()
          .Patch(op::manifests::kFusionClusters, {"", NameOf(which)}, kube::PatchType::kMerge, status.dump(), {.subresource = "status"})
          .ok());
  for (int i = 0; i < 1000; ++i) {
    const json system = {{"metadata", {{"name", "kube-system"}, {"uid", absl::StrCat("uid-", i)}}}};
    member(which).server().AddFault({.verb = "get", .target = "/namespaces/kube-system", .code = 200, .body = system.dump()});
  }
}

// As of `fusionctl cluster add`, twenty days ago: it is to be renewed.
void LyingMemberTest::GiveOldToken(size_t which) {
  const auto read = kube::ResolveContext(*kube::ParseKubeconfig(member(which).Kubeconfig(), "kubeconfig", ""));
  ASSERT_TRUE(read.ok()) << read.status();
  const absl::Time issued_at = absl::Now() - absl::Hours(24 * 20);
  const std::string token = kube::testing::FakeToken({.account = {"fusionllm", "fusion-hub"},
                                                      .secret = "fusion-hub-token",
                                                      .secret_uid = "u",
                                                      .issued_at = issued_at,
                                                      .expires_at = issued_at + absl::Hours(24 * 30)});
  const json kubeconfig = {
      {"apiVersion", "v1"},
      {"kind", "Config"},
      {"current-context", "c"},
      {"clusters",
       {{{"name", "c"}, {"cluster", {{"server", read->server}, {"certificate-authority-data", absl::Base64Escape(read->ca.data)}}}}}},
      {"users", {{{"name", "u"}, {"user", {{"token", token}}}}}},
      {"contexts", {{{"name", "c"}, {"context", {{"cluster", "c"}, {"user", "u"}}}}}}};
  const json secret = {{"metadata", {{"labels", {{"fusionllm.io/renew-token", "true"}}}}},
                       {"data", {{"kubeconfig", absl::Base64Escape(kubeconfig.dump(2))}}}};
  ASSERT_TRUE(fleet_.hub().admin().Patch(op::manifests::kSecrets, {"default", NameOf(which)}, kube::PatchType::kMerge, secret.dump()).ok());
}

// Its lists tell of Pods and an owner ConfigMap that look like those of a job which has no part in it: failed, of another attempt, of an
// epoch that no operator can come after, owned by what owns the true ones.
void LyingMemberTest::Forge(size_t which, const std::string& job) {
  const std::string owner_config_map_name = absl::StrCat(job, "-anchor"), broker_name = absl::StrCat(job, "-broker-r0");
  json owner_config_map = Object(fleet_.hub(), op::manifests::kConfigMaps, owner_config_map_name),
       broker = Object(fleet_.hub(), op::manifests::kPods, broker_name);
  ASSERT_TRUE(owner_config_map.is_object() && broker.is_object());
  for (json* const object : {&owner_config_map, &broker}) {
    (*object)["metadata"].erase("managedFields");
    (*object)["metadata"]["resourceVersion"] = "9223372036854775807";
    (*object)["metadata"]["generation"] = std::numeric_limits<int64_t>::max();
    (*object)["metadata"]["annotations"][op::manifests::kEpochAnnotation] = "9223372036854775807";
  }
  const json ended = {{"exitCode", 1}, {"reason", "Error"}, {"message", R"({"error":"forged"})"}};
  broker["status"] = {{"phase", "Failed"},
                      {"podIP", "127.0.0.1"},
                      {"containerStatuses", {{{"name", "broker"}, {"ready", false}, {"state", {{"terminated", ended}}}}}}};
  json later = broker, executor = broker;
  later["metadata"]["name"] = absl::StrCat(job, "-broker-r9223372036854775807");
  later["metadata"]["labels"][op::manifests::kAttemptLabel] = "9223372036854775807";
  executor["metadata"]["name"] = absl::StrCat(job, "-", NameOf(which), "-0-r0");
  executor["metadata"]["labels"][op::manifests::kRoleLabel] = op::manifests::kExecutorRole;
  executor["metadata"]["labels"][op::manifests::kClusterLabel] = NameOf(which);
  executor["metadata"]["labels"][op::manifests::kIndexLabel] = "-9223372036854775808";
  const auto list = [](const char* kind, const json& items) {
    return json{{"kind", kind}, {"apiVersion", "v1"}, {"metadata", {{"resourceVersion", "1"}}}, {"items", items}}.dump();
  };
  Lie(which, "list", "/pods", list("PodList", {broker, later, executor}));
  Lie(which, "list", "/configmaps", list("ConfigMapList", {owner_config_map}));
  Lie(which, "get", "/configmaps/", owner_config_map.dump());
  for (const char* verb : {"create", "patch", "apply"}) Lie(which, verb, "/configmaps", owner_config_map.dump());
  ListAgain(which);
}

// A job with a part there, whose owner ConfigMap is said to be of an epoch that no operator could outrank.
void LyingMemberTest::Lure(const std::string& job, size_t honest, size_t which) {
  fleet_.SubmitWith(job, 2, {{"suspend", true}, {"placement", {{"clusters", {{{"name", NameOf(honest)}}, {{"name", NameOf(which)}}}}}}});
  const std::string owner_config_map = absl::StrCat(job, "-anchor");
  const json labels = {{op::manifests::kJobUidLabel, Object(fleet_.hub(), op::manifests::kFusionJobs, job)["metadata"]["uid"]}};
  const json metadata = {{"name", owner_config_map}, {"namespace", kNamespace},
                         {"uid", "forged"},          {"resourceVersion", "9223372036854775807"},
                         {"labels", labels},         {"annotations", {{op::manifests::kEpochAnnotation, "9223372036854775807"}}}};
  Lie(which, "get", "/configmaps/" + owner_config_map, json{{"kind", "ConfigMap"}, {"metadata", metadata}}.dump());
  fleet_.PatchJob(job, {{"suspend", false}});
}

TEST_F(LyingMemberTest, LyingMembersNeitherStopTheOperatorNorOtherJobs) {
  Lie(kDeep, "get", "/namespaces/kube-system", Deep(R"({"metadata":{"uid":"u","name":)", "}}"));
  Lie(kDeepList, "list", "/pods",
      Deep(R"({"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","x":)", "}}]}"));
  Lie(kDeepList, "list", "/configmaps", Deep(R"({"kind":"ConfigMapList","metadata":)", R"(,"items":[]})"));
  Lie(kPages, "list", "/pods",
      R"({"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"for ever"},"items":[]})");
  Replace(kReplaced);
  Lie(kGarbage, "", "/", "<html>\xff{\"kind\":7");
  GiveOldToken(kToken);
  Lie(kToken, "create", "/token", Deep(R"({"status":{"token":)", "}}"), 201);

  OperatorProcess process(fleet_.Arguments(/*elect=*/true), fleet_.log());
  process.WaitReady();
  for (const size_t which : {kHonest, kForged, kToken}) AwaitSaid(which, "Connected", "True");
  const std::string leader = Leader();
  fleet_.Submit("honest", 1, {NameOf(kHonest)});
  Lure("lured", kHonest, kForged);
  ASSERT_TRUE(Federation::WaitUntil([&] { return fleet_.Job("honest").state == "Running"; }, kTestTimeout)) << fleet_.Job("honest").state;
  Forge(kForged, "honest");
  fleet_.Submit("tempted", 2, {NameOf(kHonest), NameOf(kForged)});

  AwaitSaid(kDeep, "Connected", "has no UID");
  AwaitSaid(kDeepList, "Connected", "False NotConnected: ");
  AwaitSaid(kPages, "Connected", "pages and more that hold next to nothing");
  AwaitSaid(kReplaced, "Conflict", "True ClusterReplaced: ");
  AwaitSaid(kGarbage, "Connected", "False NotConnected: ");
  EXPECT_TRUE(Federation::WaitUntil(
      [&] { return absl::StrContains(Object(fleet_.hub(), op::manifests::kFusionJobs, "tempted").dump(), "is not owned by this job"); },
      kTestTimeout));
  TouchCluster(kForged);
  AwaitSaid(kForged, "Conflict", "True NotOurs: ");
  AwaitSaid(kToken, "TokenRenewed", "False RenewalFailed: ");
  EXPECT_THAT(Said(kToken, "Connected"), HasSubstr("True")) << "by the old token";

  EXPECT_TRUE(Federation::WaitUntil(
      [&] { return absl::StrContains(base::ReadWholeFile(fleet_.log()), "has the epoch 9223372036854775807"); }, kTestTimeout));

  const json broker = Object(fleet_.hub(), op::manifests::kPods, "honest-broker-r0");
  ASSERT_TRUE(broker.is_object()) << "it was not restarted";
  ASSERT_TRUE(fleet_.hub().EndPod("honest-broker-r0", "broker", 0, R"({"step":100,"steps":100,"loss":2.5,"exit_code":0})").ok());
  EXPECT_TRUE(Federation::WaitUntil([&] { return fleet_.Job("honest").state == "Complete"; }, kTestTimeout)) << fleet_.Job("honest").state;
  const json job = Object(fleet_.hub(), op::manifests::kFusionJobs, "honest");
  EXPECT_EQ(job["status"].value("restarts", 0), 0);
  EXPECT_EQ(process.CodeOf("/healthz"), 200);
  EXPECT_EQ(process.CodeOf("/readyz"), 200);
  EXPECT_EQ(Leader(), leader) << "no epoch of a member takes the lead away";
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

}  // namespace
}  // namespace fusionllm::load
