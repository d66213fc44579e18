#include "lib/compression/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/quantize.h"

namespace fusionllm::compression {
namespace {

constexpr size_t kLine = 16;  // floats of a cache line
constexpr size_t kMinElementsForSampling = 8192;

uint32_t MagnitudeOf(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

// The magnitude that is k-th from the top, and how many elements lie strictly above it.
struct Kth {
  uint32_t magnitude = 0;
  size_t above = 0;
};

// Narrows the range that holds the k-th by a histogram of 2048 equal parts until one magnitude is left: at most three rounds. The parts
// follow the range, not fixed bits, so that candidates just above a threshold spread over all counters (equal ones would wait for each
// other: 2.5 times slower at 1 %).
Kth KthGreatest(std::span<const float> values, size_t k, std::vector<uint32_t>* work) {
  work->resize(values.size());
  std::transform(values.begin(), values.end(), work->begin(), MagnitudeOf);
  Kth kth;
  size_t left = work->size();
  while (left > 0) {
    uint32_t least = work->front(), greatest = work->front();
    for (size_t i = 0; i < left; ++i) {
      least = std::min(least, (*work)[i]);
      greatest = std::max(greatest, (*work)[i]);
    }
    const int shift = std::max(0, static_cast<int>(std::bit_width(greatest - least)) - 11);
    std::array<uint32_t, 2048> histogram{};
    for (size_t i = 0; i < left; ++i) ++histogram[((*work)[i] - least) >> shift];
    uint32_t part = (greatest - least) >> shift;
    while (kth.above + histogram[part] < k) kth.above += histogram[part--];
    kth.magnitude = least + part;
    if (shift == 0) break;
    size_t kept = 0;
    for (size_t i = 0; i < left; ++i) {
      const uint32_t magnitude = (*work)[i];
      (*work)[kept] = magnitude;
      kept += (magnitude - least) >> shift == part;
    }
    left = kept;
  }
  return kth;
}

// Keeps, in place, what lies above the k-th magnitude and the first of those equal to it. `index(i)` and `value(i)` give candidate i.
template <typename Index, typename Value>
void KeepExactly(size_t candidates, size_t k, Kth kth, Index index, Value value, SelectionScratch* scratch) {
  size_t ties = k - kth.above;
  size_t kept = 0;
  for (size_t i = 0; i < candidates && kept < k; ++i) {
    const float x = value(i);
    const uint32_t magnitude = MagnitudeOf(x);
    if (magnitude < kth.magnitude) continue;
    if (magnitude == kth.magnitude) {
      if (ties == 0) continue;
      --ties;
    }
    scratch->indices[kept] = index(i);
    scratch->values[kept++] = x;
  }
  scratch->indices.resize(k);
  scratch->values.resize(k);
  scratch->last_threshold = kth.magnitude;
}

absl::Status SelectByRadix(std::span<const float> values, size_t k, SelectionScratch* scratch) {
  ++scratch->radix_selections;
  if (const size_t bad = FindUnencodable(values.data(), values.size()); bad < values.size()) return UnencodableError(values, bad);
  const Kth kth = KthGreatest(values, k, &scratch->work);
  scratch->indices.resize(k);
  scratch->values.resize(k);
  KeepExactly(
      values.size(), k, kth, [](size_t i) { return static_cast<uint32_t>(i); }, [&](size_t i) { return values[i]; }, scratch);
  return absl::OkStatus();
}

// Tries one threshold. Returns false when it lets too few or too many through.
absl::StatusOr<bool> SelectByThreshold(std::span<const float> values, size_t k, uint32_t threshold, size_t capacity,
                                       SelectionScratch* scratch) {
  scratch->indices.resize(capacity + kCompactSlack);
  scratch->values.resize(capacity + kCompactSlack);
  const size_t found = CompactAtLeast(values.data(), values.size(), threshold, capacity, scratch->indices.data(), scratch->values.data());
  // What cannot be encoded is above every threshold, so a pass that came to its end has it among the candidates.
  const size_t bad = FindUnencodable(scratch->values.data(), std::min(found, capacity));
  if (bad < std::min(found, capacity)) return UnencodableError(values, scratch->indices[bad]);
  if (found < k || found > capacity) return false;
  const Kth kth = KthGreatest(std::span(scratch->values).first(found), k, &scratch->work);
  KeepExactly(
      found, k, kth, [&](size_t i) { return scratch->indices[i]; }, [&](size_t i) { return scratch->values[i]; }, scratch);
  return true;
}

struct SampledThreshold {
  uint32_t magnitude = 0;
  size_t capacity = 0;
};

SampledThreshold SampleThreshold(std::span<const float> values, size_t k, std::vector<uint32_t>* work) {
  const size_t n = values.size();
  const size_t lines = std::clamp<size_t>(n / 32, 2048, 16384) / kLine;
  const size_t stride = n / kLine / lines * kLine;  // >= 32: n >= 8192 and lines * kLine <= max(n / 32, 2048) <= n / 4
  work->clear();
  for (size_t line = 0; line < lines; ++line) {
    for (size_t i = line * stride; i < line * stride + kLine; ++i) work->push_back(MagnitudeOf(values[i]));
  }
  const double sample = static_cast<double>(work->size());
  const double rank = static_cast<double>(k) * sample / static_cast<double>(n);
  const double safe_rank = rank + 3.5 * std::sqrt(rank) + 2;
  if (safe_rank >= sample) return {};
  const auto at = work->begin() + static_cast<ptrdiff_t>(safe_rank);
  std::nth_element(work->begin(), at, work->end(), std::greater<>());
  const double expected = safe_rank * static_cast<double>(n) / sample;
  return {*at, std::min(n, static_cast<size_t>(2 * expected) + 1024)};
}

}  // namespace

absl::Status UnencodableError(std::span<const float> values, size_t index) { return UnencodableError(index, values[index]); }

absl::Status UnencodableError(size_t index, float x) {
  if (!std::isfinite(x))
    return absl::InvalidArgumentError(absl::StrCat("element ", index, " is non-finite (", x, "): lossy codecs refuse it"));
  return absl::InvalidArgumentError(absl::StrCat("element ", index, " is ", x, ", beyond the 2^120 that lossy codecs accept"));
}

absl::Status SelectTopK(std::span<const float> values, size_t k, SelectionScratch* scratch) {
  const size_t n = values.size();
  if (n < kMinElementsForSampling || k == 0) return SelectByRadix(values, k, scratch);
  if (scratch->last_threshold != 0) {
    // A little lower than last time, so that a small drift still finds k; 20 % more candidates for a normal distribution at 1 %.
    const auto lowered = std::bit_cast<uint32_t>(0.97f * std::bit_cast<float>(scratch->last_threshold));
    FUSIONLLM_ASSIGN_OR_RETURN(const bool done, SelectByThreshold(values, k, lowered, std::min(n, 2 * k + 1024), scratch));
    if (done) return absl::OkStatus();
  }
  const SampledThreshold sampled = SampleThreshold(values, k, &scratch->work);
  if (sampled.magnitude != 0 && sampled.magnitude <= kMaxMagnitudeBits) {
    FUSIONLLM_ASSIGN_OR_RETURN(const bool done, SelectByThreshold(values, k, sampled.magnitude, sampled.capacity, scratch));
    if (done) return absl::OkStatus();
  }
  return SelectByRadix(values, k, scratch);
}

}  // namespace fusionllm::compression
