#include "operator/manifests/run_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/job/parse.h"
#include "operator/manifests/pod_template.h"

namespace fusionllm::op::manifests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr char kJob[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: train}
spec:
  model: {family: gpt2, preset: tiny}
  data: {kind: text, path: corpus/, volume: {configMap: {name: text}}}
  checkpoint: {path: run1/, volume: {persistentVolumeClaim: {claimName: ckpt}}}
)";

const JobIdentity kIdentity = {.name = "train", .ns = "team", .uid = "u1", .origin = "hub"};
const Images kImages = {.broker = "b:1", .scheduler = "s:1", .executor = "e:1"};
const Owner kOwner = OwnerConfigMapReference(kIdentity, "anchor-uid");

job::FusionJob Job(const std::string& yaml = kJob) {
  const auto parsed = job::ParseFusionJob(yaml, "test");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.value_or(job::FusionJob{});
}

json Executor(const job::FusionJob& job, ExecutorSlot slot = {"paris", 1, false}) {
  const auto pod = ExecutorPod(kIdentity, job, slot, 2, {"10.0.0.7:7000"}, kImages, kOwner);
  EXPECT_TRUE(pod.ok()) << pod.status();
  return pod.value_or(json());
}

std::vector<std::string> Command(const json& pod) { return pod["spec"]["containers"][0]["command"]; }

std::string After(const std::vector<std::string>& command, const std::string& flag) {
  const auto at = std::find(command.begin(), command.end(), flag);
  return at == command.end() || at + 1 == command.end() ? "" : *(at + 1);
}

TEST(RunObjectsTest, TheBrokerKnowsAllExecutorsThatCanReadTheData) {
  const std::vector<ExecutorSlot> slots = {
      {"local", 0, false}, {"paris", 0, false}, {"paris", 1, false}, {"oslo", 0, false}, {"paris", 2, true}};
  const auto command = [&](std::vector<std::string> clusters, std::vector<std::string> excluded = {}) {
    job::FusionJob job = Job();
    job.spec.data.clusters = std::move(clusters);
    job.spec.strategy.exclude = std::move(excluded);
    const auto pod = BrokerPod(kIdentity, job, {.number = 0, .slots = slots, .hub = "local"}, kImages, kOwner);
    EXPECT_TRUE(pod.ok()) << pod.status();
    return Command(pod.value_or(json()));
  };
  EXPECT_EQ(After(command({"paris", "oslo"}), "--data-device"), "paris-0,paris-1,oslo-0,paris-2") << "a spare, too, can read them";
  EXPECT_EQ(After(command({"paris"}, {"paris-1"}), "--data-device"), "paris-0,paris-2");
  EXPECT_EQ(After(command({"oslo"}), "--data-device"), "oslo-0");
  EXPECT_EQ(After(command({"oslo"}), "--data-timeout-seconds"), "300") << "its Pod is made anew";
  EXPECT_EQ(After(command({}), "--executor-timeout-seconds"), "300");
  for (const std::vector<std::string>& everywhere : {std::vector<std::string>{}, {"local", "paris", "oslo"}}) {
    EXPECT_THAT(command(everywhere), Not(Contains("--data-device")));
  }
}

