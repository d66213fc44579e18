// Machines that join a run: the real programs, as users of two machines call them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/run/child_process.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/join_token.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr auto kPatience = std::chrono::seconds(120);

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A fusionctl that runs beside the test.
class Fusionctl {
 public:
  Fusionctl(const base::TempFolder& folder, const std::string& name, std::vector<std::string> arguments) : stderr_(folder / name) {
    arguments.insert(arguments.begin(), absl::StrCat(std::getenv("FUSIONLLM_BIN_DIR"), "/fusionctl"));
    child_.emplace(*ChildProcess::Start({name, std::move(arguments), stderr_, /*pipe_stdout=*/true}));
  }

  // Until it has ended, at most kPatience: its exit code, or -1.
  int Wait() {
    WaitUntil([this] { return child_->Poll().has_value(); });
    const std::optional<ChildEnd> end = child_->Poll();
    return end.has_value() ? end->exit_code.value_or(-1) : -1;
  }
  // Until stderr holds `text`; false when it ends or time runs out before.
  bool WaitForWords(const std::string& text) {
    WaitUntil([&] { return child_->Poll().has_value() || ReadAll(stderr_).find(text) != std::string::npos; });
    return ReadAll(stderr_).find(text) != std::string::npos;
  }
  void Interrupt() { child_->Signal(SIGINT); }
  std::string words() const { return ReadAll(stderr_); }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  template <typename Condition>
  void WaitUntil(Condition condition) {
    const auto deadline = Clock::now() + kPatience;
    while (Clock::now() < deadline) {
      const bool met = condition();
      if (open_) open_ = *reader_.Read(child_->stdout_fd(), lines_);
      if (met) return;
      pollfd fd = {open_ ? child_->stdout_fd() : -1, POLLIN, 0};
      poll(&fd, 1, 20);
    }
  }

  const std::string stderr_;
  std::optional<ChildProcess> child_;
  LineReader reader_;
  bool open_ = true;
  std::vector<std::string> lines_;
};

class JoinTest : public ::testing::Test {
 protected:
  JoinTest() {
    std::string text;
    for (int i = 0; i < 400; ++i) absl::StrAppend(&text, "line ", i * i % 97, " of the text\n");
    folder_.Write("text.txt", text);
    job_ = folder_.Write("job.yaml", kJob);
    setenv("TMPDIR", folder_.path().c_str(), 1);  // where `join` keeps its credentials
  }

  ~JoinTest() override { unsetenv("TMPDIR"); }

  // A run that waits for others; `address` and `token` are then known.
  std::unique_ptr<Fusionctl> Listen(int executors, const std::string& name = "run") {
    auto run = std::make_unique<Fusionctl>(
        folder_, name,
        std::vector<std::string>{"--format", "json", "run", job_, "--output", folder_ / absl::StrCat(name, "-out"), "--listen",
                                 "127.0.0.1:0", "--set", absl::StrCat("spec.executors.min=", executors), "--set",
                                 absl::StrCat("spec.strategy.stages=", executors)});
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

  std::unique_ptr<Fusionctl> Join(const std::string& log, const std::vector<std::string>& more, std::string token = "") {
    std::vector<std::string> arguments = {"join", address_, "--token", token.empty() ? token_ : token};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return std::make_unique<Fusionctl>(folder_, log, arguments);
  }

  // "1:40b15257 2:..." of a run's steps.
  static std::string LossBits(const std::vector<std::string>& lines) {
    std::vector<std::string> bits;
    for (const std::string& line : lines) {
      const json parsed = json::parse(line);
      if (parsed["type"] == "step") bits.push_back(absl::StrCat(parsed["step"].get<int>(), ":", parsed["loss_bits"].get<std::string>()));
    }
    return absl::StrJoin(bits, " ");
  }

  std::vector<std::string> CredentialFolders() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      if (entry.path().filename().string().starts_with("fusionctl-join-")) found.push_back(entry.path().string());
    }
    return found;
  }

  static constexpr char kJob[] =
      "apiVersion: fusionllm.io/v1alpha1\n"
      "kind: FusionJob\n"
      "metadata: {name: joined}\n"
      "spec:\n"
      "  model: {family: gpt2, preset: tiny, config: {nLayer: 3, nHead: 2, nEmbd: 32, vocabSize: 256, blockSize: 32}}\n"
      "  data: {kind: text, path: [text.txt]}\n"
      "  training: {steps: 4, globalBatchSize: 4, microBatchSize: 2, sequenceLength: 16}\n"
      "  executors: {threads: 1}\n";

  base::TempFolder folder_;
  std::string job_, address_, token_;
};

