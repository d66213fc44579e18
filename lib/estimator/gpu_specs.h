// GPUs by name with the figures that their makers publish, so that a plan can be made for hardware one does not have; and the rates of op
// classes that follow from them by a roofline (Williams, Waterman and Patterson, CACM 52(4), 2009): an op takes as long as its arithmetic
// or its memory traffic, whichever is more, at a stated share of the peak, and a launch.
//
// Nothing here is measured. The figures are the makers'; the shares are assumptions, with what supports them beside each. Plans made from
// them say so (planning/confidence.h). Plain data and pure functions; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/estimator/cost_model.h"

namespace fusionllm::estimator {

// What the tensor cores compute in. Values stay fp32 in memory in every case.
enum class Arithmetic { kFp32, kTf32, kBf16 };
// "fp32", "tf32", "bf16".
absl::string_view Name(Arithmetic arithmetic);
std::optional<Arithmetic> ArithmeticNamed(absl::string_view name);

struct GpuSpec {
  absl::string_view name;
  int64_t memory_bytes = 0;  // the maker's GB are taken as 10^9 bytes
  double memory_bytes_per_s = 0;
  // Peaks without sparsity, FLOP a second. 0: the GPU does not know that arithmetic.
  double fp32_flops = 0;
  double tf32_flops = 0;
  double bf16_flops = 0;
  absl::string_view source;
};

// Sorted by name.
std::span<const GpuSpec> GpuSpecs();
// nullptr when there is none of that name.
const GpuSpec* FindGpu(absl::string_view name);
std::vector<std::string> GpuNames();

// Shares of the peaks that ops are assumed to reach.
// Matrix products: public measurements of large ones lie between 51 and 88 % of the peak, 74 % in the middle (A100, A6000, V100 and
// RTX 3090 Ti, github.com/mli/transformers-benchmarks).
inline constexpr double kMatmulShare = 0.7;
// Fused attention: "25-40% of the theoretical maximum" for FlashAttention (arXiv 2307.08691, abstract).
inline constexpr double kAttentionShare = 0.35;
// Convolutions and the arithmetic of all other ops: no source, set below the matrix product.
inline constexpr double kOtherArithmeticShare = 0.5;
// Memory bandwidth: 0.6 at 1 MB, 0.75 at 10 MB, 0.9 at 100 MB in the system files of Calculon (github.com/calculon-ai/calculon, A100).
inline constexpr double kBandwidthShare = 0.75;
// An op of an eager framework, launch included: no source; a launch alone takes a few microseconds.
inline constexpr double kLaunchSeconds = 10e-6;
// What all of this together may be off by: the measurements above differ from kMatmulShare by up to 37 % of its time.
inline constexpr double kSpecifiedError = 0.5;

// What the GPU computes matrix products in where `wanted` is asked for: fp32, without tensor cores, where it lacks that arithmetic.
Arithmetic ArithmeticOn(const GpuSpec& gpu, Arithmetic wanted);

// The peak of the tensor cores; where the GPU lacks that arithmetic, of fp32.
double PeakFlops(const GpuSpec& gpu, Arithmetic arithmetic);

// By op class, kFree left out; OpRate::specified is set.
std::array<OpRate, opdag::kOpClassCount> SpecifiedRates(const GpuSpec& gpu, Arithmetic arithmetic);

// Of something that only streams so many bytes.
double StreamSeconds(const GpuSpec& gpu, double bytes);

}  // namespace fusionllm::estimator
