// Every rule of the lint flags the snippet it was made for, and leaves its neighbour alone.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tidy/bans.h"
#include "tests/tidy/folder_table.h"
#include "tests/tidy/identifiers.h"
#include "tests/tidy/includes.h"
#include "tests/tidy/reasons.h"
#include "tests/tidy/registration.h"
#include "tests/tidy/repository.h"
#include "tests/tidy/variables.h"

namespace fusionllm::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// "rule:line" of every finding.
std::vector<std::string> Places(const std::vector<Finding>& findings) {
  std::vector<std::string> places;
  for (const Finding& finding : findings) places.push_back(absl::StrCat(finding.rule, ":", finding.line));
  return places;
}

std::vector<std::string> Bans(const std::string& path, const std::string& text) { return Places(CheckBans({path, text})); }

struct BanCase {
  std::string name;
  std::string path;
  std::string flagged;
  std::string rule;
  std::string good_path;
  std::string good;
};

class BanTest : public ::testing::TestWithParam<BanCase> {};

TEST_P(BanTest, FlagsTheLineAndSparesItsNeighbour) {
  const BanCase& c = GetParam();
  const std::string guard = c.path.ends_with(".h") ? "#pragma once\n" : "\n";
  EXPECT_THAT(Bans(c.path, guard + c.flagged + "\n"), ElementsAre(c.rule + ":2"));
  const std::string good_guard = c.good_path.ends_with(".h") ? "#pragma once\n" : "\n";
  EXPECT_THAT(Bans(c.good_path, good_guard + c.good + "\n"), IsEmpty());
  EXPECT_THAT(Bans(c.path, guard + c.flagged + "  // tidy-allow: " + c.rule + " because the test says so\n"), IsEmpty());
  EXPECT_THAT(Bans(c.path, guard + c.flagged + "  // tidy-allow: " + c.rule + "\n"), ElementsAre(c.rule + ":2")) << "a reason is required";
}

