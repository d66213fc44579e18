#include "lib/planning/gpu_profile.h"

#include "lib/compression/registry.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::planning {
namespace {

// AdamW reads weight, gradient and two moments and writes all but the gradient; the norm reads the gradient once more. All fp32.
constexpr double kUpdateBytesPerElement = 32;
constexpr double kDenseBytes = 4;
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
  for (const compression::Codec* codec : compression::Codecs()) {
    constexpr double kBitsPerByte = 8;
    const double wire_bytes = codec->traits.bits_per_value / kBitsPerByte;
    profile.codecs[codec->traits.name] = {
        .encode_seconds = estimator::StreamSeconds(gpu, codec->traits.encoding_passes * kDenseBytes + wire_bytes),
        .decode_seconds = estimator::StreamSeconds(gpu, kDenseBytes + wire_bytes)};
  }
  return profile;
}

}  // namespace fusionllm::planning