TEST(RunObjectsTest, ExecutorsOfOtherClustersKeepTheirPartOfCheckpointsInTheirOwnClaim) {
  const auto folder = [](const std::string& checkpoint, bool away = true) {
    job::FusionJob job =
        Job(absl::StrReplaceAll(kJob, {{"{path: run1/, volume: {persistentVolumeClaim: {claimName: ckpt}}}", checkpoint}}));
    const auto pod = ExecutorPod(kIdentity, job, {"paris", 1, false}, 2, {.broker = "10.0.0.7:7000", .away = away}, kImages, kOwner);
    EXPECT_TRUE(pod.ok()) << pod.status();
    return After(Command(pod.value_or(json())), "--site-checkpoints");
  };
  const std::string claim = "volume: {persistentVolumeClaim: {claimName: ckpt}}";
  EXPECT_EQ(folder(absl::StrCat("{path: run1/, ", claim, "}")), "/checkpoints/run1") << "what the broker calls it in its own";
  EXPECT_EQ(folder(absl::StrCat("{path: /checkpoints/a/b, ", claim, "}")), "/checkpoints/a/b");
  EXPECT_EQ(folder(absl::StrCat("{path: run1/, ", claim, "}"), /*away=*/false), "") << "it shares the broker's folder";
  EXPECT_EQ(folder(absl::StrCat("{path: run1/, shards: Broker, ", claim, "}")), "");
  EXPECT_EQ(folder(absl::StrCat("{path: /elsewhere, ", claim, "}")), "") << "not in the volume";
  EXPECT_EQ(folder(absl::StrCat("{path: ../elsewhere, ", claim, "}")), "");
  EXPECT_EQ(folder("{path: run1/}"), "");
  EXPECT_EQ(folder("{path: s3://bucket/run1}"), "");
  for (const char* fleeting : {"emptyDir: {}", "hostPath: {path: /mnt}", "ephemeral: {}", "csi: {driver: inline.csi}"}) {
    EXPECT_EQ(folder(absl::StrCat("{path: run1/, volume: {", fleeting, "}}")), "") << fleeting;
  }
}

TEST(RunObjectsTest, TheJobSpeaksOfFoldersInsideThePods) {
  const auto inside = job::ParseFusionJob(JobDocument(Job()), "inside");
  ASSERT_TRUE(inside.ok()) << inside.status();
  EXPECT_THAT(inside->spec.data.path, ::testing::ElementsAre("/data/corpus/"));
  EXPECT_EQ(inside->spec.checkpoint->path, "/checkpoints/run1/");
}

std::map<std::string, json> Variables(const json& pod) {
  std::map<std::string, json> variables;
  for (const json& variable : pod["spec"]["containers"][0].value("env", json::array())) variables[variable["name"]] = variable;
  return variables;
}

TEST(RunObjectsTest, BrokerAndExecutorsKnowWhichAttemptTheyAreOf) {
  EXPECT_EQ(After(Command(Executor(Job())), "--attempt"), "2");
  const auto broker = BrokerPod(kIdentity, Job(), {.number = 3, .slots = {{"paris", 0, false}}}, kImages, kOwner);
  ASSERT_TRUE(broker.ok()) << broker.status();
  EXPECT_EQ(After(Command(*broker), "--attempt"), "3");
  EXPECT_EQ(After(Command(*broker), "--log-format"), "json") << "as the record is, in the same log";
}

TEST(RunObjectsTest, ExecutorsGiveTheirDevicesBackWhenTheirBrokerIsGoneForGood) {
  job::FusionJob job = Job();
  job.spec.executors.broker_lost_timeout_seconds = 1800;
  const json pod = Executor(job);
  EXPECT_EQ(After(Command(pod), "--broker-lost-seconds"), "1800");
  EXPECT_EQ(After(Command(pod), "--termination-log"), "/dev/termination-log");
  EXPECT_EQ(After(Command(pod), "--log-format"), "json");
  EXPECT_EQ(pod["spec"]["restartPolicy"], "OnFailure") << "started again after a failure, not when it gives up with 0";
  const std::string file = After(Command(pod), "--contact-file");
  const json& mounts = pod["spec"]["containers"][0]["volumeMounts"];
  EXPECT_TRUE(std::any_of(mounts.begin(), mounts.end(),
                          [&](const json& mount) {
                            return file.starts_with(absl::StrCat(mount["mountPath"].get<std::string>(), "/")) && mount["name"] == "tmp";
                          }))
      << file << " must outlive the container";
  // Its broker may fetch for hours before it listens.
  job.spec.checkpoint->path = "s3://bucket/run1";
  EXPECT_GT(std::stoll(After(Command(Executor(job)), "--broker-lost-seconds")),
            std::stoll(After(Command(Executor(job)), "--broker-timeout-seconds")));
}

