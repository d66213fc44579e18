// A job of which one cluster refuses its part, for whatever reason and however long: it has no Pod anywhere, and begins by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/client/forwarding_client.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::IsEmpty;
using testing::TwoClustersTest;

// Refuses to make objects of one kind, while somebody wants that.
class GuardedClient : public kube::ForwardingClient {
 public:
  using ForwardingClient::ForwardingClient;
  void Refuse(const std::string& plural, int code, const json& status) {
    plural_ = plural;
    error_ = kube::ToStatus(kube::ParseApiError(code, status.dump()));
  }
  void Mend() { error_ = absl::OkStatus(); }

  absl::StatusOr<std::string> Create(const kube::Resource& resource, absl::string_view ns, absl::string_view body,
                                     const kube::WriteOptions& options, const kube::CallOptions& call) override {
    if (Refuses(resource)) return error_;
    return ForwardingClient::Create(resource, ns, body, options, call);
  }
  absl::StatusOr<std::string> Apply(const kube::Resource& resource, const kube::ObjectKey& key, absl::string_view body,
                                    const kube::ApplyOptions& options, const kube::CallOptions& call) override {
    if (Refuses(resource)) return error_;
    return ForwardingClient::Apply(resource, key, body, options, call);
  }

 private:
  bool Refuses(const kube::Resource& resource) const {
    return !error_.ok() && (plural_.empty() ? resource.plural != manifests::kFusionJobs.plural : resource.plural == plural_);
  }

  std::string plural_;
  absl::Status error_;
};

// A cluster and a way to change what it has.
struct Side {
  GuardedClient& guard;
  kube::ApiClient& client;
};

struct Trouble {
  std::string name, reason;
  std::function<void(Side&)> begin, end;
};

json StatusOf(int code, const std::string& reason, const std::string& message, const std::string& cause = "") {
  json status = {{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}};
  if (!cause.empty()) status["details"]["causes"] = {{{"reason", cause}, {"message", message}}};
  return status;
}

void Put(kube::ApiClient& client, const kube::Resource& kind, const std::string& name, const json& data = json::object()) {
  const json object = {{"apiVersion", "v1"}, {"kind", kind.kind}, {"metadata", {{"name", name}}}, {"data", data}};
  ASSERT_TRUE(client.Create(kind, "default", object.dump()).ok()) << name;
}

void Remove(kube::ApiClient& client, const kube::Resource& kind, const std::string& name) {
  ASSERT_TRUE(client.Delete(kind, {"default", name}, {.grace_period_seconds = 0}).ok()) << name;
}

Trouble Lacks(const std::string& name, const kube::Resource& kind, const std::string& object) {
  return {name, "ObjectMissing", [&kind, object](Side& side) { Remove(side.client, kind, object); },
          [&kind, object](Side& side) { Put(side.client, kind, object); }};
}

Trouble Refuses(const std::string& name, const std::string& reason, const std::string& plural, const json& status) {
  return {name, reason, [=](Side& side) { side.guard.Refuse(plural, status["code"], status); }, [](Side& side) { side.guard.Mend(); }};
}

Trouble Taken(const std::string& name, const kube::Resource& kind, const std::string& object) {
  return {name, "Conflict", [&kind, object](Side& side) { Put(side.client, kind, object); },
          [&kind, object](Side& side) { Remove(side.client, kind, object); }};
}

