// What somebody who errs, or whose cluster does, gets to read: STATE and REASON of `kubectl get fj`, the condition Ready, and events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using testing::TwoClustersTest;

json Waiting(const std::string& container, const std::string& reason, const std::string& message) {
  const json state = {{"waiting", {{"reason", reason}, {"message", message}}}};
  return {{"phase", "Pending"}, {"containerStatuses", {{{"name", container}, {"state", state}}}}};
}

json Unschedulable(const std::string& message) {
  const json condition = {{"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}, {"message", message}};
  return {{"phase", "Pending"}, {"conditions", json::array({condition})}};
}

json Creating(const std::string& container) { return Waiting(container, "ContainerCreating", ""); }

json Killed(const std::string& container, int exit_code, const std::string& reason, const std::string& message = "") {
  const json state = {{"terminated", {{"exitCode", exit_code}, {"reason", reason}, {"message", message}}}};
  return {{"phase", "Failed"}, {"containerStatuses", {{{"name", container}, {"state", state}}}}};
}

json Running() { return {{"phase", "Running"}, {"podIP", "10.0.0.1"}, {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}; }

// Of a Pod that runs whatever becomes of its executor: its container is started again (restartPolicy OnFailure).
json RunningPod(const json& container, bool ready) {
  json status = Running();
  status["conditions"][0]["status"] = ready ? "True" : "False";
  status["containerStatuses"] = json::array({container});
  status["containerStatuses"][0]["name"] = "executor";
  return status;
}

json KilledForMemory() { return {{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}}; }

json BetweenTwoLives() {
  const json wait = {{"reason", "CrashLoopBackOff"}, {"message", "back-off 10s restarting failed container=executor"}};
  return RunningPod({{"state", {{"waiting", wait}}}, {"lastState", KilledForMemory()}, {"restartCount", 2}}, false);
}

class ReportedCausesTest;

struct Situation {
  std::string name;
  std::function<void(ReportedCausesTest&)> set_up;
  std::string state, reason;
  std::vector<std::string> expected;  // in the message of Ready, or of Failed
  std::vector<std::string> events;    // reasons, all of them
};

class ReportedCausesTest : public TwoClustersTest, public ::testing::WithParamInterface<size_t> {
 public:
  ReportedCausesTest() {
    job_["spec"]["network"] = {{"mode", "LoadBalancer"}};
    json ready = Running();
    executor_ = broker_ = ready;
  }

  // Each cluster has a node with so much, and the hub's has room for a broker besides.
  void NodesOf(int64_t cpus, int64_t gibibytes) {
    for (testing::DirectMember* member : {member_.get(), tokyo_.get()}) {
      auto capacity = std::make_shared<cache::ClusterCapacity>();
      cache::NodeCapacity& node = capacity->nodes.emplace_back();
      node.name = "n0";
      node.ready = true;
      node.allocatable = {{"cpu", cpus * 1000 + 50}, {"memory", gibibytes << 30}, {"pods", 110}};
      member->SetCapacity(capacity);
    }
  }
  void ExecutorsAskFor(const json& requests) {
    const json container = {{"name", "executor"}, {"resources", {{"requests", requests}}}};
    job_["spec"]["executors"]["template"] = {{"spec", {{"containers", json::array({container})}}}};
  }
  void Select(const json& labels) { job_["spec"]["executors"]["template"] = {{"spec", {{"nodeSelector", labels}}}}; }
  void InStore(const std::string& secret) {
    job_["spec"]["checkpoint"] = {{"path", "s3://models/run"}};
    job_["spec"]["objectStore"] = {{"secretName", secret}};
  }
  void Volume(const json& volume) { job_["spec"]["executors"]["template"] = {{"spec", {{"volumes", json::array({volume})}}}}; }
  // By its kubelet, or another part of the cluster.
  void EventOfEachPod(const std::string& reason, const std::string& message) {
    event_ = {{"apiVersion", "v1"}, {"kind", "Event"},    {"type", "Warning"},
              {"reason", reason},   {"message", message}, {"lastTimestamp", "2026-03-01T12:00:00Z"}};
  }

  void Go(absl::Duration time) {
    const absl::Time end = clock_.Now() + time;
    while (clock_.Now() < end) {
      (void)Reconcile();
      (void)ReconcileTokyo();
      for (kube::ApiClient* client : {looking_.get(), tokyo_client_.get()}) {
        testing::GiveLoadBalancers(*client, client == looking_.get() ? "203.0.113" : "198.51.100");
        PlayPods(*client);
      }
      clock_.Advance(absl::Seconds(1));
    }
  }

  json job_ = testing::JobObject();
  json executor_, broker_;  // statuses of their Pods
  // Those of executors' Pods, each for ten seconds; after the first one the others again and again; empty: as above.
  std::vector<json> executor_in_turn_;
  json event_;

  kube::ApiClient& hub() { return *looking_; }
  kube::ApiClient& tokyo() { return *tokyo_client_; }
  void Mend(const json& spec) { Patch(manifests::kFusionJobs, "train", {{"spec", spec}}); }
  void Again() { events_.reasons_.clear(); }
  void NowSubmit() { Submit(job_); }
  // By its /progress page.
  void BrokerWaits(const std::string& reason, const std::string& wait) {
    progress_.newest_ = lifecycle::Progress{.steps = 100, .executors = 2, .wait_reason = reason, .wait = wait};
  }
  bool submitted_ = false;

 private:
  const absl::Time begin_ = clock_.Now();
  std::map<std::string, json> played_;  // statuses of Pods, by uid

  json StatusNow(bool broker) const {
    if (broker) return broker_;
    if (executor_in_turn_.empty()) return executor_;
    const auto turn = static_cast<size_t>((clock_.Now() - begin_) / absl::Seconds(10));
    return executor_in_turn_[turn == 0 ? 0 : 1 + (turn - 1) % (executor_in_turn_.size() - 1)];
  }

  void PlayPods(kube::ApiClient& client) {
    const json pods = json::parse(client.List(manifests::kPods, "default").value());
    for (const json& pod : pods["items"]) {
      const std::string name = pod["metadata"]["name"];
      if (pod["metadata"].contains("deletionTimestamp")) {
        (void)client.Delete(manifests::kPods, {"default", name}, {.grace_period_seconds = 0});
        continue;
      }
      const json status = StatusNow(name.find("broker") != std::string::npos);
      const auto [played, is_new] = played_.try_emplace(pod["metadata"]["uid"]);
      if (played->second != status) {
        played->second = status;
        (void)client.Patch(manifests::kPods, {"default", name}, kube::PatchType::kMerge, json{{"status", status}}.dump(),
                           {.subresource = "status"});
        if (event_.is_null() || !is_new) continue;
        json event = event_;
        event["metadata"]["name"] = absl::StrCat(name, ".1");
        event["involvedObject"] = {{"name", name}, {"uid", pod["metadata"]["uid"]}};
        EXPECT_TRUE(client.Create(manifests::kEvents, "default", event.dump()).ok());
      }
    }
  }
};

void Delete(kube::ApiClient& client, const kube::Resource& kind, const std::string& name) {
  ASSERT_TRUE(client.Delete(kind, {"default", name}).ok());
}

void Make(kube::ApiClient& client, const kube::Resource& kind, const std::string& name, const json& data = json::object()) {
  const json object = {{"apiVersion", "v1"}, {"kind", kind.kind}, {"metadata", {{"name", name}}}, {"data", data}};
  ASSERT_TRUE(client.Create(kind, "default", object.dump()).ok()) << name;
}

std::vector<Situation> Situations() {
  const json store_keys = {{"AWS_ACCESS_KEY_ID", "eA=="}, {"AWS_SECRET_ACCESS_KEY", "eA=="}};
  const json claim = {{"name", "d"}, {"persistentVolumeClaim", {{"claimName", "corpus"}}}};
  return {
      {"ImageThatIsNotThere",
       [](ReportedCausesTest& t) {
         t.executor_ = Waiting("executor", "ErrImageNeverPull", "Container image \"registry.invalid/team/nosuch:1.0\" is not present");
       },
       "Starting",
       "ImageNotAvailable",
       {"train-local-0-r0 in local: ErrImageNeverPull", "nosuch:1.0", "can pull", "namespace default"},
       {"Scheduled", "ImageNotAvailable"}},
      {"KeyOfAConfigMapThatIsNotThere",
       [](ReportedCausesTest& t) {
         for (kube::ApiClient* client : {&t.hub(), &t.tokyo()}) Make(*client, manifests::kConfigMaps, "docs", {{"README.md", "x"}});
         t.Volume({{"name", "d"}, {"configMap", {{"name", "docs"}, {"items", {{{"key", "READEM.md"}, {"path", "a"}}}}}}});
       },
       "Pending",
       "ObjectMissing",
       {"namespace default has no key READEM.md in ConfigMap docs (volume d of the executor; its keys: README.md)."},
       {"ObjectMissing"}},
      {"ConfigMapThatTheHubLacks",
       [](ReportedCausesTest& t) { Delete(t.hub(), manifests::kConfigMaps, "text"); },
       "Pending",
       "ObjectMissing",
       {"The hub: namespace default has no ConfigMap text (volume data of the"},
       {"ObjectMissing"}},
      {"ClaimThatIsNotThere",
       [claim](ReportedCausesTest& t) {
         Make(t.hub(), manifests::kClaims, "corpus");
         t.Volume(claim);
       },
       "Pending",
       "ObjectMissing",
       {"Cluster tokyo: namespace default has no PersistentVolumeClaim corpus (volume d of the executor)."},
       {"Scheduled", "ObjectMissing"}},
      {"ClaimThatIsNotBound",
       [claim](ReportedCausesTest& t) {
         for (kube::ApiClient* client : {&t.hub(), &t.tokyo()}) Make(*client, manifests::kClaims, "corpus");
         t.Volume(claim);
         t.executor_ = Unschedulable("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found");
       },
       "Starting",
       "ClaimNotBound",
       {"unbound immediate PersistentVolumeClaims", "See to the claims of its volumes, corpus, in namespace default of local"},
       {"Scheduled", "ClaimNotBound"}},
      {"SecretThatAMemberLacks",
       [](ReportedCausesTest& t) {
         Make(t.hub(), manifests::kSecrets, "nostore");
         t.Volume({{"name", "s"}, {"secret", {{"secretName", "nostore"}}}});
       },
       "Pending",
       "ObjectMissing",
       {"Cluster tokyo: namespace default has no Secret nostore (volume s of the executor)."},
       {"Scheduled", "ObjectMissing"}},
      {"KeyOfASecretThatIsMisspelt",
       [](ReportedCausesTest& t) {
         t.executor_ = Waiting("executor", "CreateContainerConfigError", "couldn't find key AWS_ACCESS_KEY_ID in Secret default/typostore");
       },
       "Starting",
       "ContainerConfigError",
       {"couldn't find key AWS_ACCESS_KEY_ID in Secret default/typostore", "correct the name or key in the job's template"},
       {"Scheduled", "ContainerConfigError"}},
      {"VolumeThatOnlyEventsTellOf",
       [](ReportedCausesTest& t) {
         t.executor_ = Creating("executor");
         t.EventOfEachPod("FailedMount", "MountVolume.SetUp failed for volume \"k\": references non-existent secret key: pasword");
       },
       "Starting",
       "VolumeNotMounted",
       {"train-local-0-r0 in local: FailedMount: MountVolume.SetUp failed", "non-existent secret key: pasword", "See to the volume"},
       {"Scheduled", "VolumeNotMounted"}},
      {"NoRoomOnAnyNode",
       [](ReportedCausesTest& t) {
         t.executor_ = Unschedulable("0/2 nodes are available: 2 node(s) were unschedulable (cordoned: n1, n2)");
       },
       "Starting",
       "Unschedulable",
       {"cordoned: n1, n2", "begins as soon as a node of local has room"},
       {"Scheduled", "Unschedulable"}},
      {"MemoryThatIsTooLittle",
       [](ReportedCausesTest& t) { t.executor_ = BetweenTwoLives(); },
       "Starting",
       "OutOfMemory",
       {"train-local-0-r0 in local: OOMKilled", "Raise resources.limits.memory in spec.executors.template"},
       {"Scheduled", "OutOfMemory"}},
      {"MemoryThatIsTooLittleForAnExecutorThatHasJoined",
       [](ReportedCausesTest& t) {
         const json last = KilledForMemory(), runs = {{"running", json::object()}};
         t.executor_in_turn_ = {RunningPod({{"state", runs}, {"lastState", json::object()}}, true),
                                RunningPod({{"state", last}, {"lastState", json::object()}}, false),
                                BetweenTwoLives(),
                                RunningPod({{"state", runs}, {"lastState", last}}, false),
                                RunningPod({{"state", runs}, {"lastState", last}}, true),
                                BetweenTwoLives()};
       },
       "Running",
       "OutOfMemory",
       {"train-local-0-r0 in local: OOMKilled", "Raise resources.limits.memory in spec.executors.template"},
       {"Scheduled", "Ready", "DegradedOutOfMemory"}},
      {"ABrokerThatCrashes",
       [](ReportedCausesTest& t) {
         t.executor_ = Creating("executor");
         t.broker_ = Waiting("broker", "CrashLoopBackOff", "back-off 40s");
       },
       "Starting",
       "BrokerNotReady",
       {"train-broker-r0 on the hub: CrashLoopBackOff"},
       {"Scheduled", "BrokerNotReady"}},
      {"ClusterThatDoesNotExist",
       [](ReportedCausesTest& t) {
         t.job_["spec"]["placement"]["clusters"] = {{{"name", "nroth"}, {"min", 2}}};
       },
       "Pending",
       "PlacementFailed",
       {"nroth must have 2 executors, and there is no such cluster"},
       {"PlacementFailed"}},
      {"ClusterThatDoesNotExistOfAJobThatIsResumed",
       [](ReportedCausesTest& t) {
         t.job_["spec"]["suspend"] = true;
         t.job_["spec"]["placement"]["clusters"] = {{{"name", "nroth"}, {"min", 2}}};
         t.NowSubmit();
         t.Go(absl::Seconds(5));
         t.submitted_ = true;
         t.Mend({{"suspend", false}});
         t.Again();
       },
       "Pending",
       "PlacementFailed",
       {"nroth must have 2 executors, and there is no such cluster"},
       {"PlacementFailed", "Resumed"}},
      {"MemoryThatNoNodeHas",
       [](ReportedCausesTest& t) {
         t.NodesOf(8, 24);
         t.ExecutorsAskFor({{"cpu", "100m"}, {"memory", "500Gi"}});
       },
       "Pending",
       "PlacementFailed",
       {"local: room for 0; each asks for 0.1 cpu, 500Gi memory; 1 node: 1 with too little memory", "tokyo: room for 0"},
       {"PlacementFailed"}},
      {"LabelThatNoNodeHas",
       [](ReportedCausesTest& t) {
         t.NodesOf(8, 24);
         t.Select({{"disk", "nvme"}});
       },
       "Pending",
       "PlacementFailed",
       {"local: room for 0", "1 node: 1 that the node selector disk=nvme leaves out"},
       {"PlacementFailed"}},
      {"DeviceThatNoNodeHas",
       [](ReportedCausesTest& t) {
         t.NodesOf(8, 24);
         t.job_["spec"]["placement"]["device"] = "h100";
       },
       "Pending",
       "PlacementFailed",
       {"local has no device h100; its nodes have: none that are labelled", "tokyo has no device h100"},
       {"PlacementFailed"}},
      {"SecretOfTheStoreThatIsNotThere",
       [](ReportedCausesTest& t) { t.InStore("store"); },
       "Pending",
       "ObjectMissing",
       {"The hub: namespace default has no Secret store (environment of container broker of the broker)."},
       {"ObjectMissing"}},
      {"KeyOfTheStoreThatTheSecretLacks",
       [](ReportedCausesTest& t) {
         Make(t.hub(), manifests::kSecrets, "store", {{"AWS_ACESS_KEY_ID", "eA=="}, {"AWS_SECRET_ACCESS_KEY", "eA=="}});
         t.InStore("store");
       },
       "Pending",
       "ObjectMissing",
       {"The hub: namespace default has no key AWS_ACCESS_KEY_ID in Secret store",
        "(environment of container broker of the broker; its keys: AWS_ACESS_KEY_ID, AWS_SECRET_ACCESS_KEY)."},
       {"ObjectMissing"}},
      {"KeyOfTheStoreThatIsGoneWhenTheBrokerStarts",
       [store_keys](ReportedCausesTest& t) {
         Make(t.hub(), manifests::kSecrets, "store", store_keys);
         t.InStore("store");
         t.executor_ = Creating("executor");
         t.broker_ = Waiting("broker", "CreateContainerConfigError", "couldn't find key AWS_ACCESS_KEY_ID in Secret default/store");
       },
       "Starting",
       "ContainerConfigError",
       {"train-broker-r0 on the hub: CreateContainerConfigError: couldn't find key AWS_ACCESS_KEY_ID in Secret default/store",
        "in namespace default of the hub"},
       {"Scheduled", "ContainerConfigError"}},
      {"StoreThatIsNamedWithoutItsSecret",
       [](ReportedCausesTest& t) {
         t.job_["spec"]["checkpoint"] = {{"path", "s3://models/run"}};
         t.broker_ = Killed("broker", 2, "Error",
                            "an object store is named, and AWS_ACCESS_KEY_ID is not set; in Kubernetes it is a key of the Secret that "
                            "spec.objectStore.secretName names");
       },
       "Failed",
       "InvalidInput",
       {"AWS_ACCESS_KEY_ID is not set", "spec.objectStore.secretName"},
       {"Scheduled", "InvalidInput"}},
      {"KeyThatTheStoreRefuses",
       [store_keys](ReportedCausesTest& t) {
         t.InStore("store");
         Make(t.hub(), manifests::kSecrets, "store", store_keys);
         t.broker_ =
             Killed("broker", 2, "Error", "spec.checkpoint.path: GET s3://models at http://10.0.0.9:9000: HTTP 403 InvalidAccessKeyId");
       },
       "Failed",
       "InvalidInput",
       {"spec.checkpoint.path: GET s3://models at http://10.0.0.9:9000: HTTP 403 InvalidAccessKeyId"},
       {"Scheduled", "InvalidInput"}},
      {"KeyThatTheStoreRefusesOfTheData",
       [store_keys](ReportedCausesTest& t) {
         t.InStore("store");
         Make(t.hub(), manifests::kSecrets, "store", store_keys);
         t.broker_ =
             Killed("broker", 2, "Error",
                    R"({"exit_code":2,"error":"stage 0 on local-0: GET s3://models at http://10.0.0.9:9000: HTTP 403 AccessDenied"})");
       },
       "Failed",
       "InvalidInput",
       {"stage 0 on local-0: GET s3://models at http://10.0.0.9:9000: HTTP 403 AccessDenied"},
       {"Scheduled", "InvalidInput"}},
      {"ModelThatIsTooLarge",
       [](ReportedCausesTest& t) {
         t.broker_ =
             Killed("broker", 3, "Error",
                    R"j({"reason":"InsufficientMemory","error":"op 'lm_head' needs 2.1 GiB at least; the limit is 256.0 MiB (local-0)"})j");
       },
       "Failed",
       "PlacementFailed",
       {"InsufficientMemory: op 'lm_head' needs 2.1 GiB at least; the limit is 256.0 MiB (local-0)"},
       {"Scheduled", "PlacementFailed"}},
      {"ClustersThatDoNotReachEachOther",
       [](ReportedCausesTest& t) {
         t.job_["spec"]["failurePolicy"] = {{"maxRestarts", 0}};
         t.broker_ = Killed("broker", 1, "Error",
                            R"({"error":"local-0 cannot reach tokyo-0 at 10.0.0.1:7001 (probe local-0 -> tokyo-0: connection refused); )"
                            R"(local and tokyo are two sites: where one cannot dial into the other, in Kubernetes spec.network.mode: )"
                            R"(Relay has executors meet at the broker"})");
       },
       "Failed",
       "BackoffLimitExceeded",
       {"local-0 cannot reach tokyo-0 at 10.0.0.1:7001", "spec.network.mode: Relay"},
       {"Scheduled", "BackoffLimitExceeded"}},
      {"UnroutedWithDirect",
       [](ReportedCausesTest& t) {
         t.BrokerWaits("ProbeFailed",
                       "local-0 cannot reach tokyo-0 at 10.0.0.1:7001 (probe local-0 -> tokyo-0: connection refused); local and tokyo are "
                       "two sites: where one cannot dial into the other, in Kubernetes spec.network.mode: Relay has executors meet at the "
                       "broker; it is tried again");
       },
       "Running",
       "ProbeFailed",
       {"2 of 2 executors are ready. local-0 cannot reach tokyo-0 at 10.0.0.1:7001", "spec.network.mode: Relay"},
       {"Scheduled", "Ready"}},  // and the broker's own
      {"PresetThatDoesNotExist",
       [](ReportedCausesTest& t) { t.job_["spec"]["model"]["preset"] = "tinny"; },
       "Failed",
       "InvalidSpec",
       {"spec.model.preset", "tinny"},
       {"InvalidSpec"}},
      {"DataThatHaveNoPlace",
       [](ReportedCausesTest& t) {
         t.job_["spec"]["data"] = {{"kind", "text"}, {"path", {"../README.md"}}};
       },
       "Failed",
       "InvalidInput",
       {"README.md"},
       {"InvalidInput"}},
      {"FileThatIsNotInTheVolume",
       [](ReportedCausesTest& t) {
         t.broker_ = Killed("broker", 2, "Error",
                            R"({"reason":"InvalidInput","error":"data path /data/README.txt does not exist; /data has: README.md"})");
       },
       "Failed",
       "InvalidInput",
       {"data path /data/README.txt does not exist; /data has: README.md"},
       {"Scheduled", "InvalidInput"}},
  };
}

TEST_P(ReportedCausesTest, AreOneSentenceAndOneEventWithinHalfAMinute) {
  const Situation situation = Situations()[GetParam()];
  situation.set_up(*this);
  if (!submitted_) Submit(job_);
  Go(absl::Seconds(30));
  const json status = Job()["status"];
  EXPECT_EQ(status["state"], situation.state) << status.dump(1);
  EXPECT_EQ(status["reason"], situation.reason);
  const bool failed = situation.state == "Failed";
  EXPECT_EQ(Condition("Ready"), absl::StrCat("False ", situation.reason));
  const std::string message = ConditionObject(failed ? "Failed" : "Ready")["message"];
  for (const std::string& part : situation.expected) EXPECT_THAT(message, HasSubstr(part));
  EXPECT_LE(message.size(), 1024u + 4);
  EXPECT_THAT(events_.reasons_, ElementsAreArray(situation.events));
  if (failed) return;
  const size_t recorded = events_.reasons_.size();
  Go(absl::Minutes(2));
  EXPECT_EQ(events_.reasons_.size(), recorded) << "it is told once";
}

INSTANTIATE_TEST_SUITE_P(Situations, ReportedCausesTest, ::testing::Range<size_t>(0, Situations().size()),
                         [](const auto& at) { return Situations()[at.param].name; });

}  // namespace
}  // namespace fusionllm::op::controller