INSTANTIATE_TEST_SUITE_P(
    EveryRule, BanTest,
    ::testing::Values(
        BanCase{"UsingNamespace", "lib/a/a.h", "  using namespace std;", "using-namespace", "lib/a/a.cc", "using namespace std;"},
        BanCase{"Sleep", "lib/a/a_test.cc", "std::this_thread::sleep_for(delay);", "sleep", "lib/a/a.cc",
                "std::this_thread::sleep_for(delay);"},
        BanCase{"PlainSleep", "lib/a/a_test.cc", "sleep(1);", "sleep", "lib/a/a_test.cc", "NoSleep(1); asleep(2);"},
        BanCase{"AbslSleep", "tests/a_test.cc", "absl::SleepFor(d);", "sleep", "tests/a_test.cc", "SleepForever(d);"},
        BanCase{"SleepInAFixture", "lib/a/testing/fixture.h", "usleep(5);", "sleep", "lib/a/testing.cc", "usleep(5);"},
        BanCase{"RandomDevice", "lib/a/a_test.cc", "std::mt19937 draw(std::random_device{}());", "rand", "lib/a/a.cc", "random_devices"},
        BanCase{"Rand", "lib/a/a.cc", "int i = std::rand();", "rand", "lib/a/a.cc", "int i = operand();"},
        BanCase{"Srand", "cli/a.cc", "srand(1);", "rand", "docs/a.md", "srand(1);"},
        BanCase{"Port", "lib/a/a_test.cc", "Listen(\"127.0.0.1:5000\");", "port", "lib/a/a_test.cc", "Listen(\"127.0.0.1:0\");"},
        BanCase{"PortOfAName", "cli/a.cc", "\"localhost:80\"", "port", "docs/a.md", "curl localhost:80"},
        BanCase{"Todo", "docs/a.md", "TODO: write this", "unfinished", "docs/a.md", "TODOS are banned"},
        BanCase{"Fixme", "lib/a/a.cc", "// FIXME(me)", "unfinished", "lib/a/a.cc", "// fixme in lower case is a word"},
        BanCase{"Iostream", "lib/a/a.cc", "#include <iostream>", "iostream", "cli/a.cc", "#include <iostream>"},
        BanCase{"Json", "operator/a.cc", "auto x = nlohmann::json::parse(text);", "json", "operator/a_test.cc", "json::parse(text);"},
        BanCase{"RawMutex", "lib/a/a.h", "  std::mutex mutex_;", "raw-mutex", "lib/a/a.h", "void F(std::unique_lock<std::mutex>& lock);"},
        BanCase{"RawLock", "services/a.cc", "const std::lock_guard lock(mutex);", "raw-mutex", "services/a_test.cc",
                "const std::lock_guard lock(mutex);"},
        BanCase{"NothingSaid", "e2e/scenarios/a.sh", "[ -z \"$(k get pods)\" ] || fail", "fail-open", "e2e/scenarios/a.sh",
                "empty k get pods || fail; [ -n \"$(k get pods)\" ] && [ -z \"$left\" ]"},
        BanCase{"NothingSaidUnquoted", "e2e/a.sh", "[[ -z $(k get pods) ]]", "fail-open", "tools/a.sh", "[[ -z $(date) ]]"},
        BanCase{"SomethingElseSaid", "e2e/a.sh", "[ \"$(uid_of \"$1\")\" != \"$2\" ]", "fail-open", "e2e/a.sh",
                "uid=$(uid_of \"$1\") && [ \"$uid\" != \"$2\" ]; [ \"$(now)\" = \"$2\" ]"},
        BanCase{"MachinePath", "docs/a.md", "see /home/main", "machine-path", "docs/a.md", "see frame/home/main and $HOME/work/x"},
        BanCase{"PrivateWord", "lib/a/a.cc", "bool ToldTwice();", "private-word", "lib/a/a.cc", "bool Seattle();  // told by \"Patience\""},
        BanCase{"PrivateWordInSnakeCase", "lib/a/a_test.cc", "int64_t letter_bytes = 1;", "private-word", "lib/a/a_test.cc",
                "Renew(letterbox, CURLOPT_NOBODY, \"letter_bytes\");"},
        BanCase{"PrivateWordOfAConstant", "lib/a/a.h", "constexpr int kMostBytes = 1;", "private-word", "lib/a/a.h",
                "constexpr int kMaxBytes = AtMost(1), kAlmostMost = 2;"},
        BanCase{"PrivatePair", "lib/a/a.h", "bool FitsMatrixUnits(int size);", "private-word", "lib/a/a.h",
                "int matrix_rows = UnitsOf(matrix);  // matrix units"},
        BanCase{"PrivatePairInSnakeCase", "lib/a/a.cc", "Meter processor_use;", "private-word", "lib/a/a.cc", "bool use_processor;"},
        BanCase{"RootPath", "tools/a.sh", "cd \"/root/x\"", "machine-path", "tools/a.sh", "cd /var/root/x"}),
    [](const auto& info) { return info.param.name; });

TEST(BansTest, EachServerAndEachChannelRefusesCompressedMessages) {
  const std::string refuse = "security::RefuseCompressedMessages(arguments);\n", open = "grpc::CreateCustomChannel(a, b, arguments);\n";
  EXPECT_THAT(Bans("cli/a.cc", refuse + open), IsEmpty());
  EXPECT_THAT(Bans("cli/a.cc", open), ElementsAre("compressed:1"));
  EXPECT_THAT(Bans("cli/a.cc", open + refuse), ElementsAre("compressed:1"));
  EXPECT_THAT(Bans("cli/a.cc", refuse + open + open), ElementsAre("compressed:3")) << "one for each";
  EXPECT_THAT(Bans("cli/a.cc", "builder.BuildAndStart();\n"), ElementsAre("compressed:1"));
  EXPECT_THAT(Bans("cli/a.cc", "grpc::CreateChannel(a, b);\n"), ElementsAre("compressed:1"));
  EXPECT_THAT(Bans("cli/a_test.cc", open), IsEmpty());
  EXPECT_THAT(Bans("cli/a.cc", "builder.BuildAndStart();  // tidy-allow: compressed because the test says so\n"), IsEmpty());
}

