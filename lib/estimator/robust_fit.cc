#include "lib/estimator/robust_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace fusionllm::estimator {
namespace {

constexpr int kReweightings = 20;
constexpr double kBisquareWidth = 4.685;  // 95 % efficiency on normal errors (Beaton & Tukey 1974)
constexpr double kNormalConsistency = 1.4826;
constexpr double kMinScale = 1e-3;  // residuals below 0.1 % are never outliers
// Rates this close to explaining the data equally well: prefer fewer terms.
constexpr double kSimpler = 1e-12;
// What is fitted far below its observation counts as this share of it, or a wild fit would never be pulled back.
constexpr double kMinFitted = 0.25;
constexpr double kSingular = 1e-12;
// Terms of unit norm whose normal matrix has a smaller pivot change together.
constexpr double kTogether = 1e-9;

using Matrix = std::array<Terms, kTerms>;

// One equation: sum of x[i] * rate[i] = y, both sides divided by the size of the error that is expected; `weight` from the reweighting.
struct Row {
  Terms x;
  double y;
  double weight;
};

Row Scaled(const Observation& o, double by) { return {{o.x[0] / by, o.x[1] / by, o.x[2] / by}, o.y / by, 1}; }

double Fitted(const Terms& x, const Terms& rates) {
  double sum = 0;
  for (int i = 0; i < kTerms; ++i) sum += x[i] * rates[i];
  return sum;
}

double Residual(const Row& row, const Terms& rates) { return Fitted(row.x, rates) - row.y; }

// Solves the normal equations over the active terms by Gaussian elimination with pivoting; false when singular.
bool SolveActive(const Matrix& normal, const Terms& right, unsigned active, double min_pivot, Terms& solution) {
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
    if (std::abs(a[pivot][c]) < min_pivot) return false;
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

// Normal equations of columns scaled to unit norm: their natural sizes differ by 1e9.
struct Normal {
  Terms norm{};
  Matrix matrix{};
  Terms right{};
};

Normal NormalOf(const std::vector<Row>& rows) {
  Normal normal;
  for (const Row& row : rows) {
    for (int i = 0; i < kTerms; ++i) normal.norm[i] += row.weight * row.x[i] * row.x[i];
  }
  for (double& n : normal.norm) n = n > 0 ? std::sqrt(n) : 0;
  for (const Row& row : rows) {
    Terms scaled{};
    for (int i = 0; i < kTerms; ++i) scaled[i] = normal.norm[i] > 0 ? row.x[i] / normal.norm[i] : 0;
    for (int i = 0; i < kTerms; ++i) {
      normal.right[i] += row.weight * scaled[i] * row.y;
      for (int j = 0; j < kTerms; ++j) normal.matrix[i][j] += row.weight * scaled[i] * scaled[j];
    }
  }
  return normal;
}

// Non-negative weighted least squares.
Terms Solve(const std::vector<Row>& rows) {
  const Normal normal = NormalOf(rows);
  Terms best{};
  double best_cost = std::numeric_limits<double>::infinity();
  // Few terms first (0b001, 0b010, 0b100, pairs, all), so that an equally good simpler explanation wins.
  for (unsigned active : {1u, 2u, 4u, 3u, 5u, 6u, 7u}) {
    Terms solution;
    if (!SolveActive(normal.matrix, normal.right, active, kSingular, solution)) continue;
    if (std::any_of(solution.begin(), solution.end(), [](double rate) { return rate < 0; })) continue;
    for (int i = 0; i < kTerms; ++i) solution[i] = normal.norm[i] > 0 ? solution[i] / normal.norm[i] : 0;
    double cost = 0;
    for (const Row& row : rows) cost += row.weight * Residual(row, solution) * Residual(row, solution);
    if (cost < best_cost - kSimpler * static_cast<double>(rows.size())) {
      best_cost = cost;
      best = solution;
    }
  }
  return best;
}

unsigned OccurringTerms(std::span<const Observation> observations) {
  unsigned terms = 0;
  for (const Observation& o : observations) {
    for (int i = 0; i < kTerms; ++i) terms |= o.x[i] > 0 ? 1u << i : 0u;
  }
  return terms;
}

int Count(unsigned terms) {
  int count = 0;
  for (int i = 0; i < kTerms; ++i) count += static_cast<int>(terms >> i & 1u);
  return count;
}

std::vector<Row> RowsAround(std::span<const Observation> observations, const Terms& rates) {
  std::vector<Row> rows;
  for (const Observation& o : observations) rows.push_back(Scaled(o, std::max(Fitted(o.x, rates), kMinFitted * o.y)));
  return rows;
}

// Spread of the residuals by their median; as many of the smallest as there are terms say nothing, since the fit can meet them.
double ScaleOf(const std::vector<Row>& rows, const Terms& rates, int terms) {
  std::vector<double> sizes;
  for (const Row& row : rows) sizes.push_back(std::abs(Residual(row, rates)));
  std::sort(sizes.begin(), sizes.end());
  const size_t skip = std::min<size_t>(static_cast<size_t>(terms), sizes.size() - 1);
  return std::max(kMinScale, kNormalConsistency * sizes[skip + (sizes.size() - skip) / 2]);
}

// 97.5 % quantile of Student's distribution: exact below 5 degrees of freedom, then the expansion of Abramowitz and Stegun 26.7.5.
double StudentQuantile(int degrees) {
  constexpr double kExact[] = {12.7062, 4.30265, 3.18245, 2.77645};
  if (degrees < 5) return kExact[std::max(degrees, 1) - 1];
  constexpr double z = 1.959964, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  const double v = degrees;
  return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) + (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v);
}

}  // namespace

