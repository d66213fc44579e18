// Widening of the stored half-width floats to f32, exact for every value. Pure functions.
#pragma once

#include <cstdint>

namespace fusionllm::checkpoint {

float FloatFromF16(uint16_t bits);   // IEEE 754 binary16, subnormals, infinities and NaNs included
float FloatFromBF16(uint16_t bits);  // the upper half of a binary32

}  // namespace fusionllm::checkpoint
