#include "lib/workload/parameter_names.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::workload {
namespace {

constexpr absl::string_view kOptimizerFolder = "optimizer.";
constexpr absl::string_view kBufferEndings[] = {".num_batches_tracked", ".exp_avg", ".exp_avg_sq", ".momentum_buffer"};

template <size_t N>
bool EndsWithAny(absl::string_view name, const absl::string_view (&endings)[N]) {
  return std::any_of(std::begin(endings), std::end(endings), [&](absl::string_view ending) { return absl::EndsWith(name, ending); });
}

struct Number {
  size_t begin = 0, end = 0;
  int64_t value = 0;
};

// Those that fit.
std::vector<Number> NumbersIn(absl::string_view name) {
  std::vector<Number> numbers;
  for (size_t at = 0; at < name.size();) {
    size_t end = at;
    while (end < name.size() && absl::ascii_isdigit(static_cast<unsigned char>(name[end]))) ++end;
    Number number{.begin = at, .end = end};
    if (end > at && absl::SimpleAtoi(name.substr(at, end - at), &number.value)) numbers.push_back(number);
    at = std::max(end, at + 1);
  }
  return numbers;
}

// "fc." of "fc.weight"; empty for a name without a point.
absl::string_view ModuleOf(absl::string_view name) {
  const size_t point = name.rfind('.');
  return point == absl::string_view::npos ? "" : name.substr(0, point + 1);
}

}  // namespace

bool IsBuffer(absl::string_view name, const models::Family* family) {
  if (absl::StartsWith(name, kOptimizerFolder) || EndsWithAny(name, kBufferEndings)) return true;
  return family != nullptr && family->IsBuffer(name);
}

void NameCounts::Add(absl::string_view name) {
  for (const Number& number : NumbersIn(name)) {
    int64_t& greatest = greatest_.try_emplace(std::string(name.substr(0, number.begin)), number.value).first->second;
    greatest = std::max(greatest, number.value);
  }
}

std::string NameCounts::Beyond(absl::string_view name) const {
  for (const Number& number : NumbersIn(name)) {
    const auto found = greatest_.find(name.substr(0, number.begin));
    if (found != greatest_.end() && number.value > found->second) return std::string(name.substr(0, number.end));
  }
  return "";
}

std::vector<std::string> PatternsFor(const std::vector<std::string>& names, const std::vector<std::string>& all, const NameCounts& counts) {
  std::map<std::string, int64_t, std::less<>> others;  // of each module, those that are not meant
  for (const std::string& name : all) ++others[std::string(ModuleOf(name))];
  for (const std::string& name : names) --others[std::string(ModuleOf(name))];
  std::vector<std::string> patterns;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    const std::string beyond = counts.Beyond(name);
    const absl::string_view module = ModuleOf(name);
    std::string pattern = name;
    if (!beyond.empty() && absl::StartsWith(name, absl::StrCat(beyond, "."))) {
      pattern = absl::StrCat(beyond, ".*");
    } else if (!module.empty() && others[std::string(module)] <= 0) {
      pattern = absl::StrCat(module, "*");
    }
    if (seen.insert(pattern).second) patterns.push_back(std::move(pattern));
  }
  return patterns;
}

}  // namespace fusionllm::workload
