#include "tests/tidy/includes.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fusionllm::tidy {
namespace {

struct Include {
  std::string path;
  bool quoted = false;
};

std::optional<Include> ParseInclude(absl::string_view line) {
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "#")) return std::nullopt;
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "include")) return std::nullopt;
  line = absl::StripLeadingAsciiWhitespace(line);
  const bool quoted = absl::StartsWith(line, "\"");
  if (!quoted && !absl::StartsWith(line, "<")) return std::nullopt;
  const size_t end = line.find(quoted ? '"' : '>', 1);
  if (end == absl::string_view::npos) return std::nullopt;
  return Include{std::string(line.substr(1, end - 1)), quoted};
}

// The longest folder of the table that holds the path; empty if none does.
std::string FolderOf(absl::string_view path, const LayerTable& layers) {
  std::string best;
  for (const auto& [folder, unused] : layers.allowed) {
    if (absl::StartsWith(path, absl::StrCat(folder, "/")) && folder.size() > best.size()) best = folder;
  }
  return best;
}

bool IsTestCode(absl::string_view path) {
  return absl::EndsWith(path, "_test.cc") || absl::EndsWith(path, "_bench.cc") || absl::StrContains(path, "/testing/");
}

bool Matches(absl::string_view include, absl::string_view pattern) {
  if (absl::ConsumeSuffix(&pattern, "$")) return include == pattern;
  return absl::StartsWith(include, pattern);
}

bool IsGeneratedFrom(absl::string_view include, const std::set<std::string>& files) {
  return (absl::ConsumeSuffix(&include, ".grpc.pb.h") || absl::ConsumeSuffix(&include, ".pb.h")) &&
         files.contains(absl::StrCat(include, ".proto"));
}

// A top folder of the repository, so that `"lib/gone.h"` is told from `"absl/status/status.h"`.
bool StartsInRepository(absl::string_view include, const std::set<std::string>& files) {
  const size_t slash = include.find('/');
  if (slash == absl::string_view::npos) return false;
  const std::string top(include.substr(0, slash + 1));
  const auto first = files.lower_bound(top);
  return first != files.end() && absl::StartsWith(*first, top);
}

// What is wrong with the text of an include, or nothing.
std::string PathProblem(const Include& include, const std::set<std::string>& files) {
  const bool there = files.contains(include.path) || IsGeneratedFrom(include.path, files);
  if (!include.quoted) return there ? "files of the repository are included in quotes" : "";
  if (there) return "";
  if (absl::StrContains(include.path, "../") || absl::StrContains(include.path, "./") || !absl::StrContains(include.path, "/")) {
    return absl::StrCat("\"", include.path, "\" is not a path from the root of the repository");
  }
  return StartsInRepository(include.path, files) ? absl::StrCat("\"", include.path, "\" does not exist") : "";
}

std::string LayerProblem(const SourceFile& file, const Include& include, const LayerTable& layers) {
  const std::string from = FolderOf(file.path, layers);
  const std::string to = FolderOf(include.path, layers);
  if (to.empty() || from == to) return "";
  const std::set<std::string>& allowed = layers.allowed.at(from);
  if (allowed.contains("*") || allowed.contains(to)) return "";
  if (IsTestCode(file.path) && absl::StartsWith(to, "lib/")) return "";
  return absl::StrCat(from, " must not include ", to, " (tests/tidy/layers.txt)");
}

std::string BanProblem(const SourceFile& file, const Include& include, const LayerTable& layers) {
  for (const auto& [folder, patterns] : layers.banned) {
    if (!absl::StartsWith(file.path, absl::StrCat(folder, "/"))) continue;
    for (const std::string& pattern : patterns) {
      if (Matches(include.path, pattern)) return absl::StrCat(folder, " must not know ", include.path, " (tests/tidy/layers.txt)");
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<LayerTable> LayerTable::Parse(absl::string_view text) {
  LayerTable table;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const auto error = [&](absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("layers.txt:", number, ": ", what)); };
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const bool is_ban = absl::ConsumePrefix(&line, "ban ");
    const std::vector<std::string> sides = absl::StrSplit(line, absl::MaxSplits(": ", 1));
    std::string folder(absl::StripAsciiWhitespace(sides[0]));
    if (sides.size() == 1 && !absl::EndsWith(folder, ":")) return error("expected FOLDER: ENTRIES");
    if (sides.size() == 1) folder.pop_back();
    std::vector<std::string> entries;
    if (sides.size() == 2) entries = absl::StrSplit(sides[1], ' ', absl::SkipEmpty());
    if (is_ban) {
      std::vector<std::string>& banned = table.banned[folder];
      banned.insert(banned.end(), entries.begin(), entries.end());
      continue;
    }
    for (const std::string& entry : entries) {
      if (entry != "*" && !table.allowed.contains(entry)) return error(absl::StrCat(entry, " has no line above this one"));
    }
    if (!table.allowed.emplace(folder, std::set<std::string>(entries.begin(), entries.end())).second) {
      return error(absl::StrCat(folder, " has two lines"));
    }
  }
  return table;
}

std::vector<Finding> CheckIncludes(const SourceFile& file, const LayerTable& layers, const std::set<std::string>& files) {
  std::vector<Finding> findings;
  if (FolderOf(file.path, layers).empty()) {
    return {{file.path, 0, "layer", "the folder is not in tests/tidy/layers.txt"}};
  }
  int number = 0;
  for (absl::string_view line : absl::StrSplit(file.text, '\n')) {
    ++number;
    const std::optional<Include> include = ParseInclude(line);
    if (!include) continue;
    const auto add = [&](const std::string& rule, const std::string& problem) {
      if (!problem.empty() && !absl::StrContains(line, absl::StrCat("tidy-allow: ", rule, " because "))) {
        findings.push_back({file.path, number, rule, problem});
      }
    };
    add("include-path", PathProblem(*include, files));
    add("layer", LayerProblem(file, *include, layers));
    add("layer-ban", BanProblem(file, *include, layers));
  }
  return findings;
}

}  // namespace fusionllm::tidy
