// File operations fail under a run, one kind on one kind of file in one of its programs, drawn by a seed: whatever fails, the run ends by
// itself, or goes on without what it lost, and says which file it was and what the system said; it neither tries for ever nor keeps silent.
// Half of the seeds go on from a checkpoint. FUSIONLLM_SEEDS=500 runs this many seeds instead of the few of every day, and
// FUSIONLLM_SEEDS="17 18" those from 17 to before 18.
#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "lib/base/exit_code.h"
#include "lib/base/file_error.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

// Whose file it is, and so what must come of a failure.
enum class Kind {
  kOfTheRun,  // what the run writes and reads back: the run may go on without it
  kGoesOn,    // a checkpoint that the run goes on from: its first use
  kNamed,     // named by the job or on the command line, and used before the first step: bad input, unless the machine lacks something
};

struct Use {
  const char* program;
  const char* path;
  const char* operation;
  Kind kind = Kind::kOfTheRun;
};

// What a run does with files of its own folder and of its job: what a machine keeps for all runs is another matter. The first of each list
// are those of every day.
constexpr Use kUsesOfNewRuns[] = {{"fusionctl", "job.yaml", "read", Kind::kNamed},
                                  {"fusionctl", "/text.txt", "open", Kind::kNamed},
                                  {"fusion-executor", "/start.safetensors", "read", Kind::kNamed},
                                  {"fusionctl", "/start.safetensors", "open", Kind::kNamed},
                                  {"fusion-executor", "/held.txt", "read", Kind::kNamed},
                                  {"fusion-broker", "broker.journal", "sync"},
                                  {"fusion-executor", "/checkpoints", "write"},
                                  {"fusion-broker", "/checkpoints", "rename"},
                                  {"fusionctl", "/security/", "open"},
                                  {"fusionctl", "/out/", "open"},
                                  {"fusion-broker", "/checkpoints", "open"},
                                  {"fusionctl", "job.yaml", "open", Kind::kNamed},
                                  {"fusion-executor", "/text.txt", "open", Kind::kNamed},
                                  {"fusionctl", "/text.txt", "read", Kind::kNamed},
                                  {"fusionctl", "/held.txt", "open", Kind::kNamed},
                                  {"fusionctl", "/start.safetensors", "read", Kind::kNamed},
                                  {"fusionctl", "/out", "mkdir"},
                                  {"fusionctl", "/out/", "write"},
                                  {"fusionctl", "/out/", "rename"},
                                  {"fusionctl", "/security/", "sync"},
                                  {"fusionctl", "events.jsonl", "open"},
                                  {"fusionctl", "events.jsonl", "write"},
                                  {"fusion-scheduler", "/security/", "open"},
                                  {"fusion-broker", "/job.yaml", "open"},
                                  {"fusion-broker", "/security/", "read"},
                                  {"fusion-broker", "/start.safetensors", "read"},
                                  {"fusion-broker", "broker.journal", "open"},
                                  {"fusion-broker", "broker.journal", "write"},
                                  {"fusion-broker", "/checkpoints", "mkdir"},
                                  {"fusion-broker", "/checkpoints", "read"},
                                  {"fusion-broker", "/checkpoints", "write"},
                                  {"fusion-broker", "/checkpoints", "sync"},
                                  {"fusion-broker", "/checkpoints", "remove"},
                                  {"fusion-executor", "/security/", "open"},
                                  {"fusion-executor", "/text.txt", "read", Kind::kNamed},
                                  {"fusion-executor", "/held.txt", "open", Kind::kNamed},
                                  {"fusion-executor", "/start.safetensors", "open", Kind::kNamed},
                                  {"fusion-executor", "/checkpoints", "open"},
                                  {"fusion-executor", "/checkpoints", "sync"},
                                  {"fusion-executor", "/checkpoints", "rename"},
                                  {"fusion-executor", "/checkpoints", "mkdir"}};
