// File operations fail under a run, one kind on one kind of file in one of its programs, drawn by a seed: whatever fails, the run ends by
// itself, or goes on without what it lost, and says what the system said; it neither tries for ever nor keeps silent.
// FUSIONLLM_FAULT_SEEDS="0 500" runs these seeds instead of the few of every day.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

struct Fault {
  std::string program, path, operation;
  int error = 0;
  int skip = 0;
  std::string Text() const {
    return absl::StrFormat("program=%s path=%s operation=%s error=%d skip=%d", program, path, operation, error, skip);
  }
};

// What a run does with files of its own folder: what a machine keeps for all runs is another matter.
struct Use {
  const char* program;
  const char* path;
  const char* operation;
};
constexpr Use kUses[] = {{"fusionctl", "/job.yaml", "open"},
                         {"fusionctl", "/job.yaml", "read"},
                         {"fusionctl", "/text.txt", "open"},
                         {"fusionctl", "/text.txt", "read"},
                         {"fusionctl", "/out", "mkdir"},
                         {"fusionctl", "/out/", "open"},
                         {"fusionctl", "/out/", "write"},
                         {"fusionctl", "/out/", "rename"},
                         {"fusionctl", "/tls/", "open"},
                         {"fusionctl", "/tls/", "sync"},
                         {"fusionctl", "events.jsonl", "open"},
                         {"fusionctl", "events.jsonl", "write"},
                         {"fusion-broker", "/job.yaml", "open"},
                         {"fusion-broker", "/tls/", "read"},
                         {"fusion-broker", "broker.journal", "open"},
                         {"fusion-broker", "broker.journal", "write"},
                         {"fusion-broker", "broker.journal", "sync"},
                         {"fusion-broker", "/checkpoints", "mkdir"},
                         {"fusion-broker", "/checkpoints", "open"},
                         {"fusion-broker", "/checkpoints", "read"},
                         {"fusion-broker", "/checkpoints", "write"},
                         {"fusion-broker", "/checkpoints", "sync"},
                         {"fusion-broker", "/checkpoints", "rename"},
                         {"fusion-broker", "/checkpoints", "remove"},
                         {"fusion-executor", "/tls/", "open"},
                         {"fusion-executor", "/text.txt", "open"},
                         {"fusion-executor", "/text.txt", "read"},
                         {"fusion-executor", "/checkpoints", "open"},
                         {"fusion-executor", "/checkpoints", "write"},
                         {"fusion-executor", "/checkpoints", "sync"},
                         {"fusion-executor", "/checkpoints", "rename"},
                         {"fusion-executor", "/checkpoints", "mkdir"}};
constexpr int kErrors[] = {EACCES, EMFILE, ENOSPC, EIO, EDQUOT, ENOENT};

Fault Draw(uint32_t seed) {
  std::mt19937 draw(seed);
  const Use& use = kUses[draw() % std::size(kUses)];
  return {.program = use.program,
          .path = use.path,
          .operation = use.operation,
          .error = kErrors[draw() % std::size(kErrors)],
          .skip = static_cast<int>(draw() % 3 * (draw() % 3))};
}

class FileFaultsTest : public RunTest {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's runtime wants to be the first library that is loaded";
#endif
  }
  ~FileFaultsTest() override {
    for (const char* name : {"LD_PRELOAD", "FUSIONLLM_FILE_FAULTS", "FUSIONLLM_FILE_FAULTS_LOG"}) unsetenv(name);
  }

  void RunWith(const Fault& fault, const std::string& output) {
    SCOPED_TRACE(fault.Text());
    const std::string log = Path(absl::StrCat("fault-", ++runs_, ".txt"));
    setenv("LD_PRELOAD", FUSIONLLM_FILE_FAULTS_LIBRARY, 1);
    setenv("FUSIONLLM_FILE_FAULTS", fault.Text().c_str(), 1);
    setenv("FUSIONLLM_FILE_FAULTS_LOG", log.c_str(), 1);
    auto run = Start({"spec.training.steps=6", "spec.strategy.stages=2", "spec.checkpoint={path: checkpoints, everySteps: 2}"}, {}, output);
    const int code = run->Wait(kRunLimit);
    for (const char* name : {"LD_PRELOAD", "FUSIONLLM_FILE_FAULTS", "FUSIONLLM_FILE_FAULTS_LOG"}) unsetenv(name);
    EXPECT_TRUE(run->NobodyIsLeft(30));
    const bool struck = std::filesystem::exists(log);
    if (!struck) {
      EXPECT_EQ(code, 0) << run->Stderr();
      return;
    }
    ++struck_;
    EXPECT_TRUE(code == 0 || code == 1 || code == 2) << code << ": " << run->Stderr();
    const std::string cause = std::strerror(fault.error);
    // What is to be gone and is not there is no failure.
    if (code == 0 && fault.operation == "remove" && fault.error == ENOENT) return;
    if (code == 0) {
      EXPECT_TRUE(IsTold(*run, output, cause)) << "nobody says so after " << base::ReadWholeFile(log) << run->Stderr();
    } else {
      EXPECT_THAT(run->Stderr(), ::testing::HasSubstr(cause)) << "after " << base::ReadWholeFile(log);
    }
    const std::vector<std::string> reasons = Reasons(*run);
    EXPECT_LE(std::count(reasons.begin(), reasons.end(), "Recovering"), 3);
  }

  // To the user, in the events or in a program's log.
  bool IsTold(const FusionctlChild& run, const std::string& output, const std::string& cause) const {
    if (absl::StrContains(run.Stderr(), cause)) return true;
    for (const nlohmann::json& line : run.lines()) {
      if (absl::StrContains(line.dump(), cause)) return true;
    }
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(Path(output + "/logs"), error)) {
      if (absl::StrContains(base::ReadWholeFile(entry.path().string()), cause)) return true;
    }
    return false;
  }

  int runs_ = 0;
  int struck_ = 0;  // runs in which an operation did fail
};

TEST_F(FileFaultsTest, EveryFailureEndsInAMessage) {
  int first = 0, last = 24;
  if (const char* seeds = std::getenv("FUSIONLLM_FAULT_SEEDS"); seeds != nullptr) std::istringstream(seeds) >> first >> last;
  WriteTopology(2, 0);
  for (int seed = first; seed < last; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RunWith(Draw(static_cast<uint32_t>(seed)), absl::StrCat("run-", seed, "/out"));
  }
  EXPECT_GE(struck_, (last - first) / 2) << "hardly anything failed: the seeds test nothing";
}

// As where the files of a claim are another user's.
TEST_F(FileFaultsTest, DataThatAnExecutorMayNotReadEndTheRunAtOnceAsBadInput) {
  WriteTopology(2, 0);
  setenv("LD_PRELOAD", FUSIONLLM_FILE_FAULTS_LIBRARY, 1);
  setenv("FUSIONLLM_FILE_FAULTS", absl::StrCat("program=fusion-executor path=/text.txt operation=open error=", EACCES, " skip=0").c_str(),
         1);
  setenv("FUSIONLLM_FILE_FAULTS_LOG", Path("fault.txt").c_str(), 1);
  auto run = Start({"spec.training.steps=6", "spec.strategy.stages=2"});
  ExpectEnd(*run, 2);
  EXPECT_THAT(run->Stderr(), ::testing::ContainsRegex("on a-[01]: .*text.txt.*: Permission denied"));
  EXPECT_TRUE(Event(*run, "Recovering").is_null());
}

}  // namespace
}  // namespace fusionllm::integration
