#include "tests/integration/join_fixture.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

// Runs of the tests keep no checkpoints by themselves.
bool NamesCheckpoints(const std::vector<std::string>& settings) {
  return std::any_of(settings.begin(), settings.end(), [](const std::string& setting) { return setting.starts_with("spec.checkpoint"); });
}

constexpr auto kWaitTimeout = std::chrono::seconds(120);

constexpr char kJob[] =
    "apiVersion: fusionllm.io/v1alpha1\n"
    "kind: FusionJob\n"
    "metadata: {name: joined}\n"
    "spec:\n"
    "  model: {family: gpt2, preset: tiny, config: {nLayer: 3, nHead: 2, nEmbd: 32, vocabSize: 256, blockSize: 32}}\n"
    "  data: {kind: text, path: [text.txt]}\n"
    "  training: {steps: 4, globalBatchSize: 4, microBatchSize: 2, sequenceLength: 16}\n"
    "  executors: {threads: 1}\n";

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A mount namespace of its own in which the first argument is an empty folder.
std::vector<std::string> HidingFrom(const std::string& folder) {
  return {"/usr/bin/unshare", geteuid() == 0 ? "-m" : "-rm", "/bin/sh", "-c", "mount -t tmpfs none \"$0\" && exec \"$@\"", folder};
}

}  // namespace

Fusionctl::Fusionctl(const base::TempFolder& folder, const std::string& name, std::vector<std::string> arguments,
                     const std::vector<std::string>& wrapper)
    : stderr_(folder / name) {
  std::vector<std::string> argv = wrapper;
  argv.push_back(absl::StrCat(std::getenv("FUSIONLLM_BIN_DIR"), "/fusionctl"));
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  child_.emplace(*ChildProcess::Start({name, std::move(argv), stderr_, /*pipe_stdout=*/true}));
}

void Fusionctl::WaitUntil(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + kWaitTimeout;
  while (Clock::now() < deadline) {
    const bool met = condition();
    if (open_) {
      std::vector<std::string> lines;
      open_ = *reader_.Read(child_->stdout_fd(), lines);
      for (const std::string& line : lines) {
        json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
        if (parsed.is_object()) lines_.push_back(std::move(parsed));  // other commands than `run` print other things
      }
    }
    if (met) return;
    pollfd fd = {open_ ? child_->stdout_fd() : -1, POLLIN, 0};
    poll(&fd, 1, 20);
  }
}

int Fusionctl::Wait() {
  WaitUntil([this] { return child_->Poll().has_value(); });
  const std::optional<ExitStatus> end = child_->Poll();
  return end.has_value() ? end->exit_code.value_or(-1) : -1;
}

bool Fusionctl::WaitForWords(const std::string& text) {
  WaitUntil([&] { return child_->Poll().has_value() || words().find(text) != std::string::npos; });
  return words().find(text) != std::string::npos;
}

bool Fusionctl::WaitForLine(const std::function<bool(const json&)>& wanted) {
  const auto there = [&] { return std::any_of(lines_.begin(), lines_.end(), wanted); };
  WaitUntil([&] { return child_->Poll().has_value() || there(); });
  return there();
}

bool Fusionctl::WaitForEvent(const std::string& reason) {
  return WaitForLine([&](const json& line) { return line.value("reason", "") == reason; });
}

bool Fusionctl::WaitForStep(int64_t step) {
  return WaitForLine([&](const json& line) { return line.value("type", "") == "step" && line["step"] == step; });
}

void Fusionctl::Interrupt() { child_->Signal(SIGINT); }
void Fusionctl::Kill() { child_->Kill(); }

std::string Fusionctl::words() const { return ReadAll(stderr_); }

json Fusionctl::Event(const std::string& reason) const {
  for (const json& line : lines_) {
    if (line.value("reason", "") == reason) return line;
  }
  return {};
}