TEST(BansTest, AMutexSaysWhatItGuardsOrWhatItIsHeldFor) {
  const std::string mutex = "  mutable base::Mutex mutex_;\n", other = "  int n ABSL_GUARDED_BY(other_mutex_);\n";
  EXPECT_THAT(Bans("lib/a/a.cc", mutex + other), ElementsAre("unguarded-mutex:1"));
  EXPECT_THAT(Bans("lib/a/a.cc", mutex + "  int n ABSL_GUARDED_BY(mutex_);\n"), IsEmpty());
  EXPECT_THAT(Bans("lib/a/a.cc", "  static base::Mutex mutex;\n  static auto* n ABSL_PT_GUARDED_BY(mutex) = new int;\n"), IsEmpty());
  EXPECT_THAT(Bans("lib/a/a.cc", "  base::Mutex mutex_;  // one call at a time\n"), IsEmpty());
  EXPECT_THAT(Bans("lib/a/a.cc", "  // One call at a time.\n" + mutex), IsEmpty());
  EXPECT_THAT(Bans("lib/a/a_test.cc", mutex), IsEmpty());
}

TEST(BansTest, AHeaderNeedsPragmaOnceOnALineOfItsOwn) {
  EXPECT_THAT(Bans("lib/a/a.h", "int f();\n"), ElementsAre("pragma-once:0"));
  EXPECT_THAT(Bans("lib/a/a.h", "// #pragma once\n"), ElementsAre("pragma-once:0"));
  EXPECT_THAT(Bans("lib/a/a.h", "// What it is.\n#pragma once\n"), IsEmpty());
}

TEST(BansTest, LengthWarnsAbove500AndFailsAbove1000) {
  const auto lines = [](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += "int x;\n";
    return text;
  };
  EXPECT_THAT(CheckBans({"lib/a/a.cc", lines(500)}), IsEmpty());
  EXPECT_THAT(CheckBans({"docs/a.md", lines(2000)}), IsEmpty());
  const std::vector<Finding> warned = CheckBans({"lib/a/a.cc", lines(501)});
  ASSERT_EQ(warned.size(), 1);
  EXPECT_EQ(warned[0].severity, Severity::kWarning);
  EXPECT_EQ(CheckBans({"lib/a/a.cc", lines(1000)})[0].severity, Severity::kWarning);
  EXPECT_EQ(CheckBans({"lib/a/a.cc", lines(1001)})[0].severity, Severity::kError);
}

TEST(IdentifiersTest, CommentsStringsAndCharactersHaveNone) {
  const auto names = [](const std::string& text) {
    std::vector<std::string> found;
    for (const Identifier& identifier : IdentifiersOf(text)) found.push_back(absl::StrCat(identifier.name, ":", identifier.line));
    return found;
  };
  EXPECT_THAT(names("a_1 = b; // c\nd /* e\nf */ g"), ElementsAre("a_1:1", "b:1", "d:2", "g:3"));
  EXPECT_THAT(names("a(\"b \\\" c\", 'd', '\\'', 1'000, 'e') f"), ElementsAre("a:1", "f:1"));
  EXPECT_THAT(names("a(R\"x(b\n\" )\" c)x\") d"), ElementsAre("a:1", "d:2"));
  EXPECT_THAT(names("\"a\nb"), ElementsAre("b:2")) << "a string ends with its line";
  EXPECT_THAT(names("/* a"), IsEmpty());
}

