// Every rule of the documentation flags what it was made for, and leaves its neighbour alone.
#include "tests/docs/page_checks.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::docs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// "line: message" of every finding.
std::vector<std::string> MessagesOf(const std::vector<tidy::Finding>& findings) {
  std::vector<std::string> messages;
  for (const tidy::Finding& finding : findings) messages.push_back(absl::StrCat(finding.line, ": ", finding.message));
  return messages;
}

TEST(GlossaryFormTest, ReadsTermsInLowerCase) {
  EXPECT_THAT(TermsOf("# Glossary\n\n- **Broker**: leads a run.\n- **`top-k`**: a codec.\n- broken\n- **empty**: \n"),
              UnorderedElementsAre("broker", "top-k"));
}

TEST(GlossaryFormTest, EntriesAreSortedLinesOfOneForm) {
  const auto problems = [](const std::string& text) { return MessagesOf(CheckGlossary({"docs/glossary.md", text})); };
  EXPECT_THAT(problems("# Glossary\n\nWords.\n\n- **a**: x\n- **B**: y\n- **b c**: z\n"), IsEmpty());
  EXPECT_THAT(problems("- **b**: x\n- **a**: y\n"), ElementsAre("2: a stands behind b, against the alphabet"));
  EXPECT_THAT(problems("- **a**: x\n- **A**: y\n"), ElementsAre("2: a is there twice"));
  EXPECT_THAT(problems("- a: x\n"), ElementsAre("1: an entry is written `- **term**: what it is`"));
  EXPECT_THAT(problems("- **a**: x\n  and y\n\n  text\n"), ElementsAre("2: an entry is one line"));
}

TEST(TermsTest, BoldTextMustBeATerm) {
  const auto problems = [](const std::string& text) { return MessagesOf(CheckTerms({"docs/a.md", text}, {"stage", "top-k"})); };
  EXPECT_THAT(problems("A **stage** runs. **Stage.** **`top-k`:** x\n"), IsEmpty());
  EXPECT_THAT(problems("x\n\nA **letter** goes.\n"),
              ElementsAre("3: 'letter' is in bold, as a term is where it is defined, and docs/glossary.md lacks it"));
}

TEST(TermsTest, PagesThatPeopleWriteDefineThem) {
  EXPECT_TRUE(MayDefineTerms({"docs/tasks/a.md", "# A\n"}));
  EXPECT_TRUE(MayDefineTerms({"docs/a.md", "# A\n"}));
  for (const char* path : {"README.md", "docs/glossary.md", "docs/results/a.md", "docs/design/adr/0001-a.md", "docs/a.svg"}) {
    EXPECT_FALSE(MayDefineTerms({path, "# A\n"})) << path;
  }
  EXPECT_FALSE(MayDefineTerms({"docs/a.md", "# A\n\n<!-- Generated from lib/a -->\n"}));
}

std::vector<std::string> LinkProblems(const std::string& text) {
  return MessagesOf(CheckLinks({"docs/tasks/a.md", text}, {"README.md", "docs/b.md", "docs/tasks/a.md", "lib/a/a.h"},
                               {{"README.md", {"top"}}, {"docs/b.md", {"one", "two-words"}}, {"docs/tasks/a.md", {"here"}}}));
}

TEST(LinkChecksTest, WhatIsThereIsInOrder) {
  EXPECT_THAT(LinkProblems("[a](../b.md) [b](../b.md#two-words) [c](#here) [d](../../README.md) [e](../../lib/a) [f](../../lib/a/)\n"),
              IsEmpty());
  EXPECT_THAT(LinkProblems("[a](https://example.org/x#y) [b](mailto:a@b.org) [c](../../lib/a/a.h#L10) [d](a.md) [e](..)\n"), IsEmpty());
}

TEST(LinkChecksTest, WhatIsNotThereIsFlagged) {
  EXPECT_THAT(LinkProblems("x\n[a](b.md)\n"), ElementsAre("2: b.md: there is no docs/tasks/b.md"));
  EXPECT_THAT(LinkProblems("[a](../b.md#Two-Words)\n"), ElementsAre("1: ../b.md#Two-Words: docs/b.md has no heading #Two-Words"));
  EXPECT_THAT(LinkProblems("[a](#there)\n"), ElementsAre("1: #there: docs/tasks/a.md has no heading #there"));
  EXPECT_THAT(LinkProblems("[a](/docs/b.md)\n"), ElementsAre("1: /docs/b.md: write the path from the folder of this page"));
  EXPECT_THAT(LinkProblems("[a](../../../b.md)\n"), ElementsAre("1: ../../../b.md leads out of the repository"));
  EXPECT_THAT(LinkProblems("[a](../../lib/b)\n"), ElementsAre("1: ../../lib/b: there is no lib/b"));
  EXPECT_THAT(LinkProblems("[a]()\n"), ElementsAre("1: a link that leads nowhere"));
}

TEST(ScriptTest, CommandsStandWhereThePageHasThem) {
  EXPECT_EQ(ScriptOf({"a.md", "# A\n\n```bash\nls\n```\n\n```bash gpu\nrm x\n```\n```text\nx\n```\n```bash\ncat\n```\n"}),
            "set -eE -o pipefail; trap 'echo \"a.md:$LINENO: this command ended with exit code $?\" >&2' ERR\n"
            "\n\nls\n\n\n\n\n\n\n\n\n\ncat\n\n\n");
}

TEST(ScriptTest, APageWithoutCommandsHasNone) {
  EXPECT_EQ(ScriptOf({"a.md", "# A\n\n```bash cluster\nls\n```\n\n```\nls\n```\n"}), "");
  EXPECT_EQ(ScriptOf({"a.md", ""}), "");
}

}  // namespace
}  // namespace fusionllm::docs
