#include "lib/kube/api/resource_list.h"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/kube/api/quantity.h"

namespace fusionllm::kube {
namespace {

constexpr int64_t kMillis = 1000;

// Sums of what strangers ask for stay a number.
int64_t SaturatingSum(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

// With one decimal where that says more: 1536 MiB are 1.5Gi.
std::string BytesText(int64_t bytes) {
  const char* const units[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; unit + 1 < std::size(units) && value >= 1024; ++unit) value /= 1024;
  const bool whole = value == static_cast<double>(static_cast<int64_t>(value));
  return whole ? absl::StrCat(static_cast<int64_t>(value), units[unit]) : absl::StrFormat("%.1f%s", value, units[unit]);
}

}  // namespace

absl::StatusOr<int64_t> ParseResourceQuantity(absl::string_view resource, absl::string_view quantity) {
  const absl::StatusOr<int64_t> amount = ParseQuantity(quantity, resource == kCpu ? kMillis : 1);
  if (!absl::IsOutOfRange(amount.status())) return amount;
  return absl::StartsWith(quantity, "-") ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

size_t BytesOf(const ResourceList& resources) {
  constexpr size_t kNode = 96;  // of a std::map, its text's buffer with it
  size_t bytes = 0;
  for (const auto& [resource, amount] : resources) bytes += kNode + resource.size();
  return bytes;
}

int64_t QuantityOf(const ResourceList& resources, absl::string_view resource) {
  const auto at = resources.find(resource);
  return at == resources.end() ? 0 : at->second;
}

void AddResourceList(const ResourceList& other, ResourceList& to) {
  for (const auto& [resource, amount] : other) to[resource] = SaturatingSum(QuantityOf(to, resource), amount);
}

void MaxResourceList(const ResourceList& other, ResourceList& to) {
  for (const auto& [resource, amount] : other) to[resource] = std::max(QuantityOf(to, resource), amount);
}

std::string QuantityText(absl::string_view resource, int64_t amount) {
  if (resource == kCpu) return absl::StrCat(static_cast<double>(amount) / kMillis, " cpu");
  const bool bytes = resource == kMemory || resource == "ephemeral-storage" || resource.substr(0, 10) == "hugepages-";
  return absl::StrCat(bytes ? BytesText(amount) : absl::StrCat(amount), " ", resource);
}

std::string ResourceListText(const ResourceList& resources) {
  if (resources.empty()) return "nothing";
  return absl::StrJoin(resources, ", ", [](std::string* out, const auto& entry) { *out += QuantityText(entry.first, entry.second); });
}

}  // namespace fusionllm::kube
