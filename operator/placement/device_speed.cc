#include "operator/placement/device_speed.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/planning/gpu_profile.h"
#include "lib/planning/profiles.h"

namespace fusionllm::op::placement {
namespace {

constexpr char kSeparators[] = "-_. /";

std::vector<std::string> WordsOf(absl::string_view text) {
  return absl::StrSplit(absl::AsciiStrToLower(text), absl::ByAnyChar(kSeparators), absl::SkipEmpty());
}

// What tells variants of one model apart.
bool IsVariant(const std::string& word) { return word == "sxm" || word == "pcie" || absl::EndsWith(word, "gb"); }

std::set<std::string> WordsOfProduct(const std::string& product) {
  std::set<std::string> words;
  for (const std::string& word : WordsOf(product)) {
    // "SXM4"; and of the H100s only that in an SXM socket says what its memory is.
    const bool socket = absl::StartsWith(word, "sxm") || word == "hbm3";
    words.insert(socket ? "sxm" : word);
  }
  return words;
}

}  // namespace

const estimator::GpuSpec* GpuOfProduct(const std::string& product) {
  const std::set<std::string> words = WordsOfProduct(product);
  for (const char* const part : {"mig", "shared", "laptop"}) {
    if (words.contains(part)) return nullptr;
  }
  const estimator::GpuSpec* best = nullptr;
  std::tuple<int, int, double> best_key;
  for (const estimator::GpuSpec& gpu : estimator::GpuSpecs()) {
    std::vector<std::string> name = WordsOf(gpu.name);
    name.erase(name.begin());  // the maker
    int agree = 0, open = 0;
    bool same_model = true;
    for (const std::string& word : name) {
      const bool said = words.contains(word);
      if (!IsVariant(word)) same_model = same_model && said;
      if (IsVariant(word)) ++(said ? agree : open);
    }
    const std::tuple key(-agree, open, gpu.fp32_flops);
    if (!same_model || (best != nullptr && best_key <= key)) continue;
    best = &gpu;
    best_key = key;
  }
  return best;
}

absl::StatusOr<wire::DeviceProfile> AssumedProfile(const std::string& product, const kube::ResourceList& each, job::Precision precision) {
  if (!product.empty()) {
    const estimator::GpuSpec* const gpu = GpuOfProduct(product);
    if (gpu == nullptr) return absl::FailedPreconditionError(absl::StrCat("no figures are known of ", product));
    return planning::ProfileOf(*gpu, planning::ArithmeticOf(precision));
  }
  const int64_t asked_cpu = kube::QuantityOf(each, kube::kCpu), asked_memory = kube::QuantityOf(each, kube::kMemory);
  const double cores = asked_cpu > 0 ? static_cast<double>(asked_cpu) / 1000 : 1;
  const estimator::GpuSpec processor{.name = "cpu",
                                     .memory_bytes = asked_memory > 0 ? asked_memory : kUnknownMemoryBytes,
                                     .memory_bytes_per_s = cores * kCoreBytesPerS,
                                     .fp32_flops = cores * kCoreFlops};
  return planning::ProfileOf(processor, estimator::Arithmetic::kFp32);
}

}  // namespace fusionllm::op::placement
