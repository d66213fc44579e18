// spec.compression.guard of a job.
#pragma once

#include <cstdint>

namespace fusionllm::compression {

enum class GuardMode : uint8_t {
  kAuto,  // backs off, also from codecs that the job asks for
  kWarn,  // tells what it would do
  kNone,
};

}  // namespace fusionllm::compression
