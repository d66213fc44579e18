// A run whose owner wants what lies on the machines that join. First real programs alone, of which the broker is told that the joined
// machine alone has the data, so that it gets the stage that reads them; then a broker of the test's own, which says what no fusion-broker
// would.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/run/child_process.h"
#include "lib/base/exit_code.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"
#include "lib/plan/plan.h"
#include "lib/wire/plan_json.h"
#include "lib/workload/workload.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "proto/fusionllm/v1/checkpoint.grpc.pb.h"
#include "services/machine_identity.h"
#include "tests/integration/program.h"

namespace fusionllm::integration {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string PlainText() {
  std::string text;
  for (int i = 0; i < 6000; ++i) text.push_back(static_cast<char>('a' + i * i % 23));
  return text;
}

class LyingBrokerTest : public ::testing::Test {
 protected:
  using Names = std::vector<std::string>;

  // The exit code of a run whose one executor joined with these flags; `data` is what the job says of spec.data.path.
  int Run(const std::string& data, const Names& flags) {
    folder_.Write("job.yaml", absl::StrCat(R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: curious}
spec:
  model: )",
                                           model_, "\n  data: {kind: text, path: [", data, R"(]}
  training: {globalBatchSize: 4, microBatchSize: 2, sequenceLength: 8, steps: 2}
  strategy: {stages: 1}
)"));
    const std::string output = folder_ / absl::StrCat("out-", ++runs_);
    std::filesystem::create_directories(output);
    Program scheduler("fusion-scheduler", {"--listen", "127.0.0.1:0", "--insecure"}, Log("scheduler"));
    Program broker("fusion-broker",
                   {"--job", folder_ / "job.yaml", "--output", output, "--base", folder_ / "home", "--listen", "127.0.0.1:0", "--scheduler",
                    scheduler.Address(), "--expected-executors", "victim", "--data-device", "victim"},
                   Log("broker"));
    Names arguments = {"--broker", broker.Address(), "--name", "victim", "--closed"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    Program victim("fusion-executor", arguments, Log("victim"));
    const int code = broker.Wait();
    victim.Wait();
    words_ = base::ReadWholeFile(Log("broker"));
    for (const std::string& line : broker.lines()) absl::StrAppend(&words_, line, "\n");
    return code;
  }
  std::string Log(const std::string& name) const { return folder_ / absl::StrCat(name, "-", runs_, ".log"); }

  const base::TempFolder folder_;
  const std::string secret_ = folder_.Write("home/.ssh/id_ed25519", "PRIVATE " + PlainText());
  const std::string corpus_ = folder_.Write("home/corpus/text.txt", PlainText());
  std::string model_ = "{family: gpt2, preset: tiny, config: {nLayer: 2, nHead: 2, nEmbd: 16, vocabSize: 256, blockSize: 8}}";
  std::string words_;  // all that the owner gets to see
  int runs_ = 0;
};

TEST_F(LyingBrokerTest, AMachineThatJoinedReadsNothingOfItsOwn) {
  for (const std::string& path : {secret_, corpus_, std::string(".ssh/id_ed25519")}) {
    EXPECT_EQ(Run(path, {}), base::kExitBadInput) << path << words_;
    EXPECT_THAT(words_, AllOf(HasSubstr("joined the run by itself and gives it no training data"), Not(HasSubstr("PRIVATE"))));
    EXPECT_THAT(words_, Not(HasSubstr("DataOpened")));
  }
}

TEST_F(LyingBrokerTest, AFolderThatItOpensIsReadAndNothingBesideIt) {
  EXPECT_EQ(Run("corpus/text.txt", {"--data", folder_ / "home/corpus"}), base::kExitDone) << words_;
  for (const std::string& path : {secret_, std::string("corpus/../.ssh/id_ed25519")}) {
    EXPECT_EQ(Run(path, {"--data", folder_ / "home/corpus"}), base::kExitBadInput) << path << words_;
    EXPECT_THAT(words_, HasSubstr("another --data than"));
  }
}

TEST_F(LyingBrokerTest, GraphFileOfAMachineThatJoinedIsReadOnlyBelowItsDataFolder) {
  folder_.Write("home/corpus/net.dag",
                "graph \"net\" {\n  tokens = placeholder() {role=\"tokens\", dtype=\"i32\", shape=[b, 8]}\n"
                "  next = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b, 8]}\n"
                "  embed = embedding(tokens) {vocab=256, dim=8}\n  logits = linear(embed) {out=256}\n"
                "  loss = cross_entropy(logits, next)\n  return loss\n}\n");
  model_ = "{graph: {file: corpus/net.dag}}";
  EXPECT_EQ(Run("corpus/text.txt", {}), base::kExitBadInput) << words_;
  EXPECT_THAT(words_, HasSubstr("joined the run by itself and gives it no graph file"));
  EXPECT_EQ(Run("corpus/text.txt", {"--data", folder_ / "home/corpus"}), base::kExitDone) << words_;
}

// What is opened or made in some folders, by whatever process.
class FolderWatch {
 public:
  explicit FolderWatch(const std::vector<std::string>& folders) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    for (const std::string& folder : folders) EXPECT_GE(inotify_add_watch(fd_, folder.c_str(), IN_OPEN | IN_CREATE), 0) << folder;
  }
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;
  ~FolderWatch() { close(fd_); }

