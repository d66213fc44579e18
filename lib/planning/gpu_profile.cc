#include "lib/planning/gpu_profile.h"

#include "lib/compression/spec.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::planning {
namespace {

using compression::CodecKind;

// AdamW reads weight, gradient and two moments and writes all but the gradient; the norm reads the gradient once more. All fp32.
constexpr double kUpdateBytesPerElement = 32;
constexpr double kDenseBytes = 4;
// The selection of top-k looks at the values several times: assumed, not measured.
constexpr double kPassesOfSelection = 4;

// Of one element, encoded.
double WireBytes(CodecKind kind) {
  switch (kind) {
    case CodecKind::kExact:
      return 4;
    case CodecKind::kFp16:
    case CodecKind::kBf16:
      return 2;
    case CodecKind::kInt8:
      return 1;
    case CodecKind::kInt4:
      return 0.5;
    case CodecKind::kTopK:
      return 0;
  }
  return kDenseBytes;
}

}  // namespace

wire::DeviceProfile ProfileOf(const estimator::GpuSpec& gpu, estimator::Arithmetic arithmetic) {
  wire::DeviceProfile profile{.backend = "none",
                              .specification = std::string(gpu.name),
                              .arithmetic = std::string(estimator::Name(estimator::ArithmeticOn(gpu, arithmetic))),
                              .memory_bytes = gpu.memory_bytes};
  const auto rates = estimator::SpecifiedRates(gpu, arithmetic);
  for (int c = 0; c < opdag::kOpClassCount; ++c) {
    if (rates[c].specified) profile.rates[std::string(opdag::Name(static_cast<opdag::OpClass>(c)))] = rates[c];
  }
  profile.update_seconds_per_element = estimator::StreamSeconds(gpu, kUpdateBytesPerElement);
  for (const CodecKind kind :
       {CodecKind::kExact, CodecKind::kFp16, CodecKind::kBf16, CodecKind::kInt8, CodecKind::kInt4, CodecKind::kTopK}) {
    const double decoded = estimator::StreamSeconds(gpu, kDenseBytes + WireBytes(kind));
    const double encoded = kind == CodecKind::kTopK ? estimator::StreamSeconds(gpu, kPassesOfSelection * kDenseBytes) : decoded;
    profile.codecs[std::string(compression::Name(kind))] = {.encode_seconds = encoded, .decode_seconds = decoded};
  }
  return profile;
}

}  // namespace fusionllm::planning
