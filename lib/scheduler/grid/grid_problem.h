// The allocation problem of DT-FM (arXiv 2206.01288, section 3): N = D_PP x D_DP equal devices on a grid of D_PP pipeline stages and D_DP
// pipelines, and what communication costs there. No computation, memory or layers: it exists so that planners can be compared on the
// measure that paper optimises; what jobs are planned by is lib/scheduler/planner.h.
//
// Immutable after Create, so any thread may read it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fusionllm::scheduler::grid {

// A network as scenario files write it: [from][to], diagonals unused. One-way delays.
struct Network {
  std::string name;
  std::vector<std::vector<double>> delay_ms;
  std::vector<std::vector<double>> bandwidth_gbps;
};

struct Shape {
  int stages = 0;             // D_PP
  int pipelines = 0;          // D_DP
  double gradient_gib = 0;    // c_DP: gradients that a stage's replicas exchange in one iteration
  double activation_gib = 0;  // c_PP: activations that cross one boundary in one iteration and one pipeline
};

class GridProblem {
 public:
  // At most this many devices: pair costs are kept as two dense matrices.
  static constexpr int kMaxDevices = 4096;
  // What is beyond these is no network: sums over all pairs of such costs stay finite, and searches can compare them.
  static constexpr double kMaxGib = 1e9;
  static constexpr double kMaxPairSeconds = 1e18;

  // Both directions of a link count with their mean, as in the paper (section 3.2). InvalidArgument names the entry that is missing, not
  // finite, a negative delay or not a positive bandwidth, or that makes a pair slower than the limit, or the product that is not the number
  // of devices.
  static absl::StatusOr<GridProblem> Create(const Network& network, const Shape& shape);

  int devices() const { return shape_.stages * shape_.pipelines; }
  int stages() const { return shape_.stages; }
  int pipelines() const { return shape_.pipelines; }
  // Seconds: 2 (alpha + c_DP / (D_DP beta)), one peer's share of a sharded all-reduce; 2 (alpha + c_PP / beta), activations there and
  // gradients back. Sections 3.2 and 3.3.
  double peer_s(int a, int b) const { return peer_s_[index(a, b)]; }
  double boundary_s(int a, int b) const { return boundary_s_[index(a, b)]; }
  const std::vector<double>& boundaries() const { return boundary_s_; }  // [a][b], row-major

 private:
  GridProblem() = default;
  size_t index(int a, int b) const { return static_cast<size_t>(a) * devices() + b; }

  Shape shape_;
  std::vector<double> peer_s_, boundary_s_;
};

// Devices by [stage][pipeline].
using Grid = std::vector<std::vector<int>>;

// Errors: InvalidArgument naming the row, or the device that is missing, unknown or there twice.
absl::Status CheckGrid(const GridProblem& problem, const Grid& grid);

}  // namespace fusionllm::scheduler::grid
