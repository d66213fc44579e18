#include "tests/docs/markdown.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fusionllm::docs {
namespace {

constexpr size_t kNone = absl::string_view::npos;

size_t IndentationOf(absl::string_view line) { return std::min(line.find_first_not_of(' '), line.size()); }

// How many of `mark` stand from `at` on.
size_t RunOf(absl::string_view text, size_t at, char mark) {
  size_t length = 0;
  while (at + length < text.size() && text[at + length] == mark) ++length;
  return length;
}

// The mark and the length of a line that opens a fence; length 0: it opens none.
std::pair<char, size_t> OpeningOf(absl::string_view line) {
  const absl::string_view rest = line.substr(IndentationOf(line));
  if (rest.empty() || (rest[0] != '`' && rest[0] != '~')) return {' ', 0};
  const size_t length = RunOf(rest, 0, rest[0]);
  // "```x```" is code within a line.
  if (length < 3 || (rest[0] == '`' && absl::StrContains(rest.substr(length), "`"))) return {' ', 0};
  return {rest[0], length};
}

bool Closes(absl::string_view line, char mark, size_t length) {
  const absl::string_view rest = absl::StripAsciiWhitespace(line);
  return rest.size() >= length && RunOf(rest, 0, mark) == rest.size();
}

// Prose that belongs together: a paragraph, an item of a list, a row of a table, a heading. Code in backticks does not reach beyond.
struct Block {
  int line = 0;  // its first, from 1
  std::string text;
};

bool BeginsItem(absl::string_view line) {
  const absl::string_view rest = line.substr(IndentationOf(line));
  if (absl::StartsWith(rest, "- ") || absl::StartsWith(rest, "* ") || absl::StartsWith(rest, "+ ")) return true;
  size_t digits = 0;
  while (digits < rest.size() && absl::ascii_isdigit(static_cast<unsigned char>(rest[digits]))) ++digits;
  return digits > 0 && (absl::StartsWith(rest.substr(digits), ". ") || absl::StartsWith(rest.substr(digits), ") "));
}

bool StandsAlone(absl::string_view line) { return absl::StartsWith(line, "#") || absl::StartsWith(line.substr(IndentationOf(line)), "|"); }

struct Page {
  std::vector<Fence> fences;
  std::vector<Block> blocks;
};

Page Read(absl::string_view text) {
  Page page;
  char mark = ' ';
  size_t length = 0, indentation = 0;  // of the fence that is open; length 0: none is
  bool in_block = false;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (length > 0) {
      if (Closes(line, mark, length)) {
        length = 0;
      } else {
        page.fences.back().lines.emplace_back(line.substr(std::min(indentation, IndentationOf(line))));
      }
      continue;
    }
    const auto [opening, run] = OpeningOf(line);
    if (run > 0) {
      mark = opening;
      length = run;
      indentation = IndentationOf(line);
      page.fences.push_back({number, std::string(absl::StripAsciiWhitespace(line.substr(indentation + run))), {}});
      in_block = false;
      continue;
    }
    if (absl::StripAsciiWhitespace(line).empty()) {
      in_block = false;
      continue;
    }
    if (in_block && !BeginsItem(line) && !StandsAlone(line)) {
      absl::StrAppend(&page.blocks.back().text, "\n", line);
    } else {
      page.blocks.push_back({number, std::string(line)});
    }
    in_block = !StandsAlone(line);
  }
  return page;
}

// The text with spaces in the place of code and comments; breaks of lines stay, and so does every position.
std::string WithoutCode(absl::string_view text) {
  std::string plain(text);
  const auto blank = [&plain](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (plain[i] != '\n') plain[i] = ' ';
    }
  };
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\\') {
      at += 2;
      continue;
    }
    if (absl::StartsWith(text.substr(at), "<!--")) {
      const size_t end = text.find("-->", at);
      const size_t behind = end == kNone ? text.size() : end + 3;
      blank(at, behind);
      at = behind;
      continue;
    }
    if (text[at] != '`') {
      ++at;
      continue;
    }
    const size_t run = RunOf(text, at, '`');
    size_t close = at + run;  // as many backticks
    while (close < text.size() && RunOf(text, close, '`') != run) close += std::max<size_t>(1, RunOf(text, close, '`'));
    if (close >= text.size()) {
      at += run;  // they stand for themselves
      continue;
    }
    blank(at, close + run);
    at = close + run;
  }
  return plain;
}