std::vector<Trouble> Troubles(const std::string& cluster) {
  const std::string pod = absl::StrCat("train-", cluster, "-0-r0");
  return {
      Lacks("ConfigMap", manifests::kConfigMaps, "text"),
      Lacks("Secret", manifests::kSecrets, "keys"),
      Lacks("Claim", manifests::kClaims, "scratch"),
      {"Key", "ObjectMissing",
       [](Side& side) {
         Remove(side.client, manifests::kConfigMaps, "words");
         Put(side.client, manifests::kConfigMaps, "words", {{"READEM.md", "x"}});
       },
       [](Side& side) {
         Remove(side.client, manifests::kConfigMaps, "words");
         Put(side.client, manifests::kConfigMaps, "words", {{"README.md", "x"}});
       }},
      {"KeyOfASecret", "ObjectMissing",
       [](Side& side) {
         Remove(side.client, manifests::kSecrets, "passwords");
         Put(side.client, manifests::kSecrets, "passwords", {{"pasword", "eA=="}});
       },
       [](Side& side) {
         Remove(side.client, manifests::kSecrets, "passwords");
         Put(side.client, manifests::kSecrets, "passwords", {{"password", "eA=="}});
       }},
      Refuses("QuotaOfPods", "QuotaExceeded", "pods", StatusOf(403, "Forbidden", "pods is forbidden: exceeded quota: compute")),
      Refuses("QuotaOfSecrets", "QuotaExceeded", "secrets", StatusOf(403, "Forbidden", "secrets is forbidden: exceeded quota: compute")),
      Refuses("PodSecurity", "Forbidden", "pods", StatusOf(403, "Forbidden", "pods is forbidden: violates PodSecurity")),
      Refuses("RightsToSecrets", "Forbidden", "secrets", StatusOf(403, "Forbidden", "secrets is forbidden: no right")),
      Refuses("ServiceOfAnOddKind", "InvalidObject", "services", StatusOf(422, "Invalid", "Service is invalid: spec.type")),
      Refuses("NoNamespace", "NamespaceMissing", "", StatusOf(404, "NotFound", "namespaces \"default\" not found")),
      Refuses("NamespaceThatEnds", "NamespaceTerminating", "",
              StatusOf(403, "Forbidden", "namespace default is being terminated", "NamespaceTerminating")),
      Taken("PodOfSomebodyElse", manifests::kPods, pod),
      Taken("OwnerConfigMapOfSomebodyElse", manifests::kConfigMaps, "train-anchor"),
      Taken("SecretOfSomebodyElse", manifests::kSecrets, "train-executors"),
  };
}

class WaitingJobTest : public TwoClustersTest {
 protected:
  WaitingJobTest() {
    hub_writes_ = std::move(client_);
    auto guard = std::make_unique<GuardedClient>(*hub_writes_);
    hub_guard_ = guard.get();
    client_ = std::move(guard);
    members_.remote_ = {std::make_shared<testing::WritingMember>(*tokyo_, tokyo_guard_)};
    Restart();
    for (kube::ApiClient* client : {looking_.get(), tokyo_client_.get()}) {
      Put(*client, manifests::kSecrets, "keys");
      Put(*client, manifests::kClaims, "scratch");
      Put(*client, manifests::kConfigMaps, "words", {{"README.md", "x"}});
      Put(*client, manifests::kSecrets, "passwords", {{"password", "eA=="}});
    }
  }

  static json TheJob() {
    json job = testing::JobObject();
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    const json volumes = {{{"name", "k"}, {"secret", {{"secretName", "keys"}}}},
                          {{"name", "p"}, {"secret", {{"secretName", "passwords"}, {"items", {{{"key", "password"}, {"path", "p"}}}}}}},
                          {{"name", "s"}, {"persistentVolumeClaim", {{"claimName", "scratch"}}}},
                          {{"name", "w"}, {"configMap", {{"name", "words"}, {"items", {{{"key", "README.md"}, {"path", "w"}}}}}}}};
    job["spec"]["executors"]["template"] = {{"spec", {{"volumes", volumes}}}};
    return job;
  }
  // Names of the Pods that an operator has made.
  std::vector<std::string> Made() {
    std::vector<std::string> names;
    for (kube::ApiClient* client : {looking_.get(), tokyo_client_.get()}) {
      const json list = json::parse(client->List(manifests::kPods, "default", {.label_selector = manifests::kJobUidLabel}).value());
      for (const json& pod : list["items"]) names.push_back(pod["metadata"]["name"]);
    }
    return names;
  }
  // One look at one part, and what a cloud does.
  void Look(bool hub) {
    (void)(hub ? Reconcile() : ReconcileTokyo());
    testing::GiveLoadBalancers(*looking_, "203.0.113");
    testing::GiveLoadBalancers(*tokyo_client_, "198.51.100");
  }
  void LookAtBoth() {
    for (int i = 0; i < 12; ++i) Look(i % 2 == 0);
  }

