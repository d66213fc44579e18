// docs/glossary.md has every term that a page defines.
#include "gtest/gtest.h"
#include "tests/docs/documentation.h"
#include "tests/docs/page_checks.h"

namespace fusionllm::docs {
namespace {

constexpr char kGlossary[] = "docs/glossary.md";

class GlossaryTest : public DocumentationTest {
 protected:
  void SetUp() override {
    DocumentationTest::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(pages_.contains(kGlossary));
  }
};

TEST_F(GlossaryTest, EntriesAreOneLineEachInTheOrderOfTheAlphabet) {
  Report(CheckGlossary(pages_.at(kGlossary)));
  EXPECT_GT(TermsOf(pages_.at(kGlossary).text).size(), 50u);
}

TEST_F(GlossaryTest, TermsInBoldHaveAnEntry) {
  const std::set<std::string> terms = TermsOf(pages_.at(kGlossary).text);
  for (const auto& [path, page] : pages_) {
    if (MayDefineTerms(page)) Report(CheckTerms(page, terms));
  }
}

}  // namespace
}  // namespace fusionllm::docs