constexpr Use kUsesOfResumedRuns[] = {{"fusion-broker", "/manifest.json", "open", Kind::kGoesOn},
                                      {"fusion-executor", "/model-0", "open", Kind::kGoesOn},
                                      {"fusion-broker", "/model-0", "read", Kind::kGoesOn},
                                      {"fusion-executor", "/optimizer-0", "read", Kind::kGoesOn},
                                      {"fusion-executor", "/held.txt", "open", Kind::kNamed},
                                      {"fusion-broker", "/latest", "read", Kind::kGoesOn},
                                      {"fusionctl", "/held.txt", "read", Kind::kNamed},
                                      {"fusion-executor", "/manifest.json", "read", Kind::kGoesOn},
                                      {"fusion-broker", "/checkpoints", "open", Kind::kGoesOn},
                                      {"fusion-executor", "/text.txt", "read", Kind::kNamed},
                                      {"fusion-broker", "/checkpoints", "rename"},
                                      {"fusion-broker", "/manifest.json", "read", Kind::kGoesOn},
                                      {"fusion-broker", "/model-0", "open", Kind::kGoesOn},
                                      {"fusion-broker", "/optimizer-0", "open", Kind::kGoesOn},
                                      {"fusion-broker", "/optimizer-0", "read", Kind::kGoesOn},
                                      {"fusion-executor", "/manifest.json", "open", Kind::kGoesOn},
                                      {"fusion-executor", "/model-0", "read", Kind::kGoesOn},
                                      {"fusion-executor", "/optimizer-0", "open", Kind::kGoesOn},
                                      {"fusionctl", "/text.txt", "open", Kind::kNamed},
                                      {"fusion-executor", "/checkpoints", "write"},
                                      {"fusion-broker", "/checkpoints", "write"},
                                      {"fusion-broker", "broker.journal", "write"}};
constexpr int kErrors[] = {EACCES, EMFILE, ENOSPC, EIO, EDQUOT, ENOENT};

struct FileFault {
  Use use;
  bool resumes = false;
  int error = 0;
  int skip = 0;
  std::string Text() const {
    return absl::StrFormat("program=%s path=%s operation=%s error=%d skip=%d", use.program, use.path, use.operation, error, skip);
  }
};

// Uses in turn, one list for the even seeds and one for the odd ones.
FileFault Draw(uint32_t seed) {
  std::mt19937 draw(seed);
  const bool resumes = seed % 2 == 1;
  const std::span<const Use> uses = resumes ? std::span<const Use>(kUsesOfResumedRuns) : std::span<const Use>(kUsesOfNewRuns);
  FileFault fault{.use = uses[seed / 2 % uses.size()], .resumes = resumes};
  fault.error = kErrors[draw() % std::size(kErrors)];
  if (fault.use.kind == Kind::kOfTheRun) fault.skip = static_cast<int>(draw() % 3 * (draw() % 3));
  return fault;
}

// Of a file that is made beside another one and renamed, the name of that one.
std::string NameToTell(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  if (absl::EndsWith(name, ".XXXXXX")) return name.substr(0, name.rfind('.'));
  const bool beside = absl::EndsWith(name, ".partial") && name.front() != '.';  // else a folder that becomes a checkpoint
  if (beside) name.erase(name.rfind('.', name.rfind('.') - 1));                 // with the number of the process
  return name;
}

// The runtime of a sanitizer must be the first library that is loaded, and what stands in LD_PRELOAD comes before a program's own.
std::string LibrariesToPreload() {
  std::string libraries;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#if defined(__SANITIZE_ADDRESS__)
  constexpr char kFunctionOfTheRuntime[] = "__asan_init";
#else
  constexpr char kFunctionOfTheRuntime[] = "__tsan_init";
#endif
  Dl_info runtime = {};
  if (dladdr(dlsym(RTLD_DEFAULT, kFunctionOfTheRuntime), &runtime) != 0) libraries = absl::StrCat(runtime.dli_fname, ":");
#endif
  return libraries + FUSIONLLM_FILE_FAULTS_LIBRARY;
}

class FileFaultsTest : public RunTest {
 protected:
  ~FileFaultsTest() override { SetNoFault(); }

  // In programs that start from now on; `log` is written once an operation has failed.
  static void SetFault(const std::string& fault, const std::string& log) {
    setenv("LD_PRELOAD", LibrariesToPreload().c_str(), 1);
    setenv("FUSIONLLM_FILE_FAULTS", fault.c_str(), 1);
    setenv("FUSIONLLM_FILE_FAULTS_LOG", log.c_str(), 1);
  }
  static void SetNoFault() {
    for (const char* name : {"LD_PRELOAD", "FUSIONLLM_FILE_FAULTS", "FUSIONLLM_FILE_FAULTS_LOG"}) unsetenv(name);
  }

  std::vector<std::string> Settings(int steps) const {
    return {absl::StrCat("spec.training.steps=", steps),
            "spec.strategy.stages=2",
            "spec.checkpoint={path: checkpoints, everySteps: 2}",
            "spec.model.init={from: start.safetensors}",
            "spec.data.validation={path: held.txt}",
            "spec.training.evaluation={everySteps: 2, batches: 1}"};
  }

  // Files that the jobs name, and in the folder `first` a run that others go on from.
  void Prepare() {
    folder_.Write("held.txt", std::string(600, 'a'));
    RunToEnd({"spec.training.steps=0", "spec.strategy.stages=1", "spec.checkpoint={path: checkpoints}"}, {}, "start");
    std::filesystem::copy_file(Path("start/checkpoints/step-000000/model.safetensors"), Path("start.safetensors"));
    RunToEnd(Settings(4), {}, "first");
  }

