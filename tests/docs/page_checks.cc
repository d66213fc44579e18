#include "tests/docs/page_checks.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/docs/markdown.h"

namespace fusionllm::docs {
namespace {

using tidy::Finding;
using tidy::SourceFile;

constexpr absl::string_view kEntry = "- **", kMeans = "**: ";
constexpr size_t kWhereGeneratedPagesSaySo = 512;  // bytes from the begin

// As terms are compared.
std::string Folded(absl::string_view text) {
  std::string folded = absl::AsciiStrToLower(absl::StrReplaceAll(text, {{"`", ""}}));
  while (!folded.empty() && absl::StrContains(".:,;!?", folded.substr(folded.size() - 1))) folded.pop_back();
  return folded;
}

// "term" of "- **Term**: what it is"; empty: the line is of another form.
std::string TermOf(absl::string_view line) {
  if (!absl::ConsumePrefix(&line, kEntry)) return "";
  const size_t end = line.find(kMeans);
  if (end == absl::string_view::npos || absl::StripAsciiWhitespace(line.substr(end + kMeans.size())).empty()) return "";
  return Folded(line.substr(0, end));
}

bool HasScheme(absl::string_view target) {
  const size_t end = target.find(':');
  if (absl::StartsWith(target, "//")) return true;
  return end != absl::string_view::npos && end > 0 && target.find_first_of("/#?") > end &&
         absl::ascii_isalpha(static_cast<unsigned char>(target[0]));
}

bool IsFolder(const std::string& path, const std::set<std::string>& files) {
  const std::string prefix = path == "." ? "" : absl::StrCat(path, "/");
  const auto first = files.lower_bound(prefix);
  return first != files.end() && absl::StartsWith(*first, prefix);
}

// Empty: the link is in order.
std::string ProblemOf(const std::string& target, const std::string& page, const std::set<std::string>& files,
                      const std::map<std::string, std::set<std::string>>& anchors) {
  if (target.empty()) return "a link that leads nowhere";
  if (HasScheme(target)) return "";
  const size_t hash = target.find('#');
  const std::string path = target.substr(0, std::min(hash, target.find('?')));
  if (absl::StartsWith(path, "/")) return absl::StrCat(target, ": write the path from the folder of this page");
  std::string found = page;
  if (!path.empty()) {
    found = (std::filesystem::path(page).parent_path() / path).lexically_normal().string();
    if (absl::EndsWith(found, "/")) found.pop_back();
    if (found == ".." || absl::StartsWith(found, "../")) return absl::StrCat(target, " leads out of the repository");
    if (!files.contains(found) && !IsFolder(found, files)) return absl::StrCat(target, ": there is no ", found);
  }
  const auto known = anchors.find(found);
  if (hash == std::string::npos || known == anchors.end()) return "";
  const std::string anchor = target.substr(hash + 1);
  return known->second.contains(anchor) ? "" : absl::StrCat(target, ": ", found, " has no heading #", anchor);
}

}  // namespace

bool MayDefineTerms(const SourceFile& page) {
  if (!absl::StartsWith(page.path, "docs/") || !absl::EndsWith(page.path, ".md") || page.path == "docs/glossary.md") return false;
  if (absl::StartsWith(page.path, "docs/design/adr/") || absl::StartsWith(page.path, "docs/results/")) return false;
  return !absl::StrContains(absl::string_view(page.text).substr(0, kWhereGeneratedPagesSaySo), "<!-- Generated");
}

std::set<std::string> TermsOf(absl::string_view glossary) {
  std::set<std::string> terms;
  for (const absl::string_view line : absl::StrSplit(glossary, '\n')) {
    const std::string term = TermOf(line);
    if (!term.empty()) terms.insert(term);
  }
  return terms;
}

std::vector<Finding> CheckGlossary(const SourceFile& glossary) {
  std::vector<Finding> findings;
  int number = 0;
  std::string before;
  bool in_entry = false;
  for (const absl::string_view line : absl::StrSplit(glossary.text, '\n')) {
    ++number;
    const auto add = [&](const std::string& message) { findings.push_back({glossary.path, number, "glossary-form", message}); };
    if (!absl::StartsWith(line, "- ")) {
      if (in_entry && absl::StartsWith(line, " ")) add("an entry is one line");
      in_entry = in_entry && absl::StartsWith(line, " ");
      continue;
    }
    in_entry = true;
    const std::string term = TermOf(line);
    if (term.empty()) {
      add("an entry is written `- **term**: what it is`");
    } else if (term == before) {
      add(absl::StrCat(term, " is there twice"));
    } else if (term < before) {
      add(absl::StrCat(term, " stands behind ", before, ", against the alphabet"));
    }
    if (!term.empty()) before = term;
  }
  return findings;
}

std::vector<Finding> CheckTerms(const SourceFile& page, const std::set<std::string>& terms) {
  std::vector<Finding> findings;
  for (const Place& bold : BoldOf(page.text)) {
    if (terms.contains(Folded(bold.text))) continue;
    const std::string message =
        absl::StrCat("'", bold.text, "' is in bold, as a term is where it is defined, and docs/glossary.md lacks it");
    findings.push_back({page.path, bold.line, "glossary", message});
  }
  return findings;
}

std::vector<Finding> CheckLinks(const SourceFile& page, const std::set<std::string>& files,
                                const std::map<std::string, std::set<std::string>>& anchors) {
  std::vector<Finding> findings;
  for (const Place& link : LinksOf(page.text)) {
    const std::string problem = ProblemOf(link.text, page.path, files, anchors);
    if (!problem.empty()) findings.push_back({page.path, link.line, "link", problem});
  }
  return findings;
}

std::string ScriptOf(const SourceFile& page) {
  const std::vector<absl::string_view> page_lines = absl::StrSplit(page.text, '\n');
  std::vector<std::string> lines(page_lines.size());
  bool any = false;
  for (const Fence& fence : FencesOf(page.text)) {
    if (fence.info != "bash") continue;
    // The fence itself takes fence.line, which counts from 1: what it holds begins at that index.
    std::copy(fence.lines.begin(), fence.lines.end(), lines.begin() + fence.line);
    any = any || !fence.lines.empty();
  }
  if (!any) return "";
  // No fence begins above the first line, so that one is free.
  lines[0] = absl::StrCat("set -eE -o pipefail; trap 'echo \"", page.path, ":$LINENO: this command ended with exit code $?\" >&2' ERR");
  return absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
}

}  // namespace fusionllm::docs