  void WaitAnHour(Trouble& trouble, Side& side, unsigned seed) {
    SCOPED_TRACE(absl::StrCat(trouble.name, ", seed ", seed));
    std::mt19937 draw(seed);
    trouble.begin(side);
    Submit(TheJob());
    const absl::Time start = clock_.Now();
    LookAtBoth();
    bool restarted = false;
    while (clock_.Now() < start + absl::Hours(1)) {
      ASSERT_THAT(Made(), IsEmpty()) << clock_.Now() - start;
      clock_.Advance(absl::Seconds(1 + draw() % 90));
      if (!restarted && clock_.Now() > start + absl::Minutes(30)) {
        restarted = true;
        Restart();
        LookAtBoth();
      }
      Look(draw() % 2 == 0);
    }
    EXPECT_EQ(Condition("Scheduled"), absl::StrCat("False ", trouble.reason));
    EXPECT_EQ(Condition("Ready"), absl::StrCat("False ", trouble.reason));
    trouble.end(side);
    clock_.Advance(absl::Minutes(5));
    SettleBoth();
    EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
    EXPECT_EQ(Condition("Scheduled"), "True Scheduled");
  }

  std::unique_ptr<kube::ApiClient> hub_writes_;
  GuardedClient* hub_guard_ = nullptr;
  GuardedClient tokyo_guard_{*tokyo_writes_};
};

class WaitingJobByTroubleTest : public WaitingJobTest, public ::testing::WithParamInterface<size_t> {};

TEST_P(WaitingJobByTroubleTest, HasNoPodAnywhereWhileAMemberRefusesItsPartAndBeginsAfterwards) {
  Side tokyo{tokyo_guard_, *tokyo_client_};
  Trouble trouble = Troubles("tokyo")[GetParam()];
  WaitAnHour(trouble, tokyo, 1);
}

TEST_P(WaitingJobByTroubleTest, HasNoPodAnywhereWhileTheHubRefusesItsPartAndBeginsAfterwards) {
  Side hub{*hub_guard_, *looking_};
  Trouble trouble = Troubles("local")[GetParam()];
  WaitAnHour(trouble, hub, 2);
}

INSTANTIATE_TEST_SUITE_P(Troubles, WaitingJobByTroubleTest, ::testing::Range<size_t>(0, Troubles("x").size()),
                         [](const auto& at) { return Troubles("x")[at.param].name; });

// It is due to be asked again, and says nothing: no reason to begin without it.
TEST_F(WaitingJobTest, WaitsOnWhereTheMemberThatRefusedAnswersNoMore) {
  Side tokyo{tokyo_guard_, *tokyo_client_};
  Remove(*tokyo_client_, manifests::kConfigMaps, "text");
  Submit(TheJob());
  LookAtBoth();
  ASSERT_EQ(Condition("Scheduled"), "False ObjectMissing");
  tokyo.guard.Refuse("pods", 503, StatusOf(503, "ServiceUnavailable", "not now"));
  for (int i = 0; i < 30; ++i) {
    clock_.Advance(absl::Seconds(15));
    LookAtBoth();
    ASSERT_THAT(Made(), IsEmpty());
  }
  EXPECT_EQ(Condition("Scheduled"), "False ObjectMissing");
  EXPECT_GE(Reconcile().after, absl::Seconds(1)) << "its own part asks";
  EXPECT_LE(ReconcileTokyo().after, absl::Seconds(15));
}

// An attempt that follows asks again, too: what is left of the one before is removed and nothing comes in its place.
TEST_F(WaitingJobTest, KeepsNothingOfTheAttemptBeforeWhenTheNextOneIsRefused) {
  Submit(TheJob());
  SettleBoth();
  ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
  Remove(*tokyo_client_, manifests::kSecrets, "keys");
  clock_.Advance(absl::Minutes(1));
  EndBroker(0, 1, "{}");
  SettleBoth();
  for (int i = 0; i < 30; ++i) {
    clock_.Advance(absl::Seconds(37));
    SettleBoth();
    ASSERT_THAT(Made(), IsEmpty());
  }
  EXPECT_EQ(Condition("Ready"), "False ObjectMissing");
  EXPECT_EQ(Job()["status"]["state"], "Restarting");
  Put(*tokyo_client_, manifests::kSecrets, "keys");
  clock_.Advance(absl::Minutes(1));
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

}  // namespace
}  // namespace fusionllm::op::controller