TEST(RunObjectsTest, ExecutorWithGpuGetsDeviceFlag) {
  job::FusionJob job = Job();
  EXPECT_THAT(Command(Executor(job)), Not(Contains("--device")));
  job.spec.executors.pod_template.json = R"({"spec":{"containers":[{"name":"executor","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}})";
  EXPECT_EQ(After(Command(Executor(job)), "--device"), "cuda:0");
  job.spec.executors.pod_template.json.clear();
  const DeviceKind kind{.label = "nvidia.com/gpu.product", .values = {"NVIDIA-L4"}, .resource = "nvidia.com/gpu"};
  const auto placed = ExecutorPod(kIdentity, job, {"paris", 1, false}, 2, {"10.0.0.7:7000"}, kImages, kOwner, kind);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(After(Command(*placed), "--device"), "cuda:0");
}

TEST(RunObjectsTest, UrisStayAsTheyAreAndOnlyWhoNeedsTheStoreGetsItsVariables) {
  const auto store_job = [](const std::string& data, const std::string& checkpoint) {
    return Job(absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: train}\nspec:\n",
                            "  model: {family: gpt2, preset: tiny}\n  data: ", data, "\n  checkpoint: ", checkpoint,
                            "\n  objectStore: {secretName: keys}\n"));
  };
  const auto broker_of = [](const job::FusionJob& job) {
    const auto pod = BrokerPod(kIdentity, job, {.number = 0, .slots = {{"paris", 0, false}}}, kImages, kOwner);
    EXPECT_TRUE(pod.ok()) << pod.status();
    return pod.value_or(json());
  };
  const std::string volumes = "{kind: text, path: a, volume: {configMap: {name: text}}}",
                    uri = "{kind: text, path: s3://models/corpus/, clusters: [paris]}";

  const job::FusionJob all = store_job(uri, "{path: s3://models/runs/a, replica: {path: copies, volume: {emptyDir: {}}}}");
  const auto inside = job::ParseFusionJob(JobDocument(all), "inside");
  ASSERT_TRUE(inside.ok()) << inside.status();
  EXPECT_THAT(inside->spec.data.path, ::testing::ElementsAre("s3://models/corpus/"));
  EXPECT_EQ(inside->spec.checkpoint->path, "s3://models/runs/a");
  EXPECT_EQ(inside->spec.checkpoint->replica->path, "/replica/copies");
  for (const json& pod : {broker_of(all), Executor(all)}) {
    const auto variables = Variables(pod);
    ASSERT_TRUE(variables.contains("AWS_SECRET_ACCESS_KEY")) << pod.dump();
    const json& reference = variables.at("AWS_SECRET_ACCESS_KEY")["valueFrom"]["secretKeyRef"];
    EXPECT_EQ(reference["name"], "keys");
    EXPECT_EQ(reference["key"], "AWS_SECRET_ACCESS_KEY");
    EXPECT_EQ(reference["optional"], false);
    EXPECT_EQ(variables.at("AWS_SESSION_TOKEN")["valueFrom"]["secretKeyRef"]["optional"], true);
  }
  EXPECT_EQ(Variables(Executor(all)).at("FUSIONLLM_SCRATCH")["value"], "/scratch");
  EXPECT_THAT(Executor(all)["spec"]["volumes"].dump(), AllOf(HasSubstr("scratch"), Not(HasSubstr("replica"))));
  EXPECT_THAT(broker_of(all)["spec"]["containers"][0]["volumeMounts"].dump(), HasSubstr("/replica"));
  EXPECT_EQ(broker_of(all)["spec"]["terminationGracePeriodSeconds"], 720);
  EXPECT_FALSE(Variables(Executor(all, {"oslo", 1, false})).contains("AWS_ACCESS_KEY_ID")) << "it has no data to fetch";

  const job::FusionJob checkpoints = store_job(volumes, "{path: s3://models/runs/a}");
  EXPECT_TRUE(Variables(broker_of(checkpoints)).contains("AWS_ACCESS_KEY_ID"));
  EXPECT_FALSE(Variables(Executor(checkpoints)).contains("AWS_ACCESS_KEY_ID"));
  EXPECT_NE(After(Command(Executor(checkpoints)), "--broker-timeout-seconds"), "") << "its broker may fetch before it listens";
  const job::FusionJob none = store_job(volumes, "{path: a, volume: {emptyDir: {}}}");
  EXPECT_FALSE(Variables(broker_of(none)).contains("AWS_ACCESS_KEY_ID"));
  EXPECT_EQ(broker_of(none)["spec"]["terminationGracePeriodSeconds"], 120);
}

