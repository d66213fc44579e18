// What is read of a page: good and bad examples.
#include "tests/docs/markdown.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::docs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// "line:text" of each.
std::vector<std::string> LinesOf(const std::vector<Place>& places) {
  std::vector<std::string> found;
  for (const Place& place : places) found.push_back(absl::StrCat(place.line, ":", place.text));
  return found;
}

TEST(FencesTest, KeepsLinesAndTheSecondWord) {
  const std::vector<Fence> fences = FencesOf("# a\n\n```bash\nls\n\nls -l\n```\n```bash gpu\n```\n");
  ASSERT_THAT(fences, SizeIs(2));
  EXPECT_EQ(fences[0].line, 3);
  EXPECT_EQ(fences[0].info, "bash");
  EXPECT_THAT(fences[0].lines, ElementsAre("ls", "", "ls -l"));
  EXPECT_EQ(fences[1].line, 8);
  EXPECT_EQ(fences[1].info, "bash gpu");
  EXPECT_THAT(fences[1].lines, IsEmpty());
}

TEST(FencesTest, TakesTheIndentationOfAListAway) {
  const std::vector<Fence> fences = FencesOf("1. first\n\n   ```bash\n   if x; then\n     y\n   fi\n   ```\n");
  ASSERT_THAT(fences, SizeIs(1));
  EXPECT_THAT(fences[0].lines, ElementsAre("if x; then", "  y", "fi"));
}

TEST(FencesTest, ALongerFenceHoldsAShorterOne) {
  const std::vector<Fence> fences = FencesOf("````\n```bash\n```\n````\n~~~\n```\n~~~\n");
  ASSERT_THAT(fences, SizeIs(2));
  EXPECT_THAT(fences[0].lines, ElementsAre("```bash", "```"));
  EXPECT_THAT(fences[1].lines, ElementsAre("```"));
}

TEST(FencesTest, OneThatIsNotClosedGoesToTheEnd) { EXPECT_THAT(FencesOf("```bash\nls\n")[0].lines, ElementsAre("ls", "")); }

TEST(FencesTest, CodeWithinALineOpensNone) { EXPECT_THAT(FencesOf("```x``` is code\n"), IsEmpty()); }

TEST(MarkdownLinksTest, FindsEveryForm) {
  EXPECT_THAT(LinesOf(LinksOf("see [a](b.md) and\n[`c`](d.md#e), ![f](g.svg \"title\")\n")), ElementsAre("1:b.md", "2:d.md#e", "2:g.svg"));
  EXPECT_THAT(LinesOf(LinksOf("a [long\ntext](b.md)\n")), ElementsAre("2:b.md"));
  EXPECT_THAT(LinesOf(LinksOf("[a](b_(c).md) ([d](e.md))\n")), ElementsAre("1:b_(c).md", "1:e.md"));
  EXPECT_THAT(LinesOf(LinksOf("[a](<b c.md>)\n")), ElementsAre("1:b c.md"));
  EXPECT_THAT(LinesOf(LinksOf("[a]\n\n[a]: b.md\n[^1]: a note\n")), ElementsAre("3:b.md"));
  EXPECT_THAT(LinesOf(LinksOf("| [a](b.md) | [c](d.md) |\n")), ElementsAre("1:b.md", "1:d.md"));
  EXPECT_THAT(LinesOf(LinksOf("<a href=\"b.md\"><img src=\"c.svg\"></a>\n")), ElementsAre("1:b.md", "1:c.svg"));
  EXPECT_THAT(LinesOf(LinksOf("[a]()\n")), ElementsAre("1:"));
}

TEST(MarkdownLinksTest, CodeHasNone) {
  EXPECT_THAT(LinksOf("```\n[a](b.md)\n```\n"), IsEmpty());
  EXPECT_THAT(LinksOf("`[a](b.md)` and ``x ` [c](d.md)``\n"), IsEmpty());
  EXPECT_THAT(LinksOf("`[a](b.md)\nc`\n"), IsEmpty()) << "code goes over the end of a line";
  EXPECT_THAT(LinksOf("<!-- [a](b.md) -->\n"), IsEmpty());
  EXPECT_THAT(LinesOf(LinksOf("- a ` alone\n- [b](c.md) and another `\n")), ElementsAre("2:c.md")) << "but not over that of an item";
}

TEST(BoldTest, FindsTextWithItsCodeAndOverLines) {
  EXPECT_THAT(LinesOf(BoldOf("A **stage** is, and a **micro-\nbatch** too. **`b`**\n")), ElementsAre("1:stage", "1:micro- batch", "2:`b`"));
  EXPECT_THAT(LinesOf(BoldOf("| **a** | b ** c ** d **e** |\n")), ElementsAre("1:a", "1:e"));
}

TEST(BoldTest, CodeHasNone) {
  EXPECT_THAT(BoldOf("`docs/**/*.md` and `**`\n```\n**a**\n```\n"), IsEmpty());
  EXPECT_THAT(BoldOf("2 ** 3, *a*\n"), IsEmpty());
}

TEST(AnchorsTest, FollowGitHub) {
  EXPECT_THAT(AnchorsOf("# A Llama, from `these` operators\n## spec.data\n### What's `x_y`?\n"),
              UnorderedElementsAre("a-llama-from-these-operators", "specdata", "whats-x_y"));
  EXPECT_THAT(AnchorsOf("# a\n## A\n## a!\n"), UnorderedElementsAre("a", "a-1", "a-2"));
  EXPECT_THAT(AnchorsOf("# [a b](c.md) \xE2\x80\x94 d\n"), UnorderedElementsAre("a-b--d"));
}

TEST(AnchorsTest, OnlyHeadingsHaveThem) { EXPECT_THAT(AnchorsOf("```bash\n# a\n```\n#b\n####### c\ntext\n"), IsEmpty()); }

}  // namespace
}  // namespace fusionllm::docs