TEST(IdentifiersTest, PartsBeginAtCapitalsUnderscoresAndDigits) {
  EXPECT_THAT(PartsOf("kMaxBytes"), ElementsAre("k", "Max", "Bytes"));
  EXPECT_THAT(PartsOf("AHubOfURLs_left2go_"), ElementsAre("A", "Hub", "Of", "UR", "Ls", "left", "go"));
  EXPECT_THAT(PartsOf("HTTPCode"), ElementsAre("HTTP", "Code"));
  EXPECT_THAT(PartsOf("_1_"), IsEmpty());
}

TEST(BansTest, TheLintMaySpellWhatItBans) { EXPECT_THAT(Bans("tests/tidy/a.cc", "// TODO\n"), IsEmpty()); }

constexpr char kLayers[] =
    "# comment\n"
    "lib/low:\n"
    "lib/side: lib/low  # why\n"
    "lib/top: lib/low\n"
    "cli: *\n"
    "ban lib/top: grpc chrono$ lib/side/\n";

std::vector<std::string> Includes(const std::string& path, const std::string& text) {
  static const std::set<std::string> kFiles = {"lib/low/low.h", "lib/side/side.h", "lib/top/top.h", "cli/main.cc", "lib/low/wire.proto"};
  return Places(CheckIncludes({path, text}, *LayerTable::Parse(kLayers), kFiles));
}

TEST(IncludesTest, AnIncludeGoesDownTheTable) {
  EXPECT_THAT(Includes("lib/top/top.cc", "#include \"lib/top/top.h\"\n#include \"lib/low/low.h\"\n"), IsEmpty());
  EXPECT_THAT(Includes("lib/low/low.cc", "\n#include \"lib/top/top.h\"\n"), ElementsAre("layer:2"));
  EXPECT_THAT(Includes("lib/side/side.cc", "#  include \"lib/top/top.h\"\n"), ElementsAre("layer:1"));
  EXPECT_THAT(Includes("cli/main.cc", "#include \"lib/top/top.h\"\n"), IsEmpty());
}

TEST(IncludesTest, TestsMayLookSidewaysButNotUpToPrograms) {
  EXPECT_THAT(Includes("lib/low/low_test.cc", "#include \"lib/top/top.h\"\n"), IsEmpty());
  EXPECT_THAT(Includes("lib/low/low_test.cc", "#include \"cli/main.cc\"\n"), ElementsAre("layer:1"));
}

TEST(IncludesTest, BansHoldForTestsToo) {
  EXPECT_THAT(Includes("lib/top/top.cc", "#include <chrono>\n"), ElementsAre("layer-ban:1"));
  EXPECT_THAT(Includes("lib/top/top_test.cc", "#include <grpcpp/grpcpp.h>\n"), ElementsAre("layer-ban:1"));
  EXPECT_THAT(Includes("lib/top/top_test.cc", "#include \"lib/side/side.h\"\n"), ElementsAre("layer-ban:1"));
  EXPECT_THAT(Includes("lib/top/top.cc", "#include <chrono_literals>\n"), IsEmpty()) << "`$` ends the name";
  EXPECT_THAT(Includes("lib/side/side.cc", "#include <chrono>\n"), IsEmpty());
}

TEST(IncludesTest, AQuotedIncludeIsAPathFromTheRoot) {
  EXPECT_THAT(Includes("lib/low/low.cc", "#include \"low.h\"\n"), ElementsAre("include-path:1"));
  EXPECT_THAT(Includes("lib/low/low.cc", "#include \"../low/low.h\"\n"), ElementsAre("include-path:1"));
  EXPECT_THAT(Includes("lib/low/low.cc", "#include \"lib/low/gone.h\"\n"), ElementsAre("include-path:1"));
  EXPECT_THAT(Includes("lib/low/low.cc", "#include <lib/low/low.h>\n"), ElementsAre("include-path:1"));
  EXPECT_THAT(Includes("lib/low/low.cc", "#include \"absl/status/status.h\"\n#include <vector>\n"), IsEmpty());
  EXPECT_THAT(Includes("lib/low/low.cc", "#include \"lib/low/wire.pb.h\"\n#include \"lib/low/wire.grpc.pb.h\"\n"), IsEmpty());
}

