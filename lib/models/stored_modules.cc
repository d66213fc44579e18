#include "lib/models/stored_modules.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::models {

int64_t CountModules(const StoredShapes& stored, absl::string_view prefix) {
  int64_t count = 0;
  for (const auto& [name, shape] : stored) {
    if (!absl::StartsWith(name, prefix)) continue;
    int64_t number = 0;
    const std::string rest = name.substr(prefix.size());
    if (absl::SimpleAtoi(rest.substr(0, rest.find('.')), &number) && number < int64_t{1} << 32) count = std::max(count, number + 1);
  }
  return count;
}

std::optional<std::vector<int64_t>> ExtentsOf(const StoredShapes& stored, const char* name, size_t rank) {
  const auto found = stored.find(name);
  if (found == stored.end() || found->second == nullptr || found->second->dims().size() != rank) return std::nullopt;
  return found->second->dims();
}

void SizeDifferences::Add(absl::string_view field, const std::string& from, const std::string& to) {
  if (from != to) found_.push_back({std::string(field), from, to});
}

void SizeDifferences::Add(absl::string_view field, int64_t from, int64_t to) { Add(field, absl::StrCat(from), absl::StrCat(to)); }

}  // namespace fusionllm::models