TEST(RunObjectsTest, AGraphLiesInItsOwnVolumeOrAmongTheData) {
  const auto with_graph = [](const std::string& volume) {
    return Job(absl::StrReplaceAll(kJob, {{"family: gpt2, preset: tiny", absl::StrCat("graph: {file: nets/m.dag", volume, "}")}}));
  };
  const auto mounts = [](const json& pod) {
    std::map<std::string, bool> read_only;
    for (const json& mount : pod["spec"]["containers"][0]["volumeMounts"]) read_only[mount["mountPath"]] = mount.value("readOnly", false);
    return read_only;
  };
  const job::FusionJob own = with_graph(", volume: {configMap: {name: nets}}");
  const auto inside = job::ParseFusionJob(JobDocument(own), "inside");
  ASSERT_TRUE(inside.ok()) << inside.status();
  EXPECT_EQ(inside->spec.model.graph->file, "/graph/nets/m.dag");
  EXPECT_FALSE(GraphIsAmongData(own.spec));
  const auto broker = BrokerPod(kIdentity, own, {.number = 0, .slots = {{"paris", 0, false}}}, kImages, kOwner);
  ASSERT_TRUE(broker.ok()) << broker.status();
  for (const json& pod : {Executor(own), *broker}) {
    EXPECT_THAT(mounts(pod), Contains(std::pair("/graph", true))) << pod["spec"]["volumes"].dump();
    EXPECT_THAT(pod["spec"]["volumes"], Contains(json{{"name", "graph"}, {"configMap", {{"name", "nets"}}}}));
  }
  const job::FusionJob shared = with_graph("");
  EXPECT_EQ(job::ParseFusionJob(JobDocument(shared), "inside")->spec.model.graph->file, "/data/nets/m.dag");
  EXPECT_TRUE(GraphIsAmongData(shared.spec));
  EXPECT_FALSE(mounts(Executor(shared)).contains("/graph"));
}

TEST(RunObjectsTest, TheSchedulerBesideTheBrokerReadsTheGraph) {
  const auto mounted = [](const std::string& model) {
    const auto broker = BrokerPod(kIdentity, Job(absl::StrReplaceAll(kJob, {{"family: gpt2, preset: tiny", model}})), {}, kImages, kOwner);
    EXPECT_TRUE(broker.ok()) << broker.status();
    std::vector<std::string> folders;
    for (const json& mount : (*broker)["spec"]["initContainers"][0]["volumeMounts"]) folders.push_back(mount["mountPath"]);
    return folders;
  };
  const std::string secrets = mounted("family: gpt2, preset: tiny").at(0);
  EXPECT_THAT(mounted("family: gpt2, preset: tiny"), UnorderedElementsAre(secrets));
  EXPECT_THAT(mounted("graph: {file: m.dag, volume: {configMap: {name: nets}}}"), UnorderedElementsAre(secrets, "/graph"));
  EXPECT_THAT(mounted("graph: {file: m.dag}"), UnorderedElementsAre(secrets, "/data"));
}