TEST_F(JoinTest, TwoMachinesThatOnlyDialOutTrainTheSameLossesAsOneProcess) {
  Fusionctl alone(folder_, "alone", {"--format", "json", "run", job_, "--output", folder_ / "alone-out"});
  ASSERT_EQ(alone.Wait(), 0) << alone.words();
  const std::string expected = LossBits(alone.lines());
  ASSERT_THAT(expected, HasSubstr("4:"));

  const auto run = Listen(3);
  const auto first = Join("first", {"--name", "a-laptop"});
  const auto second = Join("second", {});
  ASSERT_EQ(run->Wait(), 0) << run->words() << first->words() << second->words();
  EXPECT_EQ(LossBits(run->lines()), expected);
  EXPECT_EQ(first->Wait(), 0) << first->words();
  EXPECT_EQ(second->Wait(), 0) << second->words();
  EXPECT_THAT(second->words(), HasSubstr("as joined-0"));

  const json summary = json::parse(run->lines().back());
  ASSERT_EQ(summary["type"], "summary");
  ASSERT_THAT(summary["stages"], SizeIs(3));
  EXPECT_EQ(summary["stages"][0]["device"], "local-0") << "the machine with the data, though a-laptop sorts before it";
  EXPECT_GT(summary["wire_bytes"].get<int64_t>(), 0);
  EXPECT_THAT(CredentialFolders(), SizeIs(0)) << "nothing is left of the credentials";
}

TEST_F(JoinTest, AMachineThatCanBeDialledIs) {
  const auto run = Listen(2);
  const auto other = Join("other", {"--name", "server", "--listen", "127.0.0.1:0"});
  EXPECT_EQ(run->Wait(), 0) << run->words() << other->words();
  EXPECT_EQ(other->Wait(), 0) << other->words();
  EXPECT_THAT(LossBits(run->lines()), HasSubstr("4:"));
}

TEST_F(JoinTest, TokensNamesAndAddressesThatAreWrongAreRefusedInWords) {
  const auto run = Listen(3);
  const std::string right = token_;
  const auto refused = [&](const std::string& log, const std::vector<std::string>& more, const std::string& token) {
    const auto begin = Clock::now();
    const auto join = Join(log, more, token);
    EXPECT_EQ(join->Wait(), 2) << log;
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15)) << log;
    EXPECT_THAT(join->words(), Not(HasSubstr(token))) << "a token belongs into no log";
    return join->words();
  };
  const std::string ca = security::ParseJoinToken(right)->ca_pem;
  EXPECT_THAT(refused("guess", {}, *security::MakeJoinToken(*security::MakeJoinSecret(), ca)), HasSubstr("not that of this run"));
  EXPECT_THAT(refused("torn", {}, right.substr(0, right.size() / 2)), HasSubstr("--token"));
  EXPECT_THAT(refused("reserved", {"--name", "broker"}, right), HasSubstr("choose another --name"));
  EXPECT_THAT(refused("local", {"--name", "local-0"}, right), HasSubstr("choose another --name"));
  EXPECT_THAT(refused("any", {"--listen", "0.0.0.0:0"}, right), HasSubstr("stands for any"));

  const auto first = Join("first", {"--name", "lab"}, right);
  ASSERT_TRUE(first->WaitForWords("joined the run")) << first->words();
  EXPECT_THAT(refused("twice", {"--name", "lab"}, right), HasSubstr("an executor called lab is part of this run already"));

  const std::string here = address_;
  const auto another = Listen(3, "another");
  ASSERT_NE(address_, here);
  EXPECT_THAT(refused("foreign", {}, right), HasSubstr("another authority"));

  for (const auto& process : {&run, &another}) (*process)->Interrupt();
  EXPECT_EQ(run->Wait(), 130);
  EXPECT_EQ(another->Wait(), 130);
  EXPECT_NE(first->Wait(), -1) << "told to go when the run ended";
  EXPECT_THAT(CredentialFolders(), SizeIs(0));
}

TEST_F(JoinTest, NobodyAtTheAddressIsSaidAtOnce) {
  const auto run = Listen(2);
  run->Interrupt();
  ASSERT_EQ(run->Wait(), 130);
  const auto join = Join("late", {});
  EXPECT_EQ(join->Wait(), 1);
  EXPECT_THAT(join->words(), HasSubstr(address_));
}

TEST_F(JoinTest, AnInterruptedJoinLeavesTheRunAndNothingBehind) {
  const auto run = Listen(3);
  const auto join = Join("guest", {"--name", "guest"});
  ASSERT_TRUE(join->WaitForWords("joined the run")) << join->words();
  join->Interrupt();
  EXPECT_EQ(join->Wait(), 130);
  EXPECT_THAT(CredentialFolders(), SizeIs(0));
  run->Interrupt();
  EXPECT_EQ(run->Wait(), 130);
}

TEST_F(JoinTest, WhatMachinesWithoutTheFilesCannotDoIsRefusedBefore) {
  const std::vector<std::string> base = {"run", job_, "--output", folder_ / "out", "--listen", "127.0.0.1:0"};
  for (const std::string setting : {"spec.checkpoint={path: checkpoints/, everySteps: 1}", "spec.model.init.from=old/"}) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), {"--set", setting});
    Fusionctl run(folder_, "refused", arguments);
    EXPECT_EQ(run.Wait(), 2) << run.words();
    EXPECT_THAT(run.words(), HasSubstr("executors of other machines cannot"));
  }
}

}  // namespace
}  // namespace fusionllm::cli