int LineAt(const Block& block, size_t at) {
  return block.line + static_cast<int>(std::count(block.text.begin(), block.text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

// From `at` on, behind a "(" or a ":": what the link leads to.
std::string TargetAt(absl::string_view text, size_t at) {
  while (at < text.size() && absl::ascii_isspace(static_cast<unsigned char>(text[at]))) ++at;
  if (at < text.size() && text[at] == '<') {
    const size_t end = text.find('>', at);
    return std::string(text.substr(at + 1, end == kNone ? kNone : end - at - 1));
  }
  size_t end = at;
  for (int open = 0; end < text.size() && !absl::ascii_isspace(static_cast<unsigned char>(text[end])); ++end) {
    if (text[end] == '(') ++open;
    if (text[end] == ')' && open-- == 0) break;
  }
  return std::string(text.substr(at, end - at));
}

// "[label]: " at the begin of a line, but no footnote ("[^1]: "): the position behind the colon; kNone: it is none.
size_t BehindLabel(absl::string_view line) {
  if (line.size() < 2 || line[0] != '[' || line[1] == '^') return kNone;
  const size_t end = line.find("]:");
  return end == kNone || absl::StrContains(line.substr(1, end - 1), "]") ? kNone : end + 2;
}

// A heading's text: of a link what is read of it.
std::string WithoutTargets(absl::string_view heading) {
  std::string text;
  for (size_t at = 0; at < heading.size();) {
    if (!absl::StartsWith(heading.substr(at), "](")) {
      text += heading[at++];
      continue;
    }
    const size_t end = heading.find(')', at);
    if (end == kNone) return absl::StrCat(text, heading.substr(at));
    at = end + 1;
  }
  return text;
}

std::string Slug(absl::string_view heading) {
  std::string slug;
  for (size_t at = 0; at < heading.size(); ++at) {
    const auto c = static_cast<unsigned char>(heading[at]);
    if (absl::ascii_isalnum(c) || c == '-' || c == '_') {
      slug += static_cast<char>(absl::ascii_tolower(c));
    } else if (c == ' ') {
      slug += '-';
    } else if (c == 0xC2 && at + 1 < heading.size()) {
      ++at;  // U+0080 to U+00BF: punctuation
    } else if (c == 0xE2 && at + 2 < heading.size()) {
      at += 2;  // U+2000 to U+2FFF: dashes, quotes, arrows, signs
    } else if (c >= 0x80) {
      slug += static_cast<char>(c);
    }
  }
  return slug;
}

}  // namespace

std::vector<Fence> FencesOf(absl::string_view page) { return Read(page).fences; }

std::vector<Place> LinksOf(absl::string_view page) {
  std::vector<Place> links;
  const Page read = Read(page);
  for (const Block& block : read.blocks) {
    const std::string plain = WithoutCode(block.text);
    for (size_t at = plain.find("]("); at != kNone; at = plain.find("](", at + 2)) {
      if (plain.rfind('[', at) != kNone) links.push_back({LineAt(block, at), TargetAt(plain, at + 2)});
    }
    for (const std::string attribute : {"href=\"", "src=\"", "srcset=\""}) {
      for (size_t at = plain.find(attribute); at != kNone; at = plain.find(attribute, at + 1)) {
        const size_t begin = at + attribute.size(), end = plain.find('"', begin);
        // "src=" is the end of no other word.
        if (end == kNone || at == 0 || !absl::ascii_isspace(static_cast<unsigned char>(plain[at - 1]))) continue;
        links.push_back({LineAt(block, at), plain.substr(begin, end - begin)});
      }
    }
    size_t begin = 0;
    for (const absl::string_view line : absl::StrSplit(plain, '\n')) {
      const size_t behind = BehindLabel(line);
      if (behind != kNone) links.push_back({LineAt(block, begin), TargetAt(line, behind)});
      begin += line.size() + 1;
    }
  }
  std::stable_sort(links.begin(), links.end(), [](const Place& a, const Place& b) { return a.line < b.line; });
  return links;
}

std::vector<Place> BoldOf(absl::string_view page) {
  std::vector<Place> bold;
  const Page read = Read(page);
  for (const Block& block : read.blocks) {
    // What is code between the stars belongs to the text, and what lies around it is only looked for outside of code.
    const std::string plain = WithoutCode(block.text);
    for (size_t open = plain.find("**"); open != kNone;) {
      const size_t begin = open + 2, close = plain.find("**", begin);
      if (close == kNone) break;
      const bool is_bold = close > begin && !absl::ascii_isspace(static_cast<unsigned char>(block.text[begin])) &&
                           !absl::ascii_isspace(static_cast<unsigned char>(block.text[close - 1]));
      if (!is_bold) {
        open = close;
        continue;
      }
      std::string text;
      const absl::string_view inside = absl::string_view(block.text).substr(begin, close - begin);
      for (const absl::string_view word : absl::StrSplit(inside, absl::ByAnyChar(" \t\n"), absl::SkipEmpty())) {
        absl::StrAppend(&text, text.empty() ? "" : " ", word);
      }
      bold.push_back({LineAt(block, open), text});
      open = plain.find("**", close + 2);
    }
  }
  return bold;
}

std::set<std::string> AnchorsOf(absl::string_view page) {
  std::set<std::string> anchors;
  std::map<std::string, int> seen;
  const Page read = Read(page);
  for (const Block& block : read.blocks) {
    const size_t level = RunOf(block.text, 0, '#');
    if (level == 0 || level > 6 || level >= block.text.size() || block.text[level] != ' ') continue;
    const std::string slug = Slug(WithoutTargets(absl::StripAsciiWhitespace(absl::string_view(block.text).substr(level))));
    const int before = seen[slug]++;
    anchors.insert(before == 0 ? slug : absl::StrCat(slug, "-", before));
  }
  return anchors;
}

}  // namespace fusionllm::docs