TEST(RunObjectsTest, AnExecutorHasItsOwnNameAttemptCertificateAndSite) {
  const json pod = Executor(Job());
  EXPECT_EQ(pod["metadata"]["name"], "train-paris-1-r2");
  EXPECT_EQ(pod["metadata"]["labels"][kAttemptLabel], "2");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], "anchor-uid");
  EXPECT_EQ(After(Command(pod), "--name"), "paris-1");
  EXPECT_EQ(After(Command(pod), "--site"), "paris");
  EXPECT_EQ(After(Command(pod), "--broker"), "10.0.0.7:7000");
  EXPECT_EQ(After(Command(pod), "--listen"), "$(POD_IP):7001");
  const json& tls = pod["spec"]["volumes"][2];
  ASSERT_EQ(tls["name"], "tls") << pod["spec"]["volumes"].dump();
  EXPECT_EQ(tls["secret"]["items"].size(), 3) << "no other executor's key";
  EXPECT_EQ(tls["secret"]["items"][1]["key"], "paris-1.pem");
}

TEST(RunObjectsTest, PodsMeetTheRestrictedStandard) {
  const auto broker = BrokerPod(kIdentity, Job(), {.number = 0, .slots = {{"paris", 0, false}}}, kImages, kOwner);
  ASSERT_TRUE(broker.ok()) << broker.status();
  for (const json& pod : {Executor(Job()), *broker}) {
    EXPECT_EQ(pod["spec"]["securityContext"]["runAsNonRoot"], true);
    EXPECT_EQ(pod["spec"]["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    EXPECT_EQ(pod["spec"]["automountServiceAccountToken"], false);
    json containers = pod["spec"]["containers"];
    if (pod["spec"].contains("initContainers")) containers.insert(containers.end(), pod["spec"]["initContainers"][0]);
    for (const json& container : containers) {
      EXPECT_EQ(container["securityContext"]["allowPrivilegeEscalation"], false) << container["name"];
      EXPECT_EQ(container["securityContext"]["readOnlyRootFilesystem"], true) << container["name"];
      EXPECT_EQ(container["securityContext"]["capabilities"]["drop"], json({"ALL"})) << container["name"];
    }
  }
}

TEST(RunObjectsTest, TheBrokerWaitsForAllExecutorsAndHasItsSchedulerBeside) {
  const auto pod = BrokerPod(kIdentity, Job(), {.number = 3, .slots = {{"paris", 0, false}, {"tokyo", 0, true}}}, kImages, kOwner);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ((*pod)["metadata"]["name"], "train-broker-r3");
  EXPECT_EQ(After(Command(*pod), "--expected-executors"), "paris-0,tokyo-0");
  EXPECT_EQ((*pod)["spec"]["restartPolicy"], "Never");
  const json& sidecar = (*pod)["spec"]["initContainers"][0];
  EXPECT_EQ(sidecar["restartPolicy"], "Always") << "a container that is not would hold the broker up for ever";
  EXPECT_EQ(sidecar["image"], "s:1");
  EXPECT_EQ(sidecar["ports"][0]["name"], "sched-metrics") << "the chart's PodMonitor asks there";
  EXPECT_EQ(After(sidecar["command"], "--metrics-address"), absl::StrCat("0.0.0.0:", kSchedulerMetricsPort));
}

TEST(RunObjectsTest, TheSchedulerBesideTheBrokerHasResourcesWhichTheTemplateMayReplace) {
  job::FusionJob job = Job();
  const auto resources = [&] {
    const auto pod = BrokerPod(kIdentity, job, {}, kImages, kOwner);
    EXPECT_TRUE(pod.ok()) << pod.status();
    EXPECT_EQ((*pod)["spec"]["initContainers"].size(), 1);
    return (*pod)["spec"]["initContainers"][0]["resources"];
  };
  EXPECT_TRUE(resources()["requests"].contains("cpu")) << "a quota would refuse each broker";
  EXPECT_TRUE(resources()["requests"].contains("memory"));
  EXPECT_TRUE(resources()["limits"].contains("memory"));
  job.spec.broker.pod_template.json =
      R"({"spec": {"initContainers": [{"name": "scheduler", "resources": {"limits": {"cpu": 2, "memory": "4Gi"}}}]}})";
  EXPECT_EQ(resources(), json({{"limits", {{"cpu", 2}, {"memory", "4Gi"}}}}));
}

TEST(RunObjectsTest, SparesSaySo) {
  EXPECT_THAT(Command(Executor(Job(), {"paris", 1, true})), Contains("--spare"));
  EXPECT_THAT(Command(Executor(Job())), Not(Contains("--spare")));
}

TEST(RunObjectsTest, TheBrokerHoldsNoExecutorBackForSparesThatHavePodsOfTheirOwn) {
  job::FusionJob job = Job();
  job.spec.executors.spares = 1;
  const auto inside = job::ParseFusionJob(JobDocument(job), "inside");
  ASSERT_TRUE(inside.ok()) << inside.status();
  EXPECT_EQ(inside->spec.executors.spares, 0);
}

TEST(RunObjectsTest, RelayExecutorsAreNotDialable) {
  job::FusionJob job = Job();
  job.spec.network.mode = job::NetworkMode::kRelay;
  EXPECT_THAT(Command(Executor(job)), Contains("--relay"));
  EXPECT_THAT(Command(Executor(job)), Not(Contains("--listen")));
}

TEST(RunObjectsTest, AJobThatDoesNotSayHowClustersReachEachOtherHasThemMeetAtTheRelay) {
  const std::vector<ExecutorSlot> one = {{"paris", 0, false}, {"paris", 1, false}}, two = {{"paris", 0, false}, {"tokyo", 0, true}};
  const job::FusionJob job = Job();
  ASSERT_EQ(job.spec.network.mode, job::NetworkMode::kAuto);
  EXPECT_FALSE(ExecutorsNeedRelay(job, one, {}));
  EXPECT_TRUE(ExecutorsNeedRelay(job, two, {}));
  const auto command = [&](bool relay) {
    return Command(ExecutorPod(kIdentity, job, {"paris", 0, false}, 0, {.broker = "a:1", .relay = relay}, kImages, kOwner).value());
  };
  EXPECT_THAT(command(true), AllOf(Contains("--relay"), Not(Contains("--listen"))));
  EXPECT_THAT(command(false), AllOf(Contains("--listen"), Not(Contains("--relay"))));
}

TEST(RunObjectsTest, TheTemplateAddsAndOurPartsStay) {
  job::FusionJob job = Job();
  job.spec.executors.pod_template.json = R"({
    "metadata": {"labels": {"team": "a", "fusionllm.io/job": "forged"}},
    "spec": {"nodeSelector": {"gpu": "h100"}, "containers": [
      {"name": "log", "image": "l:1"},
      {"name": "executor", "image": "mine:2", "command": ["sh"], "resources": {"limits": {"memory": "8Gi"}},
       "env": [{"name": "A", "value": "1"}, {"name": "POD_IP", "value": "9.9.9.9"}]}]}})";
  const json pod = Executor(job);
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod["metadata"]["labels"][kJobLabel], "train");
  EXPECT_EQ(pod["spec"]["nodeSelector"]["gpu"], "h100");
  ASSERT_EQ(pod["spec"]["containers"].size(), 2);
  const json& executor = pod["spec"]["containers"][1];
  EXPECT_EQ(executor["image"], "mine:2");
  EXPECT_EQ(executor["command"][0], "fusion-executor");
  EXPECT_EQ(executor["resources"]["limits"]["memory"], "8Gi");
  EXPECT_EQ(executor["env"].size(), 2);
  EXPECT_EQ(executor["env"][0]["value"], "1");
  EXPECT_TRUE(executor["env"][1].contains("valueFrom")) << "an address made up by a template would be nobody's";
}

