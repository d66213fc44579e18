#include "lib/scheduler/grid/grid_problem.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"

namespace fusionllm::scheduler::grid {
namespace {

constexpr double kBitsOfByte = 8;

absl::Status CheckSquare(const std::vector<std::vector<double>>& matrix, size_t n, const char* name, bool positive) {
  if (matrix.size() != n) return absl::InvalidArgumentError(absl::StrFormat("%s has %d rows for %d devices", name, matrix.size(), n));
  for (size_t i = 0; i < n; ++i) {
    if (matrix[i].size() != n) {
      return absl::InvalidArgumentError(absl::StrFormat("%s[%d] has %d entries for %d devices", name, i, matrix[i].size(), n));
    }
    for (size_t j = 0; j < n; ++j) {
      const double value = matrix[i][j];
      if (i == j || (std::isfinite(value) && (positive ? value > 0 : value >= 0))) continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("%s[%d][%d] must be a %s number, got %g", name, i, j, positive ? "positive" : "non-negative", value));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GridProblem> GridProblem::Create(const Network& network, const Shape& shape) {
  const size_t n = network.delay_ms.size();
  if (n < 1 || n > kMaxDevices) {
    return absl::InvalidArgumentError(absl::StrFormat("a network of 1 to %d devices is wanted, this one has %d", kMaxDevices, n));
  }
  if (absl::Status status = CheckSquare(network.delay_ms, n, "delay_ms", /*positive=*/false); !status.ok()) return status;
  if (absl::Status status = CheckSquare(network.bandwidth_gbps, n, "bandwidth_gbps", /*positive=*/true); !status.ok()) return status;
  if (shape.stages < 1 || shape.pipelines < 1 || static_cast<int64_t>(shape.stages) * shape.pipelines != static_cast<int64_t>(n)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d stages of %d pipelines do not make the network's %d devices", shape.stages, shape.pipelines, n));
  }
  for (const auto& [name, value] : {std::pair("gradients", shape.gradient_gib), std::pair("activations", shape.activation_gib)}) {
    if (!std::isfinite(value) || value < 0) {
      return absl::InvalidArgumentError(absl::StrFormat("the GiB of %s must be a non-negative number, got %g", name, value));
    }
    if (value > kMaxGib) {
      return absl::InvalidArgumentError(absl::StrFormat("the GiB of %s must be at most %g, got %g", name, kMaxGib, value));
    }
  }
  GridProblem problem;
  problem.shape_ = shape;
  problem.peer_s_.assign(n * n, 0);
  problem.boundary_s_.assign(n * n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      if (i == j) continue;
      const double alpha_s = (network.delay_ms[i][j] + network.delay_ms[j][i]) / 2 / 1e3;
      const double gb_per_s = (network.bandwidth_gbps[i][j] + network.bandwidth_gbps[j][i]) / 2 / kBitsOfByte;
      problem.peer_s_[i * n + j] = 2 * (alpha_s + shape.gradient_gib / shape.pipelines / gb_per_s);
      problem.boundary_s_[i * n + j] = 2 * (alpha_s + shape.activation_gib / gb_per_s);
      const double slowest_s = std::max(problem.peer_s(i, j), problem.boundary_s(i, j));
      if (slowest_s <= kMaxPairSeconds && !std::isnan(problem.boundary_s(i, j))) continue;
      const bool delayed = !(alpha_s <= kMaxPairSeconds / 2);
      const bool back = delayed && network.delay_ms[j][i] > network.delay_ms[i][j];
      const size_t from = back ? j : i, to = back ? i : j;
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s[%d][%d]: with %g a transfer between devices %d and %d takes more than %g s", delayed ? "delay_ms" : "bandwidth_gbps", from,
          to, (delayed ? network.delay_ms : network.bandwidth_gbps)[from][to], i, j, kMaxPairSeconds));
    }
  }
  return problem;
}

absl::Status CheckGrid(const GridProblem& problem, const Grid& grid) {
  if (static_cast<int>(grid.size()) != problem.stages()) {
    return absl::InvalidArgumentError(absl::StrFormat("the grid has %d rows for %d stages", grid.size(), problem.stages()));
  }
  std::vector<bool> seen(problem.devices());
  for (size_t row = 0; row < grid.size(); ++row) {
    if (static_cast<int>(grid[row].size()) != problem.pipelines()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("row %d of the grid has %d devices for %d pipelines", row, grid[row].size(), problem.pipelines()));
    }
    for (const int device : grid[row]) {
      if (device < 0 || device >= problem.devices()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("row %d of the grid names device %d; there are 0 to %d", row, device, problem.devices() - 1));
      }
      if (seen[device]) return absl::InvalidArgumentError(absl::StrFormat("device %d is in the grid twice, again in row %d", device, row));
      seen[device] = true;
    }
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::scheduler::grid
