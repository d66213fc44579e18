// The program as Kubernetes runs it: begun, asked, stopped. On API servers in memory, behind TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/certificate_authority.h"
#include "operator/manifests/resources.h"
#include "tests/load/federation.h"
#include "tests/load/operator_process.h"

namespace fusionllm::load {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// terminationGracePeriodSeconds of the chart is 30.
constexpr absl::Duration kGrace = absl::Seconds(25);
// Its file is looked at every five seconds.
constexpr absl::Duration kReloadTimeout = absl::Minutes(1);

std::string Holder(Federation& fleet) {
  const kube::Resource leases{"coordination.k8s.io", "v1", "leases", "Lease", true};
  const auto answer = fleet.hub().admin().List(leases, "");
  const json list = answer.ok() ? json::parse(*answer)["items"] : json::array();
  return list.empty() ? "" : list[0]["spec"].value("holderIdentity", "");
}

// Of operators, but for the one of this identity.
std::vector<kube::testing::RecordedRequest> RequestsOfOthers(const Federation& fleet, SimCluster& cluster, const std::string& identity) {
  std::vector<kube::testing::RecordedRequest> requests = fleet.OperatorRequests(cluster);
  std::erase_if(requests, [&](const auto& request) { return absl::EndsWith(request.user_agent, identity); });
  return requests;
}

absl::Duration MonotonicNow() { return kube::RealClock().Monotonic(); }

TEST(OperatorProcessTest, ItStopsInTimeAndGivesTheLeaseUpThoughItsMembersHang) {
  Federation fleet(8);
  OperatorProcess process(fleet.Arguments(/*elect=*/true), fleet.log());
  process.WaitReady();
  Federation::Await("all are connected", [&] { return fleet.Connected() == 8; });
  // By these /healthz knows of workers that are stuck.
  const std::string metrics = process.Metrics();
  for (const char* queue : {"fusionjob", "capacity", "hub", "fusioncluster"}) {
    EXPECT_TRUE(absl::StrContains(metrics, absl::StrCat("workqueue_longest_running_processor_seconds{controller=\"", queue, "\"")))
        << queue;
  }
  for (const auto& request : fleet.OperatorRequests(fleet.hub())) {
    EXPECT_THAT(request.user_agent, ::testing::MatchesRegex("fusion-operator/[0-9.]+ .linux/[a-z0-9]+. [0-9a-f]+ .+"))
        << "whose audit log tells";
    break;
  }
  for (const auto& member : fleet.members()) member->front().Freeze(true);
  for (int i = 0; i < 16; ++i) fleet.Submit(absl::StrCat("job-", i), 8);  // so that workers are at it
  Federation::Await("members are waited for", [&] { return fleet.JobsIn("Starting") > 0; });
  const absl::Duration begin = MonotonicNow();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_LT(MonotonicNow() - begin, kGrace);
  EXPECT_EQ(Holder(fleet), "") << "the next one need not wait for the Lease to expire";
  for (const auto& member : fleet.members()) member->front().Freeze(false);
}

TEST(OperatorProcessTest, LinesOfJsonTellWhichJobAndClusterTheyAreOf) {
  Federation fleet(1);
  std::vector<std::string> arguments = fleet.Arguments(/*elect=*/false);
  arguments.insert(arguments.end(), {"--log-format", "json", "--log-level", "debug"});
  {
    OperatorProcess process(arguments, fleet.log());
    process.WaitReady();
    fleet.Submit("job", 2);
    Federation::Await("the job runs", [&] { return fleet.Job("job").state == "Running"; });
    process.Signal(SIGTERM);
    EXPECT_EQ(process.Wait(), 0);
  }
  std::ifstream log(fleet.log());
  json of_job, of_cluster;
  for (std::string text; std::getline(log, text);) {
    const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(line.is_object()) << text;
    EXPECT_EQ(line["program"], "fusion-operator");
    if (line.contains("job")) of_job = line;
    if (line.contains("cluster") && !line.contains("job")) of_cluster = line;
  }
  EXPECT_EQ(of_job.value("job", ""), "training/job");
  EXPECT_NE(of_job.value("reconcileID", ""), "");
  EXPECT_NE(of_cluster.value("cluster", ""), "");
  EXPECT_NE(of_cluster.value("reconcileID", ""), of_job.value("reconcileID", ""));
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(OperatorProcessTest, ReloadsConfigFileWhileRunning) {
  Federation fleet(1);
  const base::TempFolder folder;
  const auto write = [&](const std::string& settings) {
    return folder.Write("operator.yaml", absl::StrCat("apiVersion: config.fusionllm.io/v1alpha1\nkind: OperatorConfig\n", settings));
  };
  std::vector<std::string> arguments = fleet.Arguments(/*elect=*/false);
  arguments.insert(arguments.end(), {"--config", write("logLevel: error\nworkers: 4\n")});
  OperatorProcess process(arguments, fleet.log());
  process.WaitReady();
  EXPECT_THAT(TextOf(fleet.log()), IsEmpty());
  EXPECT_THAT(process.Metrics(), HasSubstr("fusionllm_config_last_reload_successful 1"));
  EXPECT_THAT(process.Metrics(), HasSubstr("controller_runtime_max_concurrent_reconciles{controller=\"fusionjob\"} 4"));
  const auto logged = [&](const std::string& what) {
    return [&fleet, what] { return TextOf(fleet.log()).find(what) != std::string::npos; };
  };
  write("logLevel: info\nworkers: 5\nkubeApiQps: 20\n");
  // A line that the level before would not have let pass.
  Federation::Await("the new level holds", logged("changed, and in force: kubeApiQps, logLevel"), kReloadTimeout);
  Federation::Await("what waits is named", logged("changed, and needs a restart: workers"), kReloadTimeout);
  EXPECT_THAT(process.Metrics(), HasSubstr("fusionllm_config_last_reload_successful 1"));
  process.Signal(SIGHUP);
  Federation::Await("it is read anew, and does not end", logged("SIGHUP: reading the settings again"), kReloadTimeout);
  write("logLevel: info\nworkers: none\n");
  Federation::Await("what is wrong is named", logged("operator.yaml:4: workers: must be a whole number, got \"none\""), kReloadTimeout);
  EXPECT_THAT(process.Metrics(), HasSubstr("fusionllm_config_last_reload_successful 0"));
  const absl::Duration begin = MonotonicNow();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_LT(MonotonicNow() - begin, kGrace);
}

TEST(OperatorProcessTest, ItStopsWhileTheHubIsStillBeingListed) {
  Federation fleet(1);
  fleet.hub().server().AddFault({.verb = "list", .target = "/fusionjobs", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  OperatorProcess process(fleet.Arguments(/*elect=*/false), fleet.log());
  Federation::Await("it lists", [&] {
    for (const auto& request : fleet.OperatorRequests(fleet.hub())) {
      if (request.target.find("/configmaps") != std::string::npos) return true;
    }
    return false;
  });
  const absl::Duration begin = MonotonicNow();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_LT(MonotonicNow() - begin, absl::Seconds(10));
}

// Whatever servers send back, and whatever is wrong with a Secret; nor do conditions, which more people may read than the log.
TEST(OperatorProcessTest, NoTokenAndNoKeyComesIntoItsLog) {
  Federation fleet(2);
  SimCluster& member = *fleet.members()[0];
  const security::IssuedCertificate identity = *security::CertificateAuthority::Create()->Issue("operator");
  const std::string key = absl::Base64Escape(identity.private_key_pem), user = absl::StrCat("token: ", member.Token());
  const auto write_secret = [&](const std::string& name, const std::string& kubeconfig) {
    const json secret = {{"apiVersion", "v1"},
                         {"kind", "Secret"},
                         {"metadata", {{"name", name}}},
                         {"data", {{"kubeconfig", absl::Base64Escape(kubeconfig)}}}};
    ASSERT_TRUE(fleet.hub().admin().Apply(op::manifests::kSecrets, {"default", name}, secret.dump(), {.field_manager = "test"}).ok());
  };
  write_secret(member.name(),
               absl::StrReplaceAll(member.Kubeconfig(),
                                   {{user, absl::StrCat(user, ", client-certificate-data: ", absl::Base64Escape(identity.certificate_pem),
                                                        ", client-key-data: ", key)}}));
  constexpr char kBroken[] = "token-of-nobody-x7Kq";
  write_secret("broken", absl::StrCat("users: [{name: u, user: {token: ", kBroken, "}"));
  const json broken = {{"apiVersion", op::manifests::kFusionClusters.ApiVersion()},
                       {"kind", op::manifests::kFusionClusters.kind},
                       {"metadata", {{"name", "broken"}}},
                       {"spec", {{"kubeConfig", {{"location", "broken"}}}}}};
  ASSERT_TRUE(fleet.hub().admin().Create(op::manifests::kFusionClusters, "", broken.dump()).ok());
  for (SimCluster* cluster : {&fleet.hub(), &member}) {
    const json refusal = {{"kind", "Status"}, {"code", 500}, {"message", "you sent Bearer " + cluster->Token()}};
    const json event = {{"type", "ERROR"}, {"object", refusal}};
    const std::string warning = absl::StrCat("299 - \"", cluster->Token(), " will expire\"");
    cluster->server().AddFault(
        {.verb = "list", .target = "/configmaps", .code = 500, .body = refusal.dump(), .headers = {{"Warning", warning}}});
    cluster->server().AddFault(
        {.verb = "watch", .target = "/configmaps", .kind = kube::testing::Fault::Kind::kRaw, .body = event.dump() + "\n"});
  }
  std::vector<std::string> arguments = fleet.Arguments(/*elect=*/false);
  arguments.insert(arguments.end(), {"--log-level", "debug"});
  OperatorProcess process(arguments, fleet.log());
  process.WaitReady();
  fleet.Submit("job", 2, {member.name()});
  Federation::Await("the job runs", [&] { return fleet.Job("job").state == "Running"; });
  const auto clusters = [&] { return fleet.hub().admin().List(op::manifests::kFusionClusters, "").value(); };
  Federation::Await("what is wrong with the Secret is told", [&] { return absl::StrContains(clusters(), "is no YAML"); });
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  const std::string log = TextOf(fleet.log());
  EXPECT_TRUE(absl::StrContains(log, "you sent Bearer [redacted]")) << "what servers say is in the log";
  EXPECT_TRUE(absl::StrContains(log, "[redacted] will expire"));
  std::vector<std::string> secrets = {fleet.hub().Token(), member.Token(), fleet.members()[1]->Token(), kBroken, key.substr(0, 64)};
  for (const absl::string_view line : absl::StrSplit(identity.private_key_pem, '\n', absl::SkipEmpty())) {
    if (!absl::StartsWith(line, "-----")) secrets.emplace_back(line);
  }
  ASSERT_GT(secrets.size(), 5u);
  for (const std::string& secret : secrets) {
    EXPECT_FALSE(absl::StrContains(log, secret)) << secret;
    EXPECT_FALSE(absl::StrContains(clusters(), secret)) << secret;
  }
}

// The third event of a kind within minutes is a count in the first one's object, which is not due for half an hour.
TEST(OperatorProcessTest, EventsThatWaitAreWrittenBeforeItEnds) {
  Federation fleet(1);
  OperatorProcess process(fleet.Arguments(/*elect=*/true), fleet.log());
  process.WaitReady();
  fleet.Submit("job", 2);
  const auto suspensions = [&] {
    const kube::Resource events{"events.k8s.io", "v1", "events", "Event", true};
    const json list = json::parse(fleet.hub().admin().List(events, kNamespace).value())["items"];
    const auto found = std::find_if(list.begin(), list.end(), [](const json& event) { return event["reason"] == "Suspended"; });
    return found == list.end() ? 0 : found->value(json::json_pointer("/series/count"), 1);
  };
  for (int times = 1; times <= 3; ++times) {
    Federation::Await("the job runs", [&] { return fleet.Job("job").state == "Running"; });
    fleet.PatchJob("job", {{"suspend", true}});
    Federation::Await("it is suspended", [&] { return fleet.Job("job").state == "Suspended"; });
    if (times == 3) break;
    Federation::Await("that is told", [&] { return suspensions() == times; });
    fleet.PatchJob("job", {{"suspend", false}});
  }
  ASSERT_EQ(suspensions(), 2);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_EQ(suspensions(), 3);
}

TEST(OperatorProcessTest, EventsThatTheHubDoesNotTakeHoldItUpForAMomentOnly) {
  Federation fleet(1);
  fleet.hub().server().AddFault({.verb = "create", .target = "/events", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  OperatorProcess process(fleet.Arguments(/*elect=*/true), fleet.log());
  process.WaitReady();
  fleet.Submit("job", 2);
  Federation::Await("the job runs", [&] { return fleet.Job("job").state == "Running"; });
  const absl::Duration begin = MonotonicNow();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_LT(MonotonicNow() - begin, kGrace);
  EXPECT_EQ(Holder(fleet), "") << "the Lease is given up all the same";
}

TEST(OperatorProcessTest, AStandbyHasItsMembersConnectedAndWritesNothing) {
  Federation fleet(2);
  auto leading = std::make_unique<OperatorProcess>(fleet.Arguments(/*elect=*/true), fleet.log());
  leading->WaitReady();
  Federation::Await("all are connected", [&] { return fleet.Connected() == 2; });
  fleet.Submit("job", 2);
  Federation::Await("the job runs", [&] { return fleet.Job("job").state == "Running"; });
  const auto watches = [&] { return fleet.members()[0]->server().open_watches(); };
  Federation::Await("the leader watches members", [&] { return watches() == 1 + 4; });  // the first is the kubelet's
  OperatorProcess standby(fleet.Arguments(/*elect=*/true), fleet.log());
  standby.WaitReady();
  Federation::Await("the standby watches members", [&] { return watches() == 1 + 2 * 4; });
  const std::string first = Holder(fleet);
  // Who a member is it asks once before it watches it, and once when it does, with all else that it would ask.
  Federation::Await("the standby knows its members", [&] {
    return std::all_of(fleet.members().begin(), fleet.members().end(), [&](const auto& member) {
      const auto requests = RequestsOfOthers(fleet, *member, first);
      return std::count_if(requests.begin(), requests.end(),
                           [](const auto& request) { return absl::EndsWith(request.target, "/readyz"); }) > 1;
    });
  });
  // Questions that are asked by a POST among them.
  const auto expect_reads_of_standby = [&] {
    for (SimCluster* cluster : {&fleet.hub(), fleet.members()[0].get(), fleet.members()[1].get()}) {
      for (const auto& request : RequestsOfOthers(fleet, *cluster, first)) {
        EXPECT_EQ(request.method, "GET") << cluster->name() << ": " << request.verb << " " << request.target;
      }
    }
  };
  expect_reads_of_standby();
  fleet.ForgetRequests();
  Federation::Await("the leader renews its lease twice more", [&] { return fleet.TrafficOf(fleet.hub()).writes >= 2; });
  expect_reads_of_standby();
  for (const auto& member : fleet.members()) {
    Traffic traffic = fleet.TrafficOf(*member);
    // The leader's, for the namespace of the new job: a question that changes nothing.
    traffic.writes -= traffic.requests["create selfsubjectaccessreviews"];
    EXPECT_EQ(traffic.writes, 0) << traffic.Text();
  }
  leading->Signal(SIGTERM);
  EXPECT_EQ(leading->Wait(), 0);
  fleet.Submit("next", 2);
  Federation::Await("the standby goes on", [&] { return fleet.Job("next").state == "Running"; });
  EXPECT_NE(Holder(fleet), first);
  Federation::Await("both jobs have all their Pods", [&] { return fleet.RunningPods() == 6; });
}

}  // namespace
}  // namespace fusionllm::load
