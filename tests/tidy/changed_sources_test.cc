// tools/tidy.sh chooses what clang-tidy reads: the sources that differ from a base, and those that stand for a changed header.
// tools/check-sanitizers.sh compiles them, and tools/check-thread-safety.sh those that see a lock.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace fusionllm::tidy {
namespace {

namespace fs = std::filesystem;

class ChangedSources : public ::testing::Test {
 protected:
  // A repository of its own with one commit that holds the script and `committed`, all of them known to the build.
  void SetUp() override {
    const char* source_dir = std::getenv("FUSIONLLM_SOURCE_DIR");
    ASSERT_NE(source_dir, nullptr) << "set FUSIONLLM_SOURCE_DIR to the root of the repository (ctest does)";
    root_ = fs::canonical(::testing::TempDir()) / absl::StrCat("changed_sources_", getpid());
    fs::create_directories(root_ / "tools");
    for (const char* script : {"tools/tidy.sh", "tools/check-syntax.sh", "tools/check-sanitizers.sh", "tools/check-thread-safety.sh"})
      fs::copy_file(fs::path(source_dir) / script, root_ / script);
  }

  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  void Commit(const std::vector<std::string>& paths) const {
    std::string commands;
    for (const std::string& path : paths) {
      Write(path, "// first\n");
      absl::StrAppend(&commands, "  \"file\": \"", (root_ / path).string(), "\",\n");
    }
    Write("build/sources/compile_commands.json", commands);
    Write(".gitignore", "build/\n");
    const auto [status, output] =
        Run("git init -q . && git add -A && git -c user.name=a -c user.email=a@example.com -c commit.gpgsign=false commit -q -m first");
    ASSERT_EQ(status, 0) << output;
  }

  std::pair<int, std::string> Run(const std::string& command) const {
    FILE* pipe = popen(absl::StrCat("cd '", root_.string(), "' && { ", command, "; } 2>&1").c_str(), "r");
    if (pipe == nullptr) {
      return {-1, "popen failed"};
    }
    std::string output;
    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) {
      output.push_back(static_cast<char>(c));
    }
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
  }

  fs::path root_;
};

TEST_F(ChangedSources, AHeaderStandsForItsSourceAndItsTest) {
  Commit({"a/kept.cc", "a/plan.cc", "a/plan.h", "a/plan_test.cc"});
  Write("a/plan.h", "// second\n");
  const auto [status, output] = Run("VERIFY_BASE=HEAD tools/tidy.sh --list");
  EXPECT_EQ(status, 0) << output;
  EXPECT_EQ(output, "a/plan.cc\na/plan_test.cc\n");
}

TEST_F(ChangedSources, TheLastOfThemMayBeAHeaderWithoutTestOrSource) {
  Commit({"a/plan.cc", "z/kind.h"});
  Write("a/plan.cc", "// second\n");
  Write("z/kind.h", "// second\n");
  const auto [status, output] = Run("VERIFY_BASE=HEAD tools/tidy.sh --list");
  EXPECT_EQ(status, 0) << output;
  EXPECT_EQ(output, "a/plan.cc\n");
}

TEST_F(ChangedSources, AHeaderAloneIsReadThroughASourceThatIncludesIt) {
  Commit({"a/plan.cc", "b/use.cc", "c/use.cc", "z/kind.h"});
  for (const char* user : {"b/use.cc", "c/use.cc"}) Write(user, "#include \"z/kind.h\"\n");
  ASSERT_EQ(Run("git -c user.name=a -c user.email=a@example.com -c commit.gpgsign=false commit -q -a -m second").first, 0);
  Write("z/kind.h", "// second\n");
  const auto [status, output] = Run("VERIFY_BASE=HEAD tools/tidy.sh --list");
  EXPECT_EQ(status, 0) << output;
  EXPECT_EQ(output, "b/use.cc\n");
}

TEST_F(ChangedSources, NothingChangedIsNothingToCheck) {
  Commit({"a/plan.cc"});
  const auto [status, output] = Run("VERIFY_BASE=HEAD tools/tidy.sh");
  EXPECT_EQ(status, 0) << output;
  EXPECT_EQ(output, "no C++ source differs from HEAD\n");
}

