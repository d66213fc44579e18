// From timed runs to rates: non-negative least squares, made robust against runs that something disturbed.
//
// Pure functions. Limit: kMaxSamples a class.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/estimator/cost_model.h"

namespace fusionllm::estimator {

inline constexpr size_t kMaxSamples = 1'000'000;

// One op, timed uncontended.
struct Sample {
  std::string signature;  // for messages
  opdag::OpClass op_class = opdag::OpClass::kFree;
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
};

// Rates of samples of one class, by FitRobustly (robust_fit.h), with its confidence intervals. One sample alone gives an overhead of zero
// and the cheaper explanation of flops or bytes. The relative error is by cross-validation. Errors: InvalidArgument for no samples, too
// many, or numbers not finite, negative, or seconds of zero.
absl::StatusOr<OpRate> FitRate(std::span<const Sample> samples);

// The rates of every class that has samples; the others are left without. Same errors, naming the sample.
absl::StatusOr<std::array<OpRate, opdag::kOpClassCount>> FitRates(std::span<const Sample> samples);

// Latency and bandwidth of a directed link from timed one-way transfers: seconds = latency + bytes / bandwidth, same robust fit.
struct TransferSample {
  double bytes = 0;
  double seconds = 0;
};
struct LinkFit {
  double latency_s = 0;
  double bytes_per_s = 0;
  int samples = 0;
  double relative_error = 0;  // root mean square, of the samples themselves
  // Half widths of 95 % confidence intervals; absent where the samples cannot tell (two or fewer).
  std::optional<double> latency_ci95_s, bytes_per_s_ci95;
};
// Errors: InvalidArgument for fewer than two different sizes or numbers out of range; FailedPrecondition when the times do not grow with
// the bytes, so that no bandwidth can be known.
absl::StatusOr<LinkFit> FitLink(std::span<const TransferSample> samples);

}  // namespace fusionllm::estimator
