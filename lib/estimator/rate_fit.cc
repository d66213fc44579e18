#include "lib/estimator/rate_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::estimator {
namespace {

constexpr int kTerms = 3;
constexpr int kReweightings = 20;
constexpr double kBisquareWidth = 4.685;  // 95 % efficiency on normal errors (Beaton & Tukey 1974)
constexpr double kNormalConsistency = 1.4826;
constexpr size_t kFolds = 10;
constexpr double kLeastScale = 1e-3;  // residuals below 0.1 % are never outliers
// Rates this close to explaining the data equally well: prefer fewer terms.
constexpr double kSimpler = 1e-12;

using Terms = std::array<double, kTerms>;

// One equation: sum of x[i] * rate[i] = 1, both sides divided by the measured time; `weight` from the reweighting.
struct Row {
  Terms x;
  double weight;
};

// Solves the normal equations over the active terms by Gaussian elimination with pivoting; false when singular.
bool SolveActive(const std::array<Terms, kTerms>& normal, const Terms& right, unsigned active, Terms& solution) {
  std::array<std::array<double, kTerms + 1>, kTerms> a{};
  std::array<int, kTerms> index{};
  int n = 0;
  for (int i = 0; i < kTerms; ++i) {
    if (active & (1u << i)) index[n++] = i;
  }
  for (int r = 0; r < n; ++r) {
    for (int c = 0; c < n; ++c) a[r][c] = normal[index[r]][index[c]];
    a[r][n] = right[index[r]];
  }
  for (int c = 0; c < n; ++c) {
    int pivot = c;
    for (int r = c + 1; r < n; ++r) {
      if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
    }
    if (std::abs(a[pivot][c]) < 1e-12) return false;
    std::swap(a[c], a[pivot]);
    for (int r = 0; r < n; ++r) {
      if (r == c) continue;
      const double factor = a[r][c] / a[c][c];
      for (int k = c; k <= n; ++k) a[r][k] -= factor * a[c][k];
    }
  }
  solution = {};
  for (int r = 0; r < n; ++r) solution[index[r]] = a[r][n] / a[r][r];
  return true;
}

double Residual(const Row& row, const Terms& rates) {
  double sum = -1;
  for (int i = 0; i < kTerms; ++i) sum += row.x[i] * rates[i];
  return sum;
}

// Non-negative weighted least squares. Columns are scaled to unit norm first: their natural sizes differ by 1e9.
Terms Solve(const std::vector<Row>& rows) {
  Terms norm{};
  for (const Row& row : rows) {
    for (int i = 0; i < kTerms; ++i) norm[i] += row.weight * row.x[i] * row.x[i];
  }
  for (double& n : norm) n = n > 0 ? std::sqrt(n) : 0;
  std::array<Terms, kTerms> normal{};
  Terms right{};
  for (const Row& row : rows) {
    Terms scaled{};
    for (int i = 0; i < kTerms; ++i) scaled[i] = norm[i] > 0 ? row.x[i] / norm[i] : 0;
    for (int i = 0; i < kTerms; ++i) {
      right[i] += row.weight * scaled[i];
      for (int j = 0; j < kTerms; ++j) normal[i][j] += row.weight * scaled[i] * scaled[j];
    }
  }
  Terms best{};
  double best_cost = std::numeric_limits<double>::infinity();
  // Few terms first (0b001, 0b010, 0b100, pairs, all), so that an equally good simpler explanation wins.
  for (unsigned active : {1u, 2u, 4u, 3u, 5u, 6u, 7u}) {
    Terms solution;
    if (!SolveActive(normal, right, active, solution)) continue;
    if (std::any_of(solution.begin(), solution.end(), [](double rate) { return rate < 0; })) continue;
    for (int i = 0; i < kTerms; ++i) solution[i] = norm[i] > 0 ? solution[i] / norm[i] : 0;
    double cost = 0;
    for (const Row& row : rows) cost += row.weight * Residual(row, solution) * Residual(row, solution);
    if (cost < best_cost - kSimpler * static_cast<double>(rows.size())) {
      best_cost = cost;
      best = solution;
    }
  }
  return best;
}

double MedianOf(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + numbers.size() / 2, numbers.end());
  return numbers[numbers.size() / 2];
}