// What is compiled for nothing but its errors: without the precompiled header, and with commands as JSON has them escaped.
TEST_F(ChangedSources, AreCompiledAsSanitizersWould) {
  Commit({"a/good.cc", "a/bad.cc"});
  const auto command = [&](const std::string& file) {
    const std::string path = (root_ / file).string();
    return absl::StrCat("  \"command\": \"c++ -DNAME=\\\\\\\"x\\\\\\\" -std=c++20 -Winvalid-pch -include string/cmake_pch.hxx -o out.o -c ",
                        path, "\",\n  \"file\": \"", path, "\",\n");
  };
  Write("build/sources/compile_commands.json", command("a/good.cc") + command("a/bad.cc"));
  Write("build/string/cmake_pch.hxx", "#include <string>\n");
  Write("a/good.cc", "#include <string>\nstd::string name = NAME;\n");
  const auto [status, output] = Run("VERIFY_BASE=HEAD tools/check-sanitizers.sh");
  EXPECT_EQ(status, 0) << output;
  EXPECT_EQ(output, "1 files\n");
  Write("a/bad.cc", "std::string name = NAME;\n");
  const auto [refused, why] = Run("VERIFY_BASE=HEAD tools/check-sanitizers.sh");
  EXPECT_EQ(refused, 1) << why;
  EXPECT_NE(why.find("a/bad.cc:1"), std::string::npos) << why;

  // An error that was found counts, too, where the time is over before the other sources were read.
  Write("bin/timeout", "#!/bin/sh\nshift 2\n\"$@\"\nexit 124\n");
  fs::permissions(root_ / "bin/timeout", fs::perms::owner_all);
  EXPECT_EQ(Run("PATH=$PWD/bin:$PATH VERIFY_BASE=HEAD tools/check-sanitizers.sh").first, 1);
  Write("a/bad.cc", "#include <string>\nstd::string other = NAME;\n");
  const auto [late, rest] = Run("PATH=$PWD/bin:$PATH VERIFY_BASE=HEAD tools/check-sanitizers.sh");
  EXPECT_EQ(late, 0) << rest;
  EXPECT_EQ(rest, "not all of 2 files were read, 300 s were over\n");
}

// A member that is read without its lock is named; gcc's options and what clang warns of besides are of no interest.
TEST_F(ChangedSources, AreReadForMembersUsedWithoutTheirLock) {
  if (Run("clang++-14 --version").first != 0) GTEST_SKIP() << "there is no clang++-14 here";
  Commit({"a/queue.cc", "a/queue.h", "a/plain.cc"});
  std::string commands;
  for (const char* file : {"a/queue.cc", "a/plain.cc"}) {
    const std::string path = (root_ / file).string();
    absl::StrAppend(&commands, "  \"command\": \"c++ -I", root_.string(), " -std=c++20 -Wall -Werror -Wno-subobject-linkage -o out.o -c ",
                    path, "\",\n  \"file\": \"", path, "\",\n");
  }
  Write("build/sources/compile_commands.json", commands);
  Write("a/plain.cc", "int unused(int x) { int y; }\n");
  const auto [nothing, said] = Run("VERIFY_BASE=HEAD tools/check-thread-safety.sh");
  EXPECT_EQ(nothing, 0) << said;
  EXPECT_EQ(said, "no changed source sees an annotated lock\n");

  Write("a/queue.h",
        "struct __attribute__((capability(\"mutex\"))) Mutex {\n"
        "  void lock() __attribute__((acquire_capability()));\n"
        "  void unlock() __attribute__((release_capability()));\n};\n"
        "#define ABSL_GUARDED_BY(x) __attribute__((guarded_by(x)))\n"
        "struct Queue {\n  int Depth();\n  Mutex mutex;\n  int depth ABSL_GUARDED_BY(mutex) = 0;\n};\n");
  const std::string head = "#include \"a/queue.h\"\nint Queue::Depth() {\n", tail = "  return read;\n}\n";
  Write("a/queue.cc", head + "  mutex.lock();\n  const int read = depth;\n  mutex.unlock();\n" + tail);
  const auto [status, output] = Run("VERIFY_BASE=HEAD tools/check-thread-safety.sh");
  EXPECT_EQ(status, 0) << output;
  EXPECT_EQ(output, "1 files\n");
  Write("a/queue.cc", head + "  const int read = depth;\n" + tail);
  const auto [refused, why] = Run("VERIFY_BASE=HEAD tools/check-thread-safety.sh");
  EXPECT_EQ(refused, 1) << why;
  EXPECT_NE(why.find("reading variable 'depth' requires holding mutex 'mutex'"), std::string::npos) << why;
}

}  // namespace
}  // namespace fusionllm::tidy
