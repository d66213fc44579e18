// Watches what compression does: how far a decoded tensor is from its original, and whether the loss leaves its trend.
//
// No clock, no threads: the caller feeds it. Not thread-safe; one watcher for each run, one sampler for each edge.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace fusionllm::compression {

struct CompressionError {
  double original_norm = 0;
  double decoded_norm = 0;
  double residual_norm = 0;  // of original - decoded
  double relative_error =
      0;                 // residual_norm / original_norm; 0 for a zero original that was decoded as zero, infinite for one that was not
  double cosine = 1;     // between original and decoded; 1 when both are zero, 0 when one is
  double max_error = 0;  // of one element
};

// InvalidArgument when the sizes differ. Sums in double; NaN in either input makes the figures NaN.
absl::StatusOr<CompressionError> CompareTensors(std::span<const float> original, std::span<const float> decoded);

// Says which messages to compare: the first few, then every period-th.
class ComparisonSampler {
 public:
  explicit ComparisonSampler(int64_t period, int64_t first = 1) : period_(period), first_(first) {}  // period >= 1; 0: never
  bool Next() {
    const int64_t message = count_++;
    return period_ > 0 && (message < first_ || message % period_ == 0);
  }

 private:
  int64_t period_, first_;
  int64_t count_ = 0;
};

// One run's losses, step by step. It asks for a back-off when the mean of the last `recent` losses exceeds the best mean of `window` losses
// seen so far by more than `sigmas` standard errors and by more than `min_relative_rise`; or at once when a loss is not finite. A falling
// or flat loss never triggers it: that the loss could fall faster without compression is not visible here. After a back-off it forgets what
// it saw.
class LossDivergenceDetector {
 public:
  struct Options {
    int window = 32;                  // 4 to 10'000
    int recent = 8;                   // 1 to window
    double sigmas = 5;                // > 0
    double min_relative_rise = 0.02;  // >= 0
  };
  struct Backoff {
    std::string reason;   // "CompressionBackoff"
    std::string message;  // a sentence with step and figures
  };

  LossDivergenceDetector() : LossDivergenceDetector(Options()) {}
  // Options outside their ranges are moved into them.
  explicit LossDivergenceDetector(const Options& options);

  std::optional<Backoff> Observe(int64_t step, double loss);
  // Forget the trend: after a restore or a change of codecs made for other reasons.
  void Reset();

 private:
  Options options_;
  std::deque<double> losses_;  // at most window + recent
  std::optional<double> best_mean_;
  double deviation_ = 0;  // of losses about the line through their window, a running mean over windows
};

}  // namespace fusionllm::compression