Terms FitRobustly(std::vector<Row> rows) {
  // A start that a few wild samples cannot move far: least squares with weights of the inverse residual (least absolute deviations).
  Terms rates = Solve(rows);
  for (int round = 0; round < kReweightings; ++round) {
    for (Row& row : rows) row.weight = 1 / std::max(std::abs(Residual(row, rates)), kLeastScale);
    rates = Solve(rows);
  }
  for (int round = 0; round < kReweightings; ++round) {
    std::vector<double> sizes;
    for (const Row& row : rows) sizes.push_back(std::abs(Residual(row, rates)));
    const double width = kBisquareWidth * std::max(kLeastScale, kNormalConsistency * MedianOf(sizes));
    for (size_t i = 0; i < rows.size(); ++i) {
      const double u = sizes[i] / width;
      rows[i].weight = u < 1 ? (1 - u * u) * (1 - u * u) : 0;
    }
    rates = Solve(rows);
  }
  return rates;
}

// How far a fit is off on samples that it was not made from: folds are left out in turn, up to kFolds of them. Samples come in the order
// of the graph, in which neighbours are alike, so a fold takes every n-th.
double CrossValidatedError(const std::vector<Row>& rows) {
  if (rows.size() < 2) return kUnknownError;
  const size_t folds = std::min(rows.size(), kFolds);
  double squares = 0;
  for (size_t fold = 0; fold < folds; ++fold) {
    std::vector<Row> others;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i % folds != fold) others.push_back(rows[i]);
    }
    const Terms rates = FitRobustly(std::move(others));
    for (size_t i = fold; i < rows.size(); i += folds) squares += Residual(rows[i], rates) * Residual(rows[i], rates);
  }
  return std::sqrt(squares / static_cast<double>(rows.size()));
}

bool InRange(double number) { return std::isfinite(number) && number >= 0; }

}  // namespace

absl::StatusOr<OpRate> FitRate(std::span<const Sample> samples) {
  if (samples.empty() || samples.size() > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrFormat("%d samples: a fit needs 1 to %d", samples.size(), kMaxSamples));
  }
  std::vector<Row> rows;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& s = samples[i];
    if (!InRange(s.flops) || !InRange(s.bytes) || !InRange(s.seconds) || s.seconds == 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("sample %d (%s): %g FLOPs, %g bytes, %g s must be finite, not negative and take time", i, s.signature, s.flops,
                          s.bytes, s.seconds));
    }
    // One sample cannot tell an overhead from work.
    const double overhead = samples.size() > 1 || s.flops + s.bytes == 0 ? 1 / s.seconds : 0;
    rows.push_back({{overhead, s.flops / s.seconds, s.bytes / s.seconds}, 1});
  }
  const double error = CrossValidatedError(rows);
  const Terms rates = FitRobustly(std::move(rows));
  return OpRate{.overhead_s = rates[0],
                .seconds_per_flop = rates[1],
                .seconds_per_byte = rates[2],
                .relative_error = error,
                .samples = static_cast<int>(samples.size())};
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
  std::vector<Row> rows;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const TransferSample& s : samples) {
    if (!InRange(s.bytes) || !InRange(s.seconds) || s.seconds == 0) {
      return absl::InvalidArgumentError(absl::StrFormat("a transfer of %g bytes in %g s is no measurement", s.bytes, s.seconds));
    }
    least = std::min(least, s.bytes);
    most = std::max(most, s.bytes);
    rows.push_back({{1 / s.seconds, 0, s.bytes / s.seconds}, 1});
  }
  if (rows.size() > kMaxSamples || !(most > least)) {
    return absl::InvalidArgumentError("latency and bandwidth need transfers of at least two different sizes");
  }
  const Terms rates = FitRobustly(std::move(rows));
  if (rates[2] <= 0)
    return absl::FailedPreconditionError("larger transfers took no longer: the bandwidth cannot be told from these samples");
  return LinkFit{.latency_s = rates[0], .bytes_per_s = 1 / rates[2]};
}

}  // namespace fusionllm::estimator