  // The names of what was touched since the last call.
  std::vector<std::string> Take() const {
    std::vector<std::string> names;
    alignas(inotify_event) char events[4096];
    for (ssize_t length = read(fd_, events, sizeof events); length > 0; length = read(fd_, events, sizeof events)) {
      for (const char* at = events; at < events + length;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(at);
        if (event->len > 0) names.emplace_back(event->name);
        at += sizeof(inotify_event) + event->len;
      }
    }
    return names;
  }

 private:
  const int fd_;
};

// Welcomes the executor that comes, has it calibrate and, where it can, build a stage; writes down all that it says and asks for.
class ScriptedBroker final : public v1::Broker::Service, public v1::CheckpointExchange::Service {
 public:
  ScriptedBroker(v1::Welcome welcome, std::optional<v1::Assign> assign) : welcome_(std::move(welcome)), assign_(std::move(assign)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(static_cast<v1::Broker::Service*>(this));
    builder.RegisterService(static_cast<v1::CheckpointExchange::Service*>(this));
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~ScriptedBroker() override { End(); }
  // After it nobody is served and nothing is written down any more.
  void End() { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }
  // Since End.
  const v1::CalibrationReport& calibration() const { return calibration_; }
  const v1::StageReady& ready() const { return ready_; }
  int start_fetches() const { return start_fetches_; }  // of tensors that the job's model starts from
  const std::string& said() const { return said_; }

 private:
  using Stream = grpc::ServerReaderWriter<v1::BrokerMessage, v1::ExecutorMessage>;

  grpc::Status Attend(grpc::ServerContext*, Stream* stream) override {
    v1::ExecutorMessage message;
    const auto read = [&] {
      if (!stream->Read(&message)) return false;
      absl::StrAppend(&said_, message.ShortDebugString(), "\n");
      return true;
    };
    const auto order = [&](auto set) {
      v1::BrokerMessage order;
      set(order);
      stream->Write(order);
    };
    if (!read()) return grpc::Status::OK;
    order([&](v1::BrokerMessage& to) { *to.mutable_welcome() = welcome_; });
    order([](v1::BrokerMessage& to) { to.mutable_calibrate(); });
    while (read() && !message.has_calibration()) {
    }
    calibration_ = message.calibration();
    if (assign_.has_value()) {
      order([&](v1::BrokerMessage& to) { *to.mutable_assign() = *assign_; });
      while (read() && !message.has_ready()) {
      }
      ready_ = message.ready();
    }
    order([](v1::BrokerMessage& to) { to.mutable_shutdown()->set_reason("the test has seen enough"); });
    while (read()) {
    }
    return grpc::Status::OK;
  }
  grpc::Status FetchTensors(grpc::ServerContext*, const v1::FetchTensorsRequest* request, grpc::ServerWriter<v1::TensorPiece>*) override {
    if (request->source() == v1::FetchTensorsRequest::INIT) ++start_fetches_;
    return {grpc::StatusCode::NOT_FOUND, "the broker has none"};
  }

  const v1::Welcome welcome_;
  const std::optional<v1::Assign> assign_;
  v1::CalibrationReport calibration_;
  v1::StageReady ready_;
  int start_fetches_ = 0;
  std::string said_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

class ScriptedBrokerTest : public ::testing::Test {
 protected:
  using Names = std::vector<std::string>;

  ScriptedBrokerTest() : home_(Home()), watch_({home_, home_ + "/.ssh"}) {}

  std::string Home() const {
    folder_.Write("home/.ssh/id_ed25519", "PRIVATE " + PlainText());
    folder_.Write("home/.logout", kPublicText);
    folder_.Write("home/shared/mark", kMark);
    folder_.Write("home/shared/empty", "");
    return folder_ / "home";
  }
  static std::string Job(const std::string& model, const std::string& data, const std::string& training = "") {
    return absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: curious}\nspec:\n  model: ", model,
                        "\n  data: ", data, "\n  training: {globalBatchSize: 4, microBatchSize: 2, steps: 2", training,
                        "}\n  strategy: {stages: 1}\n  executors: {threads: 1}\n");
  }
  v1::Welcome Welcome(const std::string& job) const {
    v1::Welcome welcome;
    welcome.set_job_document(job);
    welcome.set_base_directory(home_);
    welcome.set_output_directory(home_);  // where whoever shares files with the run leaves some
    return welcome;
  }
  // The one stage of the job, for the executor.
  v1::Assign TheStage(const std::string& document) const {
    const auto job = job::ParseFusionJob(document, "job.yaml");
    EXPECT_TRUE(job.ok()) << job.status();
    const auto workload = workload::Resolve(*job, home_);
    EXPECT_TRUE(workload.ok()) << workload.status();
    plan::Plan plan{.strategy = "op-fence",
                    .micro_batches = (*workload)->micro_batches,
                    .micro_batch_size = (*workload)->micro_batch_size,
                    .graph_hash = absl::StrFormat("%016x", (*workload)->graph_hash),
                    .replicas = 1};
    plan.stages.resize(1);
    plan.stages[0].devices = {"victim"};
    const autodiff::TrainingGraph& training = (*workload)->training;
    for (int op = 0; op < training.forward_ops; ++op) plan.stages[0].ops.push_back(training.graph.op(op).name);
    v1::Assign assign;
    assign.set_epoch(1);
    assign.set_first_step(1);
    assign.add_peers()->set_name("victim");
    assign.set_plan_document(wire::PrintPlan(plan::PlanResult(plan)));
    return assign;
  }
  // The broker that a closed executor of these flags has met, after both have ended.
  std::unique_ptr<ScriptedBroker> Meet(const v1::Welcome& welcome, const Names& flags, const std::optional<v1::Assign>& assign = {}) const {
    auto broker = std::make_unique<ScriptedBroker>(welcome, assign);
    Names arguments = {"--broker", broker->address(), "--name", "victim", "--closed", "--device", "cpu", "--metrics-address", "off"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const std::string log = folder_ / "victim.log";
    Program victim("fusion-executor", arguments, log);
    EXPECT_EQ(victim.Wait(), 0) << base::ReadWholeFile(log);
    broker->End();
    EXPECT_THAT(broker->said(), Not(HasSubstr("PRIVATE")));
    return broker;
  }
  // That the victim has opened nothing and made nothing where it is at home, and that it would have been seen.
  void ExpectUntouched() const {
    EXPECT_THAT(watch_.Take(), IsEmpty());
    EXPECT_THAT(base::ReadWholeFile(secret_), HasSubstr("PRIVATE"));
    EXPECT_THAT(watch_.Take(), Contains("id_ed25519"));
  }
  static absl::StatusCode CodeOf(const v1::CalibrationReport& report) { return static_cast<absl::StatusCode>(report.code()); }

  // Of a file that is on every machine: so the owner of the run knows its content, and it is as long as a token.
  static constexpr char kPublicText[] = "# when a login shell ends\n";
  static constexpr char kMark[] = "0123456789abcdef0123456789abcdef";
  static constexpr char kShapes[] = "{kind: shapes, shapes: {samples: 16, imageSize: 8, numClasses: 4}}";
  static constexpr char kMlp[] = "{family: mlp, config: {layers: [192, 16, 4]}";  // open: more fields follow

  const base::TempFolder folder_;
  const std::string home_;
  const std::string secret_ = home_ + "/.ssh/id_ed25519";
  const FolderWatch watch_;
};

TEST_F(ScriptedBrokerTest, ClosedExecutorOpensNoGraphFile) {
  const std::string data = absl::StrCat("{kind: text, path: [", secret_, "]}");
  for (const std::string& file : {secret_, std::string(".ssh/id_ed25519")}) {
    const auto broker = Meet(Welcome(Job(absl::StrCat("{graph: {file: ", file, "}}"), data, ", sequenceLength: 8")), {});
    EXPECT_EQ(CodeOf(broker->calibration()), absl::StatusCode::kPermissionDenied) << broker->said();
    EXPECT_THAT(broker->calibration().error(), HasSubstr("gives it no graph file")) << broker->said();
  }
  ExpectUntouched();
}

TEST_F(ScriptedBrokerTest, ClosedExecutorEmulatesNoDevice) {
  v1::Welcome welcome = Welcome(Job(absl::StrCat(kMlp, "}"), kShapes));
  welcome.set_topology_document(
      "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: slow}\nspec:\n"
      "  sites: [{name: here, devices: [{name: victim, computeScale: 0.5}], internal: {bandwidth: 1Gbit, latency: 1ms}}]\n");
  const auto broker = Meet(welcome, {});
  EXPECT_EQ(CodeOf(broker->calibration()), absl::StatusCode::kPermissionDenied) << broker->said();
  EXPECT_THAT(broker->calibration().error(), HasSubstr("emulates no device of a topology")) << broker->said();
  ExpectUntouched();  // the state of the links would be a file of the output folder
}

TEST_F(ScriptedBrokerTest, ClosedExecutorCalibratesWithoutTheDataOfItsMachine) {
  const v1::Welcome welcome =
      Welcome(Job("{family: gpt2, preset: tiny, config: {nLayer: 1, nHead: 2, nEmbd: 16, vocabSize: 256, blockSize: 8}}",
                  absl::StrCat("{kind: text, path: [", secret_, "]}"), ", sequenceLength: 8"));
  const auto closed = Meet(welcome, {});
  EXPECT_EQ(closed->calibration().error(), "") << "it can measure itself without them";
  EXPECT_THAT(closed->calibration().profile_document(), Not(IsEmpty()));
  ExpectUntouched();
  // What its owner has opened is read then.
  const auto opened = Meet(welcome, {"--data", home_ + "/.ssh"});
  EXPECT_EQ(opened->calibration().error(), "");
  EXPECT_THAT(watch_.Take(), Contains("id_ed25519"));
}

// A folder is shared with whoever knows what a file in it holds, and everything with whoever is on the run's machine: a broker that says
// the one or the other would have the tensors of any file below, and could have files written there.
TEST_F(ScriptedBrokerTest, ClosedExecutorSharesNoFolderButTheOneOpened) {
  const std::string job = Job(absl::StrCat(kMlp, ", init: {from: ", secret_, "}}"), kShapes);
  const v1::Assign stage = TheStage(job);
  ExpectUntouched();  // by the test itself, which resolves the job
  const std::string shared = home_ + "/shared";
  struct Lie {
    Names flags;
    std::string token_file, token;
  };
  const Lie lies[] = {
      {.flags = {}, .token_file = home_ + "/.logout", .token = kPublicText},
      {.flags = {}, .token_file = shared + "/mark", .token = kMark},
      {.flags = {"--shared-folder", shared}, .token_file = home_ + "/.logout", .token = kPublicText},
      {.flags = {"--shared-folder", shared}, .token_file = shared + "/empty", .token = ""},
      {.flags = {"--shared-folder", shared}, .token_file = shared + "/mark", .token = kMark},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(absl::StrCat(lie.token_file, lie.flags.empty() ? "" : " with --shared-folder"));
    v1::Welcome welcome = Welcome(job);
    welcome.set_shared_token_file(lie.token_file);
    welcome.set_shared_token(lie.token);
    welcome.set_machine(services::MachineIdentity());
    const auto broker = Meet(welcome, lie.flags, stage);
    EXPECT_EQ(broker->calibration().error(), "");
    EXPECT_EQ(static_cast<absl::StatusCode>(broker->ready().code()), absl::StatusCode::kNotFound) << broker->said();
    EXPECT_EQ(broker->start_fetches(), 1) << "it asks the broker for what the job starts from: " << broker->said();
    ExpectUntouched();
  }
}

}  // namespace
}  // namespace fusionllm::integration
