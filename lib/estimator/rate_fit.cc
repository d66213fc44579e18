#include "lib/estimator/rate_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/estimator/robust_fit.h"

namespace fusionllm::estimator {
namespace {

constexpr size_t kFolds = 10;

// How far a fit is off on samples that it was not made from: folds are left out in turn, up to kFolds of them. Samples come in the order
// of the graph, in which neighbours are alike, so a fold takes every n-th.
double CrossValidatedError(const std::vector<Observation>& all) {
  if (all.size() < 2) return kUnknownError;
  const size_t folds = std::min(all.size(), kFolds);
  double squares = 0;
  for (size_t fold = 0; fold < folds; ++fold) {
    std::vector<Observation> others;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i % folds != fold) others.push_back(all[i]);
    }
    const Terms rates = FitRobustly(others);
    for (size_t i = fold; i < all.size(); i += folds) squares += std::pow(RelativeError(all[i], rates), 2);
  }
  return std::sqrt(squares / static_cast<double>(all.size()));
}

bool InRange(double number) { return std::isfinite(number) && number >= 0; }

}  // namespace

absl::StatusOr<OpRate> FitRate(std::span<const Sample> samples) {
  if (samples.empty() || samples.size() > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrFormat("%d samples: a fit needs 1 to %d", samples.size(), kMaxSamples));
  }
  std::vector<Observation> all;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& s = samples[i];
    if (!InRange(s.flops) || !InRange(s.bytes) || !InRange(s.seconds) || s.seconds == 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("sample %d (%s): %g FLOPs, %g bytes, %g s must be finite, not negative and take time", i, s.signature, s.flops,
                          s.bytes, s.seconds));
    }
    // One sample cannot tell an overhead from work.
    const double overhead = samples.size() > 1 || s.flops + s.bytes == 0 ? 1 : 0;
    all.push_back({{overhead, s.flops, s.bytes}, s.seconds});
  }
  const Terms rates = FitRobustly(all);
  const auto widths = HalfWidths(all, rates);
  return OpRate{.overhead_s = rates[0],
                .seconds_per_flop = rates[1],
                .seconds_per_byte = rates[2],
                .relative_error = CrossValidatedError(all),
                .samples = static_cast<int>(samples.size()),
                .overhead_ci95_s = widths[0],
                .seconds_per_flop_ci95 = widths[1],
                .seconds_per_byte_ci95 = widths[2]};
}

absl::StatusOr<std::array<OpRate, opdag::kOpClassCount>> FitRates(std::span<const Sample> samples) {
  std::array<std::vector<Sample>, opdag::kOpClassCount> by_class;
  for (const Sample& sample : samples) by_class[static_cast<size_t>(sample.op_class)].push_back(sample);
  std::array<OpRate, opdag::kOpClassCount> rates;
  for (size_t c = 0; c < by_class.size(); ++c) {
    if (by_class[c].empty() || c == static_cast<size_t>(opdag::OpClass::kFree)) continue;
    FUSIONLLM_ASSIGN_OR_RETURN(rates[c], FitRate(by_class[c]));
  }
  return rates;
}

absl::StatusOr<LinkFit> FitLink(std::span<const TransferSample> samples) {
  std::vector<Observation> all;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const TransferSample& s : samples) {
    if (!InRange(s.bytes) || !InRange(s.seconds) || s.seconds == 0) {
      return absl::InvalidArgumentError(absl::StrFormat("a transfer of %g bytes in %g s is no measurement", s.bytes, s.seconds));
    }
    least = std::min(least, s.bytes);
    most = std::max(most, s.bytes);
    all.push_back({{1, 0, s.bytes}, s.seconds});
  }
  if (all.size() > kMaxSamples || !(most > least)) {
    return absl::InvalidArgumentError("latency and bandwidth need transfers of at least two different sizes");
  }
  const Terms rates = FitRobustly(all);
  if (rates[2] <= 0)
    return absl::FailedPreconditionError("larger transfers took no longer: the bandwidth cannot be computed from these samples");
  LinkFit fit{.latency_s = rates[0], .bytes_per_s = 1 / rates[2], .samples = static_cast<int>(all.size())};
  double squares = 0;
  for (const Observation& o : all) squares += std::pow(RelativeError(o, rates), 2);
  fit.relative_error = std::sqrt(squares / fit.samples);
  const auto widths = HalfWidths(all, rates);
  fit.latency_ci95_s = widths[0];
  // By the derivative of 1 / rate.
  if (widths[2].has_value()) fit.bytes_per_s_ci95 = *widths[2] / (rates[2] * rates[2]);
  return fit;
}

}  // namespace fusionllm::estimator