TEST(RunObjectsTest, ATemplateThatCannotBeIsNamed) {
  const auto refused = [](const char* pod_template) {
    job::FusionJob job = Job();
    job.spec.executors.pod_template.json = pod_template;
    return std::string(ExecutorPod(kIdentity, job, {"paris", 0, false}, 0, {"a:1"}, kImages, kOwner).status().message());
  };
  EXPECT_THAT(refused(R"({"spec": []})"), HasSubstr("spec.executors.template.spec: must be a mapping"));
  EXPECT_THAT(refused(R"({"spec": {"containers": {}}})"), HasSubstr("template.spec.containers: must be a list"));
  EXPECT_THAT(refused(R"({"spec": {"containers": ["x"]}})"), HasSubstr("must be a list of mappings"));
  EXPECT_THAT(refused(R"({"spec": {"volumes": [{"name": "tls"}]}})"), HasSubstr("volumes: name tls is used by the operator"));
  EXPECT_THAT(refused(R"({"spec": {"containers": [{"name": "executor", "volumeMounts": [{"mountPath": "/data"}]}]}})"),
              HasSubstr("mountPath /data is used by the operator"));
}

TEST(RunObjectsTest, SecretsAreFiles) {
  const json secret = SecretObject(kIdentity, "s", {{"ca.pem", "text"}}, kOwner);
  EXPECT_EQ(secret["data"]["ca.pem"], "dGV4dA==");
}

