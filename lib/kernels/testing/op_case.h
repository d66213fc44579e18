// One op with random data, and how its backward ops are wired: what the kernel tests run on every back end.
//
// Buffers handed to kernels stand between sentinels, so a kernel that writes past an output, a parameter or its workspace is caught.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/kernels/backend.h"
#include "lib/kernels/prepared_op.h"
#include "lib/tensor/memory.h"

namespace fusionllm::kernels::testing {

// Inputs are of order 1, so a result far below 1 is what cancellation left: its rounding error is that of numbers of order 1.
inline constexpr double kAbsoluteTolerance = 1e-6;

// A tensor by value.
struct Array {
  tensor::TensorType type;
  std::vector<std::byte> bytes;

  explicit Array(tensor::TensorType t) : type(std::move(t)), bytes(type.bytes()) {}
  float* f32() { return reinterpret_cast<float*>(bytes.data()); }
  const float* f32() const { return reinterpret_cast<const float*>(bytes.data()); }
  int32_t* i32() { return reinterpret_cast<int32_t*>(bytes.data()); }
};

// A backward op of a case. Names in the lists: x0, x1 .. forward inputs, p0 .. parameters, y0 .. outputs, dy the gradient of y0.
// `outputs` says what each output is the gradient of.
struct BackwardOp {
  std::string type;
  opdag::Attributes attributes;
  std::vector<std::string> inputs, parameters, outputs;
};

struct OpCase {
  PreparedOp op;
  std::vector<Array> inputs, parameters;
  std::vector<BackwardOp> backward;
  // Largest |difference| between back ends, relative to max(|reference|, rms of the reference tensor), beyond kAbsoluteTolerance.
  double tolerance = 1e-5;
};

struct RunOptions {
  Mode mode = Mode::kTrain;
  RandomContext random;
  std::vector<bool> wanted;                        // empty: all outputs
  std::vector<bool> accumulate;                    // empty: none
  std::vector<Array> initial;                      // what outputs hold before (for accumulate); empty: a pattern of NaNs
  bool in_place = false;                           // an output shares memory with an input:
  int output_in_place = 0, input_in_place = 0;     // these
  tensor::Memory* memory = &tensor::HostMemory();  // the back end's
};

struct RunResult {
  absl::Status status;
  std::vector<Array> outputs, parameters;
  std::string overrun;  // empty: every sentinel and every input is intact
};

using KernelMaker = std::function<absl::StatusOr<std::unique_ptr<Kernel>>(PreparedOp)>;

RunResult RunKernel(Kernel& kernel, const OpCase& op_case, const RunOptions& options = {});
RunResult RunCase(const KernelMaker& make, const OpCase& op_case, const RunOptions& options = {});

// The case of a backward op, fed from the forward case, its outputs and a gradient `dy` of y0.
OpCase BackwardCase(const OpCase& forward, const BackwardOp& backward, const std::vector<Array>& outputs, const Array& dy);

Array RandomArray(const tensor::TensorType& type, uint64_t seed);

// "" when every element of b is within tolerance of a; else the first that is not. Integers must be equal.
std::string Difference(const Array& a, const Array& b, double tolerance);

// One case of every forward op type with shapes drawn from the seed; extents grow with `size` (1 = tiny).
std::vector<OpCase> RandomCases(uint32_t seed, int size);
// A few forward ops large enough for every way in which a back end cuts work into chunks; the reference needs about a second for them.
std::vector<OpCase> LargeCases(uint32_t seed);

}  // namespace fusionllm::kernels::testing
