// Executors that are lost before the first step, as a cluster loses them: the real scheduler, broker and executors with the flags that the
// operator gives them. By seed one is killed and started again at once or later, or stands still for a while, in each phase before the
// first step. The broker waits, and the losses are those of a run to which nothing happened. FUSIONLLM_SEEDS=N plays N seeds instead of 10.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/run/child_process.h"
#include "lib/base/exit_code.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/daemon/testing/http_get.h"
#include "tests/integration/program.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;

constexpr const char* kPhases[] = {"gathering", "calibrating", "probing", "planning", "loading", "running"};
constexpr int kPhasesBeforeFirstStep = 5;
enum class StartupFault { kKilled, kEvicted, kStopped };
constexpr int kFaults = 3;
constexpr const char* kFaultNames[] = {"killed", "evicted", "stopped"};
const std::vector<std::string> kExecutors = {"a", "b", "c"};

int SeedCount() {
  int seeds = 0;
  const char* const wanted = std::getenv("FUSIONLLM_SEEDS");
  return wanted != nullptr && absl::SimpleAtoi(wanted, &seeds) ? seeds : 10;
}

// -1: not known yet. All after the first step's beginning is one.
int PhaseIndex(const std::string& phase) {
  if (phase.empty()) return -1;
  const auto found = std::find(std::begin(kPhases), std::end(kPhases), phase);
  return static_cast<int>(std::min(found, std::prev(std::end(kPhases))) - std::begin(kPhases));
}

class StartupFaultsTest : public ::testing::TestWithParam<int> {
 protected:
  using LossBits = std::map<int64_t, std::string>;

  StartupFaultsTest() {
    std::string text;
    for (int i = 0; i < 6000; ++i) text.push_back(static_cast<char>('a' + i * i % 23));
    folder_.Write("text.txt", text);
    folder_.Write("job.yaml", R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: startup}
spec:
  model: {family: gpt2, preset: tiny, config: {nLayer: 3, nHead: 2, nEmbd: 16, vocabSize: 256, blockSize: 8}}
  data: {kind: text, path: [text.txt]}
  training: {globalBatchSize: 4, microBatchSize: 2, sequenceLength: 8, steps: 20}
  strategy: {stages: 3}
  compression: {codec: fp32}
)");
  }
  ~StartupFaultsTest() override {
    if (!HasFailure()) return;
    for (const char* log : {"broker.log", "a.log", "b.log", "c.log"}) ADD_FAILURE() << log << ":\n" << cli::TailOfFile(folder_ / log, 20);
  }

  void Start(const std::string& output) {
    executors_.clear();
    std::filesystem::remove(folder_ / "broker.log");
    scheduler_.emplace("fusion-scheduler", std::vector<std::string>{"--listen", "127.0.0.1:0", "--insecure"}, folder_ / "scheduler.log");
    std::filesystem::create_directories(folder_ / output);
    broker_.emplace("fusion-broker",
                    std::vector<std::string>{"--job",
                                             folder_ / "job.yaml",
                                             "--output",
                                             folder_ / output,
                                             "--base",
                                             folder_.path(),
                                             "--listen",
                                             "127.0.0.1:0",
                                             "--scheduler",
                                             scheduler_->Address(),
                                             "--expected-executors",
                                             "a,b,c",
                                             "--executor-timeout-seconds",
                                             "300",
                                             "--resume-journal",
                                             "--attempt",
                                             "1",
                                             "--data-device",
                                             "a,b,c",
                                             "--data-timeout-seconds",
                                             "300",
                                             "--metrics-address",
                                             "127.0.0.1:0"},
                    folder_ / "broker.log");
    address_ = broker_->Address();
    for (const std::string& name : kExecutors) StartExecutor(name);
  }
  void StartExecutor(const std::string& name) {
    executors_[name] =
        std::make_unique<Program>("fusion-executor",
                                  std::vector<std::string>{"--broker", address_, "--name", name, "--attempt", "1", "--broker-lost-seconds",
                                                           "300", "--contact-file", folder_ / absl::StrCat(name, ".contact")},
                                  folder_ / absl::StrCat(name, ".log"));
  }
  // What the broker's page says; empty where nobody answers.
  std::string Phase() {
    if (page_.empty()) {
      const std::string log = base::ReadWholeFile(folder_ / "broker.log"), before = "metrics on http://";
      const size_t at = log.find(before);
      if (at == std::string::npos) return "";
      page_ = log.substr(at + before.size());
      page_ = page_.substr(0, page_.find('/'));
    }
    const json page = json::parse(daemon::HttpGet(page_, "/progress").body, nullptr, /*allow_exceptions=*/false);
    return page.is_object() ? page.value("phase", "") : "";
  }
  // Reads the broker's lines meanwhile; false: it has ended.
  bool ReadFor(absl::Duration duration) { return broker_->ReadUntil(absl::Now() + duration); }
  // Until the run has come to this phase, or is beyond it.
  bool AwaitPhase(int wanted) {
    const absl::Time deadline = absl::Now() + absl::Minutes(2);
    while (absl::Now() < deadline) {
      if (PhaseIndex(Phase()) >= wanted) return true;
      if (!ReadFor(absl::Milliseconds(2))) return false;
    }
    return false;
  }
  LossBits End() {
    EXPECT_EQ(broker_->Wait(), base::kExitDone);
    LossBits bits;
    for (const std::string& line : broker_->lines()) {
      const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (parsed.is_object() && parsed.value("type", "") == "step") bits[parsed["step"]] = parsed["loss_bits"];
    }
    for (auto& [name, executor] : executors_) {
      const int code = executor->Wait();
      // The others may have come to the end without it before it was back: then there is no broker any more.
      const bool too_late = name == restarted_ && absl::StrContains(base::ReadWholeFile(folder_ / absl::StrCat(name, ".log")),
                                                                    "error fusion-executor: broker at");
      EXPECT_EQ(code, too_late ? base::kExitFailed : base::kExitDone) << name;
    }
    page_.clear();
    return bits;
  }

  const base::TempFolder folder_;
  std::string address_, page_, restarted_;
  std::optional<Program> scheduler_, broker_;
  std::map<std::string, std::unique_ptr<Program>> executors_;
};