TEST(RunObjectsTest, ExecutorsDialABrokerThatIsNotReady) {
  const json service = BrokerServiceObject(kIdentity, Job(), /*remote=*/false, kOwner);
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
  EXPECT_EQ(service["spec"]["selector"][kJobUidLabel], "u1");
  EXPECT_EQ(service["spec"]["type"], "ClusterIP");
  EXPECT_EQ(BrokerServiceObject(kIdentity, Job(), /*remote=*/true, kOwner)["spec"]["type"], "NodePort");
}

TEST(RunObjectsTest, ExecutorsOfDifferentClustersHaveServicesIfTheJobSaysSo) {
  const std::vector<ExecutorSlot> one = {{"paris", 0, false}, {"paris", 1, false}}, two = {{"paris", 0, false}, {"tokyo", 0, true}};
  job::FusionJob job = Job();
  for (const auto mode : {job::NetworkMode::kAuto, job::NetworkMode::kDirect, job::NetworkMode::kRelay}) {
    job.spec.network.mode = mode;
    EXPECT_FALSE(ExecutorsHaveServices(job, two));
  }
  for (const auto mode : {job::NetworkMode::kNodePort, job::NetworkMode::kLoadBalancer}) {
    job.spec.network.mode = mode;
    EXPECT_TRUE(ExecutorsHaveServices(job, two));
    EXPECT_FALSE(ExecutorsHaveServices(job, one)) << "they dial each other's pods";
    EXPECT_FALSE(ExecutorsHaveServices(job, {}));
  }
}

TEST(RunObjectsTest, TheRelayIsForJobsThatAskAndForClustersThatCannotBeDialled) {
  const std::vector<ExecutorSlot> one = {{"paris", 0, false}, {"paris", 1, false}}, two = {{"paris", 0, false}, {"tokyo", 0, true}};
  job::FusionJob job = Job();
  job.spec.network.mode = job::NetworkMode::kDirect;
  EXPECT_FALSE(ExecutorsNeedRelay(job, two, {"oslo"}));
  EXPECT_TRUE(ExecutorsNeedRelay(job, two, {"tokyo"}));
  EXPECT_FALSE(ExecutorsNeedRelay(job, one, {"paris"})) << "they dial each other's pods";
  job.spec.network.mode = job::NetworkMode::kRelay;
  EXPECT_TRUE(ExecutorsNeedRelay(job, one, {}));
}