  void RunWith(const FileFault& fault, const std::string& output) {
    SCOPED_TRACE(absl::StrCat(fault.Text(), fault.resumes ? " in a run that goes on" : ""));
    if (fault.resumes) {
      std::filesystem::create_directories(Path(output));
      std::filesystem::copy(Path("first/checkpoints"), Path(output + "/checkpoints"),
                            std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    }
    const std::string log = Path(absl::StrCat("fault-", ++runs_, ".txt"));
    SetFault(fault.Text(), log);
    auto run = Start(Settings(6), {}, output);
    const int code = run->Wait(kRunLimit);
    SetNoFault();
    EXPECT_TRUE(run->AllProcessesExited(30));
    if (!std::filesystem::exists(log)) {
      EXPECT_EQ(code, 0) << run->Stderr();
      EXPECT_EQ(Event(*run, "Restored").is_null(), !fault.resumes);
      return;
    }
    ++struck_;
    ExpectEndWith(fault, *run, code, output, base::ReadWholeFile(log));
    const std::vector<std::string> reasons = Reasons(*run);
    EXPECT_LE(std::count(reasons.begin(), reasons.end(), "Recovering"), 3);
  }

  // `struck`: the operations that failed, a line each.
  void ExpectEndWith(const FileFault& fault, const FusionctlChild& run, int code, const std::string& output,
                     const std::string& struck) const {
    if (fault.use.kind == Kind::kNamed) {
      EXPECT_EQ(code, base::ExitCodeFor(base::AsBadInput(base::FileError(fault.error, "use", fault.use.path)))) << run.Stderr();
    } else {
      EXPECT_TRUE(code == 0 || code == 1 || code == 2) << code << ": " << run.Stderr();
    }
    // What is to be gone and is not there is no failure; without a link the newest checkpoint is looked for.
    const std::string operation = fault.use.operation, path = fault.use.path;
    if (code == 0 && fault.error == ENOENT && (operation == "remove" || path == "/latest")) return;
    const std::string said = code == 0 ? AllMessages(run, output) : run.Stderr();
    EXPECT_TRUE(IsReported(said, std::strerror(fault.error), struck))
        << "nobody says so, with the file's name, after " << struck << run.Stderr();
  }

  // To the user, in the events or in a program's log.
  std::string AllMessages(const FusionctlChild& run, const std::string& output) const {
    std::string all = run.Stderr();
    for (const nlohmann::json& line : run.lines()) absl::StrAppend(&all, "\n", line.dump());
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(Path(output + "/logs"), error)) {
      absl::StrAppend(&all, "\n", base::ReadWholeFile(entry.path().string()));
    }
    return all;
  }

  // Whether a line has both the cause and the name of a file that failed.
  static bool IsReported(const std::string& text, const std::string& cause, const std::string& struck) {
    std::set<std::string> names;
    for (const absl::string_view line : absl::StrSplit(struck, '\n', absl::SkipEmpty())) {
      names.insert(NameToTell(std::string(line.substr(line.find(' ') + 1))));
    }
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const auto is_in_line = [&](const std::string& name) { return absl::StrContains(line, name); };
      if (is_in_line(cause) && std::any_of(names.begin(), names.end(), is_in_line)) return true;
    }
    return false;
  }

  int runs_ = 0;
  int struck_ = 0;  // runs in which an operation did fail
};

TEST_F(FileFaultsTest, EveryFailureEndsInAMessage) {
  int first = 0, last = 22;
  if (const char* seeds = std::getenv("FUSIONLLM_SEEDS"); seeds != nullptr) {
    std::istringstream numbers(seeds);
    numbers >> last;
    if (int end = 0; numbers >> end) first = std::exchange(last, end);
  }
  WriteTopology(2, 0);
  Prepare();
  for (int seed = first; seed < last; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RunWith(Draw(static_cast<uint32_t>(seed)), absl::StrCat("run-", seed, "/out"));
  }
  EXPECT_GE(struck_, (last - first) / 2) << "hardly anything failed: the seeds test nothing";
}

// As where the files of a claim are another user's.
TEST_F(FileFaultsTest, DataThatAnExecutorMayNotReadEndTheRunAtOnceAsBadInput) {
  WriteTopology(2, 0);
  SetFault(absl::StrCat("program=fusion-executor path=/text.txt operation=open error=", EACCES, " skip=0"), Path("fault.txt"));
  auto run = Start({"spec.training.steps=6", "spec.strategy.stages=2"});
  ExpectEnd(*run, 2);
  EXPECT_THAT(run->Stderr(), ::testing::ContainsRegex("on a-[01]: .*text.txt.*: Permission denied"));
  EXPECT_TRUE(Event(*run, "Recovering").is_null());
}

}  // namespace
}  // namespace fusionllm::integration
