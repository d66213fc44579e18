#include "lib/base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace fusionllm::base {
namespace {

// Insertions, deletions, replacements and swaps of neighbours, each 1: the usual slips of typing.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    next[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      next[j + 1] = std::min({row[j] + (a[i] == b[j] ? 0 : 1), row[j + 1] + 1, next[j] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row.back();
}

// All runs of words of a name, folded: "a-b" gives "a", "b", "ab". Of its first 64 bytes, which bounds them.
std::vector<std::string> WordRuns(absl::string_view name) {
  const std::vector<absl::string_view> words = absl::StrSplit(name.substr(0, 64), absl::ByAnyChar("-_./ "), absl::SkipEmpty());
  std::vector<std::string> runs;
  for (size_t begin = 0; begin < words.size(); ++begin) {
    std::string run;
    for (size_t end = begin; end < words.size(); ++end) runs.push_back(run += NormalizeName(words[end]));
  }
  return runs;
}

// Of the nearest of `runs` to `whole`; more than any limit where none is near.
size_t DistanceToARun(const std::string& whole, const std::vector<std::string>& runs) {
  constexpr size_t kShortest = 3;
  const size_t limit = whole.size() <= kShortest ? 0 : std::max<size_t>(1, whole.size() / 4);
  size_t nearest = std::string::npos;
  for (const std::string& run : runs) {
    const size_t distance = EditDistance(whole, run);
    if (distance <= limit && (distance == 0 || run.size() > kShortest)) nearest = std::min(nearest, distance);
  }
  return nearest;
}

std::string ShortestThatBeginsWith(const std::string& wanted, std::span<const std::string> choices) {
  constexpr size_t kShortest = 3;
  std::string best;
  if (wanted.size() < kShortest) return best;
  for (const std::string& choice : choices) {
    if (absl::StartsWith(NormalizeName(choice), wanted) && (best.empty() || choice.size() < best.size())) best = choice;
  }
  return best;
}

}  // namespace

std::string NormalizeName(absl::string_view text) {
  std::string folded;
  for (const char c : text.substr(0, 64)) {
    if (c != '_' && c != '-') folded += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  return folded;
}

std::string NearestName(absl::string_view text, std::span<const std::string> choices) {
  const std::string wanted = NormalizeName(text);
  std::string best;
  size_t best_distance = std::max<size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& choice : choices) {
    const size_t distance = EditDistance(wanted, NormalizeName(choice));
    if (distance < best_distance && distance < choice.size()) {
      best_distance = distance;
      best = choice;
    }
  }
  return best;
}

std::string NearestNameOrPart(absl::string_view text, std::span<const std::string> choices) {
  if (std::string longer = ShortestThatBeginsWith(NormalizeName(text), choices); !longer.empty()) return longer;
  if (std::string near = NearestName(text, choices); !near.empty()) return near;
  const std::string wanted = NormalizeName(text);
  if (wanted.size() < 2) return "";
  const std::vector<std::string> runs = WordRuns(text);
  std::string best;
  size_t best_distance = std::string::npos;
  for (const std::string& choice : choices) {
    const size_t distance = std::min(DistanceToARun(wanted, WordRuns(choice)), DistanceToARun(NormalizeName(choice), runs));
    if (distance == std::string::npos) continue;
    if (best.empty() || distance < best_distance || (distance == best_distance && choice.size() < best.size())) {
      best_distance = distance;
      best = choice;
    }
  }
  return best;
}

}  // namespace fusionllm::base