TEST(IncludesTest, AFolderOutsideTheTableIsFlagged) { EXPECT_THAT(Includes("lib/new/new.cc", ""), ElementsAre("layer:0")); }

TEST(LayerTableTest, RefusesWhatCouldHideACycleOrAMistake) {
  EXPECT_THAT(LayerTable::Parse("lib/a: lib/b\nlib/b:\n").status().message(), HasSubstr("layers.txt:1: lib/b has no line above"));
  EXPECT_THAT(LayerTable::Parse("lib/a:\nlib/a:\n").status().message(), HasSubstr("layers.txt:2: lib/a has two lines"));
  EXPECT_THAT(LayerTable::Parse("lib/a lib/b\n").status().message(), HasSubstr("layers.txt:1: expected FOLDER"));
}

std::vector<std::string> FolderProblems(const std::string& readme) {
  std::vector<std::string> messages;
  for (const Finding& finding :
       CheckFolderTable({"README.md", readme}, {"README.md", ".ci/run", "docs/a.md", "lib/low/deep/low.h", "tests/tidy/a.cc"})) {
    messages.push_back(finding.message);
  }
  return messages;
}

TEST(FolderTableTest, ListsExactlyTheFoldersThatExist) {
  const std::string rows = "| `docs/` | prose |\n| `lib/` | code |\n| `lib/low/` | base |\n";
  EXPECT_THAT(FolderProblems(rows + "| `tests/` | all |\n| `make test` | a row of another table |\n"), IsEmpty());
  EXPECT_THAT(FolderProblems(rows), ElementsAre("the table of folders has no row for tests/"));
  EXPECT_THAT(FolderProblems(rows + "| `tests/` | all |\n| `lib/gone/` | was |\n"), ElementsAre("there is no folder lib/gone/"));
  EXPECT_THAT(FolderProblems(rows + "| `tests/` | all |\n| `lib/` | again |\n"), ElementsAre("lib/ has two rows"));
  EXPECT_THAT(FolderProblems(rows + "| `tests/` | |\n"), ElementsAre("tests/ has a row that does not say what is in it"));
}

std::vector<std::string> ReasonProblems(const std::string& rows, const std::string& source, const std::string& other_words = "") {
  std::vector<std::string> messages;
  const std::string page = "| `Other` | in another table |\n\n| reason | of | |\n|---|---|---|\n" + rows;
  for (const Finding& finding : CheckReasons({"docs/a.md", page}, {{"operator/a.cc", source}}, {"words.txt", other_words})) {
    messages.push_back(finding.message);
  }
  return messages;
}

TEST(ReasonsTest, ThePageExplainsWhatTheSourcesSayAndNothingElse) {
  const std::string rows = "| `Away` | `Ready` | gone |\n| `LostA`, `LostB` | all | lost |\n",
                    source = "Say(\"Away\"); x ? \"LostA\" : \"LostB\";";
  EXPECT_THAT(ReasonProblems(rows, source), IsEmpty());
  EXPECT_THAT(ReasonProblems(rows, source + "\n// not \"Commented\", nor \"two Words\" or \"camelCase\" or \"ALL\""), IsEmpty());
  EXPECT_THAT(ReasonProblems(rows, source + " Say(\"NewOne\");"),
              ElementsAre("\"NewOne\": docs/a.md does not explain it, nor does words.txt say that it is no reason"));
  EXPECT_THAT(ReasonProblems(rows, source + " \"Pod\"", "# kinds\nPod  # of Kubernetes\n"), IsEmpty());
  EXPECT_THAT(ReasonProblems(rows, source, "Pod\n"), ElementsAre("Pod is in no source"));
  EXPECT_THAT(ReasonProblems(rows, source, "Away\n"), ElementsAre("explains Away, which is no reason by words.txt"));
  EXPECT_THAT(ReasonProblems(rows, "\"Away\" \"LostA\""), ElementsAre("explains LostB, which nothing says"));
  EXPECT_THAT(ReasonProblems(rows + "| `Lost...` | event | each |\n", source + "\"Lost\"", "Lost\n"), IsEmpty()) << "and what follows";
  EXPECT_THAT(ReasonProblems(rows + "| `Late` | event | |\n", source + "\"Late\""), ElementsAre("a row of reasons that explains nothing"));
  EXPECT_THAT(ReasonProblems(rows, source + "\"Other\""), SizeIs(1)) << "that table is of something else";
}