TEST_P(StartupFaultsTest, AnExecutorThatIsLostBeforeTheFirstStepIsWaitedFor) {
  Start("calm");
  const LossBits calm = End();
  ASSERT_EQ(calm.size(), 20u);

  std::mt19937_64 draws(static_cast<uint64_t>(GetParam()));
  const auto below = [&](int count) { return static_cast<int>(draws() % static_cast<uint64_t>(count)); };
  const int phase = GetParam() % kPhasesBeforeFirstStep;
  const auto fault = static_cast<StartupFault>((GetParam() + GetParam() / kPhasesBeforeFirstStep) % kFaults);
  const std::string who = kExecutors[static_cast<size_t>(below(static_cast<int>(kExecutors.size())))];
  SCOPED_TRACE(absl::StrCat(who, " is ", kFaultNames[static_cast<int>(fault)], " while the run is ", kPhases[phase]));
  Start("troubled");
  ASSERT_TRUE(AwaitPhase(phase));
  (void)ReadFor(absl::Milliseconds(below(phase == 1 ? 400 : 20)));
  executors_[who]->Signal(fault == StartupFault::kStopped ? SIGSTOP : SIGKILL);
  if (fault != StartupFault::kKilled) (void)ReadFor(absl::Milliseconds(500 + below(2500)));
  if (fault == StartupFault::kStopped) {
    executors_[who]->Signal(SIGCONT);
  } else {
    StartExecutor(who);
    restarted_ = who;
  }
  EXPECT_EQ(End(), calm);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StartupFaultsTest, ::testing::Range(0, SeedCount()));

}  // namespace
}  // namespace fusionllm::integration
