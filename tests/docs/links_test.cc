// Every relative link of every page leads to a file or folder of the repository and, with a fragment, to a heading.
#include "gtest/gtest.h"
#include "tests/docs/documentation.h"
#include "tests/docs/markdown.h"
#include "tests/docs/page_checks.h"

namespace fusionllm::docs {
namespace {

class LinksTest : public DocumentationTest {};

TEST_F(LinksTest, RelativeLinksLeadSomewhere) {
  std::map<std::string, std::set<std::string>> anchors;
  for (const auto& [path, page] : pages_) anchors.emplace(path, AnchorsOf(page.text));
  for (const auto& [path, page] : pages_) Report(CheckLinks(page, files_, anchors));
}

}  // namespace
}  // namespace fusionllm::docs
