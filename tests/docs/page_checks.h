// Rules that pages of the documentation keep, and what of a page can be run. Pure functions.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/tidy/finding.h"

namespace fusionllm::docs {

// Whether the glossary must know the page's terms: one below docs/ that people write, and no decision, no results, not the glossary.
bool MayDefineTerms(const tidy::SourceFile& page);

// The terms of docs/glossary.md, in lower case: its lines `- **TERM**: what it is`.
std::set<std::string> TermsOf(absl::string_view glossary);

// Rule glossary-form: an entry of another form or of several lines, one that is there twice, or not in the order of the alphabet.
std::vector<tidy::Finding> CheckGlossary(const tidy::SourceFile& glossary);

// Rule glossary: text in bold that `terms` does not have. Case does not count, nor do backticks and the punctuation behind the text.
std::vector<tidy::Finding> CheckTerms(const tidy::SourceFile& page, const std::set<std::string>& terms);

// Rule link: a link of the page, relative to its folder, that leads to none of `files` nor to a folder of theirs, or whose fragment is none
// of the `anchors` of the page that it leads to. Links with a scheme (https:, mailto:) are not looked at.
std::vector<tidy::Finding> CheckLinks(const tidy::SourceFile& page, const std::set<std::string>& files,
                                      const std::map<std::string, std::set<std::string>>& anchors);

// The commands of a page as a script of bash that ends at the first which fails, and says on stderr which line of the page that is:
// what stands in its fences ```bash, without a second word. Its lines are where they are in the page. Empty: there are none.
std::string ScriptOf(const tidy::SourceFile& page);

}  // namespace fusionllm::docs
