#include "lib/compression/loss_divergence_detector.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::compression {
namespace {

constexpr char kReason[] = "CompressionBackoff";

struct Line {
  double mean = 0;
  double deviation = 0;  // of the values about their least-squares line
};

Line FitLine(std::deque<double>::const_iterator begin, int count) {
  Line line;
  for (int i = 0; i < count; ++i) line.mean += begin[i] / count;
  const double middle = (count - 1) / 2.0;
  double covariance = 0, variance = 0;
  for (int i = 0; i < count; ++i) {
    covariance += (i - middle) * (begin[i] - line.mean);
    variance += (i - middle) * (i - middle);
  }
  const double slope = covariance / variance;
  double squares = 0;
  for (int i = 0; i < count; ++i) {
    const double off = begin[i] - line.mean - slope * (i - middle);
    squares += off * off;
  }
  line.deviation = std::sqrt(squares / (count - 2));
  return line;
}

}  // namespace

absl::StatusOr<CompressionError> CompareTensors(std::span<const float> original, std::span<const float> decoded) {
  if (original.size() != decoded.size()) {
    return absl::InvalidArgumentError(absl::StrCat("comparison of ", original.size(), " elements with ", decoded.size()));
  }
  // Sums in lanes, which a compiler turns into vectors: a tenth of the time of one running sum.
  constexpr size_t kLanes = 8;
  double original_lanes[kLanes] = {}, decoded_lanes[kLanes] = {}, residual_lanes[kLanes] = {}, product_lanes[kLanes] = {};
  float greatest_lanes[kLanes] = {};
  const auto add = [&](size_t i, size_t lane) {
    const double a = original[i], b = decoded[i], off = a - b;
    original_lanes[lane] += a * a;
    decoded_lanes[lane] += b * b;
    residual_lanes[lane] += off * off;
    product_lanes[lane] += a * b;
    greatest_lanes[lane] = std::max(greatest_lanes[lane], std::abs(original[i] - decoded[i]));
  };
  const size_t whole = original.size() - original.size() % kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (size_t i = whole; i < original.size(); ++i) add(i, i - whole);
  double original_squares = 0, decoded_squares = 0, residual_squares = 0, product = 0, greatest = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    original_squares += original_lanes[lane];
    decoded_squares += decoded_lanes[lane];
    residual_squares += residual_lanes[lane];
    product += product_lanes[lane];
    greatest = std::max<double>(greatest, greatest_lanes[lane]);
  }
  if (std::isnan(residual_squares)) greatest = residual_squares;  // max passes a NaN by
  CompressionError error;
  error.original_norm = std::sqrt(original_squares);
  error.decoded_norm = std::sqrt(decoded_squares);
  error.residual_norm = std::sqrt(residual_squares);
  error.max_error = greatest;
  if (original_squares == 0) {
    error.relative_error = residual_squares == 0 ? 0 : std::numeric_limits<double>::infinity();
  } else {
    error.relative_error = error.residual_norm / error.original_norm;
  }
  if (original_squares == 0 || decoded_squares == 0) {
    error.cosine = original_squares == decoded_squares ? 1 : 0;
  } else {
    error.cosine = product / (error.original_norm * error.decoded_norm);
  }
  return error;
}

LossDivergenceDetector::LossDivergenceDetector(const Options& options) : options_(options) {
  options_.window = std::clamp(options_.window, 4, 10'000);
  options_.recent = std::clamp(options_.recent, 1, options_.window);
}

void LossDivergenceDetector::Reset() {
  losses_.clear();
  best_mean_.reset();
  deviation_ = 0;
}

std::optional<LossDivergenceDetector::Backoff> LossDivergenceDetector::Observe(int64_t step, double loss) {
  if (!std::isfinite(loss)) {
    Reset();
    return Backoff{kReason, absl::StrFormat("step %d: the loss is %f", step, loss)};
  }
  losses_.push_back(loss);
  const size_t needed = options_.window + options_.recent;
  if (losses_.size() > needed) losses_.pop_front();
  if (losses_.size() < needed) return std::nullopt;
  // The window ends before the recent losses, so that a rise does not hide itself in the reference.
  const Line window = FitLine(losses_.begin(), options_.window);
  // The best of many windows is a lucky one and tends to look calm, so the noise is averaged over all of them.
  deviation_ = best_mean_.has_value() ? deviation_ + (window.deviation - deviation_) / options_.window : window.deviation;
  best_mean_ = std::min(best_mean_.value_or(window.mean), window.mean);
  double recent = 0;
  for (int i = 0; i < options_.recent; ++i) recent += losses_[options_.window + i] / options_.recent;
  const double standard_error = deviation_ * std::sqrt(1.0 / options_.recent + 1.0 / options_.window);
  const double bound = *best_mean_ + std::max(options_.sigmas * standard_error, options_.min_relative_rise * std::abs(*best_mean_));
  if (recent <= bound) return std::nullopt;
  const double best = *best_mean_;
  Reset();
  return Backoff{kReason, absl::StrFormat("step %d: the mean loss of the last %d steps is %.4f, the best of %d steps was %.4f "
                                          "(bound %.4f)",
                                          step, options_.recent, recent, options_.window, best, bound)};
}

}  // namespace fusionllm::compression
