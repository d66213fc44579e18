// What e2e/smoke/checks_lib.sh finds of clusters that are down: a question that fails is no answer. `ip` and `grep` are scripts of ours.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::tidy {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ClusterTraces : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* source_dir = std::getenv("FUSIONLLM_SOURCE_DIR");
    ASSERT_NE(source_dir, nullptr) << "set FUSIONLLM_SOURCE_DIR to the root of the repository (ctest does)";
    source_ = source_dir;
    root_ = fs::canonical(::testing::TempDir()) / absl::StrCat("cluster_traces_", getpid());
    fs::create_directories(root_ / "state");
    Program("ip", "");
    Program("grep", "exit 1");
  }

  void TearDown() override { fs::remove_all(root_); }

  // Found before the system's.
  void Program(const std::string& name, const std::string& commands) const {
    std::ofstream(root_ / name) << "#!/bin/bash\n" << commands << "\n";
    fs::permissions(root_ / name, fs::perms::owner_all);
  }

  std::pair<int, std::string> Run(const std::string& command) const {
    const std::string script = absl::StrCat("set -euo pipefail; . \"", source_, "/e2e/cluster/names_lib.sh\"; . \"", source_,
                                            "/e2e/smoke/checks_lib.sh\"; ", command);
    FILE* pipe = popen(
        absl::StrCat("PATH='", root_.string(), "':$PATH FUSIONLLM_E2E_STATE='", (root_ / "state").string(), "' bash -c '", script, "' 2>&1")
            .c_str(),
        "r");
    if (pipe == nullptr) return {-1, "popen failed"};
    std::string output;
    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output.push_back(static_cast<char>(c));
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
  }

  std::string source_;
  fs::path root_;
};

TEST_F(ClusterTraces, NothingIsLeftWhereAllHaveAnsweredAndNoneKnowsTheCluster) {
  // As grep says it of processes that end while it reads, and of those that root may not look at.
  Program("grep", "echo 'grep: /proc/2/environ: No such process\ngrep: /proc/1/environ: Permission denied' >&2; exit 2");
  const auto [status, output] = Run("traces_of gone");
  EXPECT_EQ(status, 0) << output;
  EXPECT_EQ(output, "");
}

TEST_F(ClusterTraces, WhatIsLeftIsNamed) {
  Program("ip", R"sh(
    case $* in
      "netns list") echo "fe2e-left (id: 0)" ;;
      "-brief link show") echo "fe2e-left@if2 UP" ;;
      "route show") echo "10.0.0.1 dev fe2e-left" ;;
    esac)sh");
  Program("grep", R"sh(
    if [[ $* = *environ* ]]; then echo /proc/7/environ; fi
    echo "grep: /proc/8/environ: No such file or directory" >&2
    exit 2)sh");
  fs::create_directories(root_ / "state/left");
  const auto [status, output] = Run("traces_of left");
  EXPECT_EQ(status, 0) << output;
  EXPECT_EQ(output, absl::StrCat("namespace fe2e-left\ninterface fe2e-left\nroute 10.0.0.1 dev fe2e-left\nprocess /proc/7/environ\nfile ",
                                 (root_ / "state/left").string(), "\n"));
}

TEST_F(ClusterTraces, AQuestionThatFailsIsNotNothing) {
  for (const std::string question : {"netns list", "-brief link show", "route show"}) {
    Program("ip", absl::StrCat("[ \"$*\" != \"", question, "\" ]"));
    const auto [status, output] = Run("expect_nothing_left \"\" gone");
    EXPECT_EQ(status, 1) << question;
    EXPECT_THAT(output, HasSubstr("what is left of gone cannot be told")) << question;
  }
  Program("ip", "exit 1");
  EXPECT_NE(Run("before=$(shared_places)").first, 0) << "it would be the same before and after";
  Program("ip", "");
  Program("iptables-save", "exit 1");
  EXPECT_NE(Run("before=$(shared_places)").first, 0) << "as of ip";
  Program("iptables-save", "echo :KUBE-MARK - [0:0]");
  EXPECT_EQ(Run("before=$(shared_places); echo \"$before\" | awk \"/^rule/\"").second, "rule :KUBE-MARK - \n");
  for (const std::string commands : {"echo 'grep: /proc/7/environ: Input/output error' >&2; exit 2", "exit 127"}) {
    Program("grep", commands);
    const auto [status, output] = Run("expect_nothing_left \"\" gone");
    EXPECT_EQ(status, 1) << commands;
    EXPECT_THAT(output, HasSubstr("what is left of gone cannot be told")) << commands;
  }
}

}  // namespace
}  // namespace fusionllm::tidy