std::vector<std::pair<int64_t, std::string>> Fusionctl::LossBits() const {
  std::vector<std::pair<int64_t, std::string>> bits;
  for (const json& line : lines_) {
    if (line.value("type", "") == "step") bits.emplace_back(line["step"], line["loss_bits"]);
  }
  return bits;
}

JoinTest::JoinTest() {
  std::string text;
  for (int i = 0; i < 400; ++i) absl::StrAppend(&text, "line ", i * i % 97, " of the text\n");
  folder_.Write("mine/text.txt", text);
  job_ = folder_.Write("mine/job.yaml", kJob);
  setenv("TMPDIR", folder_.path().c_str(), 1);  // where `join` keeps its credentials
}

JoinTest::~JoinTest() { unsetenv("TMPDIR"); }

std::unique_ptr<Fusionctl> JoinTest::Listen(int executors, const Settings& settings, const std::string& name, const std::string& listen) {
  std::vector<std::string> arguments = {"--format", "json",
                                        "run",      job_,
                                        "--output", Out(name),
                                        "--listen", listen,
                                        "--set",    absl::StrCat("spec.executors.min=", executors),
                                        "--set",    absl::StrCat("spec.strategy.stages=", executors)};
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  if (!NamesCheckpoints(settings)) arguments.emplace_back("--no-checkpoint");
  fs::remove(folder_ / name);  // the words of an earlier start
  auto run = std::make_unique<Fusionctl>(folder_, name, arguments);
  EXPECT_TRUE(run->WaitForWords("fusionctl join ")) << run->words();
  const std::string words = run->words();
  if (words.find("fusionctl join ") == std::string::npos) return run;
  const std::vector<std::string> parts =
      absl::StrSplit(words.substr(words.find("fusionctl join ")), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  if (parts.size() < 5) return run;
  address_ = parts[2];
  token_ = parts[4];
  return run;
}

std::unique_ptr<Fusionctl> JoinTest::Alone(const Settings& settings, const std::string& name) {
  std::vector<std::string> arguments = {"--format", "json", "run", job_, "--output", Out(name)};
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  if (!NamesCheckpoints(settings)) arguments.emplace_back("--no-checkpoint");
  return std::make_unique<Fusionctl>(folder_, absl::StrCat(name, "-alone"), arguments);
}

std::unique_ptr<Fusionctl> JoinTest::Join(const std::string& log, const std::vector<std::string>& more, std::string token) {
  std::vector<std::string> arguments = {"join", address_, "--token", token.empty() ? token_ : token};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return std::make_unique<Fusionctl>(folder_, log, arguments);
}

std::unique_ptr<Fusionctl> JoinTest::Hidden(const std::string& name, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"join", address_, "--token", token_, "--name", name};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return std::make_unique<Fusionctl>(folder_, name, arguments, HidingFrom(folder_ / "mine"));
}

std::string JoinTest::CannotHide() {
  const base::TempFolder folder;
  std::vector<std::string> argv = HidingFrom(folder.path());
  argv.push_back("/bin/true");
  const int status = std::system(absl::StrCat("unshare ", argv[1], " true 2> /dev/null").c_str());
  return status == 0 ? "" : "NotAvailable: mount namespaces cannot be made here";
}

void JoinTest::ExpectSameLosses(const Fusionctl& run, const Fusionctl& expected, int64_t first, int64_t last) {
  const auto wanted = expected.LossBits();
  const std::map<int64_t, std::string> of_step(wanted.begin(), wanted.end());
  std::map<int64_t, std::string> seen;
  for (const auto& [step, bits] : run.LossBits()) {
    seen[step] = bits;
    ASSERT_TRUE(of_step.contains(step)) << step;
    EXPECT_EQ(bits, of_step.at(step)) << "step " << step;
  }
  for (int64_t step = first; step <= last; ++step) EXPECT_TRUE(seen.contains(step)) << "step " << step << " is missing";
}

std::vector<std::string> JoinTest::CredentialFolders() const {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    if (entry.path().filename().string().starts_with("fusionctl-join-")) found.push_back(entry.path().string());
  }
  return found;
}

}  // namespace fusionllm::cli
