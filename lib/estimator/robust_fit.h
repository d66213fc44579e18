// Non-negative linear fit of positive observations, made robust against a share of wild ones, with confidence intervals. Internal to
// lib/estimator; rate_fit.h says what is fitted.
//
// Pure functions.
#pragma once

#include <array>
#include <optional>
#include <span>

namespace fusionllm::estimator {

inline constexpr int kTerms = 3;
using Terms = std::array<double, kTerms>;

// y = sum of x[i] * rate[i], give or take a share of y. y > 0, x[i] >= 0. A term that is 0 in all observations is left out.
struct Observation {
  Terms x;
  double y;
};

// Rates are >= 0 (every active set of the three is tried, which is exact). Errors count relative to what is fitted, so that 10 us and 100
// ms count alike and noise in proportion to y leaves no bias. First least absolute deviations, which a few wild observations cannot move
// far; then Tukey's bisquare, iterated, which gives those no weight.
Terms FitRobustly(std::span<const Observation> observations);

// fitted / observed - 1.
double RelativeError(const Observation& observation, const Terms& rates);

// Half widths of the 95 % confidence intervals around rates that FitRobustly gave: the covariance of an M-estimate (Huber, Robust
// Statistics, 1981, eq. 7.6.6; scale and small-sample corrections of Street, Carroll and Ruppert, American Statistician 42, 1988) and
// Student's quantile. Of all terms that occur, also those that are 0 for want of negative ones: such an interval is too wide rather than
// too narrow. Absent where the observations cannot tell: no more of them than terms, or terms that only change together.
std::array<std::optional<double>, kTerms> HalfWidths(std::span<const Observation> observations, const Terms& rates);

}  // namespace fusionllm::estimator