TEST(ReasonsTest, TestsAndTheLoadSayNoneToUsers) {
  for (const char* path : {"operator/lifecycle/decide.h", "services/broker/run_events.cc"}) EXPECT_TRUE(MaySetReasons(path)) << path;
  for (const char* path : {"operator/a/b_test.cc", "operator/a/b_fuzz.cc", "operator/a/testing/b.h", "tests/load/crash_run.cc",
                           "operator/CMakeLists.txt", "lib/kube/pod.cc", "services/broker/run_loop.cc"}) {
    EXPECT_FALSE(MaySetReasons(path)) << path;
  }
}

TEST(VariablesTest, ThePageNamesWhatScriptsTake) {
  const auto problems = [](const std::string& script) {
    std::vector<std::string> messages;
    for (const Finding& finding : CheckVariables({"README.md", "| `CACHE_DIR` | where |"}, {{"a.sh", script}}))
      messages.push_back(finding.message);
    return messages;
  };
  EXPECT_THAT(problems("cache=${CACHE_DIR:-${HOME-}/x} ${own:-1} ${2:-2} ${MUST_BE:?} ${LEFT%s}"), IsEmpty());
  EXPECT_THAT(problems("a=${CACHE:-1}\nb=${CACHE:-2}"), ElementsAre("takes CACHE, which README.md does not name"));
  EXPECT_THAT(problems("a=${CACHE_DIR:-${INNER_1-3}}"), ElementsAre("takes INNER_1, which README.md does not name"));
}

std::vector<std::string> UnlistedHeaders(const std::string& build_file) {
  std::vector<std::string> paths;
  for (const Finding& finding :
       CheckHeaderLists({{"lib/low/CMakeLists.txt", build_file}}, {"lib/low/low.h", "lib/low/deep/deep.h", "tests/tidy/a.h"})) {
    paths.push_back(finding.path);
  }
  return paths;
}

TEST(RegistrationTest, AHeaderThatNoBuildFileNamesIsFlagged) {
  EXPECT_THAT(UnlistedHeaders("fusionllm_library(NAME low HEADERS low.h deep/deep.h)"), IsEmpty());
  EXPECT_THAT(UnlistedHeaders("fusionllm_library(NAME low HEADERS deep/deep.h\n  slow.h)"), ElementsAre("lib/low/low.h"));
  EXPECT_THAT(UnlistedHeaders("fusionllm_library(NAME low HEADERS low.h deep.h)"), ElementsAre("lib/low/deep/deep.h"));
}

TEST(RegistrationTest, AHeaderWithoutABuildFileIsAWarning) {
  const std::vector<Finding> findings = CheckHeaderLists({{"lib/b/CMakeLists.txt", "a.h"}}, {"lib/a/a.h"});
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
}

TEST(RepositoryTest, TextIsDistinguishedFromData) {
  EXPECT_TRUE(IsText("lib/a/a.cc"));
  EXPECT_TRUE(IsText("docker/Dockerfile"));
  EXPECT_FALSE(IsText("tests/golden/a.safetensors"));
}

TEST(RepositoryTest, AFolderOutsideGitIsRefusedWithGitsAnswer) {
  const absl::StatusOr<std::set<std::string>> files = ListFiles("/proc");
  ASSERT_FALSE(files.ok());
  EXPECT_THAT(std::string(files.status().message()), HasSubstr("needs a git checkout"));
}

}  // namespace
}  // namespace fusionllm::tidy