TEST(RunObjectsTest, AnExecutorsServiceLeadsToItsPodWhateverTheAttempt) {
  job::FusionJob job = Job();
  job.spec.network.mode = job::NetworkMode::kLoadBalancer;
  EXPECT_EQ(ExecutorServiceObject(kIdentity, job, {"paris", 1, false}, kOwner)["spec"]["type"], "LoadBalancer");
  job.spec.network.mode = job::NetworkMode::kNodePort;
  const json service = ExecutorServiceObject(kIdentity, job, {"paris", 1, false}, kOwner);
  EXPECT_EQ(service["spec"]["type"], "NodePort");
  EXPECT_EQ(service["metadata"]["name"], "train-paris-1");
  EXPECT_EQ(service["metadata"]["ownerReferences"][0]["uid"], "anchor-uid");
  EXPECT_EQ(service["metadata"]["labels"][kJobUidLabel], "u1") << "it is known to be ours, and shown with all else of the job";
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
  const json pod = Executor(job);
  for (const auto& [label, value] : service["spec"]["selector"].items()) EXPECT_EQ(pod["metadata"]["labels"][label], value) << label;
  EXPECT_EQ(service["spec"]["selector"].size(), 4);
  const json& ports = pod["spec"]["containers"][0]["ports"];
  EXPECT_TRUE(std::any_of(ports.begin(), ports.end(), [&](const json& port) {
    return port["name"] == service["spec"]["ports"][0]["targetPort"] && port["containerPort"] == service["spec"]["ports"][0]["port"];
  })) << ports;
}

TEST(RunObjectsTest, WhatAnExecutorAdvertisesItsPodSays) {
  const auto pod = ExecutorPod(kIdentity, Job(), {"paris", 1, false}, 2, {"10.0.0.7:7000", "192.0.2.1:30001"}, kImages, kOwner);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(After(Command(*pod), "--advertise"), "192.0.2.1:30001");
  EXPECT_EQ(After(Command(*pod), "--listen"), "$(POD_IP):7001") << "where those of its own cluster dial it";
  EXPECT_EQ((*pod)["metadata"]["annotations"]["fusionllm.io/advertised-address"], "192.0.2.1:30001");
  const json plain = Executor(Job());
  EXPECT_THAT(Command(plain), Not(Contains("--advertise")));
  EXPECT_FALSE(plain["metadata"]["annotations"].contains(kAdvertisedAnnotation));
}

TEST(RunObjectsTest, AddressesReadBackAsTheyWere) {
  const std::map<std::string, std::string> addresses = {{"new-york-0", "[2001:db8::1]:30001"}, {"new-york-1", "lb.example.org:7001"}};
  EXPECT_EQ(AddressesText(addresses), "new-york-0=[2001:db8::1]:30001,new-york-1=lb.example.org:7001");
  EXPECT_EQ(ParseAddresses(AddressesText(addresses)), addresses);
  for (const char* text : {"", ",", "a", "a=", "a=b", "a=b:0", "a=$(X):1", "a=b c:1"}) EXPECT_TRUE(ParseAddresses(text).empty()) << text;
}

TEST(RunObjectsTest, APlacementReadsBackAsItWas) {
  const std::vector<ExecutorSlot> slots = {{"new-york", 0, false}, {"paris", 1, false}, {"paris", 2, true}};
  EXPECT_EQ(PlacementText(3, slots), "3:new-york-0,paris-1,paris-2*");
  EXPECT_EQ(ParsePlacement(3, PlacementText(3, slots)), slots);
  EXPECT_TRUE(ParsePlacement(4, PlacementText(3, slots)).empty()) << "of another attempt";
  for (const char* text : {"", "3", "3:", "3:x", "3:-1", "3:a-b", "3:a-1,,b"}) EXPECT_TRUE(ParsePlacement(3, text).empty()) << text;
}

}  // namespace
}  // namespace fusionllm::op::manifests