double RelativeError(const Observation& observation, const Terms& rates) { return Fitted(observation.x, rates) / observation.y - 1; }

Terms FitRobustly(std::span<const Observation> observations) {
  std::vector<Row> rows;
  for (const Observation& o : observations) rows.push_back(Scaled(o, o.y));
  Terms rates = Solve(rows);
  // Least absolute deviations: weights of the inverse residual.
  for (int round = 0; round < kReweightings; ++round) {
    for (Row& row : rows) row.weight = 1 / std::max(std::abs(Residual(row, rates)), kMinScale);
    rates = Solve(rows);
  }
  const int terms = Count(OccurringTerms(observations));
  for (int round = 0; round < kReweightings; ++round) {
    rows = RowsAround(observations, rates);
    const double width = kBisquareWidth * ScaleOf(rows, rates, terms);
    for (Row& row : rows) {
      const double u = std::abs(Residual(row, rates)) / width;
      row.weight = u < 1 ? (1 - u * u) * (1 - u * u) : 0;
    }
    rates = Solve(rows);
  }
  return rates;
}

std::array<std::optional<double>, kTerms> HalfWidths(std::span<const Observation> observations, const Terms& rates) {
  std::array<std::optional<double>, kTerms> widths;
  const unsigned active = OccurringTerms(observations);
  const int terms = Count(active), count = static_cast<int>(observations.size());
  if (terms == 0 || count <= terms) return widths;
  const std::vector<Row> rows = RowsAround(observations, rates);
  const double n = count, width = kBisquareWidth * ScaleOf(rows, rates, terms);
  double squares = 0, slope = 0, slope_squares = 0;  // of psi(r) = r (1 - u^2)^2, and of its derivative
  for (const Row& row : rows) {
    const double r = Residual(row, rates), u2 = r * r / (width * width);
    if (u2 >= 1) continue;
    squares += r * r * std::pow(1 - u2, 4);
    const double d = (1 - u2) * (1 - 5 * u2);
    slope += d / n;
    slope_squares += d * d / n;
  }
  if (slope <= 0) return widths;
  const double correction = 1 + terms / n * (slope_squares - slope * slope) / (slope * slope);
  const double variance = correction * correction * squares / (n - terms) / (slope * slope);
  const Normal normal = NormalOf(rows);
  for (int i = 0; i < kTerms; ++i) {
    if (!(active & (1u << i))) continue;
    Terms unit{}, column{};
    unit[i] = 1;
    if (!SolveActive(normal.matrix, unit, active, kTogether, column)) return {};
    widths[i] = StudentQuantile(count - terms) * std::sqrt(variance * std::max(0.0, column[i])) / normal.norm[i];
  }
  return widths;
}

}  // namespace fusionllm::estimator
